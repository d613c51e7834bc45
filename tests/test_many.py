# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Many recordings as one profile: the same figures as one pass over all of them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from perf_files import KERNEL, Recording
from rxbook import RxbookError, profile
from rxbook.profile import many, show

RXBOOK = Path(sys.executable).parent / "rxbook"
FIGURES = ["samples", "period"]


def recording(samples):
    """A recording of (kernel or user address, thread) samples, always with the same mappings and names."""
    made = Recording().comm(0, 1, "one").comm(0, 2, "two").mmap(0, 1, 0x400000, 0x1000, "/usr/bin/one")
    made.ksymbol(0, 0xFFFFFFFF81000000, 0x100, "bpf_prog_1_a").ksymbol(
        0, 0xFFFFFFFF81000100, 0x100, "bpf_prog_2_b"
    )
    for time, (address, tid) in enumerate(samples, 1):
        made.sample(time, address, (), tid=tid, mode=KERNEL if address > 1 << 60 else 2)
    return bytes(made)


@pytest.fixture
def files(tmp_path):
    """A recording in whole, and the same samples in 9 files."""
    draw = np.random.default_rng(5)
    addresses = [0xFFFFFFFF81000010, 0xFFFFFFFF81000110, 0xFFFFFFFF81000120, 0x400010]
    samples = [(addresses[draw.integers(4)], int(draw.integers(1, 3))) for _ in range(900)]
    (tmp_path / "whole.data").write_bytes(recording(samples))
    parts = [tmp_path / f"part-{n}.data" for n in range(9)]
    for n, path in enumerate(parts):
        path.write_bytes(recording(samples[n * 100 : n * 100 + 100]))
    return tmp_path / "whole.data", parts


@pytest.mark.parametrize("by", [None, "comm", "cpu"])
def test_the_sum_of_parts_is_the_whole(files, by):
    whole, parts = files
    keys = ["event", "dso", "symbol", "kind", *[by] * bool(by)]
    one = profile.load(whole).functions.groupby(keys, dropna=False)[FIGURES].sum()
    found = many.merged(parts, by=by)
    assert (
        found.functions.set_index(keys)[FIGURES].astype(int).sort_index().to_dict()
        == one.sort_index().to_dict()
    )
    assert found.functions["share"].sum() == pytest.approx(1)
    assert {name: (e.samples, e.period) for name, e in found.events.items()} == {
        name: (e.samples, e.period) for name, e in profile.load(whole).events.items()
    }


def test_the_order_of_the_files_and_who_counts_them_change_nothing(files, monkeypatch):
    _, parts = files
    monkeypatch.setattr(many, "IN_FLIGHT", 2)
    with ThreadPoolExecutor(3) as pool:
        other = many.merged(parts[::-1], executor=pool)
    assert other.functions.equals(many.merged(parts).functions)


def test_percentages_do_not_add_up(files, tmp_path):
    (tmp_path / "top.txt").write_text("# Overhead  Symbol\n    60.00%  [k] one\n    40.00%  [k] two\n")
    with pytest.raises(RxbookError, match=r"top.txt has no sample counts"):
        many.merged([files[1][0], tmp_path / "top.txt"])


def test_the_command_sums_files(files):
    whole, parts = files
    ended = subprocess.run([RXBOOK, "perf", "--sum", *parts], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    one = [line.split() for line in show.files([whole]).splitlines()]
    rows = [line.split() for line in ended.stdout.splitlines()]
    for name in ("bpf_prog_1_a", "bpf_prog_2_b"):
        assert [row for row in rows if row[:1] == [name]] == [row for row in one if row[:1] == [name]] != []
    alone = subprocess.run(
        [RXBOOK, "perf", "--cluster", "127.0.0.1:9", whole], capture_output=True, text=True
    )
    assert alone.returncode == 1 and "--cluster goes with --sum" in alone.stderr
