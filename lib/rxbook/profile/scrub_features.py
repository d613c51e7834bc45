# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The header of a shared recording: the features that name nobody, each written anew from what was understood of it.

Formats: tools/perf/Documentation/perf.data-file-format.txt; of TRACING_DATA: trace-cmd.dat.v6(5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from rxbook.profile import headers, records
from rxbook.profile.headers import Event
from rxbook.profile.scrub_names import kernel_file, refuse_user_event

TRACING_DATA, BRANCH_STACK, GROUPS = 1, 15, 17
_TEXTS = (4, 5, 6, 8, 9)  # release, perf's version, arch, cpu, cpuid
_NUMBERS = {headers.CPUS: 8, headers.MEMORY: 8, 21: 16, 23: 8, 29: 24}  # times, clock id, clock data
"""Size of the features that are numbers alone."""
KEPT = (TRACING_DATA, headers.BUILD_ID, BRANCH_STACK, GROUPS, *_TEXTS, *_NUMBERS)
NAMING = (3, headers.COMMAND)
"""Host name and command line: nobody wonders where they went."""
NAMES = {
    13: "CPU topology", 14: "NUMA topology", 16: "PMU mappings", 18: "AUX trace index", 19: "stat", 20: "caches",
    22: "memory topology", 24: "folder format", 25: "BPF programs", 26: "BTF", 27: "compression",
    28: "PMU capabilities", 30: "hybrid topology", 31: "PMU capabilities", 32: "CPU domains",
}  # fmt: skip


def scrubbed(feature: int, data: bytes, endian: str) -> bytes:
    """The feature's bytes as they can be shared. struct.error where they are damaged."""
    if feature in _TEXTS:
        return _text(headers.string(data, 0, endian)[0], endian)
    if feature in _NUMBERS:
        if len(data) < _NUMBERS[feature]:
            raise struct.error("too short")
        return data[: _NUMBERS[feature]]
    if feature == headers.BUILD_ID:
        return b"".join(_build_ids(data, endian))
    if feature == GROUPS:
        return _groups(data, endian)
    if feature == TRACING_DATA:
        return tracing_data(data)
    return b""


def _text(text: str, endian: str) -> bytes:
    data = text.encode() + b"\0"
    data += bytes(-len(data) % 64)  # as perf writes them
    return struct.pack(f"{endian}I", len(data)) + data


def described(events: list[Event], endian: str) -> bytes:
    """The feature EVENT_DESC."""
    parts = [struct.pack(f"{endian}II", len(events), len(events[0].attribute))]
    for event in events:
        name, ids = _text(event.name, endian), struct.pack(f"{endian}{len(event.ids)}Q", *event.ids)
        parts += [event.attribute, struct.pack(f"{endian}I", len(event.ids)), name, ids]
    return b"".join(parts)


def _groups(data: bytes, endian: str) -> bytes:
    (count,) = struct.unpack_from(f"{endian}I", data)
    parts, at = [data[:4]], 4
    for _ in range(count):
        name, at = headers.string(data, at, endian)
        leader_and_members = data[at : at + 8]
        struct.unpack(f"{endian}II", leader_and_members)
        parts += [_text(name, endian), leader_and_members]
        at += 8
    return b"".join(parts)


def _build_ids(data: bytes, endian: str) -> Iterator[bytes]:
    at = 0
    while at + 36 <= len(data):
        (size,) = struct.unpack_from(f"{endian}H", data, at + 6)
        if size < 36 or at + size > len(data):
            raise struct.error("build id reaches beyond its section")
        yield _kernel_build_id(data[at : at + size], endian)
        at += size


def _kernel_build_id(record: bytes, endian: str) -> bytes:
    """A build id record of the kernel or a module; nothing of any other file, which its build id would tell."""
    kind, misc = struct.unpack_from(f"{endian}IH", record)
    struct.unpack_from(f"{endian}I", record, 32)
    name = records.text(record[36:])
    kernel = misc & records.MODE_MASK in (records.KERNEL_MODE, records.GUEST_KERNEL_MODE)
    if not kernel or not name:
        return b""
    padded = kernel_file(name).encode() + b"\0"
    padded += bytes(-len(padded) % 64)
    return struct.pack(f"{endian}IHH", kind, misc, 36 + len(padded)) + record[8:36] + padded


def tracing_data(data: bytes) -> bytes:
    """The formats of tracepoints without what follows them: kallsyms, printk formats, names of threads."""
    if data[:10] != b"\x17\x08Dtracing" or data[10:14] not in (b"0.5\0", b"0.6\0"):
        raise struct.error("tracing data of an unknown version")
    at = 14 + 1 + 1 + 4  # byte order, size of a long, page size
    endian = ">" if data[14:15] == b"\1" else "<"
    for name in (b"header_page\0", b"header_event\0"):
        if data[at : at + len(name)] != name:
            raise struct.error("tracing data is damaged")
        at = _behind(data, at + len(name), endian)
    at = _behind_formats(data, at, endian)
    (systems,) = struct.unpack_from(f"{endian}I", data, at)
    at += 4
    for _ in range(systems):
        end = data.find(b"\0", at)
        if end < 0:
            raise struct.error("tracing data is damaged")
        refuse_user_event(records.text(data[at:end]) + ":")
        at = _behind_formats(data, end + 1, endian)
    # no kallsyms, no printk formats; from 0.6 on, no names of threads
    return data[:at] + bytes(8 if data[10:14] == b"0.5\0" else 16)


def _behind_formats(data: bytes, at: int, endian: str) -> int:
    (count,) = struct.unpack_from(f"{endian}I", data, at)
    at += 4
    for _ in range(count):
        at = _behind(data, at, endian)
    return at


def _behind(data: bytes, at: int, endian: str) -> int:
    (size,) = struct.unpack_from(f"{endian}Q", data, at)
    if at + 8 + size > len(data):
        raise struct.error("tracing data is cut off")
    return at + 8 + size
