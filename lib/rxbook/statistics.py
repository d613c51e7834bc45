# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Intervals and comparisons of windows whose rate drifts and is hit by neighbours.

Everything is computed on logarithms of the windows' values, so that a change of rate is a shift. The centre
is the 20 % trimmed mean (a fifth of the values is set aside at each end) with the interval of Tukey and
McLaughlin (Sankhya A 25, 1963): Student's t on the winsorised variance. Up to 5 values nothing is trimmed.

Why: false alarms of A/A comparisons in % / median half-width in %, simulated for two alternating windows of
0.2 s, drift of 12 % over 3 s, window noise of 5 %. Median of the signed ranks: Hodges and Lehmann (Annals of
Mathematical Statistics 34, 1963) with Wilcoxon's limits, whose 95 % does not exist below 6 pairs.

    pairs                         5            10           20           40          100
    5 % of windows at half speed
      Student's t             3.2 / 12.7   2.1 / 15.8   2.9 / 10.4   4.4 / 7.2    4.9 / 4.5
      signed ranks            6.5 / 12.9   4.8 / 16.7   4.7 /  4.9   4.8 / 3.3    5.1 / 2.0
      10 % trimmed            3.2 / 12.7   4.0 /  7.1   3.8 /  4.7   3.9 / 3.2    4.7 / 2.0
      20 % trimmed (chosen)   3.2 / 12.7   5.1 /  7.4   4.7 /  4.7   4.9 / 3.2    5.0 / 2.0
    10 % of windows at half speed
      Student's t             2.1 / 37.0   2.1 / 21.0   4.2 / 14.0   5.0 / 9.7    4.7 / 6.0
      signed ranks            7.0 / 35.9   4.6 / 20.6   4.9 /  7.3   4.6 / 4.1    5.0 / 2.4
      10 % trimmed            2.1 / 37.0   2.6 /  9.5   2.2 /  6.8   2.2 / 7.6    2.4 / 4.2
      20 % trimmed (chosen)   2.1 / 37.0   4.3 /  8.6   4.0 /  5.4   4.5 / 3.6    4.6 / 2.2
    none
      Student's t             4.9 /  9.2   5.0 /  5.6   4.8 /  3.7   4.9 / 2.6    5.0 / 1.6
      signed ranks            6.7 /  9.0   4.6 /  5.8   4.1 /  3.8   4.2 / 2.6    5.0 / 1.6
      20 % trimmed (chosen)   4.9 /  9.2   5.6 /  6.4   5.4 /  4.1   5.5 / 2.8    5.1 / 1.7

Successive log ratios were not correlated (lag 1: 0.00): the order within a block is random, so drift
adds to a ratio as often as it takes away. A cell's own windows are correlated, see `mean_interval`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy  # loads scipy.special where it is used: a table of one profile needs none

from rxbook import RxbookError
from rxbook.plan import MIN_BLOCKS, Cell

__all__ = [
    "EXCLUDING_FLAGS",
    "Comparison",
    "Interval",
    "cell_interval",
    "cells_of",
    "compare",
    "compare_repeats",
    "counted",
    "foretold",
    "has_flag",
    "is_bound",
    "mean_interval",
    "mean_intervals",
    "noise_floor",
    "number_runs",
    "per_boot",
    "repeats_interval",
    "usable",
]

EXCLUDING_FLAGS = ("sender_limited", "pressure", "short")
"""A window with one of these is kept and shown, but counts in no rate."""

STRETCHES = 5
"""Into so many consecutive parts a cell's windows are cut to see how far its mean drifts."""

LIMITED = 0.2
"""A cell's rate is a bound where the sender limited more than this share of its windows, see `is_bound`."""

AA_NAMES = (" (A)", " (A again)")
"""How the two names of an A/A run end."""

Bound = Literal["exact", "at_least", "at_most", "unknown"]
BOUND_WORDS: dict[tuple[bool, bool], Bound] = {
    (False, False): "exact",
    (False, True): "at_least",
    (True, False): "at_most",
    (True, True): "unknown",
}
"""What a ratio is when the sender limited (the baseline, the other cell)."""


@dataclass(frozen=True)
class Interval:
    """The figure of one cell: centre with its 95 % interval, in the unit of the values.

    n: windows used. bound: the sender set the rate, so the receiver's is this or higher.
    NaN stands where there are too few windows.
    """

    centre: float
    low: float
    high: float
    n: int
    bound: bool = False

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval, in the unit of the values."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Comparison:
    """How many times the baseline the other cell is, with its 95 % interval.

    n: pairs of windows (where not paired: windows of the cell that has fewer). paired: both windows of each
    pair come from one block. bound: "at_least" where the sender limited the other cell, "at_most" where it
    limited the baseline, "unknown" where it limited both. NaN stands where there are fewer than two pairs.
    """

    ratio: float
    low: float
    high: float
    n: int
    p_value: float
    paired: bool = True
    bound: Bound = "exact"

    @property
    def few(self) -> bool:
        """True below the number of pairs from which an interval is worth printing."""
        return self.n < MIN_BLOCKS

    @property
    def differs(self) -> bool:
        """True where the interval, and what a bound leaves open, excludes a ratio of 1."""
        above, below = self.low > 1, self.high < 1
        verdicts = {"exact": above or below, "at_least": above, "at_most": below, "unknown": False}
        return bool(verdicts[self.bound])

    @property
    def half_width(self) -> float:
        """Half-width of the interval as a fraction of the ratio: 0.03 is 3 %."""
        return float(np.sqrt(self.high / self.low) - 1)


def has_flag(samples: pd.DataFrame, flag: str) -> pd.Series:
    """One boolean per row: does its window carry this flag? A missing flags text holds none."""
    texts = samples["flags"]
    holding = {text for text in texts.unique() if isinstance(text, str) and flag in text.split(";")}
    return texts.isin(holding)


def usable(samples: pd.DataFrame, value: str = "mpps", *, bound: bool = False) -> pd.DataFrame:
    """The rows whose windows count for `value`.

    A rate needs a sender that offers more than the receiver takes; the cost per packet holds at any load, and
    so does a rate that is only meant as a lower bound: both keep the windows flagged sender_limited.
    """
    flags = [flag for flag in EXCLUDING_FLAGS if flag != "sender_limited" or (value == "mpps" and not bound)]
    left_out = pd.concat([has_flag(samples, flag) for flag in flags], axis=1).any(axis=1)
    return samples[~left_out]


def is_bound(windows: pd.DataFrame, value: str = "mpps") -> bool:
    """True where the sender limited more than a fifth of a cell's otherwise good windows.

    The windows that a sender limits are the receiver's fastest: without them the rest would print a rate that
    is too low. Up to a fifth is what the trimmed mean sets aside at that end anyhow.
    """
    good = usable(windows, bound=True)
    return value == "mpps" and bool(has_flag(good, "sender_limited").mean() > LIMITED)


def _logs(values: Any) -> np.ndarray:
    """Logarithms without the missing values. A window of rate 0 is -inf: an outlier to be trimmed."""
    values = np.asarray(values, dtype=float)
    with np.errstate(divide="ignore"):
        return np.log(values[~np.isnan(values)])


def _trimmed(logs: np.ndarray) -> tuple[Any, Any, int]:
    """Trimmed mean, its standard error, degrees of freedom; NaN where there are too few values.

    Along the last axis: of several samples of one size, an array of each but the degrees.
    """
    n = logs.shape[-1]
    cut = n // 5 if n > MIN_BLOCKS else 0
    kept = np.sort(logs)[..., cut : n - cut]
    degrees = kept.shape[-1] - 1
    if degrees < 1:
        few = np.full(logs.shape[:-1], np.nan)[()]
        return (few if degrees < 0 else kept[..., 0]), few, 0
    winsorised = np.clip(logs, kept[..., :1], kept[..., -1:])
    with np.errstate(invalid="ignore"):
        error = np.sqrt((n - 1) * np.var(winsorised, ddof=1, axis=-1) / ((degrees + 1) * degrees))
        return np.mean(kept, axis=-1), error, degrees


def _drift(logs: np.ndarray) -> tuple[Any, Any, int]:
    """As `_trimmed`, but over consecutive stretches of the run where there are enough values."""
    if logs.shape[-1] < 2 * STRETCHES:
        return _trimmed(logs)
    means = [_trimmed(part)[0] for part in np.array_split(logs, STRETCHES, axis=-1)]
    return _trimmed(logs)[0], *_trimmed(np.stack(means, axis=-1))[1:]


def _limits(centre: Any, error: Any, degrees: float) -> tuple[Any, Any, Any]:
    reach = scipy.special.stdtrit(degrees, 0.975) * error if degrees else np.nan * error
    return np.exp(centre), np.exp(centre - reach), np.exp(centre + reach)


def mean_interval(values: Any) -> Interval:
    """Centre and 95 % interval of one cell's windows, given in time order; NaN values are left out.

    A run lasts little longer than its drift, so t over single windows is far too sure of itself: simulated as
    above (40 blocks, 12 cells; 2 cells) its 95 % interval missed the long-run rate 21 % and 61 % of the time.
    The interval is therefore Student's t over the means of 5 consecutive stretches of the run, from 10
    windows on: that missed 5 % and 23 %. Two cells are better judged by `compare` than by these intervals.
    """
    logs = _logs(values)
    return Interval(*map(float, _limits(*_drift(logs))), len(logs))


def mean_intervals(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of cells that have as many windows each, none missing, a cell in each row: centres, lows, highs."""
    with np.errstate(divide="ignore"):
        return _limits(*_drift(np.log(values)))


def cells_of(samples: pd.DataFrame) -> list[pd.DataFrame]:
    """The windows of each cell."""
    return [windows for _, windows in samples.groupby(list(Cell.model_fields), dropna=False)]


def counted(windows: pd.DataFrame, value: str = "mpps") -> pd.DataFrame:
    """The rows of one cell that count in its figure, which is a bound where `is_bound` says so."""
    return usable(windows, value, bound=is_bound(windows, value))


def cell_interval(windows: pd.DataFrame, value: str = "mpps") -> Interval:
    """The figure of one cell from its rows, flagged windows left out."""
    found = mean_interval(counted(number_runs(windows), value)[value])
    return replace(found, bound=is_bound(windows, value))


def per_boot(samples: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell and boot of a guest, its block the boot: windows of one boot share its luck.

    Values are medians of the windows that count, frames and skbs their sums; the flag sender_limited stays where
    `is_bound` says so. A cell none of whose windows count has no row.
    """
    rows = []
    for windows in cells_of(samples):
        for boot, of_boot in windows.groupby("boot"):
            good = counted(of_boot)
            if good.empty:
                continue
            sums = good[["frames", "skbs", "offered_frames", "dropped_frames"]].sum()
            medians = good.drop(columns=list(Cell.model_fields)).median(numeric_only=True)
            flags = "sender_limited" if is_bound(of_boot) else ""
            rows.append(good.iloc[0].to_dict() | medians.to_dict() | sums.to_dict()
                        | {"block": int(boot), "boot": int(boot), "flags": flags})  # fmt: skip
    return pd.DataFrame(rows, columns=samples.columns)


def number_runs(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples in time order with a column `run`: block 3 of one run is not block 3 of another.

    Where samples of several runs were put together without such a column, a run starts where the block number
    falls; runs that overlap in time need the column.
    """
    times = pd.to_datetime(samples["start_utc"], format="ISO8601", utc=True)
    ordered = samples.iloc[times.argsort(kind="stable")].reset_index(drop=True)
    if "run" in ordered:
        return ordered
    return ordered.assign(run=(ordered["block"].diff() < 0).cumsum())


def _select(numbered: pd.DataFrame, key: Mapping[str, Any]) -> pd.DataFrame:
    rows = numbered
    for column, wanted in key.items():
        rows = rows[rows[column] == wanted]
    if not rows.duplicated(["run", "block"]).any():
        return rows
    several = [name for name in Cell.model_fields if rows[name].nunique() > 1]
    if several:
        raise RxbookError(f"{dict(key)} names several cells; tell apart also {', '.join(several)}")
    return rows.drop_duplicates(["run", "block"], keep="last")  # a block begun again after an interruption


def compare(
    samples: pd.DataFrame, baseline: Mapping[str, Any], other: Mapping[str, Any], value: str = "mpps"
) -> Comparison:
    """Compare two cells within the blocks they share, by the log ratios of their windows.

    baseline and other name one cell each by column, as in {"gro": "off"}, within the samples given. A block
    counts where neither window is flagged. Cells of different runs share no block: they are compared by
    their means and how far these drift (Welch), which is less sure and says `paired=False`. Where each has
    several runs, these are repeats: each counts by its mean, so that what differs between boots is in the interval.

    Raises RxbookError where a key does not tell cells apart.
    """
    numbered = number_runs(samples)
    first, second = _select(numbered, baseline), _select(numbered, other)
    bounds = (is_bound(first, value), is_bound(second, value))
    bound = BOUND_WORDS[bounds]
    apart = len(first) and len(second) and not set(first["run"]) & set(second["run"])
    first, second = (usable(rows, value, bound=any(bounds)) for rows in (first, second))
    if apart:
        n = min(int(rows[value].count()) for rows in (first, second))
        return _comparison(_between(first, second, value), n, False, bound)
    pairs = first.merge(second, on=["run", "block"])
    ratios = _logs(pairs[f"{value}_y"] / pairs[f"{value}_x"])
    return _comparison(_trimmed(ratios), len(ratios), True, bound)


def _between(first: pd.DataFrame, second: pd.DataFrame, value: str) -> tuple[float, float, float]:
    """As `_welch`, for the rows of two cells that share no run."""
    if min(rows["run"].nunique() for rows in (first, second)) < 2:
        return _welch(*(_drift(_logs(rows[value])) for rows in (first, second)))
    means = [
        rows.groupby("run")[value].agg(lambda values: np.exp(_trimmed(_logs(values))[0]))
        for rows in (first, second)
    ]
    return _welch(*(_trimmed(_logs(of_runs)) for of_runs in means))


def repeats_interval(values: Any) -> Interval:
    """The figure of several runs, each of which counts as one value."""
    logs = _logs(values)
    return Interval(*map(float, _limits(*_trimmed(logs))), len(logs))


def compare_repeats(first: Any, second: Any) -> Comparison:
    """Compare the figures of some runs with those of others, each of which counts as one value (Welch)."""
    logs = [_logs(values) for values in (first, second)]
    return _comparison(_welch(*map(_trimmed, logs)), min(map(len, logs)), False, "exact")


def foretold(earlier: Any, new: float, chance: float = 0.01) -> bool:
    """Is a new run's figure one that runs like the earlier ones give, but for so small a chance (Student's t)?

    True below MIN_BLOCKS earlier runs, from which nothing can be foretold.
    """
    logs = _logs(earlier)
    if len(logs) < MIN_BLOCKS:
        return True
    reach = scipy.special.stdtrit(len(logs) - 1, 1 - chance / 2) * np.std(logs, ddof=1)
    return bool(abs(np.log(new) - logs.mean()) <= reach * np.sqrt(1 + 1 / len(logs)))


def _welch(first: tuple[float, float, int], second: tuple[float, float, int]) -> tuple[float, float, float]:
    """Difference of two means that are no pairs, its standard error, degrees of freedom."""
    (mean, error, degrees), (mean2, error2, degrees2) = first, second
    if not (degrees and degrees2):
        return mean2 - mean, np.nan, 0
    variance = error**2 + error2**2
    freedom = variance**2 / (error**4 / degrees + error2**4 / degrees2) if variance else degrees + degrees2
    return mean2 - mean, float(np.sqrt(variance)), freedom


def _comparison(found: tuple[float, float, float], n: int, paired: bool, bound: Bound) -> Comparison:
    centre, error, degrees = found
    p_value = np.nan
    if degrees:
        p_value = 2 * scipy.special.stdtr(degrees, -abs(centre) / error) if error else float(centre == 0)
    return Comparison(*map(float, _limits(centre, error, degrees)), n, float(p_value), paired, bound)


def noise_floor(samples: pd.DataFrame, value: str = "mpps") -> pd.DataFrame:
    """What an A/A run says of the machine: one row per cell that was measured under two names.

    Columns: the cell's fields (variant without its ending), ratio, low, high, n, half_width (a fraction: the
    smallest difference that can be shown), bound (as in `Comparison`), false_alarm (the interval excludes 1
    although nothing differs).

    Raises RxbookError where no cell was measured under two names.
    """
    ending = samples["variant"].map(lambda name: next((end for end in AA_NAMES if name.endswith(end)), ""))
    bare = [name.removesuffix(end) for name, end in zip(samples["variant"], ending, strict=True)]
    named = samples.assign(ending=ending, variant=bare)[ending != ""]
    if named["ending"].nunique() < 2:
        raise RxbookError("no cell was measured under two names; run with aa=true to see the noise floor")
    rows = []
    for cell, windows in named.groupby(list(Cell.model_fields), dropna=False):
        found = compare(windows, {"ending": AA_NAMES[0]}, {"ending": AA_NAMES[1]}, value)
        rows.append(
            dict(zip(Cell.model_fields, cell, strict=True))
            | {name: getattr(found, name) for name in ("ratio", "low", "high", "n", "half_width", "bound")}
            | {"false_alarm": found.differs}
        )
    return pd.DataFrame(rows)
