# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The bytes of frames, and rings of ready-made frames that a sender repeats.

A frame is Ethernet, one or two IP headers, UDP or TCP, payload. Its length on the wire counts the 4-byte FCS,
which the driver adds, so all bytes here are 4 shorter than the frame size.

All IPv4 headers have DF set and the identification 0: GRO takes that for a constant identification, and the
frames of a ring then differ only in the transport header.

numpy is imported where frames are made, as another host that only sends them need not have it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING

from rxbook import RxbookError

if TYPE_CHECKING:
    import numpy as np

FCS_BYTES = 4
MTU = 1500
MIN_FRAME_SIZE = 64

SENDER_MAC = bytes.fromhex("027278620001")  # locally administered
RECEIVER_MAC = bytes.fromhex("027278620002")
# Addresses set aside for benchmarks: RFC 2544 (198.18.0.0/15) and RFC 5180 (2001:2::/48).
SENDER_IP4 = IPv4Address("198.18.0.1")
RECEIVER_IP4 = IPv4Address("198.18.0.2")
SENDER_IP6 = IPv6Address("2001:2:0:1::1")
RECEIVER_IP6 = IPv6Address("2001:2:0:1::2")
INNER_SENDER_IP4 = IPv4Address("198.19.0.1")
INNER_RECEIVER_IP4 = IPv4Address("198.19.0.2")
INNER_SENDER_IP6 = IPv6Address("2001:2:0:2::1")
INNER_RECEIVER_IP6 = IPv6Address("2001:2:0:2::2")
DST_PORT = 9  # discard
FIRST_SRC_PORT = 10000

MAX_FLOWS = 4096
MAX_BURST = 256
RING_WORDS = 65536
"""Words of 8 bytes that a ring may hold."""
MAX_SLOTS = 4096
"""Slots of a TCP ring, unless one pass over the flows needs more."""

ETHERNET_BYTES = 14
IP_BYTES = {4: 20, 6: 40}
L4_BYTES = {"udp": 8, "tcp": 20}
SEQ_AT = 4
CSUM_AT = {"udp": 6, "tcp": 16}
ETHERTYPE = {4: 0x0800, 6: 0x86DD}
L4_NUMBER = {"udp": 17, "tcp": 6}
IP_NUMBER = {4: 4, 6: 41}  # what an outer IP header calls an inner one
HOP_LIMIT = 64
DONT_FRAGMENT = 0x4000
TCP_ACK_FLAG = 0x10
FIRST_SEQ = 1
TCP_ACK = 1
TCP_WINDOW = 0xFFFF
PAYLOAD = b"rxbook" * (MTU // 6)

IP_VERSIONS = {  # (encap, ip_version): the versions of the IP headers, outermost first
    ("none", 4): (4,),
    ("none", 6): (6,),
    ("4in4", 4): (4, 4),
    ("4in6", 4): (6, 4),
    ("6in6", 6): (6, 6),
}
OUTER = {4: (SENDER_IP4, RECEIVER_IP4), 6: (SENDER_IP6, RECEIVER_IP6)}
INNER = {4: (INNER_SENDER_IP4, INNER_RECEIVER_IP4), 6: (INNER_SENDER_IP6, INNER_RECEIVER_IP6)}


@dataclass(frozen=True)
class FrameSpec:
    """Which frames to send.

    frame_size: bytes on the wire, FCS included. udp_csum: "computed" or "zero". flows: distinct source ports.
    burst: consecutive frames of a flow. protocol: "udp" or "tcp". encap: "none" or inner in outer, "4in4",
    "4in6", "6in6"; ip_version is that of the IP packet which carries UDP or TCP.
    """

    frame_size: int
    udp_csum: str = "computed"
    flows: int = 1
    burst: int = 1
    protocol: str = "udp"
    ip_version: int = 4
    encap: str = "none"


@dataclass(frozen=True, eq=False)
class Ring:
    """Frames in sending order, of which only the bytes that differ are kept.

    frame: the first frame. slots: little-endian uint64 of shape (n_slots, words), the 8 * words bytes at
    `offset` of each frame. When all frames are equal there is one slot of no words.
    """

    frame: bytes
    offset: int
    words: int
    slots: np.ndarray


def headers_bytes(spec: FrameSpec) -> int:
    """Bytes from the Ethernet header to the end of the UDP or TCP header."""
    ip = sum(IP_BYTES[version] for version in IP_VERSIONS[spec.encap, spec.ip_version])
    return ETHERNET_BYTES + ip + L4_BYTES[spec.protocol]


def payload_bytes(spec: FrameSpec) -> int:
    """Bytes of UDP or TCP payload. GRO never merges frames of which this is 0."""
    return spec.frame_size - FCS_BYTES - headers_bytes(spec)


def check(spec: FrameSpec) -> None:
    """Raise RxbookError, with what to do, for frames that cannot be sent."""
    _check_words(spec)
    _check_checksum(spec)
    _check_range(spec)
    words = spec.flows * spec.burst * _varying(spec)[1]
    if words > RING_WORDS:
        raise RxbookError(
            f"flows={spec.flows} burst={spec.burst}: {words} words of 8 bytes, but the ring of frames holds "
            f"{RING_WORDS} (a {spec.protocol.upper()} frame takes {_varying(spec)[1]}); lower flows or burst"
        )


def _check_words(spec: FrameSpec) -> None:
    if spec.protocol not in L4_BYTES:
        raise RxbookError(f"protocol={spec.protocol}: say udp or tcp")
    if spec.udp_csum not in ("computed", "zero"):
        raise RxbookError(f"udp_csum={spec.udp_csum}: say computed or zero")
    if (spec.encap, spec.ip_version) not in IP_VERSIONS:
        known = ", ".join(f"{encap} with {version}" for encap, version in IP_VERSIONS)
        raise RxbookError(f"encap={spec.encap} with ip_version={spec.ip_version}: choose one of {known}")


def _check_checksum(spec: FrameSpec) -> None:
    if spec.udp_csum == "zero" and spec.protocol == "tcp":
        raise RxbookError("udp_csum=zero has no meaning with protocol=tcp: say udp_csum=computed")
    if spec.udp_csum == "zero" and spec.ip_version == 6:
        raise RxbookError(
            "udp_csum=zero over IPv6: RFC 8200 section 8.1 forbids a zero UDP checksum outside UDP tunnels, "
            "receivers drop it; say udp_csum=computed, or use IPv4"
        )


def _check_range(spec: FrameSpec) -> None:
    shortest = max(MIN_FRAME_SIZE, headers_bytes(spec) + FCS_BYTES)
    longest = MTU + ETHERNET_BYTES + FCS_BYTES
    if not shortest <= spec.frame_size <= longest:
        kind = f"IPv{spec.ip_version} {spec.protocol.upper()}"
        kind += "" if spec.encap == "none" else f", encap={spec.encap}"
        raise RxbookError(
            f"frame_sizes={spec.frame_size}: choose {shortest} to {longest} bytes (FCS included) for {kind}"
        )
    if not 1 <= spec.flows <= MAX_FLOWS:
        raise RxbookError(f"flows={spec.flows}: choose 1 to {MAX_FLOWS}")
    if not 1 <= spec.burst <= MAX_BURST:
        raise RxbookError(f"burst={spec.burst}: choose 1 to {MAX_BURST}")


def base_frame(spec: FrameSpec) -> bytes:
    """The first frame, frame_size - 4 bytes. Raises RxbookError as `check` does."""
    import numpy as np

    check(spec)
    csum = _checksums(spec, np.array([FIRST_SRC_PORT]), np.array([FIRST_SEQ]))[0]
    packet, number = _segment(spec, FIRST_SRC_PORT, FIRST_SEQ, csum), L4_NUMBER[spec.protocol]
    for version, (source, destination) in reversed(_ip_layers(spec)):
        packet = _ip_header(version, number, source, destination, len(packet)) + packet
        number = IP_NUMBER[version]
    return RECEIVER_MAC + SENDER_MAC + struct.pack(">H", ETHERTYPE[version]) + packet


def ring(spec: FrameSpec) -> Ring:
    """Frames in sending order: a burst of flow 0, a burst of flow 1, and so on.

    UDP makes one pass over the flows. TCP makes as many as fit, so that the segments of each flow are in
    sequence until the ring starts again. Raises RxbookError as `check` does.
    """
    import numpy as np

    frame = base_frame(spec)
    offset, words = _varying(spec)
    if words == 0:
        return Ring(frame, 0, 0, np.zeros((1, 0), "<u8"))
    ports, seqs = _order(spec)
    end = offset + 8 * words
    rows = np.tile(np.frombuffer(frame[:end], np.uint8), (len(ports), 1))
    l4_at = headers_bytes(spec) - L4_BYTES[spec.protocol]
    _put(rows, l4_at, ports.astype(">u2"))
    if spec.protocol == "tcp":
        _put(rows, l4_at + SEQ_AT, seqs.astype(">u4"))
    _put(rows, l4_at + CSUM_AT[spec.protocol], _checksums(spec, ports, seqs).astype(">u2"))
    return Ring(frame, offset, words, np.ascontiguousarray(rows[:, offset:]).view("<u8"))


def frame_at(frames: Ring, index: int) -> bytes:
    """Frame number `index` as it is sent; the ring starts again after its last slot."""
    changed = frames.slots[index % len(frames.slots)].tobytes()
    return frames.frame[: frames.offset] + changed + frames.frame[frames.offset + len(changed) :]


def write_pcap(path: str | Path, packets: Iterable[bytes]) -> None:
    """Write Ethernet frames (without FCS) as a classic little-endian pcap; all timestamps are 0."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for packet in packets:
            file.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)


def _varying(spec: FrameSpec) -> tuple[int, int]:
    """Offset and 8-byte words of the part in which frames differ; (0, 0) when all are equal.

    It goes from the source port, or from the sequence number with one flow, to the checksum.
    """
    l4_at = headers_bytes(spec) - L4_BYTES[spec.protocol]
    if spec.flows > 1:
        first = l4_at
    elif spec.protocol == "tcp" and payload_bytes(spec) > 0:
        first = l4_at + SEQ_AT
    else:
        return 0, 0
    words = -(-(l4_at + CSUM_AT[spec.protocol] + 2 - first) // 8)
    return min(first, spec.frame_size - FCS_BYTES - 8 * words), words


def _order(spec: FrameSpec) -> tuple[np.ndarray, np.ndarray]:
    """Source port and sequence number of each slot."""
    import numpy as np

    per_pass, passes = spec.flows * spec.burst, 1
    if spec.protocol == "tcp":
        passes = max(1, min(MAX_SLOTS, RING_WORDS // _varying(spec)[1]) // per_pass)
    turn, place = np.divmod(np.arange(passes * per_pass), per_pass)
    flow, step = np.divmod(place, spec.burst)
    return FIRST_SRC_PORT + flow, FIRST_SEQ + (turn * spec.burst + step) * payload_bytes(spec)


def _put(rows: np.ndarray, at: int, values: np.ndarray) -> None:
    rows[:, at : at + values.itemsize] = values.view("u1").reshape(len(values), -1)


def _ip_layers(spec: FrameSpec) -> list[tuple[int, tuple]]:
    """(version, (source, destination)) of each IP header, outermost first."""
    versions = IP_VERSIONS[spec.encap, spec.ip_version]
    return [(version, places[version]) for version, places in zip(versions, (OUTER, INNER), strict=False)]


def _ip_header(version: int, number: int, source, destination, length: int) -> bytes:
    addresses = source.packed + destination.packed
    if version == 6:
        return struct.pack(">IHBB", 6 << 28, length, number, HOP_LIMIT) + addresses
    start = struct.pack(">BBHHHBB", 0x45, 0, IP_BYTES[4] + length, 0, DONT_FRAGMENT, HOP_LIMIT, number)
    return start + struct.pack(">H", 0xFFFF ^ _fold(_sum(start + addresses))) + addresses


def _segment(spec: FrameSpec, port: int, seq: int, csum: int) -> bytes:
    payload = PAYLOAD[: payload_bytes(spec)]
    if spec.protocol == "udp":
        return struct.pack(">HHHH", port, DST_PORT, L4_BYTES["udp"] + len(payload), csum) + payload
    flags = (L4_BYTES["tcp"] // 4) << 12 | TCP_ACK_FLAG
    return struct.pack(">HHIIHHHH", port, DST_PORT, seq, TCP_ACK, flags, TCP_WINDOW, csum, 0) + payload


def _checksums(spec: FrameSpec, ports: np.ndarray, seqs: np.ndarray) -> np.ndarray:
    """The UDP or TCP checksum of each frame. What all frames share is summed only once."""
    import numpy as np

    if spec.udp_csum == "zero":
        return np.zeros_like(ports)
    segment = _segment(spec, 0, 0, 0)
    source, destination = _ip_layers(spec)[-1][1]
    # Zeros do not count in a sum, so one layout serves for the pseudo headers of IPv4 and IPv6.
    pseudo = source.packed + destination.packed + struct.pack(">II", len(segment), L4_NUMBER[spec.protocol])
    total = _sum(pseudo + segment) + ports
    if spec.protocol == "tcp":
        return 0xFFFF ^ _fold(total + (seqs >> 16) + (seqs & 0xFFFF))
    csums = 0xFFFF ^ _fold(total)
    return np.where(csums == 0, 0xFFFF, csums)  # 0 would say "no checksum"


def _sum(data: bytes) -> int:
    """Sum of big-endian 16-bit words, an odd last byte padded with 0."""
    even = data + bytes(len(data) % 2)
    return sum(struct.unpack(f">{len(even) // 2}H", even))


def _fold(total):
    """Ones' complement sum in 16 bits of an integer, or an array of integers, below 2**32."""
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16)
