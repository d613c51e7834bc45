# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A table as ASCII text for a kernel mail, as Markdown, HTML or CSV. Nothing is computed here."""

from __future__ import annotations

import html as escaping
import itertools
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rxbook import RxbookError
from rxbook.tables import Section, Table
from rxbook.words import marked

__all__ = ["csv", "html", "in_form", "markdown", "text", "to_ascii"]

LONGEST_LABEL, AGAINST = 20, " / "
"""Longer row names, and those of one kernel against another, stand on lines of their own where they are few. Where most
are longer, as of functions, a table that is too wide is cut between its groups of columns; where all are shorter, each
stands on a line of its own."""

STYLE = (
    "<style>.rxbook{border-collapse:collapse;font:13px/1.5 monospace;text-align:right}"
    ".rxbook caption{font-weight:bold}.rxbook caption,.rxbook tbody th{text-align:left}"
    ".rxbook th,.rxbook td{padding:0 .7em;white-space:nowrap}"
    ".rxbook thead th{border-bottom:1px solid #999}.rxbook thead .group{text-align:center}"
    ".rxbook .section{text-align:left!important;padding-top:.7em;white-space:normal;font-weight:normal;"
    "font-style:italic}"
    ".rxbook-notes{font:12px/1.5 sans-serif}</style>"
)


def to_ascii(words: str) -> str:
    """The words without what ASCII lacks: accents go, other characters are left out."""
    plain = unicodedata.normalize("NFKD", words.replace("\u00b1", "+/-"))
    return plain.encode("ascii", "ignore").decode()


def text(table: Table, width: int = 72) -> str:
    """ASCII text of at most `width` columns; columns that do not fit go below, beside the row names again."""
    grid = _Grid.fit(table, width)
    lines = _title_lines(table, width)
    for part in grid.parts(width):
        head = ["", *grid.head(part)]
        for section in table.sections:
            heading = ["", *textwrap.wrap(to_ascii(section.heading), width)]
            lines += [*heading, *head] if len(table.sections) == 1 else [*head, *heading]
            lines += grid.rows(section, part)
            head = []  # columns stand below each other, so one head serves all sections
    lines.append("")
    for note in table.notes:
        lines += textwrap.wrap(to_ascii(note), width, subsequent_indent="  ")
    folded = [textwrap.wrap(line, width) if len(line) > width else [line] for line in lines]
    return "\n".join(itertools.chain(*folded)) + "\n"


def _title_lines(table: Table, width: int) -> list[str]:
    title, source = to_ascii(table.title), to_ascii(marked(table.source))
    space = width - len(title) - len(source)
    return [title + " " * space + source] if space >= 2 else textwrap.wrap(f"{source}: {title}", width)


@dataclass(frozen=True)
class _Column:
    """Figures are aligned at their "+/-": `left` characters before it, `right` from there on."""

    index: int
    group: str
    name: str
    left: int
    right: int

    @classmethod
    def of(cls, index: int, group: str, name: str, cells: Sequence[str]) -> _Column:
        """The column of a table at an index, wide enough for its cells and its name."""
        halves = [cell.partition(" +/-") for cell in cells]
        right = max((len(sign + after) for _, sign, after in halves), default=0)
        left = max((len(before) for before, _, _ in halves), default=0)
        return cls(index, group, name, max(left, len(name) - right), right)

    @property
    def width(self) -> int:
        return self.left + self.right

    def show(self, row: Sequence[str]) -> str:
        before, sign, after = row[self.index].partition(" +/-")
        return before.rjust(self.left) + (sign + after).ljust(self.right)


@dataclass(frozen=True)
class _Grid:
    """How all sections of a table are laid out, so that their columns stand below each other."""

    columns: tuple[_Column, ...]
    heading: str  # of the row names
    label: int  # width of the row names that stand beside their figures
    longest: int  # of those; a longer one stands on a line of its own
    gap: int

    @classmethod
    def fit(cls, table: Table, width: int) -> _Grid:
        """The widest of the layouts that fit, see LONGEST_LABEL, or the narrowest."""
        rows = [[to_ascii(cell) for cell in row] for section in table.sections for row in section.rows if row]
        columns = tuple(
            _Column.of(index, to_ascii(group), to_ascii(name), [row[index] for row in rows])
            for index, (group, name) in enumerate(table.columns)
        )
        heading, label = columns[0].name, columns[0].width
        beside = [cls(columns[1:], heading, label, label, gap) for gap in (2, 1)]
        below = [cls(columns[1:], "", 2, 0, gap) for gap in (2, 1)]
        fitting = [grid for grid in beside if len(grid.parts(width)) == 1]
        short = [len(row[0]) for row in rows if len(row[0]) <= LONGEST_LABEL and AGAINST not in row[0]]
        if not fitting and short and len(short) >= len(rows) / 2:
            most = max(len(heading), *short)
            fitting = [cls(columns[1:], heading, most, most, gap) for gap in (2, 1)]
            fitting = [grid for grid in fitting if len(grid.parts(width)) == 1]
        if not fitting and label > LONGEST_LABEL:
            fitting = [grid for grid in beside if len(grid.parts(width)) <= len(_groups(grid.columns))]
        fitting += [grid for grid in below if len(grid.parts(width)) == 1]
        return (fitting or (beside[1:] if label <= LONGEST_LABEL else below[1:]))[0]

    def parts(self, width: int) -> list[list[_Column]]:
        """The columns in parts that fit side by side, groups kept together."""
        parts: list[list[_Column]] = []
        for group in _groups(self.columns):
            if parts and self.label + self._width([*parts[-1], *group]) <= width:
                parts[-1] += group
            else:
                parts.append(group)
        fits = all(self.label + self._width(part) <= width for part in parts)
        return parts if fits else [[column] for column in self.columns]

    def _width(self, columns: Sequence[_Column]) -> int:
        return sum(self.gap + column.width for column in columns)

    def head(self, part: Sequence[_Column]) -> Iterator[str]:
        """The lines that name the columns, their groups above them."""
        if any(column.group for column in part):
            spans = [(group[0].group, self._width(group) - self.gap) for group in _groups(part)]
            ruled = (f" {name} ".center(span, "-") if name else " " * span for name, span in spans)
            yield self._line("", ruled)
        yield self._line(self.heading, (column.name.rjust(column.width) for column in part))

    def rows(self, section: Section, part: Sequence[_Column]) -> Iterator[str]:
        """The rows of a section with some of the columns."""
        for row in section.rows:
            if not row:
                yield ""
                continue
            cells = [to_ascii(cell) for cell in row]
            name = cells[0]
            if len(name) > self.longest:
                yield name
                name = ""
            yield self._line(name, (column.show(cells) for column in part))

    def _line(self, label: str, cells: Iterator[str]) -> str:
        return (label.ljust(self.label) + "".join(" " * self.gap + cell for cell in cells)).rstrip()


def _groups(columns: Sequence[_Column]) -> list[list[_Column]]:
    """Neighbours of one group together; a column without a group stands alone."""
    return [
        list(group) for _, group in itertools.groupby(columns, lambda column: column.group or column.index)
    ]


def markdown(table: Table) -> str:
    """GitHub's Markdown: a heading, one pipe table for each section, the notes as a list."""
    names = [f"{group}, {name}" if group else name for group, name in table.columns]
    rule = "| --- |" + " ---: |" * (len(names) - 1)
    lines = [f"**{_escape(table.title)}** ({_escape(marked(table.source))})"]
    for section in table.sections:
        lines += ["", _escape(section.heading), "", _pipes(names), rule]
        lines += [_pipes(row) for row in section.rows if row]
    return "\n".join([*lines, "", *(f"- {_escape(note)}" for note in table.notes)]) + "\n"


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escape, cells)) + " |"


def _escape(words: str) -> str:
    """Keeps Markdown from reading a label as markup."""
    return re.sub(r"([\\`*_\[\]<>|~])", r"\\\1", words)


def html(table: Table) -> str:
    """A fragment that stands alone: the table with its style, then the notes."""
    caption = f"<caption>{_html(table.title)} ({_html(marked(table.source))})</caption>"
    bodies = "".join(_html_section(section, len(table.columns)) for section in table.sections)
    notes = "<br>".join(map(_html, table.notes))
    return (
        f'{STYLE}<table class="rxbook">{caption}<thead>{_html_head(table)}</thead>{bodies}</table>'
        f'<p class="rxbook-notes">{notes}</p>'
    )


def _html(words: str) -> str:
    return escaping.escape(words)


def _html_head(table: Table) -> str:
    names = "".join(f"<th>{_html(name)}</th>" for _, name in table.columns)
    if not any(group for group, _ in table.columns):
        return f"<tr>{names}</tr>"
    spans = [
        (group, len(list(members))) for group, members in itertools.groupby(table.columns, lambda c: c[0])
    ]
    groups = "".join(f'<th class="group" colspan="{span}">{_html(group)}</th>' for group, span in spans)
    return f"<tr>{groups}</tr><tr>{names}</tr>"


def _html_section(section: Section, columns: int) -> str:
    heading = f'<tr><th class="section" colspan="{columns}">{_html(section.heading)}</th></tr>'
    rows = [
        f"<tr><th>{_html(row[0])}</th>" + "".join(f"<td>{_html(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in section.rows
        if row
    ]
    return f"<tbody>{heading}{''.join(rows)}</tbody>"


def csv(table: Table) -> str:
    """The figures of the table, unrounded, one row for each row of its frame, and where they come from."""
    return table.frame.assign(source=marked(table.source)).to_csv(index=False, lineterminator="\n")


FORMS = {"text": text, "markdown": markdown, "html": html, "csv": csv}


def in_form(form: str) -> Callable[[Table], str]:
    """What renders as `--format` says. Raises RxbookError for none of FORMS."""
    if form not in FORMS:
        raise RxbookError(f"--format {form}: say one of {', '.join(FORMS)}")
    return FORMS[form]
