# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A perf.data file as a Profile: samples summed by function."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rxbook.profile import COLUMNS, INLINED_COLUMNS, EventTotals, Profile, inlines, perfdata, symbols
from rxbook.profile.eventnames import type_name
from rxbook.profile.folding import Counts
from rxbook.profile.perfdata import PerfData
from rxbook.profile.resolved import Functions, Inlined


def load(
    path: str | os.PathLike[str],
    children: bool = False,
    kallsyms: str | os.PathLike[str] | None = None,
    debug: Sequence[str | os.PathLike[str]] = (),
) -> Profile:
    """Read, count and name the samples of a perf.data file; with children, sum call chains too. See profile.load()."""
    data = perfdata.read(path)
    counts = data.count(chains=children)
    files = inlines.DebugFiles(data, debug) if debug else None
    functions = symbols.resolve(data, counts, kallsyms, files)
    if files is not None:
        files.attribute(counts, functions)
    frame = function_frame(data, counts, functions, children)
    warnings = (*data.warnings, *functions.warnings, *data.unwound(children))
    return Profile(frame, totals(data, frame), data.lost, warnings, f"{data.path.name} (perf.data)")


def totals(data: PerfData, functions: pd.DataFrame) -> dict[str, EventTotals]:
    """Samples and period of each event that has samples, or could have: perf's dummy events are left out."""
    own = functions[functions["kind"] != "i"]
    sums = own.groupby("event", observed=True)[["samples", "period"]].sum()
    found = {}
    for event in data.events:
        samples, period = sums.loc[event.name].tolist() if event.name in sums.index else (0, 0)
        if samples or not event.name.startswith("dummy"):
            frequency = event.period if event.frequency else None
            found[event.name] = EventTotals(int(samples), int(period), frequency, type_name(event.type))
    return found


def function_frame(data: PerfData, counts: Counts, functions: Functions, children: bool) -> pd.DataFrame:
    """One row per (event, comm, cpu, dso, symbol), see Profile, largest first."""
    classes, groups = _classes(data, counts)
    wide = np.int64(len(functions.dso) + 1)

    def summed(group: np.ndarray, function: np.ndarray) -> _Sums:
        return _Sums.of(groups[group] * wide + function, counts.samples[group], counts.period[group])

    here = summed(*_sampled(counts, functions))
    own = (
        here
        if functions.leaf_inlined is None
        else summed(*_innermost(counts, functions.leaf_inlined, functions))
    )
    both = summed(*_callers(counts, functions)) if children else here
    keys = np.unique(np.concatenate([here.keys, own.keys, both.keys]))
    row_class, row_function = classes[keys // wide], keys % wide
    frame = pd.DataFrame(
        {
            "event": _taken([event.name for event in data.events], row_class[:, 0]),
            "comm": _taken(counts.comms, row_class[:, 1]),
            "cpu": row_class[:, 2],
            "dso": _taken(functions.dso, row_function),
            "symbol": _taken(functions.symbol, row_function),
            "kind": _taken(functions.kind, row_function),
            "within": _taken([name or None for name in functions.within], row_function),
            "through": _taken([names or None for names in functions.through], row_function),
            "samples": here.at(keys, here.samples),
            "period": here.at(keys, here.period),
            "own_samples": own.at(keys, own.samples),
            "own_period": own.at(keys, own.period),
            "children_samples": both.at(keys, both.samples) if children else _untold(keys),
            "children_period": both.at(keys, both.period) if children else _untold(keys),
        }
    )
    if functions.leaf_inlined is None:
        frame = frame.drop(columns=INLINED_COLUMNS)
    if len(functions.dso) != len(set(_names(functions))):
        frame = _one_row_per_name(frame)
    return _with_shares(frame, children)


def _classes(data: PerfData, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
    """The distinct (event, comm, cpu), and which of them each group has; events of one name are one."""
    names = [event.name for event in data.events]
    first = np.array([names.index(name) for name in names] or [0], np.int64)
    rows = np.stack([first[counts.event], counts.comm, counts.cpu], axis=1)
    classes, place = np.unique(rows, axis=0, return_inverse=True)
    return classes, place.reshape(-1)


def _names(functions: Functions) -> Iterator[tuple[str, ...]]:
    return zip(
        functions.dso, functions.symbol, functions.kind, functions.within, functions.through, strict=True
    )


def _sampled(counts: Counts, functions: Functions) -> tuple[np.ndarray, np.ndarray]:
    """(group, function), once for each function that a group's samples are in, inlined or not."""
    group, function = np.arange(len(counts.leaf)), functions.leaf[counts.leaf]
    if functions.leaf_inlined is None:
        return group, function
    at_leaf, inlined = functions.leaf_inlined.pairs(counts.leaf)
    return _once(np.append(group, at_leaf), np.append(function, inlined), functions)


def _innermost(counts: Counts, inlined: Inlined, functions: Functions) -> tuple[np.ndarray, np.ndarray]:
    """(group, function): the one function that a group's samples are in and in no function inlined deeper."""
    inner = inlined.innermost(counts.leaf)
    return np.arange(len(inner)), np.where(inner >= 0, inner, functions.leaf[counts.leaf])


def _callers(counts: Counts, functions: Functions) -> tuple[np.ndarray, np.ndarray]:
    """(group, function), once for each function that a group's samples are in or were called from."""
    numbers = np.arange(len(counts.leaf))
    group = np.concatenate([numbers, np.repeat(numbers, np.diff(counts.offsets))])
    function = np.concatenate([functions.leaf[counts.leaf], functions.caller[counts.chain]])
    if functions.leaf_inlined is not None and functions.caller_inlined is not None:
        caller = np.ones(len(counts.chain), bool)
        caller[counts.offsets[:-1][np.diff(counts.offsets) > 0]] = False
        at_leaf, in_leaf = functions.leaf_inlined.pairs(counts.leaf)
        at_call, in_call = functions.caller_inlined.pairs(counts.chain[caller])
        group = np.concatenate([group, at_leaf, group[len(numbers) :][caller][at_call]])
        function = np.concatenate([function, in_leaf, in_call])
    return _once(group, function, functions)


def _once(group: np.ndarray, function: np.ndarray, functions: Functions) -> tuple[np.ndarray, np.ndarray]:
    """Of each function, the first place that each group has it in."""
    same = np.array(functions.same, np.int64)[function]
    _, first = np.unique(group * np.int64(len(functions.dso) + 1) + same, return_index=True)
    return group[first], function[first]


@dataclass(frozen=True)
class _Sums:
    """Samples and period by key, keys sorted."""

    keys: np.ndarray
    samples: np.ndarray
    period: np.ndarray

    @classmethod
    def of(cls, keys: np.ndarray, samples: np.ndarray, period: np.ndarray) -> _Sums:
        unique, place = np.unique(keys, return_inverse=True)
        sums = np.zeros((2, len(unique)), np.int64)
        np.add.at(sums[0], place, samples)
        np.add.at(sums[1], place, period)
        return cls(unique, sums[0], sums[1])

    def at(self, keys: np.ndarray, column: np.ndarray) -> pd.api.extensions.ExtensionArray:
        """A column's values for keys, all of self's and others, which have 0."""
        values = np.zeros(len(keys), np.int64)
        values[np.searchsorted(keys, self.keys)] = column
        return pd.array(values, "Int64")


def _taken(strings: list[str], places: np.ndarray) -> pd.Series:
    return pd.Series(pd.array(strings, "string").take(places))


def _untold(keys: np.ndarray) -> pd.api.extensions.ExtensionArray:
    return pd.array([pd.NA] * len(keys), "Int64")


def _one_row_per_name(frame: pd.DataFrame) -> pd.DataFrame:
    """Functions of one name and file, such as several static ones, added up."""
    keys = [name for name in (*COLUMNS[:6], *INLINED_COLUMNS[:2]) if name in frame]
    return frame.groupby(keys, as_index=False, sort=False, dropna=False).sum(min_count=1)


def _with_shares(frame: pd.DataFrame, children: bool) -> pd.DataFrame:
    own = frame["period"].where(frame["kind"] != "i", 0)
    total = own.groupby(frame["event"]).transform("sum").astype("Float64")
    total = total.mask(total == 0)
    frame["share"] = frame["period"].astype("Float64") / total
    frame["children_share"] = frame["children_period"].astype("Float64") / total
    order = ["children_period", "period"] if children else ["period"]
    frame = frame.sort_values(order, ascending=False, kind="stable", ignore_index=True)
    return frame[[name for name in (*COLUMNS, *INLINED_COLUMNS) if name in frame]]
