# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Groups of functions that a table sums, so that cost which only moves within a group does not look like a change.

A family is a list of shell patterns for symbols; one that begins with "!" takes functions out again. What the
compiler appends to a name (.isra.0, .part.0, .constprop.0, .cold) does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate

from rxbook import RxbookError

Families = Mapping[str, Sequence[str]]

FAMILIES: dict[str, tuple[str, ...]] = {
    "GRO": (
        "*_gro_receive", "*_gro_receive_segment", "*_gro_complete", "*_gro_complete_segment", "*_gro_flush",
        "*_gro_lookup", "*_gro_pull_header", "*_gro_udp_encap_rcv", "gro_*", "__gro_*", "skb_gro_*", "napi_gro_*",
        "call_gro_receive*", "!*checksum*",
    ),
    "skb alloc": (
        "alloc_skb*", "__alloc_skb", "build_skb*", "__build_skb*", "slab_build_skb", "napi_build_skb",
        "__napi_build_skb", "napi_alloc_skb", "__napi_alloc_skb", "*netdev_alloc_skb", "napi_skb_cache_get*",
        "xdp_build_skb_*", "__xdp_build_skb_*", "*netdev_alloc_frag*", "napi_alloc_frag*", "page_frag_alloc*",
        "kmalloc_reserve", "__kmalloc*", "kmem_cache_alloc*", "__kmem_cache_alloc*", "__slab_alloc*", "___slab_alloc*",
        "get_partial_node*", "alloc_from_pcs*", "__pcs_replace_empty_main", "refill_sheaf*",
    ),
    "skb free": (
        "kfree_skb*", "__kfree_skb*", "sk_skb_reason_drop", "consume_skb", "__consume_stateless_skb",
        "napi_consume_skb", "__napi_kfree_skb", "napi_skb_cache_put", "napi_skb_free_stolen_head", "skb_release_*",
        "skb_free_head", "skb_attempt_defer_free", "skb_defer_free_flush", "kfree", "kmem_cache_free*",
        "__kmem_cache_free*", "__slab_free", "free_to_pcs*", "__free_to_pcs*", "__pcs_replace_full_main",
        "page_frag_free",
    ),
    "checksum": (
        "csum_partial*", "csum_and_copy_*", "csum_ipv6_magic", "csum_tcpudp_*", "do_csum", "ip_fast_csum",
        "ip_compute_csum", "inet_proto_csum_*", "skb_checksum*", "__skb_checksum*", "__skb_gro_checksum*",
        "skb_gro_checksum*", "*_checksum_complete*", "skb_copy_and_csum_*", "pskb_trim_rcsum_slow", "nf_checksum*",
        "nf_ip_checksum", "nf_ip6_checksum", "udp?_csum_init", "udp*_set_csum", "bpf_csum_*",
    ),
    "page pool": ("page_pool_*", "__page_pool_*", "napi_pp_*", "skb_pp_*", "skb_page_unref"),
    "driver and XDP": (
        "bpf_prog_????????????????*", "bpf_dispatcher_xdp*", "xdp_*", "__xdp_return", "bpf_xdp_*", "do_xdp_generic",
        "netif_receive_generic_xdp", "cpu_map_*", "__cpu_map_*", "dev_map_*", "__dev_map_*", "bq_*", "xsk_*", "__xsk_*",
        "veth_*", "virtnet_*", "virtqueue_*", "tun_*", "tap_*", "mlx4_*", "mlx5_*", "mlx5e_*", "i40e_*", "iavf_*",
        "ice_*", "ixgbe_*", "ixgbevf_*", "igb_*", "igc_*", "bnxt_*", "ena_*", "gve_*", "mana_*", "nfp_*", "qede_*",
        "e1000*", "r8169_*", "stmmac_*", "mvneta_*", "mvpp2_*", "!xdp_build_skb_*", "!bpf_prog_*_drop_tcp",
    ),
}  # fmt: skip
"""Those that every table sums where they have samples. They are of the kernel: user functions are left out."""

IDLE = (
    "*safe_halt*", "native_halt", "default_idle*", "arch_cpu_idle*", "cpu_idle_poll*", "cpu_do_idle", "do_idle",
    "cpu_startup_entry", "intel_idle*", "acpi_idle*", "acpi_processor_ffh_*", "mwait_idle*", "poll_idle", "cpuidle_*",
    "psci_enter_idle*", "tick_nohz_idle_*", "menu_select",
)  # fmt: skip
"""Functions in which a CPU waits: no part of what a packet costs."""

_APPENDED = re.compile(r"(\.(part|isra|constprop|cold|llvm|lto_priv)(\.\d+)*)+$")


def chosen(families: bool | Families | None) -> dict[str, tuple[str, ...]]:
    """True: the built-in ones; a mapping: these as well, or instead of those of the same name; none where empty."""
    if not families:
        return {}
    given = {} if families is True else {name: tuple(patterns) for name, patterns in families.items()}
    for name, patterns in given.items():
        if isinstance(families[name], str) or not all(patterns):
            raise RxbookError(
                f"family {name!r} is {families[name]!r}; give a list of patterns such as '*_gro_receive'"
            )
    return {name: patterns for name, patterns in (given | {**FAMILIES, **given}).items() if patterns}


def matcher(patterns: Iterable[str]):
    """A function of a symbol: does it match one of the patterns, and none of those that begin with "!"?"""
    patterns = list(patterns)
    takes, leaves = (
        re.compile("|".join(map(translate, found)) or r"(?!)")
        for found in (
            [pattern for pattern in patterns if not pattern.startswith("!")],
            [pattern[1:] for pattern in patterns if pattern.startswith("!")],
        )
    )

    def matches(symbol: str) -> bool:
        names = (symbol, _APPENDED.sub("", symbol))
        return any(map(takes.match, names)) and not any(map(leaves.match, names))

    return matches
