# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The interval code against simulated data whose answer is known. Seeds are fixed."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from rxbook import RxbookError
from rxbook.statistics import (
    EXCLUDING_FLAGS,
    cell_interval,
    compare,
    has_flag,
    is_bound,
    mean_interval,
    noise_floor,
    usable,
)
from synthetic import cells, flag, simulate

OFF, ON = {"gro": "off"}, {"gro": "on"}
A, AGAIN = {"variant": "x (A)"}, {"variant": "x (A again)"}


@pytest.fixture
def samples():
    return simulate(cells(gro=["off", "on"]), blocks=40, seed=7)


def quick_pairs(rng, blocks, ratio, outliers=0.05):
    """Samples of two drifting cells with only the columns that a comparison reads."""
    drift = np.cumsum(rng.normal(0, 0.035, 2 * blocks))
    rates = np.exp(drift + rng.normal(0, 0.05, 2 * blocks)) * np.where(
        rng.random(2 * blocks) < outliers, 0.5, 1
    )
    second = np.concatenate([rng.permutation([False, True]) for _ in range(blocks)])
    times = pd.Timestamp("2026-12-01T10:00:00Z") + pd.to_timedelta(np.arange(2 * blocks) * 0.25, unit="s")
    return pd.DataFrame(
        {
            "block": np.repeat(np.arange(blocks), 2),
            "start_utc": times.map(str),
            "gro": np.where(second, "on", "off"),
            "mpps": rates * np.where(second, ratio, 1),
            "flags": "",
        }
    )


@pytest.mark.parametrize(("blocks", "outliers"), [(5, 0.05), (10, 0.05), (40, 0.05), (40, 0.0)])
def test_interval_covers_the_true_ratio_about_95_times_in_100(blocks, outliers):
    rng = np.random.default_rng(20261201)
    found = [compare(quick_pairs(rng, blocks, 1.3, outliers), OFF, ON) for _ in range(200)]
    missed = np.mean([not result.low <= 1.3 <= result.high for result in found])
    assert missed <= 0.08
    assert all(result.n == blocks for result in found)


def test_false_alarms_of_a_hundred_aa_runs():
    alarms = 0
    for seed in range(100):
        run = simulate(cells(variant=["x (A)", "x (A again)"]), blocks=40, seed=seed)
        alarms += compare(run, A, AGAIN).differs
    assert alarms <= 8


def test_twenty_percent_is_seen_in_forty_blocks_and_the_half_width_is_below_five_percent():
    rng = np.random.default_rng(3)
    found = [compare(quick_pairs(rng, 40, 1.2), OFF, ON) for _ in range(100)]
    assert np.mean([result.differs for result in found]) >= 0.99
    assert np.median([result.half_width for result in found]) < 0.05


def test_a_rate_that_drifts_gets_a_wider_interval_than_its_windows_suggest():
    steady = np.tile([0.99, 1.01], 20)
    drifting = np.linspace(0.8, 1.2, 40)
    assert mean_interval(steady).half_width < 0.01
    assert mean_interval(drifting).half_width > 2 * 1.96 * drifting.std() / math.sqrt(40)


def test_slow_windows_do_not_move_the_centre():
    rates = np.tile([0.99, 1.0, 1.01, 1.0], 10)
    rates[[3, 17, 30]] = 0.5
    assert mean_interval(rates).centre == pytest.approx(1.0, rel=0.002)


def test_a_window_without_any_frame_is_an_outlier_like_others():
    rates = np.tile([0.99, 1.0, 1.01, 1.0], 10)
    rates[5] = 0.0
    assert mean_interval(rates).centre == pytest.approx(1.0, rel=0.002)
    assert mean_interval([0.0, 0.0]).centre == 0
    assert math.isnan(mean_interval([0.0, 0.0]).low)


@pytest.mark.parametrize("flags", EXCLUDING_FLAGS)
def test_flagged_windows_are_left_out(samples, flags):
    clean = compare(samples, OFF, ON)
    spoilt = flag(samples, samples["block"].isin([3, 5]) & (samples["gro"] == "on"), flags)
    spoilt.loc[has_flag(spoilt, flags), "mpps"] = 100.0
    found = compare(spoilt, OFF, ON)
    assert (clean.n, found.n) == (40, 38)
    assert found.ratio == pytest.approx(clean.ratio, rel=0.05)
    assert cell_interval(spoilt[spoilt["gro"] == "on"]).n == 38


def test_an_empty_payload_excludes_nothing(samples):
    noted = flag(samples, samples["gro"] == "on", "empty_payload")
    assert compare(noted, OFF, ON) == compare(samples, OFF, ON)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_missing_flags_are_no_flags(samples, missing):
    samples["flags"] = pd.Series([missing] * len(samples))
    assert len(usable(samples)) == len(samples)
    assert compare(samples, OFF, ON).n == 40


def test_one_block_gives_a_ratio_without_an_interval(samples):
    found = compare(samples[samples["block"] == 0], OFF, ON)
    assert found.n == 1 and found.few and not found.differs
    assert found.ratio > 1 and math.isnan(found.low) and math.isnan(found.p_value)


def test_nothing_left_gives_nan_and_no_crash(samples):
    for empty in (samples.iloc[:0], flag(samples, samples.index, "short")):
        found = compare(empty, OFF, ON)
        assert found.n == 0 and math.isnan(found.ratio) and math.isnan(found.half_width)
        assert not found.differs
        assert math.isnan(cell_interval(empty).centre)


def test_few_pairs_are_marked(samples):
    assert compare(samples[samples["block"] < 4], OFF, ON).few
    assert not compare(samples[samples["block"] < 5], OFF, ON).few


def test_identical_windows_have_an_interval_of_no_width():
    run = simulate(cells(gro=["off", "on"]), blocks=6)
    run["mpps"] = 1.0
    found = compare(run, OFF, ON)
    assert (found.ratio, found.low, found.high, found.p_value, found.differs) == (1, 1, 1, 1, False)


def test_interval_and_p_value_agree(samples):
    slightly = samples.assign(mpps=np.where(samples["gro"] == "on", samples["mpps"] / 4, samples["mpps"]))
    for run in (samples, slightly):
        found = compare(run, OFF, ON)
        assert found.differs == (found.p_value < 0.05)


def test_a_key_that_names_several_cells_is_refused():
    run = simulate(cells(gro=["off", "on"], frame_size=[64, 512]), blocks=5)
    with pytest.raises(RxbookError, match="frame_size"):
        compare(run, OFF, ON)


def test_a_cell_that_the_sender_limits_gives_a_bound(samples):
    limited = flag(samples, samples["gro"] == "on", "sender_limited")
    assert is_bound(limited[limited["gro"] == "on"])
    assert cell_interval(limited[limited["gro"] == "on"]).bound
    up, down = compare(limited, OFF, ON), compare(limited, ON, OFF)
    assert (up.bound, up.differs, down.bound, down.differs) == ("at_least", True, "at_most", True)
    both = compare(flag(limited, limited["gro"] == "off", "sender_limited"), OFF, ON)
    assert (both.bound, both.differs) == ("unknown", False)


def test_a_bound_below_the_baseline_shows_nothing(samples):
    limited = flag(samples, samples["gro"] == "off", "sender_limited")
    assert compare(limited, OFF, ON).bound == "at_most"  # the true ratio may be anything from 0 to about 4
    assert not compare(limited, OFF, ON).differs


def test_the_receivers_fastest_windows_are_not_quietly_dropped(samples):
    on = samples[samples["gro"] == "on"].sort_values("mpps")
    some, many = on.index[-8:], on.index[-9:]
    assert not is_bound(flag(samples, some, "sender_limited").loc[on.index])
    assert is_bound(flag(samples, many, "sender_limited").loc[on.index])


def test_cost_per_packet_counts_where_the_sender_is_the_limit(samples):
    limited = flag(samples, samples["gro"] == "on", "sender_limited")
    found = compare(limited, OFF, ON, "ns_per_packet")
    assert (found.bound, found.n) == ("exact", 40)


def test_runs_put_together_are_not_paired():
    first = simulate(cells(variant=["before"]), seed=1)
    second = simulate(cells(variant=["after"]), seed=2, start="2026-12-01T11:00:00Z", factors={"after": 1.5})
    for both in (pd.concat([second, first]), pd.concat([first, second], ignore_index=True)):
        found = compare(both, {"variant": "before"}, {"variant": "after"})
        assert not found.paired and found.n == 40
        assert found.low < 1.5 < found.high
    overlapping = pd.concat([first.assign(run=0), second.assign(start_utc=first["start_utc"], run=1)])
    assert not compare(overlapping, {"variant": "before"}, {"variant": "after"}).paired


def test_a_block_begun_again_counts_by_its_later_windows(samples):
    again = samples[samples["block"] == 39].assign(start_utc="2026-12-01T10:30:00+00:00")
    found = compare(
        pd.concat([samples.assign(mpps=samples["mpps"].where(samples["block"] < 39, 9)), again]), OFF, ON
    )
    assert found == compare(samples, OFF, ON)


def test_row_order_does_not_matter(samples):
    assert compare(samples.sample(frac=1, random_state=1), OFF, ON) == compare(samples, OFF, ON)


def test_noise_floor_of_an_aa_run():
    run = simulate(cells(variant=["x (A)", "x (A again)"], gro=["off", "on"]), blocks=40)
    floor = noise_floor(run)
    assert list(floor["variant"]) == ["x", "x"] and list(floor["gro"]) == ["off", "on"]
    assert (floor["n"] == 40).all() and not floor["false_alarm"].any()
    assert floor["half_width"].between(0.01, 0.06).all()


def test_noise_floor_needs_an_aa_run(samples):
    with pytest.raises(RxbookError, match="aa=true"):
        noise_floor(samples)
