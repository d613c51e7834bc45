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

    def find(self, address: int) -> Mapping | None:
        at = bisect_right(self._starts, address) - 1
        return self._entries[at] if at >= 0 and address < self._entries[at].end else None


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
    events: SideBand, wanted: dict[int, list[int]]
) -> Iterator[tuple[int, int, Mapping | None]]:
    """(state, address, mapping) for the addresses wanted in each state. State -1 has no mappings."""
    spaces: dict[int, Space] = {}
    for address in wanted.get(-1, ()):
        yield -1, address, None
    last = max(wanted, default=-1)
    for state, (_, event) in enumerate(events[: last + 1]):
        pid = owner(event)
        if pid is None:
            continue
        _apply(spaces, pid, event)
        for address in wanted.get(state, ()):
            yield state, address, spaces[pid].find(address)


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
