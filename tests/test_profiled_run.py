# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf in a run: the receiver's CPU under real traffic, in windows of their own."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pyperf
import pytest

import live
from rxbook import RxbookError, function_cycles, profile, report, runs, workbook
from rxbook.plan import make_plan
from rxbook.profile import record

pytestmark = pytest.mark.needs_root

PARAMETERS = {
    "shapes": "ip-udp,ipip-tcp", "flows": 64, "burst": 16, "frame_sizes": 1518, "blocks": 5, "window_s": 0.05,
    "profile_s": 0.3, "profile_repeats": 2,
}  # fmt: skip
SHOWN = make_plan({"functions": "inet_gro_receive,tcp_gro_receive"})


def run_in(folder, parameters):
    place = {"runs_dir": str(folder), "run_name": "profiled"}
    return live.wait_for_lock(lambda: workbook.run("function_cycles", parameters | place))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if shutil.which("perf") is None:
        pytest.skip("the perf tool is not installed")
    return run_in(tmp_path_factory.mktemp("runs"), PARAMETERS)


def shares(table):
    rows = table.frame[table.frame["row"] == "function"]
    return rows.set_index(["function", "column"])["share_percent"]


def test_each_cell_is_recorded_in_every_repeat_with_its_counters(run):
    found = record.recorded(run.path / "profiles")
    assert list(found) == run.plan.cells(run.samples["variant"][0])
    for cell, recordings in found.items():
        assert len(recordings) == 2
        for recording in recordings:
            # the kthread's own work, named from the kallsyms of that moment
            functions = profile.load(recording.data).functions
            assert functions["symbol"].str.contains("cpu_map_kthread_run").any(), cell
            assert recording.task.startswith("cpumap/")
            noted = json.loads(recording.data.with_suffix(".json").read_text())
            assert noted["counted"]["frames"] > 100


def test_there_is_a_table_for_each_shape_of_the_receiving_thread_alone(run):
    tables = report.function_tables(run)
    assert [table.title.partition(":")[0] for table in tables.values()] == ["64 x IP/UDP", "64 x IP/IP/TCP"]
    for table in tables.values():
        assert shares(table)["dev_gro_receive", "GRO on"] > 1
        assert any("receiving thread alone" in note for note in table.notes)
        whole = table.frame[table.frame["row"] == "all"]
        costs = whole["ns_per_packet"].notna().tolist()
        assert costs == [True, True] or any("No cost per packet" in note for note in table.notes)
    assert shares(tables["functions_2"])["tcp_gro_receive", "GRO on"] > 0
    assert "tcp_gro_receive" not in shares(tables["functions_1"]).index


def test_tables_and_bars_are_among_the_runs_files(run):
    for name in ("functions_1", "functions_2"):
        for ending in ("txt", "md", "html", "csv", "png", "svg"):
            assert (run.path / "tables" / f"{name}.{ending}").stat().st_size
        text = (run.path / "tables" / f"{name}.txt").read_text()
        assert max(map(len, text.splitlines())) <= 72


def test_the_pyperf_suite_carries_each_cells_headline(run):
    # on a busy machine every window may be flagged, and a suite have no benchmark
    counted = replace(run, samples=run.samples.assign(flags=""))
    suite = report.pyperf_suite(counted.samples, run.source, function_cycles.headlines(run))
    if (run.path / "bench.json").exists():
        saved = pyperf.BenchmarkSuite.load(str(run.path / "bench.json")).get_metadata()
        assert saved["rxbook_event"] == suite.get_metadata()["rxbook_event"]
    found = record.recorded(run.path / "profiles")
    assert len(suite) == len(found) == 4
    for benchmark in suite:
        metadata = benchmark.get_metadata()
        ((cell, recordings),) = ((c, r) for c, r in found.items() if c.label().endswith(metadata["name"]))
        assert metadata["rxbook_task"] == recordings[0].task
        parts = [profile.load(one.data).functions for one in recordings]
        task = metadata["rxbook_task"][:15]  # as long as perf keeps it
        ours = sum(part.loc[part["comm"] == task, "samples"].sum() for part in parts)
        assert metadata["rxbook_samples"] == ours, cell
        assert re.fullmatch(r"[\d.]+ \+/-[\d.]+ %", metadata["rxbook_family_driver_and_XDP"])


def test_a_profile_is_no_window_whose_rate_counts(run):
    assert len(run.samples) == PARAMETERS["blocks"] * 4


def test_two_runs_are_compared_cell_by_cell(run):
    tables = function_cycles.comparison([str(run.path)], [str(run.path)], SHOWN)
    assert len(tables) == 4
    for table in tables.values():
        assert set(table.frame["column"]) == {"before", "after"}
        changes = table.frame[table.frame["column"] == "after"]
        assert not changes["share_points_differs"].any()  # a run does not differ from itself
    assert "GRO on: functions" in tables["functions_4"].title
    named = tables["functions_4"].frame
    assert set(named[named["row"] == "function"]["function"]) == {"inet_gro_receive", "tcp_gro_receive"}


def test_files_of_one_condition_are_repeats(run):
    found = record.recorded(run.path / "profiles")
    before, after = ([str(one.data) for one in found[cell]] for cell in list(found)[:2])
    (table,) = function_cycles.comparison(before, after, SHOWN).values()
    assert any("in 2 repeats" in note for note in table.notes)
    assert shares(table)["inet_gro_receive", "after"] > shares(table)["inet_gro_receive", "before"]


def test_runs_and_files_are_not_mixed(run):
    data = next(iter(run.path.glob("profiles/*.data")))
    with pytest.raises(RxbookError, match="is a run folder: name one run each"):
        function_cycles.comparison([str(run.path)], [str(data)], SHOWN)


def test_a_shared_run_shows_the_same_functions_and_no_other_task(run, tmp_path):
    runs.scrub(run.path, tmp_path / "copy")
    copy = runs.load(tmp_path / "copy")
    before, after = report.function_tables(run), report.function_tables(copy)
    assert list(before) == list(after)
    for name, table in before.items():
        assert shares(after[name]).to_dict() == pytest.approx(shares(table).to_dict())
    for file in (copy.path / "profiles").iterdir():
        text = file.read_text()
        assert "python" not in text and "argv" not in text


def test_the_notebooks_inputs_are_shown_and_nothing_is_measured(run, tmp_path):
    given = {"before": str(run.path), "runs_dir": str(tmp_path), "run_name": "shown", "top": 3}
    tables, measured = workbook.functions(given)
    assert measured is None and list(tables) == ["functions_1", "functions_2"]
    texts = {file.name: file.read_text() for file in tmp_path.rglob("*.txt")}
    assert set(texts) == {"functions_1.txt", "functions_2.txt", "report.txt"}
    assert texts["functions_2.txt"] in texts["report.txt"]


def test_without_perf_the_run_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))  # also of the process that receives
    done = run_in(tmp_path, PARAMETERS | {"shapes": "ip-udp"})
    assert done.status == "finished" and runs.status(done.path) == "finished"
    assert "no perf tool" in capsys.readouterr().err
    assert report.function_tables(done) == {}
    with pytest.raises(RxbookError, match="has no profiles: measure with profile=true"):
        function_cycles.comparison([str(done.path)], [], SHOWN)


def test_call_chains_are_recorded_where_asked_for(tmp_path):
    if shutil.which("perf") is None:
        pytest.skip("the perf tool is not installed")
    asked = {"gro": "on", "shapes": "ip-udp", "call_graph": True, "profile_repeats": 1}
    (table,) = report.function_tables(run_in(tmp_path, PARAMETERS | asked)).values()
    rows = table.frame[table.frame["row"] == "function"].set_index("function")
    assert rows.loc["cpu_map_kthread_run", "children_percent"] > 50


def test_what_perf_refuses_is_one_line(tmp_path, monkeypatch):
    perf = tmp_path / "perf"
    perf.write_text('#!/bin/sh\n[ "$1" = record ] && set -- "$@" -C 4095\nexec /usr/bin/perf "$@"\n')
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with live.open_testbed() as testbed:
        with pytest.raises(RxbookError, match="perf record") as caught:
            record.profile_cells(testbed, [live.cell()], tmp_path / "p", make_plan({}), 1)
        assert "\n" not in str(caught.value)
        assert not list(Path(tempfile.gettempdir()).glob(f"rxbook-perf-{testbed.receiver.pid}-*"))
