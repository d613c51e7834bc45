# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The picture of a `trend.Series`: every run with its interval, the levels, the changes, and which kernel ran when."""

from __future__ import annotations

import itertools

import matplotlib.dates
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rxbook import history, words
from rxbook.figures import COLOURS, titled
from rxbook.statistics import repeats_interval
from rxbook.trend import APART, UNITS, Series

__all__ = ["draw"]

RUN, LEVEL = COLOURS[0], COLOURS[6]
NAMED_KERNELS = 8
"""Of more kernels only the changes from one to the next are drawn."""


def draw(one: Series, source: str) -> Figure:
    """A figure 800 pixels wide. The axis of values does not begin at 0."""
    figure = titled(3.8, words.marked(source), one.name)
    axes = figure.add_subplot()
    points = one.points.assign(
        when=pd.to_datetime(one.points["started_utc"], format="ISO8601", utc=True).dt.tz_localize(None)
    )
    _runs(axes, points)
    _levels(axes, points)
    _kernels(axes, points)
    _changes(axes, one, points)
    if one.apart:
        newest = points.iloc[-1]
        look = {
            "textcoords": "offset points",
            "ha": "center",
            "va": "top",
            "fontsize": 8,
            "fontweight": "bold",
        }
        axes.annotate(APART, (newest["when"], newest["low"]), (0, -3), **look)
    axes.margins(x=0.03, y=0.16)
    axes.xaxis.set_major_formatter(
        matplotlib.dates.ConciseDateFormatter(axes.xaxis.get_major_locator(), show_offset=False)
    )
    range_of = "range of its boots" if one.value == history.COUNTS else "95 % interval"
    axes.set_ylabel(f"{UNITS[one.value]}, {range_of}", fontsize=9)
    axes.set_xlabel(_caption(points), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=_legend(one, points), loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
    return figure


def _runs(axes: Axes, points: pd.DataFrame) -> None:
    few = len(points) <= 60
    look = {"fmt": ".", "color": RUN, "markersize": 6 if few else 3, "elinewidth": 1 if few else 0.4,
            "capsize": 2 if few else 0, "zorder": 2}  # fmt: skip
    judged, bound = points[points["judged"]], points[points["bound"]]
    others = points[~points["judged"] & ~points["bound"]]
    # a single boot or window has no interval
    reach = np.nan_to_num([judged["centre"] - judged["low"], judged["high"] - judged["centre"]])
    axes.errorbar(judged["when"], judged["centre"], yerr=reach, **look)
    axes.plot(others["when"], others["centre"], "o", color=RUN, fillstyle="none", markersize=4)
    axes.plot(bound["when"], bound["centre"], "^", color=RUN, fillstyle="none", markersize=5)


def _levels(axes: Axes, points: pd.DataFrame) -> None:
    for _, of_level in points.groupby("level"):
        judged = of_level[of_level["judged"]]
        if len(judged) > 1:
            centre = repeats_interval(judged["centre"]).centre
            axes.plot(judged["when"].iloc[[0, -1]], [centre, centre], color=LEVEL, linewidth=1.5, zorder=3)


def _changes(axes: Axes, one: Series, points: pd.DataFrame) -> None:
    for change in one.changes:
        when = points["when"].iloc[change.first]
        axes.axvline(when, color=LEVEL, linestyle="--", linewidth=1, zorder=1)
        axes.annotate(words.change(change.difference), (when, 0.99), (3, 0), xycoords=("data", "axes fraction"),
                      textcoords="offset points", va="top", fontsize=8, fontweight="bold")  # fmt: skip


def _kernels(axes: Axes, points: pd.DataFrame) -> None:
    """Grey bands by turns, each with its kernel's release at the foot, where there is room for names."""
    kernels, starts = points["kernel"].tolist(), points["when"].tolist()
    firsts = [0, *(row for row in range(1, len(points)) if kernels[row] != kernels[row - 1])]
    named = 1 < len(firsts) <= NAMED_KERNELS  # of one the caption tells
    for number, (row, after) in enumerate(itertools.zip_longest(firsts, firsts[1:])):
        end = starts[after] if after is not None else starts[-1]
        if number % 2:
            axes.axvspan(starts[row], end, color="0.93", linewidth=0, zorder=0)
        if named:
            axes.annotate(kernels[row], (starts[row], 0.01), (3, 0), xycoords=("data", "axes fraction"),
                          textcoords="offset points", va="bottom", fontsize=7, color="0.35", rotation=90)  # fmt: skip


def _caption(points: pd.DataFrame) -> str:
    kernels = list(dict.fromkeys(points["kernel"]))
    ran = (
        f"kernel {kernels[0]}"
        if len(kernels) == 1
        else f"{len(kernels)} kernels, {kernels[0]} to {kernels[-1]}"
    )
    n = points["n"][points["n"] > 0]
    counted = (
        "no window counts"
        if n.empty
        else f"n = {n.min()} to {n.max()}"
        if n.min() < n.max()
        else f"n = {n.max()}"
    )
    return f"{len(points)} runs, {counted} in each; {ran}. The axis does not begin at 0."


def _legend(one: Series, points: pd.DataFrame) -> list[Line2D]:
    handles = [Line2D([], [], color=RUN, marker=".", label="a run")]
    if points["bound"].any():
        handles.append(
            Line2D([], [], color=RUN, marker="^", fillstyle="none", linestyle="", label="a lower bound")
        )
    if (~points["judged"] & ~points["bound"]).any():
        handles.append(
            Line2D([], [], color=RUN, marker="o", fillstyle="none", linestyle="", label="too few windows")
        )
    handles.append(Line2D([], [], color=LEVEL, label="mean of a level"))
    if one.changes:
        handles.append(Line2D([], [], color=LEVEL, linestyle="--", label="a change"))
    return handles
