# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the heads of skbs come from: counted in windows of their own, and the table per frame.

A head is struct sk_buff itself, from the slab cache skbuff_head_cache. With GRO the heads of merged skbs go into NAPI's
cache of the CPU, from where the next batch takes them; a head of an skb that the stack drops goes back to the slab.
Heads are neither made nor lost on the way, so over a window what the slab gives is what it gets back, but for the few
that are on their way (a queue of cpumap holds 2048). So heads that go back to the slab tell what is wanted also on a
kernel that shows nothing else, but for those that an overfull cache gives back in bulk.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rxbook import words
from rxbook.kernel.skb_heads import COUNTERS
from rxbook.plan import Cell, Plan
from rxbook.tables import GRO, Section, Table
from rxbook.testbeds.pair import Pair

__all__ = ["WINDOWS", "append", "load", "measure", "row", "table"]

WINDOWS = 5
"""Of each cell. They count what each frame does, and differ little."""

COLUMNS = ["repeat", *Cell.model_fields, "window_s", "frames", "skbs", "dropped_frames", *COUNTERS]
"""Columns of heads.csv; heads are whole numbers in the window, empty where the kernel does not show them."""

NAMES = {"heads_from_slab": "slab", "heads_from_cache": "cache", "heads_to_slab": "freed"}

EPOCH = "1970-01-01T00:00:00+00:00"
"""For all rows: these windows have no order in time that matters."""

LEAST = 0.0005
"""Half of the last digit that is printed."""


def measure(testbed: Pair, cells: Sequence[Cell], path: Path, plan: Plan, seed: int) -> None:
    """Count WINDOWS windows of each cell that the file still lacks, in blocks of random order.

    Raises RxbookError where the kernel lets nothing of it be seen.
    """
    known = load(path)
    done = int(known["repeat"].max()) if len(known) else 0
    for repeat in range(done + 1, WINDOWS + 1):
        shuffled = list(cells)
        random.Random(f"{seed}/heads {repeat}").shuffle(shuffled)
        rows = []
        for cell in shuffled:
            testbed.prepare(cell)
            testbed.receiver.call("count_heads", counting=True)
            try:
                rows.append(row(repeat, cell, testbed.measure(cell, plan.warmup_s, plan.window_s)))
            finally:
                testbed.receiver.call("count_heads", counting=False)
        append(path, rows)


def row(repeat: int, cell: Cell, counted: Mapping[str, float | None]) -> dict[str, Any]:
    """A row of heads.csv, from the changes of the counters in its window."""
    return {
        "repeat": repeat,
        **cell.model_dump(),
        "window_s": round(counted["clock_ns"] / 1e9, 6),
        "frames": counted["frames"],
        "skbs": counted["skbs"],
        "dropped_frames": max(0, counted["offered_frames"] - counted["frames"]),
        **{name: counted[name] for name in COUNTERS},
    }


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to heads.csv."""
    new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def load(path: Path) -> pd.DataFrame:
    """One row per window, with COLUMNS; none where the run counted no heads."""
    return pd.read_csv(path, keep_default_na=True) if path.exists() else pd.DataFrame(columns=COLUMNS)


def table(counted: pd.DataFrame, *, source: str, order: Sequence[str]) -> Table:
    """Heads per frame with GRO off and on, by variant; by burst where one kernel got several and nothing else differs.

    order: the variants. Figures are of all windows together; half of the range between windows where it is not 0.000.
    """
    seen = [name for name in COUNTERS if counted[name].notna().any()]
    by_burst = len(order) == 1 and words.varying(counted) == {"burst"}
    sections: list[Section] = []
    records, rows = [], []
    for shape, windows in words.shapes(counted.assign(run=0, start_utc=EPOCH)):
        for variant in order:
            of_variant = windows[windows["variant"] == variant]
            record = shape | {"variant": variant} | _record(of_variant)
            records.append(record)
            label = f"burst {shape['burst']}" if by_burst else variant
            rows.append((label, *(_figure(record, gro, name) for gro in GRO for name in seen)))
        if not by_burst:
            sections.append(Section(words.traffic(shape), tuple(rows)))
            rows = []
    if rows:
        fields = [name for name in words.SHAPE if name not in ("flows", "burst")]
        flows = f"{records[0]['flows']} flows"
        sections.append(Section(f"{words.traffic(records[0], fields)}, {flows}", tuple(rows)))
    first = "bursts" if by_burst else "variant"
    columns = [("", first), *((f"GRO {gro}", NAMES[name]) for gro in GRO for name in seen)]
    title = "skb heads per frame"
    return Table(
        title, tuple(columns), tuple(sections), tuple(_notes(counted)), pd.DataFrame(records), source
    )


def _record(windows: pd.DataFrame) -> dict[str, float]:
    record: dict[str, float] = {}
    for gro in GRO:
        of_gro = windows[windows["gro"] == gro]
        frames = of_gro["frames"].to_numpy(float)
        for name in COUNTERS:
            heads = of_gro[name].to_numpy(float)
            known = len(heads) and not np.isnan(heads).any() and frames.sum() > 0
            record[f"{gro}_{name}_per_frame"] = heads.sum() / frames.sum() if known else np.nan
            record[f"{gro}_{name}_half_range"] = float(np.ptp(heads / frames)) / 2 if known else np.nan
        record[f"{gro}_windows"] = len(of_gro)
    return record


def _figure(record: Mapping[str, Any], gro: str, name: str) -> str:
    value, half_range = record[f"{gro}_{name}_per_frame"], record[f"{gro}_{name}_half_range"]
    if np.isnan(value):
        return "-"
    return f"{value:.3f}" + (f" +/-{half_range:.3f}" if half_range >= LEAST else "")


def _notes(counted: pd.DataFrame) -> Iterator[str]:
    if counted["heads_from_slab"].notna().any():
        yield (
            "slab: heads that it gave, alone or in bulk. cache: heads taken from NAPI's cache, which the slab refills."
        )
    yield "freed: heads that went back to the slab. In a steady state it gives as many as it gets back."
    if counted["heads_from_slab"].isna().any():
        yield (
            "This kernel lets no function be traced (fentry): what the slab gives in bulk, NAPI's cache, and what an "
            "overfull cache gives back in bulk are not seen. freed is by the tracepoint kmem_cache_free."
        )
    yield "+/-: half of the range between windows, where it is not 0.000. Windows of their own: counting takes time."
