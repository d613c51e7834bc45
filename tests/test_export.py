# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Stacks for flame-graph viewers: those that perf script prints, each as often."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections import Counter

import pytest

from perf_files import KERNEL, KERNEL_MARK, Recording
from rxbook import RxbookError
from rxbook.profile import export, load

needs_root = pytest.mark.needs_root


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """The kernel's own work with chains, where this user may record it; else one that was made."""
    path = tmp_path_factory.mktemp("export") / "perf.data"
    if shutil.which("perf") is None or os.geteuid():
        path.write_bytes(made())
        return path
    command = ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock:k", "-F", "999", "-o", str(path)]
    subprocess.run([*command, "--", "sleep", "1"], check=True, capture_output=True)
    return path


def made():
    recording = Recording()
    recording.mmap(0, -1, 0xFFFFFFFF81000000, 0x1000000, "[kernel.kallsyms]_text", 0xFFFFFFFF81000000, KERNEL)
    recording.comm(1, 1, "one").comm(1, 2, "two")
    for i in range(200):
        chain = (KERNEL_MARK, 0xFFFFFFFF81000010 + i % 7, 0xFFFFFFFF81000100 + i % 3)
        recording.sample(10 + i, chain[1], chain, tid=1 + i % 2, mode=KERNEL)
    return bytes(recording)


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
        {
            stack: int(count)
            for stack, _, count in (line.rpartition(" ") for line in export.folded(path).splitlines())
        }
    )


def test_each_sample_is_in_one_stack(recording):
    functions = load(recording).functions
    assert sum(ours(recording).values()) == functions["samples"].sum() > 100


@needs_root
def test_the_stacks_are_those_of_perf_script(recording):
    # perf and we name an address without a symbol differently
    unnamed = re.compile(r"\[unknown\]|(^|;)(0x)?[0-9a-f]{16}(;|$)")
    expected = {stack: n for stack, n in by_perf(recording).items() if not unnamed.search(stack)}
    found = {stack: n for stack, n in ours(recording).items() if not unnamed.search(stack)}
    assert len(expected) and found == expected


@needs_root
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


TABLES = {
    "stackTable": "frame prefix category subcategory",
    "frameTable": "address inlineDepth category subcategory func nativeSymbol innerWindowID implementation line column",
    "funcTable": "name isJS relevantForJS resource fileName lineNumber columnNumber",
    "resourceTable": "lib name host type",
    "nativeSymbols": "libIndex address name functionSize",
    "markers": "data name startTime endTime phase category",
    "samples": "stack time weight",
}
"""Columns of a thread's tables in version 48 of the processed format."""


def firefox_stacks(thread):
    """Walk the tables as the viewer does: folded stack and weight of each sample."""
    stacks, frames, functions = thread["stackTable"], thread["frameTable"], thread["funcTable"]
    for leaf, weight in zip(thread["samples"]["stack"], thread["samples"]["weight"], strict=True):
        names, node = [], leaf
        while node is not None:
            function = frames["func"][stacks["frame"][node]]
            names.append(thread["stringArray"][functions["name"][function]])
            node = stacks["prefix"][node]
        yield ";".join([thread["name"], *names[::-1]]), weight


def test_firefox_has_the_tables_of_its_format(recording):
    file = json.loads(export.firefox(recording))
    assert file["meta"]["preprocessedProfileVersion"] == 48
    assert "grey" in {category["color"] for category in file["meta"]["categories"]}
    assert sum(thread["isMainThread"] for thread in file["threads"]) == 1
    for thread in file["threads"]:
        for table, columns in TABLES.items():
            lengths = {len(thread[table][column]) for column in columns.split()}
            assert lengths == {thread[table]["length"]}, table
        assert all(prefix is None or prefix < i for i, prefix in enumerate(thread["stackTable"]["prefix"]))
        assert max(thread["frameTable"]["category"]) < len(file["meta"]["categories"])
        assert max(thread["resourceTable"]["lib"]) < len(file["libs"])


def test_firefox_shows_the_folded_stacks_in_milliseconds(recording):
    file = json.loads(export.firefox(recording))
    found = [stack for thread in file["threads"] for stack in firefox_stacks(thread)]
    assert {stack for stack, _ in found} == set(ours(recording))
    period = load(recording).functions["period"].sum()
    assert sum(weight for _, weight in found) == pytest.approx(period / 1e6)
    assert {thread["samples"]["weightType"] for thread in file["threads"]} == {"tracing-ms"}


FORMS = list(export.FORMS.values())


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_recording_is_refused(form, tmp_path):
    path = tmp_path / "perf.data"
    path.write_bytes(b"no recording")
    with pytest.raises(RxbookError, match=r"is not a perf\.data file"):
        form(path)
    with pytest.raises(RxbookError, match="cannot read"):
        form(tmp_path / "absent")


@pytest.mark.parametrize("form", FORMS)
def test_damaged_recordings_give_a_part_or_a_clear_error(form, recording, tmp_path):
    whole = recording.read_bytes()
    path = tmp_path / "perf.data"
    chance = random.Random(1)
    for _ in range(15):
        damaged = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
        for _ in range(chance.randrange(200)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            form(path)
        except RxbookError as error:
            assert "perf.data" in str(error)


@pytest.mark.parametrize("form", FORMS)
def test_a_recording_without_samples_is_refused(form, tmp_path):
    path = tmp_path / "perf.data"
    path.write_bytes(bytes(Recording()))
    with pytest.raises(RxbookError, match="has no samples to show"):
        form(path)


def test_what_makes_the_stacks_partial_is_said(tmp_path):
    path = tmp_path / "perf.data"
    recording = Recording(events=((1, 0), (1, 2)), compress=True)
    recording.sample(1, 0x1000).sample(2, 0x1000, event=1)
    recording.record(2, recording.pack("QQ", 100, 3) + recording.trailer(40))
    path.write_bytes(bytes(recording))
    for form, lines in ((export.folded, 2), (export.speedscope, 1)):
        said = []
        form(path, warn=said.append)
        assert len(said) == lines and said[0].startswith("3 samples were lost")
    said = []
    export.folded(path, warn=said.append)
    assert said[1].startswith("only cpu-clock") and "page-faults" in said[1]
