# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two cells beside each other: a table of functions that can be sorted, flame graphs, and what changed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from rxbook import words
from rxbook.explore import data
from rxbook.function_cycles import Condition, cost_of, table_of, unit_of
from rxbook.plan import Cell, make_plan
from rxbook.profile import flame_pictures, flames
from rxbook.statistics import Interval
from rxbook.tables import Table

if TYPE_CHECKING:
    from rxbook.explore.view import View

__all__ = ["WIDTHS", "Pair"]

SIDES = ("A", "B")
WIDTHS = ("A", "B", "B - A, as wide as A", "B - A, as wide as B")
"""What the flame graph shows: of one cell its cost by family, of two what changed, drawn over one of them."""

NO_PROFILE = "no profile of these cells: measured with profile=false, or without the perf tool"
NO_CHAINS = "no call chains were recorded: functions alone; measure with call_graph=true for a flame graph"
ROWS = 1000
TITLE = 100  # characters of a line above the flame graph


class Pair:
    """Cell A and cell B of what a View shows."""

    def __init__(self, view: View):
        self._view = view
        self._nodes: dict[tuple[Cell, str], pd.DataFrame] = {}
        self._cells: dict[str, Cell] = {}
        self._choice: dict[str, str] = {"flame graph": WIDTHS[3]}
        self._look()

    def _look(self) -> None:
        """The cells that the filters leave, by name; A and B stay the cells that they are while these are there."""
        before = {side: self._cells.get(self._choice.get(side, "")) for side in SIDES}
        self._found = data.profiled(self._view.runs, self._view.shown)
        fields = [
            name for name in Cell.model_fields if len({getattr(cell, name) for cell in self._found}) > 1
        ]
        self._cells = {words.named(cell.model_dump(), fields or ["gro"]): cell for cell in self._found}
        names = {cell: name for name, cell in self._cells.items()}
        if names:
            first = next((cell for cell in names if cell.gro == "off"), next(iter(names)))
            second = first.model_copy(update={"gro": "on"})
            default = {"A": first, "B": second if second in names else list(names)[-1]}
            self._choice |= {
                side: names[cell if (cell := before[side]) in names else default[side]] for side in SIDES
            }

    def show(self) -> None:
        """Show table and flame graphs, with menus where there are widgets."""
        if not self._cells:
            print(NO_PROFILE)
        elif self._view.live:
            self._show_widgets()
        else:
            self._view.tabled("functions", lambda: self.table(top=20))
            for number, width in enumerate(WIDTHS[:2] + WIDTHS[3:], 1):
                self._view.drawn(f"flame_{number}", lambda width=width: self.figure(width))

    def _show_widgets(self) -> None:
        import plotly.graph_objects as go
        from itables.widget import ITable

        from rxbook.explore import widgets

        sides = {side: list(self._cells) for side in SIDES}
        chooser = widgets.choosers(sides | {"flame graph": WIDTHS}, self._choice)
        display(chooser.box)
        rows = ITable(self.sortable(), **TABLE)
        display(rows)
        text = self._view.tabled("functions", lambda: self.table(top=20), shown=False)
        flame = go.FigureWidget(layout=LAYOUT)
        page = widgets.Width()
        page.observe(lambda change: flame.update_layout(width=change["new"]), "pixels")
        display(flame, page)

        def draw() -> None:
            if not self._cells:
                return
            width = self._choice["flame graph"]
            frame = self.nodes(width)
            with flame.batch_update():
                flame.data = []
                flame.add_trace(flame_pictures.trace(frame, self._unit()))
                lines = textwrap.wrap(self.caption(width), TITLE)
                flame.layout.title.text = "<br>".join([*lines, words.marked(self._view.source)])
                flame.layout.margin.t = 40 + 16 * len(lines)
                flame.layout.height = 90 + 16 * len(lines) + 22 * (1 + max(map(len, frame.index)))

        def refresh() -> None:
            self._look()
            if self._cells:
                chooser.offer({side: list(self._cells) for side in SIDES}, self._choice)
                rows.update(self.sortable(), **TABLE)
                text()
                draw()

        draw()
        self._view.follow(refresh)
        chooser.then(refresh)
        display(
            widgets.saving(lambda: self._view.save("flame", lambda: self.figure(self._choice["flame graph"])))
        )

    # --- what is shown

    def _conditions(self) -> dict[str, Condition]:
        return {side: self._found[self._cells[self._choice[side]]] for side in SIDES}

    def _columns(self) -> dict[str, Condition]:
        """Both cells, named by what differs between them; one where A and B are the same."""
        a, b = (self._cells[self._choice[side]].model_dump() for side in SIDES)
        fields = [name for name in a if a[name] != b[name]]
        found = self._conditions()
        if not fields:
            return {self._choice["A"]: found["A"]}
        return {words.named(a, fields): found["A"], words.named(b, fields): found["B"]}

    def _unit(self) -> str:
        costs = self._costs()
        return f"{unit_of(self._conditions())} per packet" if None not in costs.values() else "% of samples"

    def _costs(self) -> dict[str, Interval | None]:
        unit = unit_of(self._conditions())
        return {side: cost_of(condition, unit) for side, condition in self._conditions().items()}

    def table(self, top: int = ROWS) -> Table:
        """The functions of both cells, the second compared with the first."""
        shown = make_plan({"top": top})
        return table_of(self._columns(), words.dated(self._view.source, self._view.shown), shown)

    def sortable(self) -> pd.DataFrame:
        """The same with a number in each column: one row per function."""
        frame = self.table().frame
        frame = frame[frame["row"] == "function"]
        units = [name for name in ("ns", "cycles", "instructions") if f"{name}_per_packet" in frame]
        costs = [name for name in units if frame[f"{name}_per_packet"].notna().any()]
        names = list(dict.fromkeys(frame["column"]))
        by_function = frame.set_index(["function", "dso"])
        sides = [by_function[by_function["column"] == name] for name in names]
        columns = {}
        for unit in costs:
            for name, side in zip(names, sides, strict=True):
                columns[f"{name}, {unit}"] = side[f"{unit}_per_packet"]
        if len(sides) == 2:
            unit, measure = (costs[0], f"{costs[0]}_per_packet") if costs else ("points", "share_points")
            columns[f"change, {unit}"] = sides[1][f"{measure}_vs_first"]
            columns["shown"] = sides[1][f"{measure}_differs"].map({True: "yes", False: "~"})
        for name, side in zip(names, sides, strict=True):
            columns[f"{name}, %"] = side["share_percent"]
        for name, side in zip(names, sides, strict=True):
            if side["children_percent"].notna().any():
                columns[f"{name}, % with callees"] = side["children_percent"]
        found = pd.DataFrame(columns).round(2).reset_index()
        # of one dso, the kernel, it takes the room of a figure
        last = ["dso"] if found["dso"].nunique() > 1 else []
        return found[[name for name in found if name != "dso"] + last]

    def nodes(self, width: str) -> pd.DataFrame:
        """The nodes of a flame graph of WIDTHS."""
        a, b = self._both()
        return {
            WIDTHS[0]: lambda: a,
            WIDTHS[1]: lambda: b,
            WIDTHS[2]: lambda: flames.compared(a, b),
            WIDTHS[3]: lambda: flames.compared(b, a, -1),
        }[width]()

    def _both(self) -> tuple[pd.DataFrame, ...]:
        """The nodes of A and of B, by cost where both are known."""
        costs = self._costs()
        known = None not in costs.values()
        return tuple(self._counted(side, costs[side] if known else None) for side in SIDES)

    def _counted(self, side: str, cost: Interval | None) -> pd.DataFrame:
        cell = self._cells[self._choice[side]]
        key = (cell, str(cost))
        if key not in self._nodes:
            found = [flames.stacks(recording) for recording in self._found[cell][2]]
            self._nodes[key] = flames.nodes(found, cost)
        return self._nodes[key]

    def caption(self, width: str) -> str:
        """What a flame graph shows, in words."""
        a, b = (self._cells[self._choice[side]].model_dump() for side in SIDES)
        apart = [name for name in a if a[name] != b[name]]
        common = words.named(a, [name for name in a if name not in (*apart, "variant")])
        first, second = (words.named(cell, apart) or "the same" for cell in (a, b))
        said = {WIDTHS[0]: first, WIDTHS[1]: second}.get(width, f"{second} against {first}")
        drawn = {WIDTHS[2]: f", drawn as wide as {first}", WIDTHS[3]: f", drawn as wide as {second}"}.get(
            width, ""
        )
        chains = any(len(stack) > 1 for stack in self.nodes(width).index)
        return f"{said}{drawn}; {common}" + ("" if chains else f" ({NO_CHAINS})")

    def figure(self, width: str) -> Figure | None:
        """A flame graph as a picture."""
        if not self._cells:
            return None
        source = words.dated(self._view.source, self._view.shown)
        a, b = (nodes["samples"].iloc[:1].sum() for nodes in self._both())  # the first row is the whole
        counts = {WIDTHS[0]: f"{a}", WIDTHS[1]: f"{b}"}.get(width, f"{b} and {a}")
        said = filter(None, (self.caption(width), self._view.machine, f"n = {counts} samples"))
        return flame_pictures.figure(self.nodes(width), self._unit(), "; ".join(said), source=source)


TABLE = {
    "classes": "display compact nowrap",
    "buttons": ["copyHtml5", "csvHtml5"],
    "order": [[1, "desc"]],
    "lengthMenu": [15, 50, 200],
    "maxBytes": 0,
}
LAYOUT = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "margin": {"l": 4, "r": 4, "t": 60, "b": 30},
    "font": {"color": "#808080", "size": 12},
    "title": {"font": {"size": 13}, "yref": "container", "y": 0.98, "yanchor": "top"},
}
