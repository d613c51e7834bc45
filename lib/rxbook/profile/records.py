# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The record types of perf.data, and the side-band records: who ran (COMM, FORK), and what was mapped where.

A record is a header (u32 type, u16 misc, u16 size) and its payload, padded. With sample_id_all each record of
the kernel ends in a trailer that gives the time. Samples are not read here: see walk.py.
"""

from __future__ import annotations

import functools
import struct
import sys
from dataclasses import dataclass

MMAP, LOST, COMM, EXIT, THROTTLE, UNTHROTTLE, FORK, READ, SAMPLE, MMAP2 = range(1, 11)
LOST_SAMPLES, KSYMBOL, CALLCHAIN_DEFERRED = 13, 17, 22
HEADER_ATTR, HEADER_TRACING_DATA, HEADER_BUILD_ID, FINISHED_ROUND = 64, 66, 67, 68
ID_INDEX, AUXTRACE, EVENT_UPDATE, HEADER_FEATURE, COMPRESSED, COMPRESSED2 = 69, 71, 78, 80, 81, 83

FIRST_USER_TYPE = 64
"""Types from here on are perf's own; they carry no trailer."""
LAST_KNOWN_TYPE = 86

READ_TYPES = (
    MMAP, LOST, COMM, FORK, MMAP2, LOST_SAMPLES, KSYMBOL, HEADER_ATTR, HEADER_BUILD_ID,
    EVENT_UPDATE, HEADER_FEATURE,
)  # fmt: skip
"""Records that are taken apart in Python; others are counted only."""
DATA_FOLLOWS = (HEADER_TRACING_DATA, AUXTRACE, COMPRESSED, COMPRESSED2)
"""Records after or in which something else than records stands."""

MODE_MASK = 7
KERNEL_MODE, USER_MODE, HYPERVISOR_MODE, GUEST_KERNEL_MODE, GUEST_USER_MODE = 1, 2, 3, 4, 5
MISC_EXEC = 1 << 13
MISC_BUILD_ID = 1 << 14
KERNEL_PID = -1
"""Owner of the kernel's mappings among the address spaces."""

NO_TIME = (0, (1 << 64) - 1)
SAMPLE_TID, SAMPLE_TIME, SAMPLE_IDENTIFIER = 1 << 1, 1 << 2, 1 << 16
_BEHIND_TIME = (1 << 6, 1 << 9, 1 << 7, SAMPLE_IDENTIFIER)  # ID, STREAM_ID, CPU, IDENTIFIER: 8 bytes each


@dataclass(frozen=True, slots=True)
class Mapping:
    """A range of addresses and what was mapped there; pgoff is the file offset of start.

    symbol: the kind ("b" BPF, "k" other) of a KSYMBOL's range, which is dso and symbol at once. removed: its end.
    """

    pid: int
    start: int
    end: int
    pgoff: int
    name: str
    build_id: str = ""
    symbol: str = ""
    removed: bool = False
    guest: bool = False


@dataclass(frozen=True, slots=True)
class Comm:
    tid: int
    name: str


@dataclass(frozen=True, slots=True)
class Fork:
    pid: int
    parent_pid: int
    tid: int
    parent_tid: int
    exec: bool


def trailer_time(record: bytes, endian: str, sample_type: int) -> int:
    """Time in the trailer of a kernel's record, 0 where it has none."""
    at = len(record) - time_from_end(sample_type)
    if at < 8 or not sample_type & SAMPLE_TIME:
        return 0
    (time,) = struct.unpack_from(f"{endian}Q", record, at)
    return 0 if time in NO_TIME else time


@functools.cache
def time_from_end(sample_type: int) -> int:
    """Where the time stands in a trailer, from the record's end."""
    return 8 + 8 * sum(bool(sample_type & bit) for bit in _BEHIND_TIME)


def text(data: bytes) -> str:
    """What stands before the first NUL; equal names are kept once."""
    return sys.intern(data.split(b"\0", 1)[0].decode("utf-8", "replace"))


def side_band(record: bytes, endian: str) -> Mapping | Comm | Fork | None:
    """What a record tells of threads and mappings, or None. struct.error where it is too short."""
    kind, misc, _ = struct.unpack_from(f"{endian}IHH", record)
    if kind == MMAP:
        return _mmap(record, endian, misc)
    if kind == MMAP2:
        return _mmap2(record, endian, misc)
    if kind == COMM:
        _, tid = struct.unpack_from(f"{endian}ii", record, 8)
        return Comm(tid, text(record[16:]))
    if kind == FORK:
        pid, parent, tid, parent_tid = struct.unpack_from(f"{endian}iiii", record, 8)
        return Fork(pid, parent, tid, parent_tid, bool(misc & MISC_EXEC))
    if kind == KSYMBOL:
        return _ksymbol(record, endian)
    return None


def _mmap(record: bytes, endian: str, misc: int) -> Mapping:
    pid, _, start, length, pgoff = struct.unpack_from(f"{endian}iiQQQ", record, 8)
    return _mapping(pid, start, length, pgoff, text(record[40:]), misc)


def _mmap2(record: bytes, endian: str, misc: int) -> Mapping:
    pid, _, start, length, pgoff = struct.unpack_from(f"{endian}iiQQQ", record, 8)
    struct.unpack_from(f"{endian}II", record, 64)  # a record that ends before its name is damaged
    build_id = record[44 : 44 + min(record[40], 20)].hex() if misc & MISC_BUILD_ID else ""
    return _mapping(pid, start, length, pgoff, text(record[72:]), misc, build_id)


def _mapping(
    pid: int, start: int, length: int, pgoff: int, name: str, misc: int, build_id: str = ""
) -> Mapping:
    mode = misc & MODE_MASK
    kernel = mode in (KERNEL_MODE, GUEST_KERNEL_MODE)
    guest = mode in (GUEST_KERNEL_MODE, GUEST_USER_MODE)
    end = min(start + length, (1 << 64) - 1)
    return Mapping(KERNEL_PID if kernel else pid, start, end, pgoff, name, build_id, guest=guest)


def _ksymbol(record: bytes, endian: str) -> Mapping:
    start, length, kind, flags = struct.unpack_from(f"{endian}QIHH", record, 8)
    end = min(start + length, (1 << 64) - 1)
    return Mapping(
        KERNEL_PID,
        start,
        end,
        0,
        text(record[24:]),
        symbol="b" if kind == 1 else "k",
        removed=bool(flags & 1),
    )
