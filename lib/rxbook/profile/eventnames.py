# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names of events that a file gives as numbers alone, as perf would print them."""

from __future__ import annotations

TYPES = ("hardware", "software", "tracepoint", "cache", "raw", "breakpoint")

_HARDWARE = (
    "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses", "bus-cycles",
    "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles",
)  # fmt: skip
_SOFTWARE = (
    "cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations", "minor-faults",
    "major-faults", "alignment-faults", "emulation-faults", "dummy", "bpf-output", "cgroup-switches",
)  # fmt: skip
_CACHES = ("L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node")
_OPERATIONS = (("loads", "load"), ("stores", "store"), ("prefetches", "prefetch"))
_EXCLUDE_USER, _EXCLUDE_KERNEL, _EXCLUDE_HV, _EXCLUDE_HOST, _EXCLUDE_GUEST = 4, 5, 6, 19, 20


def type_name(kind: int) -> str:
    """The event's type in a word; types from 6 on are numbers that a machine gives its own units."""
    return TYPES[kind] if kind < len(TYPES) else f"type {kind}"


def name(kind: int, config: int, flags: int) -> str:
    """Name and modifiers from an attribute's type, config and flags."""
    return _plain(kind, config) + _modifiers(flags)


def _plain(kind: int, config: int) -> str:
    low = config & 0xFFFFFFFF  # the upper half names the unit on machines with two kinds of cores
    if kind == 0:
        return _HARDWARE[low] if low < len(_HARDWARE) else "unknown-hardware"
    if kind == 1:
        return _SOFTWARE[config] if config < len(_SOFTWARE) else "unknown-software"
    if kind == 2:
        return f"tracepoint {config}"
    if kind == 3:
        return _cache(config & 0xFF, config >> 8 & 0xFF, config >> 16 & 0xFF)
    if kind == 4:
        return f"raw {config:#x}"
    return f"type {kind} {config:#x}"


def _cache(cache: int, operation: int, result: int) -> str:
    if cache >= len(_CACHES) or operation >= len(_OPERATIONS) or result > 1:
        return "unknown-cache"
    several, one = _OPERATIONS[operation]
    return f"{_CACHES[cache]}-{one}-misses" if result else f"{_CACHES[cache]}-{several}"


def _modifiers(flags: int) -> str:
    """u, k, h where not all are counted; p for each step of precision; G, H where it is not the usual."""

    def bit(at: int) -> bool:
        return bool(flags >> at & 1)

    privilege = (("k", _EXCLUDE_KERNEL), ("u", _EXCLUDE_USER), ("h", _EXCLUDE_HV))
    restricted = any(bit(at) for _, at in privilege)
    precise = flags >> 15 & 3
    letters = "".join(letter for letter, at in privilege if restricted and not bit(at)) + "p" * precise
    if bit(_EXCLUDE_HOST) or bit(_EXCLUDE_GUEST) == bool(restricted or precise):
        letters += "" if bit(_EXCLUDE_HOST) else "H"
        letters += "" if bit(_EXCLUDE_GUEST) else "G"
    return f":{letters}" if letters else ""
