# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The pictures of simulated samples: what they show, and that nothing is cut off."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from matplotlib import pyplot

from rxbook import words
from rxbook.figures import gro_bars, window_strip
from rxbook.statistics import cells_of, counted
from synthetic import cells, flag, simulate

BOTH = pytest.mark.parametrize("draw", [gro_bars, window_strip])


@pytest.fixture(scope="module")
def sweep():
    return simulate(
        cells(gro=["off", "on"], frame_size=[64, 128, 256, 512, 1024, 1500], udp_csum=["computed", "zero"]),
        blocks=10,
    )


@pytest.fixture(scope="module")
def limited():
    return simulate(cells(variant=["before", "after"], gro=["off", "on"]), blocks=20, factors={"after": 3.0})


def drawn(figure):
    """All words of a figure, which is drawn to PNG on the way."""
    png = io.BytesIO()
    figure.savefig(png)
    assert png.getvalue().startswith(b"\x89PNG")
    return " ".join(item.get_text() for item in figure.findobj(lambda item: hasattr(item, "get_text")))


def cut_off(figure):
    """Texts that reach over the edge of the picture."""
    figure.draw_without_rendering()
    page = figure.bbox
    boxes = {
        item.get_text(): item.get_window_extent()
        for item in figure.findobj(lambda item: hasattr(item, "get_text"))
        if item.get_visible() and item.get_text().strip(" .0123456789")  # no ticks beyond an axis' end
    }
    return [
        words for words, box in boxes.items() if box.x0 < -1 or box.x1 > page.x1 + 1 or box.y1 > page.y1 + 1
    ]


@BOTH
def test_twelve_traffics_fit_into_800_pixels(sweep, draw):
    figure = draw(sweep, source="RECORDED 2026-12-01 on a 2-core virtual machine")
    assert figure.get_size_inches()[0] * figure.dpi == 800
    assert not cut_off(figure)
    assert "1500-byte frames, UDP checksum zero" in drawn(figure).replace("\n", " ")


@BOTH
def test_the_source_is_told_and_framed_unless_measured(sweep, draw):
    recorded = draw(sweep, source="recorded 2026-12-01 on a machine")
    assert "RECORDED 2026-12-01 on a machine" in drawn(recorded)
    assert recorded._suptitle.get_bbox_patch() is not None
    measured = draw(sweep)
    assert "measured 2026-12-01" in drawn(measured)
    assert measured._suptitle.get_bbox_patch() is None


@BOTH
def test_pyplot_knows_nothing_of_it(sweep, draw):
    draw(sweep)
    assert pyplot.get_fignums() == []


@BOTH
def test_nothing_measured_is_said(sweep, draw):
    assert "no window was measured" in drawn(draw(sweep.iloc[:0]))


def test_bars_start_at_zero_and_show_intervals(sweep):
    axes = gro_bars(sweep).axes[0]
    assert axes.get_xlim()[0] == 0
    assert len(axes.containers) == 24 + 24  # a bar and its interval for each cell
    assert "Mpps" in axes.get_xlabel()


def test_a_bound_is_hatched_and_labelled_and_has_no_interval(limited):
    figure = gro_bars(limited)
    hatched = [bar for bar in figure.axes[0].patches if bar.get_hatch()]
    assert len(hatched) == 1
    assert ">=2." in drawn(figure) and "limited by the sender" in drawn(figure)
    assert "limited by the sender" not in drawn(gro_bars(limited[limited["variant"] == "before"]))


def test_a_cell_that_was_not_measured_has_no_bar(sweep):
    assert len(gro_bars(sweep[sweep["gro"] == "off"]).axes[0].patches) == 12


def test_strip_has_one_panel_a_traffic_and_a_point_a_window(sweep):
    figure = window_strip(sweep)
    assert len(figure.axes) == 12
    points = sum(
        len(line.get_xdata()) for axes in figure.axes for line in axes.lines if line.get_marker() == "."
    )
    assert points == len(sweep)
    assert all(axes.get_ylim()[0] == 0 for axes in figure.axes)


def test_flagged_windows_are_marked_and_counted(sweep):
    spoilt = flag(flag(sweep, [3, 40], "pressure"), [40, 99], "short")
    spoilt["flags"] = spoilt["flags"].where(spoilt["flags"] != "")  # as a careless read_csv leaves it
    figure = window_strip(spoilt)
    markers = pd.Series(
        [line.get_marker() for axes in figure.axes for line in axes.lines for _ in line.get_xdata()]
    ).value_counts()
    assert (markers["."], markers["x"], markers["+"]) == (len(sweep) - 3, 2, 1)
    assert "2 pressure" in drawn(figure) and "2 short" in drawn(figure)


@BOTH
def test_the_caption_has_machine_and_n(sweep, draw):
    spoilt = flag(sweep, [3, 40], "pressure")
    said = drawn(draw(spoilt, machine="2-CPU VM, Linux 6.18.44"))
    counts = [len(counted(windows)) for windows in cells_of(spoilt)]
    seconds = sweep["window_s"].median()
    assert f"2-CPU VM, Linux 6.18.44; n = {min(counts)} to {max(counts)} windows of {seconds:g} s" in said
    assert f"n = {max(counts)} windows" in drawn(draw(sweep[sweep["frame_size"] == 1500]))


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.1003, "0.1 s"), (0.0502, "0.05 s"), (1.2502, "1.25 s"), (10.0, "10 s")]
)
def test_the_length_of_a_window(sweep, seconds, said):
    assert words.window(sweep.assign(window_s=seconds)) == said


def test_runs_put_together_begin_at_zero_each(limited):
    later = limited.assign(
        start_utc=[(pd.Timestamp(time) + pd.Timedelta(hours=5)).isoformat() for time in limited["start_utc"]]
    )
    figure = window_strip(pd.concat([limited, later]))
    assert figure.axes[0].get_xlim()[1] < 60
