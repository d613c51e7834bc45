# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording in the Firefox profiler's processed format."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import rxbook
from rxbook.profile.stacks import Stacks, Warn, outermost_first, read, unsaid

_CATEGORIES = {
    "": ("Other", "grey"), "k": ("Kernel", "orange"), "u": ("User", "yellow"), "b": ("BPF", "green"),
    "g": ("Guest", "purple"), "h": ("Hypervisor", "brown"),
}  # fmt: skip
"""Name and colour in the Firefox profiler of each kind of function; it wants a grey one, for what has none."""


def firefox(
    path: str | os.PathLike[str],
    event: str | None = None,
    kallsyms: str | os.PathLike[str] | None = None,
    warn: Warn = unsaid,
) -> str:
    """The Firefox profiler's processed format, version 48: events are its processes, thread names its threads.

    Weights are milliseconds of a clock, else samples, as it knows no unit for other periods. Equal stacks are one
    sample, so that its time axis says how much, not when. Warns and raises as folded() does.
    """
    libs: dict[str, int] = {}
    threads = [
        thread
        for pid, stacks in enumerate(read(path, event, kallsyms, warn))
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


def _threads(stacks: Stacks, pid: int, libs: dict[str, int]) -> list[dict[str, Any]]:
    """A thread for each comm of an event, most weight first; libs takes in the files of its functions."""
    clock = stacks.unit == "nanoseconds"
    by_comm: dict[int, dict[bytes, float]] = {}
    for (comm, chain), (samples, period) in stacks.weights.items():
        by_comm.setdefault(comm, {})[chain] = period / 1e6 if clock else samples
    functions = stacks.functions
    names = list(zip(functions.symbol, functions.dso, functions.kind, strict=True))
    threads = []
    for tid, comm in enumerate(sorted(by_comm, key=lambda comm: -sum(by_comm[comm].values()))):
        named = [[names[number] for number in outermost_first(chain)] for chain in by_comm[comm]]
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
