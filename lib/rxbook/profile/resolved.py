# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is known of the frames of a recording: the file that each lies in, its function, the inlined ones there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Image:
    """What was mapped: a name to show, a file, its build id; or a BPF program's range, or a JIT's process."""

    dso: str
    name: str
    build_id: str
    kernel: bool = False
    bpf: tuple[int, int] | None = None
    jit: int | None = None
    placed: bool = True


@dataclass(frozen=True)
class Place:
    """Frames in one image, None where nothing was mapped, and the address in it of each (uint64).

    Addresses are offsets in the file where the image is `placed`, else as they were recorded.
    """

    image: Image | None
    kind: str
    frames: np.ndarray
    addresses: np.ndarray


@dataclass(frozen=True)
class Inlined:
    """Inlined functions at each frame, outermost first: those of frame i are numbers[offsets[i]:offsets[i + 1]]."""

    offsets: np.ndarray
    numbers: np.ndarray

    def innermost(self, frames: np.ndarray) -> np.ndarray:
        """Number of the innermost one at each frame, -1 where there is none."""
        ends = self.offsets[frames + 1]
        return np.append(self.numbers, -1)[np.where(self.offsets[frames] < ends, ends - 1, -1)]

    def pairs(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place among the frames, number) of all at each frame."""
        counts = self.offsets[frames + 1] - self.offsets[frames]
        place = np.repeat(np.arange(len(frames)), counts)
        within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, self.numbers[self.offsets[frames][place] + within]


@dataclass
class Functions:
    """Distinct functions, and which of them each frame of a Counts is in.

    dso, symbol, kind (see profile.Profile) of each function. leaf[frame]: the function of a sampled address;
    caller[frame]: that of an address in a call chain. They differ for addresses without a symbol only, which perf
    shows relative to the file where sampled, and as they are in chains. places: where each frame lies. within, through
    (see profile.Profile): of an inlined function, which has a number for each way that it was inlined, else ""; same:
    the first of these numbers. leaf_inlined, caller_inlined: the inlined functions at each frame, see inlines.py.
    warnings: what could not be named, and why.
    """

    dso: list[str] = field(default_factory=list)
    symbol: list[str] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    within: list[str] = field(default_factory=list)
    through: list[str] = field(default_factory=list)
    same: list[int] = field(default_factory=list)
    leaf: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    caller: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    places: list[Place] = field(default_factory=list)
    leaf_inlined: Inlined | None = None
    caller_inlined: Inlined | None = None
    warnings: list[str] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict, repr=False)

    def number(
        self, dso: str, start: int, symbol: str, kind: str, within: str = "", through: str = ""
    ) -> int:
        """The function's number: one for each start, as functions of one name can be several."""
        function = (dso, start, symbol, kind)
        key = (*function, through)
        if key not in self._known:
            self._known[key] = len(self.dso)
            self.same.append(self._known.setdefault(function, len(self.dso)))
            self.dso.append(dso)
            self.symbol.append(symbol)
            self.kind.append(kind)
            self.within.append(within)
            self.through.append(through)
        return self._known[key]
