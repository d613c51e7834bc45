# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The BPF objects kept in git behave as those that clang makes of the sources beside them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live import network_counters, no_other_run
from rxbook import frames
from rxbook.kernel import libbpf, namespaces

SOURCES = libbpf.OBJECTS
MISSING = [tool for tool in ("clang", "llvm-strip") if shutil.which(tool) is None]
SENT = {
    "same": frames.FrameSpec(64),
    "6in6": frames.FrameSpec(128, ip_version=6, encap="6in6"),
    "ring": frames.FrameSpec(64, flows=64, burst=16),
    "tcp": frames.FrameSpec(200, protocol="tcp", flows=7, burst=3),
}
COUNT = 700  # fewer than fit in any queue on the way


def behaviour(folder: Path) -> dict[str, object]:
    """What the objects in a folder do, in a namespace of this process's own."""
    from rxbook.generators.live_frames import LiveFrames
    from rxbook.receivers.device import Device

    libbpf.OBJECTS = folder
    namespaces.enter_private_namespace()
    namespaces.connect_veth("rxbtestss", frames.SENDER_MAC, "rxbtestsr", frames.RECEIVER_MAC, os.getpid())
    sending = namespaces.set_address("rxbtestss", [])  # its address would be a martian source here
    receiving = namespaces.set_address("rxbtestsr", ["198.18.0.2/24"])
    cpu = min(os.sched_getaffinity(0))
    sender = LiveFrames(sending, cpu, namespaces.parking_devices("rxbtestss"))
    device = Device("rxbtestsr", receiving, cpu)
    seen = {name: captured(sender, device, spec) for name, spec in SENT.items()}
    return seen | through_cpumap(sender, device, cpu) | through_stack(sender, device)


def captured(sender, device, spec: frames.FrameSpec) -> list[object]:
    """How many frames arrived, and a hash of all of them."""
    sender.load(spec)
    device.capture(COUNT)
    sender.send(COUNT)
    packets = device.captured()
    return [len(packets), hashlib.sha256(b"".join(packets)).hexdigest()]


def through_cpumap(sender, device, cpu: int) -> dict[str, int]:
    """What the tracepoint program counted of `COUNT` frames."""
    from rxbook.receivers.cpumap import Cpumap

    receiver = Cpumap(device, 2048)
    receiver.start()
    sender.load(SENT["same"])
    sender.send(COUNT)
    wait_for(lambda: receiver.frames() >= COUNT)
    return {"cpumap": receiver.frames()}


def through_stack(sender, device) -> dict[str, int]:
    """TCP segments that got past netfilter, without the program and with it."""
    device.attach("to_stack")
    sender.load(SENT["tcp"])
    sender.send(COUNT)
    wait_for(lambda: tcp_segments() >= COUNT)
    found = {"let in": tcp_segments()}
    for name, ifindex in (("of another device", 1), ("by drop_tcp", device.ifindex)):
        kind = {"drop_tcp": (libbpf.BPF_PROG_TYPE_NETFILTER, libbpf.BPF_NETFILTER)}
        program = libbpf.BpfObject("drop_tcp", struct.pack("=I", ifindex), program_types=kind)
        links = libbpf.attach_netfilter(program.program_fd("drop_tcp"))
        let_in, before = tcp_segments(), device.packets()
        sender.send(COUNT)
        wait_for(lambda before=before: device.packets() - before >= COUNT)
        wait_for(lambda at=let_in, own=ifindex == device.ifindex: own or tcp_segments() - at >= COUNT)
        found[f"let in {name}"] = tcp_segments() - let_in
        for link in links:
            os.close(link)
    return found | {"links": len(links)}


def tcp_segments() -> int:
    return network_counters(os.getpid())["Tcp.InSegs"]


def wait_for(condition) -> None:
    """Until it holds, or a second has passed: the caller reports what is then."""
    deadline = time.monotonic() + 1
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)


def behaviour_in_a_process(folder: Path) -> dict[str, object]:
    done = subprocess.run([sys.executable, __file__, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory) -> Path:
    if MISSING:
        pytest.skip(f"no {' and no '.join(MISSING)} (Debian: apt install clang llvm libbpf-dev)")
    folder = tmp_path_factory.mktemp("bpf")
    done = subprocess.run(["sh", str(SOURCES / "build.sh"), str(folder)], capture_output=True, text=True)
    if "bpf_helpers.h" in done.stderr:
        pytest.skip("no bpf/bpf_helpers.h (Debian: apt install libbpf-dev; Fedora: dnf install libbpf-devel)")
    assert done.returncode == 0, done.stderr
    return folder


def test_every_source_has_its_object(rebuilt):
    assert {path.name for path in rebuilt.glob("*.o")} == {path.name for path in SOURCES.glob("*.o")}


@pytest.mark.needs_root
def test_rebuilt_objects_behave_as_those_in_git(rebuilt):
    with no_other_run():
        kept, new = behaviour_in_a_process(SOURCES), behaviour_in_a_process(rebuilt)
    assert new == kept
    assert [kept[name][0] for name in SENT] == [COUNT] * len(SENT)
    assert kept["cpumap"] == kept["let in"] == kept["let in of another device"] == COUNT
    assert (kept["let in by drop_tcp"], kept["links"]) == (0, 2)
    assert len({kept[name][1] for name in SENT}) == len(SENT)


if __name__ == "__main__":
    print(json.dumps(behaviour(Path(sys.argv[1]))))
