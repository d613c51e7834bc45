# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the table of functions says of partial profiles, and how it is printed and drawn."""

from __future__ import annotations

import io
import itertools
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rxbook import RxbookError, render, report, runs
from rxbook.profile import COLUMNS, EventTotals, Profile
from rxbook.profile.bars import function_bars
from rxbook.profile.functions import Column, function_table
from rxbook.profile.text_rows import typed
from rxbook.statistics import Interval
from synthetic_profiles import CPP, drawn, line, profile

# --- what is partial


def test_losses_and_warnings_stand_in_the_table():
    table = function_table(
        {"a": Column([profile({"ip_rcv": 900}, lost=100, warnings=["cut off at byte 7"])])}
    )
    assert "100 samples were lost (10.0% of all)" in table.notes[0]
    assert "WARNING: cut off at byte 7" in table.notes


@pytest.mark.parametrize("lost", [0, 70])
def test_a_profile_without_samples(lost):
    nothing = Profile(
        typed(pd.DataFrame(columns=COLUMNS)), {"cycles": EventTotals(0, 0)}, lost, (), "x (perf.data)"
    )
    table = function_table({"a": Column([nothing])})
    assert table.notes[0] == ("WARNING: no sample; all 70 were lost." if lost else "WARNING: no sample.")
    other = function_table({"a": Column([nothing]), "b": Column([profile({"ip_rcv": 10})])}, children=True)
    assert np.isnan(line(other, "ip_rcv")["share_points_vs_first"])
    for one in (table, other):
        assert render.text(one).isascii() and render.csv(one) and render.html(one) and render.markdown(one)
        function_bars(one)


def test_what_cannot_be_a_table_is_said():
    with pytest.raises(RxbookError, match="at least one column"):
        function_table({})
    pair = {unit: Column([profile({"ip_rcv": 1})], Interval(1, 1, 1, 5), unit) for unit in ("ns", "cycles")}
    with pytest.raises(RxbookError, match="in one unit"):
        function_table(pair)


# --- how it is printed


@pytest.fixture(scope="module")
def printed():
    rng = np.random.default_rng(7)
    shares = [0.3, 0.2, 0.2, 0.1, 0.1, 0.1]
    pair = [drawn(shares, 5000, rng), drawn(shares[::-1], 5000, rng)]
    long = {
        CPP.format("first"): 50,
        CPP.format("second"): 40,
        "<script>alert(1)</script>": 30,
        "caf\u00e9": 20,
    }
    odd = profile(long, kind="u", dso="libodd.so", comm="a|b")
    twice = profile({"memcpy": 5}, kind="u", dso="libc.so.6")
    joined = pd.concat([odd.functions, twice.functions.assign(dso="ld.so", comm="c"), twice.functions])
    joined["share"] = joined["samples"] / joined["samples"].sum()
    both = replace(odd, functions=joined, events={"cycles": EventTotals(int(joined["samples"].sum()))})
    cost = Interval(1234.5, 1200, 1270, 10)
    return [
        function_table({"GRO off": Column(pair[:1], cost), "GRO on": Column(pair[1:], cost)}),
        function_table({"a kernel of some long name": Column(pair), "another": Column([odd])}, children=True),
        function_table({"a": Column([both])}),
        function_table({"a": Column([odd])}, by="comm"),
        function_table({str(n): Column([p], cost, "cycles") for n, p in enumerate([*pair, *pair, odd])}),
    ]


@pytest.mark.parametrize("width", [72, 50])
def test_text_is_ascii_and_fits(printed, width):
    for table in printed:
        shown = render.text(table, width)
        assert shown.isascii() and max(map(len, shown.splitlines())) <= width


def test_names_stay_apart(printed):
    cells = [row[0] for section in printed[2].sections for row in section.rows]
    assert "memcpy (ld.so)" in cells and "memcpy (libc.so.6)" in cells
    assert CPP.format("first") in list(printed[2].frame["function"])
    assert len(set(cells)) == len(cells)
    assert "<script>" not in render.html(printed[2])


def test_csv_gives_back_the_figures(printed):
    for table in printed:
        back = pd.read_csv(io.StringIO(render.csv(table)))
        assert back["share_percent"].equals(table.frame["share_percent"].astype(float))
        assert len(back) == len(table.frame)
        rows = itertools.chain(*(section.rows for section in table.sections))
        assert all(len(row) == len(table.columns) for row in rows)


def test_the_picture_of_a_run_says_traffic_machine_and_n(tmp_path):
    shutil.copytree(runs.SAMPLES / "bulk_cache", tmp_path / "mine")  # there it is a run as any other
    table = report.function_tables(runs.load(tmp_path / "mine"))["functions_1"]
    off, on = table.frame[table.frame["row"] == "all"]["samples"]
    (_, *said) = function_bars(table)._suptitle.get_text().splitlines()
    assert "64-byte frames" in " ".join(said) and "2-CPU VM, AMD EPYC, Linux 6.18.44" in " ".join(said)
    assert f"n = {off} and {on} samples" in " ".join(said)


def test_the_picture_is_800_pixels_wide_and_shows_families_and_functions(printed):
    for table in printed:
        figure = function_bars(table)
        assert figure.get_size_inches()[0] * figure.dpi == 800
        png = io.BytesIO()
        figure.savefig(png)
        said = [item.get_text() for item in figure.findobj(lambda item: hasattr(item, "get_text"))]
        if table is printed[0]:
            assert {"GRO", "tcp_gro_receive", "GRO off", "GRO on"} <= set(said)
            assert "ns per packet, 95 % interval" in said
