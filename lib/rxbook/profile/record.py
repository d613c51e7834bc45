# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf record of the receiver's CPU while a cell's traffic runs, in a window of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rxbook import profile
from rxbook.kernel import perf_tool
from rxbook.plan import Cell, Plan
from rxbook.profile import saved
from rxbook.profile.tasks import only_task
from rxbook.testbeds.pair import Pair
from rxbook.testbeds.processes import unpacked

__all__ = ["LEAD_S", "Recording", "keep", "profile_cells", "recorded", "recordings", "scrub"]

LEAD_S = 0.3
"""What perf takes to start and to end, about."""

STOP_S = 300.0
"""How long a recording may take to come from another host, its end included."""


@dataclass(frozen=True)
class Recording:
    """One perf.data of a cell, or the CSV that a scrubbed run has in its place.

    task: the name of the thread that received, in full.
    """

    cell: Cell
    data: Path
    task: str


def profile_cells(
    testbed: Pair,
    cells: Sequence[Cell],
    folder: Path,
    plan: Plan,
    seed: int,
    report: Callable[[int, int], None] = lambda *_: None,
) -> None:
    """Record each cell `plan.profile_repeats` times, in blocks of random order.

    Leaves cell-N-REPEAT.data in `folder`, and .json with the cell, the command and the counters' changes meanwhile.
    What is there already, from before an interruption, stays. Samples cycles where the machine counts them, else
    time (cpu-clock). `report` is called with (recordings done, in all). Raises RxbookError where perf is missing
    or refuses, on the machine that receives.
    """
    command = [*testbed.receiver.call("perf_command"), *["-g"] * plan.call_graph]
    folder.mkdir(exist_ok=True)
    todo = list(_schedule(cells, folder, plan.profile_repeats, seed))
    symbols = None
    for done, (cell, about) in enumerate(todo, 1):
        if not about.exists():
            testbed.prepare(cell)
            if symbols is None:  # modules are loaded now, and perf itself tells of BPF programs
                symbols = unpacked(testbed.receiver.call("kallsyms", STOP_S))
                perf_tool.save_kallsyms(folder, symbols)
            counted, told = _record(testbed, command, plan.warmup_s, plan.profile_s)
            keep(about.with_suffix(""), cell, command, counted, told)
        report(done, len(todo))


def _schedule(cells: Sequence[Cell], folder: Path, repeats: int, seed: int) -> list[tuple[Cell, Path]]:
    numbered = [(number, cell) for number, cell in enumerate(cells, 1)]
    order = []
    for repeat in range(1, repeats + 1):
        shuffled = list(numbered)
        random.Random(f"{seed}/profile {repeat}").shuffle(shuffled)
        order += [(cell, folder / f"cell-{number:02}-{repeat}.json") for number, cell in shuffled]
    return order


def _record(
    testbed: Pair, command: list[str], warmup_s: float, window_s: float
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Counters' changes in a window that is recorded, and what the receiver tells of the recording."""
    testbed.sender.call("start")
    try:
        testbed.receiver.call("start_recording", argv=command)
        counted = testbed.count(warmup_s, window_s)
        return counted, testbed.receiver.call("stop_recording", STOP_S)
    finally:
        testbed.sender.call("stop")


def keep(
    path: Path, cell: Cell, command: list[str], counted: Mapping[str, float | None], told: Mapping[str, Any]
) -> None:
    """Write PATH.data and then PATH.json of one recording: `told` is the answer of a receiver's stop_recording."""
    path.with_suffix(".data").write_bytes(unpacked(told["data"]))
    about = {"cell": cell.model_dump(), "argv": command, "task": told["task"], "counted": counted}
    path.with_suffix(".json").write_text(json.dumps(about) + "\n")


def recordings(folder: Path) -> int:
    """How many recordings a run's folder `profiles` has so far."""
    return sum(1 for _ in folder.rglob("cell-*.json"))


def recorded(folder: Path) -> dict[Cell, list[Recording]]:
    """The recordings of each cell in a run's folder `profiles`, in the order of the plan's cells.

    Those of guests lie in a folder for each kernel, beside its symbols.
    """
    found: dict[Cell, list[Recording]] = {}
    for about in sorted(folder.rglob("cell-*.json"), key=lambda path: path.name):
        noted = json.loads(about.read_text())
        cell = Cell(**noted["cell"])
        data = next((path for end in (".data", ".csv") if (path := about.with_suffix(end)).exists()), None)
        if data:
            found.setdefault(cell, []).append(Recording(cell, data, noted["task"]))
    return found


def scrub(folder: Path, target: Path) -> None:
    """Copy a run's recordings as tables of the receiving thread's functions: without other tasks, paths, commands.

    Of a recording with call chains its stacks are kept too, see `flames.save`.
    """
    from rxbook.profile import flames

    target.mkdir()
    for recordings_of_cell in recorded(folder).values():
        for recording in recordings_of_cell:
            about = recording.data.with_suffix(".json")
            noted = json.loads(about.read_text())
            chains = "-g" in noted.pop("argv")
            (target / about.name).write_text(json.dumps(noted) + "\n")
            mine, _, _ = only_task(profile.load(recording.data, children=chains), recording.task)
            saved.save(mine, target / about.with_suffix(".csv").name)
            if chains:
                flames.save(recording, target / about.with_suffix(".folded.gz").name)
