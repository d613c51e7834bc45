# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the heads of skbs come from: on the running kernel, and the table. Guests are in test_guests."""

from __future__ import annotations

import pytest

import live
from rxbook import heads, render, runs
from rxbook.kernel.skb_heads import COUNTERS
from rxbook.plan import make_plan


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """heads.csv of the running kernel: 16 flows in long bursts, GRO off and on."""
    plan = make_plan({"flows": 16, "burst": 64, "window_s": 0.05, "heads": True})
    path = tmp_path_factory.mktemp("heads") / "heads.csv"
    with live.open_testbed() as testbed:
        heads.measure(testbed, plan.cells("this kernel"), path, plan, seed=1)
        heads.measure(testbed, plan.cells("this kernel"), path, plan, seed=1)  # nothing is left to do
        after = testbed.measure(plan.cells("this kernel")[0], 0.0, 0.05)
    return heads.load(path), after


@pytest.mark.needs_root
def test_gro_keeps_heads_from_going_back_to_the_slab(counted):
    windows, _ = counted
    assert windows.groupby("gro").size().to_dict() == {"off": heads.WINDOWS, "on": heads.WINDOWS}
    frames, freed = (windows.groupby("gro")[name].sum() for name in ("frames", "heads_to_slab"))
    assert freed["off"] / frames["off"] == pytest.approx(1, abs=0.05)
    assert freed["on"] / frames["on"] < 0.3
    (row,) = heads.table(windows, source="measured", order=["this kernel"]).sections[0].rows
    assert row[0] == "this kernel" and len(row) in (3, 7)


@pytest.mark.needs_root
def test_a_window_whose_rate_counts_has_no_counting_of_heads(counted):
    assert not set(COUNTERS) & set(counted[1])


def rows(variants=("this",), bursts=(1, 64), freed=None, **more):
    """heads.csv as a run leaves it: each cell once, with 100 frames."""
    made = []
    for variant in variants:
        plan = make_plan({"flows": 64, "burst": list(bursts)})
        for cell in plan.cells(variant):
            back = 100 if cell.gro == "off" else 100 // cell.burst
            numbers = dict.fromkeys(COUNTERS) | {"heads_to_slab": back} | more
            window = {"clock_ns": 10**8, "frames": 100, "skbs": back, "offered_frames": 100} | numbers
            made += [heads.row(repeat, cell, window) for repeat in (1, 2)]
    return made


def load(tmp_path, made):
    heads.append(tmp_path / "heads.csv", made)
    return heads.load(tmp_path / "heads.csv")


def test_bursts_of_one_kernel_are_rows_and_what_is_not_seen_has_no_column(tmp_path):
    table = heads.table(load(tmp_path, rows()), source="measured", order=["this"])
    assert [name for _, name in table.columns] == ["bursts", "freed", "freed"]
    assert table.sections[0].rows == (("burst 1", "1.000", "1.000"), ("burst 64", "1.000", "0.010"))
    assert "no function be traced" in " ".join(table.notes)


def test_kernels_stand_below_each_other_with_slab_and_cache(tmp_path):
    made = rows(["base", "bulk"], [64], heads_from_slab=100, heads_from_cache=50)
    made[0] |= {"heads_to_slab": 90}
    table = heads.table(load(tmp_path, made), source="measured", order=["base", "bulk"])
    first, second = table.sections[0].rows
    assert first == ("base", "1.000", "0.500", "0.950 +/-0.050", "1.000", "0.500", "0.010")
    assert second[0] == "bulk" and "traced" not in " ".join(table.notes)
    assert max(map(len, render.text(table).splitlines())) <= 72
    assert table.frame["on_heads_to_slab_per_frame"].tolist() == [0.01, 0.01]


def test_the_recorded_sample_shows_what_gro_keeps():
    run = runs.recorded("bulk_cache")
    windows = heads.load(run.path / "heads.csv")
    freed = windows[windows["burst"] == windows["burst"].max()].groupby("gro")["heads_to_slab"].sum()
    assert freed["on"] < freed["off"]
