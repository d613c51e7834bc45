# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf record of the receiver's CPU while a cell's traffic runs, in a window of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rxbook import RxbookError
from rxbook.kernel import probes
from rxbook.plan import Cell

if TYPE_CHECKING:
    from rxbook.testbeds.veth import Veth

__all__ = ["FREQUENCY", "record_cells", "recorded", "share"]

FREQUENCY = 4999
"""Samples per second: off the round numbers at which the kernel's own work comes."""

LEAD_S = 0.3
"""perf's own start, before which the counted window must not begin."""


def record_cells(
    testbed: Veth, cells: Iterable[Cell], folder: Path, cpu: int, warmup_s: float, window_s: float
) -> None:
    """Leave cell-N.data and cell-N.json (the cell, and the counters' changes meanwhile) for each cell in `folder`.

    What is there already, from before an interruption, stays. Samples cycles where the machine counts them,
    else time (cpu-clock). Raises RxbookError where perf is missing or refuses.
    """
    if probes.perf_version() is None:
        raise RxbookError(f"no perf tool that runs. {probes.PERF_PACKAGES}")
    event = "cpu-clock" if probes.cycle_counter() else "cycles"
    folder.mkdir(exist_ok=True)
    # as it is now: modules and BPF programs come and go
    shutil.copyfile("/proc/kallsyms", folder / "kallsyms")
    for number, cell in enumerate(cells, 1):
        about = folder / f"cell-{number:02}.json"
        if about.exists():
            continue
        data = about.with_suffix(".data")
        command = ["perf", "record", "-q", "-C", str(cpu), "-e", event, "-F", str(FREQUENCY), "-o", str(data)]
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


def share(folder: Path, target: Path) -> None:
    """Copy a run's profiles to a new folder, scrubbed, with kallsyms, without which others cannot name functions."""
    from rxbook.profile import scrub

    target.mkdir()
    for cell, data in recorded(folder):
        counted = json.loads(data.with_suffix(".json").read_text())["counted"]
        scrub.copy(data, target / data.name)
        about = {"cell": cell.model_dump(), "counted": counted}
        (target / data.name).with_suffix(".json").write_text(json.dumps(about) + "\n")
    if (folder / "kallsyms").exists():
        shutil.copyfile(folder / "kallsyms", target / "kallsyms")
