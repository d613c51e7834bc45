# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf in a run: the receiver's CPU under real traffic, in windows of their own."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pyperf
import pytest

import live
from rxbook import RxbookError, profile, report, runs, workbook
from rxbook.kernel import probes
from rxbook.profile import record

pytestmark = pytest.mark.needs_root

PARAMETERS = {"frame_sizes": 64, "udp_csum": "computed", "blocks": 5, "window_s": 0.05}
QUICK = PARAMETERS | {"profile": True, "profile_s": 0.5}


def run_in(folder, parameters):
    place = {"runs_dir": str(folder), "run_name": "profiled"}
    return live.wait_for_lock(lambda: workbook.run("gro_on_off", parameters | place))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if shutil.which("perf") is None:
        pytest.skip("the perf tool is not installed")
    return run_in(tmp_path_factory.mktemp("runs"), QUICK)


def test_each_cell_has_a_profile_of_the_receivers_cpu_and_its_counters(run):
    found = record.recorded(run.path / "profiles")
    assert [cell.gro for cell, _ in found] == ["off", "on"]
    for cell, data in found:
        functions = profile.load(data).functions
        # the kthread's own work, named from the kallsyms of that moment
        assert functions["symbol"].str.contains("cpu_map_kthread_run").any(), cell
        counted = json.loads(data.with_suffix(".json").read_text())["counted"]
        assert counted["frames"] > 1000


def test_gros_functions_appear_where_gro_is_on(run):
    table = report.table_of(run, "functions_1")
    frame = table.frame
    rows = frame[frame["row"] == "function"].set_index(["function", "column"])["share_percent"]
    assert rows["dev_gro_receive", "GRO on"] > 1
    assert frame["ns_per_packet"].notna().any() or run.samples["flags"].str.contains("pressure").any()


def test_the_pyperf_suite_carries_each_cells_headline(run):
    # on a busy machine every window may be flagged, and a suite have no benchmark
    report.save(replace(run, samples=run.samples.assign(flags="")))
    suite = pyperf.BenchmarkSuite.load(str(run.path / "bench.json")).get_benchmarks()
    found = record.recorded(run.path / "profiles")
    assert len(suite) == len(found) == 2
    for benchmark in suite:
        metadata = benchmark.get_metadata()
        (data,) = (data for cell, data in found if cell.label().endswith(metadata["name"]))
        assert metadata["rxbook_samples"] == profile.load(data).functions["samples"].sum()
        assert re.fullmatch(r"[\d.]+ \+/-[\d.]+ %", metadata["rxbook_family_driver_and_XDP"])


def test_a_profile_is_no_window_whose_rate_counts(run):
    assert len(run.samples) == PARAMETERS["blocks"] * 2


def test_without_perf_the_run_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(probes.shutil, "which", lambda name: None)
    done = run_in(tmp_path, QUICK)
    assert done.status == "finished" and runs.status(done.path) == "finished"
    assert "no perf tool" in capsys.readouterr().err
    assert not [name for name in report.tables_named(done) if name.startswith("functions")]


def test_what_perf_refuses_is_one_line(tmp_path):
    with live.open_testbed() as testbed:
        (cell,) = live.cells(frame_sizes=64, udp_csum="computed", gro="on")
        with pytest.raises(RxbookError, match="perf record"):
            record.record_cells(testbed, [cell], tmp_path / "p", 4095, 0.0, 0.1)
