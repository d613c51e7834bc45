# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Damages files at random, but from a seed: what the tests and benchmarks/fuzz.py give the readers."""

import random

from perf_files import DEFERRED_MARK, KERNEL_MARK, USER_MARK, Recording, corpus_files

LARGEST = 300_000
"""Bytes of a corpus file to mutate: larger ones take long and hold nothing else."""
WORDS = (
    b"# Overhead",
    b"%",
    b";",
    b",",
    b"\n",
    b"[k]",
    b"-nan",
    b"1e999",
    b"\xff",
    b"9" * 40,
    b"0x",
    b"--",
    b"|",
)
"""What the text parsers look for, and numbers that are none."""


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


def mutate_text(data: bytearray, chance: random.Random) -> bytearray:
    """Lines doubled, dropped, exchanged and joined, words put in; sometimes also what mutate() does."""
    lines = bytes(data).split(b"\n")
    for _ in range(chance.choice((1, 2, 8, 40))):
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        kind = chance.randrange(5)
        if kind == 0:
            lines[at] += lines[other]
        elif kind == 1:
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 2:
            lines[at:at] = lines[other : other + chance.choice((1, 5, 50))]
        elif kind == 3:
            place = chance.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + chance.choice(WORDS) + lines[at][place:]
        elif len(lines) > 1:
            del lines[at]
    mutated = bytearray(b"\n".join(lines))
    return mutate(mutated, chance) if len(mutated) > 24 and chance.random() < 0.3 else mutated


def recordings() -> list[bytes]:
    """Made files of each kind, and small ones of the corpus where it is there."""
    made = [
        Recording(order, pipe=pipe, compress=compress).example()
        for order in "<>" for pipe in (False, True) for compress in (False, True)
    ]  # fmt: skip
    apart = Recording().mmap(1, 1, 0x400000, 0x1000, "/usr/bin/one")
    for cookie in range(5):
        apart.sample(2, 0x400100, (KERNEL_MARK, 5, DEFERRED_MARK, cookie)).deferred(
            3, cookie, (USER_MARK, 0x400200)
        )
    return (
        made
        + [bytes(apart)]
        + [path.read_bytes() for path in corpus_files() if path.stat().st_size < LARGEST]
    )
