# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a notebook calls: its parameters become a plan, the plan a run, and the run its tables."""

from __future__ import annotations

import ast
import dataclasses
import secrets
import sys
from pathlib import Path
from typing import Any

from IPython.display import Image, display
from matplotlib.figure import Figure

from rxbook import (
    RxbookError,
    doctor,
    figures,
    function_cycles,
    listing,
    measure,
    render,
    report,
    runs,
    summary,
)
from rxbook.guests import measuring
from rxbook.kernel import facts
from rxbook.plan import INPUTS, MIN_BLOCKS, Plan, make_plan
from rxbook.profile.bars import function_bars
from rxbook.progress import NotebookProgress
from rxbook.runs import Folder, Run
from rxbook.tables import Table
from rxbook.testbeds import hosts

__all__ = [
    "PLACE",
    "functions",
    "injected",
    "parameters",
    "run",
    "show_figure",
    "show_functions",
    "show_table",
]

PLACE = ("runs_dir", "run_name")
"""Parameters of every notebook that say where a run is written, not what it measures."""

INSTRUCTIONS = "instructions are counted here: the first table says it all"

NO_TABLE = {
    "size_csum": "one frame size and one UDP checksum: the first table says it all",
    "published": "no cell has a thread's traffic: cpumap, UDP of 64 bytes with a checksum, one flow, GRO off and on; "
    "or 64 flows of its four shapes, profiled",
    "heads": "no skb heads were counted: measured with heads=False, or the kernel refused (see the run's log.txt)",
    "noise": "not measured: run again with aa=True",
}


def parameters(variables: dict[str, Any]) -> dict[str, Any]:
    """The parameters among a notebook's variables.

    Those that papermill put in are taken by name from its cell, so that a misspelt one is refused and not
    silently ignored.
    """
    names = [name for name in (*Plan.model_fields, *PLACE, *INPUTS) if name in variables]
    names += [name for name in injected(variables.get("In", [])) if name not in names]
    return {name: variables[name] for name in names}


def injected(cells: list[str]) -> list[str]:
    """Names that the cell assigns which papermill adds; it begins with a comment of papermill's."""
    for source in cells:
        if source.startswith("# Parameters\n"):
            return [node.targets[0].id for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return []


def run(notebook: str, variables: dict[str, Any]) -> Run:
    """Measure what a notebook's parameters ask for; where this machine cannot, load the recorded sample.

    A `run_name` that was interrupted is gone on with; one that is finished is loaded and not touched.
    Raises RxbookError for wrong parameters.
    """
    given = parameters(variables)
    place = {name: given.pop(name, "") for name in PLACE}
    plan = make_plan(given)
    path = _path(str(place["runs_dir"]), str(place["run_name"]), notebook)
    if (path / "run.json").exists():
        print(f"{path.name} is finished: shown as it was measured, nothing is measured again")
        return runs.load(path)
    elsewhere = bool(plan.kernels or plan.hosts)
    able, reasons = (True, []) if elsewhere else doctor.can_run_live(doctor.checks())
    if not able:
        print(doctor.instead(reasons), file=sys.stderr)
        return runs.recorded(notebook)
    return _measure(path, plan, notebook)


def functions(variables: dict[str, Any]) -> tuple[dict[str, Table], Run | None]:
    """The tables of functions that a notebook's parameters ask for, by name, and the run that they are of.

    Of the runs or files that `before` and `after` name: these tables are also written into the folder `run_name`,
    and there is no run. Without them, of a run that is measured now.
    Raises RxbookError for wrong parameters, and where an input cannot be read.
    """
    given = parameters(variables)
    before, after = (function_cycles.as_list(given.pop(name, [])) for name in INPUTS)
    if not before and not after:
        measured = run("function_cycles", given)
        return report.function_tables(measured), measured
    place = {name: given.pop(name, "") for name in PLACE}
    lie = Path(place["runs_dir"] or runs.RUNS)
    tables = function_cycles.comparison(before, after, make_plan(given), lie)
    if place["run_name"]:
        path = _path(str(place["runs_dir"]), str(place["run_name"]), "function_cycles")
        report.save_functions(path, tables)
        (path / "report.txt").write_text("\n".join(map(render.text, tables.values())))
    return tables, None


def _path(runs_dir: str, run_name: str, notebook: str) -> Path:
    if Path(run_name).name != run_name:
        raise RxbookError(f"run_name={run_name} is no plain name: say the folder above it by runs_dir")
    return Path(runs_dir or runs.RUNS) / (run_name or runs.new_name(notebook))


def _measure(path: Path, plan: Plan, notebook: str) -> Run:
    cells = plan.cells(hosts.release(plan.hosts) if plan.hosts else facts.kernel_release())
    if plan.blocks < MIN_BLOCKS and not plan.kernels:
        print(f"blocks={plan.blocks}: below {MIN_BLOCKS} an interval says little", file=sys.stderr)
    if runs.is_run(path):
        folder = Folder.resume(path, plan)
    else:
        seed = secrets.randbelow(2**32) if plan.seed is None else plan.seed
        folder = Folder.create(path, plan, seed, notebook)
    progress = NotebookProgress(len(cells))
    try:
        if plan.kernels:
            folder.log(f"measuring {len(cells)} cells in guests")
            about = measuring.measure(folder, cells, progress)
        else:
            folder.log(f"measuring {len(cells)} cells in {plan.blocks} blocks")
            about = measure.measure(folder, cells, progress, progress.profile)
        finished = dataclasses.replace(runs.load(path), status="finished")
        report.save(finished)
        (path / "report.txt").write_text(summary.text(finished))
        folder.log("finished")
        folder.finish(about | listing.facts(finished))
    except BaseException as error:
        folder.log(f"interrupted: {type(error).__name__} {error}")
        folder.discard_if_empty()
        raise
    finally:
        folder.close()
        progress.close()
    return finished


def show_table(run: Run, name: str) -> None:
    """Show one of the run's tables, by the name of its file: HTML in a notebook, text in a terminal.

    Where the run's cells do not make this table, says why.
    """
    table = report.table_of(run, name)
    if table is None:
        print(INSTRUCTIONS if run.exact and name != "heads" else NO_TABLE[name])
        return
    _show(table)


def show_functions(tables: dict[str, Table], bars: bool = True) -> None:
    """Show tables of functions, each with its bars if wanted; says so where nothing was recorded."""
    for table in tables.values():
        _show(table)
        if bars:
            _picture(function_bars(table))
    if not tables:
        print("no profile: measured with profile=False, or without the perf tool (see the run's log.txt)")


def show_figure(run: Run, name: str) -> None:
    """Show one of the run's figures, by the name of its file."""
    figure = report.figure_of(run, name)
    if figure is not None:
        _picture(figure)


def _show(table: Table) -> None:
    display({"text/html": render.html(table), "text/plain": render.text(table)}, raw=True)


def _picture(figure: Figure) -> None:
    display(Image(figures.png(figure)))
