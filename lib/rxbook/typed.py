# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The figures that a mail, an mbox, a patch or a patchwork page prints, in the form of `published.load`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rxbook import RxbookError, mailtext
from rxbook.profile.text_rows import Line, shorten, split_lines
from rxbook.rounding import decimals
from rxbook.typed_sentences import sentence_tables
from rxbook.typed_tables import Typed, perf_tables, rate_tables

__all__ = ["COLUMNS", "figures"]

COLUMNS = ["message", "table", "row", "column", "value", "unit", "decimals", "line"]

SHOWN = 5
"""So many lines that were not understood are told in full, the others are counted."""

_FIGURE = re.compile(r"(?<![\w.])[~+-]?(\d+(?:\.\d+)?)\s?(%|Mpps\b|Kpps\b|kpps\b|Gbps\b|cycles\b)")
_ENDS_PATCH = re.compile(r"-- ?$")


def figures(path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The figures of a file (COLUMNS), and notes on what was repeated or not understood.

    A table that is quoted again is given once, under the message that printed it first. line: of the file where
    it is plain text, else of the message's decoded text.
    Raises RxbookError where the file cannot be read, or no figures that can be checked are in it.
    """
    seen: list[set[tuple]] = []
    names: set[tuple[str, str]] = set()
    repeated = 0
    records, left = [], []
    for message in mailtext.read(path):
        lines = [replace(line, number=line.number + message.line - 1) for line in split_lines(message.text)]
        prose = list(_without_patches(lines))
        used: set[int] = set()
        for table in _tables(prose):
            used |= table.lines
            if any(table.facts <= earlier for earlier in seen):
                repeated += 1
                continue
            seen.append(table.facts)
            records += _records(message.subject or path.name, table, names)
        left += [line for line in prose if line.number not in used]
    if not records:
        raise RxbookError(
            f"{path.name}: no table of rates or of perf top, and no gain with cycles saved, was found"
        )
    notes = (
        [f"Figures that are repeated, as in quotes, are checked once ({repeated} more)."] if repeated else []
    )
    frame = pd.DataFrame(records, columns=COLUMNS)
    return frame, (*notes, *_not_understood(left, set(frame["value"].str.lstrip("+-"))))


def _tables(lines: Sequence[Line]) -> Iterator[Typed]:
    functions = perf_tables(lines)
    taken = {number for table in functions for number in table.lines}
    yield from rate_tables([line for line in lines if line.number not in taken])
    yield from functions
    yield from sentence_tables(lines)


def _records(message: str, table: Typed, names: set[tuple[str, str]]) -> Iterator[dict[str, str | int]]:
    """Replies have one subject: a name that one of them has used already is told apart by its line."""
    name = table.name if (message, table.name) not in names else f"{table.name} (line {table.line})"
    names.add((message, name))
    for row, column, value, unit in table.figures:
        places = str(decimals(value)) if re.search(r"\d", value) else ""
        yield dict(zip(COLUMNS, (message, name, row, column, value, unit, places, table.line), strict=True))


def _without_patches(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines, those of patches blank: from `diff --git` to the signature, at the depth at which it is quoted."""
    depth: int | None = None
    for line in lines:
        if line.text.startswith("diff --git "):
            depth = line.depth
        elif depth == line.depth and _ENDS_PATCH.match(line.text):
            depth = None
        inside = depth is not None and line.depth >= depth
        yield replace(line, text="") if inside else line


def _not_understood(lines: Sequence[Line], known: set[str]) -> Iterator[str]:
    """Lines with figures of which some were not read anywhere."""
    found: dict[str, int] = {}
    for line in lines:
        if any(match[1] not in known for match in _FIGURE.finditer(line.text)):
            found.setdefault(line.text.strip(), line.number)
    for text, number in list(found.items())[:SHOWN]:
        yield f"line {number} not checked: {shorten(text, 90)}"
    if len(found) > SHOWN:
        yield f"{len(found) - SHOWN} further lines with figures were not checked."
