# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs compared, on SIMULATED windows whose true difference is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import simulated_runs
import synthetic
from rxbook import RxbookError, comparison, render, runs
from rxbook.comparison import CANNOT_TELL, FAILED, percent, verdict

BLOCKS = 60  # with two cells and a window each 1.05 s: settled


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A finished run whose windows each test replaces."""
    return simulated_runs.finished(tmp_path_factory.mktemp("runs") / "template")


@pytest.fixture
def simulated(template):
    """Makes a loaded run of SIMULATED windows; factor: its rate relative to that of others."""

    def make(
        name, variant="same", factor=1.0, seed=1, blocks=BLOCKS, hour=10, host=None, status="finished", **axes
    ):
        cells = [cell | {"variant": variant} for cell in synthetic.cells(**({"gro": ["off", "on"]} | axes))]
        samples = synthetic.simulate(
            cells,
            blocks,
            seed=seed,
            factors={variant: factor},
            window_s=1.0,
            start=f"2026-12-01T{hour}:00:00Z",
        )
        path = template.path.parent / name
        return replace(template, path=path, samples=samples, host=template.host | (host or {}), status=status)

    return make


def row(table, variant, position=0):
    return table.frame[table.frame["variant"] == variant].iloc[position]


def warnings(table):
    return [note for note in table.notes if note.startswith("WARNING")]


# --- the difference


def test_a_true_difference_lies_in_the_interval(simulated):
    missed = 0
    for seed in range(0, 28, 2):
        pair = [simulated("one", "a", seed=seed), simulated("two", "b", 1.3, seed=seed + 1, hour=11)]
        found = row(comparison.comparison(pair), "b")
        missed += not found["off_vs_first_percent_low"] < 30 < found["off_vs_first_percent_high"]
        assert found["off_vs_first_percent_low"] > 0 and found["settled"]
    assert missed <= 2  # of 14, where fewer than 1 is expected


def test_the_table_fits_a_mail_and_says_what_kind_of_difference_it_is(simulated):
    table = comparison.comparison([simulated("one", "baseline"), simulated("two", "patch", seed=2)])
    text = render.text(table)
    assert "patch diff" in text and "not paired, so wider" in text and max(map(len, text.splitlines())) <= 72
    assert warnings(table) == []


def test_no_difference_is_a_tilde(simulated):
    table = comparison.comparison([simulated("one", seed=3), simulated("two", seed=4, hour=11)])
    assert list(table.frame["variant"]) == ["A", "B"]
    difference = table.sections[0].rows[-1]
    assert difference[0] == "B diff" and sum(cell.startswith("~ +/-") for cell in difference) == 2
    assert "A: one; variant same." in table.notes and "B: two; variant same." in table.notes


def test_runs_at_one_time_are_two_runs(simulated):
    table = comparison.comparison([simulated("one", seed=5), simulated("two", factor=2, seed=6)])
    assert row(table, "B")["off_vs_first_percent"] > 50 and row(table, "A")["off_windows"] == BLOCKS


def test_three_runs_are_each_compared_with_the_first(simulated):
    table = comparison.comparison(
        [simulated(f"run{n}", f"v{n}", factor, seed=n) for n, factor in enumerate((1, 1.5, 0.6))]
    )
    assert row(table, "v1")["off_vs_first_differs"] and row(table, "v2")["off_vs_first_percent_high"] < 0


def test_cost_per_packet_is_compared_too(simulated):
    pair = [simulated("one", "a", seed=1), simulated("two", "b", 0.5, seed=2)]
    found = row(comparison.comparison(pair, "ns_per_packet"), "b")
    assert found["off_vs_first_percent_low"] < 100 < found["off_vs_first_percent_high"]


def test_repeats_of_a_variant_stand_in_one_row_and_their_luck_is_in_the_interval(simulated):
    luck = (1.0, 1.12, 1.12, 1.0, 0.9, 1.02)  # A and B have the same on average
    made = [
        simulated(f"run{n}", "AB"[n % 2], factor, seed=20 + n, hour=10 + n, blocks=20)
        for n, factor in enumerate(luck)
    ]
    pooled = comparison.comparison(made)
    assert list(pooled.frame["variant"]) == ["A", "B"] and pooled.frame["settled"].all()
    found = row(pooled, "B")
    assert found["runs"] == "run1; run3; run5" and not found["off_vs_first_differs"]
    assert found["off_vs_first_percent_high"] - found["off_vs_first_percent_low"] > 15
    assert "Runs of one variant are repeats: 3 of A, 3 of B." in pooled.notes
    alone = comparison.comparison(made[:2])
    assert any("luck of a boot or a day is not in" in note for note in alone.notes)
    assert any("luck of a boot or a day is in" in note for note in pooled.notes)


def test_of_an_aa_run_the_first_name_counts(simulated, template):
    aa = simulated("two", "x (A)", seed=2)
    again = aa.samples.assign(variant="x (A again)", mpps=9.0)
    plan = template.plan.model_copy(update={"aa": True})
    aa = replace(aa, samples=pd.concat([aa.samples, again]), plan=plan)
    table = comparison.comparison([simulated("one", "base"), aa])
    assert row(table, "x")["off_windows"] == BLOCKS and row(table, "x")["off_mpps"] < 1
    assert warnings(table) == ["WARNING: x: two is an A/A run, of which the first name's windows count."]


# --- cells


def test_cells_that_not_all_have_are_named_and_left_out(simulated):
    both = [simulated("one", frame_size=[64, 512], blocks=20), simulated("two", seed=2, blocks=20)]
    table = comparison.comparison(both)
    assert len(table.sections) == 1 and "64-byte" in table.sections[0].heading
    assert "Not compared, as not all have it: 512-byte frames (only A)." in table.notes
    table = comparison.comparison([simulated("one", blocks=20), simulated("two", blocks=20, gro=["off"])])
    assert "Not compared, as not all have it: GRO on (only A)." in table.notes
    assert list(table.frame["off_compared"]) == [False, True] and not table.frame["on_compared"].any()


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"name": "two", "frame_size": [512]}, "no cell was measured in all"),
        ({"name": "one"}, "one is named twice"),
        ({"name": "two", "blocks": 0}, "two has no windows"),
        ({"name": "two", "variants": True}, "two holds several variants"),
    ],
)
def test_what_cannot_be_compared_is_refused(simulated, second, said):
    several = second.pop("variants", False)
    other = simulated(**{"blocks": 6} | second)
    if not other.samples.size:
        other = replace(other, samples=simulated("one", blocks=6).samples.iloc[:0])
    if several:
        other.samples.loc[::2, "variant"] = "other"
    with pytest.raises(RxbookError, match=said):
        comparison.comparison([simulated("one", blocks=6), other])


def test_one_run_is_too_few(simulated):
    with pytest.raises(RxbookError, match="1 run named: a comparison needs two or more"):
        comparison.comparison([simulated("one", blocks=6)])


# --- what else differed


def test_what_else_differed_is_named_first(simulated, template):
    before = {
        "kernel_release": "6.12.9",
        "cmdline": "psi=1 mitigations=auto",
        "mitigations": {"spectre_v2": "Mitigation: Retpolines", "retbleed": "Vulnerable"},
        "governor": "performance",
        "versions": {"libbpf": "1.1", "python": "3.11.7"},
        "load_1min": 0.1,
        "cpu_model": "A CPU of a very long name of more than forty characters",
    }
    after = {
        "kernel_release": "6.13.1",
        "cmdline": "mitigations=off nosmt psi=1",
        "mitigations": {"spectre_v2": "Vulnerable", "retbleed": "Vulnerable"},
        "governor": None,
        "versions": {"libbpf": "1.4", "python": "3.11.7"},
        "load_1min": 0.7,
        "cpu_model": "Another CPU",
    }
    other = simulated("two", seed=2, host=after)
    plan = template.plan.model_copy(update={"queue_size": 512, "blocks": 99, "top": 7})
    table = comparison.comparison([simulated("one", host=before), replace(other, plan=plan)])
    first, second, *_ = table.notes
    assert set(first.removeprefix("WARNING: also different: ").rstrip(".").split(", ")) == {
        "kernel 6.12.9 / 6.13.1",
        "kernel option mitigations auto / off",
        "kernel option nosmt none / set",
        "mitigation spectre_v2 Mitigation: Retpolines / Vulnerable",
        "CPU",
        "governor performance / none",
        "libbpf 1.1 / 1.4",
    }
    assert second == "WARNING: measured differently: queue_size 2048 / 512."


def test_a_fact_that_one_run_lacks_is_not_called_different(simulated):
    made = [simulated("one"), simulated("two", seed=2)]
    del made[0].host["microcode"]
    assert warnings(comparison.comparison(made)) == []


def test_repeats_that_differ_from_each_other_are_seen(simulated):
    made = [
        simulated(f"run{n}", "ab"[n % 2], seed=n, host={"governor": governor})
        for n, governor in enumerate(("powersave", "performance", "performance", "performance"))
    ]
    assert warnings(comparison.comparison(made)) == [
        "WARNING: also different: governor powersave or performance / performance."
    ]


def test_unfinished_and_recorded_runs_are_marked(simulated):
    recorded = replace(simulated("two", "b", seed=2), recorded=True)
    table = comparison.comparison([simulated("one", "a", status="interrupted"), recorded])
    assert "WARNING: a: one is interrupted, not finished." in table.notes
    assert "WARNING: b: two is recorded elsewhere or before." in table.notes
    assert table.source.startswith("measured, interrupted and RECORDED")


def test_the_days_of_the_runs_are_named(simulated):
    made = [simulated("one"), simulated("two", seed=2)]
    assert comparison.comparison(made).source == "measured 2026-12-01"
    later = made[1].samples.assign(start_utc=made[1].samples["start_utc"].str.replace("-12-01", "-12-03"))
    made[1] = replace(made[1], samples=later)
    assert comparison.comparison(made).source == "measured 2026-12-01 to 2026-12-03"


def test_a_short_run_is_warned_of(simulated):
    table = comparison.comparison([simulated("one", blocks=20), simulated("two", seed=2)])
    assert [note.split(":")[1] for note in warnings(table)] == [" A measured for less than 100 s"]


# --- the verdict


@pytest.mark.parametrize(
    ("factor", "limit", "blocks", "status"),
    [
        (0.4, -3, BLOCKS, FAILED),
        (1.0, -50, BLOCKS, 0),
        (1.0, -0.5, BLOCKS, CANNOT_TELL),
        (1.5, 1, BLOCKS, 0),  # a gain that is demanded
        (0.4, -3, 20, CANNOT_TELL),  # too short a run to be sure of anything
    ],
)
def test_the_status_says_what_is_shown(simulated, factor, limit, blocks, status):
    pair = [simulated("one", "a", blocks=blocks), simulated("two", "b", factor, seed=2, blocks=blocks)]
    found = verdict(comparison.comparison(pair), limit)
    assert found.status == status and bool(found.lines) is bool(status)


def test_one_failing_cell_is_named(simulated):
    pair = [simulated("one", "a"), simulated("two", "b", seed=2)]
    pair[1].samples.loc[pair[1].samples["gro"] == "on", "mpps"] /= 3
    found = verdict(comparison.comparison(pair), -40)
    assert found.status == FAILED and len(found.lines) == 1
    assert re.fullmatch(
        r"below -40%: b, 64-byte frames.*, GRO on: -[67]\d\.\d% to -[56]\d\.\d%", found.lines[0]
    )


def test_a_cell_without_figures_does_not_pass(simulated):
    pair = [simulated("one", "a"), simulated("two", "b", seed=2)]
    pair[1].samples.loc[pair[1].samples["gro"] == "on", "flags"] = "pressure"
    found = verdict(comparison.comparison(pair), -60)
    assert found.status == CANNOT_TELL and "GRO on: unknown" in found.lines[0]


def test_a_bound_passes_only_where_it_is_enough(simulated):
    pair = [simulated("one", "a"), simulated("two", "b", 2, seed=2)]
    on = pair[1].samples["gro"] == "on"
    pair[1].samples.loc[on, "flags"] = "sender_limited"
    assert verdict(comparison.comparison(pair), -10).status == 0
    found = verdict(comparison.comparison(pair[::-1]), -3)  # GRO off lost half, GRO on at most so much
    assert found.status == FAILED
    pair[0].samples.loc[pair[0].samples["gro"] == "on", "flags"] = "sender_limited"
    found = verdict(comparison.comparison(pair), -10)  # both limited: nothing is known
    assert found.status == CANNOT_TELL and found.lines[0].endswith("GRO on: open")


@pytest.mark.parametrize(
    ("text", "limit"), [("-3%", -3), ("-3", -3), (" -2.5 % ", -2.5), ("+5%", 5), ("0", 0), ("\u22123%", -3)]
)
def test_limits_are_read(text, limit):
    assert percent(text) == limit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3%", r"say -3% for a loss, \+3% for a gain"),
        ("much", "say a percentage"),
        ("nan", "say a perc"),
        ("-100", "above -100"),
    ],
)
def test_other_limits_are_refused(text, said):
    with pytest.raises(RxbookError, match=said):
        percent(text)


# --- of folders


def test_folders_are_compared_as_they_lie(tmp_path):
    made = [
        simulated_runs.finished(tmp_path / name, udp_csum="computed", variant=name) for name in ("one", "two")
    ]
    host = json.loads((tmp_path / "two" / "host.json").read_text())
    runs.write_json(tmp_path / "two" / "host.json", host | {"smt": "zebra"})
    table = comparison.comparison([runs.load(run.path) for run in made])
    assert table.notes[0].startswith("WARNING: also different: SMT ") and table.notes[0].endswith("/ zebra.")
    assert np.isclose(row(table, "two")["off_vs_first_percent"], 0)  # the same windows
