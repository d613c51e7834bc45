# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `rxbook perf` prints: one file's functions, or what changed between files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import get_args

import pandas as pd

from rxbook import RxbookError, profile, render
from rxbook.profile import Profile, text
from rxbook.profile.counters import counter_table
from rxbook.profile.functions import Column, function_table
from rxbook.profile.tally import By, Inlined

__all__ = ["files"]

LABELS = ("before", "after")


def files(
    paths: Sequence[Path],
    top: int = 20,
    only: Sequence[str] | None = None,
    by: str | None = None,
    event: str | None = None,
    children: bool = False,
    kallsyms: Path | None = None,
    form: str = "text",
    debug: Sequence[Path] = (),
    inlined: str = "shown",
    together: bool = False,
    executor: Executor | None = None,
) -> str:
    """The table of functions of these files; from the second on each is compared with the first.

    together: all files as one profile, counted by `executor`, see `many.merged`.
    Raises RxbookError where a file cannot be read, or an option is none of those that there are.
    """
    rendered = render.in_form(form)
    if by not in (None, *get_args(By)):
        raise RxbookError(f"--by {by}: say one of {', '.join(get_args(By))}")
    if inlined not in get_args(Inlined):
        raise RxbookError(f"--inlined {inlined}: say one of {', '.join(get_args(Inlined))}")
    if top < 1:
        raise RxbookError(f"--top {top}: say a number from 1")
    if together:
        from rxbook.profile import many

        columns = {"all": Column([many.merged(paths, by, children, kallsyms, debug, executor)])}
        source = f"from {len(paths)} files"
        return rendered(function_table(columns, source=source, top=top, only=only, by=by, event=event,
                                       children=children, inlined=inlined))  # fmt: skip
    stats = [_stat(path) for path in paths]
    if all(stat is not None for stat in stats):
        labels = LABELS if len(paths) == 2 else [path.name for path in paths]
        return rendered(counter_table(dict(zip(labels, stats, strict=True)), _source(paths)))
    load = functools.partial(profile.load, children=children, kallsyms=kallsyms, debug=debug)
    conditions = [condition for path in paths for condition in _conditions(path, load)]
    labels = LABELS if len(paths) == len(conditions) == 2 else [label for label, _ in conditions]
    columns = {
        label if labels.count(label) == 1 else f"{label} {number}": Column(profiles)
        for number, (label, (_, profiles)) in enumerate(zip(labels, conditions, strict=True), 1)
    }
    table = function_table(
        columns,
        source=_source(paths),
        top=top,
        only=only,
        by=by,
        event=event,
        children=children,
        inlined=inlined,
    )
    return rendered(table)


def _stat(path: Path) -> pd.DataFrame | None:
    """The counters in what perf stat printed; None for any other file."""
    words = profile.text_of(path)
    return text.stat(words, path.name) if words and text.kind(words) == "perf stat" else None


def _conditions(path: Path, load: Callable[[Path], Profile]) -> list[tuple[str, list[Profile]]]:
    """(label, repeats) of what a file holds: itself, the benchmarks of a pyperf suite, or the files of perf diff."""
    if path.suffix == ".json":
        from rxbook.profile import suite

        return [(label, [load(one) for one in found]) for label, found in suite.recordings(path).items()]
    words = profile.text_of(path)
    if words and text.kind(words) == "perf diff":
        found = text.profiles(words, path.name)
        return [(one.source.rpartition(", ")[2].rstrip(")"), [one]) for one in found]
    return [(path.name, [load(path)])]


def _source(paths: Sequence[Path]) -> str:
    """The figures are of files: when they were measured, and where, only these know."""
    return "from " + " and ".join(path.name for path in paths)
