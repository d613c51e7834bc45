# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables of the threads, made from samples.

Each function returns a `Table`: what is printed, as strings, and the same figures unrounded in its `frame`.
All take `source`: "measured", or whence the samples come, as in "RECORDED 2026-12-01 on a 2-core machine".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rxbook import words
from rxbook.statistics import (
    AA_NAMES,
    EXCLUDING_FLAGS,
    Comparison,
    Interval,
    cell_interval,
    compare,
    counted,
    has_flag,
    noise_floor,
    number_runs,
)

__all__ = [
    "GroEffect",
    "Section",
    "Table",
    "gro_effect",
    "gro_table",
    "is_cell",
    "noise_table",
    "size_csum_table",
    "windows_table",
]

GRO = ("off", "on")
SHORT_UNITS = {"mpps": "Mpps", "ns_per_packet": "ns"}

NotApplicable = Collection[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """Rows under one heading. A row has one string per column of the table; an empty row is a gap."""

    heading: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Table:
    """What `render` prints.

    columns: (group, name) of each, the first names the row. frame: the figures unrounded, tidy, units in the
    names. source: "measured ...", or another word that has to be shown with the title. about: what a picture of it says
    below its title, the traffic and the machine.
    """

    title: str
    columns: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    frame: pd.DataFrame
    source: str
    about: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroEffect:
    """One variant with one traffic, GRO off and on. None: not measured.

    off_segs, on_segs: segs_per_skb, NaN where no window counts. change: GRO on against GRO off.
    """

    off: Interval | None
    off_segs: float
    on: Interval | None
    on_segs: float
    change: Comparison


def gro_effect(windows: pd.DataFrame, value: str = "mpps") -> GroEffect:
    """What GRO does, from the windows of one variant with one traffic shape."""
    figures: list[Any] = []
    for gro in GRO:
        cell = windows[windows["gro"] == gro]
        figures += [cell_interval(cell, value) if len(cell) else None, _segs_per_skb(counted(cell, value))]
    return GroEffect(*figures, compare(windows, {"gro": "off"}, {"gro": "on"}, value))


def _segs_per_skb(windows: pd.DataFrame) -> float:
    skbs = windows["skbs"].sum()
    return float(windows["frames"].sum() / skbs) if skbs else np.nan


def gro_table(
    samples: pd.DataFrame,
    value: str = "mpps",
    *,
    source: str = "measured",
    variants: Sequence[str] | None = None,
    not_applicable: NotApplicable = (),
) -> Table:
    """GRO off and on by variant, as in the threads, with each later variant against the first.

    value: "mpps" or "ns_per_packet". variants: their order, the first is the baseline; default: as
    `words.variant_order`. not_applicable: pairs (variant, gro) that print N/A; where the baseline's GRO on is
    one, a later variant's GRO on is compared with the baseline's GRO off, as the authors do. Later ones are also
    compared with the one before.
    There is one section for each traffic shape.
    """
    first, *later = variants or words.variant_order(samples) or [""]
    sections, records, comparisons = [], [], []
    for shape, windows in words.shapes(samples):
        rows, differences = [], []
        for name in (first, *later):
            effect = gro_effect(windows[windows["variant"] == name], value)
            rows.append(_gro_row(name, effect, value, not_applicable))
            records.append({**shape, "variant": name, **_effect_record(effect, value)})
            comparisons.append(effect.change)
            if name != first:
                off, on = _against(windows, name, first, value, not_applicable)
                records[-1] |= _change_record("off_vs_first", off) | _change_record("on_vs_first", on)
                differences.append(_difference_row(f"{name} diff", off, on))
                comparisons += [off, on]
        for before, name in itertools.pairwise(later):
            off, on = _against(windows, name, before, value, not_applicable)
            differences.append(_difference_row(f"{name} / {before}", off, on))
            comparisons += [off, on]
        gap = [()] if differences else []
        sections.append(Section(words.traffic(shape), (*rows, *gap, *differences)))
    unit = SHORT_UNITS[value]
    columns = [("", "variant"), *((f"GRO {gro}", name) for gro in GRO for name in (unit, "n", "segs"))]
    notes = words.notes(samples, value, comparisons)
    if later:
        column = "with GRO off, in both columns" if (first, "on") in not_applicable else "in the same column"
        notes = (*notes, f"diff: against {first} {column}.")
    title = _title(samples, f"GRO, {words.UNITS[value]}")
    return _table(title, [*columns, ("", "on/off")], sections, notes, records, samples, source)


def _gro_row(name: str, effect: GroEffect, value: str, not_applicable: NotApplicable) -> tuple[str, ...]:
    row = [name]
    lacking = [(name, gro) in not_applicable for gro in GRO]
    for lacks, found, segs in zip(
        lacking, (effect.off, effect.on), (effect.off_segs, effect.on_segs), strict=True
    ):
        row += ["N/A", "", ""] if lacks else [words.figure(found, value), _count(found), _segs(segs)]
    return (*row, "N/A" if any(lacking) else words.change(effect.change))


def _count(found: Interval | Comparison | None) -> str:
    return str(found.n) if found else "-"


def _segs(segs: float) -> str:
    return "-" if np.isnan(segs) else f"{segs:.1f}"


def _against(
    windows: pd.DataFrame, name: str, first: str, value: str, not_applicable: NotApplicable
) -> list[Comparison]:
    """A variant against the first one: with GRO off, with GRO on."""
    found = []
    for gro in GRO:
        kept = windows.iloc[:0] if (name, gro) in not_applicable else windows
        baseline = {"variant": first, "gro": "off" if (first, gro) in not_applicable else gro}
        found.append(compare(kept, baseline, {"variant": name, "gro": gro}, value))
    return found


def _difference_row(name: str, off: Comparison, on: Comparison) -> tuple[str, ...]:
    return (name, words.change(off), _count(off), "", words.change(on), _count(on), "", "")


def size_csum_table(samples: pd.DataFrame, value: str = "mpps", *, source: str = "measured") -> Table:
    """GRO off and on by frame size (rows) and UDP checksum (columns): what reviewers ask first.

    There is one section for each variant and whatever else differs. segs is segs_per_skb with GRO on.
    """
    checksums = sorted(samples["udp_csum"].unique())
    columns = [("", "frame")]
    columns += [(f"checksum {csum}", name) for csum in checksums for name in ("off", "on", "on/off", "segs")]
    fixed = [name for name in words.SHAPE if name not in ("frame_size", "udp_csum")]
    sections, records, effects = [], [], []
    for (variant, *_), windows in number_runs(samples).groupby(["variant", *fixed], dropna=False):
        rows = []
        for size, of_size in windows.groupby("frame_size"):
            row = [str(size)]
            for csum in checksums:
                of_csum = of_size[of_size["udp_csum"] == csum]
                effects.append(gro_effect(of_csum, value))
                row += _short_row(effects[-1], value)
                if len(of_csum):
                    shape = of_csum.iloc[0][["variant", *words.SHAPE]].to_dict()
                    records.append(shape | _effect_record(effects[-1], value))
            rows.append(tuple(row))
        sections.append(Section(f"{variant}: {words.traffic(windows.iloc[0], fixed)}", tuple(rows)))
    notes = words.notes(samples, value, [effect.change for effect in effects])
    notes += ("off, on: GRO off and on. segs: frames per skb with GRO on.", *_counts_note(effects))
    title = _title(samples, f"GRO by frame size and checksum, {words.UNITS[value]}")
    return _table(title, columns, sections, notes, records, samples, source)


def _short_row(effect: GroEffect, value: str) -> list[str]:
    rates = [words.figure(found, value).split(" ")[0] for found in (effect.off, effect.on)]
    return [*rates, words.change(effect.change), _segs(effect.on_segs)]


def _counts_note(effects: Iterable[GroEffect]) -> tuple[str, ...]:
    counts = sorted({found.n for effect in effects for found in (effect.off, effect.on) if found})
    if not counts:
        return ()
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (f"n: {span} windows count in each cell.",)


def noise_table(samples: pd.DataFrame, value: str = "mpps", *, source: str = "measured") -> Table:
    """An A/A run: one cell under two names, and the smallest difference that this run could have shown."""
    floor = noise_floor(samples, value)
    sections, comparisons = [], []
    for shape, windows in words.shapes(samples):
        rows = []
        for cell in floor[is_cell(floor, shape)].to_dict("records"):
            of_cell = windows[windows["gro"] == cell["gro"]]
            pair = [{"variant": cell["variant"] + ending} for ending in AA_NAMES]
            comparisons.append(compare(of_cell, *pair, value))
            rows.append(_noise_row(cell, of_cell, comparisons[-1], value))
        sections.append(Section(words.traffic(shape), tuple(rows)))
    names = ("A", "A again", "diff", "n", "shows", "alarm")
    widths = floor["half_width"].dropna() * 100
    shown = f"{widths.min():.1f} to {widths.max():.1f} %" if len(widths) else "unknown: too few windows"
    notes = (
        *words.notes(samples, value, comparisons),
        f"shows: the smallest difference that this run can tell from none. By cell: {shown}.",
        f"False alarms: {floor['false_alarm'].sum()} of {len(floor)}; chance alone gives 1 in 20.",
    )
    columns = [("", "cell"), *(("", name) for name in names)]
    title = _title(samples, f"noise floor (A/A), {words.UNITS[value]}")
    return _table(title, columns, sections, notes, floor.to_dict("records"), samples, source)


def is_cell(frame: pd.DataFrame, fields: Mapping[str, Any]) -> pd.Series:
    """One boolean per row: does it have these values in these columns?"""
    return (frame[list(fields)] == list(fields.values())).all(axis=1)


def _noise_row(
    cell: Mapping[str, Any], windows: pd.DataFrame, found: Comparison, value: str
) -> tuple[str, ...]:
    pair = [windows[windows["variant"] == cell["variant"] + ending] for ending in AA_NAMES]
    known = found.bound == "exact" and not np.isnan(found.half_width)
    return (
        f"{cell['variant']}, GRO {cell['gro']}",
        *(words.figure(cell_interval(part, value), value) for part in pair),
        words.change(found),
        str(found.n),
        f"{found.half_width * 100:.1f}%" if known else "-",
        ("YES" if found.differs else "no") if known else "-",
    )


def windows_table(samples: pd.DataFrame, *, source: str = "measured") -> Table:
    """How many windows each cell has, how many count in its rate, and how many carry which flag."""
    sections, records = [], []
    for shape, windows in words.shapes(samples):
        rows = []
        for (variant, gro), cell in windows.groupby(["variant", "gro"]):
            flagged = {flag: int(has_flag(cell, flag).sum()) for flag in EXCLUDING_FLAGS}
            counts = {"windows": len(cell), "counted": len(counted(cell)), **flagged}
            records.append(shape | {"variant": variant, "gro": gro} | counts)
            rows.append((f"{variant}, GRO {gro}", *map(str, counts.values())))
        sections.append(Section(words.traffic(shape), tuple(rows)))
    columns = [("", name) for name in ("cell", "windows", "counted", *EXCLUDING_FLAGS)]
    title = _title(samples, "windows by cell and flag")
    return _table(title, columns, sections, words.notes(samples, "mpps", []), records, samples, source)


def _title(samples: pd.DataFrame, what: str) -> str:
    protocols = "/".join(name.upper() for name in sorted(samples["protocol"].unique()))
    return f"{protocols} {what}".strip()


def _table(
    title: str,
    columns: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    notes: Sequence[str],
    records: Sequence[Mapping[str, Any]],
    samples: pd.DataFrame,
    source: str,
) -> Table:
    frame = pd.DataFrame(records)
    return Table(title, tuple(columns), tuple(sections), tuple(notes), frame, words.dated(source, samples))


def _effect_record(effect: GroEffect, value: str) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for gro, found, segs in (("off", effect.off, effect.off_segs), ("on", effect.on, effect.on_segs)):
        found = found or Interval(np.nan, np.nan, np.nan, 0)
        record |= {
            f"{gro}_{value}": found.centre,
            f"{gro}_{value}_low": found.low,
            f"{gro}_{value}_high": found.high,
            f"{gro}_windows": found.n,
            f"{gro}_is_lower_bound": found.bound,
            f"{gro}_segs_per_skb": segs,
        }
    return record | _change_record("on_vs_off", effect.change)


def _change_record(name: str, found: Comparison) -> dict[str, Any]:
    limits = {"": found.ratio, "_low": found.low, "_high": found.high}
    record: dict[str, Any] = {f"{name}_percent{end}": (limit - 1) * 100 for end, limit in limits.items()}
    return record | {f"{name}_pairs": found.n, f"{name}_bound": found.bound, f"{name}_differs": found.differs}
