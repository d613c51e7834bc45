# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How sure a share is that was counted by samples, and what follows for differences and for costs.

Samples are taken at even distances of time or cycles, whatever the CPU then does, so a function's count is taken
as binomial and gets Wilson's score interval (JASA 22, 1927), which holds for few samples and for none.
Work that repeats in step with the samples breaks this; a second recording at another frequency shows it.

Repeats of one condition can differ by more than their counts explain: code lies elsewhere after each boot, flows
fall into other buckets. What the repeats' variance has beyond that of the counts is added with Student's t.

Why added: misses of the true share in % / median half-width in % of it, simulated with 10,000 samples in each
repeat (20,000 trials; nominal is 5 %). Spread: standard deviation of the true share from repeat to repeat.

    share, spread   repeats   counts alone   t alone      wider of both   added (chosen)
    10 %, none          2      5.2 /  4.2    5.0 / 18.4    0.8 / 18.4      3.6 /  4.2
                        3      4.8 /  3.4    5.1 /  6.2    1.3 /  6.2      3.3 /  3.4
                       10      5.2 /  1.9    5.3 /  2.1    3.1 /  2.1      3.9 /  1.9
    10 %, 3 %           2     16.4 /  4.2    4.9 / 25.4    1.9 / 25.4      8.6 /  4.3
                        3     16.9 /  3.4    5.4 /  8.7    3.0 /  8.7      7.7 /  5.6
                       10     16.8 /  1.9    4.8 /  2.9    4.4 /  2.9      6.1 /  2.7
    10 %, 10 %          2     57.4 /  4.2    5.3 / 63.5    4.5 / 63.5     14.0 / 57.6
                        3     57.5 /  3.4    5.2 / 21.6    5.0 / 21.6      8.3 / 20.6
                       10     58.2 /  1.9    5.4 /  7.2    5.4 /  7.2      5.7 /  7.1
    0.5 %, 10 %         2     10.4 / 19.6    5.4 / 101     1.2 / 101       6.0 / 20.8
                        3     11.8 / 16.0    5.0 / 35.8    2.1 / 35.8      5.9 / 18.2
                       10     11.6 /  8.8    5.4 / 11.9    4.5 / 11.9      6.0 / 10.8

A single recording has counts alone: how far another would differ, it cannot say.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import scipy

from rxbook.statistics import Interval

Z = NormalDist().inv_cdf(0.975)
UNKNOWN = Interval(np.nan, np.nan, np.nan, 0)


def share_interval(samples: np.ndarray, totals: np.ndarray, shares: np.ndarray) -> Interval:
    """A share (0..1) with its 95 % interval, from one value for each repeat of the condition.

    samples: of the function, totals: of the event; shares: of the event's period, which is what is printed. NaN
    in shares: this repeat does not tell; NaN in samples or totals: not known, so that only repeats give an
    interval. n of the interval is the number of samples, 0 where unknown.
    """
    told = ~np.isnan(shares)
    samples, totals, shares = samples[told], totals[told], shares[told]
    if not len(shares):
        return UNKNOWN
    counted = not np.isnan(samples + totals).any() and totals.sum() > 0
    weights = totals / totals.mean() if counted else np.ones(len(shares))
    centre = float(np.mean(weights * shares))
    low, high = _by_counts(samples.sum(), totals.sum(), centre) if counted else (np.nan, np.nan)
    between = _between(shares, weights, centre)
    if counted:
        between = max(0.0, between - _variance(samples.sum(), centre, totals.sum()) * len(shares))
    elif len(shares) > 1:
        low = high = centre
    reach = (
        scipy.special.stdtrit(len(shares) - 1, 0.975) * np.sqrt(between / len(shares))
        if len(shares) > 1
        else 0.0
    )
    low, high = centre - np.hypot(centre - low, reach), centre + np.hypot(high - centre, reach)
    known = int(samples.sum()) if counted else 0
    return Interval(centre, float(np.maximum(low, 0)), float(np.minimum(high, 1)), known)


def _by_counts(count: float, total: float, share: float) -> tuple[float, float]:
    """Wilson's limits for the count; moved as odds where the share of the period is not that of the samples."""
    rate = count / total
    middle = (rate + Z**2 / 2 / total) / (1 + Z**2 / total)
    half = Z / (1 + Z**2 / total) * np.sqrt(rate * (1 - rate) / total + Z**2 / 4 / total**2)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    if not (0 < rate < 1 and 0 < share < 1):
        return min(low, share), max(high, share)
    factor = share / (1 - share) / (rate / (1 - rate))
    return tuple(factor * limit / (1 - limit + factor * limit) for limit in (low, high))


def _variance(count: float, share: float, total: float) -> float:
    """Of a share, by its counts: relative to the share it is that of the count."""
    return share**2 * (1 - count / total) / count if count else 0.0


def _between(shares: np.ndarray, weights: np.ndarray, centre: float) -> float:
    """Variance of one repeat's share."""
    return float(np.sum(weights * (shares - centre) ** 2) / (len(shares) - 1)) if len(shares) > 1 else 0.0


def difference(first: Interval, second: Interval) -> Interval:
    """second - first of two independent figures, by their own limits (Newcombe, Statistics in Medicine 17, 1998).

    n: the smaller of both.
    """
    centre = second.centre - first.centre
    down = np.hypot(second.centre - second.low, first.high - first.centre)
    up = np.hypot(second.high - second.centre, first.centre - first.low)
    return Interval(centre, float(centre - down), float(centre + up), min(first.n, second.n))


def product(share: Interval, cost: Interval) -> Interval:
    """share times cost with the limits of both; the share's n. A cost without limits is taken as exact."""
    low, high = (cost.centre if np.isnan(limit) else limit for limit in (cost.low, cost.high))
    centre = share.centre * cost.centre
    down = np.hypot((share.centre - share.low) * cost.centre, share.centre * (cost.centre - low))
    up = np.hypot((share.high - share.centre) * cost.centre, share.centre * (high - cost.centre))
    return Interval(centre, float(np.maximum(centre - down, 0)), float(centre + up), share.n)


def differs(change: Interval) -> bool:
    """True where the interval of a difference excludes 0; False where there is none."""
    return bool(change.low > 0 or change.high < 0)
