# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf report --stdio and perf top --stdio, whole or as a mail quotes them."""

import re
from dataclasses import dataclass, field, replace

from rxbook.profile import EventTotals, Profile
from rxbook.profile.text_facts import Facts
from rxbook.profile.text_rows import (
    INLINED,
    UNKNOWN,
    Line,
    Warnings,
    function_frame,
    integer,
    kind_of_mark,
    number,
    short_dso,
    shorten,
)
from rxbook.profile.text_table import (
    NUMERIC,
    SYMBOL_MARK,
    Header,
    field_of,
    figures_fit,
    is_cut,
    leading_figures,
    loose_cells,
    read_header,
)

_FIGURE_START = re.compile(r"\s*[0-9]+[.,][0-9]+%\s")
_MARK_ALONE = re.compile(r"\s*\[[.kguHhbi]\] \S")
_FOLDED = re.compile(r"[0-9.,]+%? \S")
_SCREEN = re.compile(r"\s*(-{20,}|Mapped keys:|\t\[.*|Enter selection.*|exiting\.|Events? .*:\s*)$")
_BARE_ROW = re.compile(r"\s*[0-9]+[.,][0-9]+%\s+[^\s|]")


@dataclass
class Table:
    """The rows of one table, with the facts above it."""

    events: list[str]
    totals: dict[str, EventTotals]
    lost: int
    line: int
    depth: int  # how deep a mail quotes it
    label: str  # the line of prose above it, in a mail
    live: bool  # from perf top
    rows: list[dict] = field(default_factory=list)


class _Reader:
    """Goes through the lines once; a table ends at the next heading, or at prose after a blank line."""

    def __init__(self, warnings: Warnings):
        self.warnings = warnings
        self.facts = Facts()
        self.header: Header | None = None
        self.muted = False
        self.table: Table | None = None
        self.tables: list[Table] = []
        self.label = ""
        self.live = False
        self.after_blank = True

    def read(self, lines: list[Line]) -> None:
        skip = False
        for line, below in zip(lines, [*lines[1:], None], strict=True):
            if skip:
                skip = False
                continue
            if below and _FIGURE_START.match(line.text) and _continues(line.text, below.text):
                line = replace(line, text=f"{line.text.rstrip()}  {below.text.strip()}")
                skip = True
            self._line(line, below)
            self.after_blank = not line.text.strip()

    def _line(self, line: Line, below: Line | None) -> None:
        if not line.text.strip():
            return
        if "PerfTop:" in line.text or "of event" in line.text:
            self._end()
            self.header, self.muted = None, False
            self.live = "PerfTop:" in line.text or not line.text.startswith("#")
        if self.facts.take(line.text):
            return
        if header := read_header(line, below):
            self._end()
            self.header = self._checked(header, line)
        elif not line.text.startswith("#") and not _SCREEN.match(line.text) and not self.muted:
            self._row_or_else(line)

    def _checked(self, header: Header, line: Line) -> Header:
        self.muted = any(" / " in title for title in header.titles)
        if self.muted:
            self.warnings.line(line, "perf report --hierarchy is not read; print it without")
        elif not NUMERIC & set(header.fields):
            self.warnings.line(line, "no column of figures is known here")
        elif any(is_cut(title) for title in header.titles):
            self.warnings.line(line, "perf report -w cut titles, so names may be cut as well")
        return header

    def _row_or_else(self, line: Line) -> None:
        rows = read_row(self.header, line.text, self._events())
        if rows is not None:
            if self.table is None:
                self.table = self._new_table(line)
            comm = self.facts.filters.get("comm")
            self.table.rows += [{"comm": comm, **row} for row in rows]
        elif not _is_call_graph(self.header, line.text) or self.table is None:
            self._no_row(line)

    def _new_table(self, line: Line) -> Table:
        facts = self.facts
        table = Table(
            self._events(), dict(facts.totals), facts.lost, line.number, line.depth, self.label, self.live
        )
        self.tables.append(table)
        return table

    def _no_row(self, line: Line) -> None:
        inside = self.header is not None and not self.after_blank
        if inside or (SYMBOL_MARK.search(line.text) and "%" in line.text):
            self.warnings.line(line, "not understood as a row of the table")
            return
        self._end()
        self.header = None
        self.label = shorten(line.text, 40).rstrip(":")

    def _end(self) -> None:
        self.table = None

    def _events(self) -> list[str]:
        return self.facts.events or [UNKNOWN]


def _continues(text: str, below: str) -> bool:
    """Whether a mail wrapped the row before its symbol."""
    return SYMBOL_MARK.search(text) is None and _MARK_ALONE.match(below) is not None


def _is_call_graph(header: Header | None, text: str) -> bool:
    """Lines of -g under a row: drawn or flat ones are indented further than rows, folded ones not at all."""
    if SYMBOL_MARK.search(text):
        return False
    drawn = text.startswith("        ")
    return drawn and not _BARE_ROW.match(text) if header is None else drawn or _FOLDED.match(text) is not None


def read_row(header: Header | None, text: str, events: list[str]) -> list[dict] | None:
    """The row's figures as dicts, one per event of a group that has any; None where the line is no row."""
    if header is None:
        return _bare_row(text, events[0])
    cells = header.cells(text)
    if cells is None or not figures_fit(header, cells):
        cells = loose_cells(header, text)
    if cells is None or not figures_fit(header, cells):
        return None
    by_field: dict[str, str] = {}
    for title, cell in zip(header.titles, cells, strict=True):
        if name := field_of(title):
            by_field[name] = cell
    names = read_names(by_field)
    return None if names is None else _per_event(names, by_field, events)


def read_names(cells: dict[str, str]) -> dict | None:
    """comm, cpu, dso, symbol and kind of a row; None where its symbol has no [k] or [.]."""
    names: dict = {}
    if "comm" in cells:
        names["comm"] = cells["comm"] or None
    elif "pid_comm" in cells:
        names["comm"] = cells["pid_comm"].partition(":")[2].strip() or None
    if "cpu" in cells:
        names["cpu"] = integer(cells["cpu"])
    if "dso" in cells:
        names["dso"] = short_dso(cells["dso"]) or None
    if "symbol" in cells:
        mark = SYMBOL_MARK.search(cells["symbol"])
        if not mark:
            return None
        symbol = mark[2].strip()
        names["kind"] = kind_of_mark(mark[1], names.get("dso"), symbol)
        names["symbol"] = symbol.removesuffix(INLINED)
    return names


def _per_event(names: dict, cells: dict[str, str], events: list[str]) -> list[dict] | None:
    figures = {name: cells[name].split() for name in cells if name in NUMERIC}
    if any(len(parts) != len(events) for parts in figures.values()):
        return None
    rows = []
    for place, event in enumerate(events):
        row = {name: _figure(name, parts[place]) for name, parts in figures.items()}
        # In a group perf prints zeros for the events that did not see the function.
        if len(events) == 1 or any(row.values()):
            rows.append({"event": event, **names, **row})
    return rows


def _figure(name: str, text: str) -> float | int | None:
    if name in ("samples", "period"):
        return integer(text)
    value = number(text)
    return None if value is None else round(value / 100, 6)


def _bare_row(text: str, event: str) -> list[dict] | None:
    """A row of perf top, or of a mail, which has no heading: share, dso, symbol, or a few more that are plain."""
    percentages, counts, rest = leading_figures(text)
    mark = SYMBOL_MARK.search(rest)
    if not mark or not 1 <= len(percentages) <= 2 or len(counts) > 1:
        return None
    wide = [part for part in re.split(r"\s{2,}|\t", rest[: mark.start()].strip()) if part]
    words = rest[: mark.start()].split()
    titles = _bare_titles(wide) or _bare_titles(words)
    if titles is None:
        return None
    parts = wide if len(wide) == len(titles) else words
    cells = {**dict(zip(titles, parts, strict=True)), "symbol": mark.group(), "share": percentages[-1]}
    if len(percentages) == 2:
        cells["children_share"] = percentages[0]
    if counts:
        cells["samples"] = counts[0]
    names = read_names(cells)
    return None if names is None else _per_event(names, cells, [event])


def _bare_titles(parts: list[str]) -> tuple[str, ...] | None:
    if len(parts) == 3:
        return ("comm", "cpu", "dso") if re.fullmatch(r"[0-9]{3}", parts[1]) else None
    return ((), ("dso",), ("comm", "dso"))[len(parts)] if len(parts) < 3 else None


def with_shares(rows: list[dict], totals: dict[str, EventTotals], warnings: Warnings) -> None:
    """Fill in shares: exact where periods and their total are known, by samples where nothing else is printed."""
    by_samples = False
    for row in rows:
        known = totals.get(row["event"], EventTotals())
        if row.get("period") is not None and known.period:
            row["share"] = row["period"] / known.period
        elif row.get("share") is None and row.get("samples") is not None and known.samples:
            row["share"] = row["samples"] / known.samples
            by_samples = True
    if by_samples:
        warnings.note("no column of shares or periods: shares are of the samples")


def read(lines: list[Line], warnings: Warnings) -> list[list[Table]]:
    """The tables of the text, in order, those of one recording's events together.

    A table that a later mail quotes again is given once.
    """
    reader = _Reader(warnings)
    reader.read(lines)
    groups: list[list[Table]] = []
    for table in reader.tables:
        with_shares(table.rows, table.totals, warnings)
        if table.depth and any(table.rows == earlier.rows for group in groups for earlier in group):
            continue
        if not groups or table.live or not _may_join(groups[-1], table):
            groups.append([])
        groups[-1].append(table)
    if reader.facts.filters:
        words = ", ".join(f"{key} {value}" for key, value in reader.facts.filters.items())
        warnings.note(f"perf printed only {shorten(words)}")
    return groups


def _may_join(group: list[Table], table: Table) -> bool:
    """One report prints each event once: a second table of an event begins another report."""
    return not {event for earlier in group for event in earlier.events} & set(table.events)


def profile(tables: list[Table], warnings: tuple[str, ...], source: str) -> Profile:
    """The profile of one recording's tables."""
    rows = [row for table in tables for row in table.rows]
    totals = {event: table.totals.get(event, EventTotals()) for table in tables for event in table.events}
    return Profile(function_frame(rows), totals, tables[-1].lost, warnings, source)
