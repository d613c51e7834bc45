# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cells over many runs: tables and figures that say where they changed. SIMULATED windows."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

import simulated_runs
from rxbook import RxbookError, cli, figures, runs, trend, trend_figure
from simulated_nights import night
from test_figures import cut_off, drawn


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """20 nights; from the 13th on a newer kernel, and GRO on is 10 % slower; in the last night 40 %."""
    folder = tmp_path_factory.mktemp("nights")
    for number in range(20):
        night(folder, number, kernel="6.18.1" if number < 12 else "6.19.0-rc1")
    for number in range(12, 20):
        path = folder / runs.list_runs(folder)[number][0] / "samples.csv"
        samples = runs.read_samples(path)
        slower = 0.9 if number < 19 else 0.6
        samples.loc[samples["gro"] == "on", "mpps"] *= slower
        samples.to_csv(path, index=False)
    return folder


def one_of(found, **cell):
    (one,) = [one for one in found.series if cell.items() <= one.cell.items()]
    return one


# --- what is printed


def test_a_trend_says_what_changed_when_and_what_else_did(nights):
    found = trend.of(nights)
    off, on = one_of(found, gro="off"), one_of(found, gro="on")
    assert not off.changes and not off.apart
    (change,) = on.changes
    assert change.first == 12 and change.difference.ratio == pytest.approx(0.9, abs=0.01) and on.apart
    overview = trend.overview(found)
    assert [len(section.rows) for section in overview.sections] == [1, 2]
    before, after = overview.sections[1].rows
    assert before[:2] == ("2026-11-01", "6.18.1") and before[3:] == ("12", "")
    assert after[:2] == ("2026-11-13", "6.19.0-rc1") and after[3] == "8" and after[4].startswith("-1")
    assert "With 2026-11-13T020000Z-gro_on_off: kernel 6.18.1 / 6.19.0-rc1." in found.notes
    assert any(note.startswith("apart?: the newest run of 1 of 2 cells") for note in found.notes)
    assert found.source == "measured 2026-11-01 to 2026-11-20"


def test_a_table_lists_the_newest_and_where_levels_begin(nights):
    found = trend.of(nights)
    table = trend.series_table(one_of(found, gro="on"), found, last=3)
    rows = [row[:1] for row in table.sections[0].rows]
    days = [row[0][:10] if row else "" for row in rows]
    assert days == ["2026-11-01", "", "2026-11-13", "", "2026-11-18", "2026-11-19", "2026-11-20"]
    assert table.sections[0].rows[2][-1].startswith("-1") and table.sections[0].rows[-1][-1] == "apart?"
    assert table.notes == ("15 of 20 runs are not listed: --last 0 lists all.",)
    assert len(table.frame) == 20 and table.frame["change_percent"].notna().sum() == 1
    assert len(trend.series_table(one_of(found, gro="on"), found, last=0).sections[0].rows) == 20


@pytest.fixture
def rxbook(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["rxbook", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


def test_the_command_prints_tables_for_a_mail(rxbook, nights):
    status, out, err = rxbook("trend", "--runs-dir", nights)
    assert (status, err) == (0, "") and out.count("Over time, Mpps") == 2
    assert all(len(line) <= 72 and line.isascii() for line in out.splitlines())


def test_csv_is_one_table_of_all_runs(rxbook, nights, tmp_path):
    status, out, _ = rxbook("trend", "--runs-dir", nights, "--format", "csv", "--value", "ns_per_packet")
    (tmp_path / "all.csv").write_text(out)
    read = pd.read_csv(tmp_path / "all.csv")
    assert status == 0 and len(read) == 40 and set(read["value"]) == {"ns_per_packet"}
    assert read["centre"].between(500, 5000).all()


def test_tables_and_figures_are_saved(rxbook, nights, tmp_path):
    status, _, err = rxbook("trend", "--runs-dir", nights, "--only", "gro=on", "--save", tmp_path / "out")
    assert status == 0 and err == f"rxbook: tables and figures are in {tmp_path / 'out'}\n"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    (cell,) = {name.rpartition(".")[0] for name in names} - {"overview"}
    assert cell.endswith("_gro_on")
    assert {f"{cell}.{ending}" for ending in ("txt", "md", "html", "csv", "png", "svg")} <= names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--value", "gbps"], "--value gbps: say mpps or ns_per_packet"),
        (["--only", "gro"], "--only gro: write it as NAME=VALUE"),
        (["--only", "frame_sizes=64"], "did you mean frame_size?"),
        (["--only", "gro=on", "--only", "gro=off"], "--only gro is given twice"),
        (["--only", "frame_size=65"], "--only frame_size=65: no run has it; there are: 64"),
        (["--since", "yesterday"], "--since yesterday: say a day"),
        (["--since", "2027-01-01"], "since 2027-01-01: nothing to show"),
        (["--format", "pdf"], "--format pdf: say one of"),
    ],
)
def test_a_mistake_is_answered_in_one_line(rxbook, nights, words, said):
    status, out, err = rxbook("trend", "--runs-dir", nights, *words)
    assert status == 1 and out == "" and err.startswith("rxbook: ") and err.count("\n") == 1 and said in err


def test_a_folder_without_runs_is_told(tmp_path):
    with pytest.raises(RxbookError, match="nothing to show"):
        trend.of(tmp_path)


def test_since_a_day(nights):
    found = trend.of(nights, since="2026-11-18")
    assert {len(one.points) for one in found.series} == {
        3
    } and found.source == "measured 2026-11-18 to 2026-11-20"


# --- the figure


def test_the_figure_shows_kernels_levels_and_the_change(nights):
    found = trend.of(nights)
    figure = trend_figure.draw(one_of(found, gro="on"), found.source)
    shown = drawn(figure)
    assert not cut_off(figure) and figure.get_size_inches()[0] * figure.dpi == 800
    for said in ("6.19.0-rc1", "apart?", "a change", "20 runs, n = 6 in each; 2 kernels, 6.18.1 to 6.19.0-rc1",
                 "Mpps, 95 % interval", "measured 2026-11-01 to 2026-11-20"):  # fmt: skip
        assert said in shown
    assert any(word.startswith("-1") and "%" in word for word in shown.split())
    assert len(figures.png(figure)) < 60_000


def test_a_single_run_and_a_recorded_one_are_drawn():
    found = trend.of(runs.SAMPLES, only={"frame_size": "512"})
    for one in found.series:
        figure = trend_figure.draw(one, found.source)
        assert "RECORDED" in drawn(figure) and not cut_off(figure)
