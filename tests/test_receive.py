# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What GRO does to frames that a real kernel receives: shapes and ratios from one interleaved run."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict

import pytest

from live import cell, network_counters
from rxbook.kernel import facts

pytestmark = pytest.mark.needs_root

BLOCKS, WARMUP_S, WINDOW_S = 5, 0.02, 0.1
MANY = {"flows": 64, "frame_sizes": 64}
TCP = {"protocol": "tcp", "frame_sizes": 1000}
CELLS = {
    "cpumap off": {"gro": "off"},
    "cpumap on": {},
    "cpumap zero off": {"gro": "off", "udp_csum": "zero"},
    "cpumap zero": {"udp_csum": "zero"},
    "cpumap 64x1": {**MANY, "burst": 1},
    "cpumap 64x16": {**MANY, "burst": 16},
    "cpumap tcp": {**TCP, "flows": 64, "burst": 16},
    "cpumap no forwarding": {"rx_udp_gro_forwarding": "off"},
    "stack off": {"receiver": "stack", "gro": "off"},
    "stack on": {"receiver": "stack"},
    "stack zero": {"receiver": "stack", "udp_csum": "zero"},
    "stack 64x1": {"receiver": "stack", **MANY, "burst": 1},
    "stack 64x16": {"receiver": "stack", **MANY, "burst": 16},
    "stack tcp": {"receiver": "stack", **TCP, "flows": 64, "burst": 16},
}
ONCE = {
    **{f"{receiver} {encap} {gro}": {"receiver": receiver, "encap": encap, "gro": gro, "frame_sizes": 128}
       for receiver in ("cpumap", "stack") for encap in ("4in4", "4in6", "6in6") for gro in ("off", "on")},
    **{f"{receiver} {encap} list": {"receiver": receiver, "encap": encap, "rx_gro_list": "on", "frame_sizes": 128}
       for receiver in ("cpumap", "stack") for encap in ("none", "4in4")},
    "cpumap 6 on": {"ip_version": 6, "frame_sizes": 128},
    "stack tcp 6in6": {**TCP, "receiver": "stack", "encap": "6in6", "flows": 64, "burst": 16},
}  # fmt: skip
CPUMAP_HAS_GRO = ((facts.libbpf_version() and facts.btf_facts()) or {}).get("cpumap_gro")
RECEIVERS = ["stack", *(["cpumap"] if CPUMAP_HAS_GRO else [])]


class Measured:
    """Windows by name of the cell, and what the receiver's kernel counted over all of them."""

    def __init__(self, testbed):
        self.windows = defaultdict(list)
        before = network_counters(testbed.receiver.pid)
        names = [*ONCE]
        for block in range(BLOCKS):  # changing the receiver takes longer than a window's warm-up
            shuffled = random.Random(block).sample(sorted(CELLS), len(CELLS))
            names += sorted(shuffled, key=lambda name: name.startswith("stack"))
        for name in names:
            asked = cell(**{**CELLS, **ONCE}[name])
            self.windows[name].append(testbed.measure(asked, WARMUP_S, WINDOW_S))
        after = network_counters(testbed.receiver.pid)
        self.kernel = {name: count - before.get(name, 0) for name, count in after.items()}

    def median(self, name: str, top: str, bottom: str) -> float:
        """Median over the windows of one counter's change per another's."""
        return statistics.median(counted[top] / counted[bottom] for counted in self.windows[name])

    def segs_per_skb(self, name: str) -> float:
        return self.median(name, "frames", "skbs")

    def rate(self, name: str) -> float:
        return self.median(name, "frames", "clock_ns")


@pytest.fixture(scope="module")
def measured(testbed):
    return Measured(testbed)


def test_every_cell_receives(measured):
    assert measured.windows.keys() == CELLS.keys() | ONCE.keys()
    for name, windows in measured.windows.items():
        assert all(counted["frames"] > 0 and counted["skbs"] > 0 for counted in windows), name


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_gro_merges_frames_with_a_checksum_and_is_faster(measured, receiver):
    assert measured.segs_per_skb(f"{receiver} off") == pytest.approx(1, abs=0.02)
    assert measured.segs_per_skb(f"{receiver} on") > 4
    assert measured.rate(f"{receiver} on") / measured.rate(f"{receiver} off") > 1.5


@pytest.mark.parametrize("name", ["cpumap zero", "cpumap zero off", "cpumap no forwarding", "stack zero"])
def test_gro_merges_nothing_without_a_checksum_or_without_forwarding(measured, name):
    assert measured.segs_per_skb(name) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_bursts_bring_gro_back(measured, receiver):
    assert measured.segs_per_skb(f"{receiver} 64x1") == pytest.approx(1, abs=0.1)
    assert measured.segs_per_skb(f"{receiver} 64x16") > 4


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_tcp_is_merged_and_dropped_before_it_can_be_answered(measured, receiver):
    assert measured.segs_per_skb(f"{receiver} tcp") > 4
    assert measured.kernel["Tcp.OutRsts"] == measured.kernel["Tcp.InSegs"] == 0


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_gro_list_merges_ip_in_ip(measured, receiver):
    assert measured.segs_per_skb(f"{receiver} 4in4 list") > 4


@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("encap", ["4in4", "4in6", "6in6"])
def test_ip_in_ip_is_merged_or_not_but_never_torn(measured, receiver, encap):
    """Whether GRO merges an encapsulation is the kernel's to say: one skb holds at least one frame."""
    assert measured.segs_per_skb(f"{receiver} {encap} off") == pytest.approx(1, abs=0.02)
    assert measured.segs_per_skb(f"{receiver} {encap} on") > 0.98


def test_the_kernel_found_no_bad_frame(measured):
    """Pages come back to the sender as the receiver left them, with what GRO wrote: each frame must be whole."""
    bad = ["Ip.InHdrErrors", "Ip.InAddrErrors", "IpExt.InTruncatedPkts", "IpExt.InCsumErrors", "Udp.InErrors",
           "Udp.InCsumErrors", "Tcp.InErrs", "Ip6InHdrErrors", "Ip6InTruncatedPkts", "Udp6InErrors",
           "Udp6InCsumErrors"]  # fmt: skip
    assert {name: measured.kernel[name] for name in bad} == dict.fromkeys(bad, 0)


def test_counters_agree_with_each_other(measured):
    for name, windows in measured.windows.items():
        for counted in windows:
            assert counted["offered_frames"] >= 0.98 * counted["frames"], name
            assert 0 < counted["cpu_ns"] <= 1.1 * counted["clock_ns"], name  # a tick may be missing before it
            assert counted["clock_ns"] >= 0.99e9 * WINDOW_S, name
