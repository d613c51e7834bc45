# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `rxbook perf` prints: one file's functions, or what changed between files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rxbook import RxbookError, profile, render
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
) -> str:
    """The table of functions of these files; from the second on each is compared with the first.

    Raises RxbookError where a file cannot be read, or an option is none of those that there are.
    """
    rendered = render.in_form(form)
    if by not in (None, *get_args(By)):
        raise RxbookError(f"--by {by}: say one of {', '.join(get_args(By))}")
    if inlined not in get_args(Inlined):
        raise RxbookError(f"--inlined {inlined}: say one of {', '.join(get_args(Inlined))}")
    if top < 1:
        raise RxbookError(f"--top {top}: say a number from 1")
    conditions = [condition for path in paths for condition in _conditions(path)]
    labels = LABELS if len(paths) == len(conditions) == 2 else [label for label, _ in conditions]
    columns = {
        label if labels.count(label) == 1 else f"{label} {number}": Column(
            [profile.load(recording, children, kallsyms, debug) for recording in recordings]
        )
        for number, (label, (_, recordings)) in enumerate(zip(labels, conditions, strict=True), 1)
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


def _conditions(path: Path) -> list[tuple[str, list[Path]]]:
    """(label, repeats) of what a file holds: itself, or the benchmarks of a pyperf suite."""
    if path.suffix != ".json":
        return [(path.name, [path])]
    from rxbook.profile import suite

    return list(suite.recordings(path).items())


def _source(paths: Sequence[Path]) -> str:
    """The figures are of files: when they were measured, and where, only these know."""
    return "from " + " and ".join(path.name for path in paths)
