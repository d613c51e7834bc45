# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The threads' figures beside a run's: in columns of their own, and only where the traffic is the same."""

import dataclasses
import json

import pytest

import simulated_runs
import synthetic_profiles
from rxbook import beside, published, render, report, workbook
from rxbook.plan import SHAPES
from rxbook.profile import saved

PROFILE = {"inet_gro_receive": 700, "tcp_gro_receive": 300, "memcpy": 9000}


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


@pytest.fixture
def run(tmp_path):
    return simulated_runs.finished(tmp_path / "run", frame_sizes="64,512")


def on_kernel(run, gro, bulk):
    host = run.host | {"btf": {"cpumap_gro": gro}, "symbols": {"napi_skb_cache_get_bulk": bulk}}
    return dataclasses.replace(run, host=host)


def rows(table):
    """Each row's published and own cells, by its name."""
    groups = [group for group, _ in table.columns]
    return {
        row[0]: tuple(
            [cell for cell, of in zip(row, groups, strict=True) if of == group and cell]
            for group in ("PUBLISHED", "this run")
        )
        for section in table.sections
        for row in section.rows
    }


def with_profiles(run, **changes):
    """Recordings as a shared run keeps them, of all four shapes, with GRO on and off."""
    folder = run.path / "profiles"
    folder.mkdir(exist_ok=True)
    cells = run.plan.cells("simulated")
    for number, cell in enumerate(cells):
        about = folder / f"cell-{number:02}-0.json"
        about.write_text(json.dumps({"cell": cell.model_dump() | changes, "task": "cpumap/1/map:3"}))
        found = synthetic_profiles.profile(PROFILE, comm="cpumap/1/map:3")
        saved.save(found, about.with_suffix(".csv"))
    return run


# --- rates


def test_published_and_own_figures_never_share_a_column(run):
    table = beside.published_beside(on_kernel(run, True, True))
    assert [group for group, _ in table.columns] == ["", *["PUBLISHED"] * 4, *["this run"] * 3]
    found = rows(table)
    assert found["baseline"] == (["2.7", "N/A", "N/A"], [])
    assert found["patch 3"] == (["2.3", "4", "+74%", "+48..+100"], [])
    theirs, ours = found["patch 8"]
    assert theirs == ["2.4", "4.7", "+96%", "+89..+103"] and len(ours) == 3 and "+/-" in ours[2]


@pytest.mark.parametrize(
    ("gro", "bulk", "row"),
    [
        (True, True, "patch 8"),
        (True, False, "patch 3"),
        (False, False, "baseline"),
        (None, None, "simulated"),
    ],
)
def test_a_run_stands_beside_the_kernel_that_has_what_its_own_has(run, gro, bulk, row):
    found = rows(beside.published_beside(on_kernel(run, gro, bulk)))
    assert [name for name, (_, ours) in found.items() if ours] == [row]
    assert ("N/A" in found[row][1]) is (gro is False)


def test_only_the_threads_traffic_is_compared(run):
    table = beside.published_beside(run)
    change = table.frame["measured_on_vs_off_percent"].dropna().item()
    windows = run.samples[(run.samples["frame_size"] == 64) & (run.samples["udp_csum"] == "computed")]
    own = report.table_of(dataclasses.replace(run, samples=windows), "gro").frame["on_vs_off_percent"].item()
    assert change == pytest.approx(own)
    assert table.sections[0].heading.startswith("64-byte frames, UDP checksum computed, 1 flow")


def test_the_caption_says_what_differs(run):
    table = report.table_of(on_kernel(run, True, True), "published")
    said = " ".join(table.notes)
    for words in (
        "PUBLISHED: netdev 2025-01-07",
        "not by rxbook",
        "veth instead of a NIC",
        "kernel and CPU",
        "Machine: ",
    ):
        assert words in said
    assert max(map(len, render.text(table).splitlines())) <= 72


@pytest.mark.parametrize(
    "parameters", [{"frame_sizes": 512}, {"gro": "on"}, {"udp_csum": "zero"}, {"flows": 64}]
)
def test_a_run_without_that_traffic_has_no_such_table(tmp_path, capsys, parameters):
    run = simulated_runs.finished(tmp_path / "run", **parameters)
    assert beside.published_beside(run) is None and "published" not in report.tables_named(run)
    workbook.show_table(run, "published")
    assert capsys.readouterr().out.startswith("no cell has a thread's traffic")


def test_an_aa_run_has_a_row_for_each_name(tmp_path):
    run = simulated_runs.finished(tmp_path / "run", frame_sizes=64, udp_csum="computed", aa=True)
    found = rows(beside.published_beside(on_kernel(run, True, True)))
    assert [len(ours) for _, ours in found.values()] == [0, 0, 3, 3]
    assert list(found)[-1] == "simulated (A again)"


# --- functions


@pytest.fixture
def profiled(tmp_path):
    shapes = {
        "shapes": ",".join(SHAPES),
        "flows": 64,
        "burst": 16,
        "frame_sizes": 1518,
        "udp_csum": "computed",
    }
    return simulated_runs.finished(tmp_path / "run", **shapes)


def test_shares_stand_beside_the_published_ones_of_the_same_shape(profiled):
    table = report.table_of(with_profiles(profiled), "published")
    assert table.columns[1:] == (
        ("PUBLISHED", "net-next"),
        ("PUBLISHED", "patch applied"),
        ("this run", "GRO on"),
    )
    assert [s.heading.partition(":")[0] for s in table.sections] == list(
        published.load("gro_flush_checks")["table"].unique()
    )
    last = {row[0]: row[1:] for row in table.sections[-1].rows}
    assert last["inet_gro_receive"][:2] == ("10.09", "6.97") and last["inet_gro_receive"][2].startswith(
        "7.00 +/-"
    )
    assert last["both"][:2] == ("12.17", "10.65") and last["both"][2].startswith("10.00 +/-")
    assert "both" not in {row[0] for row in table.sections[0].rows}
    assert "shares of the receiving thread's samples alone" in " ".join(table.notes)
    assert max(map(len, render.text(table).splitlines())) <= 72


@pytest.mark.parametrize("changes", [{"flows": 1}, {"gro": "off"}, {"rx_gro_list": "on", "protocol": "tcp"}])
def test_profiles_of_other_traffic_are_not_compared(profiled, changes):
    assert beside.published_beside(with_profiles(profiled, **changes)) is None
