# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The guest's part: its first process. It measures what /job.json says and writes lines of JSON to the second serial
port, which nothing else uses; then it ends the guest.

A line is one of {"hello": facts of the kernel}, {"counted": ..., "index": place in the job's windows}, the same with
"heads" in place of "counted", or with "task" and "data" of a recording, {"kallsyms": ...}, {"error": text},
{"end": true}; files are packed. Everything is decided before the boot: where instructions are counted, a word from
outside would come at another instruction each time.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
import tty
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rxbook import RxbookError
from rxbook.frames import FrameSpec
from rxbook.kernel import counters, facts
from rxbook.receivers import RECEIVERS
from rxbook.testbeds import roles
from rxbook.testbeds.pair import Pair

__all__ = ["LEAD"]

LEAD = 8192
"""Frames before counting: pages, caches of skbs and the code itself come into their steady state."""

SAMPLING = {"perf_event_max_sample_rate": "1000000", "perf_cpu_time_max_percent": "0"}  # in this order
"""Otherwise perf samples less often where a sample takes long, and these cost more instructions than they seem."""

STOP_S = 120.0
"""How long perf may take to end, and its file to come: all is slow where it is emulated."""

INIT_MODULE = 175  # x86-64
MOUNTS = (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"))
FOLDERS = ("/tmp", "/run")
"""Not mounted: the archive is in memory already, and this library may lie below one of them, as on the host."""

RESULTS = "/dev/ttyS1"
RB_AUTOBOOT = 0x01234567


class Forked:
    """A sender or receiver that starts at once, as what it needs is loaded already: to load is slow here."""

    def __init__(self, name: str, errors: Any):
        (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            for end, place in ((theirs_in, 0), (theirs_out, 1), (errors.fileno(), 2)):
                os.dup2(end, place)
            os.closerange(3, 64)
            roles.run(name)
            os._exit(0)
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin, self.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb", buffering=0)

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its status."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def measure(job: dict[str, Any], say: Callable[..., None]) -> None:
    """Measure the windows of a job, in its order."""
    exact = job["count"] == "instructions"
    if exact:
        _put_softirqs_first()
    pair = Pair(0, 0 if exact else 1, job["queue_size"], job["generator"], Forked)
    try:
        pair.connect()
        for index, cell in _cells(job):
            if exact:
                counted = instructions(pair, cell, job["packets"])
            else:
                counted = pair.measure(cell, job["warmup_s"], job["window_s"])
            say(index=index, counted=counted)
        if job["heads"]:
            _count_heads(pair, job, say)
        if job["perf"]:
            _record_all(pair, job, say)
    finally:
        pair.close()


def _put_softirqs_first() -> None:
    """Let ksoftirqd go before the sender, with which it shares the CPU.

    Up to Linux 6.4 no softirq runs elsewhere while ksoftirqd is to run: frames would overrun the queue of veth.
    """
    os.sched_setscheduler(counters.find_kthread("ksoftirqd/0"), os.SCHED_FIFO, os.sched_param(1))


def _cells(job: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """(place, cell) of the job's windows."""
    for index, fields in enumerate(job["windows"]):
        yield index, SimpleNamespace(**fields | {"frame_spec": FrameSpec(**fields["frame_spec"])})


def instructions(pair: Pair, cell: Any, packets: int) -> dict[str, float | None]:
    """The changes of the receiver's counters while `packets` frames go through it; cpu_ns is instructions here.

    The clock of such a guest is the number of instructions run so far (QEMU's -icount shift=0).
    """
    pair.prepare(cell)
    _send(pair, cell, LEAD)
    return _counted(pair, cell, packets)


def _send(pair: Pair, cell: Any, packets: int) -> None:
    """Sender and receiver share one CPU: the sender lets the receiver run before its queue is full."""
    each = RECEIVERS[cell.receiver].AT_ONCE
    pair.sender.call("send_in_calls", calls=-(-packets // each), each=each)


def _counted(pair: Pair, cell: Any, packets: int) -> dict[str, float | None]:
    before = pair.receiver.call("counters")
    _send(pair, cell, packets)
    after = pair.receiver.call("counters")
    return {name: None if after[name] is None else after[name] - before[name] for name in after}


def _count_heads(pair: Pair, job: dict[str, Any], say: Callable[..., None]) -> None:
    """Where skb heads come from, for each cell."""
    for index, cell in _cells(job):
        pair.prepare(cell)
        pair.receiver.call("count_heads", counting=True)
        say(index=index, heads=instructions(pair, cell, job["packets"]))
        pair.receiver.call("count_heads", counting=False)


def _record_all(pair: Pair, job: dict[str, Any], say: Callable[..., None]) -> None:
    """perf record of the receiving thread for each cell, then the kernel's symbols."""
    for name, value in SAMPLING.items():
        Path("/proc/sys/kernel", name).write_text(value)
    for index, cell in _cells(job):
        pid = pair.prepare(cell)
        _send(pair, cell, LEAD)
        pair.receiver.call("start_recording", argv=[*job["perf"], "-t", str(pid)])
        counted = _counted(pair, cell, job["packets"])
        say(index=index, counted=counted, **pair.receiver.call("stop_recording", STOP_S))
    say(kallsyms=pair.receiver.call("kallsyms", STOP_S))


def kernel() -> dict[str, Any]:
    """What the kernel that runs says of itself."""
    return {
        "kernel_release": facts.kernel_release(),
        "kernel_version": facts.kernel_version(),
        "cmdline": facts.cmdline(),
        "mitigations": facts.mitigations(),
        "disks": os.listdir("/sys/block") if os.path.exists("/sys/block") else [],
        "network_devices": os.listdir("/sys/class/net"),
    }


def _mount() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for folder in FOLDERS:
        os.makedirs(folder, exist_ok=True)
    for kind, place in MOUNTS:
        os.makedirs(place, exist_ok=True)
        if libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None):
            raise RxbookError(f"the guest's kernel cannot mount {kind}: {os.strerror(ctypes.get_errno())}")


def _load_modules() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for path in sorted(Path("/modules").glob("*.ko")):
        content = path.read_bytes()
        if libc.syscall(INIT_MODULE, content, ctypes.c_ulong(len(content)), b""):
            raise RxbookError(f"the guest's kernel refuses {path.name}: {os.strerror(ctypes.get_errno())}")


def _speaker() -> Callable[..., None]:
    port = os.open(RESULTS, os.O_WRONLY | os.O_NOCTTY)
    tty.setraw(port)

    def say(**message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        while line:
            line = line[os.write(port, line) :]

    return say


def main() -> None:
    """The guest's first process: never returns."""
    try:
        _mount()
        say = _speaker()
        try:
            job = json.loads(Path("/job.json").read_text())
            say(hello=kernel())
            if job["windows"]:
                _load_modules()
                _import_all()
                measure(job, say)
            say(end=True)
        except Exception as error:
            known = isinstance(error, RxbookError)
            say(error=str(error) if known else traceback.format_exc())
    except Exception:
        traceback.print_exc()  # on the console, which the host keeps
    finally:
        os.sync()
        ctypes.CDLL(None).reboot(RB_AUTOBOOT)  # QEMU ends instead


def _import_all() -> None:
    """What sender and receiver else import when they first need it, one after the other."""
    import numpy  # makes frames

    from rxbook.generators import live_frames, pktgen, xdp_trafficgen
    from rxbook.kernel import skb_heads

    assert numpy and live_frames and pktgen and xdp_trafficgen and skb_heads


def _say_what_is_loaded() -> None:
    """For the host: the files that this part opens when it measures."""
    from pyroute2 import IPRoute

    from rxbook.kernel import libbpf

    _import_all()
    with IPRoute() as ip:  # which imports more when it is first used
        ip.link_lookup(ifname="lo")
    libbpf.library()
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())} | set(_replaced())
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    modules = sorted(file for file in files if file and os.path.exists(file))
    libraries = sorted(path for path in mapped if ".so" in path and path not in files)
    print(json.dumps({"modules": modules, "libraries": libraries}))


def _replaced() -> Iterator[str]:
    """Files of modules that put another in their own place, as collections.abc does since Python 3.13."""
    for name in list(sys.modules):
        above = sys.modules.get(name.rpartition(".")[0])
        found = PathFinder.find_spec(name, above.__path__) if hasattr(above, "__path__") else None
        if found and found.has_location:
            yield found.origin


if __name__ == "__main__":
    if sys.argv[1:] == ["--loaded"]:
        _say_what_is_loaded()
    else:
        main()
