# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counts where the heads of skbs come from on one CPU: the slab, or NAPI's cache of freed heads.

Of net/core/skbuff.c and mm/slub.c: napi_skb_cache_get() and, since 6.15, napi_skb_cache_get_bulk() take heads
from the CPU's cache; where that runs short it is filled by kmem_cache_alloc_bulk(). Other skbs get theirs from
kmem_cache_alloc(). What is counted costs a trampoline a call: never in a window whose rate counts.
"""

from __future__ import annotations

import ctypes
import os
import struct

from rxbook import RxbookError
from rxbook.kernel import libbpf

__all__ = ["SkbHeads"]

TARGETS = {
    "alloc_single": ("kmem_cache_alloc_noprof", "kmem_cache_alloc"),
    "alloc_single_node": ("kmem_cache_alloc_node_noprof", "kmem_cache_alloc_node"),
    "alloc_bulk": ("kmem_cache_alloc_bulk_noprof", "kmem_cache_alloc_bulk"),
    "cache_single": ("napi_skb_cache_get",),
    "cache_bulk": ("napi_skb_cache_get_bulk",),
}
"""Programs of count_heads.bpf.c and the kernel functions they are for: the newer name first."""


class _Heads(ctypes.Structure):
    """`heads` of count_heads.bpf.c."""

    _fields_ = (("slab_single", ctypes.c_uint64), ("slab_bulk", ctypes.c_uint64), ("cache", ctypes.c_uint64))


class SkbHeads:
    """Attached from the start until close(). Raises RxbookError where the kernel lets no function be traced."""

    def __init__(self, cpu: int):
        known = libbpf.kernel_functions(*(name for names in TARGETS.values() for name in names))
        targets = {
            program: next((name for name in names if name in known), None)
            for program, names in TARGETS.items()
        }
        self._links: list[int] = []
        try:
            bpf = libbpf.BpfObject("count_heads", struct.pack("=I", cpu), targets=targets)
            for program, target in targets.items():
                if target:
                    self._links.append(libbpf.attach_tracing(bpf.program_fd(program), target))
        except RxbookError as error:
            self.close()
            raise RxbookError(
                f"heads of skbs are not counted, as this kernel lets no function be traced (fentry): {error}"
            ) from None
        self._heads = _Heads.from_buffer(bpf.memory(".bss", ctypes.sizeof(_Heads)))

    def read(self) -> dict[str, int]:
        """Heads so far: that the slab gave (heads_from_slab), that were taken from NAPI's cache (heads_from_cache).

        A head that filled the cache and was then taken from it is in both.
        """
        found = self._heads
        return {
            "heads_from_slab": found.slab_single + found.slab_bulk,
            "heads_from_cache": found.cache,
        }

    def close(self) -> None:
        """Stop counting."""
        for link in self._links:
            os.close(link)
        self._links = []
