# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A window's row and flags from SIMULATED counter changes, and the order in which cells are measured."""

from collections import Counter

import pytest

import simulated_runs
from rxbook import measure, runs
from rxbook.plan import make_plan

PLAN = make_plan({"frame_sizes": "64,512", "blocks": 20, "window_s": 0.2})
CELLS = PLAN.cells("simulated")

# 0.2 s in which a busy receiver took 300,000 of 500,000 frames, in 15,000 skbs
SIMULATED = {
    "clock_ns": 200_000_000,
    "frames": 300_000,
    "skbs": 15_000,
    "cpu_ns": 198_000_000,
    "cycles": None,
    "run_delay_ns": 1_000_000,
    "offered_frames": 500_000,
    "pressure_us": 4_000,
    "steal_s": 0.01,
}


def row(cell=CELLS[0], plan=PLAN, **changes):
    return measure.window_row(cell, SIMULATED | changes, plan)


def test_cycles_are_told_where_the_machine_counts_them():
    assert row(cycles=480_000_000)["cycles_per_packet"] == pytest.approx(1600)


def test_a_row_has_every_column_and_the_figures_of_the_window():
    found = row()
    assert {"block", "order", *found} == set(runs.COLUMNS) - {"boot", "instructions_per_packet"}  # of guests
    assert found["mpps"] == pytest.approx(1.5)
    assert found["segs_per_skb"] == pytest.approx(20)
    assert found["ns_per_packet"] == pytest.approx(660)
    assert found["cycles_per_packet"] is None
    assert found["offered_mpps"] == pytest.approx(2.5)
    assert found["dropped_frames"] == 200_000
    assert found["receiver_busy"] == pytest.approx(0.99)
    assert found["receiver_idle"] == pytest.approx(0.005)
    assert found["cpu_pressure"] == pytest.approx(0.02)
    assert found["steal"] == pytest.approx(0.05)
    assert (found["payload_bytes"], found["window_s"], found["flags"]) == (18, 0.2, "")
    assert {name: found[name] for name in CELLS[0].model_dump()} == CELLS[0].model_dump()


def test_frames_left_in_a_queue_make_no_negative_drop():
    assert row(offered_frames=299_990)["dropped_frames"] == 0


def test_a_clock_that_ran_differently_makes_no_negative_idleness():
    assert row(cpu_ns=199_900_000, run_delay_ns=200_000)["receiver_idle"] == 0.0


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"cpu_ns": 190_000_000}, "sender_limited"),
        ({"cpu_ns": 190_000_000, "run_delay_ns": 9_000_000}, ""),  # it waited for its CPU, not for frames
        ({"pressure_us": 50_000}, "pressure"),
        ({"pressure_us": 39_000}, ""),
        ({"pressure_us": None}, ""),
        ({"frames": 999, "skbs": 999}, "short"),
        ({"frames": 0, "skbs": 0}, "short"),
        ({"clock_ns": 150_000_000, "cpu_ns": 149_000_000}, "short"),
        ({"cpu_ns": 100_000_000, "pressure_us": 100_000, "frames": 10}, "sender_limited;pressure;short"),
    ],
)
def test_flags_follow_from_the_window(changes, flags):
    assert row(**changes)["flags"] == flags


def test_the_pressure_limit_is_a_parameter():
    plan = make_plan({"pressure_limit": 0.01})
    assert row(plan=plan)["flags"] == "pressure"


def test_frames_without_payload_are_noted():
    (cell,) = make_plan({"gro": "on", "ip_version": 6, "frame_sizes": 66}).cells("simulated")
    found = row(cell)
    assert (found["payload_bytes"], found["flags"]) == (0, "empty_payload")


def test_what_cannot_be_divided_is_missing_not_infinite():
    found = row(frames=0, skbs=0)
    assert found["segs_per_skb"] is None and found["ns_per_packet"] is None and found["mpps"] == 0
    assert row(pressure_us=None)["cpu_pressure"] is None


# --- the order


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


@pytest.fixture
def folder(tmp_path):
    def create(seed, name="run"):
        made = runs.Folder.create(tmp_path / f"{name}{seed}", PLAN, seed, "gro_on_off")
        made.close()
        return made

    return create


def order(folder):
    return list(measure.schedule(folder, CELLS))


def test_every_block_has_every_cell_once(folder):
    found = order(folder(1))
    assert len(found) == 20 * len(CELLS)
    for block in range(20):
        part = [(place, cell) for number, place, cell in found if number == block]
        assert [place for place, _ in part] == list(range(len(CELLS)))
        assert Counter(cell for _, cell in part) == Counter(CELLS)


def test_the_order_is_random_within_blocks_and_repeats_with_the_seed(folder):
    one, same, other = order(folder(1)), order(folder(1, "again")), order(folder(2))
    assert one == same and one != other
    orders = {tuple(cell for number, _, cell in one if number == block) for block in range(20)}
    assert len(orders) > 8  # of 24 possible
    assert {cell for _, place, cell in one if place == 0} == set(CELLS)  # no cell always goes first


def test_a_later_block_does_not_depend_on_where_a_run_was_cut(folder):
    made = folder(1)
    planned = [(block, cell) for block, _, cell in order(made)]
    with open(made.path / "samples.csv", "a") as file:
        for place in range(len(CELLS)):
            file.write(simulated_line(0, place))
        file.write(simulated_line(1, 0))
    left = [(block, cell) for block, _, cell in order(made)]
    assert {block for block, _ in left} == set(range(2, 21))  # block 1 is kept as it is, 20 stands in for it
    assert [item for item in left if item[0] < 20] == [item for item in planned if item[0] >= 2]


def simulated_line(block, place):
    values = {"block": block, "order": place, **row(CELLS[place])}
    return ",".join("" if value is None else str(value) for value in values.values()) + "\n"
