# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording in the forms that flame-graph viewers read."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import rxbook
from rxbook import RxbookError
from rxbook.profile import perfdata, symbols
from rxbook.profile.folding import Counts
from rxbook.profile.symbols import Functions

__all__ = ["folded", "speedscope"]

_CLOCKS = ("cpu-clock", "task-clock")
"""Events whose period is time, in nanoseconds; other periods count something."""


@dataclass(frozen=True)
class _Stacks:
    """The unique stacks of one event.

    samples, period by (index in comms, function numbers as int32 bytes, innermost first).
    """

    event: str
    comms: list[str]
    functions: Functions
    weights: dict[tuple[int, bytes], list[int]]

    @property
    def unit(self) -> str:
        """That of the periods, as speedscope calls it."""
        return "nanoseconds" if self.event.partition(":")[0] in _CLOCKS else "none"


def folded(
    path: str | os.PathLike[str], event: str | None = None, kallsyms: str | os.PathLike[str] | None = None
) -> list[str]:
    """`comm;outermost;...;innermost samples`, one line for each stack of one event, most samples first.

    event: default the first that has samples. A recording without call chains gives the sampled function alone.
    Raises RxbookError where the file cannot be read, or has no such event.
    """
    lines: Counter[str] = Counter()
    for stacks in _read(path, event, kallsyms)[:1]:
        # a frame's separator must not stand in a name
        symbol = [name.replace(";", ":") for name in stacks.functions.symbol]
        comms = [name.replace(";", ":") for name in stacks.comms]
        for (comm, chain), (samples, _) in stacks.weights.items():
            names = [symbol[number] for number in _outermost_first(chain)]
            lines[";".join([comms[comm], *names])] += samples
    return [f"{stack} {samples}" for stack, samples in lines.most_common()]


def speedscope(
    path: str | os.PathLike[str], event: str | None = None, kallsyms: str | os.PathLike[str] | None = None
) -> str:
    """speedscope's JSON: a sampled profile for each event that has samples, or for the event asked for.

    The outermost frame is the thread's name; weights are periods: nanoseconds of a clock, else what the event counts.
    Raises RxbookError as folded() does.
    """
    frames: dict[tuple[str, str | None], int] = {}
    profiles = [_sampled(stacks, frames) for stacks in _read(path, event, kallsyms)]
    listed = [{"name": name} if dso is None else {"name": name, "file": dso} for name, dso in frames]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": f"rxbook@{rxbook.__version__}",
            "name": Path(path).name,
            "shared": {"frames": listed},
            "profiles": profiles,
        }
    )


def _sampled(stacks: _Stacks, frames: dict[tuple[str, str | None], int]) -> dict[str, object]:
    """One event as a profile; frames takes in those that it does not have yet."""
    functions = stacks.functions
    place: dict[int, int] = {}
    samples = []
    for comm, chain in stacks.weights:
        numbers = _outermost_first(chain)
        for number in numbers:
            if number not in place:
                key = (functions.symbol[number], functions.dso[number])
                place[number] = frames.setdefault(key, len(frames))
        root = frames.setdefault((stacks.comms[comm], None), len(frames))
        samples.append([root, *(place[number] for number in numbers)])
    weights = [period for _, period in stacks.weights.values()]
    return {
        "type": "sampled",
        "name": stacks.event,
        "unit": stacks.unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _outermost_first(chain: bytes) -> list[int]:
    return np.frombuffer(chain, np.int32)[::-1].tolist()


def _read(
    path: str | os.PathLike[str], event: str | None, kallsyms: str | os.PathLike[str] | None
) -> list[_Stacks]:
    """The stacks of each event that has samples, or of the one asked for, in the file's order."""
    data = perfdata.read(path)
    beside = Path(path).with_name("kallsyms")
    if kallsyms is None and beside.is_file():
        kallsyms = beside
    names = [each.name for each in data.events]
    if event is not None and event not in names:
        raise RxbookError(f"{Path(path).name} has no event {event}; it has {', '.join(names)}")
    counts = data.count(chains=True)
    functions = symbols.resolve(data, counts, kallsyms)
    wanted = dict.fromkeys(names) if event is None else [event]
    found = [_Stacks(name, counts.comms, functions, {}) for name in wanted]
    by_name = {stacks.event: stacks.weights for stacks in found}
    _fold(counts, functions, [by_name.get(name) for name in names])
    return [stacks for stacks in found if stacks.weights]


def _fold(
    counts: Counts, functions: Functions, into: list[dict[tuple[int, bytes], list[int]] | None]
) -> None:
    """Add up the groups that differ by CPU or by address within a function, by event; None: not wanted."""
    numbers = functions.caller[counts.chain].astype(np.int32)
    starts, ends = counts.offsets[:-1], counts.offsets[1:]
    leaves = functions.leaf[counts.leaf].astype(np.int32)
    chained = starts < ends
    # a sampled address without a symbol has another name than in a caller's place
    numbers[starts[chained]] = leaves[chained]
    chains, alone = numbers.tobytes(), leaves.tobytes()
    columns = (counts.event, counts.comm, 4 * starts, 4 * ends, counts.samples, counts.period)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for group, (event, comm, start, end, samples, period) in enumerate(rows):
        weights = into[event]
        if weights is not None:
            chain = chains[start:end] or alone[4 * group : 4 * group + 4]
            sums = weights.setdefault((comm, chain), [0, 0])
            sums[0] += samples
            sums[1] += period
