# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The table of instructions per packet across kernels: exact counts from guests, no rates.

Here +/- is no confidence interval: counts of one kernel differ between boots by what the boots show, and that is
printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rxbook import words
from rxbook.statistics import Interval, cell_interval, has_flag
from rxbook.tables import GRO, Section, Table

__all__ = ["Count", "counts", "gro_table", "interval_of", "worst_spread"]

VALUE = "instructions_per_packet"

LEAST = 0.05
"""Half of the last digit that is printed."""


@dataclass(frozen=True)
class Count:
    """Instructions per packet of one cell: mean of its boots, half of their range; NaN where no row is valid.

    void: rows with drops, which count in nothing. segs: segs_per_skb. drops: frames, of all rows.
    """

    mean: float
    half_range: float
    boots: int
    void: int
    drops: int
    segs: float


def counts(windows: pd.DataFrame) -> Count:
    """The figure of one cell from its rows."""
    void = has_flag(windows, "drops")
    valid = windows[~void]
    values, skbs = valid[VALUE].to_numpy(float), windows["skbs"].sum()
    return Count(
        mean=float(values.mean()) if len(values) else np.nan,
        half_range=float(np.ptp(values)) / 2 if len(values) else np.nan,
        boots=len(values),
        void=int(void.sum()),
        drops=int(windows["dropped_frames"].sum()),
        segs=float(windows["frames"].sum() / skbs) if skbs else np.nan,
    )


def interval_of(windows: pd.DataFrame, value: str) -> Interval:
    """The figure of one cell: as `statistics.cell_interval`; of instructions its limits are what the boots showed."""
    if value != VALUE:
        return cell_interval(windows, value)
    found = counts(windows)
    return Interval(found.mean, found.mean - found.half_range, found.mean + found.half_range, found.boots)


def worst_spread(found: Sequence[Count]) -> float:
    """The largest difference between two boots of one cell, as a share; NaN where nothing was booted twice."""
    spreads = [2 * count.half_range / count.mean for count in found if count.boots > 1]
    return max(spreads, default=np.nan)


def gro_table(
    samples: pd.DataFrame, *, source: str, guests: Mapping[str, Any], order: Sequence[str]
) -> Table:
    """GRO off and on by kernel; then each later kernel against the first, and against the one before it.

    guests: of host.json. order: the kernels' labels. There is one section for each traffic shape.
    """
    sections, records, every = [], [], []
    for shape, windows in words.shapes(samples):
        found = {
            (variant, gro): counts(windows[(windows["variant"] == variant) & (windows["gro"] == gro)])
            for variant in order
            for gro in GRO
        }
        every += found.values()
        rows = [_row(variant, found, _has_gro(guests, variant, shape)) for variant in order]
        differences = [_difference(one, other, found) for one, other in _pairs(order)]
        sections.append(Section(words.traffic(shape), (*rows, *[()] * bool(differences), *differences)))
        records += [shape | {"variant": variant} | _record(variant, found) for variant in order]
    columns = [
        ("", "variant"),
        *((f"GRO {gro}", name) for gro in GRO for name in ("instr.", "segs")),
    ]
    title = f"{'/'.join(sorted(name.upper() for name in samples['protocol'].unique()))} GRO, instructions per packet"
    notes = tuple(_notes(samples, every, guests, order))
    columns += [("", "on/off"), ("", "drops")]
    source = words.dated(source, samples)
    return Table(title, tuple(columns), tuple(sections), notes, pd.DataFrame(records), source)


def _pairs(order: Sequence[str]) -> list[tuple[str, str]]:
    """(kernel, what it is compared with): the first, then the one before, as patch 8 with patch 3."""
    first = [(name, order[0]) for name in order[1:]]
    return first + [(name, before) for before, name in itertools.pairwise(order) if before != order[0]]


def _has_gro(guests: Mapping[str, Any], variant: str, shape: Mapping[str, Any]) -> bool:
    btf = guests["kernels"].get(variant, {}).get("btf") or {}
    return shape["receiver"] != "cpumap" or btf.get("cpumap_gro") is not False


def _row(variant: str, found: Mapping[tuple[str, str], Count], has_gro: bool) -> tuple[str, ...]:
    row = [variant]
    for gro in GRO:
        count = found[variant, gro]
        row += [_figure(count), "-" if np.isnan(count.segs) else f"{count.segs:.1f}"]
    change = _change(found[variant, "off"], found[variant, "on"]) if has_gro else "N/A"
    return (*row, change, str(sum(found[variant, gro].drops for gro in GRO)))


def _figure(count: Count) -> str:
    if count.boots:
        return f"{count.mean:.1f}" + _plus_minus(count.half_range)
    return "void" if count.void else "-"


def _plus_minus(half_range: float) -> str:
    """Nothing where it rounds to 0.0: that is the usual case, and a note says so."""
    return f" +/-{half_range:.1f}" if half_range >= LEAST else ""


def _difference(name: str, other: str, found: Mapping[tuple[str, str], Count]) -> tuple[str, ...]:
    off, on = (_change(found[other, gro], found[name, gro]) for gro in GRO)
    return (f"{name} / {other}", off, "", on, "", "", "")


def _ratio(base: Count, other: Count) -> tuple[float, float]:
    """(ratio, what the boots leave open of it, as a share)."""
    return other.mean / base.mean, base.half_range / base.mean + other.half_range / other.mean


def _change(base: Count, other: Count) -> str:
    ratio, unsure = _ratio(base, other)
    if np.isnan(ratio):
        return "-"
    percent, reach = (ratio - 1) * 100, ratio * unsure * 100
    known = min(base.boots, other.boots) > 1
    return ("~" if known and abs(percent) <= max(reach, LEAST) else f"{percent:+.1f}%") + _plus_minus(reach)


def _record(variant: str, found: Mapping[tuple[str, str], Count]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for gro in GRO:
        count = found[variant, gro]
        record |= {
            f"{gro}_{VALUE}": count.mean,
            f"{gro}_half_range": count.half_range,
            f"{gro}_boots": count.boots,
            f"{gro}_void_boots": count.void,
            f"{gro}_dropped_frames": count.drops,
            f"{gro}_segs_per_skb": count.segs,
        }
    return record | {"on_vs_off_percent": (_ratio(found[variant, "off"], found[variant, "on"])[0] - 1) * 100}


def _notes(
    samples: pd.DataFrame, every: Sequence[Count], guests: Mapping[str, Any], order: Sequence[str]
) -> Iterator[str]:
    yield ("Counted in emulated guests: instructions, no time. Cache misses and contention are not in them; never set "
           "them beside a rate.")  # fmt: skip
    yield from warnings(guests, order)
    void = sum(count.void for count in every)
    if void:
        yield f"WARNING: {void} rows are void: frames were dropped, and a dropped frame is cheap."
    spread = worst_spread(every)
    if np.isnan(spread):
        yield "No kernel was booted twice: nothing shows how well the figures repeat."
    else:
        yield "+/-: half of the range between boots, where it is not 0.0. ~: no difference shown."
        yield f"Two boots of one kernel differ by {spread * 100:.2f} % at most."
    without = [
        name
        for name in order
        if (guests["kernels"].get(name, {}).get("btf") or {}).get("cpumap_gro") is False
    ]
    if without and "cpumap" in set(samples["receiver"]):
        yield f"N/A: cpumap has no GRO in {', '.join(without)} (from BTF); its figures with GRO on show just that."
    yield from (words.RECEIVERS[name] for name in sorted(samples["receiver"].unique()))
    yield from words.fates(samples)
    yield "segs: frames per skb; 1.0: GRO merged nothing. Frame sizes include the 4-byte FCS."
    yield (f"QEMU counts (icount), CPU {guests['cpu']}, 1 CPU, {guests['packets']} frames a window, sent by "
           f"{words.senders(samples)}, "
           f"{samples['boot'].nunique()} boots of each kernel.")  # fmt: skip
    yield from releases(guests, order)


def releases(guests: Mapping[str, Any], order: Sequence[str]) -> Iterator[str]:
    """Which kernel is behind each label."""
    named = [
        f"{name}: {guests['kernels'][name]['kernel_release']}" for name in order if name in guests["kernels"]
    ]
    yield f"Kernels: {', '.join(named)}."


def warnings(guests: Mapping[str, Any], order: Sequence[str]) -> Iterator[str]:
    """What went wrong with the guests, and what sets them apart beside the kernel's version."""
    for name in order:
        trouble = guests["kernels"].get(name, {}).get("trouble") or []
        if trouble:
            yield f"WARNING: {name}: {len(trouble)} boots failed: {trouble[0].strip().splitlines()[-1]}"
    differing = guests.get("differing_options")
    if len(order) > 1 and differing != 0:
        how = "are not all known" if differing is None else f"differ in {differing} options"
        yield f"WARNING: the kernels' configurations {how}: differences are of these, too."
