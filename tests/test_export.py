# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Folded stacks: those that perf script prints, each as often."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter

import pytest

from rxbook import RxbookError
from rxbook.profile import export, load

pytestmark = pytest.mark.needs_root


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    if shutil.which("perf") is None:
        pytest.skip("the perf tool is not installed")
    path = tmp_path_factory.mktemp("export") / "perf.data"
    command = ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock:k", "-F", "999", "-o", str(path)]
    subprocess.run([*command, "--", "sleep", "1"], check=True, capture_output=True)
    return path


def by_perf(path):
    """The same from perf script: heads at the margin, frames below them, a blank line between."""
    command = ["perf", "script", "-i", str(path), "-F", "comm,ip,sym"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    stacks = Counter()
    for block in printed.strip().split("\n\n"):
        head, *frames = block.splitlines()
        names = [frame.split(maxsplit=1)[1] for frame in frames]
        stacks[";".join([head.strip(), *names[::-1]])] += 1
    return stacks


def ours(path):
    return Counter(
        {stack: int(count) for stack, _, count in (line.rpartition(" ") for line in export.folded(path))}
    )


def test_each_sample_is_in_one_stack(recording):
    functions = load(recording).functions
    assert sum(ours(recording).values()) == functions["samples"].sum() > 100


def test_the_stacks_are_those_of_perf_script(recording):
    # perf and we name an address without a symbol differently
    unnamed = re.compile(r"\[unknown\]|(^|;)(0x)?[0-9a-f]{16}(;|$)")
    expected = {stack: n for stack, n in by_perf(recording).items() if not unnamed.search(stack)}
    found = {stack: n for stack, n in ours(recording).items() if not unnamed.search(stack)}
    assert len(expected) and found == expected


def test_a_recording_without_chains_gives_the_functions_alone(tmp_path):
    path = tmp_path / "flat.data"
    command = ["perf", "record", "-q", "-a", "-e", "cpu-clock:k", "-F", "999", "-o", str(path)]
    subprocess.run([*command, "--", "sleep", "0.3"], check=True, capture_output=True)
    assert all(stack.count(";") == 1 for stack in ours(path))


def test_an_event_that_is_not_there_is_refused(recording):
    with pytest.raises(RxbookError, match="no event cycles"):
        export.folded(recording, event="cycles")


def test_speedscope_has_the_fields_of_its_format(recording):
    file = json.loads(export.speedscope(recording))
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    (profile,) = file["profiles"]
    assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "nanoseconds", 0)
    frames = file["shared"]["frames"]
    assert all(isinstance(frame["name"], str) for frame in frames)
    assert len({(frame["name"], frame.get("file")) for frame in frames}) == len(frames)
    assert len(profile["samples"]) == len(profile["weights"])
    assert all(0 <= place < len(frames) for stack in profile["samples"] for place in stack)


def test_speedscope_weights_are_the_periods_of_the_folded_stacks(recording):
    file = json.loads(export.speedscope(recording))
    (profile,) = file["profiles"]
    names = [frame["name"] for frame in file["shared"]["frames"]]
    stacks = {";".join(names[place] for place in stack) for stack in profile["samples"]}
    assert stacks == set(ours(recording))
    period = load(recording).functions["period"].sum()
    assert sum(profile["weights"]) == profile["endValue"] == period
