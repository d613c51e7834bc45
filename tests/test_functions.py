# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The lines and figures of the table of functions, from SIMULATED profiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rxbook import RxbookError, render
from rxbook.profile import COLUMNS, EventTotals
from rxbook.profile.functions import Column, function_table
from rxbook.profile.headline import headline
from rxbook.profile.shares import share_interval
from rxbook.statistics import Interval
from synthetic_profiles import MADE_UP, drawn, line, names, profile, published

# --- one column


def test_shares_samples_and_costs_of_one_column():
    counts = dict(zip(MADE_UP, (400, 300, 100, 80, 70, 50), strict=True))
    table = function_table({"run": Column([profile(counts)], Interval(200, 190, 210, 10))})
    assert names(table) == MADE_UP
    assert line(table, "inet_gro_receive")[["samples", "share_percent", "ns_per_packet"]].tolist() == [
        300,
        30,
        60,
    ]
    gro = line(table, "GRO")
    own = share_interval(*np.array([[700], [1000], [0.7]], float))
    assert (gro["share_percent_low"], gro["share_percent_high"]) == (own.low * 100, own.high * 100)
    functions = table.frame[table.frame["row"] == "function"]
    assert functions["share_percent"].sum() == pytest.approx(100)
    assert functions["ns_per_packet"].sum() == pytest.approx(200) == line(table, "all")["ns_per_packet"]
    assert any("Inlined functions are counted in their callers" in note for note in table.notes)
    assert "cycles" in table.title


def test_what_is_not_shown_is_one_row():
    counts = {f"f{number}": 100 - number for number in range(40)}
    table = function_table({"run": Column([profile(counts)])}, top=5)
    assert names(table) == ["f0", "f1", "f2", "f3", "f4"]
    assert table.frame["share_percent"].sum() == pytest.approx(100)
    assert line(table, "other functions")["samples"] == sum(counts.values()) - 490


def test_only_what_is_asked_for_and_a_named_function_keeps_its_row():
    counts = dict(zip(MADE_UP, (400, 300, 100, 80, 70, 50), strict=True))
    table = function_table({"run": Column([profile(counts)])}, only=["*_gro_receive", "gro_network_flush"])
    assert names(table) == ["tcp_gro_receive", "inet_gro_receive", "gro_network_flush"]
    assert line(table, "gro_network_flush")["samples"] == 0
    assert line(table, "gro_network_flush")["share_percent_high"] > 0.3
    assert line(table, "other functions")["share_percent"] == pytest.approx(30)
    with pytest.raises(RxbookError, match="no function matches nothing_\\*"):
        function_table({"run": Column([profile(counts)])}, only=["nothing_*"])


def test_idle_time_is_no_cost_of_a_packet():
    table = function_table(
        {"run": Column([profile({"ip_rcv": 300, "default_idle": 700})], Interval(100, 90, 110, 9))}
    )
    assert line(table, "ip_rcv")["share_percent"] == pytest.approx(30)
    assert line(table, "ip_rcv")["ns_per_packet"] == pytest.approx(100)
    assert np.isnan(line(table, "default_idle")["ns_per_packet"])
    assert any("idle in 70.0%" in note for note in table.notes)


def test_percentages_beside_an_exact_total_have_an_interval():
    report = published({"ip_rcv": 60.0, "udp_rcv": 40.0})
    table = function_table({"a": Column([replace(report, events={"unknown": EventTotals(samples=500)})])})
    assert line(table, "ip_rcv")["samples"] == 300 and line(table, "ip_rcv")["share_percent_low"] > 55


def test_children_stand_beside_self_but_are_not_summed():
    full = profile({"dev_gro_receive": 100, "inet_gro_receive": 300, "ip_rcv": 600})
    frame = full.functions.assign(
        children_samples=pd.array([1000, 300, 600], "Int64"),
        children_share=pd.array([1.0, 0.3, 0.6], "Float64"),
    )
    table = function_table({"a": Column([replace(full, functions=frame)])}, children=True)
    assert names(table) == ["dev_gro_receive", "ip_rcv", "inet_gro_receive"]
    assert line(table, "dev_gro_receive")["children_percent"] == 100
    assert np.isnan(line(table, "GRO")["children_percent"])
    without = function_table({"a": Column([profile({"ip_rcv": 5})])}, children=True)
    assert (
        names(without) == ["ip_rcv"]
        and "No call chains: shares with children are not known." in without.notes
    )


# --- two columns and more


def test_a_difference_with_its_interval_and_one_that_is_none():
    before = dict(zip(MADE_UP, (4000, 3000, 1000, 800, 700, 500), strict=True))
    after = before | {"tcp_gro_receive": 3000, "ip_rcv": 1720}
    cost = Interval(300, 298, 302, 10)
    table = function_table({"off": Column([profile(before)], cost), "on": Column([profile(after)], cost)})
    moved, same = line(table, "tcp_gro_receive"), line(table, "inet_gro_receive")
    assert moved["share_points_vs_first"] == pytest.approx(after["tcp_gro_receive"] / 100.2 - 40, abs=1e-6)
    assert moved["share_points_vs_first_high"] < 0 and moved["share_points_differs"]
    assert (
        moved["ns_per_packet_vs_first"] == pytest.approx(-30.18, abs=0.1) and moved["ns_per_packet_differs"]
    )
    assert not same["share_points_differs"]
    cells = {row[0]: row for section in table.sections for row in section.rows}
    assert cells["inet_gro_receive"][3].startswith("~ +/-") and cells["tcp_gro_receive"][3].startswith(
        "-10.0"
    )


def test_a_function_in_one_column_only():
    before, after = {"ip_rcv": 900, "old": 100}, {"ip_rcv": 900, "new": 100}
    table = function_table({"before": Column([profile(before)]), "after": Column([profile(after)])})
    gone, came = line(table, "old"), line(table, "new")
    assert (gone["samples"], came["share_points_vs_first"]) == (0, pytest.approx(10))
    assert 0 < gone["share_percent_high"] < 0.4 and gone["share_points_vs_first_high"] < 0
    assert "<0.39" in render.text(table)
    ranked = function_table(
        {"b": Column([profile(before)]), "a": Column([profile(after)])}, sort="last", top=2
    )
    assert names(ranked) == ["ip_rcv", "new"]


@pytest.mark.parametrize(
    ("before", "after", "sums"),
    [
        ((6.94, 3.02), (4.22, 4.27), ("9.96", "8.49", "-1.47")),
        ((10.09, 2.08), (6.97, 3.68), ("12.17", "10.65", "-1.52")),
    ],
)
def test_published_percentages_sum_by_family_and_have_no_interval(before, after, sums):
    pair = [
        published(dict(zip(("inet_gro_receive", "tcp_gro_receive"), p, strict=True))) for p in (before, after)
    ]
    table = function_table(
        {"net-next": Column(pair[:1]), "patched": Column(pair[1:])}, source="published 2024-04-12"
    )
    assert table.sections[0].rows == (("GRO", *sums),)
    assert (
        np.isnan(line(table, "GRO")["share_percent_low"]) and not line(table, "GRO")["share_points_differs"]
    )
    assert any("no interval" in note for note in table.notes)
    assert line(table, "other functions")["share_percent"] == pytest.approx(100 - sum(after))


def test_a_function_that_a_mail_does_not_list_is_not_taken_for_none():
    pair = [
        published({"inet_gro_receive": 3.0}),
        published({"inet_gro_receive": 2.0, "tcp_gro_receive": 1.0}),
    ]
    table = function_table({"a": Column(pair[:1]), "b": Column(pair[1:])}, families=None)
    assert ("tcp_gro_receive", "-", "1.00", "-") in table.sections[0].rows


def test_cost_that_moves_to_where_it_is_inlined_is_no_change_of_the_family():
    rng = np.random.default_rng(5)
    before = drawn([0.0302, 0.0694, 0.2, 0.2, 0.3, 0.2004], 50_000, rng)
    after = drawn([0.0574, 0.0422, 0.2, 0.2, 0.3, 0.2004], 50_000, rng)
    table = function_table({"before": Column([before]), "after": Column([after])})
    assert line(table, "tcp_gro_receive")["share_points_differs"]
    assert line(table, "inet_gro_receive")["share_points_differs"]
    assert not line(table, "GRO")["share_points_differs"]
    parts = [line(table, name)["share_points_vs_first_high"] for name in MADE_UP[:2]]
    assert line(table, "GRO")["share_points_vs_first_high"] < sum(parts)


def test_three_columns_are_compared_with_the_first():
    columns = {f"kernel {n}": Column([profile({"ip_rcv": 500, "udp_rcv": n})]) for n in (500, 300, 100)}
    table = function_table(columns)
    assert [name for _, name in table.columns] == ["function", "A", "B", "C", "B-A", "C-A"]
    assert any(note.startswith("C: kernel 100, ") for note in table.notes)
    assert line(table, "udp_rcv")["share_points_vs_first"] == pytest.approx(100 / 6 - 50)


# --- inlined functions


@pytest.fixture
def inlined():
    counts = {"tcp_gro_receive": 300, "ip_rcv": 700, "gro_network_flush": 100, "csum_fold": 50}
    return profile(counts, kind=["k", "k", "i", "i"], within=[None, None, "tcp_gro_receive", "ip_rcv"])


def test_inlined_functions_beside_their_callers_are_counted_once_in_sums(inlined):
    table = function_table({"a": Column([inlined])}, families={"fold": ["csum_fold"]})
    assert line(table, "gro_network_flush [i]")["share_percent"] == 10
    assert line(table, "tcp_gro_receive")["share_percent"] == 30 == line(table, "GRO")["share_percent"]
    assert line(table, "fold")["share_percent"] == 5
    assert "other functions" not in names(table, "other")


def test_inlined_functions_apart_from_their_callers_or_hidden(inlined):
    apart = function_table({"a": Column([inlined])}, inlined="apart")
    assert line(apart, "tcp_gro_receive")["share_percent"] == pytest.approx(20)
    assert line(apart, "ip_rcv")["samples"] == 650 and line(apart, "GRO")["share_percent"] == pytest.approx(
        30
    )
    assert sum(apart.frame["share_percent"][apart.frame["row"] == "function"]) == pytest.approx(100)
    hidden = function_table({"a": Column([inlined])}, inlined="hidden")
    assert names(hidden) == ["ip_rcv", "tcp_gro_receive"]
    without = replace(inlined, functions=inlined.functions[COLUMNS])
    with pytest.raises(RxbookError, match="does not say where"):
        function_table({"a": Column([without])}, inlined="apart")


def test_an_inlined_function_has_a_line_for_each_that_holds_it():
    counts = {"tcp_gro_receive": 300, "ip_rcv": 700, "csum_fold": 50}
    held = profile(counts, kind=["k", "k", "i"], within=[None, None, "ip_rcv"])
    more = profile({"csum_fold": 80}, kind="i", within="tcp_gro_receive").functions
    both = replace(held, functions=pd.concat([held.functions, more], ignore_index=True))
    table = function_table({"a": Column([both])}, families=None)
    rows = {cells[0]: cells[-1] for cells in table.sections[0].rows}
    assert (rows["csum_fold [i1]"], rows["csum_fold [i2]"]) == ("80", "50")
    assert "Inlined into: [i1] tcp_gro_receive, [i2] ip_rcv." in table.notes


def test_a_long_name_keeps_its_mark():
    long = "a_function_with_a_very_long_name_indeed"
    held = profile({"ip_rcv": 700, long: 50}, kind=["k", "i"], within=[None, "ip_rcv"])
    label = function_table({"a": Column([held])}, families=None).sections[0].rows[1][0]
    assert len(label) == 29 and label.endswith("deed [i]")


@pytest.mark.parametrize("inlined", ["shown", "apart", "hidden"])
def test_the_sum_of_a_family_is_the_same_however_inlined_functions_are_shown(inlined):
    counts = {"tcp_gro_receive": 300, "ip_rcv": 700, "csum_fold": 50, "gro_network_flush": 20, "gro_pull": 90}
    counts |= {"skb_may_pull": 70, "gro_header": 60}
    held = [None, None, "tcp_gro_receive", "tcp_gro_receive", "ip_rcv", "ip_rcv", "ip_rcv"]
    through = [None] * 5 + ["gro_pull", "gro_pull\nskb_may_pull"]
    found = profile(counts, kind=[*"kkiiiii"], within=held, through=through)
    table = function_table({"a": Column([found])}, inlined=inlined, families={"skb": ["skb_*"]})
    assert line(table, "GRO")["samples"] == 390 and line(table, "skb")["samples"] == 70


@pytest.mark.parametrize("inlined", ["shown", "apart", "hidden"])
def test_what_is_inlined_into_an_idle_function_is_idle_however_it_is_shown(inlined):
    counts = {"ip_rcv": 300, "default_idle": 700, "sti": 600}
    found = profile(counts, kind=[*"kki"], within=[None, None, "default_idle"])
    table = function_table({"a": Column([found], Interval(100, 90, 110, 9))}, inlined=inlined)
    assert line(table, "ip_rcv")["ns_per_packet"] == pytest.approx(100)
    assert inlined == "hidden" or np.isnan(line(table, "sti [i]")["ns_per_packet"])


# --- by dso, comm and cpu; events


def test_sections_by_comm_keep_shares_of_the_whole():
    counts = {"ip_rcv": 500, "udp_rcv": 300, "read": 200}
    one = profile(counts, comm=["ksoftirqd/1", "ksoftirqd/1", "sshd"], cpu=[1, 1, 0])
    table = function_table({"a": Column([one])}, by="comm")
    assert [section.heading for section in table.sections] == ["comm ksoftirqd/1", "comm sshd"]
    assert table.sections[0].rows[0][0] == "all" and table.sections[0].rows[0][-1] == "800"
    by_cpu = function_table({"a": Column([one])}, by="cpu")
    assert [section.heading for section in by_cpu.sections] == ["cpu 1", "cpu 0"]
    with pytest.raises(RxbookError, match="does not tell the comm"):
        function_table({"a": Column([profile(counts)])}, by="comm")


def test_many_values_of_by_end_in_one_section():
    counts = {f"f{n}": 100 for n in range(12)}
    table = function_table({"a": Column([profile(counts, comm=list("abcdefghijkl"))])}, by="comm")
    assert table.sections[-1].heading == "4 further values of comm" and len(table.sections) == 9
    totals = table.frame[table.frame["row"] == "all"]
    assert totals["share_percent"].sum() == pytest.approx(100)


def test_one_event_of_several_is_shown_and_the_others_are_named():
    both = [
        profile({"ip_rcv": 10, "udp_rcv": 30}, "cache-misses"),
        profile({"ip_rcv": 60, "udp_rcv": 40}, "cycles:k"),
    ]
    joined = replace(
        both[0],
        functions=pd.concat([one.functions for one in both]),
        events=both[0].events | both[1].events,
    )
    table = function_table({"a": Column([joined])})
    assert line(table, "ip_rcv")["share_percent"] == 60 and line(table, "ip_rcv")["event"] == "cycles:k"
    assert any("other events in it: cache-misses" in note for note in table.notes)
    assert (
        line(function_table({"a": Column([joined])}, event="cache-misses"), "ip_rcv")["share_percent"] == 25
    )
    with pytest.raises(RxbookError, match="has no event 'branches'; it has cache-misses, cycles:k"):
        function_table({"a": Column([joined])}, event="branches")


def test_time_is_not_called_cycles():
    table = function_table({"a": Column([profile({"ip_rcv": 10}, "cpu-clock:k")])})
    assert "time" in table.title and any("time, not cycles" in note for note in table.notes)


def test_a_headline_counts_an_inlined_function_in_its_caller_alone():
    said = headline([profile({"ip_rcv": 60, "csum_fold": 40}, kind=["k", "i"], within=[None, "ip_rcv"])])
    assert said["rxbook_samples"] == 60 and not any("csum_fold" in str(value) for value in said.values())
