# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables that perf report, perf top and perf diff print: their headings, and the cells of a row."""

import re
from dataclasses import dataclass
from itertools import pairwise

from rxbook.profile.text_rows import Line, number

# Headings as perf prints them, and what a column is here; "" is a column that the function frame has no place for.
FIELDS = {
    "Overhead": "share",
    "Self": "share",
    "Children": "children_share",
    "Samples": "samples",
    "Period": "period",
    "Command": "comm",
    "Pid:Command": "pid_comm",
    "CPU": "cpu",
    "Shared Object": "dso",
    "Symbol": "symbol",
    "Baseline": "baseline",
    "Base period": "base_period",
    "Delta": "delta",
    "Delta Abs": "delta",
    "Ratio": "ratio",
    "Weighted diff": "",
    "Formula": "",
    "sys": "",
    "usr": "",
    "guest sys": "",
    "guest usr": "",
    "Latency": "",
    "Time": "",
    "Socket": "",
    "Source:Line": "",
}
NUMERIC = {"share", "children_share", "samples", "period", "baseline", "base_period", "delta", "ratio"}
_DOTS = re.compile(r"# +\.{2,}[ .]*$|#\.{2,}[ .]*$")
_NUMBERED = re.compile(r"(.+)/([0-9]+)$")
SYMBOL_MARK = re.compile(r"(?:^|(?<=\s))\[([.kguHhbi])\] ?(\S.*)$")


@dataclass(frozen=True)
class Header:
    """A table's heading: a title per column, and either the columns' places in the line or what separates them."""

    titles: tuple[str, ...]
    starts: tuple[int, ...] = ()
    separator: str | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field_of(title) for title in self.titles)

    def cells(self, text: str) -> list[str] | None:
        """The row's cells, stripped; None where the line does not keep to the columns."""
        if self.separator:
            parts = text.split(self.separator)
            return [part.strip() for part in parts] if len(parts) == len(self.titles) else None
        if self.starts:
            return self._cells_at(text)
        return None

    def _cells_at(self, text: str) -> list[str] | None:
        # perf pads by bytes, so a name with other letters shifts what follows it unless it is cut by bytes too.
        raw = text.encode()
        if any(raw[start - 2 : start].strip() for start in self.starts):
            return None
        edges = (*self.starts, max(len(raw), self.starts[-1]))
        return [raw[a:b].decode("utf-8", "replace").strip() for a, b in pairwise(edges)]


def field_of(title: str) -> str:
    """What the column is, also where perf's -w cut its title or perf diff numbered it ("Delta/1")."""
    title = title.strip()
    numbered = _NUMBERED.match(title)
    if numbered and numbered[1] in FIELDS:
        title = numbered[1]
    return FIELDS.get(_whole(title), "")


def _whole(title: str) -> str:
    whole = [known for known in FIELDS if known.startswith(title)] if len(title) >= 4 else []
    return whole[0] if title not in FIELDS and len(whole) == 1 else title


def is_cut(title: str) -> bool:
    return _whole(title) != title


def read_header(line: Line, below: Line | None) -> Header | None:
    """The heading that this line is: over dots that show its columns, with separators, or bare as on a screen."""
    hashed = line.text.startswith("#")
    if hashed and below is not None and _DOTS.match(below.text):
        return _header_over_dots(line.text, below.text)
    words = line.text.lstrip("#").strip()
    if hashed and (separated := _separated_header(line.text[1:])):
        return separated
    titles = tuple(re.split(r"\s{2,}", words))
    known = len(titles) > 1 and all(title in FIELDS for title in titles)
    return Header(titles) if known and titles[0] in ("Overhead", "Children", "Symbol") else None


def _header_over_dots(text: str, dots: str) -> Header | None:
    starts = tuple(m.start() for m in re.finditer(r"\.+", dots))
    edges = (*starts, max(len(text), starts[-1]))
    titles = tuple(text[a:b].strip() for a, b in pairwise(edges))
    return Header(titles, starts) if any(field_of(title) for title in titles) else None


def _separated_header(text: str) -> Header | None:
    """Heading of perf report -t: the separator is the character that leaves only titles that are known."""
    for mark in sorted(set(re.findall(r"[^\w\s/()]|\t", text)), key=text.count, reverse=True):
        titles = tuple(part.strip() for part in text.split(mark))
        if (
            len(titles) > 1
            and sum(title in FIELDS or field_of(title) != "" for title in titles) > len(titles) / 2
        ):
            return Header(titles, separator=mark)
    return None


def loose_cells(header: Header, text: str) -> list[str] | None:
    """The row's cells where a mail has shifted the columns: by wide gaps, else by the one way that the words fit."""
    wide = re.split(r"\s{2,}|\t", text.strip())
    if len(wide) == len(header.titles):
        return wide
    fields = header.fields
    if not fields or fields[-1] != "symbol" or not (mark := SYMBOL_MARK.search(text)):
        return None
    words = text[: mark.start()].split()
    return [*words, mark.group()] if len(words) == len(fields) - 1 else None


def leading_figures(text: str) -> tuple[list[str], list[str], str]:
    """Percentages, then counts, at the start of a row; and the rest."""
    match = re.match(r"\s*((?:[0-9]+[.,][0-9]+%\s+)+)((?:[0-9]+\s+)*)(.*)$", text)
    if not match:
        return [], [], text
    return match[1].split(), match[2].split(), match[3]


def figures_fit(header: Header, cells: list[str]) -> bool:
    """Whether each column of figures holds figures (several for a group of events) and one of them holds any."""
    numeric = [cell for cell, field in zip(cells, header.fields, strict=True) if field in NUMERIC]
    return any(numeric) and all(number(part) is not None for cell in numeric for part in cell.split())
