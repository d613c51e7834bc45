# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Measures a plan in guests: each boot is one kernel, the kernels take turns in random order."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rxbook import RxbookError
from rxbook.guests import debian, kernels, qemu
from rxbook.guests.kernels import Kernel
from rxbook.measure import common_row, window_row
from rxbook.plan import Cell, Plan
from rxbook.runs import Folder, boots_left
from rxbook.testbeds.lock import Lock

__all__ = ["BOOTS", "PACKETS", "find_kernels", "instruction_row", "measure"]

BOOTS = {"instructions": 2, "time": 5}
"""Two exact counts prove each other; 5 is the least from which an interval is worth printing."""

PACKETS = 20_480
"""Counted in each window of instructions: batches, ticks and wake-ups of the thread are then below 0.1 %."""

BOOT_LIMIT_S, WINDOW_LIMIT_S = 240, 60
"""A guest that takes longer hangs: emulated on a busy machine, a boot took 50 s and a window 10 s."""


def find_kernels(plan: Plan) -> dict[str, Kernel]:
    """The kernels of a plan by label; a Debian kernel that the store lacks is fetched.

    Raises RxbookError where one is not known.
    """
    found = {}
    for label, name in plan.kernels.items():
        known = {kernel.label for kernel in kernels.known()}
        if name.startswith(debian.PREFIX) and name not in known:
            print(f"{name}: fetched from Debian's mirror, once", flush=True)
            debian.fetch(name, name)
        found[label] = kernels.find(name)
    return found


def measure(
    folder: Folder, cells: list[Cell], report: Callable[[int, int, Cell], None] = lambda *_: None
) -> dict[str, Any]:
    """Boot each kernel of the folder's plan as often as it says, and write the windows as they come.

    A guest that crashes or hangs costs its own windows: what it said is in the folder's log.txt and guests/, and in
    host.json. `report` and what is returned: as `rxbook.measure.measure`. Raises RxbookError where no window came.
    """
    plan, found = folder.plan, find_kernels(folder.plan)
    kvm = plan.count != "instructions" and all(qemu.kvm_works(kernel.image) for kernel in found.values())
    count = "time" if kvm else "instructions"
    if plan.count == "time" and not kvm:
        raise RxbookError(
            "count=time: no guest gets to user space under KVM here; leave count out, or instructions"
        )
    boots = list(boots_left(folder.path, plan.boots or BOOTS[count], len(cells)))
    facts = {label: _facts(kernel) for label, kernel in found.items()}
    about = {"count": count, "cpu": "host" if kvm else qemu.CPU, "packets": PACKETS,
             "differing_options": kernels.differing_options(list(found.values())), "kernels": facts}  # fmt: skip
    per_boot = max(1, plan.blocks // (plan.boots or BOOTS[count])) if kvm else 1
    total, done, start = len(boots) * len(cells) * per_boot, 0, time.monotonic()

    lock = Lock(folder.path.name)
    lock.acquire()
    for boot, label in _schedule(boots, list(found), folder.seed):
        own = [cell for cell in cells if cell.variant == label]
        # where instructions are counted the order is the plan's: two boots are to be the same to the last digit
        windows = list(_windows(boot, own, per_boot, folder.seed if kvm else None))

        def keep(
            index: int, counted: dict[str, float | None], boot: int = boot, windows: Any = windows
        ) -> None:
            nonlocal done
            block, order, cell = windows[index]
            row = window_row(cell, counted, plan) if kvm else instruction_row(cell, counted)
            folder.append({"block": block, "order": order, "boot": boot, **row})
            done += 1
            report(done, total, cell)

        ended = _boot(found[label], windows, count, plan, keep)
        _note(folder, label, boot, ended, facts[label])
        folder.add_to_host({"guests": about})
    lock.release()
    if not done and total:
        raise RxbookError("no guest measured anything: " + "; ".join(
            f"{label}: {fact['trouble'][0]}" for label, fact in facts.items()))  # fmt: skip
    wall_s = time.monotonic() - start
    return {"wall_s": wall_s, "windows": done}


def _schedule(boots: list[int], labels: list[str], seed: int) -> Iterator[tuple[int, str]]:
    """(boot, label): every kernel once in each round, so that the machine's drift meets all."""
    for boot in boots:
        shuffled = list(labels)
        random.Random(f"{seed}/boot {boot}").shuffle(shuffled)
        for label in shuffled:
            yield boot, label


def _windows(boot: int, cells: list[Cell], blocks: int, seed: int) -> Iterator[tuple[int, int, Cell]]:
    """(block, place in it, cell) of one boot; blocks have the same numbers and orders in all kernels.

    The order is another one in each boot, also where instructions are counted: boots of one order are the same to the
    last digit, and would not show what a cell owes to those before it.
    """
    for block in range(boot * blocks, (boot + 1) * blocks):
        shuffled = list(cells)
        random.Random(f"{seed}/{block}").shuffle(shuffled)
        for order, cell in enumerate(shuffled):
            yield block, order, cell


def _boot(kernel: Kernel, windows: list[Any], count: str, plan: Plan, keep: Callable) -> qemu.Boot:
    job = {
        "count": count,
        "queue_size": plan.queue_size,
        "packets": PACKETS,
        "warmup_s": plan.warmup_s,
        "window_s": plan.window_s,
        "windows": [
            cell.model_dump() | {"frame_spec": dataclasses.asdict(cell.frame_spec)} for _, _, cell in windows
        ],
    }
    limit_s = BOOT_LIMIT_S + len(windows) * WINDOW_LIMIT_S
    return qemu.boot(kernel.image, job, kernel.modules(), kvm=count == "time", timeout_s=limit_s, report=keep)


def _note(folder: Folder, label: str, boot: int, ended: qemu.Boot, facts: dict[str, Any]) -> None:
    """Keep what a boot said; a crash is shown at once."""
    place = folder.path / "guests"
    place.mkdir(exist_ok=True)
    name = f"{facts['number']}-boot-{boot}.console.txt"
    (place / name).write_text(ended.console)
    facts.update(ended.hello)
    facts["boot_s"].append(round(ended.hello_s, 1))
    facts["wall_s"].append(round(ended.wall_s, 1))
    folder.log(
        f"{label}, boot {boot}: user space after {ended.hello_s:.1f} s, ended after {ended.wall_s:.1f} s"
    )
    if ended.trouble:
        facts["trouble"].append(ended.trouble)
        folder.log(f"{label}, boot {boot}: {ended.trouble}")
        print(f"{label}, boot {boot}: {ended.trouble} (guests/{name})", file=sys.stderr)


def _facts(kernel: Kernel) -> dict[str, Any]:
    config = kernel.options()
    digest = hashlib.sha256("\n".join(sorted(config)).encode()).hexdigest()[:12] if config else None
    number = hashlib.sha256(kernel.label.encode()).hexdigest()[:6]
    return {"number": number, "kernel_release": kernel.release, "btf": kernel.btf, "options_hash": digest,
            "boot_s": [], "wall_s": [], "trouble": []}  # fmt: skip


def instruction_row(cell: Cell, counted: dict[str, float | None]) -> dict[str, Any]:
    """A window's row of samples.csv. It has no rate: the guest's seconds are counts of instructions."""
    received, row = counted["frames"], common_row(cell, counted)
    flags = ["drops"] * (row["dropped_frames"] != 0 or received < PACKETS) + ["empty_payload"] * (
        row["payload_bytes"] == 0
    )
    exact = round(counted["cpu_ns"] / received, 2) if received else None
    return row | {"instructions_per_packet": exact, "flags": ";".join(flags)}
