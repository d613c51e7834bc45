# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The user space part of call chains that were recorded apart (perf record --call-graph fp,defer).

A sample's own chain then ends in PERF_CONTEXT_USER_DEFERRED and a cookie. When the thread goes back to user space,
the kernel writes a record PERF_RECORD_CALLCHAIN_DEFERRED: u64 cookie, u64 nr, u64 ips[nr], trailer. Layout:
include/uapi/linux/perf_event.h. That cookie and thread join them: tools/perf/util/session.c.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from rxbook.profile.stream import Run

MOST_PARTS, MOST_ADDRESSES = 1 << 21, 1 << 23
"""What is kept, each 64 MiB; addresses of equal chains once. Samples whose part was not kept are counted as such."""


@dataclass(frozen=True)
class Deferred:
    """cookies: sorted; parts: a row for each (walk.PART_*): thread, start and length among the addresses."""

    cookies: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    parts: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    addresses: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))


def collect(runs: Iterable[Run], endian: str, tid_told: bool) -> Deferred:
    """The parts in runs that note these records; tid_told: they end in a trailer that begins with pid and tid.

    A record that is too short for its addresses is left out: its samples stay without this part.
    """
    cookies, rows = array("Q"), array("q")
    starts: dict[bytes, int] = {}
    used = 0
    for run in runs:
        for at in run.found:
            (size,) = struct.unpack_from(f"{endian}H", run.data, at + 6)
            record = run.data[at : at + size].tobytes()
            if size < 24:
                continue
            cookie, length = struct.unpack_from(f"{endian}QQ", record, 8)
            end = 24 + 8 * length
            if end + 8 * tid_told > size:
                continue
            chain = record[24:end]
            if len(cookies) == MOST_PARTS or (chain not in starts and used + length > MOST_ADDRESSES):
                continue
            start = starts.setdefault(chain, used)
            used += length if start == used else 0
            cookies.append(cookie)
            rows.extend(
                (struct.unpack_from(f"{endian}i", record, end + 4)[0] if tid_told else -1, start, length)
            )
    order = np.argsort(np.frombuffer(cookies, np.uint64), kind="stable")
    return Deferred(
        np.frombuffer(cookies, np.uint64)[order],
        np.frombuffer(rows, np.int64).reshape(-1, 3)[order],
        np.frombuffer(b"".join(starts), f"{endian}u8").astype(np.uint64),
    )
