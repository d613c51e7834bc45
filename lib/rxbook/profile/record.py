# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf record of the receiver's CPU while a cell's traffic runs, in a window of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rxbook import RxbookError
from rxbook.kernel import perf_tool
from rxbook.plan import Cell

if TYPE_CHECKING:
    from rxbook.testbeds.veth import Veth

__all__ = ["record_cells", "recorded"]

LEAD_S = 0.3
"""perf's own start, before which the counted window must not begin."""


def record_cells(
    testbed: Veth, cells: Iterable[Cell], folder: Path, cpu: int, warmup_s: float, window_s: float
) -> None:
    """Leave cell-N.data and cell-N.json (the cell, and the counters' changes meanwhile) for each cell in `folder`.

    What is there already, from before an interruption, stays. Samples cycles where the machine counts them,
    else time (cpu-clock). Raises RxbookError where perf is missing or refuses.
    """
    folder.mkdir(exist_ok=True)
    perf_tool.save_kallsyms(folder)
    for number, cell in enumerate(cells, 1):
        about = folder / f"cell-{number:02}.json"
        if about.exists():
            continue
        data = about.with_suffix(".data")
        command = perf_tool.record_command(str(cpu), data)
        counted = _record(
            testbed, cell, [*command, "--", "sleep", str(window_s + LEAD_S)], warmup_s, window_s
        )
        about.write_text(json.dumps({"cell": cell.model_dump(), "argv": command, "counted": counted}) + "\n")


def _record(
    testbed: Veth, cell: Cell, command: list[str], warmup_s: float, window_s: float
) -> dict[str, float | None]:
    testbed.prepare(cell)
    testbed.sender.call("start")
    try:
        perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
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
    return counted


def recorded(folder: Path) -> list[tuple[Cell, Path]]:
    """(cell, perf.data) of each profile in a run's folder `profiles`, in the order of the plan's cells."""
    found = []
    for about in sorted(folder.glob("cell-*.json")):
        data = about.with_suffix(".data")
        if data.exists():
            found.append((Cell(**json.loads(about.read_text())["cell"]), data))
    return found
