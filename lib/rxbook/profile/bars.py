# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The table of functions as a picture."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rxbook import words
from rxbook.figures import COLOURS, titled
from rxbook.profile.function_words import cut, figure
from rxbook.statistics import Interval
from rxbook.tables import Table

GROUP = 0.8  # of the distance between two rows
AXES = {
    "share_percent": ("share of samples in %", 2),
    "ns_per_packet": ("ns per packet", 1),
    "cycles_per_packet": ("cycles per packet", 1),
    "instructions_per_packet": ("instructions per packet", 1),
}


def function_bars(table: Table, *, most: int = 16) -> Figure:
    """A table of functions as horizontal bars, one for each column, with 95 % intervals; 800 pixels wide.

    Families stand on top, in bold. The bars are costs per packet where the table has them, else shares; rows that
    say what is left or the whole, and those beyond `most`, are left out.
    """
    frame = table.frame
    measure = _measure(frame)
    if len(frame):
        frame = frame[~frame["row"].isin(["all", "other"])]
    rows = frame.groupby(["group", "row", "function", "dso"], sort=False) if len(frame) else ()
    lines = [line for _, line in rows if line[measure].notna().any()][:most]
    columns = list(dict.fromkeys(frame["column"])) if len(frame) else []
    height = 0.9 + len(lines) * (0.14 + 0.14 * max(1, len(columns)))
    said = "; ".join(filter(None, (*table.about, _sizes(table.frame))))
    figure = titled(height, words.marked(table.source), table.title, said)
    axes = figure.add_subplot()
    thickness = GROUP / max(1, len(columns))
    for position, line in enumerate(lines):
        for place, (_, record) in enumerate(line.iterrows()):
            middle = position + (place - (len(columns) - 1) / 2) * thickness
            _bar(axes, middle, thickness, record, measure, COLOURS[place % len(COLOURS)])
    _rows(axes, lines)
    longest = axes.dataLim.x1
    # Room for the figures at the bars' ends; not finite where nothing is known.
    axes.set_xlim(0, 1.2 * longest if np.isfinite(longest) and longest > 0 else 1)
    known = len(frame) and frame[f"{measure}_low"].notna().any()
    axes.set_xlabel(AXES[measure][0] + ", 95 % interval" * bool(known), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    for place, name in enumerate(columns):
        axes.barh(np.nan, np.nan, color=COLOURS[place % len(COLOURS)], label=name)
    if columns:
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _measure(frame: pd.DataFrame) -> str:
    """What the bars show: the cost where any row has one."""
    costs = [name for name in AXES if name in frame and frame[name].notna().any()]
    return costs[-1] if costs else "share_percent"


def _sizes(frame: pd.DataFrame) -> str:
    """Of how many samples each column is; "" where what perf printed tells none."""
    counts = frame.loc[frame["row"] == "all", "samples"].dropna() if len(frame) else ()
    each = dict.fromkeys(f"{int(count)}" for count in counts)
    return f"n = {' and '.join(each)} samples" if each else ""


def _bar(axes: Axes, position: float, thickness: float, record: pd.Series, measure: str, colour: str) -> None:
    found = Interval(record[measure], record[f"{measure}_low"], record[f"{measure}_high"], 0)
    if np.isnan(found.centre):
        return
    axes.barh(position, found.centre, thickness * 0.92, color=colour)
    end = found.centre
    if not np.isnan(found.low):
        reach = [[found.centre - found.low], [found.high - found.centre]]
        axes.errorbar(found.centre, position, xerr=reach, color="0.2", capsize=2, linewidth=1)
        end = found.high
    shown = figure(found, AXES[measure][1], bare=True)
    axes.annotate(shown, (end, position), (4, 0), textcoords="offset points", va="center", fontsize=7)


def _rows(axes: Axes, lines: list[pd.DataFrame]) -> None:
    names = [line.iloc[0] for line in lines]
    said = [f"{name['group']}: {name['function']}" if name["group"] else name["function"] for name in names]
    axes.set_yticks(range(len(lines)), list(map(cut, said)), fontsize=8)
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name["row"] == "family" else "normal")
        tick.set_parse_math(False)
    axes.set_ylim(len(lines) - 0.45 if lines else 1, -0.55)
