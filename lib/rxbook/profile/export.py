# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording in the forms that flame-graph viewers read."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rxbook
from rxbook import RxbookError
from rxbook.profile import perfdata, symbols
from rxbook.profile.folding import Counts
from rxbook.profile.resolved import Functions

__all__ = ["firefox", "folded", "speedscope"]

_CLOCKS = ("cpu-clock", "task-clock")
"""Events whose period is time, in nanoseconds; other periods count something."""
_CATEGORIES = {
    "": ("Other", "grey"), "k": ("Kernel", "orange"), "u": ("User", "yellow"), "b": ("BPF", "green"),
    "g": ("Guest", "purple"), "h": ("Hypervisor", "brown"),
}  # fmt: skip
"""Name and colour in the Firefox profiler of each kind of function; it wants a grey one, for what has none."""


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
    Raises RxbookError as folded() does, and where there are no samples, as the viewer cannot open such a file.
    """
    frames: dict[tuple[str, str | None], int] = {}
    profiles = [_sampled(stacks, frames) for stacks in _read_some(path, event, kallsyms)]
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


def _sampled(stacks: _Stacks, frames: dict[tuple[str, str | None], int]) -> dict[str, Any]:
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


def firefox(
    path: str | os.PathLike[str], event: str | None = None, kallsyms: str | os.PathLike[str] | None = None
) -> str:
    """The Firefox profiler's processed format, version 48: events are its processes, thread names its threads.

    Weights are milliseconds of a clock, else samples, as it knows no unit for other periods. Equal stacks are one
    sample, so that its time axis says how much, not when. Raises RxbookError as speedscope() does.
    """
    libs: dict[str, int] = {}
    threads = [
        thread
        for pid, stacks in enumerate(_read_some(path, event, kallsyms))
        for thread in _threads(stacks, pid, libs)
    ]
    meta = {
        "preprocessedProfileVersion": 48,
        "version": 29,
        "product": f"rxbook: {Path(path).name}",
        "importedFrom": f"rxbook {rxbook.__version__}",
        "interval": 1,
        "startTime": 0,
        "processType": 0,
        "stackwalk": 1,
        "symbolicated": True,
        "sourceCodeIsNotOnSearchfox": True,
        "markerSchema": [],
        "categories": [
            {"name": name, "color": color, "subcategories": ["Other"]} for name, color in _CATEGORIES.values()
        ],
    }
    return json.dumps({"meta": meta, "libs": [_lib(name) for name in libs], "threads": threads})


def _lib(name: str) -> dict[str, str | None]:
    paths = dict.fromkeys(("name", "path", "debugName", "debugPath"), name)
    return {"arch": "", **paths, "breakpadId": "", "codeId": None}


def _threads(stacks: _Stacks, pid: int, libs: dict[str, int]) -> list[dict[str, Any]]:
    """A thread for each comm of an event, most weight first; libs takes in the files of its functions."""
    clock = stacks.unit == "nanoseconds"
    by_comm: dict[int, dict[bytes, float]] = {}
    for (comm, chain), (samples, period) in stacks.weights.items():
        by_comm.setdefault(comm, {})[chain] = period / 1e6 if clock else samples
    functions = stacks.functions
    names = list(zip(functions.symbol, functions.dso, functions.kind, strict=True))
    threads = []
    for tid, comm in enumerate(sorted(by_comm, key=lambda comm: -sum(by_comm[comm].values()))):
        named = [[names[number] for number in _outermost_first(chain)] for chain in by_comm[comm]]
        thread = _thread(named, list(by_comm[comm].values()), libs)
        thread["samples"]["weightType"] = "tracing-ms" if clock else "samples"
        thread |= {"name": stacks.comms[comm], "processName": stacks.event, "pid": str(pid), "tid": tid}
        threads.append(thread | {"isMainThread": tid == 0})
    return threads


def _thread(
    stacks: list[list[tuple[str, str, str]]], weights: list[float], libs: dict[str, int]
) -> dict[str, Any]:
    """A thread, but for what names it: one sample for each stack, one after the other."""
    tables = _tables(stacks, libs)
    times = np.cumsum([0, *weights[:-1]]).tolist()
    return {
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "samples": _table(len(weights), stack=tables.pop("leaves"), time=times, weight=weights),
        **tables,
    }


def _tables(stacks: list[list[tuple[str, str, str]]], libs: dict[str, int]) -> dict[str, Any]:
    """A thread's tables: each (symbol, dso, kind) is a function with one frame, stacks are a tree of frames.

    leaves: the place in the tree of each stack.
    """
    frames: dict[tuple[str, str, str], int] = {}
    nodes: dict[tuple[int | None, int], int] = {}
    leaves = []
    for stack in stacks:
        node = None
        for function in stack:
            node = nodes.setdefault((node, frames.setdefault(function, len(frames))), len(nodes))
        leaves.append(node)
    strings: dict[str, int] = {}
    resources: dict[str, int] = {}
    names = [strings.setdefault(symbol, len(strings)) for symbol, _, _ in frames]
    places = [resources.setdefault(dso, len(resources)) for _, dso, _ in frames]
    files = [strings.setdefault(dso, len(strings)) for dso in resources]
    used = [libs.setdefault(dso, len(libs)) for dso in resources]
    category = {kind: place for place, kind in enumerate(_CATEGORIES)}
    categories = [category.get(kind, 0) for _, _, kind in frames]
    n, none, no, zero = len(frames), [None] * len(frames), [False] * len(frames), [0] * len(frames)
    tree = {"frame": [frame for _, frame in nodes], "prefix": [prefix for prefix, _ in nodes]}
    tree |= {"category": [categories[frame] for frame in tree["frame"]], "subcategory": [0] * len(nodes)}
    return {
        "leaves": leaves,
        "stackTable": _table(len(nodes), **tree),
        "frameTable": _table(
            n, address=[-1] * n, inlineDepth=zero, category=categories, subcategory=zero, func=list(range(n)),
            nativeSymbol=none, innerWindowID=none, implementation=none, line=none, column=none,
        ),
        "funcTable": _table(
            n, name=names, isJS=no, relevantForJS=no, resource=places, fileName=none, lineNumber=none,
            columnNumber=none,
        ),
        "resourceTable": _table(
            len(files), lib=used, name=files, host=[None] * len(files), type=[1] * len(files)
        ),
        "nativeSymbols": _table(0, libIndex=[], address=[], name=[], functionSize=[]),
        "markers": _table(0, data=[], name=[], startTime=[], endTime=[], phase=[], category=[]),
        "stringArray": list(strings),
    }  # fmt: skip


def _table(length: int, **columns: list[object]) -> dict[str, Any]:
    return {**columns, "length": length}


def _outermost_first(chain: bytes) -> list[int]:
    return np.frombuffer(chain, np.int32)[::-1].tolist()


def _read_some(
    path: str | os.PathLike[str], event: str | None, kallsyms: str | os.PathLike[str] | None
) -> list[_Stacks]:
    """What _read() gives, RxbookError where it is nothing."""
    found = _read(path, event, kallsyms)
    if not found:
        raise RxbookError(f"{Path(path).name} has no samples{f' of {event}' if event else ''} to show")
    return found


def _read(
    path: str | os.PathLike[str], event: str | None, kallsyms: str | os.PathLike[str] | None
) -> list[_Stacks]:
    """The stacks of each event that has samples, or of the one asked for, in the file's order."""
    data = perfdata.read(path)
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
