# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Frames as they reach the receiver, before any skb or GRO, taken apart by scapy and tshark."""

from __future__ import annotations

import functools
import itertools
import shutil
import subprocess
from collections import Counter, defaultdict

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

from live import cell
from rxbook import frames

pytestmark = pytest.mark.needs_root

SHAPES = {  # name: (frames to capture, parameters)
    "udp4-64": (300, {"frame_sizes": 64}),
    "udp4-66": (100, {"frame_sizes": 66}),
    "udp4-128": (100, {"frame_sizes": 128}),
    "udp4-1518": (300, {"frame_sizes": 1518}),
    "udp4-64-zero": (300, {"frame_sizes": 64, "udp_csum": "zero"}),
    "udp4-1518-zero": (100, {"frame_sizes": 1518, "udp_csum": "zero"}),
    "udp6-66": (100, {"frame_sizes": 66, "ip_version": 6}),
    "udp6-128": (100, {"frame_sizes": 128, "ip_version": 6}),
    "udp6-1518": (100, {"frame_sizes": 1518, "ip_version": 6}),
    "udp4-64x16": (2100, {"frame_sizes": 64, "flows": 64, "burst": 16}),
    "udp4-64x1": (200, {"frame_sizes": 64, "flows": 64, "burst": 1}),
    "udp4-64x16-zero": (1100, {"frame_sizes": 64, "flows": 64, "burst": 16, "udp_csum": "zero"}),
    "udp6-64x16": (1100, {"frame_sizes": 66, "flows": 64, "burst": 16, "ip_version": 6}),
    "udp-4in4-66": (100, {"frame_sizes": 66, "encap": "4in4"}),
    "udp-4in4-128-zero": (100, {"frame_sizes": 128, "encap": "4in4", "udp_csum": "zero"}),
    "udp-4in6-86": (100, {"frame_sizes": 86, "encap": "4in6"}),
    "udp-6in6-106": (100, {"frame_sizes": 106, "encap": "6in6"}),
    "udp-6in6-64x16": (1100, {"frame_sizes": 1518, "encap": "6in6", "flows": 64, "burst": 16}),
    "tcp4-64": (300, {"frame_sizes": 64, "protocol": "tcp"}),
    "tcp4-1000": (1000, {"frame_sizes": 1000, "protocol": "tcp"}),
    "tcp4-64x16": (2100, {"frame_sizes": 1000, "protocol": "tcp", "flows": 64, "burst": 16}),
    "tcp6-78": (100, {"frame_sizes": 78, "protocol": "tcp", "ip_version": 6}),
    "tcp-4in4-78": (100, {"frame_sizes": 78, "protocol": "tcp", "encap": "4in4"}),
    "tcp-6in6-64x16": (
        1100,
        {"frame_sizes": 118, "protocol": "tcp", "encap": "6in6", "flows": 64, "burst": 16},
    ),
}
LAYERS = {
    "none": {4: [IP], 6: [IPv6]}, "4in4": {4: [IP, IP]}, "4in6": {4: [IPv6, IP]}, "6in6": {6: [IPv6, IPv6]},
}  # fmt: skip
OUTER = {IP: ("198.18.0.1", "198.18.0.2"), IPv6: ("2001:2:0:1::1", "2001:2:0:1::2")}
SAMPLE = 40


@pytest.fixture(scope="module")
def captured(testbed) -> dict[str, list[bytes]]:
    return {name: testbed.capture(cell(**parameters), count) for name, (count, parameters) in SHAPES.items()}


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param, cell(**SHAPES[request.param][1])


@functools.cache
def transport(data: bytes) -> UDP | TCP:
    """The UDP or TCP header of a frame, found by scapy."""
    packet = Ether(data)
    return packet.getlayer(UDP) or packet.getlayer(TCP)


def rebuilt(data: bytes) -> bytes:
    """The same frame with every length and checksum computed anew by scapy, except a UDP checksum of zero."""
    packet = Ether(data)
    for layer in packet.iterpayloads():
        for field in ("chksum", "len", "plen"):
            if layer.fields.get(field):
                delattr(layer, field)
    return bytes(packet)


def sample(packets: list[bytes]) -> list[bytes]:
    """The first and the last, and some of those between."""
    return packets[:5] + packets[5 : -5 : max(1, len(packets) // SAMPLE)] + packets[-5:]


def test_all_frames_arrive_in_the_size_asked_for(captured, shape, tmp_path):
    name, asked = shape
    frames.write_pcap(tmp_path / "wire.pcap", captured[name])
    sizes = Counter(len(packet) for packet, _ in RawPcapReader(str(tmp_path / "wire.pcap")))
    assert sizes == {asked.frame_size - 4: SHAPES[name][0]}


def test_headers_and_encapsulation(captured, shape):
    name, asked = shape
    for data in sample(captured[name]):
        packet = Ether(data)
        found = [type(layer) for layer in packet.iterpayloads() if isinstance(layer, (IP, IPv6))]
        assert found == LAYERS[asked.encap][asked.ip_version]
        assert (packet.payload.src, packet.payload.dst) == OUTER[found[0]]
        assert type(transport(data)) is {"udp": UDP, "tcp": TCP}[asked.protocol]


def test_lengths_and_checksums(captured, shape):
    name, asked = shape
    for data in sample(captured[name]):
        assert rebuilt(data) == data
        assert asked.protocol == "tcp" or (transport(data).chksum == 0) is (asked.udp_csum == "zero")


def test_flows_come_in_bursts(captured, shape):
    name, asked = shape
    ports = [transport(data).sport for data in captured[name]]
    assert len(set(ports)) == asked.flows
    bursts = [(port, len(list(group))) for port, group in itertools.groupby(ports)]
    if asked.flows > 1:
        assert {length for _, length in bursts[:-1]} == {asked.burst}
        in_order = sorted(set(ports))
        assert [port for port, _ in bursts] == [in_order[at % asked.flows] for at in range(len(bursts))]


@pytest.mark.parametrize("name", [name for name in SHAPES if name.startswith("tcp")])
def test_tcp_segments_are_in_sequence(captured, name):
    segments = defaultdict(list)
    for data in captured[name]:  # fewer than the ring has slots: it does not start again
        header = transport(data)
        segments[header.sport].append((header.seq, len(header.payload)))
    for flow in segments.values():
        assert all(seq + length == after for (seq, length), (after, _) in itertools.pairwise(flow))


def count_in_tshark(path, condition: str) -> int:
    """Frames for which a display filter holds, each taken alone: the shapes share ports."""
    options = [f"{name}.check_checksum:TRUE" for name in ("ip", "udp", "tcp")]
    options.append("tcp.desegment_tcp_streams:FALSE")
    command = ["tshark", "-n", "-r", str(path), "-Y", condition, "-T", "fields", "-e", "frame.number"]
    command += [word for option in options for word in ("-o", option)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return len(done.stdout.split())


@pytest.mark.skipif(
    shutil.which("tshark") is None, reason="no tshark on PATH (Debian: tshark, Fedora: wireshark-cli)"
)
def test_tshark_finds_no_bad_checksum(captured, tmp_path):
    path = tmp_path / "wire.pcap"
    sent = [data for name in SHAPES for data in captured[name]]
    frames.write_pcap(path, sent)
    zero = sum(count for name, (count, _) in SHAPES.items() if name.endswith("zero"))
    bad = "ip.checksum.status==0 || udp.checksum.status==0 || tcp.checksum.status==0 || _ws.malformed"
    assert count_in_tshark(path, bad) == 0
    assert count_in_tshark(path, "udp.checksum==0") == zero
    assert count_in_tshark(path, "udp.checksum.status==1 || tcp.checksum.status==1") == len(sent) - zero
