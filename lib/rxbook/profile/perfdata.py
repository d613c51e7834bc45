# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Read perf.data, of a file or a pipe, without the perf tool.

read() takes in everything but the samples: events, threads, mappings, headers. PerfData.count() then counts the
samples, equal ones together. A file that is damaged is read as far as it is sound; warnings say where and why.
A folder (perf record --threads) holds one such file, "data", and beside it "data.0", ..., of records alone.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rxbook import RxbookError
from rxbook.profile import first_file, headers, records, spaces
from rxbook.profile.deferred import Deferred, collect
from rxbook.profile.folding import Counts, Folder, Plan
from rxbook.profile.headers import Event, Headers
from rxbook.profile.stream import Run, Stream

MOST_WARNINGS = 20


@dataclass
class PerfData:
    """What a recording says beside its samples.

    events, in the file's order; facts: host, kernel release and so on (headers.Headers), build_ids by file name;
    side_band: threads and mappings in time order; record_counts by record type;
    lost_records: what did not fit the kernel's buffers; lost_samples: samples that it counted as lost;
    ordered: records carry a time and are to be taken in its order, else in the file's.
    """

    path: Path
    endian: str
    events: list[Event]
    facts: dict[str, object]
    build_ids: dict[str, str]
    side_band: spaces.SideBand
    record_counts: dict[int, int]
    lost_records: int
    lost_samples: int
    throttled: int
    warnings: list[str]
    ordered: bool
    header: headers.FileHeader = field(repr=False)
    _streams: list[Stream] = field(repr=False)

    @property
    def lost(self) -> int:
        """Samples lost, as far as known: newer kernels tell the same loss in both counts."""
        return max(self.lost_records, self.lost_samples)

    def unwound(self, chains: bool) -> list[str]:
        """What to say where call chains are shown and user stacks are not among them."""
        if chains and any(event.user_stack for event in self.events):
            return ["stacks of user space (--call-graph dwarf) are not unwound: the chains alone are shown"]
        return []

    def stream(self, read_types: Collection[int]) -> Stream:
        """The records of a file once more, with the offsets of these types; without the warnings, which are known."""
        return self._streams[0].anew(read_types)

    def features(self, wanted: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """(feature, its bytes) of a file's header; a pipe has records instead."""
        if not self.header.pipe and self.header.data.size:
            end = self.header.data.offset + self.header.data.size
            read = functools.partial(_read_at, self.path)
            yield from headers.file_features(read, self.header, end, lambda _: None, wanted)

    def count(self, chains: bool = False) -> Counts:
        """Count equal samples together; with chains, also by call chain."""
        comm_names, comm_line = spaces.comms(self.side_band)
        waiting = chains and self.events and self.record_counts.get(records.CALLCHAIN_DEFERRED)
        deferred = self._deferred() if waiting else Deferred()
        states = spaces.states(self.side_band)
        plan = Plan(self.events, self.endian, self.ordered, chains, comm_line, states, deferred)
        folder = Folder(plan, comm_names)
        if self.events:
            for stream in self._streams:
                for run in stream.again():
                    folder.take(run)
        counts = folder.counts()
        self.warnings += [said for said in counts.warnings if said not in self.warnings]
        return counts

    def _deferred(self) -> Deferred:
        event = self.events[0]
        told = event.sample_id_all and bool(event.sample_type & headers.TID)
        runs = (run for stream in self._streams for run in stream.noting(records.CALLCHAIN_DEFERRED))
        return collect(runs, self.endian, told)


def read(path: str | os.PathLike[str]) -> PerfData:
    """Read a perf.data file, or the folder that perf made of it. RxbookError where it cannot be opened or is none."""
    path = Path(path)
    try:
        first = first_file(path)
        with open(first, "rb") as file:
            start = file.read(headers.FILE_HEADER)
        return _Reader(path, first, start).read()
    except OSError as error:
        raise RxbookError(f"cannot read {path.name}: {error.strerror}") from error


def _other_files(path: Path) -> list[Path]:
    """The files of a folder that hold records alone, by number."""
    found = [file for file in path.glob("data.*") if file.suffix[1:].isdecimal() and file.stat().st_size]
    return sorted(found, key=lambda file: int(file.suffix[1:]))


class _Reader:
    def __init__(self, path: Path, first: Path, start: bytes) -> None:
        self._path, self._first, self._size = path, first, first.stat().st_size
        self._header = headers.file_header(start, self._size, path.name)
        self._endian = self._header.endian
        self._at = functools.partial(_read_at, first)
        self._headers = Headers()
        self._side_band: spaces.SideBand = []
        self._lost_records = self._lost_samples = 0
        self._warnings: list[str] = []
        self._more_warnings = 0
        self._within = ""

    def read(self) -> PerfData:
        section = self._section()
        if not self._header.pipe:
            self._headers.events = headers.file_events(self._at, self._header, self._warn)
        streams = [self._all_of(self._first, *section)]
        if not self._header.pipe and self._header.data.size:
            for feature, data in headers.file_features(self._at, self._header, section[1], self._warn):
                self._feature(feature, data, section[1])
        for other in _other_files(self._path):
            self._within = f"{other.name}: "
            streams.append(self._all_of(other, 0, other.stat().st_size))
        self._within = ""
        return self._result(streams)

    def _all_of(self, file: Path, start: int, end: int) -> Stream:
        """Take in the records of one file."""
        stream = Stream(str(file), self._endian, start, end, self._warn)
        for run in stream.runs():
            self._take(run)
        return stream

    def _result(self, streams: list[Stream]) -> PerfData:
        events = self._headers.events
        if not events and not self._warnings:
            self._warn("the file names no event")
        if self._more_warnings:
            self._warnings.append(f"{self._more_warnings} more faults like these")
        ordered = bool(events) and events[0].sample_id_all and bool(events[0].sample_type & headers.TIME)
        if ordered:
            self._side_band.sort(key=lambda entry: entry[0])
        elif len(streams) > 1:
            self._warn(
                "records carry no times and lie in several files: names of threads and files can be wrong"
            )
        counts = sum(stream.counts for stream in streams)
        numbers = {kind: int(number) for kind, number in enumerate(counts) if number}
        return PerfData(
            self._path, self._endian, events, self._headers.facts, self._headers.build_ids, self._side_band, numbers,
            self._lost_records, self._lost_samples, numbers.get(records.THROTTLE, 0), self._warnings, ordered,
            self._header, streams,
        )  # fmt: skip

    def _section(self) -> tuple[int, int]:
        """Where records begin and end; a recording that was killed does not say how far they reach."""
        data = self._header.data
        if self._header.pipe:
            return data.offset, self._size
        if data.size == 0:
            self._warn(
                "the recording was not finished (data size 0): read to the end of the file, without headers"
            )
            return min(data.offset, self._size), self._size
        if data.offset + data.size > self._size:
            missing = data.offset + data.size - self._size
            self._warn(f"the file is cut off: {missing} of {data.size} bytes of records are missing")
        return min(data.offset, self._size), min(data.offset + data.size, self._size)

    def _warn(self, said: str) -> None:
        if len(self._warnings) < MOST_WARNINGS:
            self._warnings.append(self._within + said)
        else:
            self._more_warnings += 1

    def _feature(self, feature: int, data: bytes, at: int) -> None:
        try:
            headers.take_feature(self._headers, feature, data, self._endian)
        except struct.error as error:
            self._warn(f"offset {at:#x}: feature {feature} is damaged ({error}) and left out")

    def _take(self, run: Run) -> None:
        view = memoryview(run.data)
        for at in run.found:
            kind, _, size = struct.unpack_from(f"{self._endian}IHH", view, at)
            try:
                self._record(kind, bytes(view[at : at + size]), run.base + at)
            except struct.error:
                self._warn(f"offset {run.base + at:#x}: record of type {kind} is too short and left out")

    def _record(self, kind: int, record: bytes, position: int) -> None:
        read_as: Callable[[bytes, int], None] | None = _OTHERS.get(kind)
        if read_as is not None:
            read_as(self, record, position)
            return
        told = records.side_band(record, self._endian)
        if told is not None:
            events = self._headers.events
            timed = bool(events) and events[0].sample_id_all
            time = records.trailer_time(record, self._endian, events[0].sample_type) if timed else position
            self._side_band.append((time, told))

    def _lost(self, record: bytes, position: int) -> None:
        (number,) = struct.unpack_from(f"{self._endian}Q", record, 16)
        self._lost_records += number

    def _lost_by_count(self, record: bytes, position: int) -> None:
        (number,) = struct.unpack_from(f"{self._endian}Q", record, 8)
        self._lost_samples += number

    def _event(self, record: bytes, position: int) -> None:
        if len(self._headers.events) < headers.MOST_EVENTS:
            self._headers.events.append(headers.pipe_event(record, self._endian))

    def _event_name(self, record: bytes, position: int) -> None:
        """EVENT_UPDATE: what perf calls the event with an id."""
        what, number = struct.unpack_from(f"{self._endian}QQ", record, 8)
        name = records.text(record[24:])
        for i, event in enumerate(self._headers.events):
            if what == 2 and number in event.ids and name:
                self._headers.events[i] = replace(event, name=name)

    def _pipe_feature(self, record: bytes, position: int) -> None:
        (feature,) = struct.unpack_from(f"{self._endian}Q", record, 8)
        self._feature(feature, record[16:], position)

    def _build_id(self, record: bytes, position: int) -> None:
        name, number = headers.build_id(record, self._endian)
        self._headers.build_ids[name] = number


def _read_at(path: Path, offset: int, size: int) -> bytes:
    """Up to size bytes of the file."""
    left = path.stat().st_size - offset
    if left <= 0 or size <= 0:
        return b""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(min(size, left))


_OTHERS = {
    records.LOST: _Reader._lost,
    records.LOST_SAMPLES: _Reader._lost_by_count,
    records.HEADER_ATTR: _Reader._event,
    records.EVENT_UPDATE: _Reader._event_name,
    records.HEADER_FEATURE: _Reader._pipe_feature,
    records.HEADER_BUILD_ID: _Reader._build_id,
}
"""Records that tell nothing of threads and mappings, and how they are taken."""
