# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `rxbook perf` prints: one file's functions, or what changed between files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from rxbook import RxbookError, profile, render
from rxbook.profile.functions import Column, function_table
from rxbook.profile.tally import By
from rxbook.tables import Table

__all__ = ["files", "writer"]

FORMS = {"text": render.text, "markdown": render.markdown, "html": render.html, "csv": render.csv}
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
) -> str:
    """The table of functions of these files; from the second on each is compared with the first.

    Raises RxbookError where a file cannot be read, or an option is none of those that there are.
    """
    write = writer(form)
    if by not in (None, *get_args(By)):
        raise RxbookError(f"--by {by}: say one of {', '.join(get_args(By))}")
    if top < 1:
        raise RxbookError(f"--top {top}: say a number from 1")
    loaded = [profile.load(path, children, kallsyms) for path in paths]
    labels = LABELS if len(paths) == 2 else [path.name for path in paths]
    columns = {
        label if labels.count(label) == 1 else f"{label} {number}": Column([found])
        for number, (label, found) in enumerate(zip(labels, loaded, strict=True), 1)
    }
    table = function_table(
        columns, source=_source(paths), top=top, only=only, by=by, event=event, children=children
    )
    return write(table)


def writer(form: str) -> Callable[[Table], str]:
    """What writes a table in a form of --format. Raises RxbookError for a form that there is not."""
    if form not in FORMS:
        raise RxbookError(f"--format {form}: say one of {', '.join(FORMS)}")
    return FORMS[form]


def _source(paths: Sequence[Path]) -> str:
    """The figures are of files: when they were measured, and where, only these know."""
    return "from " + " and ".join(path.name for path in paths)
