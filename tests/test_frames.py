# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Frames are taken apart by scapy and tshark, which know nothing of how frames.py puts them together."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from rxbook import RxbookError, frames
from rxbook.frames import FrameSpec

SHAPES = {  # (encap, ip_version): the headers that scapy must find, with the addresses
    ("none", 4): [(IP, "198.18.0.1", "198.18.0.2")],
    ("none", 6): [(IPv6, "2001:2:0:1::1", "2001:2:0:1::2")],
    ("4in4", 4): [(IP, "198.18.0.1", "198.18.0.2"), (IP, "198.19.0.1", "198.19.0.2")],
    ("4in6", 4): [(IPv6, "2001:2:0:1::1", "2001:2:0:1::2"), (IP, "198.19.0.1", "198.19.0.2")],
    ("6in6", 6): [(IPv6, "2001:2:0:1::1", "2001:2:0:1::2"), (IPv6, "2001:2:0:2::1", "2001:2:0:2::2")],
}
SHORTEST = {  # frame size, FCS included
    ("udp", "none", 4): 64,
    ("udp", "none", 6): 66,
    ("udp", "4in4", 4): 66,
    ("udp", "4in6", 4): 86,
    ("udp", "6in6", 6): 106,
    ("tcp", "none", 4): 64,
    ("tcp", "none", 6): 78,
    ("tcp", "4in4", 4): 78,
    ("tcp", "4in6", 4): 98,
    ("tcp", "6in6", 6): 118,
}
KINDS = [
    (protocol, encap, ip_version, csum)
    for protocol, encap, ip_version in SHORTEST
    for csum in ("computed", "zero")
    if csum == "computed" or (protocol == "udp" and ip_version == 4)
]


UNJOINED = "tcp.desegment_tcp_streams:FALSE"


def make(kind, **values) -> FrameSpec:
    protocol, encap, ip_version, csum = kind
    values.setdefault("frame_size", SHORTEST[protocol, encap, ip_version])
    return FrameSpec(protocol=protocol, encap=encap, ip_version=ip_version, udp_csum=csum, **values)


@st.composite
def specs(draw) -> FrameSpec:
    kind = draw(st.sampled_from(KINDS))
    sizes = st.integers(SHORTEST[kind[:3]], 1518)
    return make(kind, frame_size=draw(sizes), flows=draw(st.integers(1, 300)), burst=draw(st.integers(1, 20)))


def rebuilt(packet: Ether) -> bytes:
    """The same packet with every checksum and length computed anew by scapy."""
    packet = packet.copy()
    for layer in packet.iterpayloads():
        for field in ("chksum", "len", "plen"):
            if field in layer.fields and not (
                isinstance(layer, UDP) and field == "chksum" and layer.chksum == 0
            ):
                delattr(layer, field)
    return bytes(packet)


def dissect(spec: FrameSpec, data: bytes):
    """Check one frame against its spec, and return its UDP or TCP header."""
    assert len(data) == spec.frame_size - 4
    packet = Ether(data)
    assert (packet.src, packet.dst) == ("02:72:78:62:00:01", "02:72:78:62:00:02")
    layer = packet
    for kind, source, destination in SHAPES[spec.encap, spec.ip_version]:
        layer = layer.payload
        assert type(layer) is kind and (layer.src, layer.dst) == (source, destination)
        assert (layer.ttl, layer.id, str(layer.flags)) == (64, 0, "DF") if kind is IP else layer.hlim == 64
    l4 = layer.payload
    assert type(l4) is {"udp": UDP, "tcp": TCP}[spec.protocol] and l4.dport == 9
    assert len(l4.payload) == frames.payload_bytes(spec)
    assert 0 not in bytes(l4.payload)
    assert (l4.chksum == 0) == (spec.udp_csum == "zero") or spec.protocol == "tcp"
    assert rebuilt(packet) == data
    return l4


def sample(count: int) -> list[int]:
    """All of a small ring; the start, the end and some of the middle of a large one."""
    return sorted({*range(min(count, 24)), *range(0, count, max(1, count // 24)), count - 1})


def ports_and_seqs(spec: FrameSpec, ring: frames.Ring) -> list[tuple[int, int]]:
    """Source port and sequence number of every frame, read from the bytes."""
    at = frames.headers_bytes(spec) - {"udp": 8, "tcp": 20}[spec.protocol]
    found = []
    for index in range(len(ring.slots)):
        data = frames.frame_at(ring, index)
        seq = int.from_bytes(data[at + 4 : at + 8], "big") if spec.protocol == "tcp" else 0
        found.append((int.from_bytes(data[at : at + 2], "big"), seq))
    return found


@settings(max_examples=150, deadline=None)
@given(specs())
def test_frames_are_what_was_asked_for(spec):
    ring = frames.ring(spec)
    assert ring.frame == frames.base_frame(spec) == frames.frame_at(ring, 0)
    for index in sample(len(ring.slots)):
        dissect(spec, frames.frame_at(ring, index))
    assert frames.frame_at(ring, len(ring.slots)) == ring.frame


@settings(max_examples=100, deadline=None)
@given(specs())
def test_the_ring_has_its_documented_shape(spec):
    ring = frames.ring(spec)
    assert ring.slots.dtype == "<u8" and ring.slots.shape == (len(ring.slots), ring.words)
    assert ring.offset >= 0 and ring.offset + 8 * ring.words <= len(ring.frame)
    assert ring.slots.size <= frames.RING_WORDS
    distinct = {frames.frame_at(ring, index) for index in range(len(ring.slots))}
    assert (len(distinct) == 1) == (ring.words == 0)


@settings(max_examples=100, deadline=None)
@given(specs())
def test_flows_come_in_bursts_and_tcp_in_sequence(spec):
    ring = frames.ring(spec)
    found = ports_and_seqs(spec, ring)
    if ring.words:
        one_pass = [10000 + flow for flow in range(spec.flows) for _ in range(spec.burst)]
        passes = len(found) // len(one_pass)
        assert [port for port, _ in found] == one_pass * passes
        assert passes == 1 or spec.protocol == "tcp"
    segments = defaultdict(list)
    for port, seq in found:
        segments[port].append(seq)
    step = frames.payload_bytes(spec) if spec.protocol == "tcp" else 0
    for seqs in segments.values():
        assert all(after - before == step for before, after in itertools.pairwise(seqs))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("extra", [0, 1, 2, 3, 4, 7])
def test_the_shortest_sizes(kind, extra):
    """Where the frame ends close behind the checksum, the kept words must not reach beyond it."""
    spec = make(kind, flows=3, burst=2)
    spec = replace(spec, frame_size=spec.frame_size + extra)
    ring = frames.ring(spec)
    for index in sample(len(ring.slots)):
        dissect(spec, frames.frame_at(ring, index))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_longest_size_fills_the_mtu(kind):
    dissect(make(kind, frame_size=1518), frames.base_frame(make(kind, frame_size=1518)))


def test_sizes_of_rings():
    def shape(**values):
        return frames.ring(FrameSpec(64, **values)).slots.shape

    assert shape() == shape(burst=16) == (1, 0)
    assert shape(flows=64) == shape(flows=64, udp_csum="zero") == (64, 1)
    assert shape(flows=64, burst=16) == (1024, 1)
    assert shape(protocol="tcp") == (4096, 2)
    assert shape(protocol="tcp", flows=64, burst=16) == (4096, 3)
    assert shape(protocol="tcp", flows=600, burst=16) == (9600, 3)  # one pass needs more than 4096 slots
    empty = frames.ring(FrameSpec(78, protocol="tcp", ip_version=6))
    assert empty.slots.shape == (1, 0)  # without payload the sequence number stands still


def test_payload_bytes():
    assert frames.payload_bytes(FrameSpec(64)) == 18
    assert frames.payload_bytes(FrameSpec(66, ip_version=6)) == 0
    assert frames.payload_bytes(FrameSpec(1518, protocol="tcp")) == 1460


@pytest.mark.parametrize(("ip_version", "sizes"), [(4, range(64, 200)), (6, range(66, 200))])
def test_a_checksum_that_comes_out_as_zero_is_sent_as_ffff(ip_version, sizes):
    """Such frames are rare: one in 65,536. Some are found among 4096 flows of many sizes."""
    found = 0
    for size in sizes:
        spec = FrameSpec(size, flows=4096, ip_version=ip_version)
        ring = frames.ring(spec)
        csums = ring.slots[:, 0] >> 48  # the word is little-endian, the checksum its last two bytes
        assert ring.words == 1 and (ring.offset + 8 == frames.headers_bytes(spec))
        assert (csums != 0).all()
        for index in (csums == 0xFFFF).nonzero()[0]:
            found += dissect(spec, frames.frame_at(ring, int(index))).chksum == 0xFFFF
    assert found > 0


def test_a_large_ring_is_built_quickly():
    start = time.process_time()
    ring = frames.ring(FrameSpec(1518, flows=4096, burst=16))
    assert ring.slots.shape == (65536, 1)
    assert time.process_time() - start < 1.0


REFUSED = [
    (FrameSpec(20), "frame_sizes=20: choose 64 to 1518 bytes (FCS included) for IPv4 UDP"),
    (FrameSpec(90000), "frame_sizes=90000: choose 64 to 1518 bytes"),
    (FrameSpec(63), "64 to 1518"),
    (FrameSpec(1519), "64 to 1518"),
    (FrameSpec(64, udp_csum="zero", ip_version=6), "RFC 8200 section 8.1"),
    (FrameSpec(200, udp_csum="zero", ip_version=6, encap="6in6"), "RFC 8200 section 8.1"),
    (FrameSpec(64, udp_csum="zero", protocol="tcp"), "no meaning with protocol=tcp"),
    (FrameSpec(64, flows=0), "flows=0: choose 1 to 4096"),
    (FrameSpec(64, flows=4097), "flows=4097: choose 1 to 4096"),
    (FrameSpec(64, flows=2, burst=0), "burst=0: choose 1 to 256"),
    (FrameSpec(64, flows=2, burst=257), "burst=257: choose 1 to 256"),
    (FrameSpec(64, flows=4096, burst=17), "69632 words of 8 bytes, but the ring of frames holds 65536"),
    (FrameSpec(64, flows=4096, burst=6, protocol="tcp"), "(a TCP frame takes 3); lower flows or burst"),
    (FrameSpec(200, encap="4in6", ip_version=6), "encap=4in6 with ip_version=6: choose one of none with 4"),
    (FrameSpec(200, encap="6in6"), "encap=6in6 with ip_version=4"),
    (FrameSpec(200, encap="6in4"), "encap=6in4 with ip_version=4"),
    (FrameSpec(200, ip_version=5), "encap=none with ip_version=5"),
    (FrameSpec(64, protocol="sctp"), "protocol=sctp: say udp or tcp"),
    (FrameSpec(64, udp_csum="none"), "udp_csum=none: say computed or zero"),
]


@pytest.mark.parametrize(
    ("spec", "message"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("function", [frames.check, frames.base_frame, frames.ring])
def test_what_cannot_be_sent_is_refused_with_the_reason(function, spec, message):
    with pytest.raises(RxbookError) as refusal:
        function(spec)
    assert message in str(refusal.value)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[3] == "computed"], ids=str)
def test_the_range_of_sizes_is_exact(kind):
    shortest = SHORTEST[kind[:3]]
    for size in (shortest, 1518):
        frames.check(make(kind, frame_size=size))
    for size in (shortest - 1, 1519):
        with pytest.raises(RxbookError, match=f"choose {shortest} to 1518 bytes"):
            frames.check(make(kind, frame_size=size))


def test_scapy_reads_the_pcap(tmp_path):
    ring = frames.ring(FrameSpec(128, flows=5, burst=2, protocol="tcp"))
    sent = [frames.frame_at(ring, index) for index in range(20)]
    frames.write_pcap(tmp_path / "frames.pcap", sent)
    assert [bytes(packet) for packet in rdpcap(str(tmp_path / "frames.pcap"))] == sent


def count_in_tshark(path, condition: str) -> int:
    """Frames for which the display filter holds. Many rings share ports, so streams are not put together."""
    command = ["tshark", "-n", "-r", str(path), "-Y", condition, "-T", "fields", "-e", "frame.number"]
    for option in (*(f"{name}.check_checksum:TRUE" for name in ("ip", "udp", "tcp")), UNJOINED):
        command += ["-o", option]
    return len(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.skipif(
    shutil.which("tshark") is None, reason="no tshark on PATH (Debian: tshark, Fedora: wireshark-cli)"
)
def test_tshark_finds_no_bad_checksum(tmp_path):
    right = "udp.checksum.status==1 || tcp.checksum.status==1"
    wrong = "ip.checksum.status==0 || udp.checksum.status==0 || tcp.checksum.status==0 || _ws.malformed"
    sent = []
    for kind, more in itertools.product(KINDS, (0, 1, 700)):
        spec = make(kind, flows=7, burst=3)
        ring = frames.ring(replace(spec, frame_size=spec.frame_size + more))
        sent += [frames.frame_at(ring, index) for index in range(min(len(ring.slots), 500))]
    frames.write_pcap(tmp_path / "sent.pcap", sent)
    assert count_in_tshark(tmp_path / "sent.pcap", wrong) == 0
    zero = count_in_tshark(tmp_path / "sent.pcap", "udp.checksum==0")
    assert zero == 3 * 3 * 21  # three kinds of frames in three sizes, 21 slots each
    assert zero + count_in_tshark(tmp_path / "sent.pcap", right) == len(sent)
    # The dissector must be able to say no: here the last byte is wrong.
    frames.write_pcap(tmp_path / "spoiled.pcap", (data[:-1] + bytes([data[-1] ^ 1]) for data in sent))
    assert count_in_tshark(tmp_path / "spoiled.pcap", right) == 0
    assert count_in_tshark(tmp_path / "spoiled.pcap", wrong) >= len(sent) - zero
