# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf diff: a baseline and what each further file has more or less."""

import re

from rxbook.profile import EventTotals, Profile
from rxbook.profile.text_facts import Facts
from rxbook.profile.text_report import read_names
from rxbook.profile.text_rows import UNKNOWN, Line, Warnings, function_frame, integer, number
from rxbook.profile.text_table import Header, field_of, read_header

_NUMBER = re.compile(r"/([0-9]{1,3})$")
_FIGURES = ("baseline", "delta", "base_period", "period")


def read(lines: list[Line], name: str, warnings: Warnings) -> list[Profile]:
    """The baseline's profile, then one per further file. A file that perf compared by ratio alone is left out."""
    facts = Facts()
    header: Header | None = None
    files: dict[int, list[dict]] = {0: []}
    for line, below in zip(lines, [*lines[1:], None], strict=True):
        if not line.text.strip() or facts.take(line.text):
            continue
        if found := read_header(line, below):
            header = found
            _say_unread(header, line, warnings)
        elif header is not None and not line.text.startswith("#"):
            _take_row(header, line, (facts.events or [UNKNOWN])[0], files, warnings)
    said = warnings.all()
    return [
        Profile(
            function_frame(rows),
            {e: EventTotals() for e in facts.totals},
            0,
            said,
            _source(name, facts, place),
        )
        for place, rows in sorted(files.items())
        if rows
    ]


def _source(name: str, facts: Facts, place: int) -> str:
    title = (
        facts.files[place] if place < len(facts.files) else ("baseline" if place == 0 else f"file {place}")
    )
    return f"{name} (perf diff, {title})"


def _say_unread(header: Header, line: Line, warnings: Warnings) -> None:
    fields = header.fields
    if "delta" not in fields and "period" not in fields:
        warnings.line(line, "only the baseline can be read: ratios and weighted differences give no share")


def _take_row(
    header: Header, line: Line, event: str, files: dict[int, list[dict]], warnings: Warnings
) -> None:
    cells = header.cells(line.text)
    shares = None if cells is None else _shares(header, cells)
    names = None if cells is None else read_names(_names_of(header, cells))
    if shares is None or names is None:
        warnings.line(line, "not understood as a row of perf diff")
        return
    for place, figures in shares.items():
        files.setdefault(place, []).append({"event": event, **names, **figures})


def _names_of(header: Header, cells: list[str]) -> dict[str, str]:
    return {field_of(title): cell for title, cell in zip(header.titles, cells, strict=True)}


def _shares(header: Header, cells: list[str]) -> dict[int, dict] | None:
    """Share and period per file (an empty cell: the file has it not); None where a cell is no figure."""
    base = 0.0
    found: dict[int, dict] = {}
    for title, cell in zip(header.titles, cells, strict=True):
        name = field_of(title)
        if name not in _FIGURES or not cell:
            continue
        value = integer(cell) if name.endswith("period") else number(cell)
        if value is None:
            return None
        figures = found.setdefault(_place(name, title), {})
        if name == "baseline":
            base = figures["share"] = round(value / 100, 6)
        elif name == "delta":
            # perf rounds both figures, so their sum can fall below nothing by a last digit.
            figures["share"] = max(round(base + value / 100, 6), 0.0)
        else:
            figures["period"] = value
    # With -p a file that has not the function prints a period of zero.
    return {place: figures for place, figures in found.items() if "share" in figures or figures["period"]}


def _place(name: str, title: str) -> int:
    """The file that a column is of: the first compared one, unless the title is numbered ("Delta Abs/2")."""
    if name.startswith("base"):
        return 0
    numbered = _NUMBER.search(title)
    return int(numbered[1]) if numbered else 1
