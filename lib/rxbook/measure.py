# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a plan: blocks of cells in random order, a warm-up and a window each, flags on bad windows."""

from __future__ import annotations

import datetime
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from rxbook import RxbookError, frames, heads
from rxbook.plan import Cell, Plan
from rxbook.profile.record import profile_cells
from rxbook.runs import Folder, blocks_left
from rxbook.testbeds.hosts import Hosts
from rxbook.testbeds.pair import Pair
from rxbook.testbeds.veth import Veth

__all__ = ["IDLE_LIMIT", "MIN_FRAMES", "common_row", "measure", "window_row"]

IDLE_LIMIT = 0.02
"""A receiver that slept for lack of frames longer than this share of a window was limited by the sender."""

MIN_FRAMES = 1000
"""A window with fewer frames is too short to be a rate."""


def measure(
    folder: Folder,
    cells: list[Cell],
    report: Callable[[int, int, Cell], None] = lambda *_: None,
    report_profiles: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Measure all windows that the folder's plan still lacks, each written as it ends.

    `report` is called between windows with (windows done, windows to do in all, cell that ended), `report_profiles`
    then likewise with (recordings done, recordings in all). Returns facts of the run: wall_s from the first traffic of
    the windows to the last, windows_s inside windows.
    """
    plan = folder.plan
    todo = list(schedule(folder, cells))
    windows_s = 0.0
    with _testbed(plan, folder.path.name) as testbed:
        if plan.hosts:
            folder.measured_on(testbed.host)
        start = time.monotonic()
        for done, (block, order, cell) in enumerate(todo, 1):
            row = window_row(cell, testbed.measure(cell, plan.warmup_s, plan.window_s), plan)
            folder.append({"block": block, "order": order, **row})
            windows_s += row["window_s"]
            report(done, len(todo), cell)
        wall_s = time.monotonic() - start
        if plan.heads:
            _heads(folder, cells, testbed)
        if plan.profile:
            _profile(folder, cells, testbed, report_profiles)
    if plan.hosts:
        folder.add_to_host(testbed.host)  # again, as it has the devices' counters now
    folder.add_to_host({"offloads_before": testbed.offloads_before, "offloads_after": testbed.offloads_after})
    return {"wall_s": wall_s, "windows_s": windows_s, "windows": len(todo)}


def _testbed(plan: Plan, holder: str) -> Veth | Hosts:
    if plan.hosts:
        return Hosts(plan.hosts, plan.queue_size, holder, plan.generator)
    return Veth(plan.sender_cpu, plan.receiver_cpu, plan.queue_size, holder, plan.generator)


def _heads(folder: Folder, cells: list[Cell], testbed: Pair) -> None:
    """A run without them is still a run, as one without perf."""
    try:
        heads.measure(testbed, cells, folder.path / "heads.csv", folder.plan, folder.seed)
    except RxbookError as error:
        folder.log(f"no heads: {error}")
        print(f"no skb heads were counted: {error}", file=sys.stderr)


def _profile(folder: Folder, cells: list[Cell], testbed: Pair, report: Callable[[int, int], None]) -> None:
    """A run without perf is still a run: it says what is missing."""
    try:
        profile_cells(testbed, cells, folder.path / "profiles", folder.plan, folder.seed, report)
    except RxbookError as error:
        folder.log(f"no profile: {error}")
        print(f"no profile was recorded: {error}", file=sys.stderr)


def schedule(folder: Folder, cells: list[Cell]) -> Iterable[tuple[int, int, Cell]]:
    """(block, place in it, cell) still to be measured."""
    for block in blocks_left(folder.path, folder.plan, len(cells)):
        shuffled = list(cells)
        random.Random(f"{folder.seed}/{block}").shuffle(shuffled)
        for order, cell in enumerate(shuffled):
            yield block, order, cell


def window_row(cell: Cell, counted: dict[str, float | None], plan: Plan) -> dict[str, Any]:
    """A window's row of samples.csv, without block and order, from the changes of the counters in it."""
    window_ns, received = counted["clock_ns"], counted["frames"]
    window_s = window_ns / 1e9
    pressure, printed_pps = counted["pressure_us"], counted.get("sender_pps")
    row = {
        "mpps": received / window_s / 1e6,
        "ns_per_packet": counted["cpu_ns"] / received if received else None,
        "cycles_per_packet": counted["cycles"] / received if received and counted["cycles"] else None,
        "offered_mpps": counted["offered_frames"] / window_s / 1e6,
        "sender_mpps": printed_pps / 1e6 if printed_pps else None,
        "receiver_busy": counted["cpu_ns"] / window_ns,
        "receiver_idle": max(0.0, 1 - (counted["cpu_ns"] + counted["run_delay_ns"]) / window_ns),
        "cpu_pressure": None if pressure is None else pressure / 1e6 / window_s,
        "steal": counted["steal_s"] / window_s,
    }
    row = common_row(cell, counted) | _rounded(row)
    return row | {"flags": ";".join(_flags(row, plan))}


def common_row(cell: Cell, counted: dict[str, float | None]) -> dict[str, Any]:
    """What a row says whatever is counted: cell, length, frames and what became of them."""
    window_s, received = counted["clock_ns"] / 1e9, counted["frames"]
    return {
        "start_utc": _utc_before(window_s),
        **cell.model_dump(),
        "payload_bytes": frames.payload_bytes(cell.frame_spec),
        **_rounded(
            {"window_s": window_s, "segs_per_skb": received / counted["skbs"] if counted["skbs"] else None}
        ),
        "frames": received,
        "skbs": counted["skbs"],
        "offered_frames": counted["offered_frames"],
        # frames still in a queue at either end of the window can make this slightly negative
        "dropped_frames": max(0, counted["offered_frames"] - received),
    }


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


def _flags(row: dict[str, Any], plan: Plan) -> Iterable[str]:
    if row["receiver_idle"] > IDLE_LIMIT:
        yield "sender_limited"
    if (row["cpu_pressure"] or 0) > plan.pressure_limit:
        yield "pressure"
    if row["frames"] < MIN_FRAMES or row["window_s"] < 0.9 * plan.window_s:
        yield "short"
    if row["payload_bytes"] == 0:
        yield "empty_payload"


def _utc_before(seconds: float) -> str:
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    return start.isoformat(timespec="milliseconds")
