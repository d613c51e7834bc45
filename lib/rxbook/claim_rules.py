# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What can be claimed of a table, by its units, and whether the figures printed with a claim allow it.

Each rule takes the name of a message, that of a table in it, and its figures as `published.load` gives them; it
gives claims, and notes on what a reader must know of them or what cannot be checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from rxbook import RxbookError
from rxbook.profile.families import chosen, matcher
from rxbook.published import DIFFERENCE, SAVED, SHARE
from rxbook.rounding import Range, decimals, exactly, printed, verdict

__all__ = ["Claim", "limits", "rule"]

OTHER_COLUMN = "*"
"""Marks a base that stands in another column."""

Cells = Mapping[str, Mapping[str, str]]
"""Rows of a table by name, each its values by column, as printed."""

_DIFF_WORDS = re.compile(r"\b(diff(erence)?|delta|change|gain|improvement|patch(es)?)\b|[.,:%()]+", re.I)


_AGAINST = re.compile(
    r"(?:^|\s+)(?:vs\.?|versus|against|over|(?:compared|relative|diff) (?:to|with))\s+|\s*/\s*", re.IGNORECASE
)

RANKS = ("agree", "possible", "contradicts")
"""Of several readings of what is printed, the one that fits best is taken."""


@dataclass(frozen=True)
class Claim:
    """One printed figure, or one that others imply, and what these others allow.

    figures: those it follows from, as printed. printed: "" where it is derived. computed: in `unit`.
    verdict: agree, possible, contradicts; lower, higher, unclear for a share; derived.
    """

    message: str
    table: str
    name: str
    figures: str
    printed: str
    unit: str
    computed: Range
    verdict: str
    signed: bool = True
    places: int = 1


def rule(units: set[str]) -> Callable[[str, str, pd.DataFrame], Iterator[Claim | str]]:
    """The rule for a table with figures in these units."""
    if units == {SHARE}:
        return _shares
    if {"ns", "GHz"} <= units:
        return _product
    return _steps if SAVED in units else _differences


def _cells(figures: pd.DataFrame) -> Cells:
    rows: dict[str, dict[str, str]] = {}
    for cell in figures.itertuples():
        rows.setdefault(cell.row, {})[cell.column] = cell.value
    return rows


def _number(value: str | None) -> Range | None:
    try:
        return printed(value or "")
    except RxbookError:  # N/A and the like
        return None


# --- differences between rows, or within one


def _differences(message: str, name: str, figures: pd.DataFrame) -> Iterator[Claim | str]:
    if set(figures["unit"]) == {DIFFERENCE}:
        yield f"Not checked, as the rates are not printed: {name} {', '.join(figures['value'])} %."
        return
    rates: dict[str, dict[str, str]] = {}
    for row, cells in figures.groupby("row", sort=False):
        values = _cells(cells[cells["unit"] != DIFFERENCE]).get(row, {})
        changes = _cells(cells[cells["unit"] == DIFFERENCE]).get(row, {})
        if values:
            rates[row] = values
        for column, change in changes.items():
            if _number(change) is None:
                continue
            pairs = _within(values) if values else _between(row, column, rates)
            judged = [_difference(message, name, f"{row}, {column}", change, *pair) for pair in pairs]
            claim = min(filter(None, judged), key=lambda one: RANKS.index(one.verdict), default=None)
            if claim and claim.figures.endswith(OTHER_COLUMN):
                yield f"{OTHER_COLUMN}: the base has no figure in this column, so that of its first column is taken."
            yield (
                claim
                or f"Not checked: {row}, {column}: {change}%; the figures that it compares are not there."
            )


def _within(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """A difference beside two figures is that of the second against the first; beside more, nobody can tell."""
    known = [value for value in values.values() if _number(value)]
    return [(known[1], known[0])] if len(known) == 2 else []


def _between(label: str, column: str, rates: Cells) -> Iterator[tuple[str, str]]:
    """The two printed figures that a row of differences may compare in a column: (new, base).

    Where the base has no figure in this column, as a kernel without GRO has none for GRO on, its first one is
    taken, as the authors do.
    """
    for new, base in ((rates[new], rates[base]) for new, base in compared(label, list(rates))):
        known = [value for value in base.values() if _number(value)]
        if _number(new.get(column)) and _number(base.get(column)):
            yield new[column], base[column]
        elif _number(new.get(column)) and known:
            yield new[column], known[0] + OTHER_COLUMN


def compared(label: str, rows: Sequence[str]) -> list[tuple[str, str]]:
    """Which rows a label such as "1...8 diff", "patches 1-3", "B vs A" or "diff" compares: (new, base).

    A number in it names the row with that number, a row's name that row; else it is of the last row above it.
    The base is the one named behind "vs", else the first row; of a bare "diff" it may also be the row before.
    """
    if len(rows) < 2:
        return []
    sides = [*_AGAINST.split(label, maxsplit=1), ""]
    new, base = (_row_named(side, rows) for side in sides[:2])
    bases = [base] if base else [rows[0]] if new else [rows[0], rows[-2]]
    return [(new or rows[-1], one) for one in dict.fromkeys(bases) if one != (new or rows[-1])]


def _row_named(words: str, rows: Sequence[str]) -> str | None:
    bare = " ".join(_DIFF_WORDS.sub(" ", words).split()).lower()
    if not bare:
        return None
    names = {" ".join(_DIFF_WORDS.sub(" ", row).split()).lower(): row for row in rows}
    if bare in names:
        return names[bare]
    numbers = re.findall(r"\d+", bare)
    ending = [row for row in rows if numbers and re.findall(r"\d+", row)[-1:] == numbers[-1:]]
    return ending[0] if ending else None


def _difference(message: str, table: str, name: str, change: str, over: str, under: str) -> Claim | None:
    """None where the base may be a rounded zero."""
    new, base = printed(over), printed(under.removesuffix(OTHER_COLUMN))
    if base.low <= 0:
        return None
    computed = (new / base - 1) * 100
    judged = verdict(printed(change), computed)
    return Claim(message, table, name, f"{over} / {under}", change, DIFFERENCE, computed, judged)


# --- shares of functions, and their families


def _shares(message: str, name: str, figures: pd.DataFrame) -> Iterator[Claim | str]:
    rows = _cells(figures)
    columns = list(dict.fromkeys(figures["column"]))
    if len(columns) == 1:
        yield f"Not checked: {name} has one column of shares, and nothing to compare it with."
        return
    for function, values in rows.items():
        yield from _moves(message, name, function, columns, [values])
    for family, patterns in chosen(True).items():
        members = [function for function in rows if matcher(patterns)(function)]
        lacking = [function for function in members if set(rows[function]) != set(columns)]
        if lacking:
            yield f"{family} is not summed: {', '.join(lacking)} has no figure in some columns."
        elif len(members) > 1:
            yield from _moves(message, name, f"{family} together", columns, [rows[one] for one in members])


def _moves(
    message: str, table: str, name: str, columns: Sequence[str], rows: Sequence[Mapping[str, str]]
) -> Iterator[Claim]:
    """How a share, or the sum of several, moves from the first column to each later one."""
    sums = {}
    for column in columns:
        values = [printed(row[column]) for row in rows if column in row]
        if values:
            sums[column] = sum(values[1:], values[0])
    places = max(decimals(value) for row in rows for value in row.values())
    before, *later = sums.values()
    for after in later:
        change = after - before
        figures = f"{float(before.point):.{places}f}->{float(after.point):.{places}f}"
        judged = "lower" if change.high < 0 else "higher" if change.low > 0 else "unclear"
        yield Claim(message, table, name, figures, "", "points", change, judged, places=places)


# --- steps of throughput and of cycles per packet


def _steps(message: str, name: str, figures: pd.DataFrame) -> Iterator[Claim | str]:
    """c cycles per packet, k fewer, make c / (c - k) = 1 + p times the packets: so c = k (1 / p + 1)."""
    units = {unit: _cells(cells) for unit, cells in figures.groupby("unit", sort=False)}
    gains, saved = (
        {row: next(iter(cells.values())) for row, cells in units.get(u, {}).items()}
        for u in (DIFFERENCE, SAVED)
    )
    clock = next((value for cells in units.get("GHz", {}).values() for value in cells.values()), None)
    first: Range | None = None
    for row in (row for row in gains if row in saved and not row.startswith("further")):
        gain, fewer = printed(gains[row]), printed(saved[row])
        if gain.low <= 0 or fewer.low <= 0:
            yield f"Not checked: {row}: {gains[row]}% and {saved[row]} cycles imply no base."
            continue
        base = fewer * (exactly(100) / gain + 1)
        judged = "derived"
        if first and row == "total":
            judged = (
                "agree" if first.holds(base.point) else "possible" if first.overlaps(base) else "contradicts"
            )
        which = f"{saved[row]} at {gains[row]}%"
        yield Claim(message, name, f"{row}: base, cycles", which, "", "cycles", base, judged, signed=False)
        if clock and judged == "derived":
            rate = printed(clock) * 1000 / base
            which = f"{clock} GHz"
            yield Claim(message, name, f"{row}: base, Mpps", which, "", "Mpps", rate, "derived", signed=False)
        first = first or base
    yield from _totals(message, name, gains, DIFFERENCE)
    yield from _totals(message, name, saved, SAVED)


def _totals(message: str, name: str, steps: Mapping[str, str], unit: str) -> Iterator[Claim | str]:
    """Does the total follow from the steps, added; percentages also one upon the other?"""
    parts = [value for row, value in steps.items() if row == "first" or row.startswith("further")]
    if "total" not in steps or not 2 <= len(parts) == len(steps) - 1:
        return
    claim, values = printed(steps["total"]), [printed(part) for part in parts]
    readings = {" + ": sum(values[1:], values[0])}
    if unit == DIFFERENCE:
        factor = exactly(1)
        for value in values:
            factor *= value / 100 + 1
        readings[" * "] = (factor - 1) * 100
    sign, computed = min(readings.items(), key=lambda item: RANKS.index(verdict(claim, item[1])))
    label = f"total, {'throughput' if unit == DIFFERENCE else 'cycles'}"
    yield Claim(
        message, name, label, sign.join(parts), steps["total"], unit, computed, verdict(claim, computed),
        signed=unit == DIFFERENCE,
    )  # fmt: skip
    for other, found in readings.items():
        if other != sign:
            how = {" * ": "one upon the other", " + ": "added as points of the first base"}
            fits = "not" if verdict(claim, found) == "contradicts" else "as well as"
            yield (
                f"{label}: {' and '.join(parts)}, {how[sign]}, {verdict(claim, computed)}; {how[other]} they would "
                f"give {limits(found, 1, True)}, {fits} {steps['total']}."
            )


def _product(message: str, name: str, figures: pd.DataFrame) -> Iterator[Claim | str]:
    """Nanoseconds at a clock are so many cycles."""
    values = dict(zip(figures["unit"], figures["value"], strict=True))
    computed = printed(values["ns"]) * printed(values["GHz"])
    yield Claim(
        message, name, "ns * GHz, in cycles", f"{values['ns']} * {values['GHz']}", values["cycles"], "cycles",
        computed, verdict(printed(values["cycles"]), computed), signed=False,
    )  # fmt: skip


def limits(found: Range, places: int, signed: bool) -> str:
    """`-18.2..-11.3`, rounded outwards, so that nothing allowed is left out."""
    scale, sign = 10**places, "+" if signed else ""
    low, high = math.floor(found.low * scale) / scale, math.ceil(found.high * scale) / scale
    return f"{low:{sign}.{places}f}..{high:{sign}.{places}f}"
