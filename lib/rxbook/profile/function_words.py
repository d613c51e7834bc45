# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How a table of functions is laid out, how its figures are said, and what must be known to believe it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rxbook.profile import Profile
from rxbook.profile.function_rows import INLINED, Row
from rxbook.profile.shares import difference, differs
from rxbook.profile.tally import CLOCKS, base_name
from rxbook.statistics import Interval

LONGEST_NAME = 29
"""Two columns fit beside it into 72. Longer names are cut in their middle, unless that makes two alike; the
frame has them whole."""
LONGEST_LABEL = 10
"""With a longer one, or with more than two, columns are headed A, B and a note says what these are."""
LEAST = {"share": 2, "children": 2, "cost": 1}
"""Digits behind the point, unless the half-width asks for more."""
FACTOR = {"share": 100, "children": 100, "cost": 1}


def _places(size: float, least: int) -> int:
    """Digits behind the point that show the first digit of a half-width."""
    return max(least, min(4, -math.floor(math.log10(size)))) if math.isfinite(size) and size > 0 else least


def figure(found: Interval, least: int, bare: bool = False) -> str:
    """`9.96 +/-0.12`; `<0.03` where there was no sample; `9.96` without an interval; `-` where not known."""
    if math.isnan(found.centre):
        return "-"
    if found.centre == 0 and found.high > 0:
        places = _places(found.high, least)
        return f"<{math.ceil(found.high * 10**places) / 10**places:.{places}f}"
    if bare or math.isnan(found.high):
        return f"{found.centre:.{least}f}"
    places = _places(found.half_width, least)
    return f"{found.centre:.{places}f} +/-{found.half_width:.{places}f}"


def change(found: Interval, least: int) -> str:
    """`-1.47 +/-0.12`; `~ +/-0.12` where no difference is shown; `-1.47` without an interval; `-` for none."""
    if math.isnan(found.centre) or found.low == found.high == 0:
        return "-"
    if math.isnan(found.low):
        return f"{found.centre:+.{least}f}"
    places = _places(found.half_width, least)
    shown = f"{found.centre:+.{places}f}" if differs(found) else "~"
    return f"{shown} +/-{found.half_width:.{places}f}"


def scaled(found: Interval, factor: float) -> Interval:
    """In another unit."""
    return Interval(found.centre * factor, found.low * factor, found.high * factor, found.n)


@dataclass(frozen=True)
class Layout:
    """Which figures the table prints: one block for each measure, a column for each label, then differences."""

    labels: tuple[str, ...]
    unit: str
    measures: tuple[str, ...]

    @classmethod
    def of(cls, labels: Sequence[str], unit: str, children: bool, costs: bool) -> Layout:
        measures = ["share", *["children"] * children, *["cost"] * costs]
        return cls(tuple(labels), unit, tuple(measures))

    @property
    def heads(self) -> tuple[str, ...]:
        """What stands above each column."""
        if len(self.labels) <= 2 and max(map(len, self.labels)) <= LONGEST_LABEL:
            return self.labels
        return tuple(_letter(index) for index in range(len(self.labels)))

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Of the Table: (group, name) of each column."""
        words = {"share": "share, %", "children": "children, %", "cost": f"{self.unit} per packet"}
        named = [("", "function")]
        if len(self.labels) == 1:
            return (*named, *(("", words[name]) for name in self.measures), ("", "samples"))
        first, *later = self.heads
        for name in self.measures:
            named += [(words[name], head) for head in self.heads]
            if len(later) == 1:
                named.append((words[name], "diff"))
            else:  # in a group of its own, as both together are too wide for a mail
                named += [(f"diff, {words[name]}", f"{other}-{first}") for other in later]
        return tuple(named)

    def row(self, row: Row, label: str) -> tuple[str, ...]:
        """The cells of one line."""
        figures = {"share": row.shares, "children": row.children, "cost": row.costs}
        alone = len(self.labels) == 1
        bare = not alone and (len(self.measures) > 1 or len(self.labels) > 2)
        cells = [label]
        for name in self.measures:
            first, *later = found = [scaled(one, FACTOR[name]) for one in figures[name]]
            cells += [figure(one, LEAST[name], bare) for one in found]
            cells += [change(difference(first, one), LEAST[name]) for one in later]
        if alone:
            known = row.shares[0].n or not math.isnan(row.shares[0].high)
            cells.append(str(row.shares[0].n) if known else "-")
        return tuple(cells)


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"#{index + 1}"


def marks(rows: Sequence[Row]) -> dict[str, str]:
    """Marks of inlined functions, by what they were inlined into: [i] where that is one function, else [i1], [i2]."""
    holders = list(dict.fromkeys(row.within for row in rows if row.within))
    return {holder: f" [i{number if holders[1:] else ''}]" for number, holder in enumerate(holders, 1)}


def labels(rows: Sequence[Row], marked: Mapping[str, str]) -> list[str]:
    """What names each line: where one name is in several files, with its file; long names cut in the middle.

    marked: the mark of each row's `within`, see marks().
    """
    files: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        files.setdefault((row.group, row.name), set()).add(row.dso)
    whole = [
        f"{row.name} ({row.dso})" if len(files[row.group, row.name]) > 1 and row.dso else row.name
        for row in rows
    ]
    whole = [
        name.replace(INLINED, marked.get(row.within, INLINED)) for name, row in zip(whole, rows, strict=True)
    ]
    shorter = [cut(name) for name in whole]
    return [
        short if len({w for w, c in zip(whole, shorter, strict=True) if c == short}) == 1 else name
        for name, short in zip(whole, shorter, strict=True)
    ]


def cut(name: str) -> str:
    """The name, its middle left out where it is too long; a mark behind it stays."""
    if len(name) <= LONGEST_NAME:
        return name
    mark = re.search(r"( \[i\d*\])?$", name)[0]
    kept = LONGEST_NAME - 3 - len(mark)
    head = kept * 2 // 3
    return f"{name[:head]}...{name[len(name) - len(mark) - kept + head :]}"


def what(events: Mapping[str, Sequence[str | None]], unit: str) -> str:
    """What the shares are of."""
    if unit == "instructions":
        return unit
    names = {base_name(event) for found in events.values() for event in found if event}
    if names and names <= set(CLOCKS):
        return "time"
    return names.pop() if len(names) == 1 and names != {"unknown"} else "CPU"


def notes(
    columns: Mapping[str, Sequence[Profile]],
    events: Mapping[str, Sequence[str | None]],
    totals: Mapping[str, np.ndarray],
    layout: Layout,
) -> Iterator[str]:
    """What is partial, then of what the shares are, column by column; gravest first."""
    heads = dict(zip(columns, layout.heads, strict=True)) if len(columns) > 1 else dict.fromkeys(columns, "")
    said = {name: f"{heads[name]}: " if heads[name] else "" for name in columns}
    for name, profiles in columns.items():
        yield from _losses(said[name], profiles, totals[name])
    for name, profiles in columns.items():
        for warning in dict.fromkeys(w for profile in profiles for w in profile.warnings):
            yield f"WARNING: {said[name]}{warning}"
    for name, profiles in columns.items():
        label = f"{name}, " if heads[name] and heads[name] != name else ""
        yield f"{said[name]}{label}{_recordings(profiles, events[name], totals[name])}"
    named = {base_name(event) for found in events.values() for event in found if event}
    if layout.unit == "instructions":
        yield "The guest's clock is the number of instructions, and samples come at even distances of it."
    elif named & set(CLOCKS):
        yield f"{', '.join(sorted(named & set(CLOCKS)))} samples time, not cycles."
    if len(named) > 1:
        yield f"The columns hold different events: {', '.join(sorted(named))}."


def _losses(said: str, profiles: Sequence[Profile], totals: np.ndarray) -> Iterator[str]:
    lost, total = sum(profile.lost for profile in profiles), np.nansum(totals)
    empty = all(profile.functions.empty for profile in profiles)
    if empty:
        yield f"WARNING: {said}no sample" + (f"; all {lost} were lost." if lost else ".")
    elif lost:
        share = f" ({lost / (lost + total):.1%} of all)" if total and not np.isnan(totals).any() else ""
        yield f"WARNING: {said}{lost} samples were lost{share}, and not evenly: busy moments lose most."


def _recordings(profiles: Sequence[Profile], events: Sequence[str | None], totals: np.ndarray) -> str:
    names = list(dict.fromkeys(event for event in events if event)) or ["no event"]
    count = "samples not told" if np.isnan(totals).any() else f"{int(totals.sum())} samples"
    lost = f", {sum(profile.lost for profile in profiles)} lost" if any(p.lost for p in profiles) else ""
    sources = list(dict.fromkeys(profile.source for profile in profiles))
    where = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    repeats = f" in {len(profiles)} repeats" if len(profiles) > 1 else ""
    others = sorted({e for p in profiles for e in p.events} - set(names))
    beside = f"; other events in it: {', '.join(others)}" if others else ""
    named = "" if names == ["unknown"] else f"{', '.join(names)}, "
    return f"{where}: {named}{count}{repeats}{lost}{beside}."
