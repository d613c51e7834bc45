# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perf.data says about itself: file header, events (attributes), feature sections.

Everything here is bounded by the section it stands in: a damaged section is lost alone, with a warning.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rxbook import RxbookError
from rxbook.profile import eventnames
from rxbook.profile.records import text

MAGICS = {b"PERFILE2": "<", b"2ELIFREP": ">", b"PERFFILE": "<", b"ELIFFREP": ">"}
"""First 8 bytes of a file, and its byte order as struct writes it."""
PIPE_HEADER, FILE_HEADER = 16, 104
MOST_EVENTS = 4096
LONGEST_ATTRIBUTE = 4096
MOST_ID_BYTES = 1 << 22
"""Of all events together: those of 1,000 events on 512 CPUs."""

BUILD_ID, EVENT_DESC, COMMAND, CPUS, MEMORY = 2, 12, 11, 7, 10
STRINGS = {3: "hostname", 4: "release", 5: "version", 6: "arch", 8: "cpu", 9: "cpuid"}
READ_FEATURES = (*STRINGS, BUILD_ID, EVENT_DESC, COMMAND, CPUS, MEMORY)

IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM_ID = (1 << bit for bit in range(10))
IDENTIFIER = 1 << 16


@dataclass(frozen=True)
class Section:
    offset: int
    size: int


@dataclass(frozen=True)
class Event:
    """One event as asked for; ids are the numbers by which samples name it, attribute is all of perf_event_attr."""

    type: int
    config: int
    sample_type: int
    read_format: int
    period: int  # the fixed period, or the frequency
    frequency: bool
    sample_id_all: bool
    user_stack: bool
    name: str
    ids: tuple[int, ...] = ()
    attribute: bytes = field(default=b"", repr=False)


@dataclass
class Headers:
    """hostname, release, version, arch, cpu, cpuid, command, cpus, memory_kb as far as the file has them."""

    facts: dict[str, Any] = field(default_factory=dict)
    build_ids: dict[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True)
class FileHeader:
    """Where a file's sections are; of a pipe's, only the byte order and where records begin."""

    endian: str
    pipe: bool
    attr_size: int
    attrs: Section
    data: Section
    features: tuple[int, ...]


def file_header(start: bytes, size: int, name: str) -> FileHeader:
    """Read the first bytes of a file of `size` bytes. RxbookError where it is no perf.data."""
    endian = MAGICS.get(start[:8])
    if endian is None:
        raise RxbookError(f"{name} is not a perf.data file: it begins with {start[:8]!r}")
    if len(start) < PIPE_HEADER:
        raise RxbookError(f"{name} is cut off in its header: {len(start)} bytes")
    (header_size,) = struct.unpack_from(f"{endian}Q", start, 8)
    nowhere = Section(0, 0)
    if header_size == PIPE_HEADER:
        return FileHeader(endian, True, 0, nowhere, Section(PIPE_HEADER, size - PIPE_HEADER), ())
    if len(start) < FILE_HEADER:
        raise RxbookError(f"{name} is cut off in its header: {len(start)} bytes of {FILE_HEADER}")
    attr_size, attrs_at, attrs, data_at, data = struct.unpack_from(f"{endian}QQQQQ", start, 16)
    return FileHeader(
        endian,
        False,
        attr_size,
        Section(attrs_at, attrs),
        Section(data_at, data),
        _feature_bits(start, endian),
    )


def _feature_bits(start: bytes, endian: str) -> tuple[int, ...]:
    words = struct.unpack_from(f"{endian}4Q", start, 72)
    return tuple(64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def attribute(data: bytes, endian: str, ids: tuple[int, ...] = ()) -> Event:
    """A perf_event_attr of any length from 64 bytes on. struct.error where it is shorter."""
    kind, _, config, period, sample_type, read_format = struct.unpack_from(f"{endian}IIQQQQ", data)
    flags = _flags(data[40:48], endian)
    struct.unpack_from(f"{endian}QQ", data, 48)
    stack = struct.unpack_from(f"{endian}I", data, 88)[0] if len(data) >= 92 else 0
    return Event(
        kind, config, sample_type, read_format, period, bool(flags >> 10 & 1), bool(flags >> 18 & 1),
        bool(stack), eventnames.name(kind, config, flags), ids, data,
    )  # fmt: skip


def _flags(data: bytes, endian: str) -> int:
    """The bit field of the attribute; a big-endian compiler fills each byte from its other end."""
    if endian == ">":
        data = bytes(int(f"{byte:08b}"[::-1], 2) for byte in data)
    return int.from_bytes(data, "little")


def file_events(
    read: Callable[[int, int], bytes], header: FileHeader, warn: Callable[[str], None]
) -> list[Event]:
    """The events of the attribute section; read(offset, size) gives what the file has of it."""
    step = header.attr_size
    if not 80 <= step <= LONGEST_ATTRIBUTE or not header.attrs.size:
        warn(f"the header gives {step} bytes per event and {header.attrs.size} for all: no event is known")
        return []
    events = []
    ids_left = MOST_ID_BYTES
    for number in range(min(header.attrs.size // step, MOST_EVENTS)):
        at = header.attrs.offset + number * step
        entry = read(at, step)
        try:
            ids_at, ids_size = struct.unpack_from(f"{header.endian}QQ", entry, step - 16)
            ids = _numbers(read(ids_at, min(ids_size, ids_left)), header.endian)
            ids_left -= 8 * len(ids)
            events.append(attribute(entry[: step - 16], header.endian, ids))
        except struct.error:
            warn(f"offset {at:#x}: event {number + 1} is cut off")
            break
    return events


def pipe_event(record: bytes, endian: str) -> Event:
    """The event of a HEADER_ATTR record: the attribute says how long it is, ids follow."""
    (size,) = struct.unpack_from(f"{endian}I", record, 12)
    size = size or 64
    return attribute(record[8 : 8 + size], endian, _numbers(record[8 + size :], endian))


def _numbers(data: bytes, endian: str) -> tuple[int, ...]:
    return struct.unpack(f"{endian}{len(data) // 8}Q", data[: len(data) // 8 * 8])


def file_features(
    read: Callable[[int, int], bytes], header: FileHeader, end_of_data: int, warn: Callable[[str], object],
    wanted: Collection[int] = READ_FEATURES,
) -> Iterator[tuple[int, bytes]]:  # fmt: skip
    """(feature, its bytes) for each wanted that the header names; their table follows the data."""
    table = read(end_of_data, 16 * len(header.features))
    for i, feature in enumerate(header.features):
        if 16 * i + 16 > len(table):
            warn(
                f"offset {end_of_data:#x}: the table of features is cut off, {len(header.features) - i} are lost"
            )
            return
        offset, size = struct.unpack_from(f"{header.endian}QQ", table, 16 * i)
        if feature not in wanted:
            continue
        data = read(offset, size)
        if len(data) < size:
            warn(f"offset {offset:#x}: feature {feature} of {size} bytes reaches beyond the file")
        else:
            yield feature, data


def take_feature(headers: Headers, feature: int, data: bytes, endian: str) -> None:
    """Put what a feature section says into headers. struct.error where it is damaged."""
    if feature in STRINGS:
        headers.facts[STRINGS[feature]] = string(data, 0, endian)[0]
    elif feature == COMMAND:
        headers.facts["command"] = _strings(data, endian)
    elif feature == CPUS:
        headers.facts["cpus"] = struct.unpack_from(f"{endian}II", data)[1]
    elif feature == MEMORY:
        headers.facts["memory_kb"] = struct.unpack_from(f"{endian}Q", data)[0]
    elif feature == BUILD_ID:
        headers.build_ids.update(_build_ids(data, endian))
    elif feature == EVENT_DESC:
        for i, event in _described(data, endian, headers.events):
            headers.events[i] = event


def string(data: bytes, at: int, endian: str) -> tuple[str, int]:
    """A string with its length before it, and where the next thing stands."""
    (length,) = struct.unpack_from(f"{endian}I", data, at)
    if at + 4 + length > len(data):
        raise struct.error("string reaches beyond its section")
    return text(data[at + 4 : at + 4 + length]), at + 4 + length


def _strings(data: bytes, endian: str) -> list[str]:
    (count,) = struct.unpack_from(f"{endian}I", data)
    found, at = [], 4
    for _ in range(count):
        said, at = string(data, at, endian)
        found.append(said)
    return found


def _build_ids(data: bytes, endian: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at + 36 <= len(data):
        (size,) = struct.unpack_from(f"{endian}H", data, at + 6)
        if size < 36 or at + size > len(data):
            raise struct.error("build id reaches beyond its section")
        yield build_id(data[at : at + size], endian)
        at += size


def build_id(record: bytes, endian: str) -> tuple[str, str]:
    """(file name, build id) of a build id record: u32 pid, 20 bytes and 4 more, then the name.

    Older files leave the length out: it is then 20, with zeros behind shorter ids.
    """
    (misc,) = struct.unpack_from(f"{endian}H", record, 4)
    struct.unpack_from(f"{endian}I", record, 32)
    length = min(record[32], 20) if misc & 1 << 15 else 20
    return text(record[36:]), record[12 : 12 + length].hex()


def _described(data: bytes, endian: str, events: list[Event]) -> Iterator[tuple[int, Event]]:
    """Events with the names and ids that EVENT_DESC gives them, in the order of the attributes."""
    count, attr_size = struct.unpack_from(f"{endian}II", data)
    at = 8
    for i in range(min(count, len(events))):
        (ids,) = struct.unpack_from(f"{endian}I", data, at + attr_size)
        name, at = string(data, at + attr_size + 4, endian)
        numbers = _numbers(data[at : at + 8 * ids], endian)
        at += 8 * ids
        yield i, replace(events[i], name=name or events[i].name, ids=events[i].ids or numbers)
