# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flame graphs of the nodes that `flames` counts: for plotly, which zooms, and as pictures."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rxbook import figures, words
from rxbook.profile.families import FAMILIES, matcher

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rxbook.profile.flames import Stack

__all__ = ["figure", "trace"]

GREY, OTHER = "#B8B8B8", "#D8D2C4"
FAMILY_COLOURS = dict(
    zip(FAMILIES, ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#F0E442", "#D55E00"), strict=True)
)
LESS, MORE = "#4C9FD4", "#E8853D"
SIGNS = {LESS: "- ", MORE: "+ "}
"""Before a name, so that less and more are told apart in grey, too."""
ROW_IN, LETTER_IN = 0.2, 0.065
"""Inches: the height of a row of the picture, and the width of a letter."""


def _colours(frame: pd.DataFrame) -> list[str]:
    """By family, or by change where there is one: blue is less, red more, grey where no difference is shown."""
    if "change" in frame:
        largest = frame.loc[frame["differs"], "change"].abs().max()
        scale = LinearSegmentedColormap.from_list("change", [LESS, "#FFFFFF", MORE])
        # by the root, as what the whole has lost would leave the colours of its parts pale
        parts = np.sign(frame["change"]) * np.sqrt(frame["change"].abs() / largest)
        return [
            to_hex(scale(0.5 + part / 2)) if shown else GREY
            for part, shown in zip(parts, frame["differs"], strict=True)
        ]
    families = [(FAMILY_COLOURS[name], matcher(patterns)) for name, patterns in FAMILIES.items()]
    return [next((colour for colour, matches in families if matches(name)), OTHER) for name in frame["name"]]


def _labels(frame: pd.DataFrame) -> list[str]:
    if "change" not in frame:
        return frame["name"].tolist()
    return [
        (SIGNS[MORE if change > 0 else LESS] if shown else "") + name
        for name, change, shown in zip(frame["name"], frame["change"], frame["differs"], strict=True)
    ]


def key(frame: pd.DataFrame) -> dict[str, str]:
    """What the colours say: word by colour."""
    if "change" in frame:
        return {LESS: "- less", MORE: "+ more", GREY: "no difference shown"}
    present = set(_colours(frame))
    return {c: name for name, c in FAMILY_COLOURS.items() if c in present} | {OTHER: "other functions"}


def trace(frame: pd.DataFrame, unit: str) -> go.Icicle:
    """The trace of a flame graph: a click zooms. unit: of the values, for the hints."""
    import plotly.graph_objects as go  # half a second that a picture need not take

    ids = [" ".join(("all", *stack)) for stack in frame.index]
    parents = [" ".join(("all", *stack[:-1])) if stack else "" for stack in frame.index]
    hints = [
        f"{row['value']:.3g} {unit} ({row['low']:.3g} to {row['high']:.3g})<br>{row['samples']} samples"
        for _, row in frame.iterrows()
    ]
    if "change" in frame:
        said = [
            f"{row['change']:+.3g} ({row['change_low']:+.3g} to {row['change_high']:+.3g})"
            if row["differs"]
            else "~"
            for _, row in frame.iterrows()
        ]
        hints = [f"{hint}<br>B - A: {change}" for hint, change in zip(hints, said, strict=True)]
    return go.Icicle(
        ids=ids, parents=parents, labels=_labels(frame), values=frame["own"].tolist(), branchvalues="remainder",
        marker={"colors": _colours(frame), "line": {"width": 0.5, "color": "#FFFFFF"}},
        text=hints, hovertemplate="%{label}<br>%{text}<extra></extra>", textinfo="label", sort=False,
        textfont={"color": "#1A1A1A"}, tiling={"orientation": "v", "flip": "y"}, pathbar={"side": "bottom"},
    )  # fmt: skip


def figure(frame: pd.DataFrame, unit: str, title: str, *, source: str) -> Figure:
    """The same as a picture 800 pixels wide; names that do not fit are left out."""
    depth = max(map(len, frame.index), default=0) + 1
    lines = [piece for line in (words.marked(source), title) for piece in textwrap.wrap(line, figures.LINE)]
    words_of = key(frame)
    room, foot = 0.3 + 0.17 * len(lines), 0.55 + 0.2 * -(-len(words_of) // 4)
    height = depth * ROW_IN + room + foot
    drawn = Figure(figsize=(figures.WIDTH_IN, height), dpi=figures.DPI)
    framed = {} if source.startswith("measured") else {"bbox": figures.NOTICE, "fontweight": "bold"}
    drawn.suptitle("\n".join(lines), y=1 - room / 2 / height, va="center", fontsize=10, **framed)
    axes = drawn.add_axes((0.02, foot / height, 0.96, depth * ROW_IN / height))
    whole = float(frame["value"].iloc[0]) if len(frame) else 1.0
    starts: dict[Stack, float] = {(): 0.0}
    ends: dict[Stack, float] = {(): 0.0}
    for colour, name, (stack, row) in zip(_colours(frame), _labels(frame), frame.iterrows(), strict=True):
        if stack:
            starts[stack] = ends[stack] = ends[stack[:-1]]
            ends[stack[:-1]] += row["value"]
        place = (starts[stack], len(stack))
        axes.add_patch(Rectangle(place, row["value"], 1, facecolor=colour, edgecolor="white", linewidth=0.5))
        fits = int(row["value"] / whole * 0.96 * figures.WIDTH_IN / LETTER_IN)
        if fits >= 3:
            name = name if len(name) <= fits else name[: fits - 2] + ".."
            axes.text(
                place[0] + 0.003 * whole, place[1] + 0.5, name, fontsize=7, va="center", parse_math=False
            )
    axes.set(
        xlim=(0, whole), ylim=(0, depth), yticks=[], xlabel=f"{unit} with all that was called from there"
    )
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, label=said) for colour, said in words_of.items()]
    drawn.legend(handles=handles, loc="lower center", ncols=4, fontsize=8, frameon=False)
    return drawn
