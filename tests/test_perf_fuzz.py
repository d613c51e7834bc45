# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Damaged perf.data: a partial result with warnings or one clear error, soon, and in little memory."""

import random
import resource
import time
from pathlib import Path

import pytest

from perf_files import Recording, corpus_files
from rxbook import RxbookError, profile

SECONDS = 12
SLOWEST = 5.0
"""Seconds for one file of the corpus, all of them below 4 MB."""
MEMORY = 400 << 20
"""More than all that a run may add: the files are small."""


def mutate(data: bytearray, chance: random.Random) -> bytearray:
    """Bytes changed, cut out, doubled, put to extremes, or the end cut off."""
    for _ in range(chance.choice((1, 2, 8, 40))):
        at = chance.randrange(len(data)) if chance.random() < 0.7 else chance.randrange(min(len(data), 300))
        kind = chance.randrange(6)
        length = chance.choice((1, 2, 4, 8, 64))
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            data[at : at + length] = chance.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * length
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = data[at : at + length]
        elif kind == 4:
            other = chance.randrange(len(data))
            data[at : at + length] = data[other : other + length]
        else:
            del data[max(at, 24) :]
        if len(data) < 24:
            break
    return data


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


def sources() -> list[bytes]:
    """Small files of the corpus where it is there, and made ones of each kind."""
    made = [
        Recording(order, pipe=pipe, compress=compress).example()
        for order in "<>" for pipe in (False, True) for compress in (False, True)
    ]  # fmt: skip
    found = [path.read_bytes() for path in corpus_files() if path.stat().st_size < 300_000]
    return made + found


@pytest.mark.parametrize("seed", [1])
def test_mutated_files_are_read_or_refused(tmp_path, seed):
    chance = random.Random(seed)
    files = sources()
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
