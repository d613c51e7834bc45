# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The unique stacks of a recording, from which the exports are written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rxbook import RxbookError
from rxbook.profile import perfdata, symbols
from rxbook.profile.folding import Counts
from rxbook.profile.resolved import Functions

Warn = Callable[[str], object]


def unsaid(said: str) -> None:
    """For callers who know the file."""


_CLOCKS = ("cpu-clock", "task-clock")
"""Events whose period is time, in nanoseconds; other periods count something."""


@dataclass(frozen=True)
class Stacks:
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


def read(
    path: str | os.PathLike[str], event: str | None, kallsyms: str | os.PathLike[str] | None, warn: Warn
) -> list[Stacks]:
    """The stacks of each event that has samples, or of the one asked for, in the file's order; at least one."""
    data = perfdata.read(path)
    names = [each.name for each in data.events]
    if event is not None and event not in names:
        raise RxbookError(f"{Path(path).name} has no event {event}; it has {', '.join(names)}")
    counts = data.count(chains=True)
    functions = symbols.resolve(data, counts, kallsyms)
    for said in (*data.warnings, *functions.warnings, *data.unwound(chains=True)):
        warn(said)
    if data.lost:
        warn(f"{data.lost} samples were lost while recording, and not evenly: busy moments lose most")
    wanted = dict.fromkeys(names) if event is None else [event]
    found = [Stacks(name, counts.comms, functions, {}) for name in wanted]
    by_name = {stacks.event: stacks.weights for stacks in found}
    _fold(counts, functions, [by_name.get(name) for name in names])
    some = [stacks for stacks in found if stacks.weights]
    if not some:
        raise RxbookError(f"{Path(path).name} has no samples{f' of {event}' if event else ''} to show")
    return some


def outermost_first(chain: bytes) -> list[int]:
    return np.frombuffer(chain, np.int32)[::-1].tolist()


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
