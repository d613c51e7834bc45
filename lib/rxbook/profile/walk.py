# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The loops over every record of a recording: scan() finds the records, fold() counts the samples.

They are written in kernels.py and compiled there by numba; native.py keeps the machine code, so that numba itself
need not be imported again. Here are the numbers that both sides know, and the calls.
"""

from __future__ import annotations

import numpy as np

from rxbook.profile.native import call

DONE, SPECIAL, FOUND_FULL, TRUNCATED, BAD_SIZE, FRAMES_FULL, GROUPS_FULL, CHAINS_FULL = range(8)
"""Why a loop ended. The position it stopped at stands in state[0]."""

LONGEST_CHAIN = 8192
"""No record, of 64 KiB at most, holds more addresses."""

OTHER_TYPE = 128
"""Where scan() counts the types from 128 on."""

ID_AT, IP_AT, TID_AT, TIME_AT, CPU_AT, PERIOD_AT, FIXED, READ_FORMAT, CHAIN, DEFAULT_PERIOD = range(10)
"""Columns of the layout of an event's samples: offsets in the record, -1 where the field is absent."""

PLACE, COMM, LEAF, CHAIN_START, CHAIN_LENGTH, SAMPLES, PERIOD, HASH = range(8)
"""Columns of the groups of equal samples. PLACE: the event in the upper 32 bits, the CPU + 1 in the lower."""

PART_TID, PART_AT, PART_LENGTH = range(3)
"""Columns of the deferred parts of call chains, see deferred.py."""

POSITION, COUNT, USED, BAD, UNKNOWN, FIRST_BAD, DEFERRED = range(7)
"""Places in fold()'s state: where it is, how many frames, groups and chain entries there are; what was wrong.

scan() uses POSITION, and COUNT for the number of records found.
"""
GROUPS_USED, CHAINS_USED, STATES = 7, 8, 9
FIELDS = 10
"""Number of columns of the layout."""


def scan(
    data: np.ndarray, start: int, end: int, stop: int, swap: bool, actions: np.ndarray, counts: np.ndarray,
    found: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Step from record to record until one starts at or behind stop: see kernels.scan."""
    return call("scan", data, start, end, stop, swap, actions, counts, found, state)


def fold(*arguments: np.ndarray | int | bool) -> int:
    """Count the samples among records that scan() has found to be whole: see kernels.fold."""
    return call("fold", *arguments)


def refill_frames(table: np.ndarray, frames: np.ndarray, used: int) -> None:
    """Enter frames into a table that is empty."""
    call("refill_frames", table, frames, used)


def refill_groups(table: np.ndarray, groups: np.ndarray, used: int) -> None:
    """Enter groups into a table that is empty."""
    call("refill_groups", table, groups, used)
