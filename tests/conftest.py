# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tests marked `needs_root` drive the real kernel; each is skipped, with the reason, where that cannot be."""

import functools

import pytest

from live import open_testbed
from rxbook import doctor


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_root: drives a real receive path, as root")


@functools.cache
def obstacles() -> str:
    """Why this machine can make no live run; empty where it can."""
    return "; ".join(doctor.can_run_live(doctor.checks())[1])


def pytest_runtest_setup(item):
    if item.get_closest_marker("needs_root") and obstacles():
        pytest.skip(obstacles())


@pytest.fixture(scope="module")
def testbed():
    """One Veth for a module's tests."""
    with open_testbed() as veth:
        yield veth
