# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A copy of perf.data fit to be shared: no host name, command line, names or paths of user space.

Kernel samples, symbols and events stay, so that perf and rxbook read the same kernel table from it. Kept too: numbers
(addresses, pids, times), kernel release, CPU, build ids of the kernel and its modules, names of BPF programs and of
kernel threads. Whatever is not known here, record or header, is left out and said: nothing passes unseen.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from rxbook import RxbookError
from rxbook.profile import headers, perfdata, records, scrub_features
from rxbook.profile.headers import Event
from rxbook.profile.perfdata import PerfData
from rxbook.profile.scrub_names import Names, kernel_file, refuse_user_event
from rxbook.profile.scrub_samples import Blanker
from rxbook.profile.stream import Run

__all__ = ["copy"]

_NUMBERS_ALONE = (
    records.LOST, records.EXIT, records.THROTTLE, records.UNTHROTTLE, records.FORK, records.READ,
    records.LOST_SAMPLES, 14, 15, 16, 18,  # SWITCH, SWITCH_CPU_WIDE, NAMESPACES, BPF_EVENT
    records.FINISHED_ROUND, records.ID_INDEX, 74, 79,  # CPU_MAP, TIME_CONV
    82,  # FINISHED_INIT
)  # fmt: skip
"""Records without names, copied as they are."""
_CGROUP = 19
_ATTRIBUTE = 128
"""Bytes of perf_event_attr from Linux 5.13 to 6.2."""
_INTO_HEADER = (
    records.HEADER_ATTR, records.HEADER_TRACING_DATA, records.HEADER_BUILD_ID, records.EVENT_UPDATE,
    records.HEADER_FEATURE, records.COMPRESSED, records.COMPRESSED2,
)  # fmt: skip
"""What a pipe has as records stands in the copy's header; what was compressed is no longer."""
_LEFT_OUT = {
    11: "AUX", 12: "ITRACE_START", 20: "TEXT_POKE", 21: "AUX_OUTPUT_HW_ID", 65: "EVENT_TYPE", 70: "AUXTRACE_INFO",
    71: "AUXTRACE", 72: "AUXTRACE_ERROR", 73: "THREAD_MAP", 75: "STAT_CONFIG", 76: "STAT", 77: "STAT_ROUND",
    84: "BPF_METADATA",
}  # fmt: skip


@dataclass(frozen=True)
class Scrubbed:
    """What a copy lacks: left_out, what it never has; warnings, what could not be read."""

    left_out: str
    warnings: list[str]


def copy(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Scrubbed:
    """Write the copy, as a file where the recording is a pipe's stream, too.

    Raises RxbookError where the target exists or cannot be written, where the file is no perf.data, and where it holds
    what can be neither scrubbed nor left out.
    """
    target = Path(target)
    if os.path.lexists(target):
        raise RxbookError(f"{target} exists already: name a new file")
    if Path(path).is_dir():
        raise RxbookError(
            f"{path} is a folder (perf record --threads): only a perf.data file can be scrubbed"
        )
    data = perfdata.read(path)
    if not data.events:
        raise RxbookError(f"{data.path.name} cannot be scrubbed: {'; '.join(data.warnings)}")
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".scrub-") as file:
            scrubbed = _Copy(data, file).write()
            file.flush()
            os.link(file.name, target)  # unlike a rename, never over another file
        target.chmod(0o644)
    except OSError as error:
        raise RxbookError(f"cannot write {target}: {error.strerror}; choose another place") from None
    return scrubbed


def advice(target: Path) -> str:
    """What to say of a copy, so that others can read it."""
    return f"""\
{target}: a copy without host name, command line,
and names and paths of user space: threads are user-1, ..., files /user/1.
It keeps kernel release, CPU, kernel symbols, addresses, pids and times.
To name kernel functions elsewhere, share with it a copy of /proc/kallsyms
of the recorded machine, read as root before its next boot:
    perf report -i {target.name} --kallsyms kallsyms
    rxbook perf {target.name} --kallsyms kallsyms
That file has symbols and addresses alone. Both tell where the kernel was
placed (KASLR) until that boot."""


class _Copy:
    """The copy in the making."""

    def __init__(self, data: PerfData, file: BinaryIO) -> None:
        for event in data.events:
            refuse_user_event(event.name)
        self._data, self._file, self._endian = data, file, data.endian
        self._events = _of_one_length(data.events, data.endian)
        self._names = Names()
        mapped = (event for _, event in data.side_band if isinstance(event, records.Mapping))
        user = ((m.start, m.end) for m in mapped if m.pid != records.KERNEL_PID)
        self._blanker = Blanker(self._events, data.endian, user)
        self._tails = {_tail(event) for event in self._events}
        self._features: dict[int, bytes] = {}
        self._left_out: Counter[str] = Counter()
        self._warnings = list(data.warnings)

    def write(self) -> Scrubbed:
        entry = 16 + len(self._events[0].attribute)
        ids = [struct.pack(f"{self._endian}{len(event.ids)}Q", *event.ids) for event in self._events]
        attributes_at = headers.FILE_HEADER + sum(map(len, ids))
        data_at = attributes_at + entry * len(self._events)
        self._file.write(bytes(headers.FILE_HEADER) + b"".join(ids))
        at = headers.FILE_HEADER
        for event, numbers in zip(self._events, ids, strict=True):
            self._file.write(event.attribute + struct.pack(f"{self._endian}QQ", at, len(numbers)))
            at += len(numbers)
        self._write_records()
        end = self._file.tell()
        self._write_features()
        bits = sum(1 << feature for feature in self._features)
        numbers = (
            headers.FILE_HEADER, entry, attributes_at, entry * len(self._events), data_at, end - data_at, 0, 0,
            *(bits >> shift & (1 << 64) - 1 for shift in (0, 64, 128, 192)),
        )  # fmt: skip
        self._file.seek(0)
        magic = b"PERFILE2" if self._endian == "<" else b"2ELIFREP"
        self._file.write(magic + struct.pack(f"{self._endian}12Q", *numbers))
        return Scrubbed(
            ", ".join(f"{what} ({number})" for what, number in self._left_out.items()), self._warnings
        )

    # --- records

    def _write_records(self) -> None:
        copied = (*_NUMBERS_ALONE, *(() if self._blanker.needed else (records.SAMPLE,)))
        others = [kind for kind in range(129) if kind not in copied]
        stream = self._data.stream(others)
        for run in stream.runs():
            self._write_run(run)
        if stream.counts[records.AUXTRACE]:
            self._left_out[_record_name(records.AUXTRACE)] += int(stream.counts[records.AUXTRACE])
        if stream.tracing_data:
            self._take_feature(scrub_features.TRACING_DATA, stream.tracing_data)

    def _write_run(self, run: Run) -> None:
        view = memoryview(run.data)
        done = run.start
        for at in run.found:
            kind, misc, size = struct.unpack_from(f"{self._endian}IHH", view, at)
            self._file.write(view[done:at])
            done = at + size
            try:
                self._file.writelines(self._record(kind, misc, bytearray(view[at:done])))
            except struct.error:
                self._left_out[f"damaged records of type {kind}"] += 1
        self._file.write(view[done : run.end])

    def _record(self, kind: int, misc: int, record: bytearray) -> Iterator[bytes]:
        """The record as it can be shared, or nothing. struct.error where it is damaged."""
        if kind == records.SAMPLE:
            self._blanker.blank(record)
            yield record
        elif kind == records.CALLCHAIN_DEFERRED:
            self._blanker.blank_deferred(record)
            yield record
        elif kind == records.COMM:
            yield self._renamed(record, 16, self._names.comm(records.text(record[16:])))
        elif kind in (records.MMAP, records.MMAP2):
            yield self._mapping(record, misc, 40 if kind == records.MMAP else 72)
        elif kind == records.KSYMBOL:
            yield self._renamed(record, 24, records.text(record[24:]))
        elif kind == _CGROUP:
            yield self._renamed(record, 16, self._names.file(records.text(record[16:])))
        elif kind == records.HEADER_FEATURE:
            (feature,) = struct.unpack_from(f"{self._endian}Q", record, 8)
            self._take_feature(feature, bytes(record[16:]))
        elif kind == records.HEADER_BUILD_ID:
            self._take_feature(headers.BUILD_ID, bytes(record))
        elif kind not in _INTO_HEADER:
            self._left_out[_record_name(kind)] += 1

    def _mapping(self, record: bytearray, misc: int, name_at: int) -> bytes:
        name = records.text(record[name_at:])
        if misc & records.MODE_MASK in (records.KERNEL_MODE, records.GUEST_KERNEL_MODE):
            return self._renamed(record, name_at, kernel_file(name))
        if name_at == 72:  # MMAP2: device and inode, or the build id, which tell the file
            record[40:64] = bytes(24)
            struct.pack_into(f"{self._endian}H", record, 4, misc & ~records.MISC_BUILD_ID)
        return self._renamed(record, name_at, self._names.file(name))

    def _renamed(self, record: bytearray, name_at: int, name: str) -> bytes:
        """The record with another name before its trailer, and zeros behind it."""
        end = record.find(0, name_at)
        tail = record[end + 8 - (end - name_at) % 8 :] if end >= 0 else b""
        if end < 0 or len(tail) not in self._tails:
            raise struct.error("the name does not end before the trailer")
        padded = name.encode() + b"\0"
        body = bytes(record[8:name_at]) + padded + bytes(-len(padded) % 8) + bytes(tail)
        return bytes(record[:6]) + struct.pack(f"{self._endian}H", 8 + len(body)) + body

    # --- header

    def _take_feature(self, feature: int, data: bytes) -> None:
        if feature in (*scrub_features.NAMING, headers.EVENT_DESC):
            return
        if feature not in scrub_features.KEPT:
            self._left_out[scrub_features.NAMES.get(feature, f"feature {feature}")] += 1
            return
        try:
            found = scrub_features.scrubbed(feature, data, self._endian)
            before = self._features.get(feature, b"") if feature == headers.BUILD_ID else b""
            self._features[feature] = before + found
        except struct.error as error:
            if not any(f"feature {feature} is damaged" in said for said in self._warnings):
                self._warnings.append(f"feature {feature} is damaged ({error}) and left out")

    def _write_features(self) -> None:
        for feature, data in self._data.features(range(256)):
            self._take_feature(feature, data)
        self._features[headers.EVENT_DESC] = scrub_features.described(self._events, self._endian)
        at = self._file.tell() + 16 * len(self._features)
        contents = [self._features[feature] for feature in sorted(self._features)]
        for content in contents:
            self._file.write(struct.pack(f"{self._endian}QQ", at, len(content)))
            at += len(content)
        self._file.writelines(contents)


def _of_one_length(events: list[Event], endian: str) -> list[Event]:
    """Events whose attributes are equally long and say so: perf reads them one behind the other.

    perf before 6.5 takes 128 bytes at most, which hold all unless what is behind is used.
    """
    longest = max(len(event.attribute) for event in events)
    if longest > _ATTRIBUTE and not any(any(event.attribute[_ATTRIBUTE:]) for event in events):
        longest = _ATTRIBUTE
    size = struct.pack(f"{endian}I", longest)
    return [
        replace(event, attribute=event.attribute[:4] + size + event.attribute[8:longest].ljust(longest - 8, b"\0"))
        for event in events
    ]  # fmt: skip


def _tail(event: Event) -> int:
    """Size of the trailer of the kernel's records."""
    fields = headers.TID | headers.TIME | headers.ID | headers.STREAM_ID | headers.CPU | headers.IDENTIFIER
    return 8 * (event.sample_type & fields).bit_count() if event.sample_id_all else 0


def _record_name(kind: int) -> str:
    if kind == 128:
        return "records of types from 128 on"
    return _LEFT_OUT.get(kind, f"records of type {kind}")
