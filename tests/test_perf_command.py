# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`rxbook perf`: one file's functions, the differences of two, and one line for a mistake."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from rxbook import RxbookError, profile
from rxbook.profile import show

TEXTS = Path(__file__).parent / "data" / "perf_text"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    if shutil.which("perf") is None:
        pytest.skip("the perf tool is not installed")
    folder = tmp_path_factory.mktemp("perf")
    for name in ("a.data", "b.data"):
        command = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "999", "-o", str(folder / name), "--"]
        done = subprocess.run([*command, "sha1sum", "/usr/bin/perf"], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"perf cannot record here: {done.stderr.strip()[:100]}")
    return folder


def test_one_file_is_a_table_of_72_columns(recordings):
    text = show.files([recordings / "a.data"])
    assert "FROM a.data" in text and "cpu-clock" in text
    assert text.isascii() and max(map(len, text.splitlines())) <= 72


def test_the_csv_has_the_samples_of_the_file(recordings):
    frame = pd.read_csv(io.StringIO(show.files([recordings / "a.data"], top=1000, form="csv")))
    rows = frame[frame["row"] == "function"].groupby("function")["samples"].sum()
    assert len(rows)
    loaded = profile.load(recordings / "a.data").functions.groupby("symbol")["samples"].sum()
    assert rows.to_dict() == loaded[loaded > 0].to_dict()


def test_two_files_are_before_and_after(recordings):
    text = show.files([recordings / "a.data", recordings / "b.data"])
    assert re.search(r"before +after +diff", text)
    assert "before: a.data" in text and "after: b.data" in text


def test_a_file_with_itself_shows_no_difference(recordings):
    frame = pd.read_csv(io.StringIO(show.files([recordings / "a.data"] * 2, form="csv")))
    differences = frame["share_points_vs_first"].dropna()
    assert len(differences) and (differences.abs() < 1e-9).all()
    assert not frame["share_points_differs"].any()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"form": "pdf"}, "--format pdf"), ({"by": "moon"}, "--by moon"), ({"top": 0}, "--top 0")],
)
def test_an_option_that_is_none_is_refused_with_those_that_there_are(options, words):
    with pytest.raises(RxbookError, match=words):
        show.files([TEXTS / "unread"], **options)


def test_prose_is_no_profile(tmp_path):
    (tmp_path / "prose.txt").write_text(
        "Dear list: this is no profile.\nWe saw that: nothing.\nMore: later\n" * 9
    )
    with pytest.raises(RxbookError, match=r"prose\.txt"):
        show.files([tmp_path / "prose.txt"])


DIFF = """# Event 'cycles'
#
# Baseline  Delta Abs  Shared Object      Symbol
# ........  .........  .................  ......
#
    60.00%    -20.00%  [kernel.kallsyms]  [k] inet_gro_receive
    40.00%    +20.00%  [kernel.kallsyms]  [k] tcp_gro_receive
"""
STAT = """ Performance counter stats for 'x' (5 runs):

             {0}      cycles                                   ( +-  {1}% )
                 7      context-switches                         ( +-  1.00% )
"""


def test_what_perf_diff_printed_is_a_comparison(tmp_path):
    (tmp_path / "diff.txt").write_text(DIFF)
    shown = show.files([tmp_path / "diff.txt"])
    assert re.search(r"^inet_gro_receive +60\.00 +40\.00 +-20\.00$", shown, re.MULTILINE)


def test_counters_of_perf_stat_are_compared_with_their_errors(tmp_path):
    for name, counted in (
        ("a", ("1,000,000", "0.50")),
        ("b", ("900,000", "0.50")),
        ("c", ("1,005,000", "0.50")),
    ):
        (tmp_path / name).write_text(STAT.format(*counted))
    shown = show.files([tmp_path / "a", tmp_path / "b"])
    assert re.search(r"^cycles +1000000 +900000 +-10\.0 \+/-1\.2$", shown, re.MULTILINE)
    shown = show.files([tmp_path / "a", tmp_path / "c"])
    assert re.search(r"^cycles .* ~ \+/-1\.4$", shown, re.MULTILINE)


def test_counters_and_functions_are_not_one_table(tmp_path):
    (tmp_path / "stat.txt").write_text(STAT.format("1", "0.50"))
    (tmp_path / "diff.txt").write_text(DIFF)
    with pytest.raises(RxbookError, match=r"stat\.txt holds counters of perf stat"):
        show.files([tmp_path / "stat.txt", tmp_path / "diff.txt"])
