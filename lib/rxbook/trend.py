# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each cell over all runs of a machine: its figures in the order of time, where they changed, and what else did.

What counts as a change: see `rxbook.changes`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rxbook import RxbookError, changes, differing, history, render, runs, words
from rxbook.plan import MIN_BLOCKS, Cell
from rxbook.statistics import Comparison, Interval, foretold, repeats_interval
from rxbook.tables import Section, Table

__all__ = [
    "Series",
    "Trend",
    "of",
    "overview",
    "parse_only",
    "points",
    "save",
    "series_table",
    "shown",
    "tables",
]

UNITS = words.UNITS | {history.COUNTS: "instructions per packet"}
APART = "apart?"
FEW = "few"
LONGEST_KERNEL = 20


@dataclass(frozen=True)
class Series:
    """One cell over the runs of one machine.

    name: the cell in words. cell: its fields but variant. points: rows of `history.figures` by time, with judged (does
    the run count in changes) and level (0 before the first change). changes: Change.first is a row of points.
    apart: the newest run lies where runs like those before it hardly ever do (1 in 100).
    """

    name: str
    cell: dict[str, Any]
    value: str
    points: pd.DataFrame
    changes: tuple[changes.Change, ...]
    apart: bool

    @property
    def file(self) -> str:
        """A name for files."""
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")


@dataclass(frozen=True)
class Trend:
    """All series of a folder of runs, and what a reader must know before believing them."""

    series: tuple[Series, ...]
    source: str
    notes: tuple[str, ...]


def of(folder: Path, value: str = "mpps", only: dict[str, str] | None = None, since: str = "") -> Trend:
    """The series of all runs of a folder that began on or after a day (default: all).

    value: "mpps" or "ns_per_packet"; runs that count instructions in guests are series of their own, always of
    instructions per packet. Guests that are timed are series of their own, too, and so is a kernel that the user gave
    a name; releases follow each other in one series. only: cells whose fields have these values, as text.

    Raises RxbookError where no run is left.
    """
    loaded = history.load(folder, since)
    figures = _chosen(history.figures(loaded, value), only or {})
    if figures.empty:
        said = f" since {since}" if since else ""
        raise RxbookError(
            "; ".join([f"no windows of any run in {folder}{said}: nothing to show", *loaded.unread])
        )
    several = figures["hardware"].nunique() > 1
    series = tuple(_series(points, several) for points in _split(figures))
    notes = [f"WARNING: {said}." for said in loaded.unread]
    notes += [*_left_out(series), *_apart(series), *_differences(folder, series), *_reading(series)]
    source = _source(figures, bool(loaded.about["recorded"].any()))
    return Trend(series, source, (*notes, *_machines(figures)))


def parse_only(settings: Sequence[str]) -> dict[str, str]:
    """`gro=on` and the like, by field. Raises RxbookError for what is no field of a cell, and for one named twice."""
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, wanted = (part.strip() for part in setting.partition("="))
        if not equals:
            raise RxbookError(f"--only {setting}: write it as NAME=VALUE, as in --only gro=on")
        if name not in Cell.model_fields:
            near = difflib.get_close_matches(name, Cell.model_fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(Cell.model_fields)}"
            raise RxbookError(f"--only {setting}: a cell has no {name}; {hint}")
        if name in found:
            raise RxbookError(f"--only {name} is given twice: leave one of them out")
        found[name] = wanted
    return found


def _chosen(figures: pd.DataFrame, only: dict[str, str]) -> pd.DataFrame:
    for name, wanted in only.items():
        texts = figures[name].astype(str)
        if len(figures) and not (texts == wanted).any():
            there = ", ".join(texts.drop_duplicates())
            raise RxbookError(f"--only {name}={wanted}: no run has it; there are: {there}")
        figures = figures[texts == wanted]
    return figures


CELL = [*words.SHAPE, "gro"]
ONE = ["of", "hardware", "label", *CELL]


def _split(figures: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for _, points in figures.groupby(ONE, dropna=False):
        yield points.reset_index(drop=True)


def _series(points: pd.DataFrame, several: bool) -> Series:
    first = points.iloc[0]
    cell, value = first[CELL].to_dict(), first["value"]
    said = [words.traffic(cell), f"GRO {cell['gro']}", f"kernel {first['label']}" if first["label"] else ""]
    said += [first["of"], first["hardware"] if several else ""]
    least = 1 if value == history.COUNTS else MIN_BLOCKS
    judged = (points["n"] >= least) & ~points["bound"]
    centres, rows = points["centre"][judged].to_numpy(), np.flatnonzero(judged)
    found = [replace(change, first=int(rows[change.first])) for change in changes.find(centres)]
    level = np.zeros(len(points), int)
    for change in found:
        level[change.first :] += 1
    points = points.assign(judged=judged, level=level)
    current = points["centre"][judged & (points["level"] == level[-1])].to_numpy()
    apart = bool(len(current) and judged.iloc[-1] and not foretold(current[:-1], current[-1]))
    return Series(", ".join(filter(None, said)), cell, value, points, tuple(found), apart)


def _source(figures: pd.DataFrame, recorded: bool) -> str:
    days = figures["started_utc"].str[:10]
    span = " to ".join(dict.fromkeys((days.min(), days.max())))
    return f"{'recorded' if recorded else 'measured'} {span}"


# --- what is printed


def tables(trend: Trend, last: int = 10) -> dict[str, Table]:
    """By the names of their files: the overview, then one table of runs for each series, see `series_table`."""
    made = {one.file: series_table(one, trend, last) for one in trend.series}
    return {"overview": overview(trend)} | made


def overview(trend: Trend) -> Table:
    """The levels of each series: since when, kernel, runs, what they measured, and the change from the level before."""
    sections, records = [], []
    names, common = _short_names(trend.series)
    for one, name in zip(trend.series, names, strict=True):
        levels = [_level(one, level) for level in one.points["level"].unique()]
        sections.append(Section(f"{name}: {UNITS[one.value]}", tuple(row for row, _ in levels)))
        records += [record for _, record in levels]
    columns = (("", "since"), ("", "kernel"), ("", "figure"), ("", "runs"), ("", "change"))
    notes = (*([f"All cells: {common}."] if common else []), *trend.notes)
    title = f"Levels over time, {_units(trend.series)}"
    return Table(title, columns, tuple(sections), notes, pd.DataFrame(records), trend.source)


def _short_names(series: Sequence[Series]) -> tuple[list[str], str]:
    """What tells the series from each other, and what they share."""
    if len(series) == 1:
        return [series[0].name], ""
    parts = [one.name.split(", ") for one in series]
    shared = [part for part in parts[0] if all(part in others for others in parts)]
    return [", ".join(part for part in own if part not in shared) for own in parts], ", ".join(shared)


def _level(one: Series, level: int) -> tuple[tuple[str, ...], dict[str, Any]]:
    """A level's row, and the same unrounded."""
    points = one.points[one.points["level"] == level]
    judged = points[points["judged"]]
    found = repeats_interval(judged["centre"])
    if len(judged) < 2:  # a run's own interval, or its bound
        found = _interval((judged if len(judged) else points).iloc[-1])
    first, kernels = points.iloc[0], points["kernel"].drop_duplicates().tolist()
    record = one.cell | {
        "series": one.name, "value": one.value, "since_utc": first["started_utc"], "first_run": first["run"],
        "kernels": ", ".join(kernels), "centre": found.centre, "low": found.low, "high": found.high,
        "bound": found.bound, "runs": len(judged),
    }  # fmt: skip
    shown = ""
    if level:
        difference = one.changes[level - 1].difference
        shown, record = words.change(difference), record | _percents(difference)
    kernel = _kernel(kernels[0]) + (" ..." if len(kernels) > 1 else "")
    row = (first["started_utc"][:10], kernel, words.figure(found, one.value), str(len(judged)), shown)
    return row, record


def _percents(difference: Comparison) -> dict[str, float]:
    limits = {"": difference.ratio, "_low": difference.low, "_high": difference.high}
    return {f"change_percent{end}": (limit - 1) * 100 for end, limit in limits.items()}


def _interval(point: pd.Series) -> Interval:
    return Interval(*(point[name] for name in ("centre", "low", "high", "n", "bound")))


def _units(series: Sequence[Series]) -> str:
    return " and ".join(dict.fromkeys(UNITS[one.value] for one in series))


def series_table(one: Series, trend: Trend, last: int = 10) -> Table:
    """The runs of a series: the newest, and each with which a level begins; last=0: all. The frame has all of them."""
    firsts = {0, *(change.first for change in one.changes)}
    newest = range(max(0, len(one.points) - last) if last else 0, len(one.points))
    rows: list[tuple[str, ...]] = []
    before = -1
    for row in sorted({*firsts, *newest}):
        rows += [()] * (row > before + 1)
        rows.append(_row(one, row))
        before = row
    hidden = len(one.points) - len({*firsts, *newest})
    notes = [f"{hidden} of {len(one.points)} runs are not listed: --last 0 lists all."] if hidden else []
    unit = UNITS[one.value]
    columns = (
        "run began, UTC",
        "kernel",
        unit if one.value == "mpps" else "per packet",
        "segs",
        "n",
        "change",
    )
    return Table(f"Over time, {unit}", tuple(("", name) for name in columns), (Section(one.name, tuple(rows)),),
                 tuple(notes), points(one), trend.source)  # fmt: skip


def _row(one: Series, row: int) -> tuple[str, ...]:
    point = one.points.iloc[row]
    segs = "-" if np.isnan(point["segs_per_skb"]) else f"{point['segs_per_skb']:.1f}"
    began, figure = point["started_utc"][:16].replace("T", " "), words.figure(_interval(point), one.value)
    return (began, _kernel(point["kernel"]), figure, segs, str(point["n"]), _mark(one, row))


def _mark(one: Series, row: int) -> str:
    for change in one.changes:
        if change.first == row:
            return words.change(change.difference)
    point = one.points.iloc[row]
    if one.apart and row == len(one.points) - 1:
        return APART
    if point["status"] != "finished":
        return point["status"]
    return FEW if not (point["judged"] or point["bound"]) else ""


def _kernel(release: str) -> str:
    return release if len(release) <= LONGEST_KERNEL else release[: LONGEST_KERNEL - 2] + ".."


def points(one: Series) -> pd.DataFrame:
    """All runs of a series, unrounded, with the change that begins with each."""
    changed = {change.first: _percents(change.difference) for change in one.changes}
    percents = pd.DataFrame([changed.get(row, {}) for row in range(len(one.points))])
    none = ["change_percent", "change_percent_low", "change_percent_high"]
    return one.points.assign(series=one.name).join(percents.reindex(columns=none))


# --- notes


def _left_out(series: Sequence[Series]) -> Iterator[str]:
    rates = [one.points for one in series if one.value != history.COUNTS]
    lost = sum(int((points["windows"] - points["n"]).sum()) for points in rates)
    if lost:
        total = sum(int(points["windows"].sum()) for points in rates)
        yield f"{lost} of {total} windows are flagged and left out."
    few = sum(int((~one.points["judged"] & ~one.points["bound"]).sum()) for one in series)
    if few:
        yield f"{FEW}: fewer than {MIN_BLOCKS} windows count, so that the run shows no change ({few} figures)."
    if any(one.points["bound"].any() for one in series):
        yield (
            ">=: the sender was the limit, so the figure is a lower bound, and shows no change: see "
            "--value ns_per_packet."
        )


def _apart(series: Sequence[Series]) -> Iterator[str]:
    apart = sum(one.apart for one in series)
    if apart:
        yield (
            f"{APART}: the newest run of {apart} of {len(series)} cells lies where 1 in 100 would by chance. A change "
            f"is shown from {changes.LEAST_RUNS} runs on: measure again."
        )


def _differences(folder: Path, series: Sequence[Series]) -> Iterator[str]:
    """What else differed between the runs on both sides of each change; said once for all cells."""
    pairs = {
        (*one.points["run"][one.points["judged"]].loc[: change.first].iloc[-2:],)
        for one in series
        for change in one.changes
    }
    for before, after in sorted(pairs):
        both = [runs.load(folder / name) for name in (before, after)]
        found = [
            *differing.of_machines(both, ["before", "after"]), *differing.of_plans(both, ["before", "after"]),
        ]  # fmt: skip
        yield f"With {after}: {', '.join(found) or 'nothing else differed that is recorded'}."


def _reading(series: Sequence[Series]) -> Iterator[str]:
    if any(one.changes for one in series):
        yield (
            "change: the level's runs against those of the level before, each run one value, with the 95 % interval. "
            "Where it stands is the likeliest place; the runs beside it are possible, too."
        )
    yield (
        f"Changes are shown where runs differ by more than their luck explains, at 5 % for a whole series; a level has "
        f"{changes.LEAST_RUNS} runs at least. A day's luck that lasts for several runs is shown as one, too."
    )
    if any(one.value == history.COUNTS for one in series):
        yield "+/- of a run's instructions: half of the range between its boots."


def _machines(figures: pd.DataFrame) -> Iterator[str]:
    yield f"Machine: {'; '.join(figures['hardware'].unique())}."


def save(trend: Trend, folder: Path) -> None:
    """Write into a folder every table as text, Markdown, HTML and CSV, and a figure of each series as PNG and SVG."""
    from rxbook import report, trend_figure  # which take half a second

    drawn = {one.file: trend_figure.draw(one, trend.source) for one in trend.series}
    report.write_files(folder, tables(trend), drawn)


def shown(
    value: str = "mpps",
    only: dict[str, str] | None = None,
    since: str = "",
    last: int = 10,
    form: str = "text",
    target: Path | None = None,
    folder: Path | None = None,
) -> str:
    """What `rxbook trend` prints: the tables in a form of `render.FORMS`; saved, too, where a target is named.

    As CSV it is one table: all runs of all cells. Raises RxbookError for what cannot be shown.
    """
    rendered = render.in_form(form)
    if value not in words.UNITS:
        raise RxbookError(f"--value {value}: say mpps or ns_per_packet")
    if since and not re.fullmatch(r"\d{4}-\d\d-\d\d", since):
        raise RxbookError(f"--since {since}: say a day, as in --since 2026-12-01")
    found = of(folder or runs.RUNS, value, only, since)
    if target:
        save(found, target)
    made = tables(found, last)
    if form == "csv":
        frames = pd.concat([made[one.file].frame for one in found.series], ignore_index=True)
        return render.csv(replace(made["overview"], frame=frames))
    return "\n".join(rendered(table) for table in made.values())
