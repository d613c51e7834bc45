# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The block that a patch author pastes: the main tables of a run and how they were measured, in ASCII.

In a changelog or a cover letter the block is indented by two columns. git am takes a line that begins with
"--- GRO" or "diff -" for the patch and drops the changelog from there on; mbox splits at "From "; git commit drops
"#" lines and takes "Machine: ..." for a trailer, beside which it puts the Signed-off-by. All of these count in the
first column only, so no label and no heading can do harm.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rxbook import RxbookError, notebooks, render, report, runs, words
from rxbook.profile import record
from rxbook.runs import Run
from rxbook.tables import Section, Table

__all__ = ["Block", "block", "plain"]

INDENT = "  "
WIDTH = 68
"""Columns of a block: 72 in a git note, which git format-patch indents by four, and fewer elsewhere."""
LONGEST = 40
"""Lines; where the table by variant is longer, the one by frame size and checksum is the default."""
TOP, FEW = 3, 2
"""Functions of each traffic shape in the short table, where there are no more than FEW shapes."""
SHORT = "functions"
"""The name of the short table of functions, which no file has."""


@dataclass(frozen=True)
class Block:
    """What is pasted. run: the name by which it is found again; others: tables of the run that are not in it."""

    run: str
    subject: str
    text: str
    others: tuple[str, ...] = ()

    @property
    def indented(self) -> str:
        """As it stands in a changelog, a cover letter or a mail."""
        return textwrap.indent(self.text, INDENT)


def block(path: Path, names: Sequence[str] = ()) -> Block:
    """The block of a run, at most 72 columns wide wherever it stands.

    names: the tables, as their files are called; default: the table by variant, or a short one of functions for
    a run of function_cycles. A folder of compared inputs has its tables as they were written, 74 columns when indented.
    Raises RxbookError where there is no such run or table, nothing was measured, or a label is not ASCII.
    """
    name = path.resolve().name
    if not runs.is_run(path) and any(path.glob("tables/*.txt")):
        return _written(path, name, names)
    run = runs.load(path)
    if run.samples.empty:
        raise RxbookError(f"{name} has no window: nothing was measured that a mail could say")
    known = _known(run)
    chosen = list(dict.fromkeys(names)) or _default(run, known)
    _refuse_unknown(name, chosen, known)
    made = [_checked(_table(run, one)) for one in chosen]
    others = tuple(one for one in known if one not in chosen)
    made[-1] = replace(made[-1], notes=(*made[-1].notes, f"To measure it again: {notebooks.command(run)}"))
    return Block(name, f"{made[0].title} ({words.marked(made[0].source)})", _text(made), others)


def plain(text: str, what: str) -> str:
    """The text in ASCII, accents dropped. Raises RxbookError, naming character and place, where that loses a letter."""
    spelt = unicodedata.normalize("NFKD", text.replace("\u00b1", "+/-"))
    for letter in spelt:
        if not letter.isascii() and not unicodedata.combining(letter):
            raise RxbookError(
                f"{what} has {letter!r} (U+{ord(letter):04X} {unicodedata.name(letter, 'unnamed')}): a mail to a "
                f"list is ASCII; spell it otherwise in {text!r}"
            )
    return spelt.encode("ascii", "ignore").decode()


def _known(run: Run) -> list[str]:
    """Names of tables; the short one only where its columns say themselves what they are."""
    known = report.tables_named(run)
    short = _of_functions(known) and run.samples["variant"].nunique() == 1
    return [*known, SHORT] if short else known


def _of_functions(known: Iterable[str]) -> list[str]:
    return [name for name in known if name.startswith("functions_")]


def _default(run: Run, known: Sequence[str]) -> list[str]:
    if SHORT in known and (run.plan.shapes or run.notebook == "function_cycles"):
        return [SHORT]
    too_long = _text([_table(run, "gro")]).count("\n") > LONGEST
    return ["size_csum"] if too_long and "size_csum" in known else ["gro"]


def _refuse_unknown(run: str, chosen: Iterable[str], known: Sequence[str]) -> None:
    for name in chosen:
        if name not in known:
            raise RxbookError(f"{run} has no table {name}; it has: {', '.join(known)}")


def _table(run: Run, name: str) -> Table:
    if name != SHORT:
        return report.table_of(run, name)
    made = [report.table_of(run, one) for one in _of_functions(report.tables_named(run))]
    top = len(made[0].sections[-1].rows) if run.plan.functions else TOP if len(made) <= FEW else 0
    return _short(made, top, _recorded(run))


def _recorded(run: Run) -> str:
    counts = sorted(len(found) for found in record.recorded(run.path / "profiles").values())
    span = f"{counts[0]} to {counts[-1]}" if counts[0] != counts[-1] else f"{counts[0]}"
    length = f"{run.host['guests']['packets']} frames" if run.exact else f"{run.plan.profile_s:g} s"
    return f"Recordings of {length} in windows of their own, {span} for each column."


def _short(tables: Sequence[Table], top: int, recorded: str) -> Table:
    """Tables of functions as one: a section for each, with families, the first `top` functions, and shares only.

    Notes are those that hold for all, and every warning.
    """
    shares = [place for place, (group, name) in enumerate(tables[0].columns) if _is_share(group, name)]
    columns = tuple(tables[0].columns[place] for place in shares)
    sections = []
    for table in tables:
        rows = [row for section in table.sections[:-1] for row in section.rows]
        rows += table.sections[-1].rows[:top]
        cells = tuple(tuple(row[place] for place in shares) for row in rows if row)
        sections.append(Section(f"{_shape(table)}: {table.notes[0].rstrip('.')}", cells))  # what was sent
    shared = [note for note in tables[0].notes[1:] if _holds_for_all(note, tables)]
    below = "below them functions" if top else "the functions are in functions_1 and so on"
    notes = [*_warnings(tables), *shared, recorded, f"GRO and the like are sums of functions; {below}."]
    what = tables[0].title.rpartition(": ")[2]
    what = what[0].upper() + what[1:]
    return replace(tables[0], title=what, columns=columns, sections=tuple(sections), notes=tuple(notes))


def _shape(table: Table) -> str:
    return table.title.rpartition(": ")[0]


def _is_share(group: str, name: str) -> bool:
    return "share" in group or (not group and name in ("function", "share, %"))


def _warnings(tables: Sequence[Table]) -> Iterator[str]:
    for table in tables:
        for note in table.notes:
            if note.startswith("WARNING: "):
                yield f"WARNING: {_shape(table)}: {note.removeprefix('WARNING: ')}"


def _holds_for_all(note: str, tables: Sequence[Table]) -> bool:
    """Not of one shape, not of the members of a family, not of a group of columns that the short table leaves out."""
    of_families = {
        row[0] for table in tables for section in table.sections[:-1] for row in section.rows if row
    }
    of_columns = {group or name for group, name in tables[0].columns if not _is_share(group, name)}
    said = note.partition(": ")[0]
    return said not in of_families | of_columns | {"WARNING"} and all(note in table.notes for table in tables)


def _text(tables: Sequence[Table]) -> str:
    """The tables one below the other; what their notes share is said once."""
    bodies = [render.text(replace(table, notes=()), WIDTH).strip("\n") for table in tables]
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    said = [
        line for note in notes for line in textwrap.wrap(plain(note, "a note"), WIDTH, subsequent_indent="  ")
    ]
    return "\n\n\n".join(bodies) + "\n\n" + "\n".join(said) + "\n"


def _checked(table: Table) -> Table:
    """The table itself. Raises RxbookError where its text would lose letters."""
    cells = [
        cell for section in table.sections for row in [(section.heading,), *section.rows] for cell in row
    ]
    heads = [name for column in table.columns for name in column]
    for text in (table.title, table.source, *heads, *cells, *table.notes):
        plain(text, "the table")
    return table


def _written(path: Path, name: str, names: Sequence[str]) -> Block:
    known = sorted(file.stem for file in path.glob("tables/*.txt"))
    chosen = list(dict.fromkeys(names)) or known[:1]
    _refuse_unknown(name, chosen, known)
    texts = [plain((path / "tables" / f"{one}.txt").read_text(), one).strip("\n") for one in chosen]
    subject = " ".join(texts[0].splitlines()[0].split())
    others = tuple(one for one in known if one not in chosen)
    return Block(name, subject, "\n\n\n".join(texts) + "\n", others)
