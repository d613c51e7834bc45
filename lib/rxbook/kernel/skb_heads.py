# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counts on one CPU where the heads of skbs come from, the slab or NAPI's cache of freed heads, and which go back.

Of net/core/skbuff.c and mm/slub.c: napi_skb_cache_get() and, since 6.15, napi_skb_cache_get_bulk() take heads from the
CPU's cache; where that runs short, kmem_cache_alloc_bulk() fills it. Other skbs get their head from kmem_cache_alloc().
Heads that NAPI frees go into the cache, others by kmem_cache_free() to the slab. The tracepoints kmem_cache_alloc and
kmem_cache_free tell of single heads; the rest is seen at the functions, where the kernel lets BPF trace these (fentry).
What is counted costs something at each call: never in a window whose rate or instructions count.
"""

from __future__ import annotations

import ctypes
import os
import struct

from rxbook import RxbookError
from rxbook.kernel import libbpf

__all__ = ["COUNTERS", "SkbHeads"]

TRACEPOINTS = {"alloc_single": "kmem_cache_alloc", "free_single": "kmem_cache_free"}

FUNCTIONS = {
    "alloc_bulk": ("kmem_cache_alloc_bulk_noprof", "kmem_cache_alloc_bulk"),
    "free_bulk": ("kmem_cache_free_bulk",),
    "cache_single": ("napi_skb_cache_get",),
    "cache_bulk": ("napi_skb_cache_get_bulk",),
}
"""Programs of count_heads.bpf.c and the kernel functions they are for: the newer name first."""

COUNTERS = ("heads_from_slab", "heads_from_cache", "heads_to_slab")


class _Heads(ctypes.Structure):
    """`heads` of count_heads.bpf.c."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("slab_single", "slab_bulk", "cache", "freed_single", "freed_bulk")
    )


class SkbHeads:
    """Counts from the start until close().

    functions: whether it sees the slab's bulk calls and NAPI's cache, else only what goes one by one.
    Raises RxbookError where the kernel refuses even that.
    """

    def __init__(self, cpu: int):
        known = libbpf.kernel_functions(*(name for names in FUNCTIONS.values() for name in names))
        targets = {
            program: next((name for name in names if name in known), None)
            for program, names in FUNCTIONS.items()
        }
        self._links: list[int] = []
        try:
            try:
                with libbpf.silence():
                    bpf = self._attach(cpu, targets)
                self.functions = True
            except RxbookError:  # EPERM under some hypervisors, or a kernel without BPF trampolines
                self.close()
                bpf = self._attach(cpu, dict.fromkeys(targets))
                self.functions = False
        except RxbookError as error:
            self.close()
            raise RxbookError(f"heads of skbs are not counted: {error}") from None
        self._heads = _Heads.from_buffer(bpf.memory(".bss", ctypes.sizeof(_Heads)))

    def _attach(self, cpu: int, targets: dict[str, str | None]) -> libbpf.BpfObject:
        bpf = libbpf.BpfObject("count_heads", struct.pack("=I", cpu), targets=targets)
        for program, name in TRACEPOINTS.items():
            self._links.append(libbpf.attach_raw_tracepoint(bpf.program_fd(program), name))
        for program, target in targets.items():
            if target:
                self._links.append(libbpf.attach_tracing(bpf.program_fd(program), target))
        return bpf

    def read(self) -> dict[str, int | None]:
        """Heads so far, by COUNTERS: that the slab gave, that were taken from NAPI's cache, that went back to the slab.

        A head that filled the cache and was then taken from it is in the first two. Where functions are not seen, the
        first two are None, and the third lacks what went back in bulk.
        """
        found = self._heads
        if not self.functions:
            return {"heads_from_slab": None, "heads_from_cache": None, "heads_to_slab": found.freed_single}
        return {
            "heads_from_slab": found.slab_single + found.slab_bulk,
            "heads_from_cache": found.cache,
            "heads_to_slab": found.freed_single + found.freed_bulk,
        }

    def close(self) -> None:
        """Stop counting."""
        for link in self._links:
            os.close(link)
        self._links = []
