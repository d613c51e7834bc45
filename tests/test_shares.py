# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How sure a share is, on SIMULATED counts, and which functions the families take."""

from __future__ import annotations

import numpy as np
import pytest

from rxbook import RxbookError
from rxbook.profile.families import FAMILIES, chosen, matcher
from rxbook.profile.functions import Column, function_table
from rxbook.profile.shares import difference, differs, product, share_interval
from rxbook.statistics import Interval
from synthetic_profiles import KERNEL, MADE_UP, line, names, profile

# --- intervals


@pytest.mark.parametrize(("share", "total"), [(0.1, 2000), (0.002, 2000), (0.5, 300)])
def test_an_interval_holds_the_true_share_19_times_in_20(share, total):
    rng = np.random.default_rng(1)
    counts = rng.binomial(total, share, 2000)
    found = [share_interval(*np.array([[k], [total], [k / total]], float)) for k in counts]
    held = np.mean([one.low <= share <= one.high for one in found])
    assert 0.92 < held < 0.985  # counts are whole numbers, so that few of them cannot give just 95 %


def test_the_interval_of_a_difference_holds_it_and_none_is_rarely_called_one():
    rng = np.random.default_rng(2)
    pair = [rng.binomial(3000, share, 2000) for share in (0.03, 0.05)]
    first, second = (
        [share_interval(*np.array([[k], [3000], [k / 3000]], float)) for k in counts] for counts in pair
    )
    changes = list(map(difference, first, second))
    assert 0.93 < np.mean([one.low <= 0.02 <= one.high for one in changes]) < 0.97
    same = list(map(difference, first[:1000], first[1000:]))
    assert np.mean([differs(one) for one in same]) < 0.07


@pytest.mark.parametrize(("repeats", "least"), [(3, 0.89), (10, 0.92)])
def test_repeats_that_differ_by_more_than_their_counts_widen_the_interval(repeats, least):
    rng = np.random.default_rng(3)
    held, alone = [], []
    for _ in range(1000):
        true = 0.1 * np.exp(rng.normal(0, 0.1, repeats) - 0.005)
        counts, totals = rng.binomial(10_000, true).astype(float), np.full(repeats, 1e4)
        for found, kept in (
            (share_interval(counts, totals, counts / totals), held),
            (
                share_interval(
                    counts.sum(keepdims=True), totals.sum(keepdims=True), counts.mean(keepdims=True) / 1e4
                ),
                alone,
            ),
        ):
            kept.append(found.low <= 0.1 <= found.high)
    assert np.mean(held) > least > 0.6 > np.mean(alone)


def test_repeats_without_counts_have_the_interval_between_them_alone():
    unknown = np.full(3, np.nan)
    found = share_interval(unknown, unknown, np.array([0.09, 0.1, 0.11]))
    assert found.centre == pytest.approx(0.1) and found.high - found.centre == pytest.approx(0.0248, abs=1e-4)
    assert np.isnan(share_interval(unknown[:1], unknown[:1], np.array([0.1])).low)


def test_a_share_of_the_period_keeps_the_precision_of_its_samples():
    found = share_interval(*np.array([[100], [10_000], [0.2]], float))
    assert found.centre == 0.2 and 0.16 < found.low < 0.18 and 0.23 < found.high < 0.25


def test_no_sample_has_an_upper_limit():
    found = share_interval(*np.array([[0], [1000], [0.0]]))
    assert found.centre == found.low == 0 and found.high == pytest.approx(0.00383, abs=1e-5)


def test_a_cost_has_the_doubt_of_share_and_cost():
    found = product(Interval(0.1, 0.09, 0.11, 500), Interval(300, 280, 320, 10))
    assert found.centre == 30 and found.high - 30 == pytest.approx(np.hypot(3, 2))
    assert product(Interval(0.0, 0.0, 0.01, 0), Interval(300, 280, 320, 10)).high == pytest.approx(3)


# --- families


def test_builtin_families_are_disjoint_and_take_what_they_should():
    matches = {name: matcher(patterns) for name, patterns in FAMILIES.items()}
    cases = {
        "GRO": "dev_gro_receive udp_gro_receive_segment skb_gro_receive_list gro_network_flush inet_gro_flush "
        "napi_gro_receive tcp4_gro_complete.constprop.0 __gro_flush gro_receive_skb tcp_gro_lookup",
        "skb alloc": "__alloc_skb kmem_cache_alloc_noprof napi_skb_cache_get_bulk __xdp_build_skb_from_frame "
        "___slab_alloc __slab_alloc.isra.0 kmem_cache_alloc_bulk_noprof",
        "skb free": "kfree_skb_reason skb_release_data kmem_cache_free __slab_free.cold napi_consume_skb",
        "checksum": "csum_partial __skb_gro_checksum_complete skb_checksum nf_ip_checksum udp4_csum_init",
        "page pool": "page_pool_put_unrefed_netmem __page_pool_alloc_netmems_slow napi_pp_put_page",
        "driver and XDP": "veth_poll bpf_prog_d3a896fb70ff6942_to_cpumap cpu_map_kthread_run xdp_do_redirect "
        "mlx5e_napi_poll bq_enqueue __xdp_return virtnet_poll",
        None: "ip_rcv udp_rcv group_send __netif_receive_skb_core memcpy_orig btrfs_csum_one_bio ksoftirqd",
    }
    for family, symbols in cases.items():
        for symbol in symbols.split():
            assert [name for name, found in matches.items() if found(symbol)] == [family] * bool(family), (
                symbol
            )


def test_families_of_the_user_extend_replace_and_take_away():
    given = chosen({"mine": ["ip_*", "!ip_rcv_*"], "GRO": ["inet_gro_receive"], "checksum": []})
    assert list(given)[:2] == ["mine", "GRO"] and "checksum" not in given and "skb free" in given
    counts = dict(zip(MADE_UP, (400, 300, 100, 80, 70, 50), strict=True)) | {"ip_rcv_core": 5}
    table = function_table(
        {"a": Column([profile(counts)])}, families={"mine": ["ip_*", "!ip_rcv_*"], "none": ["x"]}
    )
    assert line(table, "mine")["samples"] == 70 and line(table, "none")["samples"] == 0
    assert "none: no function has samples." in table.notes
    with pytest.raises(RxbookError, match="list of patterns"):
        chosen({"mine": "ip_*"})


def test_builtin_families_have_no_functions_of_programs():
    counts = {"kfree_skb": 100, "xdp_program__attach": 50}
    table = function_table({"a": Column([profile(counts, kind=["k", "u"], dso=[KERNEL, "libxdp.so"])])})
    assert names(table, "family") == ["skb free"]
