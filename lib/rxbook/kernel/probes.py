# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What this kernel and machine can do, found by trying it.

Network and BPF are tried in a child with a network and mount namespace of its own: all that is made there
(a veth pair, a program, a map) goes with the child, and no frame can leave it. The one thing that can outlast
it is a kernel module that the kernel loads by itself, as a run would make it do.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rxbook import RxbookError
from rxbook.kernel import libbpf, perf_events

__all__ = ["NEEDS_ROOT", "PERF_PACKAGES", "cycle_counter", "perf_version", "probe"]

NEEDS_ROOT = "not tried without root"
TIMEOUT_S = 20
ENDS = ("rxprobe0", "rxprobe1")


def probe() -> dict[str, str]:
    """Try `live_frames`, `veth`, `native_xdp`, `threaded_napi` and `cpumap`, in this order.

    Returns for each "" where it works, else what went wrong. Takes less than a second.
    """
    if os.geteuid() != 0:
        return dict.fromkeys(PROBES, NEEDS_ROOT)
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", __name__]
    try:
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(PROBES, f"no answer in {TIMEOUT_S} s")
    if child.returncode:
        words = child.stderr.strip().splitlines() or [f"the probe ended with {child.returncode}"]
        return dict.fromkeys(PROBES, words[-1])
    return json.loads(child.stdout)


PERF_PACKAGES = "Debian: apt install linux-perf; Fedora: dnf install perf"
"""Where the perf tool comes from."""


def perf_version() -> str | None:
    """The perf tool's version, as "6.1.192"; None where there is no perf that runs."""
    if shutil.which("perf") is None:
        return None
    try:
        done = subprocess.run(["perf", "--version"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # a distribution's wrapper script is there without the perf of this kernel, and fails
    found = re.search(r"perf version (\S+)", done.stdout)
    return found[1] if found and done.returncode == 0 else None


def cycle_counter() -> str:
    """Empty where a hardware cycle counter counts kernel cycles, else what stands in the way."""
    try:
        counter = perf_events.Counter(perf_events.HARDWARE_CYCLES)
    except RxbookError as error:
        return str(error)
    try:
        return "" if counter.read() else "opens, but counts nothing"
    finally:
        counter.close()


# --- in the child


def _live_frames() -> None:
    libbpf.run_live_frames(_sender().program_fd("send_nothing"), bytes(64), ingress_ifindex=0, repeat=1)


def _veth() -> None:
    from pyroute2 import IPRoute, NetlinkError

    try:
        with IPRoute() as netlink:
            netlink.link("add", ifname=ENDS[0], kind="veth", peer={"ifname": ENDS[1]})
            for end in ENDS:
                netlink.link("set", index=socket.if_nametoindex(end), state="up")
    except NetlinkError as error:
        raise RxbookError(os.strerror(error.code)) from None


def _native_xdp() -> None:
    # the link stays with this process: NAPI, which the next probe needs, runs as long as it does
    libbpf.attach_xdp(_sender().program_fd("send_nothing"), socket.if_nametoindex(ENDS[0]))


def _threaded_napi() -> None:
    Path(f"/sys/class/net/{ENDS[0]}/threaded").write_text("1")


def _cpumap() -> None:
    cpu, queue_size, program = 0, 64, 0
    receiver = libbpf.BpfObject("receive", map_entries={"cpus": os.cpu_count() or 1})
    receiver.update("cpus", struct.pack("=I", cpu), struct.pack("=Ii", queue_size, program))


@functools.cache
def _sender() -> libbpf.BpfObject:
    return libbpf.BpfObject("send", struct.pack("=I", 0))


PROBES: dict[str, Callable[[], None]] = {
    "live_frames": _live_frames,
    "veth": _veth,
    "native_xdp": _native_xdp,
    "threaded_napi": _threaded_napi,
    "cpumap": _cpumap,
}


def _attempt(action: Callable[[], None]) -> str:
    try:
        action()
    except OSError as error:
        return error.strerror or str(error)
    except RxbookError as error:
        return str(error)
    return ""


def _main() -> None:
    # netlink is needed nowhere else here, and takes a while to import
    from rxbook.kernel.namespaces import enter_private_namespace

    if refused := _attempt(enter_private_namespace):
        print(json.dumps(dict.fromkeys(PROBES, f"no namespace can be made: {refused}")))
        return
    print(json.dumps({name: _attempt(action) for name, action in PROBES.items()}))


if __name__ == "__main__":
    _main()
