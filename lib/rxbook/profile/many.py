# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Many recordings as one profile: each is counted by a worker of its own, and only their tables are added up.

Samples and periods are whole numbers, so the sum is that of one pass over all files, in whatever order they come. A
worker holds one recording at a time, and what comes back from it is one row per function.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path

import pandas as pd

from rxbook import RxbookError, profile
from rxbook.profile import EventTotals, Profile

__all__ = ["merged"]

KEYS = ["event", "comm", "cpu", "dso", "symbol", "kind", "within", "through"]
IN_FLIGHT = 64
"""Files that are counted, or whose tables wait to be added, at a time."""

COUNTS = ["samples", "period", "children_samples", "children_period", "own_samples", "own_period"]


def merged(
    paths: Sequence[Path],
    by: str | None = None,
    children: bool = False,
    kallsyms: Path | None = None,
    debug: Sequence[Path] = (),
    executor: Executor | None = None,
) -> Profile:
    """The sum of the profiles of these files, as `profile.load` gives it for one; comm and cpu only where `by` asks.

    executor: what counts the files, one each; default: as many processes as this machine has CPUs for.
    Raises RxbookError where a file cannot be read, or has no sample counts: percentages do not add up.
    """
    dropped = [name for name in ("comm", "cpu") if name != by]
    count = partial(_counted, dropped=dropped, children=children, kallsyms=kallsyms, debug=tuple(debug))
    if executor is None:
        # this process may have threads, of which a fork would copy the locks
        clean = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(len(paths), len(os.sched_getaffinity(0))), clean) as pool:
            return _sum(pool, count, paths)
    return _sum(executor, count, paths)


def _counted(
    path: Path, dropped: Sequence[str], children: bool, kallsyms: Path | None, debug: tuple[Path, ...]
) -> Profile:
    found = profile.load(path, children, kallsyms, debug)
    return Profile(
        _added([found.functions], path.name, dropped), found.events, found.lost, found.warnings, found.source
    )


def _added(tables: Sequence[pd.DataFrame], source: str = "", dropped: Sequence[str] = ()) -> pd.DataFrame:
    """One table of these, rows with equal KEYS summed; columns that are dropped tell nothing any more."""
    joined = pd.concat(tables, ignore_index=True)
    if joined["samples"].isna().any() or joined["period"].isna().any():
        raise RxbookError(f"{source} has no sample counts: percentages of several files do not add up")
    for name in dropped:
        joined[name] = -1 if name == "cpu" else pd.NA
    keys, counts = ([name for name in names if name in joined] for names in (KEYS, COUNTS))
    joined[keys] = joined[keys].astype({name: object for name in keys if name != "cpu"})
    return joined.groupby(keys, dropna=False, sort=True)[counts].sum(min_count=1).reset_index()


def _sum(executor: Executor, count: partial, paths: Sequence[Path]) -> Profile:
    total: pd.DataFrame | None = None
    events: dict[str, EventTotals] = {}
    lost, warnings = 0, []
    for path, found in _as_they_come(executor, count, paths):
        total = found.functions if total is None else _added([total, found.functions])
        for name, about in found.events.items():
            events[name] = _both(events[name], about) if name in events else about
        lost += found.lost
        warnings += [f"{path.name}: {said}" for said in found.warnings]
    return Profile(_with_shares(total), events, lost, tuple(sorted(warnings)), f"{len(paths)} files")


def _as_they_come(
    executor: Executor, count: partial, paths: Sequence[Path]
) -> Iterator[tuple[Path, Profile]]:
    """Never more than IN_FLIGHT at once, so that a night's tables do not pile up."""
    waiting, pending = list(reversed(paths)), {}
    while waiting or pending:
        while waiting and len(pending) < IN_FLIGHT:
            path = waiting.pop()
            pending[executor.submit(count, path)] = path
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            yield pending.pop(future), future.result()


def _both(one: EventTotals, other: EventTotals) -> EventTotals:
    return EventTotals(
        (one.samples or 0) + (other.samples or 0),
        (one.period or 0) + (other.period or 0),
        one.frequency if one.frequency == other.frequency else None,
        one.type,
    )


def _with_shares(functions: pd.DataFrame) -> pd.DataFrame:
    """As COLUMNS wants them: shares of the event's period, largest first."""
    own = functions["kind"] != "i"  # what an inlined function counts, its caller's row has too
    whole = functions["period"].where(own, 0).groupby(functions["event"]).transform("sum").astype("Float64")
    functions["share"] = functions["period"].astype("Float64") / whole
    functions["children_share"] = functions["children_period"].astype("Float64") / whole
    return functions.sort_values("period", ascending=False, kind="stable").reset_index(drop=True)
