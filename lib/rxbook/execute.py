# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a notebook by papermill, as `rxbook run` does: checked before, watched meanwhile, a page after."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
from pathlib import Path

from rxbook import RxbookError, doctor, generators, heads, notebooks, progress, runs
from rxbook.kernel import facts
from rxbook.plan import INPUTS, Plan, make_plan
from rxbook.profile import record
from rxbook.testbeds import hosts
from rxbook.testbeds.lock import Lock

__all__ = ["START_S", "estimate_s", "into", "planned", "run"]

# jsonschema, which papermill and nbconvert import, compiles a grammar of IRIs on import: 1.6 s for a check
# that no notebook needs. It goes without where that package is missing.
sys.modules.setdefault("rfc3987_syntax", None)

START_S, BOOT_S = 8.0, 20.0
"""Of the notebook's process and of what is written at the end; of a guest."""

KERNEL = "python3"  # this interpreter's, whatever the notebook was last opened with


def run(notebook: str, given: dict[str, str], resume: str | None, runs_dir: Path | None) -> None:
    """Run a notebook with parameters given by name; prints tables and where everything lies.

    Raises RxbookError for what a user can put right.
    """
    source = notebooks.find(notebook)
    folder = runs_dir.absolute() if runs_dir else runs.RUNS
    if resume is None and "blocks" not in notebooks.declared(notebook):
        _show(source, folder / runs.new_name(notebook), given)
        return
    if resume is None:
        if given.get("hosts"):  # the notebook runs elsewhere
            given = given | {"hosts": str(Path(given["hosts"]).absolute())}
        inputs, plan = planned(notebook, given)
        path = folder / runs.new_name(notebook)
    else:
        inputs, (path, plan) = {}, _to_resume(runs.find(resume, folder).absolute(), given)
        given = plan.model_dump()
    if runs.status(path) == "finished":
        print(f"{path.name} is finished: nothing is measured again")
    elif inputs:
        _announce_inputs(path, inputs)
    else:
        _announce(path, plan)
    if not (path / "report.html").exists():
        _execute(source, path, plan, given)
        _write_page(path)
    _conclude(path, notebook)


def planned(notebook: str, given: dict[str, str]) -> tuple[dict[str, str], Plan]:
    """What a notebook shows instead of measuring, if anything, and its plan with these parameters.

    Raises RxbookError where there is no such notebook, or a parameter is wrong.
    """
    declared = notebooks.declared(notebook)
    inputs = {name: given[name] for name in INPUTS if given.get(name) and name in declared}
    asked = {name: value for name, value in given.items() if name not in inputs}
    defaults = {name: default for name, default in declared.items() if name in Plan.model_fields}
    return inputs, make_plan(defaults | asked)


def into(notebook: str, path: Path, given: dict[str, object]) -> None:
    """Run a notebook with this folder as its run folder, or go on with it there; as an item of a batch does.

    Raises RxbookError in one line. notebook.ipynb in the folder then has the error where it happened.
    """
    from papermill.exceptions import PapermillExecutionError

    declared, plan = notebooks.declared(notebook), notebooks.plan(notebook, given)
    if not (path / "report.html").exists():
        try:
            _papermill(notebooks.find(notebook), path, plan, given)
        except PapermillExecutionError as error:
            known = error.ename == RxbookError.__name__
            raise RxbookError(f"{'' if known else f'{error.ename}: '}{error.evalue}") from None
        except RuntimeError as error:
            raise RxbookError(f"the notebook's process failed: {error}") from None
        _write_page(path)
    inputs = any(given.get(name) for name in INPUTS)
    if "blocks" in declared and not inputs and not runs.is_run(path):
        raise RxbookError(
            "nothing was measured: this machine can only show the recorded sample (rxbook doctor)"
        )


def estimate_s(plan: Plan) -> float:
    """About how long a run of this plan takes, with its start and its tables."""
    per_block = len(plan.cells("x"))
    if plan.kernels:
        boots = (plan.boots or 2) * len(plan.kernels)
        each = BOOT_S + per_block / len(plan.kernels) * (1 + 3 * plan.profile + plan.heads)
        return START_S + boots * each / min(boots, os.cpu_count() or 1)
    return START_S + 1.3 * _traffic_s(plan, per_block, plan.blocks)  # windows are 70 to 80 % of a run's time


def _traffic_s(plan: Plan, per_block: int, blocks: int) -> float:
    """Seconds of traffic in so many blocks, and in the windows for profiles and heads."""
    windows = (blocks + plan.heads * heads.WINDOWS) * per_block
    recorded = _profiles(plan, per_block) * (plan.profile_s + plan.warmup_s + record.LEAD_S)
    return windows * (plan.window_s + plan.warmup_s) + recorded


def _profiles(plan: Plan, per_block: int) -> int:
    return plan.profile * plan.profile_repeats * per_block


def _to_resume(path: Path, given: dict[str, str]) -> tuple[Path, Plan]:
    if given:
        raise RxbookError("--resume takes its parameters from the run: leave --set out")
    run = runs.load(path)
    if run.status == "running":
        raise RxbookError(f"{path.name} is still running: wait for it, or end it")
    return path, run.plan


def _show(source: Path, path: Path, given: dict[str, str]) -> None:
    """Run a notebook that measures nothing. Raises RxbookError for a parameter that it has not."""
    declared = notebooks.declared(source.stem)
    for name in given:
        if name not in declared:
            raise RxbookError(
                f"the notebook {source.stem} has no parameter {name}; it has {', '.join(declared)}"
            )
    asked: dict[str, object] = {**given, "widgets": False}
    if given.get("runs"):  # the notebook runs elsewhere
        names = given["runs"].split(",")
        asked["runs"] = [str(runs.find(name.strip(), path.parent).absolute()) for name in names]
    print(f"nothing is measured; {_shown(path)}", flush=True)
    _execute(source, path, Plan(), asked)
    _write_page(path)
    _conclude(path, source.stem)


def _announce(path: Path, plan: Plan) -> None:
    """Say what is going to happen. Raises RxbookError where another run holds the testbed."""
    if plan.kernels:
        _announce_guests(path, plan)
        return
    if plan.hosts:
        hosts.read(plan.hosts)
    else:
        able, reasons = doctor.can_run_live(doctor.checks())
        if not able:
            print(doctor.instead(reasons), file=sys.stderr)
            return
        generators.require(plan.generator)
        # tried here, as starting the notebook costs CPU time that the other run would see
        lock = Lock(path.name)
        lock.acquire()
        lock.release()
    release = facts.kernel_release()
    per_block = len(plan.cells(release))
    blocks = len(runs.blocks_left(path, plan, per_block))
    seconds, profiles = _traffic_s(plan, per_block, blocks), _profiles(plan, per_block)
    recorded = f", {profiles} profiles of {plan.profile_s:g} s" if profiles else ""
    print(f"{per_block} cells, {blocks} blocks, windows of {plan.window_s:g} s{recorded}: about {seconds:.0f} s of "
          f"traffic; {_shown(path)}", flush=True)  # fmt: skip


def _announce_guests(path: Path, plan: Plan) -> None:
    """Say which kernels are booted. Raises RxbookError where one cannot be."""
    from rxbook.guests import measuring

    found = measuring.find_kernels(plan)
    named = ", ".join(f"{label} ({kernel.release})" for label, kernel in found.items())
    print(f"guests: {named}; {len(plan.cells('')) // len(found)} cells each; {_shown(path)}", flush=True)


def _announce_inputs(path: Path, inputs: dict[str, str]) -> None:
    """Say that nothing is measured. Raises RxbookError where an input is not there."""
    from rxbook import function_cycles

    named = [item for value in inputs.values() for item in function_cycles.as_list(value)]
    for item in named:
        function_cycles.found(item, path.parent)
    print(f"nothing is measured: shows {', '.join(named)}; {_shown(path)}", flush=True)


def _execute(source: Path, path: Path, plan: Plan, given: dict[str, object]) -> None:
    from papermill.exceptions import PapermillExecutionError

    try:
        _papermill(source, path, plan, given)
    except PapermillExecutionError as error:
        raise _without_traceback(error, source.stem, path) from None
    except RuntimeError as error:  # nbclient's, where the process did not start, or was killed
        kept = _what_is_kept(source.stem, path)
        raise RxbookError(f"the notebook's process failed: {error}{kept}") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_what_is_kept(source.stem, path)) from None


def _papermill(source: Path, path: Path, plan: Plan, given: dict[str, object]) -> None:
    import papermill

    for name in (
        "papermill",
        "asyncio",
    ):  # after Ctrl-C they would tell of the ended kernel; errors are raised
        logging.getLogger(name).setLevel(logging.CRITICAL)
    runs.make_folder(path)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(path, plan, ended), daemon=True)
    watcher.start()
    try:
        papermill.execute_notebook(
            source,
            path / "notebook.ipynb",
            parameters={**given, "runs_dir": str(path.parent), "run_name": path.name},
            kernel_name=KERNEL,
            extra_arguments=["--log-level=CRITICAL"],  # Ctrl-C would show a traceback of the kernel's sockets
            progress_bar=False,
            cwd=str(runs.ROOT),
        )
    finally:
        ended.set()
        watcher.join()


def _without_traceback(error: Exception, notebook: str, path: Path) -> RxbookError:
    if error.ename != "RxbookError":
        return RxbookError(f"{error.ename}: {error.evalue}; the traceback is in {path / 'notebook.ipynb'}")
    return RxbookError(str(error.evalue) + _what_is_kept(notebook, path))


def _what_is_kept(notebook: str, path: Path) -> str:
    """How to go on with an interrupted run; where it measured nothing, its folder is taken back."""
    windows = progress.windows_in(path / "samples.csv")
    if windows:
        place = "" if path.parent == runs.RUNS else f" --runs-dir {_shown(path.parent)}"
        return f"; {windows} windows are kept: rxbook run {notebook} --resume {path.name}{place}"
    shutil.rmtree(path)
    return ""


def _watch(path: Path, plan: Plan, ended: threading.Event) -> None:
    """Show how far the run is, by the lines of its samples file and by its recordings.

    Each second in a terminal, else each 10 s.
    """
    samples, per_block = path / "samples.csv", len(plan.cells(facts.kernel_release()))
    if plan.kernels:
        return  # a boot says nothing for long; its windows are then there almost at once
    total, before = per_block * len(runs.blocks_left(path, plan, per_block)), progress.windows_in(samples)
    terminal = sys.stderr.isatty()
    start = None
    while not ended.wait(1.0 if terminal else 10.0):
        done = progress.windows_in(samples) - before
        if done <= 0:
            continue
        start = start or time.monotonic() - done * (plan.window_s + plan.warmup_s)
        profiles = record.recordings(path / "profiles")
        words = (
            progress.profile_line(profiles, per_block * plan.profile_repeats)
            if profiles and done == total
            else progress.line(done, total, per_block, time.monotonic() - start)
        )
        print(f"\r\033[K{words}" if terminal else words, end="" if terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip
    if start and terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _write_page(path: Path) -> None:
    from rxbook import page

    page.write(path / "notebook.ipynb", path / "report.html", path.name)


def _conclude(path: Path, notebook: str) -> None:
    from rxbook import render, report

    read = sorted(path.glob("tables/*.txt")) if not runs.is_run(path) else []
    for file in read:  # of inputs: nothing was measured
        print("\n" + file.read_text())
    if not read:
        run = runs.load(path) if runs.is_run(path) else runs.recorded(notebook)
        for name in report.SHOWN[notebook]:
            table = report.table_of(run, name)
            if table:
                print("\n" + render.text(table))
    print(f"page        {_shown(path / 'report.html')}")
    if read or not run.recorded:
        named = path.name if path.parent == runs.RUNS else _shown(path)
        print(f"run folder  {_shown(path)}\nfor a mail  rxbook mail {named}")


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
