# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report.txt: what it says, that it fits a mail, and that its last command measures the same again."""

from __future__ import annotations

import shlex

import pytest

import simulated_runs
from rxbook import notebooks, summary
from rxbook.cli import _parse
from rxbook.plan import Plan, make_plan
from rxbook.runs import recorded


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulated_runs.finished(tmp_path_factory.mktemp("runs") / "run", variant="patch 3")


@pytest.mark.parametrize("source", ["simulated", "recorded"])
def test_it_fits_a_mail(run, source):
    text = summary.text(run if source == "simulated" else recorded("gro_on_off"))
    assert text.isascii() and max(map(len, text.splitlines())) <= 72
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_it_says_what_how_and_what_is_flagged(run):
    text = summary.text(run)
    head, *_ = text.split("\n\n")
    assert len(head.splitlines()) <= 4 and "1 x IP/UDP" in head and "checksum computed and zero" in head
    for part in (
        "How it was measured",
        "mitigations",
        "offloads",
        "(seed 1)",
        "Flagged",
        "To measure it again",
    ):
        assert part in text
    assert text.count("half-width of the 95 % interval") == 1  # a note is said once


def test_a_recorded_run_says_so():
    assert "RECORDED 2026" in summary.text(recorded("gro_on_off")).split("\n\n")[0]


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"frame_sizes": [64, 1518], "flows": 64, "burst": [1, 16], "variant": "patch 3, v2", "aa": True},
        {"shapes": "ip-udp,ipip-tcp", "frame_sizes": 1518, "udp_csum": "computed"},
        {
            "functions": ["*_gro_receive"],
            "families": {"flush": ["a", "b*"], "copy": ["memcpy"]},
            "profile": False,
        },
    ],
)
def test_its_command_measures_the_same_again(tmp_path, parameters):
    run = simulated_runs.finished(tmp_path / "run", **parameters)
    words = shlex.split(notebooks.command(run))
    assert words[:3] == ["rxbook", "run", "gro_on_off"]
    own = {
        name: value for name, value in notebooks.declared("gro_on_off").items() if name in Plan.model_fields
    }
    again = make_plan(own | _parse([word for word in words[3:] if word != "--set"]))
    assert again.model_dump() == run.plan.model_dump() | {"seed": 1}
