# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions by share and by cost per packet: of one run by traffic shape, before and after, or of files."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rxbook import RxbookError, instructions, profile, provenance, runs, words
from rxbook.plan import Cell, Plan
from rxbook.profile import Profile, record
from rxbook.profile.functions import Column, function_table
from rxbook.profile.headline import headline
from rxbook.profile.record import Recording
from rxbook.profile.tasks import only_task
from rxbook.runs import Run
from rxbook.statistics import Interval
from rxbook.tables import Table, is_cell

__all__ = [
    "COST",
    "Condition",
    "as_list",
    "comparison",
    "cost_of",
    "found",
    "headlines",
    "makers",
    "of_runs",
    "table_of",
    "thread_profiles",
    "unit_of",
]

Condition = tuple[Run, Cell, list[Recording]]

COST = {unit: f"{unit}_per_packet" for unit in ("cycles", "ns", "instructions")}


def makers(run: Run) -> dict[str, Callable[[], Table]]:
    """What makes a run's tables, by the names of their files.

    Of one kernel there is one for each traffic shape, GRO off and on side by side; of several kernels one for each
    shape and GRO off, GRO on, with the kernels side by side.
    """
    several = run.samples["variant"].nunique() > 1
    apart = ("variant",) if several else ("variant", "gro")
    tables: dict[tuple, dict[str, Condition]] = {}
    for cell, recordings in record.recorded(run.path / "profiles").items():
        shape = tuple(value for name, value in cell if name not in apart)
        label = cell.variant if several else f"GRO {cell.gro}"
        tables.setdefault(shape, {})[label] = (run, cell, recordings)
    source = words.dated(run.source, run.samples)
    return {
        f"functions_{number}": functools.partial(_of_cells, columns, source, run.plan, several)
        for number, columns in enumerate(tables.values(), 1)
    }


def headlines(run: Run) -> dict[Cell, dict[str, str | int]]:
    """Of each profiled cell, the receiving thread's functions as metadata for pyperf (see `headline`)."""
    found = record.recorded(run.path / "profiles")
    return {
        cell: {"rxbook_task": recordings[0].task}
        | headline(thread_profiles(recordings, run.plan.call_graph)[0])
        for cell, recordings in found.items()
    }


def comparison(
    before: Sequence[str], after: Sequence[str], shown: Plan, folder: Path = runs.RUNS
) -> dict[str, Table]:
    """Tables of runs or of files, by name; with `after`, each shows what changed.

    before, after: one run folder (or run's name) each, or files of perf.data or of what perf printed; several files
    are repeats of one condition. shown: whose functions, families and top are taken. folder: where runs lie.
    Raises RxbookError where one is neither, or they are not of one kind.
    """
    sides = {
        name: [found(given, folder) for given in side]
        for name, side in (("before", before), ("after", after))
    }
    sides = {name: paths for name, paths in sides.items() if paths}
    folders = [path for paths in sides.values() for path in paths if runs.is_run(path)]
    if not sides or "before" not in sides:
        raise RxbookError("before is empty: name a run folder, or files of perf.data or of what perf printed")
    if not folders:
        return {"functions_1": _of_files(sides, shown)}
    if any(len(paths) != 1 or not runs.is_run(paths[0]) for paths in sides.values()):
        raise RxbookError(
            f"{folders[0].name} is a run folder: name one run each as before and after, or files only"
        )
    return of_runs({name: runs.load(paths[0]) for name, paths in sides.items()}, shown)


def of_runs(loaded: Mapping[str, Run], shown: Plan) -> dict[str, Table]:
    """The same of runs that are loaded, "before" and perhaps "after"."""
    for run in loaded.values():
        if not record.recordings(run.path / "profiles"):
            raise RxbookError(f"{run.path.name} has no profiles: measure with profile=true")
    if len(loaded) == 1:
        run = replace(loaded["before"], plan=_showing(loaded["before"].plan, shown))
        return {name: make() for name, make in makers(run).items()}
    return _of_both(loaded, shown)


def as_list(value: str | Sequence[str]) -> list[str]:
    """`a.data,b.data` from a command line, one name, and a list of them."""
    items = value.split(",") if isinstance(value, str) else value
    return [str(item).strip() for item in items if str(item).strip()]


def found(given: str, folder: Path = runs.RUNS) -> Path:
    """The file or run that an input names, runs as `runs.find` does. Raises RxbookError where there is none."""
    path = Path(given).absolute()
    if path.is_file():
        return path
    try:
        return runs.find(given, folder).absolute()
    except RxbookError as error:
        raise RxbookError(f"{given} is no file; {error}") from None


def _showing(plan: Plan, shown: Plan) -> Plan:
    return plan.model_copy(
        update={name: getattr(shown, name) for name in ("functions", "families", "debug", "top")}
    )


def _of_both(loaded: Mapping[str, Run], shown: Plan) -> dict[str, Table]:
    """One table for each cell that all runs have; variants do not matter."""
    cells: dict[tuple, dict[str, Condition]] = {}
    for name, run in loaded.items():
        for cell, recordings in record.recorded(run.path / "profiles").items():
            key = tuple(value for field, value in cell if field != "variant")
            cells.setdefault(key, {})[name] = (run, cell, recordings)
    shared = [columns for columns in cells.values() if len(columns) == len(loaded)]
    if not shared:
        raise RxbookError("no cell was profiled in both runs: their traffic differs")
    source = "from two runs"
    machines = [
        f"{name}: {run.path.name}, {run.source}; {provenance.machine_label(run.host)}."
        for name, run in loaded.items()
    ]
    return {
        f"functions_{number}": _of_cells(columns, source, shown, True, machines)
        for number, columns in enumerate(shared, 1)
    }


def _of_files(sides: Mapping[str, Sequence[Path]], shown: Plan) -> Table:
    columns = {
        name: Column([profile.load(path, debug=shown.debug) for path in paths])
        for name, paths in sides.items()
    }
    source = "from " + " and ".join(paths[0].name for paths in sides.values())
    return function_table(columns, source=source, **_options(shown))


def _options(shown: Plan) -> dict[str, object]:
    return {"top": shown.top, "only": shown.functions or None, "families": shown.families or True}


def _of_cells(
    columns: Mapping[str, Condition],
    source: str,
    shown: Plan,
    gro: bool = False,
    machines: Sequence[str] = (),
) -> Table:
    """One traffic shape; each column is a cell with the repeats of its recording."""
    table = table_of(columns, source, shown)
    _, cell, _ = next(iter(columns.values()))
    of = f", GRO {cell.gro}" if gro else ""
    title = f"{words.short_traffic(cell.model_dump())}{of}: {table.title}"
    traffic = f"{words.traffic(cell.model_dump())}{of}"
    notes = (f"{traffic}.", *table.notes, *machines)
    return replace(table, title=title, notes=notes, about=(traffic, *machines))


def table_of(columns: Mapping[str, Condition], source: str, shown: Plan) -> Table:
    """The table of functions of any cells, a column for each, with the repeats of its recording."""
    children = all(run.plan.call_graph for run, _, _ in columns.values())
    unit = unit_of(columns)
    read, kept = {}, {}
    for label, condition in columns.items():
        profiles, kept[label] = thread_profiles(condition[2], children, tuple(shown.debug))
        read[label] = Column(profiles, cost_of(condition, unit), unit)
    table = function_table(read, source=source, children=children, **_options(shown))
    notes = list(_threads(kept, unit))
    without = [label for label, column in read.items() if column.cost is None]
    if without:
        notes.append(f"No cost per packet for {' and '.join(without)}: no window counts, all are flagged.")
    return replace(table, notes=(*notes, *table.notes))


def cost_of(condition: Condition, unit: str) -> Interval | None:
    """What a packet costs in a cell, in `unit`; None where no window counts."""
    run, cell, _ = condition
    windows = run.samples[is_cell(run.samples, cell.model_dump())]
    cost = instructions.interval_of(windows, COST[unit])
    return None if math.isnan(cost.centre) else cost


def unit_of(columns: Mapping[str, Condition]) -> str:
    """What a packet's cost is counted in. Raises RxbookError where that is not the same in all."""
    if any(run.exact for run, _, _ in columns.values()):
        if not all(run.exact for run, _, _ in columns.values()):
            raise RxbookError("one run counted instructions in guests, the other time: they do not compare")
        return "instructions"
    counted = [run.samples["cycles_per_packet"].notna().any() for run, _, _ in columns.values()]
    return "cycles" if all(counted) else "ns"


def thread_profiles(
    recordings: Sequence[Recording], children: bool = False, debug: tuple[str, ...] = ()
) -> tuple[list[Profile], float]:
    """The recordings without what other threads did, and the receiver's share of its CPU's samples."""
    read = [only_task(_loaded(recording.data, children, debug), recording.task) for recording in recordings]
    ours, of_the_cpu = (sum(counts) for counts in list(zip(*read, strict=True))[1:])
    return [of_task for of_task, _, _ in read], ours / of_the_cpu if of_the_cpu else 1.0


@functools.lru_cache(maxsize=1024)
def _loaded(data: Path, children: bool, debug: tuple[str, ...]) -> Profile:
    """A run's recordings are written once, and shown as table, figure and files."""
    return profile.load(data, children, debug=debug)


def _threads(kept: Mapping[str, float], unit: str) -> list[str]:
    if unit == "instructions":
        return ["Samples of the receiving thread alone."]
    shares = " and ".join(f"{share:.1%}" for share in kept.values())
    return [f"Samples of the receiving thread alone, which are {shares} of its CPU's."]
