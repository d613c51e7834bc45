# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Boots a kernel in QEMU. The guest gets an archive in memory and two serial ports, and nothing else of this machine:
no disk, no shared folder, no network. It ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rxbook import RxbookError
from rxbook.guests import initramfs

__all__ = ["QEMU_PACKAGES", "Boot", "boot", "command_line", "kvm_works", "require", "trouble_in"]

QEMU = "qemu-system-x86_64"
QEMU_PACKAGES = "Debian: apt install qemu-system-x86; Fedora: dnf install qemu-system-x86-core"

CPU = "Nehalem,-vme,+rdrand"
"""One model with every flag named, so that a kernel patches itself alike on each machine."""

MEMORY_MIB = 768
TRIAL_S = 15
"""A trial boot under KVM is over in 2 s where KVM works."""

KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 oops=panic nokaslr random.trust_cpu=on rdinit=/init PYTHONHASHSEED=0"
)

CRASHES = re.compile(
    r"Kernel panic - not syncing: .*|Oops: .*|BUG: .*|kernel BUG at .*|general protection fault.*|Out of memory: .*"
)


@dataclass
class Boot:
    """What came of one boot. trouble: "" where the guest did all of its job, else why not.

    hello_s: seconds until the guest's part ran, wall_s: until the end.
    """

    hello: dict[str, Any] = field(default_factory=dict)
    console: str = ""
    trouble: str = ""
    hello_s: float = 0.0
    wall_s: float = 0.0


def require() -> None:
    """Raises RxbookError where QEMU is not installed."""
    if shutil.which(QEMU) is None:
        raise RxbookError(f"no {QEMU}. {QEMU_PACKAGES}")


def boot(
    image: Path,
    job: Mapping[str, Any],
    modules: list[tuple[str, bytes]],
    *,
    kvm: bool,
    timeout_s: float,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
    stop: int | None = None,
) -> Boot:
    """Boot a kernel image with a job (see inside.py) and wait for its end.

    `report` is called with what the guest found, as it comes. stop: a file descriptor at which there is something to
    read when the boot is to end at once. A guest that crashes, hangs or finds an error is told
    in `trouble`; only a QEMU that cannot start raises RxbookError.
    """
    require()
    with contextlib.ExitStack() as held:
        archive = os.memfd_create("initramfs", 0)
        held.callback(os.close, archive)
        for part in initramfs.archive(job, modules, tuple(job.get("programs", ()))):
            _write(archive, part)
        console, console_in = os.pipe()
        results, results_in = os.pipe()
        held.callback(os.close, console)
        held.callback(os.close, results)
        ends = (console_in, results_in)
        try:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command_line(image, archive, ends, job["count"], kvm)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                pass_fds=(archive, *ends), start_new_session=True,
            )  # fmt: skip
        finally:
            for end in ends:
                os.close(end)
        held.callback(process.stderr.close)
        try:
            return _follow(process, console, results, timeout_s, report, stop)
        finally:
            process.kill()
            process.wait()


def command_line(image: Path, archive: int, ends: tuple[int, int], count: str, kvm: bool) -> list[str]:
    """QEMU's. archive, ends: file descriptors of the initramfs, and of console and results to write to."""
    words = [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot",
             "-machine", "pc,usb=off", "-m", f"{MEMORY_MIB}M", "-kernel", str(image),
             "-initrd", f"/proc/self/fd/{archive}", "-append", KERNEL_OPTIONS]  # fmt: skip
    for name, end in zip(("console", "results"), ends, strict=True):
        words += ["-chardev", f"file,id={name},path=/proc/self/fd/{end}", "-serial", f"chardev:{name}"]
    if count == "instructions":
        # virtual time is then the number of instructions; with two CPUs or threads it does not repeat
        words += ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1", "-cpu", CPU,
                  "-seed", "1", "-rtc", "base=2026-01-01T00:00:00,clock=vm"]  # fmt: skip
    elif kvm:
        words += ["-accel", "kvm", "-smp", "2", "-cpu", "host"]
    else:
        words += ["-accel", "tcg,thread=single", "-smp", "2", "-cpu", CPU]
    return words


def _follow(
    process: subprocess.Popen, console: int, results: int, timeout_s: float,
    report: Callable[[dict[str, Any]], None], stop: int | None,
) -> Boot:  # fmt: skip
    found, start = Boot(), time.monotonic()
    texts = {console: bytearray(), results: bytearray()}
    ended, open_ends = False, set(texts)
    while open_ends:
        left = start + timeout_s - time.monotonic()
        ready = select.select([*open_ends, *[stop] * (stop is not None)], [], [], max(0.0, left))[0]
        if not ready or stop in ready:
            found.trouble = "stopped" if ready else f"no end within {timeout_s:g} s"
            break
        for end in ready:
            part = os.read(end, 1 << 16)
            if not part:
                open_ends.discard(end)
            texts[end] += part
        *lines, rest = texts[results].split(b"\n")
        texts[results] = rest
        for line in lines:
            ended |= _take(json.loads(line), found, time.monotonic() - start, report)
    found.wall_s = time.monotonic() - start
    found.console = texts[console].decode(errors="replace").replace("\r", "")
    if not ended and not found.trouble:
        found.trouble = trouble_in(found.console) or _qemu_said(process)
    return found


def _take(
    message: dict[str, Any], found: Boot, now_s: float, report: Callable[[dict[str, Any]], None]
) -> bool:
    """Keep what the guest said, or report it; True at its last word."""
    if "hello" in message:
        found.hello, found.hello_s = message["hello"], now_s
    elif "error" in message:
        found.trouble = message["error"]
    elif "end" not in message:
        report(message)
    return "end" in message


def trouble_in(console: str) -> str:
    """The first line of a kernel's console that tells of its crash, without time and colours; "" if none does."""
    found = CRASHES.search(console)
    return f"the kernel crashed: {found[0].strip()}" if found else ""


def _qemu_said(process: subprocess.Popen) -> str:
    process.kill()
    words = process.stderr.read().decode(errors="replace").strip().splitlines()
    return f"QEMU ended: {words[-1]}" if words else "the guest ended without a word"


def kvm_works(image: Path) -> bool:
    """Whether a guest gets to user space under KVM, by a short boot: the device node alone proves nothing."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    return bool(boot(image, {"count": "time", "windows": []}, [], kvm=True, timeout_s=TRIAL_S).hello)


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
