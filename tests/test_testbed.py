# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The veth testbed: what it sets, whom it refuses, how fast it stops, and that it keeps to itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from statistics import median

import pytest

import ethtool_ioctl
from live import cell, network_counters, open_testbed, run
from rxbook import RxbookError
from rxbook.generators.live_frames import FRAMES_PER_CALL
from rxbook.testbeds.lock import Lock
from rxbook.testbeds.veth import Veth

needs_root = pytest.mark.needs_root

OUR_MARKS = [
    bytes.fromhex("027278620001"), bytes.fromhex("027278620002"),
    socket.inet_aton("198.18.0.1"), socket.inet_aton("198.18.0.2"),
    socket.inet_pton(socket.AF_INET6, "2001:2:0:1::1"), socket.inet_pton(socket.AF_INET6, "2001:2:0:1::2"),
]  # fmt: skip


def features_there(veth: Veth) -> dict[str, bool]:
    """The features of the receiver's device, read from within its namespace by another process."""
    inside = ["nsenter", "-t", str(veth.receiver.pid), "-n", sys.executable, ethtool_ioctl.__file__]
    return json.loads(run(*inside, veth.devices["receiver"]))


# --- what it sets


@needs_root
@pytest.mark.parametrize("receiver", ["cpumap", "stack"])
def test_offloads_are_as_asked_while_it_runs_and_as_before_afterwards(receiver):
    names = {"gro": "rx-gro", "rx_udp_gro_forwarding": "rx-udp-gro-forwarding", "rx_gro_list": "rx-gro-list"}
    with open_testbed() as veth:
        before = features_there(veth)
        for asked in (("on", "on", "on"), ("off", "on", "off"), ("on", "off", "off"), ("off", "off", "off")):
            wanted = dict(zip(names, asked, strict=True))
            veth.prepare(cell(receiver=receiver, **wanted))
            found = features_there(veth)
            assert {name: "on" if found[names[name]] else "off" for name in names} == wanted
            others = before.keys() - set(names.values())
            assert {name: found[name] for name in others} == {name: before[name] for name in others}
        veth.prepare(cell(receiver=receiver, rx_gro_list="on"))
        assert veth.receiver.call("restore") == veth.offloads_before
        assert features_there(veth) == before
    assert veth.offloads_after == veth.offloads_before


# --- whom it refuses


@needs_root
def test_a_second_run_is_refused_and_told_who_holds_the_testbed():
    code = "from rxbook.testbeds.veth import Veth\nwith Veth(): pass"
    with open_testbed(holder="the first run"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "another run measures on this machine" in last
    assert f"process {os.getpid()}, the first run, since " in last


def test_a_lock_is_free_again_after_its_release(tmp_path, monkeypatch):
    monkeypatch.setattr("rxbook.testbeds.lock.lock_path", lambda: tmp_path / "lock")
    first, second = Lock("first"), Lock("second")
    first.acquire()
    with pytest.raises(RxbookError, match=rf"process {os.getpid()}, first, since .* UTC\. Wait for it"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_one_cpu_is_refused():
    code = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    code += "from rxbook.testbeds.veth import Veth\nVeth()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    last = done.stderr.strip().splitlines()[-1]
    assert "1 CPU can be used here" in last and "one each" in last


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a testbed needs two CPUs")
@pytest.mark.parametrize("name", ["sender_cpu", "receiver_cpu"])
def test_a_cpu_that_is_not_there_is_refused(name):
    with pytest.raises(RxbookError, match=rf"{name}=4096: this process may use CPUs \d+, \d+"):
        Veth(**{name: 4096})


# --- how it stops


@pytest.fixture
def testbed():
    """For one test, as some here need the machine's only one for themselves."""
    with open_testbed() as veth:
        yield veth


@needs_root
@pytest.mark.parametrize("receiver", ["cpumap", "stack"])
def test_it_stops_long_before_its_call_would_end(testbed, receiver):
    shares = []
    for frames in (*[{"frame_sizes": 64}] * 6, *[{"frame_sizes": 1000, "protocol": "tcp", "flows": 64}] * 6):
        testbed.prepare(cell(receiver=receiver, gro="off", burst=16, **frames))
        testbed.sender.call("start")
        counted = testbed.receiver.call("window", warmup_s=0.02, window_s=0.05)
        assert counted["frames"] > 0
        whole_call_s = FRAMES_PER_CALL * counted["clock_ns"] / 1e9 / counted["offered_frames"]
        shares.append(testbed.sender.call("stop") / whole_call_s)
    assert median(shares) < 0.02  # seconds are those of the machine's load


@needs_root
def test_nothing_is_sent_after_the_stop(testbed):
    testbed.measure(cell(), 0.0, 0.05)
    testbed.receiver.call("window", warmup_s=0.05, window_s=0.0)  # what is queued is received
    counted = testbed.receiver.call("window", warmup_s=0.0, window_s=0.1)
    assert (counted["frames"], counted["offered_frames"], counted["skbs"]) == (0, 0, 0)


@needs_root
def test_a_role_that_dies_is_named():
    with (
        pytest.raises(RxbookError, match=r"the sender ended \(status -9\) at 'start'"),
        open_testbed() as veth,
    ):
        veth.prepare(cell())
        os.kill(veth.sender.pid, signal.SIGKILL)
        veth.sender.call("start")


class Interrupted(Exception):
    """As Ctrl-C, but not meant for pytest."""


@needs_root
def test_an_interrupted_call_does_not_leave_its_answer_to_the_next(testbed):
    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        testbed.prepare(cell())  # which can take longer than the timer below
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            testbed.measure(cell(), 0.0, 0.2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert testbed.receiver.call("offloads") == {
        "gro": "on", "rx_udp_gro_forwarding": "on", "rx_gro_list": "off"
    }  # fmt: skip


# --- that it keeps to itself


def interfaces() -> dict[str, dict]:
    """This namespace's interfaces as `ip` shows them: flags, queues, XDP programs; and their features."""
    links = json.loads(run("ip", "-j", "-d", "link", "show"))
    return {link["ifname"]: {**link, "features": ethtool_ioctl.features(link["ifname"])} for link in links}


def quiet_counters() -> dict[str, dict]:
    """Counters of the interfaces that are down: nobody else moves them either."""
    links = json.loads(run("ip", "-j", "-s", "link", "show"))
    return {link["ifname"]: link["stats64"] for link in links if "UP" not in link["flags"]}


@contextlib.contextmanager
def packets_outside():
    """Collects every packet on any interface of this namespace, in and out."""
    seen: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as tap:
        last = bytes(12) + b"\x88\xb5" + os.urandom(46)  # an ethertype for experiments

        def collect() -> None:
            while (packet := tap.recv(65536)) != last:
                seen.append(packet)

        thread = threading.Thread(target=collect)
        thread.start()
        try:
            yield seen
        finally:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as end:
                end.bind(("lo", 0))
                end.send(last)
            thread.join(10)
            assert not thread.is_alive()


@needs_root
def test_the_machines_own_interfaces_stay_as_they_are():
    before, counted = interfaces(), quiet_counters()
    with open_testbed() as veth:
        for receiver in ("cpumap", "stack"):
            veth.prepare(cell(receiver=receiver, rx_gro_list="on"))
            veth.sender.call("start")
            during = interfaces()
            veth.sender.call("stop")
            assert during == before
    assert interfaces() == before
    assert quiet_counters() == counted


@needs_root
def test_no_packet_of_ours_appears_outside():
    with packets_outside() as seen:
        with open_testbed() as veth:
            veth.measure(cell(), 0.0, 0.1)
            veth.measure(cell(receiver="stack", encap="6in6", frame_sizes=128), 0.0, 0.1)
            veth.measure(cell(protocol="tcp", drop_tcp=False, frame_sizes=1000), 0.0, 0.1)
            assert network_counters(veth.receiver.pid)["Tcp.OutRsts"] > 0  # answers stay inside, too
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anyone:
            anyone.sendto(b"the tap sees what is there", ("127.0.0.1", 9))
    assert any(b"the tap sees what is there" in packet for packet in seen)
    assert [packet.hex() for packet in seen if any(mark in packet[:64] for mark in OUR_MARKS)] == []


@needs_root
def test_the_kernel_sends_nothing_of_its_own_on_the_wire(testbed):
    testbed.measure(cell(ip_version=6, frame_sizes=128), 0.0, 0.1)
    testbed.measure(cell(), 0.0, 0.1)
    for role in (testbed.sender, testbed.receiver):
        counted = network_counters(role.pid)
        assert counted["Ip6OutMcastPkts"] == 0
        assert not any(counted.get(f"Icmp6Out{kind}") for kind in ("NeighborSolicits", "RouterSolicits"))
