# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs in one line each, on SIMULATED windows."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

import simulated_runs
from rxbook import listing, report, runs


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


def test_a_line_has_name_state_variant_and_headline(tmp_path):
    simulated_runs.finished(tmp_path / "a-run", variant="patch 3", blocks=20)
    simulated_runs.begin(tmp_path / "b", rows=0).close()
    whole, cut = listing.lines(tmp_path)
    assert re.fullmatch(
        r"a-run  finished     patch 3  64 B computed 0\.\d\d -> 1\.\d\d Mpps \+3\d\d% \+/-\d+", whole
    )
    assert re.fullmatch(r"b      interrupted +no windows", cut)


def test_a_line_is_shortened_at_a_word(tmp_path):
    simulated_runs.finished(tmp_path / "a-run", blocks=20)
    (line,) = listing.lines(tmp_path, 55)
    assert len(line) <= 55 and line.endswith(" ...")
    assert set(line.split()[:-1]) <= set(listing.lines(tmp_path)[0].split())


def test_a_finished_run_is_not_computed_again(tmp_path):
    run = simulated_runs.finished(tmp_path / "a-run")
    record = json.loads((run.path / "run.json").read_text())
    runs.write_json(run.path / "run.json", record | listing.facts(run))
    (run.path / "samples.csv").unlink()
    (line,) = listing.lines(tmp_path)
    assert line.endswith(f"simulated  {listing.headline(run)}")


def test_what_cannot_be_read_does_not_hide_the_others(tmp_path):
    simulated_runs.finished(tmp_path / "a-run")
    simulated_runs.begin(tmp_path / "b-run", rows=1).close()
    (tmp_path / "b-run" / "host.json").write_text("{")
    good, bad = listing.lines(tmp_path)
    assert "Mpps" in good and "cannot be read" in bad and "damaged" in bad


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"aa": True, "blocks": 20}, r"A/A, shows \d+\.\d to \d+\.\d %, \d alarms of 4"),
        ({"protocol": "tcp", "gro": "off", "udp_csum": "computed"}, r"64 B TCP 0\.\d\d Mpps"),
        ({"encap": "none,4in4", "frame_sizes": "512"}, r"512 B computed 0\.\d\d -> \S+ Mpps .*"),
    ],
)
def test_headlines(tmp_path, axes, said):
    run = simulated_runs.finished(tmp_path / "a-run", **axes)
    assert re.fullmatch(said, listing.headline(run))


def test_a_run_whose_windows_are_all_flagged_has_no_figure(tmp_path):
    run = simulated_runs.finished(tmp_path / "a-run")
    run.samples["flags"] = "pressure"
    assert listing.headline(run) == "64 B computed: no window counts"


def test_a_profiled_run_has_the_share_of_gro(tmp_path):
    run = dataclasses.replace(simulated_runs.finished(tmp_path / "run"), notebook="function_cycles")
    (run.path / "tables").mkdir()
    (run.path / "tables" / "functions_1.csv").write_text(
        "row,function,column,share_percent\nfamily,GRO,GRO off,3.14\nfunction,GRO,GRO off,9\nfamily,GRO,GRO on,21\n"
    )
    assert listing.headline(run) == "GRO functions 3.1% (GRO off), 21.0% (GRO on)"


def test_a_report_is_shown_as_it_was_written(tmp_path):
    run = simulated_runs.finished(tmp_path / "a-run")
    assert "UDP GRO, Mpps" in listing.shown(run.path) and "frame size and checksum" in listing.shown(run.path)
    assert report.table_of(run, "windows").title not in listing.shown(run.path)
    (run.path / "report.txt").write_text("mine\n")
    assert listing.shown(run.path) == "mine\n"
