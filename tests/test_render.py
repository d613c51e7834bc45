# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every form of a table: width, alphabet, escaping, and that its CSV gives back the very numbers."""

from __future__ import annotations

import csv
import io
import itertools
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from rxbook import render
from rxbook.tables import Section, Table, gro_table, noise_table, size_csum_table, windows_table
from synthetic import cells, flag, simulate

LONG = "net-next-6.18.44-with-patch-08"


@pytest.fixture(scope="module")
def tables():
    sweep = simulate(
        cells(gro=["off", "on"], frame_size=[64, 128, 256, 512, 1024, 1500], udp_csum=["computed", "zero"])
    )
    long = simulate(cells(variant=["baseline", LONG], gro=["off", "on"]), factors={LONG: 2.5})
    noise = simulate(cells(variant=[f"{LONG} (A)", f"{LONG} (A again)"], gro=["off", "on"]))
    many = simulate(
        cells(
            gro=["off", "on"], encap=["4in6"], ip_version=[6], flows=[64], burst=[1, 16], rx_gro_list=["on"]
        )
    )
    made = [gro_table(run) for run in (sweep, long, many)]
    made += [gro_table(long, "ns_per_packet"), windows_table(flag(long, [3], "short"))]
    made += [size_csum_table(sweep), size_csum_table(long.assign(frame_size=9000)), noise_table(noise)]
    return [*made, gro_table(sweep[sweep["block"] == 0]), gro_table(sweep.iloc[:0])]


def odd_table(**changes):
    parts = {
        "title": "Title & <more>",
        "columns": (("", "name"), ("group|", "a_b"), ("group|", "c")),
        "sections": (Section("head <i>", (("<b>&\u00e9|*x*", "1.50 +/-0.03", "~"), (), ("y", "-", "N/A"))),),
        "notes": ("a < b & c", "\u00b1 is ASCII"),
        "frame": pd.DataFrame({"name": ["x"], "rate_mpps": [0.1 + 0.2]}),
        "source": "recorded 2026-12-01 on m\u00fcller's machine",
    }
    return Table(**(parts | changes))


@pytest.mark.parametrize("width", [72, 60, 40])
def test_text_is_ascii_and_never_too_wide(tables, width):
    for table in [*tables, odd_table()]:
        shown = render.text(table, width)
        assert shown.isascii() and shown.endswith("\n")
        assert max(map(len, shown.splitlines())) <= width
        assert not any(line != line.rstrip() for line in shown.splitlines())


def test_every_figure_survives_a_narrow_page(tables):
    for table in tables:
        shown = render.text(table, 40).replace("\n", " ")
        for section, index in itertools.product(table.sections, range(1, len(table.columns))):
            for row in section.rows:
                assert not row or row[index].partition(" +/-")[0] in shown


def test_a_very_long_name_is_wrapped():
    row = ("name " * 30, "1", "2")
    shown = render.text(odd_table(sections=(Section("h", (row,)),)))
    assert max(map(len, shown.splitlines())) <= 72 and shown.count("name") >= 30


@pytest.mark.parametrize("against", ["debian:7.2 / debian:6.12", "debian:7 / debian:6"])
def test_a_long_name_among_short_ones_stands_on_its_own_line(against):
    wide, many = "1234.5 +/-0.3", (("group", "a"), ("group", "b"), ("", "c"), ("", "d"))
    names = "debian:6.12", "debian:7.2", against
    rows = tuple((name, *[wide] * 4) for name in names)
    shown = render.text(odd_table(columns=(("", "variant"), *many), sections=(Section("h", rows),)))
    lines = shown.splitlines()
    assert names[2] in lines and sum(line.count(wide) for line in lines) == 12
    assert [line.split()[0] for line in lines if line.count(wide) == 4] == [*names[:2], wide.split()[0]]


def test_text_of_the_gro_table():
    run = simulate(cells(gro=["off", "on"], variant=["6.18.44"]), outliers=0, seed=4)
    lines = render.text(gro_table(run)).splitlines()
    assert lines[0].startswith("UDP GRO, Mpps ") and lines[0].endswith(" measured 2026-12-01")
    assert lines[2] == "64-byte frames, UDP checksum computed, 1 flow, IPv4, cpumap"
    assert "- GRO off -" in lines[4] and "- GRO on -" in lines[4]
    assert lines[5].split() == ["variant", "Mpps", "n", "segs", "Mpps", "n", "segs", "on/off"]
    assert lines[6].startswith("6.18.44 ") and len(lines[5]) == len(lines[6])


def test_columns_stand_below_each_other_in_all_sections(tables):
    lines = render.text(tables[0]).splitlines()
    figures = [line for line in lines if line.startswith("simulated")]
    assert len(figures) == 12
    assert len({line.index("+/-") for line in figures}) == 1
    assert sum("on/off" in line for line in lines) == 1


@pytest.mark.parametrize("form", [render.text, render.markdown, render.html])
def test_another_source_stands_in_capitals_in_the_title(form):
    first_line = form(odd_table(title="Short title")).splitlines()[0]
    assert "Short title" in first_line and "RECORDED 2026-12-01" in first_line
    assert "RECORDED" not in form(odd_table(source="measured 2026-12-01"))


def test_a_source_that_does_not_fit_beside_the_title_comes_first():
    long = odd_table(source="published by the authors in a cover letter to netdev, January 2025")
    assert render.text(long).startswith("PUBLISHED by the authors")


def test_csv_gives_back_the_numbers(tables):
    for table in tables[:-1]:
        back = list(csv.DictReader(io.StringIO(render.csv(table))))
        assert len(back) == len(table.frame) and {row["source"] for row in back} == {table.source}
        for name in table.frame.select_dtypes("number"):
            read = [float(row[name] or "nan") for row in back]
            np.testing.assert_array_equal(read, table.frame[name].astype(float))


def test_csv_names_the_source_in_capitals_and_rounds_nothing():
    assert render.csv(odd_table()).splitlines()[1].startswith("x,0.30000000000000004,RECORDED 2026")


class Tags(HTMLParser):
    def __init__(self, document):
        super().__init__()
        self.open, self.seen, self.links, self.words = [], [], [], []
        self.feed(document)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_html_is_escaped_well_formed_and_stands_alone():
    document = render.html(odd_table())
    tags = Tags(document)
    assert not tags.open and not tags.links and "url(" not in document
    assert '<table class="rxbook">' in document
    assert not {"b", "i", "more"} & set(tags.seen)
    assert "<b>&\u00e9|*x*" in tags.words and "a < b & c" in tags.words


def test_html_rows_have_one_cell_for_each_column(tables):
    for table in tables:
        for row in render.html(table).split("<tr>")[1:]:
            if "colspan" not in row:
                assert row.count("<td") + row.count("<th") == len(table.columns)


def test_markdown_rows_have_one_cell_for_each_column_and_no_stray_markup(tables):
    for table in [*tables, odd_table()]:
        for line in render.markdown(table).splitlines():
            if line.startswith("|"):
                assert line.replace("\\|", "").count("|") == len(table.columns) + 1
    assert r"\<b\>&" in render.markdown(odd_table()) and r"\~" in render.markdown(odd_table())
