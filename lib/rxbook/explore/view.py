# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The sections of the notebook explore: with widgets where a person looks at it, else as they are first shown."""

from __future__ import annotations

import base64
import functools
import html
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure
from pydantic import TypeAdapter, ValidationError

from rxbook import RxbookError, comparison, figures, render, report, runs
from rxbook.explore import data
from rxbook.explore.pair import Pair
from rxbook.function_cycles import as_list
from rxbook.plan import Cell, YesNo
from rxbook.runs import Run
from rxbook.tables import Table
from rxbook.workbook import PLACE, injected

__all__ = ["PARAMETERS", "View", "start"]

PARAMETERS = ("runs", "show", "widgets", *PLACE)

ALONG = ("frame_size", "flows", "burst", "udp_csum", "gro", "variant", "receiver", "encap", "protocol")
"""Columns along which values are drawn, numbers first."""

NOTHING = "no window has these values: press a filter again"

PICTURES = {"gro_bars": figures.gro_bars, "window_strip": figures.window_strip}
"""Pictures of rates, which runs that count instructions have not."""

STYLE = (
    "<style>.rxbook-picture{max-width:100%;background:#fff}"
    "[data-jp-theme-light=false] .rxbook-picture{filter:invert(.88) hue-rotate(180deg)}"
    ".rxbook-text td{text-align:left!important}.rxbook-text summary{cursor:pointer;font:12px sans-serif}</style>"
)
"""Pictures are drawn on white: turned round, and their colours back, they fit a dark theme."""


def start(variables: Mapping[str, Any]) -> View:
    """Open what a notebook's parameters ask for; says which runs these are.

    runs: names, see `data.opened`. show: values by column, see `data.select`. widgets: None means yes where a Jupyter
    server runs the notebook. runs_dir: where runs lie; run_name: a folder there that takes all tables and pictures.
    Raises RxbookError for wrong parameters.
    """
    unknown = [name for name in injected(variables.get("In", [])) if name not in PARAMETERS]
    if unknown:
        raise RxbookError(f"unknown parameter {unknown[0]}; known: {', '.join(PARAMETERS)}")
    given = {name: variables.get(name) for name in PARAMETERS}
    folder = Path(given["runs_dir"] or runs.RUNS)
    found = data.opened(as_list(given["runs"] or []), folder)
    for number, run in enumerate(found, 1):
        print(f"[{number}] {run.path.name}: {len(run.samples)} windows, {run.source}")
    target = folder / given["run_name"] if given["run_name"] else None
    return View(found, data.as_show(given["show"] or {}), _live(given["widgets"]), folder, target)


def _live(asked: Any) -> bool:
    if asked in (None, ""):
        # a server sets it for a notebook that is open; papermill does not
        return "JPY_SESSION_NAME" in os.environ
    try:
        return TypeAdapter(YesNo).validate_python(asked)
    except ValidationError:
        raise RxbookError(f"widgets={asked}: say true or false, or leave it out") from None


class View:
    """Runs, the windows that the filters leave, and what is shown of them.

    windows, cells, functions: tidy DataFrames of all that was opened, see `data.DESCRIBED`. shown: of the windows those
    that the filters leave.
    """

    def __init__(
        self,
        found: Sequence[Run],
        show: Mapping[str, Sequence[Any]],
        live: bool = False,
        folder: Path = runs.RUNS,
        target: Path | None = None,
    ):
        self.runs, self.live = list(found), live
        self.windows = data.windows(found)
        self.shown = data.select(self.windows, show)
        self.source = found[0].source if len(found) == 1 else comparison.source(found)
        self.machine = report.machines(found)
        self._target, self._saved = target, folder / "explored"
        self._sections: list[Callable[[], None]] = []

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        """One row per cell, see `data.cells`."""
        return data.cells(self.windows)

    @functools.cached_property
    def functions(self) -> pd.DataFrame:
        """One row per function and recording, see `data.functions`."""
        return data.functions(self.runs, self.windows)

    def describe(self) -> None:
        """Show the DataFrames: how many rows, and what each column holds."""
        display({"text/html": STYLE + "".join(self._described(name) for name in ("windows", "cells", "functions")),
                 "text/plain": "windows, cells, functions"}, raw=True)  # fmt: skip

    def _described(self, name: str) -> str:
        frame = getattr(self, name)
        lines = "".join(
            f"<tr><td><code>{column}</code></td><td>{html.escape(data.DESCRIBED[column])}</td></tr>"
            for column in frame.columns
        )
        return (
            f"<details class='rxbook-text'><summary><code>{name}</code>: {len(frame)} rows, "
            f"{len(frame.columns)} columns</summary><table>{lines}</table></details>"
        )

    # --- what is chosen

    def filters(self) -> None:
        """Show a filter for each column of `data.axes`; all sections follow them."""
        if self.live:
            from rxbook.explore import widgets

            display(widgets.filters(data.axes(self.windows), self.shown, self._filtered))
        self.section(lambda: _words(self._chosen()))

    def _filtered(self, show: Mapping[str, Sequence[Any]]) -> None:
        self.shown = data.select(self.windows, show)
        for refresh in self._sections:
            refresh()

    def _chosen(self) -> str:
        def count(frame: pd.DataFrame) -> int:
            return len(frame[["run", *Cell.model_fields]].drop_duplicates())

        values = {name: ", ".join(map(str, kept)) for name, kept in data.axes(self.shown).items()}
        said = "; ".join(f"{name} {kept}" for name, kept in values.items() if kept)
        return (
            f"{count(self.shown)} of {count(self.windows)} cells, {len(self.shown)} of {len(self.windows)} windows"
            f"{': ' if said else ''}{said}"
        )

    # --- what is shown

    def section(self, make: Callable[[], dict[str, str]]) -> Callable[[], None]:
        """Show what `make` returns, and again whenever the filters change; returns what shows it again."""
        shown = display(self._made(make), raw=True, display_id=True)

        def refresh() -> None:
            shown.update(self._made(make), raw=True)

        if self.live:
            self._sections.append(refresh)
        return refresh

    def follow(self, refresh: Callable[[], None]) -> None:
        """Call `refresh` whenever the filters change."""
        self._sections.append(refresh)

    def _made(self, make: Callable[[], dict[str, str]]) -> dict[str, str]:
        if self.shown.empty:
            return _words(NOTHING)
        try:
            return make()
        except RxbookError as error:  # raised in a widget's turn, nobody would see it
            if not self.live:
                raise
            return _words(str(error))

    def picture(self, name: str) -> None:
        """Show gro_bars or window_strip of what is chosen."""
        self.drawn(name, lambda: self._rates(name))

    def _rates(self, name: str) -> Figure | None:
        if self.runs[0].exact:
            return None
        return PICTURES[name](self.shown, source=self.source, machine=self.machine)

    def drawn(self, name: str, draw: Callable[[], Figure | None]) -> Callable[[], None]:
        """Show a picture that can be saved; returns what shows it again. None: these runs have no such picture."""
        refresh = self.section(lambda: picture_bundle(draw(), name))
        if self.live:
            from rxbook.explore import widgets

            display(widgets.saving(lambda: self.save(name, draw)))
        elif self._target and (figure := draw()) is not None:
            report.write_files(self._target / "tables", {}, {name: figure})
        return refresh

    def save(self, name: str, draw: Callable[[], Figure | None]) -> str:
        """Write a picture as SVG and PNG beside the runs; returns what was written, in words."""
        figure = None if self.shown.empty else draw()
        if figure is None:
            return "nothing to save"
        stem = f"{self.runs[0].path.name}-{name}"
        taken = {path.stem for path in self._saved.glob(f"{stem}*")}
        number = next(number for number in range(1, len(taken) + 2) if f"{stem}-{number}" not in taken)
        runs.make_folder(self._saved)
        report.write_figure(self._saved, f"{stem}-{number}", figure)
        return f"{self._saved / f'{stem}-{number}'}.svg, .png"

    def table(self, name: str) -> None:
        """Show the table gro, cost or windows of what is chosen."""
        self.tabled(name, lambda: data.table(self.runs, self.shown, name))

    def tabled(self, name: str, make: Callable[[], Table | None], shown: bool = True) -> Callable[[], None]:
        """Show a table that can be copied as text; returns what shows it again. None: these runs have no such table.

        shown: False shows the text alone.
        """
        copy = None
        if self.live:
            from rxbook.explore import widgets

            copy = widgets.CopyButton()

        def bundle() -> dict[str, str]:
            table = make()
            text = render.text(table) if table else ""
            if copy is not None:
                copy.text = text
            elif self._target and table:
                report.write_files(self._target / "tables", {name: table}, {})
            return _table(table, text, shown) if table else _words("not measured here: see the first table")

        if copy is not None:
            display(copy)
        return self.section(bundle)

    def by_axis(self) -> None:
        """Show one value of every cell along one column, both of which can be chosen."""
        x, value = self._columns()[0], data.values_in(self.windows)[0]
        choice = {"x": x, "value": value}

        def draw() -> Figure:
            unit = data.VALUES[choice["value"]]
            return figures.by_axis(
                self.shown, choice["x"], choice["value"], unit, source=self.source, machine=self.machine
            )

        if not self.live:
            self.drawn("by_axis", draw)
            return
        from rxbook.explore import widgets

        chooser = widgets.choosers({"value": data.values_in(self.windows), "x": self._columns()}, choice)
        display(chooser.box)
        chooser.then(self.drawn("by_axis", draw))

    def _columns(self) -> list[str]:
        """Columns along which there is something to see."""
        varying = [name for name in ALONG if self.windows[name].nunique() > 1]
        return varying or ["frame_size"]

    def pair(self) -> None:
        """Show two cells beside each other: functions to sort, flame graphs to zoom."""
        Pair(self).show()


def picture_bundle(figure: Figure | None, name: str) -> dict[str, str]:
    """A picture as HTML."""
    if figure is None:
        return _words("instructions are counted here: there is no rate to draw")
    data_uri = base64.b64encode(figures.png(figure)).decode()
    shown = f'<img class="rxbook-picture" alt="{name}" src="data:image/png;base64,{data_uri}">'
    return {"text/html": STYLE + shown, "text/plain": name}


def _table(table: Table, text: str, shown: bool) -> dict[str, str]:
    copied = f"<summary>as text for a mail</summary><pre>{html.escape(text)}</pre>"
    seen = render.html(table) if shown else ""
    return {"text/html": f"{STYLE}{seen}<details class='rxbook-text'>{copied}</details>", "text/plain": text}


def _words(said: str) -> dict[str, str]:
    return {"text/html": f"<p class='rxbook-notes'>{html.escape(said)}</p>", "text/plain": said}
