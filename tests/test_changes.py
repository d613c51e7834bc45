# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where SIMULATED series of runs changed, and where they did not."""

from __future__ import annotations

import numpy as np
import pytest

from rxbook import changes
from rxbook.statistics import compare_repeats, foretold


def test_a_change_is_found_where_it_is():
    rng = np.random.default_rng(1)
    values = np.exp(rng.normal(0, 0.02, 40)) * np.where(np.arange(40) < 25, 1.0, 0.9)
    (found,) = changes.find(values)
    assert abs(found.first - 25) <= 1
    assert found.difference == compare_repeats(values[: found.first], values[found.first :])
    assert found.difference.low < 0.9 < found.difference.high


def test_several_changes_are_each_against_the_level_before():
    values = np.array([1.0, 1.01, 0.99, 1.0] * 5 + [1.5, 1.51, 1.49] * 5 + [1.2, 1.21, 1.19] * 5)
    found = changes.find(values)
    assert [change.first for change in found] == [20, 35]
    assert [round(change.difference.ratio, 2) for change in found] == [1.5, 0.8]


def test_exact_figures_that_step_have_a_change():
    (found,) = changes.find([6343.4] * 8 + [6143.1] * 5)
    assert found.first == 8 and found.difference.differs


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [1.0, 1.0, 0.5, 0.5],  # too few to tell a change from luck
        [1.0, 1.01, 0.99, 1.0, 0.5, 1.0, 1.01, 0.99, 1.0, 1.01],  # a bad night
        [1.0] * 12,
        [*[1.0, 1.01, 0.99] * 4, 0.5, 0.5],  # two bad nights are none either
    ],
)
def test_what_is_no_change(values):
    assert changes.find(values) == []


def test_false_alarms_are_rare():
    rng = np.random.default_rng(2)
    series = [np.exp(rng.normal(0, 0.05, 30)) for _ in range(300)]
    assert sum(bool(changes.find(values)) for values in series) <= 15  # 5 %; about 2 % are


def test_a_new_run_is_foretold_by_those_before():
    rng = np.random.default_rng(3)
    lucky = [foretold(np.exp(rng.normal(0, 0.1, 8)), np.exp(rng.normal(0, 0.1))) for _ in range(2000)]
    assert 0.98 < np.mean(lucky) < 1  # by design 0.99
    assert not foretold([1.0, 1.01, 0.99, 1.0, 1.02], 0.8)
    assert foretold([1.0, 1.01, 0.99, 1.0], 0.1)  # four runs foretell nothing
