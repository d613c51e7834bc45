# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the figures of many runs of one cell changed.

Runs of one cell differ by more than their intervals say: each boot and each day has a luck of its own. So a run is one
value, and what is shown to have changed is judged by how much runs differ among themselves.

Places are proposed by ruptures' exact search for the least squares (KernelCPD with a linear kernel; penalty 2 ln n;
levels of 3 runs at least). Then they are struck out, the worst first, until the runs before and after each differ by
`statistics.compare_repeats` (trimmed, so that a few bad nights are no change), at 5 % divided by the number of places
where a change could be.

Simulated (`benchmarks/run.py changes`, 1000 series each) with a luck of 3 %, every twentieth run 14 % too slow. In %
of the series: any change shown where nothing changed; the same where luck lasts (each run's correlates with the last
one's, 0.6); a change of -5 % in the middle, and of -10 %, found there within a tenth of the series or one run:

    runs   nothing   nothing, luck lasts   -5 %   -10 %
       6       1.8                   7.4     20      59
      10       1.6                  12.8     21      66
      30       2.2                  34.1     56      97
     100       1.2                  62.4     96     100
     300       1.3                  82.6    100     100
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rxbook.statistics import Comparison, compare_repeats

__all__ = ["LEAST_RUNS", "Change", "find"]

LEAST_RUNS = 3
"""A level has so many runs at least: with fewer, luck is a likelier reason than a change."""

PENALTY = 2.0
"""What one more change has to save, in ln n times the variance of a run's luck."""

CHANCE = 0.05
"""How many series without a change may show one."""


@dataclass(frozen=True)
class Change:
    """first: index of the first run after it. difference: of the runs after it to those before, up to their changes."""

    first: int
    difference: Comparison


def find(values: Any) -> list[Change]:
    """The changes in the figures of runs, in the order of time; figures are above 0, and none is missing."""
    logs = np.log(np.asarray(values, dtype=float))
    places = len(logs) - 2 * LEAST_RUNS + 1
    if places < 1:
        return []
    ends = _proposed(logs)
    while True:
        edges = [0, *ends, len(logs)]
        found = [
            Change(middle, compare_repeats(values[start:middle], values[middle:end]))
            for start, middle, end in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        weakest = max(found, key=lambda change: change.difference.p_value, default=None)
        if weakest is None or weakest.difference.p_value <= CHANCE / places:
            return found
        ends.remove(weakest.first)


def _proposed(logs: np.ndarray) -> list[int]:
    import ruptures  # a third of a second, which only a trend needs

    scaled = (logs - logs.mean()) / _luck(logs)
    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_RUNS).fit(scaled.reshape(-1, 1))
    return [int(end) for end in search.predict(pen=PENALTY * np.log(len(logs)))[:-1]]


def _luck(logs: np.ndarray) -> float:
    """Standard deviation of a run around its level, from successive differences: changes are but few of these."""
    steps = np.abs(np.diff(logs))
    return float(np.median(steps) / 0.6745 / np.sqrt(2) or np.std(logs) or 1.0)
