# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a person presses: filters, choosers, and buttons that copy a table and save a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anywidget
import ipywidgets
import pandas as pd
import traitlets

__all__ = ["Chooser", "CopyButton", "Width", "choosers", "filters", "saving"]

MARKS = {True: "check", False: ""}
"""The icon of a button that is pressed, of one that is not."""

NARROW = ipywidgets.Layout(width="auto")


class CopyButton(anywidget.AnyWidget):
    """Copies `text` to the browser's clipboard, which it lends only to pages of its own machine or encrypted ones."""

    text = traitlets.Unicode("").tag(sync=True)
    _esm = """
    function render({ model, el }) {
      const button = document.createElement("button");
      button.className = "jupyter-button widget-button rxbook-copy";
      button.textContent = "copy as text";
      button.style.width = "auto";
      button.onclick = async () => {
        try {
          await navigator.clipboard.writeText(model.get("text"));
          button.textContent = "copied";
        } catch (error) {
          button.textContent = "no clipboard here: open 'as text for a mail' below";
        }
        setTimeout(() => { button.textContent = "copy as text"; }, 2000);
      };
      el.appendChild(button);
    }
    export default { render };
    """


class Width(anywidget.AnyWidget):
    """Shows nothing; `pixels` is how wide the page is there. plotly asks before it is on the page, and takes 700."""

    pixels = traitlets.Int(0).tag(sync=True)
    _esm = """
    function render({ model, el }) {
      const observer = new ResizeObserver(() => {
        if (!el.clientWidth || el.clientWidth === model.get("pixels")) return;
        model.set("pixels", el.clientWidth);
        model.save_changes();
      });
      observer.observe(el);
      return () => observer.disconnect();
    }
    export default { render };
    """


def filters(
    axes: Mapping[str, Sequence[Any]], shown: pd.DataFrame, changed: Callable[[dict[str, list[Any]]], None]
) -> ipywidgets.Widget:
    """A row of buttons for each column; `changed` is called with the pressed values by column."""
    rows: dict[str, list[tuple[Any, ipywidgets.ToggleButton]]] = {}

    def pressed(change: Any) -> None:
        change["owner"].icon = MARKS[change["new"]]
        changed({name: [value for value, button in row if button.value] for name, row in rows.items()})

    for name, values in axes.items():
        there = set(shown[name])
        rows[name] = [
            (
                value,
                ipywidgets.ToggleButton(
                    value in there, description=str(value), icon=MARKS[value in there], layout=NARROW
                ),
            )
            for value in values
        ]
        for _, button in rows[name]:
            button.observe(pressed, "value")
    lines = [
        ipywidgets.HBox(
            [_name(name), *(button for _, button in row)], layout=ipywidgets.Layout(flex_flow="row wrap")
        )
        for name, row in rows.items()
    ]
    box = ipywidgets.VBox(lines)
    box.add_class("rxbook-filters")
    return box


def _name(name: str) -> ipywidgets.Label:
    return ipywidgets.Label(name, layout=ipywidgets.Layout(width="10em"))


class Chooser:
    """Menus that write what is chosen into a mapping, and then call what wants to know."""

    def __init__(self, options: Mapping[str, Sequence[str]], choice: dict[str, Any]):
        self._choice, self._offering = choice, False
        self._then: list[Callable[[], None]] = []
        self._menus = {
            name: ipywidgets.Dropdown(
                options=list(values), value=choice[name], layout=ipywidgets.Layout(width="max-content")
            )
            for name, values in options.items()
        }
        for name, menu in self._menus.items():
            menu.observe(lambda change, name=name: self._chosen(name, change["new"]), "value")
        lines = [ipywidgets.HBox([_name(name), menu]) for name, menu in self._menus.items()]
        self.box = ipywidgets.VBox(lines)
        self.box.add_class("rxbook-chooser")

    def then(self, refresh: Callable[[], None]) -> None:
        """Call `refresh` after each choice."""
        self._then.append(refresh)

    def offer(self, options: Mapping[str, Sequence[str]], choice: Mapping[str, str]) -> None:
        """Other options, of which these are chosen; nothing is called."""
        self._offering = True
        for name, values in options.items():
            self._menus[name].options = list(values)  # which chooses the first
            self._menus[name].value = choice[name]
        self._offering = False

    def _chosen(self, name: str, value: str) -> None:
        if not self._offering:
            self._choice[name] = value
            for refresh in self._then:
                refresh()


def choosers(options: Mapping[str, Sequence[str]], choice: dict[str, Any]) -> Chooser:
    """A menu for each name, see Chooser."""
    return Chooser(options, choice)


def saving(save: Callable[[], str]) -> ipywidgets.Widget:
    """A button that saves a picture, and says where."""
    button = ipywidgets.Button(description="save SVG and PNG", layout=NARROW)
    said = ipywidgets.Label()
    button.add_class("rxbook-save")

    def pressed(_: Any) -> None:
        said.value = save()

    button.on_click(pressed)
    return ipywidgets.HBox([button, said])
