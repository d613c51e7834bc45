# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who ran under which name, and what was mapped where, at each time of a recording.

A *state* is the number of the last event (in time order) that changed a process's address space: an address and a
state together have one mapping. The kernel's mappings are those of a process of their own (records.KERNEL_PID).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rxbook.profile.records import Comm, Fork, Mapping

SideBand = list[tuple[int, Mapping | Comm | Fork]]
"""(time, event), in time order."""


@dataclass(frozen=True)
class Timeline:
    """What holds for a key from a time on: entries sorted by key, then time."""

    keys: np.ndarray
    times: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, entries: list[tuple[int, int, int]]) -> Timeline:
        """From (key, time, value) in time order."""
        entries = sorted(entries, key=lambda entry: entry[:2])
        return cls(
            np.array([key for key, _, _ in entries], np.int64),
            np.array([time for _, time, _ in entries], np.uint64),
            np.array([value for _, _, value in entries], np.int64),
        )


def comms(events: SideBand) -> tuple[list[str], Timeline]:
    """Names of threads, and which thread (tid) had which of them when. A new thread has its parent's."""
    names = {"swapper": 0}
    current = {0: 0}
    entries = [(0, 0, 0)]
    for time, event in events:
        if isinstance(event, Comm):
            current[event.tid] = names.setdefault(event.name, len(names))
            entries.append((event.tid, time, current[event.tid]))
        elif isinstance(event, Fork) and event.parent_tid in current:
            current[event.tid] = current[event.parent_tid]
            entries.append((event.tid, time, current[event.tid]))
    return list(names), Timeline.of(entries)


def owner(event: Mapping | Comm | Fork) -> int | None:
    """The process whose address space an event changes; a new thread shares its process's."""
    if isinstance(event, Mapping):
        return event.pid
    if isinstance(event, Fork) and event.pid != event.parent_pid:
        return event.pid
    return None


def states(events: SideBand) -> Timeline:
    """The state of each process's address space over time."""
    owned = ((time, number, owner(event)) for number, (time, event) in enumerate(events))
    return Timeline.of([(pid, time, number) for time, number, pid in owned if pid is not None])


class Space:
    """The mappings of a process, without overlap: what is mapped later replaces what it covers."""

    def __init__(self, starts: list[int] | None = None, entries: list[Mapping] | None = None) -> None:
        self._starts = starts or []
        self._entries = entries or []

    def copy(self) -> Space:
        return Space(self._starts.copy(), self._entries.copy())

    def add(self, new: Mapping) -> None:
        if new.end <= new.start:
            return
        first = max(bisect_right(self._starts, new.start) - 1, 0)
        last = bisect_left(self._starts, new.end)
        kept = [piece for old in self._entries[first:last] for piece in _left_of(old, new)]
        pieces = sorted([*kept, new], key=lambda piece: piece.start)
        self._entries[first:last] = pieces
        self._starts[first:last] = [piece.start for piece in pieces]

    def remove(self, start: int) -> None:
        """Take out the symbol that begins at start."""
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start and self._entries[at].symbol:
            del self._starts[at], self._entries[at]

    def find(self, addresses: np.ndarray) -> Iterator[tuple[Mapping | None, np.ndarray]]:
        """Each mapping, or None, with the places of the addresses (uint64) that lie in it."""
        at = np.searchsorted(np.array(self._starts, np.uint64), addresses, "right") - 1
        for entry in np.unique(at).tolist():
            places = np.flatnonzero(at == entry)
            if entry < 0:
                yield None, places
                continue
            inside = addresses[places] < np.uint64(self._entries[entry].end)
            if inside.any():
                yield self._entries[entry], places[inside]
            if not inside.all():
                yield None, places[~inside]


def _left_of(old: Mapping, new: Mapping) -> Iterator[Mapping]:
    """The pieces of a mapping that a newer one does not cover."""
    if old.end <= new.start or old.start >= new.end:
        yield old
        return
    if old.start < new.start:
        yield replace(old, end=new.start)
    if old.end > new.end:
        yield replace(old, start=new.end, pgoff=old.pgoff + new.end - old.start)


def find_mappings(
    events: SideBand, states: np.ndarray, addresses: np.ndarray
) -> Iterator[tuple[Mapping | None, np.ndarray]]:
    """Each mapping, or None, with the places of the addresses that lie in it in their state; several times each.

    State -1 has no mappings.
    """
    order = np.argsort(states, kind="stable")
    first = np.flatnonzero(np.diff(states[order], prepend=-2))
    wanted = (
        dict(zip(states[order][first].tolist(), np.split(order, first[1:]), strict=True))
        if len(order)
        else {}
    )
    if -1 in wanted:
        yield None, wanted[-1]
    spaces: dict[int, Space] = {}
    for state, (_, event) in enumerate(events[: max(wanted, default=-1) + 1]):
        pid = owner(event)
        if pid is None:
            continue
        _apply(spaces, pid, event)
        places = wanted.get(state)
        if places is not None:
            for mapping, inside in spaces[pid].find(addresses[places]):
                yield mapping, places[inside]


def _apply(spaces: dict[int, Space], pid: int, event: Mapping | Comm | Fork) -> None:
    if isinstance(event, Fork):
        parent = spaces.get(event.parent_pid)
        spaces[pid] = Space() if event.exec or parent is None else parent.copy()
        return
    assert isinstance(event, Mapping)
    space = spaces.setdefault(pid, Space())
    if event.removed:
        space.remove(event.start)
    else:
        space.add(event)
