# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf record of the receiver's CPU while a cell's traffic runs, in a window of its own."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rxbook import RxbookError, profile
from rxbook.kernel import perf_tool
from rxbook.plan import Cell, Plan
from rxbook.profile import saved
from rxbook.profile.tasks import only_task

if TYPE_CHECKING:
    from rxbook.testbeds.veth import Veth

__all__ = ["Recording", "profile_cells", "recorded", "recordings", "scrub"]

LEAD_S = 0.3
"""perf's own start, before which the counted window must not begin."""


@dataclass(frozen=True)
class Recording:
    """One perf.data of a cell, or the CSV that a scrubbed run has in its place.

    task: the name of the thread that received, in full.
    """

    cell: Cell
    data: Path
    task: str


def profile_cells(
    testbed: Veth,
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
    or refuses.
    """
    command = [*perf_tool.record_command(str(plan.receiver_cpu)), *["-g"] * plan.call_graph]
    folder.mkdir(exist_ok=True)
    todo = list(_schedule(cells, folder, plan.profile_repeats, seed))
    for done, (cell, about) in enumerate(todo, 1):
        if not about.exists():
            perf_tool.save_kallsyms(folder)
            argv = [*command, "-o", str(about.with_suffix(".data"))]
            noted = _record(testbed, cell, argv, plan.warmup_s, plan.profile_s)
            about.write_text(json.dumps({"cell": cell.model_dump(), "argv": argv, **noted}) + "\n")
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
    testbed: Veth, cell: Cell, command: list[str], warmup_s: float, window_s: float
) -> dict[str, object]:
    task = Path(f"/proc/{testbed.prepare(cell)}/comm").read_text().strip()
    testbed.sender.call("start")
    try:
        perf = subprocess.Popen(
            [*command, "--", "sleep", str(window_s + LEAD_S)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            counted = testbed.count(warmup_s + LEAD_S / 2, window_s)
            errors = perf.communicate(timeout=30 + window_s)[1]
        finally:
            perf.kill()
            perf.wait()
    finally:
        testbed.sender.call("stop")
    if perf.returncode:
        raise RxbookError(
            f"perf record: {errors.strip().splitlines()[-1] if errors.strip() else perf.returncode}"
        )
    return {"task": task, "counted": counted}


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

    Of a recording with call chains its stacks are kept too, as export.folded() writes them.
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
                lines = [
                    ";".join(stack) + f" {samples}\n" for stack, samples in flames.stacks(recording).items()
                ]
                (target / about.with_suffix(".folded").name).write_text("".join(lines))
