# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a notebook by papermill, as `rxbook run` does: checked before, watched meanwhile, a page after."""

from __future__ import annotations

import ast
import logging
import shutil
import sys
import threading
import time
from pathlib import Path

from rxbook import RxbookError, progress, runs
from rxbook.kernel import facts
from rxbook.plan import Plan, make_plan

__all__ = ["NOTEBOOKS", "run"]

NOTEBOOKS = runs.ROOT / "notebooks"
# jsonschema, which papermill and nbconvert import, compiles a grammar of IRIs on import: 1.6 s for a check
# that no notebook needs. It goes without where that package is missing.
sys.modules.setdefault("rfc3987_syntax", None)

KERNEL = "python3"  # this interpreter's, whatever the notebook was last opened with


def run(notebook: str, given: dict[str, str], resume: str | None, runs_dir: Path | None) -> None:
    """Run a notebook with parameters given by name; prints tables and where everything lies.

    Raises RxbookError for what a user can put right.
    """
    source = NOTEBOOKS / f"{notebook}.ipynb"
    if not source.exists():
        known = ", ".join(path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb")))
        raise RxbookError(f"no notebook is named {notebook}; there are: {known}")
    folder = runs_dir.absolute() if runs_dir else runs.RUNS
    path = folder / (Path(resume).name if resume else runs.new_name(notebook))
    if resume:
        if given:
            raise RxbookError("--resume takes its parameters from the run: leave --set out")
        if runs.status(path) == "finished":
            print((path / "tables" / "gro.txt").read_text())
            print(f"{path.name} is finished: nothing is measured again")
            return
        plan = runs.load(path).plan
        given = plan.model_dump()
    else:
        plan = make_plan(_defaults(source) | given)
    _execute(source, path, plan, given)
    _conclude(path)


def _defaults(source: Path) -> dict[str, object]:
    """The notebook's own defaults of plan parameters."""
    import papermill

    found = papermill.inspect_notebook(str(source))
    return {
        name: ast.literal_eval(about["default"]) for name, about in found.items() if name in Plan.model_fields
    }


def _execute(source: Path, path: Path, plan: Plan, given: dict[str, object]) -> None:
    import papermill
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.ERROR)
    path.mkdir(parents=True, exist_ok=True)
    cells = plan.cells(facts.kernel_release())
    print(f"{len(cells)} cells, {plan.blocks} blocks, windows of {plan.window_s:g} s: about "
          f"{plan.measuring_s(facts.kernel_release()):.0f} s of traffic; runs/{path.name}", flush=True)  # fmt: skip
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(path, plan, len(cells), ended), daemon=True)
    watcher.start()
    try:
        papermill.execute_notebook(
            source,
            path / "notebook.ipynb",
            parameters={**given, "runs_dir": str(path.parent), "run_name": path.name},
            kernel_name=KERNEL,
            extra_arguments=["--log-level=ERROR"],
            progress_bar=False,
            cwd=str(runs.ROOT),
        )
    except PapermillExecutionError as error:
        raise _without_traceback(error, path) from None
    finally:
        ended.set()
        watcher.join()


def _without_traceback(error: Exception, path: Path) -> RxbookError:
    words = str(error.evalue) if error.ename == "RxbookError" else f"{error.ename}: {error.evalue}"
    if progress.windows_in(path / "samples.csv"):
        words += f"\nWhat was measured is kept: rxbook run ... --resume {path.name}"
    elif not (path / "plan.json").exists():
        shutil.rmtree(path)  # made by us a moment ago, and holds nothing but the notebook that failed
    return RxbookError(words)


def _watch(path: Path, plan: Plan, per_block: int, ended: threading.Event) -> None:
    """Show once a second how far the run is, by the lines of its samples file."""
    samples, total = path / "samples.csv", per_block * plan.blocks
    before, start = progress.windows_in(samples), None
    while not ended.wait(1.0):
        done = progress.windows_in(samples)
        if done == before:
            continue
        start = start or time.monotonic() - (done - before) * (plan.window_s + plan.warmup_s)
        words = progress.line(done - before, total - before, per_block, time.monotonic() - start)
        if sys.stderr.isatty():
            print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)
        elif int(time.monotonic() - start) % 10 == 0:
            print(words, file=sys.stderr, flush=True)
    if start and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _conclude(path: Path) -> None:
    from rxbook import render, report

    report.notebook_html(path / "notebook.ipynb", path / "report.html", path.name)
    run = runs.load(path) if (path / "plan.json").exists() else runs.recorded(path.name.rpartition("Z-")[2])
    for name in ("gro", "size_csum", "noise"):
        table = report.tables_of(run).get(name)
        if table:
            print("\n" + render.text(table))
    print(f"run folder  {_shown(path)}\npage        {_shown(path / 'report.html')}")
    if not run.recorded:
        print(f"for a mail  {_shown(path / 'tables' / 'gro.txt')}")


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
