# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Damaged perf.data: a partial result with warnings or one clear error, soon, and in little memory."""

import random
import resource
import time
from pathlib import Path

import pytest

from mutations import mutate, recordings
from rxbook import RxbookError, profile

SECONDS = 12
SLOWEST = 5.0
"""Seconds for one file of the corpus, all of them below 4 MB."""
MEMORY = 400 << 20
"""More than all that a run may add: the files are small."""


def read_whatever(path: Path, data: bytes) -> float:
    """Load these bytes in both ways; anything but RxbookError is a fault. CPU seconds it took."""
    path.write_bytes(data)
    began = time.process_time()
    for children in (False, True):
        try:
            found = profile.load(path, children=children)
        except RxbookError as error:
            assert str(error)
        else:
            assert (found.functions["samples"] >= 0).all()
    return time.process_time() - began


@pytest.mark.parametrize("seed", [1])
def test_mutated_files_are_read_or_refused(tmp_path, seed):
    chance = random.Random(seed)
    files = recordings()
    path = tmp_path / "perf.data"  # of a fault, pytest keeps the file
    read_whatever(path, files[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    end, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        seconds = read_whatever(path, mutate(bytearray(chance.choice(files)), chance))
        assert seconds < SLOWEST
        number += 1
    assert number > 20
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < MEMORY
