# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The table of functions: share of the CPU, cost per packet, and what changed, each with its 95 % interval.

How sure a figure is comes from `shares`, what is summed from `families`; `render` prints the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from rxbook import RxbookError
from rxbook.profile import Profile, function_words
from rxbook.profile.families import Families, chosen
from rxbook.profile.function_rows import Row, Rows
from rxbook.profile.function_words import Layout, labels, marks, scaled
from rxbook.profile.shares import difference, differs
from rxbook.profile.tally import By, Inlined, event_of, tally
from rxbook.statistics import Interval
from rxbook.tables import Section, Table

__all__ = ["Column", "function_table"]

MEMBERS = 5
"""So many functions of a family are named below the table."""


@dataclass(frozen=True)
class Column:
    """One condition: its recordings, and what a packet costs the receiver under it.

    profiles: one, or the repeats of the same condition. cost: what the receiver spends per packet in `unit`, as
    `statistics.cell_interval(windows, "ns_per_packet")` gives it. Where that is instructions, the clock of the samples
    counts these, too.
    """

    profiles: Sequence[Profile]
    cost: Interval | None = None
    unit: Literal["ns", "cycles", "instructions"] = "ns"


def function_table(
    columns: Mapping[str, Column],
    *,
    source: str = "measured",
    top: int = 20,
    only: Collection[str] | None = None,
    by: By | None = None,
    event: str | None = None,
    families: bool | Families | None = True,
    children: bool = False,
    inlined: Inlined = "shown",
    sort: Literal["max", "last"] = "max",
) -> Table:
    """Functions by share, in one column or several; each later column is compared with the first.

    columns: by label, as in {"GRO off": Column([...]), "GRO on": Column([...])}. top: so many functions are shown,
    by their largest share or by the last column's (`sort`); all others are one row. only: patterns of the functions
    to show; a name without wildcards gets its row also where it has no samples. by: one section for each dso, comm
    or cpu; shares stay those of the whole recording. event: default cycles, else time, else the first.
    families: see `families.chosen`. inlined, for profiles that tell inlined functions apart: "shown" beside their
    callers, which count them too; "apart", taken from their callers; or "hidden". Each has a row for every function
    that it was inlined into (`within`, where known).

    The frame has one row for each line and column: shares in percent, differences from the first column in points,
    limits of the 95 % intervals as _low and _high, costs per packet in the columns' unit; NaN where not known.

    Raises RxbookError where there is no column, a profile has not the event or does not tell `by`, costs have
    different units, or no function matches `only`.
    """
    unit = _unit(columns)
    recordings = {name: column.profiles for name, column in columns.items()}
    literal = [name for name in only or () if not set(name) & set("*?[!")] if by is None else []
    names, tallies = tally(recordings, event, by, inlined, literal)
    rows = Rows(names, list(tallies.values()), [column.cost for column in columns.values()], inlined)
    sums = list(rows.families(chosen(families), families if isinstance(families, Mapping) else ()))
    sections = rows.functions(top, only, by, children, sort == "last")
    if sums:
        sections.insert(0, ("Families: sums of functions", [line for line, _ in sums]))
    layout = Layout.of(list(columns), unit, children, any(column.cost for column in columns.values()))
    marked = marks([line for _, lines in sections for line in lines])
    shown = tuple(
        Section(heading, tuple(map(layout.row, lines, labels(lines, marked)))) for heading, lines in sections
    )
    events = {name: [event_of(p, event) for p in found] for name, found in recordings.items()}
    said = [
        *function_words.notes(recordings, events, {name: t.totals for name, t in tallies.items()}, layout),
        *_reading(sections, rows, layout),
        *_inlined(rows, inlined, marked),
        *_members(sums),
    ]
    frame = pd.DataFrame(
        [r for _, lines in sections for line in lines for r in _records(line, columns, events, unit)]
    )
    title = f"functions by share of {function_words.what(events, unit)}"
    return Table(title, layout.columns, shown, tuple(said), frame, source)


def _unit(columns: Mapping[str, Column]) -> str:
    if not columns or not all(column.profiles for column in columns.values()):
        raise RxbookError("a table of functions needs at least one column, and each a profile")
    units = sorted({column.unit for column in columns.values() if column.cost})
    if len(units) > 1:
        raise RxbookError(
            f"costs are in {units[0]} in one column and in {units[1]} in another; give all in one unit"
        )
    return units[0] if units else "ns"


def _reading(sections: Sequence[tuple[str, Sequence[Row]]], rows: Rows, layout: Layout) -> Iterator[str]:
    """How the figures are to be read."""
    lines = [line for _, found in sections for line in found]
    shares = [share for line in lines for share in line.shares if not np.isnan(share.centre)]
    if any(not np.isnan(share.high) for share in shares if share.centre < 1):
        yield "+/-: half-width of the 95 % interval, from sample counts and between repeats; <: upper limit."
    if any(np.isnan(share.high) for share in shares):
        yield "Without sample counts a share has no interval: these are the percentages as they were printed."
    if len(layout.labels) > 1:
        yield f"diff: in points of share{f', in {layout.unit}' * ('cost' in layout.measures)}; ~: no difference shown."
    if "cost" in layout.measures:
        of = "instructions" if layout.unit == "instructions" else "busy time"
        yield f"{layout.unit} per packet: share of the receiver's {of}, times its cost per packet."
        yield from _idle(rows)
    if "children" in layout.measures and all(np.isnan(found.children_shares).all() for found in rows.tallies):
        yield "No call chains: shares with children are not known."


def _inlined(rows: Rows, inlined: Inlined, marked: Mapping[str, str]) -> Iterator[str]:
    """How inlined functions are counted."""
    if not rows.tells_inlined or inlined == "hidden":
        yield "Inlined functions are counted in their callers."
        return
    if inlined == "apart":
        yield "[i]: an inlined function, less what was inlined into it; its caller's row does not count it."
    else:
        yield (
            "[i]: an inlined function; its caller's row counts it too, and so does the row of an inlined one that "
            "holds it; sums count it once."
        )
    if marked:
        yield f"Inlined into: {', '.join(f'{mark.strip()} {holder}' for holder, mark in marked.items())}."


def _idle(rows: Rows) -> Iterator[str]:
    idle = [found.share(rows.idle).centre for found in rows.tallies]
    if any(share > 0 for share in idle):
        shares = " and ".join(f"{share:.1%}" for share in idle)
        yield f"The CPU was idle in {shares} of the samples: these cost no packet anything."


def _members(sums: Sequence[tuple[Row, list[str]]]) -> Iterator[str]:
    for line, members in sums:
        more = f" and {len(members) - MEMBERS} more" if len(members) > MEMBERS else ""
        yield f"{line.name}: {', '.join(members[:MEMBERS]) or 'no function has samples'}{more}."


def _records(
    line: Row, columns: Mapping[str, Column], events: Mapping[str, Sequence[str | None]], unit: str
) -> Iterator[dict[str, Any]]:
    """One row of the frame for each column."""
    for place, name in enumerate(columns):
        share = line.shares[place]
        record = {
            "group": line.group,
            "row": line.kind,
            "function": line.name,
            "dso": line.dso,
            "within": line.within,
            "column": name,
        }
        record["event"] = "; ".join(dict.fromkeys(event for event in events[name] if event))
        record["samples"] = share.n if share.n or share.high >= 0 else np.nan
        for measure, found, factor in (
            ("share_percent", line.shares, 100),
            ("children_percent", line.children, 100),
            (f"{unit}_per_packet", line.costs, 1),
        ):
            record |= _limits(measure, scaled(found[place], factor))
            change = scaled(difference(found[0], found[place]), factor)
            unknown = Interval(np.nan, np.nan, np.nan, 0)
            measure = measure.replace("_percent", "_points")
            record |= _limits(f"{measure}_vs_first", change if place else unknown)
            record[f"{measure}_differs"] = bool(place) and differs(change)
        yield record


def _limits(name: str, found: Interval) -> dict[str, float]:
    return {name: found.centre, f"{name}_low": found.low, f"{name}_high": found.high}
