# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Blank what samples hold of a user's memory: stacks, registers, raw data of tracepoints, traces.

A chain of callers in user space holds it, too: where a program has no frame pointers, the kernel takes words of its
stack for return addresses. Only those that point into what was mapped are kept.

The order of a sample's fields is that of perf_event_open(2), "PERF_RECORD_SAMPLE".
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable

from rxbook import RxbookError
from rxbook.profile import headers
from rxbook.profile.headers import Event

RAW, BRANCH_STACK, REGS_USER, STACK_USER, WEIGHT, DATA_SRC = (1 << bit for bit in range(10, 16))
TRANSACTION, REGS_INTR, PHYS_ADDR, AUX, CGROUP = (1 << bit for bit in range(17, 22))
DATA_PAGE, CODE_PAGE, WEIGHT_STRUCT = (1 << bit for bit in range(22, 25))
_KNOWN = (1 << 25) - 1
_MEMORY = headers.CALLCHAIN | RAW | REGS_USER | STACK_USER | REGS_INTR | AUX
_CONTEXT_MAX, _USER_CONTEXTS = (
    (1 << 64) - 4095,
    {(1 << 64) - 512, (1 << 64) - 2560},
)  # PERF_CONTEXT_(GUEST_)USER
_HW_INDEX, _COUNTERS = 1 << 17, 1 << 19
_TRACEPOINT = 2
_COMMON = 8
"""Bytes of a tracepoint's data by which it is recognised: type, flags, preempt count, pid."""
_BEFORE_READ = (
    headers.IDENTIFIER | headers.IP | headers.TID | headers.TIME | headers.ADDR | headers.ID
    | headers.STREAM_ID | headers.CPU | headers.PERIOD
)  # fmt: skip
_BEFORE_ID = headers.IP | headers.TID | headers.TIME | headers.ADDR


class Blanker:
    """Blanks the samples of a file's events."""

    def __init__(self, events: list[Event], endian: str, mapped: Iterable[tuple[int, int]]) -> None:
        """mapped: (start, end) of user-space mappings. RxbookError where samples have fields not known here."""
        for event in events:
            unknown = event.sample_type & ~_KNOWN
            if unknown:
                raise RxbookError(
                    f"samples of {event.name} have fields {unknown:#x} that rxbook does not know: what they hold "
                    "cannot be scrubbed"
                )
        self._endian = endian
        self._callers = _Callers(endian, mapped)
        self._layouts = [_Layout(event, endian, self._callers) for event in events]
        self._by_id = {
            number: layout
            for event, layout in zip(events, self._layouts, strict=True)
            for number in event.ids
        }
        first = self._layouts[0].sample_type
        self._one = len({layout.key for layout in self._layouts}) == 1
        self._id_at = 8 if first & headers.IDENTIFIER else 8 + 8 * (first & _BEFORE_ID).bit_count()
        self.needed = any(layout.sample_type & _MEMORY for layout in self._layouts)
        """Whether any sample holds such things: else they can be copied as they are."""

    def blank(self, record: bytearray) -> None:
        """Blank a sample in place. struct.error where it is damaged or its event is unknown."""
        if self._one:
            layout = self._layouts[0]
        else:
            (number,) = struct.unpack_from(f"{self._endian}Q", record, self._id_at)
            found = self._by_id.get(number)
            if found is None:
                raise struct.error("no event has this id")
            layout = found
        layout.blank(record)

    def blank_deferred(self, record: bytearray) -> None:
        """Blank a record of callers that came after their sample: u64 cookie, u64 nr, u64 ips[nr]. See `blank`."""
        (number,) = struct.unpack_from(f"{self._endian}Q", record, 16)
        self._callers.blank(record, 24, number, True)


class _Callers:
    """Addresses of callers in user space; the first of a chain is where the program was."""

    def __init__(self, endian: str, mapped: Iterable[tuple[int, int]]) -> None:
        self._endian, self._starts, self._ends = endian, [], []
        for start, end in sorted(mapped):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def blank(self, record: bytearray, at: int, number: int, user: bool = False) -> None:
        """Zero those that point to nothing mapped. user: the chain has no mark of where user space begins."""
        first = user
        for place, address in enumerate(struct.unpack_from(f"{self._endian}{number}Q", record, at)):
            if address >= _CONTEXT_MAX:
                first = user = address in _USER_CONTEXTS
            elif first:
                first = False
            elif user:
                found = bisect.bisect_right(self._starts, address) - 1
                if found < 0 or address >= self._ends[found]:
                    _zero(record, at + 8 * place, 8)


class _Layout:
    def __init__(self, event: Event, endian: str, callers: _Callers) -> None:
        self._callers = callers
        attribute = event.attribute.ljust(112, b"\0")
        self.sample_type, self._read_format = event.sample_type, event.read_format
        self._branches, regs_user = struct.unpack_from(f"{endian}QQ", attribute, 72)
        (regs_intr,) = struct.unpack_from(f"{endian}Q", attribute, 96)
        self._regs_user, self._regs_intr = regs_user.bit_count(), regs_intr.bit_count()
        self._raw_kept = _COMMON if event.type == _TRACEPOINT else 0
        self._number = {form: struct.Struct(endian + form) for form in "QI"}
        self.key = (
            self.sample_type, self._read_format, self._branches, regs_user, regs_intr, self._raw_kept,
        )  # fmt: skip

    def blank(self, record: bytearray) -> None:
        has = self.sample_type
        at = 8 + 8 * (has & _BEFORE_READ).bit_count()
        if has & headers.READ:
            at += self._read_size(record, at)
        if has & headers.CALLCHAIN:
            number = self._get("Q", record, at)
            self._callers.blank(record, at + 8, number)
            at += 8 + 8 * number
        if has & RAW:
            size = self._get("I", record, at)
            kept = min(self._raw_kept, size)
            at = _zero(record, at + 4 + kept, size - kept)
        if has & BRANCH_STACK:
            number = self._get("Q", record, at)
            at += 8 + 24 * number + (8 if self._branches & _HW_INDEX else 0)
            at += 8 * number if self._branches & _COUNTERS else 0
        if has & REGS_USER:
            at = self._zero_registers(record, at, self._regs_user)
        if has & STACK_USER:
            size = self._get("Q", record, at)
            at = _zero(record, at + 8, size) + (8 if size else 0)
        at += 8 * (has & (WEIGHT | WEIGHT_STRUCT | DATA_SRC | TRANSACTION)).bit_count()
        if has & REGS_INTR:
            at = self._zero_registers(record, at, self._regs_intr)
        at += 8 * (has & (PHYS_ADDR | CGROUP | DATA_PAGE | CODE_PAGE)).bit_count()
        _zero(record, at, len(record) - at)  # a trace, and whatever else may follow
        if has & AUX and at + 8 > len(record):
            raise struct.error("the sample is shorter than its fields")

    def _get(self, form: str, record: bytearray, at: int) -> int:
        return self._number[form].unpack_from(record, at)[0]

    def _read_size(self, record: bytearray, at: int) -> int:
        """Counters: with or without times, id and lost; of a group, its number of them."""
        form = self._read_format
        times, each = (form & 3).bit_count(), 1 + (form >> 2 & 1) + (form >> 4 & 1)
        if form & 8:
            return 8 * (1 + times + each * self._get("Q", record, at))
        return 8 * (times + each)

    def _zero_registers(self, record: bytearray, at: int, number: int) -> int:
        return _zero(record, at + 8, 8 * number if self._get("Q", record, at) else 0)


def _zero(record: bytearray, at: int, size: int) -> int:
    """Zero so many bytes; where what is behind them begins."""
    if size < 0 or at + size > len(record):
        raise struct.error("the sample is shorter than its fields")
    record[at : at + size] = bytes(size)
    return at + size
