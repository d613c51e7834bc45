# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The threads' figures beside those of a run with the same traffic: side by side, never in one column.

What a figure means depends on kernel, machine and device, so what can be compared is a ratio: GRO on against off,
or the share of a function. What differs between the two sides is said below each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from rxbook import function_cycles, published, words
from rxbook.claim_rules import limits
from rxbook.plan import SHAPES, Cell
from rxbook.profile import record
from rxbook.profile.families import FAMILIES
from rxbook.profile.function_words import figure
from rxbook.profile.functions import Column, function_table
from rxbook.profile.record import Recording
from rxbook.rounding import Range, printed
from rxbook.runs import Run
from rxbook.statistics import Interval
from rxbook.tables import Section, Table, gro_effect, is_cell

__all__ = ["makers", "published_beside"]

PUBLISHED, OURS = "PUBLISHED", "this run"

TRAFFIC = {
    "receiver": "cpumap", "protocol": "udp", "encap": "none", "frame_size": 64, "udp_csum": "computed", "flows": 1,
    "rx_udp_gro_forwarding": "on", "rx_gro_list": "off",
}  # fmt: skip
"""The traffic of the cpumap thread, as far as it says."""

Recorded = dict[str, list[tuple[Cell, list[Recording]]]]


def published_beside(run: Run) -> Table | None:
    """The thread's figures beside the run's; None where the run has no cells with a thread's traffic."""
    make = makers(run).get("published")
    return make() if make else None


def makers(run: Run) -> dict[str, Callable[[], Table]]:
    """What makes the table, by the name of its file: of rates, else of functions; nothing where none applies."""
    windows = run.samples[is_cell(run.samples, TRAFFIC)] if len(run.samples) else run.samples
    if set(windows["gro"]) == {"off", "on"}:
        return {"published": partial(_rates, run, windows)}
    shapes = _shapes(run)
    return {"published": partial(_functions, run, shapes)} if shapes else {}


# --- rates: the cpumap thread


def _rates(run: Run, windows: pd.DataFrame) -> Table:
    figures = published.load("cpumap_gro")
    figures = figures[figures["message"] == figures["message"].iloc[0]]
    rows = figures[figures["unit"] == "Mpps"].pivot(index="row", columns="column", values="value")
    rows = rows.loc[figures["row"][figures["unit"] == "Mpps"].unique()]
    like = _like(run.host)
    variants = words.variant_order(windows)
    records, shown = [], []
    for name, (off, on) in zip(rows.index, rows[["GRO off", "GRO on"]].to_numpy(), strict=True):
        ours = variants[0] if name == like else None
        shown.append((name, *_printed_ratio(off, on), *_measured_ratio(windows, ours, like)))
        records.append(_rate_record(name, off, on, windows, ours))
    for variant in variants[1:] if like in rows.index else variants:
        shown.append((variant, "", "", "", "", *_measured_ratio(windows, variant, like)))
        records.append(_rate_record("", "", "", windows, variant))
    columns = [("", "kernel"), *((PUBLISHED, name) for name in ("off", "on", "on/off", "allowed"))]
    columns += [(OURS, name) for name in ("off", "on", "on/off")]
    alike = (
        f"its kernel stands in the row of {like}: {_facts(like)}"
        if like
        else "what its kernel has is not known"
    )
    notes = [
        f"{PUBLISHED}: {_where(figures)}, measured by its author, not by rxbook: a NIC, xdp-trafficgen's small "
        "frames, kernels of that time.",
        f"{OURS}: {' and '.join(variants)}; {alike}.",
        *_differs(run),
        "Compare on/off, not Mpps. allowed: what the printed figures may have been before rounding; "
        "+/-: 95 % interval of this run.",
        words.left_out(windows, "mpps"),
    ]
    sections = (Section(words.traffic(windows.iloc[0]), tuple(shown)),)
    title = "UDP GRO, Mpps: the thread and this run"
    return Table(
        title, tuple(columns), sections, tuple(filter(None, notes)), pd.DataFrame(records), _source(run)
    )


def _like(host: Mapping[str, Any]) -> str | None:
    """The published row whose kernel has what the run's has: GRO in cpumap, and skbs in bulk from the NAPI cache."""
    gro = (host.get("btf") or {}).get("cpumap_gro")
    bulk = (host.get("symbols") or {}).get("napi_skb_cache_get_bulk")
    if gro is False:
        return "baseline"
    return None if gro is None or bulk is None else "patch 8" if bulk else "patch 3"


def _facts(like: str) -> str:
    said = {
        "baseline": "no GRO in cpumap",
        "patch 3": "GRO in cpumap",
        "patch 8": "GRO in cpumap, skbs in bulk",
    }
    return said[like]


def _ratio(off: str, on: str) -> Range | None:
    return (printed(on) / printed(off) - 1) * 100 if off[:1].isdigit() and on[:1].isdigit() else None


def _printed_ratio(off: str, on: str) -> tuple[str, ...]:
    ratio = _ratio(off, on)
    return (off, on, f"{float(ratio.point):+.0f}%", limits(ratio, 0, True)) if ratio else (off, on, "N/A", "")


def _measured_ratio(windows: pd.DataFrame, variant: str | None, like: str | None) -> tuple[str, ...]:
    if variant is None:
        return ("", "", "")
    effect = gro_effect(windows[windows["variant"] == variant])
    off, on = (words.figure(found, "mpps").split(" ")[0] for found in (effect.off, effect.on))
    return (off, "N/A", "N/A") if like == "baseline" else (off, on, words.change(effect.change))


def _rate_record(
    name: str, off: str, on: str, windows: pd.DataFrame, variant: str | None
) -> dict[str, str | float]:
    ratio = _ratio(off, on)
    record: dict[str, str | float] = {
        "published_row": name,
        "published_off_mpps": off,
        "published_on_mpps": on,
    }
    for end, limit in (("", "point"), ("_low", "low"), ("_high", "high")):
        record[f"published_on_vs_off_percent{end}"] = float(getattr(ratio, limit)) if ratio else np.nan
    change = gro_effect(windows[windows["variant"] == variant]).change if variant else None
    record["measured_variant"] = variant or ""
    for end, limit in (("", "ratio"), ("_low", "low"), ("_high", "high")):
        record[f"measured_on_vs_off_percent{end}"] = (getattr(change, limit) - 1) * 100 if change else np.nan
    return record


# --- functions: the flush-check thread


def _shapes(run: Run) -> Recorded:
    """The profiled cells with GRO on that have a shape of the thread, by its name there."""
    named = set(published.load("gro_flush_checks")["table"])
    found: Recorded = {}
    for cell, recordings in record.recorded(run.path / "profiles").items():
        shape = {name: getattr(cell, name) for name in ("encap", "protocol", "rx_gro_list")}
        name = words.short_traffic(cell.model_dump())
        if cell.gro == "on" and name in named and shape in SHAPES.values():
            found.setdefault(name, []).append((cell, recordings))
    return found


def _functions(run: Run, shapes: Recorded) -> Table:
    figures = published.load("gro_flush_checks")
    sides = list(figures["column"].unique())
    sections, records = [], []
    for name, of_shape in figures.groupby("table", sort=False):
        for cell, recordings in shapes.get(name, []):
            rows = of_shape.pivot(index="row", columns="column", values="value").loc[
                of_shape["row"].unique(), sides
            ]
            ours = _shares(run, recordings, list(rows.index))
            found = list(_function_rows(rows, ours))
            heading = f"{name}: {words.traffic(cell.model_dump())}" + f", {cell.variant}" * (
                len(shapes[name]) > 1
            )
            sections.append(Section(heading, tuple(row for row, _ in found)))
            records += [{"table": name, "variant": cell.variant} | one for _, one in found]
    columns = [("", "function"), *((PUBLISHED, side) for side in sides), (OURS, "GRO on")]
    notes = [
        f"{PUBLISHED}: {_where(figures)}, measured by its author with perf top, not by rxbook: shares of the "
        "whole CPU, a replay through a NIC, frames of a size that it does not say, kernels of that time.",
        f"{OURS}: shares of the receiving thread's samples alone; +/-: 95 % interval.",
        "both: their sum, as the flush check moved from one into the other.",
        *_differs(run),
    ]
    frame = pd.DataFrame(records)
    title = "functions, % of CPU: the thread and this run"
    return Table(title, tuple(columns), tuple(sections), tuple(notes), frame, _source(run))


def _shares(run: Run, recordings: Sequence[Recording], functions: Sequence[str]) -> dict[str, Interval]:
    """Share in percent of each function, and of all together as "both"."""
    profiles, _ = function_cycles.thread_profiles(recordings, run.plan.call_graph)
    families = {**dict.fromkeys(FAMILIES, ()), "both": functions}
    frame = function_table({OURS: Column(profiles)}, only=functions, families=families).frame
    names = ("share_percent", "share_percent_low", "share_percent_high")
    return {row["function"]: Interval(*(row[name] for name in names), 0) for row in frame.to_dict("records")}


def _function_rows(
    rows: pd.DataFrame, ours: Mapping[str, Interval]
) -> Iterator[tuple[tuple[str, ...], dict[str, str | float]]]:
    """Each row as it is shown, and as a record."""
    sums = {side: sum(float(value) for value in rows[side]) for side in rows.columns}
    printed_rows = {name: list(rows.loc[name]) for name in rows.index}
    if len(rows) > 1:
        printed_rows["both"] = [f"{sums[side]:.2f}" for side in rows.columns]
    for name, values in printed_rows.items():
        share = ours[name]
        record: dict[str, str | float] = {"function": name}
        for side, value in zip(rows.columns, values, strict=True):
            record[f"published_{side.replace(' ', '_')}_percent"] = float(value)
        record |= {"measured_percent": share.centre, "measured_percent_low": share.low}
        yield (name, *values, figure(share, 2)), record | {"measured_percent_high": share.high}


# --- both


def _where(figures: pd.DataFrame) -> str:
    first = figures.iloc[0]
    return f"{first['list']} {first['date']}, {first['message']}"


def _differs(run: Run) -> list[str]:
    where = "a virtual machine" if run.host.get("virtualised") else "this machine"
    return [f"What differs: kernel and CPU; {where}; veth instead of a NIC; the traffic's generator."]


def _source(run: Run) -> str:
    return words.dated(run.source, run.samples)
