# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Pictures of samples: each function returns a matplotlib Figure 800 pixels wide, outside of pyplot's state.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart. All take `source` as the
tables do: anything but "measured" is framed at the top of the picture. machine: named below it, as kernel and n are.
"""

from __future__ import annotations

import io
import math
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image

from rxbook import instructions, words
from rxbook.instructions import interval_of
from rxbook.plan import Cell
from rxbook.statistics import EXCLUDING_FLAGS, Interval, cells_of, counted, has_flag, number_runs
from rxbook.tables import gro_effect

__all__ = ["COLOURS", "by_axis", "gro_bars", "png", "titled", "window_strip"]

WIDTH_IN = 8.0
DPI = 100
PNG_COLOURS, PNG_DPI = 64, 85
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
GRO_COLOURS = dict(zip(("off", "on"), COLOURS, strict=False))
FLAG_MARKERS = {"sender_limited": "o", "pressure": "x", "short": "+"}
"""Hollow, so that they stand apart from the filled dots of windows that count."""
NOTICE = {"boxstyle": "round,pad=0.4", "facecolor": "#FFF3C4", "edgecolor": "#D55E00"}
HATCHED = {"facecolor": "white", "hatch": "///"}
BAR = 0.38  # of the distance between two groups
AXES = {"frame_size": "frame size, bytes on the wire with the FCS", "udp_csum": "UDP checksum", "gro": "GRO"}
MARKERS = "osD^vP*X"
LINE, PANEL, LABEL = 90, 104, 40  # characters of a line of the title, of all panels side by side, of a label


def png(figure: Figure) -> bytes:
    """A figure as a PNG of few colours: a third of the size, which a page for a mail has to mind.

    Chosen to cover what is drawn, however little of it: by count, whites and greys would take all of them.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=PNG_DPI)
    picture = (
        Image.open(drawn)
        .convert("RGB")
        .quantize(PNG_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    )
    picture.save(small, "png", optimize=True)
    return small.getvalue()


def _figure(
    height_in: float, samples: pd.DataFrame, source: str, machine: str, value: str = "mpps"
) -> Figure:
    """An empty figure that says what all cells share, how many windows a figure has, and whence the samples come."""
    said = "; ".join(filter(None, (machine, _sizes(samples, value))))
    return titled(height_in, words.marked(words.dated(source, samples)), _common(samples), said)


def _sizes(samples: pd.DataFrame, value: str) -> str:
    """Of how many windows, or boots, the figure of each cell is."""
    booted = value == instructions.VALUE
    counts = {
        instructions.counts(windows).boots if booted else len(counted(windows, value))
        for windows in cells_of(samples)
    }
    if not counts:
        return ""
    each = f"n = {min(counts)}" + (f" to {max(counts)}" if len(counts) > 1 else "")
    if booted:
        return f"{each} boots for each figure"
    return f"{each} windows of {words.window(samples)} for each figure"


def titled(height_in: float, source: str, *said: str) -> Figure:
    """An empty figure below these words; the source is framed where it does not say "measured"."""
    lines = [piece for line in (source, *said) for piece in textwrap.wrap(line, LINE)]
    room = 0.3 + 0.17 * len(lines)  # inches; the layout knows nothing of a title's frame
    figure = Figure(figsize=(WIDTH_IN, height_in + room), dpi=DPI, layout="constrained")
    top = 1 - room / (height_in + room)
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.06, rect=(0, 0, 1, top))
    framed = {} if source.startswith("measured") else {"bbox": NOTICE, "fontweight": "bold"}
    title = figure.suptitle("\n".join(lines), y=(1 + top) / 2, va="center", fontsize=10, **framed)
    title.set_in_layout(False)
    return figure


def _common(samples: pd.DataFrame) -> str:
    if samples.empty:
        return "no window was measured"
    first = samples.iloc[0]
    said = words.traffic(first, set(words.SHAPE) - words.varying(samples))
    return f"{first['variant']}: {said}" if samples["variant"].nunique() == 1 else said


def gro_bars(samples: pd.DataFrame, *, source: str = "measured", machine: str = "") -> Figure:
    """Mpps with GRO off and on, one pair of bars for each traffic and variant, with 95 % intervals."""
    groups = [
        (_group_label(samples, windows, name), gro_effect(windows[windows["variant"] == name]))
        for _, windows in words.shapes(samples)
        for name in words.variant_order(windows)
    ]
    figure = _figure(1.2 + 0.5 * max(1, len(groups)), samples, source, machine)
    axes = figure.add_subplot()
    for position, (_, effect) in enumerate(groups):
        _bar(axes, position - BAR / 2, effect.off, effect.off_segs, GRO_COLOURS["off"])
        _bar(axes, position + BAR / 2, effect.on, effect.on_segs, GRO_COLOURS["on"])
    axes.set_yticks(range(len(groups)), [label for label, _ in groups], fontsize=8)
    axes.set_ylim(len(groups) - 0.45, -0.55)
    longest = axes.dataLim.x1  # not finite where every window was left out
    axes.set_xlim(
        0, 1.25 * longest if np.isfinite(longest) and longest > 0 else 1
    )  # room for the figures at the bars' ends
    axes.set_xlabel("Mpps that the receiver processed, 95 % interval (segs: frames per skb)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=colour, label=f"GRO {gro}") for gro, colour in GRO_COLOURS.items()]
    if any(found and found.bound for _, effect in groups for found in (effect.off, effect.on)):
        handles.append(Patch(label="a lower bound: limited by the sender", **HATCHED, edgecolor="0.3"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _group_label(samples: pd.DataFrame, windows: pd.DataFrame, variant: str) -> str:
    """What tells one pair of bars from the others."""
    said = words.traffic(windows.iloc[0], words.varying(samples))
    named = samples["variant"].nunique() > 1 or not said
    return "\n".join([variant] * named + textwrap.wrap(said, LABEL))


def _bar(axes: Axes, position: float, found: Interval | None, segs: float, colour: str) -> None:
    if found is None or np.isnan(found.centre):
        return
    looks: dict[str, Any] = HATCHED | {"edgecolor": colour} if found.bound else {"color": colour}
    axes.barh(position, found.centre, BAR, **looks)
    end = found.centre
    if not found.bound and not np.isnan(found.low):
        reach = [[found.centre - found.low], [found.high - found.centre]]
        axes.errorbar(found.centre, position, xerr=reach, color="0.2", capsize=2.5, linewidth=1)
        end = found.high
    label = f"{words.figure(found, 'mpps').split(' ')[0]} ({segs:.1f} segs)"
    axes.annotate(label, (end, position), (5, 0), textcoords="offset points", va="center", fontsize=8)


def window_strip(samples: pd.DataFrame, *, source: str = "measured", machine: str = "") -> Figure:
    """Mpps of every window over time, so that drift, slow windows and flags are seen.

    One panel for each traffic, one colour for each variant and GRO setting; flagged windows by their mark.
    """
    samples = _with_seconds(samples)
    panels = list(words.shapes(samples))
    columns = 1 if len(panels) <= 3 else 2
    rows = max(1, math.ceil(len(panels) / columns))
    figure = _figure(1.0 + (2.2 if columns == 1 else 1.5) * rows, samples, source, machine)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False).flatten()
    colours = _cell_colours(samples)
    for axes, (shape, windows) in zip(grid, panels, strict=False):
        _strip(axes, windows, colours)
        said = textwrap.fill(words.traffic(shape, words.varying(samples)), PANEL // columns)
        axes.set_title(said, fontsize=8, loc="left", pad=3)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("seconds since the run began", fontsize=9)
    figure.supylabel("Mpps of each window", fontsize=9)
    figure.legend(
        handles=_strip_legend(samples, colours),
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    return figure


def _with_seconds(samples: pd.DataFrame) -> pd.DataFrame:
    numbered = number_runs(samples)
    times = pd.to_datetime(numbered["start_utc"], format="ISO8601", utc=True)
    since = times - times.groupby(numbered["run"]).transform("min")
    return numbered.assign(seconds=since.dt.total_seconds())


def _cell_colours(samples: pd.DataFrame) -> dict[tuple[str, str], str]:
    present = set(zip(samples["variant"], samples["gro"], strict=True))
    cells = [
        (name, gro) for name in words.variant_order(samples) for gro in GRO_COLOURS if (name, gro) in present
    ]
    if samples["variant"].nunique() == 1:
        return {cell: GRO_COLOURS[cell[1]] for cell in cells}
    return {cell: COLOURS[index % len(COLOURS)] for index, cell in enumerate(cells)}


def _strip(axes: Axes, windows: pd.DataFrame, colours: dict[tuple[str, str], str]) -> None:
    for cell, points in windows.groupby(["variant", "gro"]):
        flag = _first_flag(points)
        good = flag == ""
        axes.plot(points["seconds"], points["mpps"], color=colours[cell], linewidth=0.5, alpha=0.4)
        axes.plot(points["seconds"][good], points["mpps"][good], ".", color=colours[cell], markersize=4)
        for name, marker in FLAG_MARKERS.items():
            flagged = points[flag == name]
            axes.plot(
                flagged["seconds"],
                flagged["mpps"],
                marker,
                color=colours[cell],
                fillstyle="none",
                markersize=6,
            )
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _first_flag(points: pd.DataFrame) -> pd.Series:
    """The flag for which a window is left out, "" where it counts."""
    flags = pd.Series("", index=points.index)
    for name in reversed(EXCLUDING_FLAGS):
        flags[has_flag(points, name)] = name
    return flags


def _strip_legend(samples: pd.DataFrame, colours: dict[tuple[str, str], str]) -> list[Any]:
    alone = len({name for name, _ in colours}) == 1
    handles: list[Any] = [
        Patch(color=colour, label=f"GRO {gro}" if alone else f"{name}, GRO {gro}")
        for (name, gro), colour in colours.items()
    ]
    for flag, marker in FLAG_MARKERS.items():
        count = int(has_flag(samples, flag).sum())
        if count:
            look = {"marker": marker, "color": "0.3", "fillstyle": "none", "linestyle": ""}
            handles.append(Line2D([], [], label=f"{count} {flag}", **look))
    return handles


def by_axis(
    samples: pd.DataFrame, x: str, value: str, unit: str, *, source: str = "measured", machine: str = ""
) -> Figure:
    """One value of every cell with its 95 % interval, along one column of a cell; one line for all else that varies.

    value: a column of samples; unit: how its axis is named. Hollow: a lower bound, limited by the sender.
    """
    places = words.variant_order(samples) if x == "variant" else sorted(samples[x].unique())
    others = [name for name in Cell.model_fields if name != x and samples[name].nunique() > 1]
    figure = _figure(4.2, samples, source, machine, value)
    axes = figure.add_subplot()
    groups = list(samples.groupby(others, sort=False)) if others else [((), samples)]
    for number, (_, windows) in enumerate(groups):
        points = [(places.index(at), interval_of(of_cell, value)) for at, of_cell in windows.groupby(x)]
        points = [(at, found) for at, found in points if np.isfinite(found.centre)]
        _line(axes, points, number, len(groups), words.named(windows.iloc[0], others))
    if not axes.containers:
        axes.text(0.5, 0.5, "no window counts: all are flagged", transform=axes.transAxes, ha="center")
    axes.set_xticks(range(len(places)), list(map(str, places)))
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(AXES.get(x, x.replace("_", " ")), fontsize=9)
    axes.set_ylabel(f"{unit}, 95 % interval", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if others:
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def _line(axes: Axes, points: list[tuple[int, Interval]], number: int, of: int, label: str) -> None:
    """One series, moved aside so that the intervals of several do not cover each other."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    aside = (number - (of - 1) / 2) * min(0.08, 0.5 / of)
    at = [place + aside for place, _ in points]
    look = {"color": colour, "linestyle": ("-", "--", ":")[number // len(COLOURS) % 3]}
    axes.plot(at, [found.centre for _, found in points], linewidth=0.8, **look)
    axes.plot([], [], marker=marker, markersize=5, label=label, **look)
    for place, (_, found) in zip(at, points, strict=True):
        low, high = (abs(limit - found.centre) for limit in (found.low, found.high))
        reach = None if found.bound or not np.isfinite(low) else [[low], [high]]
        fill = "white" if found.bound else colour
        axes.errorbar(place, found.centre, yerr=reach, color=colour, marker=marker, markersize=5,
                      markerfacecolor=fill, capsize=2.5, linewidth=1)  # fmt: skip
