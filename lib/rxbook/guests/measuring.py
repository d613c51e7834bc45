# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Measures a plan in guests: each boot is one kernel, the kernels take turns in random order."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import queue
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rxbook import RxbookError, heads
from rxbook.generators import xdp_trafficgen
from rxbook.guests import debian, kernels, qemu
from rxbook.guests.kernels import Kernel
from rxbook.kernel import probes
from rxbook.measure import common_row, window_row
from rxbook.plan import Cell, Plan
from rxbook.profile import record
from rxbook.runs import Folder, boots_left
from rxbook.testbeds.lock import Lock
from rxbook.testbeds.processes import unpacked

__all__ = ["BOOTS", "PACKETS", "find_kernels", "instruction_row", "measure"]

BOOTS = {"instructions": 2, "time": 5}
"""Two exact counts prove each other; 5 is the least from which an interval is worth printing."""

PACKETS = 20_480
"""Counted in each window of instructions: batches, ticks and wake-ups of the thread are then below 0.1 %."""

PERIOD = 10_007
"""Instructions between two samples, off the round numbers; the kernel's clock allows no fewer than 10,000."""

GUEST_MIB = 1024
"""Of this machine's memory, QEMU's own part included."""

BOOT_LIMIT_S, WINDOW_LIMIT_S = 240, {"live_frames": 60, "pktgen": 60, "xdp_trafficgen": 300}
"""A guest that takes longer hangs: on a busy machine a boot took 50 s, a window 10 s, and with xdp-trafficgen 90 s."""


def find_kernels(plan: Plan) -> dict[str, Kernel]:
    """The kernels of a plan by label; a Debian kernel that the store lacks is fetched.

    Raises RxbookError where one is not known, or lacks what the plan's generator needs.
    """
    found = {}
    if plan.generator == "xdp_trafficgen":
        xdp_trafficgen.program()  # this machine's comes along
    for label, name in plan.kernels.items():
        known = {kernel.label for kernel in kernels.known()}
        if name.startswith(debian.PREFIX) and name not in known:
            print(f"{name}: fetched from Debian's mirror, once", flush=True)
            debian.fetch(name, name)
        found[label] = kernels.find(name)
        found[label].modules(_wanted(plan))
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
    if plan.generator == "xdp_trafficgen" and not kvm and plan.queue_size < 2 * xdp_trafficgen.AT_ONCE:
        raise RxbookError(
            f"queue_size={plan.queue_size}: where instructions are counted, generator=xdp_trafficgen sends "
            f"{xdp_trafficgen.AT_ONCE} frames at once; say queue_size={2 * xdp_trafficgen.AT_ONCE}"
        )
    boots = list(boots_left(folder.path, plan.boots or BOOTS[count], len(cells)))
    facts = {label: _facts(kernel) for label, kernel in found.items()}
    about = {"count": count, "cpu": "host" if kvm else qemu.CPU, "packets": PACKETS, "period": PERIOD,
             "differing_options": kernels.differing_options(list(found.values())), "kernels": facts}  # fmt: skip
    per_boot = max(1, plan.blocks // (plan.boots or BOOTS[count])) if kvm else 1
    total, done, start = len(boots) * len(cells) * per_boot, 0, time.monotonic()

    perf = None if kvm else _perf(folder)
    programs = (perf or [])[:1]
    if plan.generator == "xdp_trafficgen":
        programs.append(xdp_trafficgen.program())

    jobs = []
    for boot, label in _schedule(boots, list(found), folder.seed):
        own = [cell for cell in cells if cell.variant == label]
        windows = list(_windows(boot, own, per_boot, folder.seed if kvm else None))
        jobs.append(Job(boot, label, found[label], windows))
    lock = Lock(folder.path.name)
    lock.acquire()
    try:
        for job, told in _told(jobs, plan, count, perf, programs):
            place = folder.path / "profiles" / facts[job.label]["number"]
            if isinstance(told, qemu.Boot):
                _note(folder, job, told, facts[job.label])
                folder.add_to_host({"guests": about})
            elif "kallsyms" in told:
                (place / "kallsyms").write_bytes(unpacked(told["kallsyms"]))
            elif "heads" in told:
                cell = job.windows[told["index"]][2]
                heads.append(folder.path / "heads.csv", [heads.row(job.boot + 1, cell, told["heads"])])
            elif "data" in told:
                cell = job.windows[told["index"]][2]
                place.mkdir(parents=True, exist_ok=True)  # each kernel has one, as its symbols are its own
                record.keep(
                    place / f"cell-{cells.index(cell) + 1:02}-{job.boot + 1}",
                    cell,
                    perf,
                    told["counted"],
                    told,
                )
            else:
                block, order, cell = job.windows[told["index"]]
                counted = told["counted"]
                row = window_row(cell, counted, plan) if kvm else instruction_row(cell, counted)
                folder.append({"block": block, "order": order, "boot": job.boot, **row})
                done += 1
                report(done, total, cell)
    finally:
        lock.release()
    if not done and total:
        raise RxbookError("no guest measured anything: " + "; ".join(
            f"{label}: {fact['trouble'][0]}" for label, fact in facts.items()))  # fmt: skip
    wall_s = time.monotonic() - start
    return {"wall_s": wall_s, "windows": done}


@dataclasses.dataclass(frozen=True)
class Job:
    """One boot of one kernel; windows: (block, place in it, cell)."""

    boot: int
    label: str
    kernel: Kernel
    windows: list[tuple[int, int, Cell]]


def _told(
    jobs: list[Job], plan: Plan, count: str, perf: list[str] | None, programs: list[str]
) -> Iterator[tuple[Job, dict[str, Any] | qemu.Boot]]:
    """Boot all, and give what each guest tells as it comes, at last how it ended.

    Counts of instructions do not depend on what else runs, so there are as many boots at once as this machine has CPUs
    and memory for; where time is counted, one.
    """
    told: queue.SimpleQueue[tuple[Job, dict[str, Any] | qemu.Boot | Exception]] = queue.SimpleQueue()
    stop, stopping = os.pipe()

    def work(job: Job) -> None:
        try:
            ended = _boot(job, plan, count, perf, programs, lambda message: told.put((job, message)), stop)
            told.put((job, ended))
        except Exception as error:
            told.put((job, error))

    left = len(jobs)
    with contextlib.ExitStack() as held:
        held.callback(os.close, stop)
        held.callback(os.close, stopping)
        pool = held.enter_context(ThreadPoolExecutor(_at_once() if count == "instructions" else 1))
        held.callback(pool.shutdown, cancel_futures=True)
        held.callback(os.write, stopping, b"x")
        for job in jobs:
            pool.submit(work, job)
        while left:
            job, message = told.get()
            if isinstance(message, Exception):
                raise message
            left -= isinstance(message, qemu.Boot)
            yield job, message


def _at_once() -> int:
    available_kib = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    return max(1, min(len(os.sched_getaffinity(0)), available_kib // 1024 // GUEST_MIB))


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


def _perf(folder: Folder) -> list[str] | None:
    """perf record's command in a guest, without the thread; None where there is to be no profile, or no perf.

    Under KVM a guest is as good a place for perf as this machine, but none was at hand to try it.
    """
    if not folder.plan.profile:
        return None
    found = shutil.which("perf")
    program = os.path.realpath(found) if found else ""
    if not program or Path(program).read_bytes()[:4] != b"\x7fELF":
        problem = f"no perf that a guest could run. {probes.PERF_PACKAGES}"
        folder.log(f"no profile: {problem}")
        print(f"no profile was recorded: {problem}", file=sys.stderr)
        return None
    return [
        program,
        "record",
        "-q",
        "-N",
        "-e",
        "cpu-clock",
        "-c",
        str(PERIOD),
        *["-g"] * folder.plan.call_graph,
    ]


def _wanted(plan: Plan) -> list[str]:
    """The modules that only some runs load."""
    return ["pktgen"] * (plan.generator == "pktgen")


def _boot(
    job: Job, plan: Plan, count: str, perf: list[str] | None, programs: list[str], report: Callable, stop: int
) -> qemu.Boot:
    told = {
        "count": count,
        "perf": perf,
        "programs": programs,
        "generator": plan.generator,
        "heads": plan.heads and count == "instructions",
        "queue_size": plan.queue_size,
        "packets": PACKETS,
        "warmup_s": plan.warmup_s,
        "window_s": plan.window_s,
        "windows": [
            cell.model_dump() | {"frame_spec": dataclasses.asdict(cell.frame_spec)}
            for _, _, cell in job.windows
        ],
    }
    limit_s = BOOT_LIMIT_S + len(job.windows) * WINDOW_LIMIT_S[plan.generator]
    kernel = job.kernel
    modules = kernel.modules(_wanted(plan))
    return qemu.boot(
        kernel.image, told, modules, kvm=count == "time", timeout_s=limit_s, report=report, stop=stop
    )


def _note(folder: Folder, job: Job, ended: qemu.Boot, facts: dict[str, Any]) -> None:
    """Keep what a boot said; a crash is shown at once."""
    boot, label = job.boot, job.label
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
