# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables as people type them into a mail: rows of rates with rows of differences, and rows of perf top."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rxbook.profile.text_report import read_row
from rxbook.profile.text_rows import Line, shorten
from rxbook.profile.text_table import leading_figures
from rxbook.published import DIFFERENCE, SAVED, SHARE

__all__ = ["Typed", "perf_tables", "rate_tables"]

RATES = (
    "Mpps",
    "Kpps",
    "kpps",
    "pps",
    "Gbps",
    "Gbit/s",
    "Gb/s",
    "Mbps",
    "Mbit/s",
    "Mb/s",
    "pkts/s",
    "ns",
    "cycles",
)
NEAR = 3
"""A table's name is a line at most so many lines above it."""

NO_FIGURE = {"n/a", "na", "-", "--", "none", "?"}

_UNIT = "|".join(map(re.escape, RATES))
_VALUE = re.compile(rf"~?([+-]?\d+(?:[.,]\d+)?)(%|{_UNIT})?")
_UNIT_WORD = re.compile(rf"(?<![\w/])({_UNIT})(?![\w/])")
_DIFFERENCE = re.compile(r"diff|delta|change|gain|improvement|speed-?up|\bvs\b|versus|against", re.IGNORECASE)
_RULE = re.compile(r"[|:+= -]+")
_GAPS = re.compile(r"\s{2,}|\t+|\s*\|\s*")


@dataclass
class Typed:
    """One table: figures are (row, column, value, unit), in the order in which they are typed; lines: their numbers."""

    name: str
    line: int
    columns: list[str] = field(default_factory=list)
    figures: list[tuple[str, str, str, str]] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)

    @property
    def facts(self) -> set[tuple[str, ...]]:
        """The figures without what the reader itself named: two tables of which one repeats the other."""
        steps = any(unit == SAVED for *_, unit in self.figures)
        return {figure[1:] if steps else figure for figure in self.figures}


@dataclass(frozen=True)
class _Row:
    line: Line
    label: str
    values: tuple[tuple[str, str], ...]  # value and the unit typed with it
    unit: str
    spaced: bool  # the cells stand apart, as in no sentence

    @property
    def is_sure(self) -> bool:
        """A sentence that ends in a number is no row."""
        return self.spaced or bool(self.unit) or any(unit for _, unit in self.values)

    @property
    def is_percent(self) -> bool:
        """Are these no rates? Differences, or something else, such as the load of a CPU."""
        figures = [value for value in self.values if value[0].lower() not in NO_FIGURE]
        units = {self.unit or unit for _, unit in figures}
        named = units == {""} and bool(_DIFFERENCE.search(self.label) or all(map(_signed, figures)))
        return units == {DIFFERENCE} or named

    @property
    def is_difference(self) -> bool:
        return bool(_DIFFERENCE.search(self.label)) or any(map(_signed, self.values))


def _signed(value: tuple[str, str]) -> bool:
    return value[0][0] in "+-" and value[0].lower() not in NO_FIGURE


# --- rates and their differences


def rate_tables(lines: Sequence[Line]) -> list[Typed]:
    """The tables of rates; rows of differences that stand below one, alone, belong to it."""
    found: list[Typed] = []
    above: Line | None = None
    for (_, blank), group in groupby(lines, lambda line: (line.depth, not line.text.strip())):
        if blank:
            continue
        block = [line for line in group if not _RULE.fullmatch(line.text.strip())]
        if block:
            near = above is not None and block[0].number - above.number <= NEAR
            _block(block, above if near else None, found)
            above = block[-1]
    return found


def _block(block: Sequence[Line], above: Line | None, found: list[Typed]) -> None:
    rows = _rows(block)
    if not rows:
        return
    place = block.index(rows[0].line)
    before = block[:place]
    rates = [row for row in rows if not row.is_percent]
    if not rates:
        fits = found and len(found[-1].columns) == len(rows[0].values)
        if fits and any(_DIFFERENCE.search(row.label) for row in rows):
            _add(found[-1], rows, "")
        return
    columns = _heading(before[-1].text, len(rates[0].values)) if before else None
    prose = [line.text for line in (above, *before) if line is not None]
    unit = next((row.unit for row in rates if row.unit), "") or _unit_in(prose[-2:])
    typed = {value_unit for row in rates for _, value_unit in row.values} | {row.unit for row in rows}
    if not unit and not typed - {""}:
        return
    if columns is None:
        known = found[-1].columns if found and len(found[-1].columns) == len(rates[0].values) else None
        columns = known or [f"column {number}" for number, _ in enumerate(rates[0].values, 1)]
    titles = prose[:-1] if before and _heading(before[-1].text, len(columns)) else prose
    table = Typed(_name(titles, rows[0].line.number, found), rows[0].line.number, _distinct(columns))
    _add(table, rows, unit)
    found.append(table)


def _add(table: Typed, rows: Sequence[_Row], unit: str) -> None:
    for row in rows:
        label, number = row.label, 2
        while any(label == name for name, *_ in table.figures):
            label, number = f"{row.label} ({number})", number + 1
        if row.is_percent and not row.is_difference:
            continue
        of_row = DIFFERENCE if row.is_percent else row.unit or unit
        for column, value in zip(table.columns, row.values, strict=False):
            one = value[1] or of_row
            if row.is_percent or one != DIFFERENCE or _signed(value) or _DIFFERENCE.search(column):
                table.figures.append((label, column, value[0], one))
        table.lines.add(row.line.number)


def _rows(block: Sequence[Line]) -> list[_Row]:
    """The lines of a block that are rows, all with as many figures: a number that ends a name is no figure.

    One figure beside rows of several is that of a sentence.
    """
    counts = {len(row.values) for line in block if (row := _row(line)) and row.is_sure}
    if not counts:
        return []
    count = min(counts - {1} or counts)
    again = [row for line in block if (row := _row(line, count))]
    return [row for row in again if row.is_sure or row.is_percent]


def _row(line: Line, count: int | None = None) -> _Row | None:
    if "+/-" in line.text or "\u00b1" in line.text:  # an interval says more than its rounding
        return None
    text = line.text.replace("\u2212", "-").strip().strip("|").strip()
    parts = [part for part in _GAPS.split(text) if part]
    unit = parts.pop() if len(parts) > 2 and parts[-1] in (*RATES, DIFFERENCE) else ""
    values = [_value(part) for part in parts[1:]]
    if len(parts) > 1 and all(values) and count in (None, len(values)):
        return _made(line, parts[0], values, unit, True)
    words = text.split()
    unit = words.pop() if len(words) > 2 and words[-1] in (*RATES, DIFFERENCE) else ""
    taken: list[tuple[str, str]] = []
    while len(words) > 1 and (value := _value(words[-1])) and len(taken) != count:
        taken.insert(0, value)
        words.pop()
    label = " ".join(words)
    whole = taken and count in (None, len(taken)) and re.search("[A-Za-z]", label)
    return _made(line, label, taken, unit, False) if whole else None


def _made(line: Line, label: str, values: Sequence[tuple[str, str]], unit: str, spaced: bool) -> _Row | None:
    figures = [value for value, _ in values if value.lower() not in NO_FIGURE]
    return _Row(line, label.strip("*` :"), tuple(values), unit, spaced) if figures else None


def _value(text: str) -> tuple[str, str] | None:
    text = text.strip("*` ")
    if text.lower() in NO_FIGURE:
        return text, ""
    match = _VALUE.fullmatch(text)
    return (match[1], match[2] or "") if match else None


def _heading(text: str, count: int) -> list[str] | None:
    """Names of the columns: by wide gaps, one for the row names left out; else words in equal parts."""
    parts = [part for part in _GAPS.split(text.strip().strip("|").strip()) if part]
    if len(parts) in (count, count + 1) and len(parts) > 1:
        return [part.strip("*` ") for part in parts[-count:]]
    words = text.split()
    if (
        len(words) <= 3 * count
        and count > 1
        and len(words) % count == 0
        and not text.rstrip().endswith((":", "."))
    ):
        size = len(words) // count
        return [" ".join(words[at : at + size]) for at in range(0, len(words), size)]
    return None


def _distinct(names: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} {at}" for at, name in enumerate(names, 1)]


def _unit_in(texts: Sequence[str]) -> str:
    return next((match[1] for text in reversed(texts) if (match := _UNIT_WORD.search(text))), "")


def _name(prose: Sequence[str], line: int, found: Sequence[Typed]) -> str:
    name = shorten(prose[-1], 60).rstrip(":") if prose else f"line {line}"
    return f"{name} (line {line})" if any(table.name == name for table in found) else name


# --- perf top


def perf_tables(lines: Sequence[Line]) -> list[Typed]:
    """The tables of functions and shares; a column for each label, such as "before:", under one heading."""
    found: list[Typed] = []
    for label, heading, rows in _columns(lines):
        new = not found or heading or label in found[-1].columns
        if new:
            found.append(Typed(_name([heading or label], rows[0].number, found), rows[0].number))
        table = found[-1]
        table.columns.append(label)
        for line in rows:
            table.figures.append((_symbol(line), label, leading_figures(line.text)[0][-1].rstrip("%"), SHARE))
            table.lines.add(line.number)
    return found


def _columns(lines: Sequence[Line]) -> Iterator[tuple[str, str, list[Line]]]:
    """(label, heading, rows) of each run of rows: the line above it, and what the paragraph says before that line."""
    paragraph: list[str] = []
    blank, rows = True, []
    for line in [*lines, Line(0, "")]:
        text = line.text.strip()
        if text and _symbol(line):
            rows.append(line)
            continue
        if rows:
            *heading, label = paragraph or ["share"]
            yield label.rstrip(":"), " ".join(heading).rstrip(":"), rows
            rows, paragraph = [], []
        if text and not text.startswith("#"):
            paragraph = [text] if blank else [*paragraph, text]
        blank = not text


def _symbol(line: Line) -> str:
    """The function of a row of perf top or report; "" where the line is none."""
    read = read_row(None, line.text, ["CPU"])
    return str(read[0].get("symbol", "")) if read else ""
