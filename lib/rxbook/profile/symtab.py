# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables of symbols: from ELF files, from kallsyms, from the map files of JIT compilers. Addresses to names.

Tables are arrays; a name becomes a string only when an address needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PAGE = 4096


@dataclass(frozen=True)
class SymbolTable:
    """Symbols sorted by start; several may share one. size 0: up to the next symbol.

    rank: of those that share a start, who goes first (the highest of a tuple), or None where the last wins.
    """

    starts: np.ndarray
    ends: np.ndarray
    name: Callable[[int], str]
    rank: Callable[[int], tuple[int, ...]] | None = None

    def find(self, addresses: np.ndarray) -> list[tuple[int, str] | None]:
        """(start, name) of the symbol at each address (uint64), None where there is none."""
        last = np.searchsorted(self.starts, addresses, "right") - 1
        reach = np.maximum.accumulate(self.ends) if len(self.ends) else self.ends
        known: dict[int, tuple[int, str, int]] = {}
        found = []
        for address, at in zip(addresses.tolist(), last.tolist(), strict=True):
            found.append(self._at(address, at, reach, known))
        return found

    def _at(
        self, address: int, at: int, reach: np.ndarray, known: dict[int, tuple[int, str, int]]
    ) -> tuple[int, str] | None:
        """The symbol at an address; where the nearest one before it has ended, one that it stands within."""
        while at >= 0 and address < reach[at]:
            if at not in known:
                known[at] = self._best(at)
            start, name, end = known[at]
            if address < end:
                return start, name
            at = int(np.searchsorted(self.starts, self.starts[at], "left")) - 1
        return None

    def _best(self, last: int) -> tuple[int, str, int]:
        """Of the symbols with one start, the last of which is `last`: (start, name, end)."""
        start = self.starts[last]
        first = int(np.searchsorted(self.starts, start, "left"))
        best = last if self.rank is None else max(range(first, last + 1), key=self.rank)
        return int(start), self.name(best), int(self.ends[best])


def with_ends(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Ends of symbols sorted by start; one of no size reaches to the next start, the last one to its page's end."""
    following = np.empty_like(starts)
    if len(starts):
        later = np.searchsorted(starts, starts, "right")
        past = (starts[-1] + np.uint64(2 * PAGE - 1)) // np.uint64(PAGE) * np.uint64(PAGE)
        following = np.append(starts, past)[later]
    return np.where(sizes == 0, following, starts + sizes)


def kallsyms(data: bytes, module: str = "", shift: int = 0) -> SymbolTable | None:
    """The kernel's symbols, or a module's, from the text of /proc/kallsyms; None where there are no addresses.

    shift: what to add to each address: the kernel may stand elsewhere than where the recording saw it. Of symbols
    at one address the last counts, as for perf.
    """
    lines = _Lines.of(data)
    if lines is None:
        return None
    starts = lines.addresses()
    order = np.argsort(starts, kind="stable")
    modules = lines.modules()[order]
    code = np.isin(lines.types()[order], np.frombuffer(b"TtWwDdBb", np.uint8))
    order, modules = order[code], modules[code]
    starts = starts[order] + np.uint64(shift & (1 << 64) - 1)
    ends = with_ends(starts, np.zeros_like(starts))
    edge = np.append(modules[1:] != modules[:-1], False)
    ends[edge] = (starts[edge] + np.uint64(2 * PAGE - 1)) // np.uint64(PAGE) * np.uint64(PAGE)
    wanted = _of_module(lines, order, modules, module)
    kept = order[wanted]
    if not len(kept) or not starts[wanted].any():
        return None
    return SymbolTable(starts[wanted], ends[wanted], lambda i: lines.name(int(kept[i])))


def _of_module(lines: _Lines, order: np.ndarray, modules: np.ndarray, module: str) -> np.ndarray:
    if not module:
        return ~modules
    wanted = np.zeros(len(order), bool)
    for place in np.flatnonzero(modules):
        wanted[place] = lines.module(int(order[place])) == module
    return wanted


def kallsyms_address(data: bytes, name: str) -> int | None:
    """Address of a symbol, the first of its name."""
    found = re.search(rb"^([0-9a-f]+) \w " + re.escape(name.encode()) + rb"$", data, re.MULTILINE)
    return int(found[1], 16) if found else None


@dataclass(frozen=True)
class _Lines:
    """The lines of kallsyms: address, type, name and, behind a tab, module; addresses have one width."""

    text: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    width: int

    @classmethod
    def of(cls, data: bytes) -> _Lines | None:
        width = data.find(b" ")
        if width not in (8, 16) or not data.endswith(b"\n"):
            return None
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(text == ord("\n"))
        begins = np.append(0, ends[:-1] + 1)
        whole = ends - begins > width + 3
        return cls(text, begins[whole], ends[whole], width)

    def addresses(self) -> np.ndarray:
        digits = np.full(256, 0, np.uint64)
        for value, digit in enumerate(b"0123456789abcdef"):
            digits[digit] = value
        value = np.zeros(len(self.begins), np.uint64)
        for place in range(self.width):
            value = value << np.uint64(4) | digits[self.text[self.begins + place]]
        return value

    def types(self) -> np.ndarray:
        return self.text[self.begins + self.width + 1]

    def modules(self) -> np.ndarray:
        """Whether each line names a module."""
        tabs = np.flatnonzero(self.text == ord("\t"))
        there = np.zeros(len(self.begins), bool)
        at = np.searchsorted(self.ends, tabs)
        there[at[at < len(there)]] = True
        return there

    def _rest(self, i: int) -> bytes:
        return self.text[self.begins[i] + self.width + 3 : self.ends[i]].tobytes()

    def name(self, i: int) -> str:
        return self._rest(i).split(b"\t")[0].decode("utf-8", "replace")

    def module(self, i: int) -> str:
        return self._rest(i).rpartition(b"\t")[2].decode("utf-8", "replace").strip("[]")


def perf_map(data: str) -> SymbolTable | None:
    """Symbols that a JIT compiler wrote to /tmp/perf-PID.map: start and size in hex, name."""
    rows = []
    for line in data.splitlines():
        found = re.match(r"(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) (.+)", line)
        if found:
            rows.append((int(found[1], 16), int(found[2], 16), found[3]))
    rows.sort(key=lambda row: row[0])
    if not rows:
        return None
    starts = np.array([start for start, _, _ in rows], np.uint64)
    ends = with_ends(starts, np.array([size for _, size, _ in rows], np.uint64))
    return SymbolTable(starts, ends, lambda i: rows[i][2])
