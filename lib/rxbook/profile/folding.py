# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counting samples: prepares the arrays that walk.fold works on, and lets them grow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rxbook.profile import headers, walk
from rxbook.profile.deferred import Deferred
from rxbook.profile.headers import Event
from rxbook.profile.spaces import Timeline
from rxbook.profile.stream import Run


@dataclass(frozen=True)
class Plan:
    """How the samples of a file are laid out, and what is known of its threads and address spaces over time."""

    events: list[Event]
    endian: str
    ordered: bool
    chains: bool
    comms: Timeline
    states: Timeline
    deferred: Deferred


@dataclass(frozen=True)
class Counts:
    """Samples counted by event, CPU, thread name, address and, where asked for, call chain.

    Frames (what an address means: see walk.py), one entry each:
      mode (records.*_MODE), state (spaces.py), ip.
    Groups of equal samples, one entry each:
      event (index in PerfData.events), cpu (-1 where not told), comm (index in comms), leaf (the frame sampled),
      samples, period; chain i is the frames chain[offsets[i]:offsets[i+1]], innermost first, the leaf among them.
    """

    mode: np.ndarray
    state: np.ndarray
    ip: np.ndarray
    event: np.ndarray
    cpu: np.ndarray
    comm: np.ndarray
    leaf: np.ndarray
    samples: np.ndarray
    period: np.ndarray
    chain: np.ndarray
    offsets: np.ndarray
    comms: list[str]
    warnings: list[str]


class Folder:
    """Takes runs of records and gives the counts."""

    def __init__(self, plan: Plan, comm_names: list[str]) -> None:
        self._plan, self._names = plan, comm_names
        self._layout = _layout(plan.events)
        pairs = sorted({number: i for i, event in enumerate(plan.events) for number in event.ids}.items())
        self._ids = np.array([number for number, _ in pairs], np.uint64)
        self._id_events = np.array([event for _, event in pairs], np.int64)
        self._last_values = np.zeros(len(pairs), np.uint64)
        self._state = np.zeros(walk.STATES, np.int64)
        self._state[walk.FIRST_BAD] = -1
        self._caches = np.zeros(12, np.uint64)
        self._frames = np.zeros((4 * walk.LONGEST_CHAIN, 2), np.uint64)
        self._frame_table = _table(len(self._frames))
        self._groups = np.zeros((4 * walk.LONGEST_CHAIN, 8), np.int64)
        self._group_table = _table(len(self._groups))
        self._chains = np.zeros(8 * walk.LONGEST_CHAIN if plan.chains else 0, np.int32)

    def take(self, run: Run) -> None:
        """Count the samples of a run."""
        at, plan = run.start, self._plan
        while at < run.end:
            reason = walk.fold(
                run.data, at, run.end, run.base, plan.endian == ">", plan.ordered, plan.chains,
                self._layout, self._ids, self._id_events, self._last_values,
                plan.comms.keys, plan.comms.times, plan.comms.values,
                plan.states.keys, plan.states.times, plan.states.values,
                plan.deferred.cookies, plan.deferred.parts, plan.deferred.addresses,
                self._frame_table, self._frames, self._group_table, self._groups, self._chains,
                self._state, self._caches,
            )  # fmt: skip
            at = int(self._state[walk.POSITION])
            self._grow(reason)

    def _grow(self, reason: int) -> None:
        """Double what is full; the tables are filled anew."""
        if reason == walk.FRAMES_FULL:
            self._frames = _doubled(self._frames)
            self._frame_table = _table(len(self._frames))
            walk.refill_frames(self._frame_table, self._frames, self._state[walk.COUNT])
        elif reason == walk.GROUPS_FULL:
            self._groups = _doubled(self._groups)
            self._group_table = _table(len(self._groups))
            walk.refill_groups(self._group_table, self._groups, self._state[walk.GROUPS_USED])
        elif reason == walk.CHAINS_FULL:
            self._chains = _doubled(self._chains)

    def counts(self) -> Counts:
        state = self._state
        frames = self._frames[: state[walk.COUNT]]
        groups = self._groups[: state[walk.GROUPS_USED]]
        names, comm = _with_unnamed(self._names, groups[:, walk.COMM])
        starts = groups[:, walk.CHAIN_START]
        return Counts(
            (frames[:, 0] >> np.uint64(48)).astype(np.int64),
            (frames[:, 0] & np.uint64((1 << 48) - 1)).astype(np.int64) - 1,
            frames[:, 1],
            groups[:, walk.PLACE] >> 32, (groups[:, walk.PLACE] & 0xFFFFFFFF) - 1, comm, groups[:, walk.LEAF],
            groups[:, walk.SAMPLES], groups[:, walk.PERIOD],
            self._chains[: state[walk.CHAINS_USED]], np.append(starts, state[walk.CHAINS_USED]),
            names, self._warnings(),
        )  # fmt: skip

    def _warnings(self) -> list[str]:
        bad, unknown, deferred = self._state[[walk.BAD, walk.UNKNOWN, walk.DEFERRED]].tolist()
        first = int(self._state[walk.FIRST_BAD])
        said = []
        if bad:
            said.append(f"offset {first:#x}: {bad} samples are too short for their fields and not counted")
        if unknown:
            said.append(f"{unknown} samples belong to no event that the file names and are not counted")
        if deferred:
            said.append(
                f"{deferred} samples wait for a call chain of user space that was not recorded: only their kernel "
                "part is shown"
            )
        return said


def _layout(events: list[Event]) -> np.ndarray:
    """A row per event: where its samples' fields are, see walk.py."""
    return np.array([event_layout(event) for event in events], np.int64).reshape(
        len(events), walk.DEFAULT_PERIOD + 1
    )


def event_layout(event: Event) -> list[int]:
    """Where the fields of an event's samples are: the columns that walk.py names."""
    kind = event.sample_type
    order = (
        headers.IDENTIFIER, headers.IP, headers.TID, headers.TIME, headers.ADDR, headers.ID, headers.STREAM_ID,
        headers.CPU, headers.PERIOD,
    )  # fmt: skip
    places: dict[int, int] = {}
    at = 8
    for bit in order:
        if kind & bit:
            places[bit] = at
            at += 8
    row = [-1] * (walk.FIELDS)
    row[walk.ID_AT] = places.get(headers.IDENTIFIER, places.get(headers.ID, -1))
    row[walk.IP_AT] = places.get(headers.IP, -1)
    row[walk.TID_AT] = places.get(headers.TID, -1)
    row[walk.TIME_AT] = places.get(headers.TIME, -1)
    row[walk.CPU_AT] = places.get(headers.CPU, -1)
    row[walk.PERIOD_AT] = places.get(headers.PERIOD, -1)
    row[walk.FIXED] = at
    row[walk.READ_FORMAT] = event.read_format & 31 if kind & headers.READ else -1
    row[walk.CHAIN] = int(bool(kind & headers.CALLCHAIN))
    row[walk.DEFAULT_PERIOD] = np.uint64(event.period).astype(np.int64)
    return row


def _table(entries: int) -> np.ndarray:
    """An empty hash table, a quarter full at most."""
    return np.full(4 * entries, -1, np.int32)


def _doubled(array: np.ndarray) -> np.ndarray:
    more = np.zeros_like(array, shape=(2 * len(array), *array.shape[1:]))
    more[: len(array)] = array
    return more


def _with_unnamed(names: list[str], comm: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names, and the index among them of each comm of walk.fold, which gives -2 - tid where a thread has none."""
    names = names.copy()
    numbered = comm.copy()
    for value in np.unique(comm[comm < 0]).tolist():
        numbered[comm == value] = len(names)
        names.append(f":{-2 - value}")
    return names, numbered
