# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs of whole records, one after another, whatever they are wrapped in: the data section, compressed or not."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
import zstandard

from rxbook.profile import walk
from rxbook.profile.compressed import Decompressor, payload_range
from rxbook.profile.records import (
    AUXTRACE,
    COMPRESSED,
    COMPRESSED2,
    DATA_FOLLOWS,
    HEADER_TRACING_DATA,
    READ_TYPES,
)

WINDOW = 1 << 21
"""Bytes walked at a time: so much of the file is in memory at once."""


@dataclass(frozen=True, slots=True)
class Run:
    """Records from start to end of data, and the offsets in it of those to be read.

    base + an offset is a position that grows along the stream: in a file that is not compressed, the file's offset.
    """

    data: np.ndarray
    start: int
    end: int
    base: int
    found: list[int]


class Stream:
    """The records of one file. Damage ends the stream with a warning; what came before it stands.

    noted: types of the records whose places its runs give.
    """

    def __init__(
        self, path: str, endian: str, start: int, end: int, warn: Callable[[str], object],
        noted: Collection[int] = READ_TYPES,
    ) -> None:  # fmt: skip
        self._path = path
        with open(path, "rb") as file:
            self._file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._data = np.frombuffer(self._file, np.uint8)
        self._endian, self._start, self._end, self._warn = endian, start, min(end, len(self._data)), warn
        self.counts = np.zeros(walk.OTHER_TYPE + 1, np.int64)
        """Number of records by type, those from 128 on in the last place; complete once runs() is through."""
        self.tracing_data = b""
        """Formats of tracepoints, which stand between the records of a pipe."""
        self._actions, self._inner_actions = _actions(noted, DATA_FOLLOWS), _actions(noted, ())
        self._found = np.zeros(1 << 16, np.int64)
        self._state = np.zeros(2, np.int64)
        self._unpacked = 0
        self._kept: list[Run] = []
        self._compressed = False
        self._actions, self._inner_actions = _actions(noted, DATA_FOLLOWS), _actions(noted, ())

    def runs(self) -> Iterator[Run]:
        """All runs, in order."""
        at = self._start
        decompressor = Decompressor()
        while at < self._end:
            reason, run = self._scan(self._data, at, self._end, min(at + WINDOW, self._end), self._actions)
            self._kept.append(replace(run, found=[]))
            yield run
            self._forget(at, run.end)
            at = run.end
            if reason == walk.SPECIAL:
                kind, size = struct.unpack_from(f"{self._endian}IxxH", self._file, at)
                if kind in (COMPRESSED, COMPRESSED2):
                    self._compressed = True
                    self.counts[kind] += 1
                    if not (yield from self._unpack(decompressor, at, kind, size)):
                        return
                at += size + self._behind(at, kind, size)
            elif reason in (walk.TRUNCATED, walk.BAD_SIZE):
                self._complain(reason, at)
                return
        if decompressor.rest:
            self._warn(
                f"offset {at:#x}: {len(decompressor.rest)} decompressed bytes at the end are no whole record"
            )

    def again(self) -> Iterator[Run]:
        """The runs once more after runs() is through, without what is to be read in them."""
        if self._compressed:
            yield from self.noting()
            return
        for run in self._kept:
            yield run
            self._forget(run.start, run.end)

    def noting(self, *types: int) -> Iterator[Run]:
        """The runs once more, with the places of the records of these types."""
        yield from self.anew(types).runs()

    def anew(self, noted: Collection[int]) -> Stream:
        """The same records from their beginning, without warnings."""
        return Stream(self._path, self._endian, self._start, self._end, lambda _: None, noted)

    def _scan(self, data: np.ndarray, at: int, end: int, stop: int, actions: np.ndarray) -> tuple[int, Run]:
        swap = self._endian == ">"
        reason = walk.scan(data, at, end, stop, swap, actions, self.counts, self._found, self._state)
        found = self._found[: self._state[walk.COUNT]].tolist()
        return reason, Run(data, at, int(self._state[walk.POSITION]), self._unpacked, found)

    def _unpack(self, decompressor: Decompressor, at: int, kind: int, size: int) -> Iterator[Run]:
        """The runs in a compressed record; False where it is damaged."""
        try:
            first, last = payload_range(self._file[at : at + 16], kind, at, size, self._endian)
            for data in decompressor.records(memoryview(self._file)[first:last]):
                reason, start = walk.FOUND_FULL, 0
                while reason == walk.FOUND_FULL:
                    reason, run = self._scan(data, start, len(data), len(data), self._inner_actions)
                    yield Run(data, start, run.end, self._unpacked + at, run.found)
                    start = run.end
                self._unpacked += len(data)
                if reason == walk.BAD_SIZE:
                    self._warn(f"offset {at:#x}: the compressed record holds no records: reading ends here")
                    return False
                decompressor.rest = data[run.end :].tobytes()
        except (zstandard.ZstdError, struct.error) as error:
            self._warn(f"offset {at:#x}: compressed record is damaged ({error}): reading ends here")
            return False
        return True

    def _behind(self, at: int, kind: int, size: int) -> int:
        """Bytes of other data that follow a record: its trace."""
        if kind not in DATA_FOLLOWS or kind in (COMPRESSED, COMPRESSED2):
            return 0
        form, width = ("Q", 16) if kind == AUXTRACE else ("I", 12)
        if size < width:
            self._warn(f"offset {at:#x}: record {kind} of {size} bytes is too short to say what follows it")
            return 0
        (length,) = struct.unpack_from(f"{self._endian}{form}", self._file, at + 8)
        self.counts[kind] += 1
        if kind == HEADER_TRACING_DATA:
            self.tracing_data = self._file[at + size : min(at + size + length, self._end)]
        return length if kind == AUXTRACE else (length + 7) // 8 * 8

    def _complain(self, reason: int, at: int) -> None:
        left = self._end - at
        if reason == walk.BAD_SIZE:
            self._warn(f"offset {at:#x}: no record begins here: reading ends, {left} bytes are left")
        else:
            self._warn(f"offset {at:#x}: the last record is cut off: {left} bytes are left")

    def _forget(self, start: int, end: int) -> None:
        """Let the system take back the pages that were walked."""
        page = mmap.PAGESIZE
        first, last = start // page * page, end // page * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self._file.madvise(mmap.MADV_DONTNEED, first, last - first)


def _actions(noted: Collection[int], stop: tuple[int, ...]) -> np.ndarray:
    actions = np.zeros(walk.OTHER_TYPE + 1, np.uint8)
    actions[list(noted)] = 1
    actions[list(stop)] = 2
    return actions
