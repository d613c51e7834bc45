# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All runs of a folder, read at once as they are read one by one, and the figure of each cell. SIMULATED windows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import simulated_runs
from rxbook import history, instructions, runs, trend
from rxbook.plan import Cell
from rxbook.statistics import cell_interval, cells_of, per_boot
from simulated_nights import night


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


# --- reading


def test_runs_are_read_at_once_as_they_are_one_by_one():
    loaded = history.load(runs.SAMPLES)
    assert len(loaded.about) == len(list(runs.SAMPLES.glob("*/plan.json"))) > 1 and not loaded.unread
    assert loaded.about["recorded"].all() and loaded.about["started_utc"].is_monotonic_increasing
    for name, read in loaded.samples.groupby("run"):
        own = runs.load(runs.SAMPLES / name).samples[history.COLUMNS]
        pd.testing.assert_frame_equal(
            read[history.COLUMNS].reset_index(drop=True).astype(object),
            own.astype(object).where(own.notna(), np.nan),
            check_dtype=False,
        )


@pytest.mark.parametrize("variant", ["NA", "6.10", 'a, "quoted" one', "null", "True"])
def test_a_variant_stays_the_text_that_it_is(tmp_path, variant):
    night(tmp_path, 0, variant=variant)
    assert set(history.load(tmp_path).samples["variant"]) == {variant}


def test_an_interrupted_run_counts_without_the_line_that_was_cut(tmp_path):
    path = night(tmp_path, 0)
    night(tmp_path, 1)
    (path / "run.json").unlink()
    whole = (path / "samples.csv").read_text()
    (path / "samples.csv").write_text(
        whole + whole.splitlines()[-1][:-3]
    )  # would be one more, of other figures
    loaded = history.load(tmp_path)
    assert loaded.samples.groupby("run").size().tolist() == [12, 12]
    assert loaded.about["status"].tolist() == ["interrupted", "finished"]


def test_one_damaged_line_hides_no_other_run_of_the_same_columns(tmp_path):
    good, bad = night(tmp_path, 0), night(tmp_path, 1)
    (bad / "samples.csv").write_text((bad / "samples.csv").read_text().replace("cpumap", "cpumap,", 1))
    loaded = history.load(tmp_path)
    assert loaded.samples["run"].tolist() == [good.name] * 12
    assert [said.partition(" ")[0] for said in loaded.unread] == [bad.name]


def test_a_run_that_has_measured_nothing_yet_is_passed_over(tmp_path):
    night(tmp_path, 0)
    simulated_runs.begin(tmp_path / "empty", rows=0).close()
    simulated_runs.begin(tmp_path / "none", rows=0).close()
    (tmp_path / "none" / "samples.csv").unlink()
    loaded = history.load(tmp_path)
    assert len(loaded.about) == 3 and loaded.samples["run"].nunique() == 1 and not loaded.unread


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("samples.csv", "block,mpps\n0,fast\n", "samples.csv is damaged"),
        ("samples.csv", "block,mpps\n0,1,2\n", "samples.csv is damaged"),
        ("plan.json", "[]", "host.json is damaged"),
        ("host.json", "{", "host.json is damaged"),
        ("host.json", "[]", "host.json is damaged"),
    ],
)
def test_what_cannot_be_read_is_named_and_does_not_hide_the_others(tmp_path, file, text, why):
    good, bad = night(tmp_path, 0), night(tmp_path, 1)
    (bad / file).write_text(text)
    loaded = history.load(tmp_path)
    assert set(loaded.samples["run"]) == {good.name}
    (said,) = loaded.unread
    assert said.startswith(f"{bad.name} cannot be read") and why in said
    assert f"WARNING: {said}." in trend.of(tmp_path).notes


# --- the figure of a run


@pytest.mark.parametrize("value", ["mpps", "ns_per_packet"])
def test_the_figures_are_those_of_the_runs_own_tables(value):
    found = history.figures(history.load(runs.SAMPLES), value)
    seen = 0
    for path in sorted(runs.SAMPLES.glob("*/plan.json")):
        samples = runs.load(path.parent).samples
        assert (samples["flags"] != "").any()
        for windows in cells_of(samples):
            own = found[(found["run"] == path.parent.name)]
            for name in set(Cell.model_fields):
                own = own[own[name] == windows[name].iloc[0]]
            (row,), interval = own.to_dict("records"), cell_interval(windows, value)
            expected = (
                interval.centre,
                interval.low,
                interval.high,
                interval.n,
                interval.bound,
                len(windows),
            )
            assert [
                row[name] for name in ("centre", "low", "high", "n", "bound", "windows")
            ] == pytest.approx(expected, nan_ok=True)
            seen += 1
    assert seen == len(found)


def test_flagged_windows_are_left_out_and_a_limited_cell_is_a_bound(tmp_path):
    clean = night(tmp_path, 0, gro="off", blocks=10)
    night(tmp_path, 7, gro="off", blocks=10, flag=("pressure", slice(0, 4)))
    night(tmp_path, 14, gro="off", blocks=10, flag=("sender_limited", slice(0, 3)))
    for name, _ in runs.list_runs(tmp_path)[1:]:
        path = tmp_path / name / "samples.csv"
        samples = runs.read_samples(path)
        samples.loc[samples["flags"] != "", "mpps"] *= 3
        samples.to_csv(path, index=False)
    found = history.figures(history.load(tmp_path))
    assert found["n"].tolist() == [10, 6, 10] and found["windows"].tolist() == [10, 10, 10]
    assert found["bound"].tolist() == [False, False, True]
    assert found["centre"].iloc[0] == pytest.approx(found["centre"].iloc[1])
    assert found["run"].iloc[0] == clean.name
    (one,) = trend.of(tmp_path).series
    assert one.points["judged"].tolist() == [True, True, False]
    assert "4 of 30 windows are flagged and left out." in trend.of(tmp_path).notes


GUEST = {"guests": {"count": "instructions", "kernels": {"patch 3": {"kernel_release": "7.2.1"}}}}


def in_guests(folder, number, boots, **columns):
    rows = {"variant": "patch 3", "boot": np.repeat(range(boots), 2)} | columns
    return night(folder, number, blocks=boots, host=GUEST, columns=rows)


def test_instructions_are_series_of_their_own(tmp_path):
    night(tmp_path, 0)
    counts = [6000.0, 1700.0, 6010.0, 1700.0, 9.0, 1704.0]
    flags = ["", "", "", "", "drops", ""]
    path = in_guests(tmp_path, 1, 3, instructions_per_packet=counts, mpps=np.nan, flags=flags)
    found = trend.of(tmp_path)
    assert sorted({(one.value, one.points["label"][0]) for one in found.series}) == [
        ("instructions_per_packet", "patch 3"), ("mpps", ""),
    ]  # fmt: skip
    samples = runs.load(path).samples
    for one in found.series:
        if one.value == "mpps":
            continue
        (point,) = one.points.to_dict("records")
        own = instructions.counts(samples[samples["gro"] == one.cell["gro"]])
        assert (point["centre"], point["n"]) == (own.mean, own.boots)
        assert (point["high"] - point["low"]) / 2 == pytest.approx(own.half_range)
        assert point["kernel"] == "7.2.1" and one.name.endswith("kernel patch 3, instructions")


def test_in_timed_guests_each_boot_is_one_value(tmp_path):
    path = in_guests(tmp_path, 0, 5)
    found = history.figures(history.load(tmp_path))
    assert set(found["of"]) == {"guests"} and set(found["n"]) == {5}
    for windows in cells_of(per_boot(runs.load(path).samples)):
        (centre,) = found[found["gro"] == windows["gro"].iloc[0]]["centre"]
        assert centre == pytest.approx(cell_interval(windows).centre)


def test_releases_follow_each_other_and_a_named_kernel_is_a_series(tmp_path):
    night(tmp_path, 0, gro="on")
    night(tmp_path, 1, gro="on", kernel="6.19.0")
    night(tmp_path, 2, gro="on", variant="patch 3")
    night(tmp_path, 3, gro="on", aa=True)
    plain, named = trend.of(tmp_path).series
    assert plain.points["kernel"].tolist() == ["6.18.1", "6.19.0", "6.18.1"]
    assert plain.points["windows"].tolist() == [6, 6, 6]  # the A/A run's first name
    assert named.name.endswith("GRO on, kernel patch 3") and len(named.points) == 1


def test_machines_are_kept_apart(tmp_path):
    night(tmp_path, 0, gro="on", host={"cpu_model": "One"})
    night(tmp_path, 1, gro="on", host={"cpu_model": "Two"})
    one, two = trend.of(tmp_path).series
    assert one.name.endswith("One") and two.name.endswith("Two")
