# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tables say of simulated samples, above all that they say nothing that was not measured."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from rxbook import words
from rxbook.statistics import Comparison, Interval, compare
from rxbook.tables import gro_effect, gro_table, noise_table, size_csum_table, windows_table
from synthetic import cells, flag, simulate


@pytest.fixture(scope="module")
def sweep():
    return simulate(cells(gro=["off", "on"], frame_size=[64, 512], udp_csum=["computed", "zero"]))


@pytest.fixture(scope="module")
def patches():
    """As in the thread: the baseline has no GRO in cpumap."""
    chosen = [
        cell
        for cell in cells(variant=["baseline", "patch 3", "patch 8"], gro=["off", "on"])
        if (cell["variant"], cell["gro"]) != ("baseline", "on")
    ]
    return simulate(chosen, factors={"patch 3": 0.85, "patch 8": 0.95})


def rows(table, section=0):
    return {row[0]: row[1:] for row in table.sections[section].rows if row}


def said(table):
    return " ".join(table.notes)


def test_gro_table_has_a_section_for_each_shape(sweep):
    table = gro_table(sweep)
    assert [section.heading for section in table.sections] == [
        "64-byte frames, UDP checksum computed, 1 flow, IPv4, cpumap",
        "64-byte frames, UDP checksum zero, 1 flow, IPv4, cpumap",
        "512-byte frames, UDP checksum computed, 1 flow, IPv4, cpumap",
        "512-byte frames, UDP checksum zero, 1 flow, IPv4, cpumap",
    ]
    off, off_n, off_segs, on, on_n, on_segs, effect = rows(table)["simulated"]
    assert off.startswith("0.3") and on.startswith("1.")
    assert (off_n, off_segs, on_n, on_segs) == ("40", "1.0", "40", "20.6")
    assert effect.startswith("+") and "% +/-" in effect
    assert (table.title, table.source) == ("UDP GRO, Mpps", "measured 2026-12-01")
    assert "320 windows of 0.2 s in 40 blocks" in said(table)


def test_the_frame_holds_what_is_printed_unrounded(sweep):
    record = gro_table(sweep).frame.iloc[0]
    windows = sweep[(sweep["frame_size"] == 64) & (sweep["udp_csum"] == "computed")]
    effect = gro_effect(windows)
    assert record["on_mpps"] == effect.on.centre
    assert record["on_vs_off_percent"] == (effect.change.ratio - 1) * 100
    assert (record["frame_size"], record["off_windows"], record["on_vs_off_bound"]) == (64, 40, "exact")


def test_later_variants_are_compared_with_the_first(patches):
    table = gro_table(patches, not_applicable={("baseline", "on")})
    found = rows(table)
    assert list(found) == [
        "baseline",
        "patch 3",
        "patch 8",
        "patch 3 diff",
        "patch 8 diff",
        "patch 8 / patch 3",
    ]
    assert found["baseline"][3:] == ("N/A", "", "", "N/A")
    against = compare(patches, {"variant": "baseline", "gro": "off"}, {"variant": "patch 8", "gro": "on"})
    assert found["patch 8 diff"][3] == words.change(against)
    assert found["patch 3 diff"][0].startswith("-")
    last = compare(patches, {"variant": "patch 3", "gro": "on"}, {"variant": "patch 8", "gro": "on"})
    assert found["patch 8 / patch 3"][3] == words.change(last)
    assert "diff: against baseline with GRO off, in both columns." in table.notes
    assert () in table.sections[0].rows


def test_variants_stand_in_the_order_that_is_asked_for(patches):
    table = gro_table(patches, variants=["patch 8", "patch 3"])
    assert list(rows(table)) == ["patch 8", "patch 3", "patch 3 diff"]
    assert "diff: against patch 8 in the same column." in table.notes


def test_variants_of_several_runs_stand_in_the_order_of_the_runs():
    first = simulate(cells(variant=["v2"]), blocks=5)
    second = simulate(cells(variant=["v1"]), blocks=5, start="2026-12-01T11:00:00Z")
    table = gro_table(pd.concat([first, second]))
    assert list(rows(table)) == ["v2", "v1", "v1 diff"]
    assert "between runs, not within blocks" in said(table)


def test_a_cell_that_was_not_measured_prints_a_dash(sweep):
    table = gro_table(sweep[sweep["gro"] == "off"])
    assert rows(table)["simulated"][3:] == ("-", "-", "-", "-")
    assert math.isnan(table.frame["on_mpps"][0])


def test_a_sender_limited_cell_prints_a_bound_and_never_a_figure():
    run = simulate(cells(variant=["a", "b"], gro=["off", "on"]), factors={"b": 3.0})
    table = gro_table(run)
    found = rows(table)
    assert found["b"][3].startswith(">=2.") and "+/-" not in found["b"][3]
    assert float(found["b"][3][2:]) <= table.frame["on_mpps"][1]  # rounded down, or it would claim too much
    assert found["b"][6].startswith(">=+") and found["b diff"][3].startswith(">=+")
    assert "the sender was the limit" in said(table)
    assert table.frame["on_is_lower_bound"].tolist() == [False, True]
    assert table.frame["on_vs_off_bound"].tolist() == ["exact", "at_least"]


def test_a_baseline_that_the_sender_limits_bounds_from_above(sweep):
    shape = sweep[(sweep["frame_size"] == 64) & (sweep["udp_csum"] == "zero")]
    limited = flag(shape, shape["gro"] == "off", "sender_limited")
    assert rows(gro_table(limited))["simulated"][6].startswith("<=-")
    both = flag(limited, limited["gro"] == "on", "sender_limited")
    assert rows(gro_table(both))["simulated"][6] == "-"


def test_left_out_windows_are_told(sweep):
    spoilt = flag(flag(sweep, [3, 40], "pressure"), [40, 99], "short")
    assert "3 of 320 windows left out (2 pressure, 2 short)." in gro_table(spoilt).notes
    assert "left out" not in said(gro_table(sweep))


def test_an_empty_payload_is_told(sweep):
    noted = flag(sweep, sweep["frame_size"] == 64, "empty_payload")
    assert "empty UDP payload: GRO never merges" in said(gro_table(noted))


def test_few_blocks_are_warned_of(sweep):
    table = gro_table(sweep[sweep["block"] < 4])
    assert table.notes[0].startswith("WARNING: fewer than 5")
    assert "WARNING" not in said(gro_table(sweep[sweep["block"] < 5]))


def test_one_block_prints_figures_without_an_interval(sweep):
    table = gro_table(sweep[sweep["block"] == 0])
    assert all(cell.endswith("+/-?") for cell in np.array(rows(table)["simulated"])[[0, 3, 6]])


def test_nothing_measured_makes_empty_tables(sweep):
    for make in (gro_table, size_csum_table, windows_table):
        table = make(sweep.iloc[:0])
        assert table.sections == () and "No window was measured." in table.notes
    for table in (gro_table(flag(sweep, sweep.index, "short")),):
        assert rows(table)["simulated"] == ("-", "0", "-", "-", "0", "-", "-")
        assert table.notes[0].startswith("WARNING")


def test_cost_per_packet_has_its_unit(sweep):
    table = gro_table(sweep, "ns_per_packet")
    assert (table.title, table.columns[1]) == ("UDP GRO, ns per packet", ("GRO off", "ns"))
    assert rows(table)["simulated"][0].startswith("2")
    assert "off_ns_per_packet" in table.frame


def test_size_csum_table(sweep):
    table = size_csum_table(sweep)
    assert [group for group, _ in table.columns[1:]] == ["checksum computed"] * 4 + ["checksum zero"] * 4
    found = rows(table)
    assert list(found) == ["64", "512"]
    assert found["64"][3] == "20.6" and found["64"][7] == "1.0"
    assert table.sections[0].heading == "simulated: UDP, 1 flow, IPv4, cpumap"
    assert len(table.frame) == 4 and "n: 40 windows count in each cell." in table.notes


def test_size_csum_table_with_a_hole(sweep):
    holed = sweep[~((sweep["frame_size"] == 512) & (sweep["udp_csum"] == "zero"))]
    assert rows(size_csum_table(holed))["512"][4:] == ("-", "-", "-", "-")


def test_noise_table():
    run = simulate(cells(variant=["k (A)", "k (A again)"], gro=["off", "on"]))
    table = noise_table(run)
    found = rows(table)
    assert list(found) == ["k, GRO off", "k, GRO on"]
    assert found["k, GRO on"][2].startswith("~ +/-")
    assert found["k, GRO on"][5] == "no"
    assert "False alarms: 0 of 2; chance alone gives 1 in 20." in table.notes


def test_windows_table_counts_flags(sweep):
    spoilt = flag(flag(sweep, [3, 40], "pressure"), [40], "short")
    table = windows_table(spoilt)
    counts = table.frame[["windows", "counted", "sender_limited", "pressure", "short"]].sum()
    assert counts.tolist() == [320, 318, 0, 2, 1]


def test_traffic_in_words():
    cell = cells()[0] | {"flows": 64, "burst": 16, "encap": "4in6", "rx_gro_list": "on"}
    assert words.traffic(cell) == (
        "64-byte frames, UDP checksum computed, 64 flows in bursts of 16, IPv4 in IPv6, cpumap, rx-gro-list on"
    )
    tcp = cells()[0] | {"protocol": "tcp", "drop_tcp": False, "ip_version": 6, "receiver": "stack"}
    assert words.traffic(tcp) == "64-byte frames, TCP, 1 flow, IPv6, stack, TCP not dropped"


@pytest.mark.parametrize(
    ("low", "ratio", "high", "bound", "shown"),
    [
        (3.96, 4.05, 4.14, "exact", "+305% +/-9"),
        (0.984, 1.02, 1.056, "exact", "~ +/-4"),
        (0.82, 0.83, 0.84, "exact", "-17% +/-1"),
        (0.995, 1.001, 1.007, "exact", "~ +/-0.6"),
        (5.809, 6.0, 6.2, "at_least", ">=+480%"),
        (0.6, 0.65, 0.675, "at_most", "<=-32%"),
        (1.0, 2.0, 4.0, "unknown", "-"),
        (math.nan, 2.0, math.nan, "exact", "+100% +/-?"),
        (math.nan, math.nan, math.nan, "exact", "-"),
    ],
)
def test_changes_in_words(low, ratio, high, bound, shown):
    assert words.change(Comparison(ratio, low, high, 40, 0.01, bound=bound)) == shown


@pytest.mark.parametrize(
    ("interval", "value", "shown"),
    [
        (Interval(1.5, 1.47, 1.53, 40), "mpps", "1.50 +/-0.03"),
        (Interval(0.37, 0.366, 0.374, 40), "mpps", "0.370 +/-0.004"),
        (Interval(2.208, 2.2, 2.22, 40, True), "mpps", ">=2.20"),
        (Interval(2703.4, 2670.0, 2736.0, 40), "ns_per_packet", "2703 +/-33"),
        (Interval(1.5, math.nan, math.nan, 1), "mpps", "1.50 +/-?"),
        (Interval(math.nan, math.nan, math.nan, 0), "mpps", "-"),
        (None, "mpps", "-"),
    ],
)
def test_figures_in_words(interval, value, shown):
    assert words.figure(interval, value) == shown
