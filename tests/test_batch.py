# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Batches: what a file lists, and six items with real traffic that are killed in the middle and gone on with."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from rxbook import RxbookError, runs
from rxbook.batch import items as listed
from rxbook.batch import local

RXBOOK = Path(sys.executable).parent / "rxbook"

SIX = """
items:
  - notebook: gro_on_off
    label: sizes
    parameters: {blocks: 2, window_s: 0.05, profile: false, udp_csum: computed}
    grid: {frame_sizes: [64, 512, 1518]}
repeats: 2
"""


def write(folder, text=SIX, name="night.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def of(folder, text=SIX, **more):
    return listed.items(listed.read(write(folder, text)), folder / "runs", **more)


# --- the file


def test_a_grid_makes_an_item_of_each_product_in_the_order_of_its_seed(tmp_path):
    found = of(tmp_path)
    assert len(found) == len({item.folder for item in found}) == 6
    assert sorted(item.given["frame_sizes"] for item in found) == [64, 64, 512, 512, 1518, 1518]
    assert [item.key for item in found] == [item.key for item in of(tmp_path)]
    orders = {tuple(item.key for item in of(tmp_path, SIX + f"seed: {seed}\n")) for seed in range(8)}
    assert len(orders) > 1
    written = of(tmp_path, SIX + "order: written\n")
    assert [item.given["frame_sizes"] for item in written] == [64, 512, 1518] * 2


def test_what_would_be_measured_otherwise_is_another_item(tmp_path, monkeypatch):
    keys = {item.key for item in of(tmp_path)}
    assert not keys & {item.key for item in of(tmp_path, SIX.replace("blocks: 2", "blocks: 3"))}
    assert not keys & {item.key for item in of(tmp_path, rounds=2)}
    assert not keys & {item.key for item in of(tmp_path, kernel="6.99.0 #1")}
    monkeypatch.setattr(listed, "library", lambda: "changed")
    assert not keys & {item.key for item in of(tmp_path)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("items: []", "items: List should have at least 1 item"),
        ("items: [{notebook: gro_on_of}]", "no notebook is named gro_on_of"),
        ("items: [{notebook: gro_on_off, parameters: {frame_size: 64}}]", "no parameter frame_size"),
        ("items: [{notebook: gro_on_off, parameters: {frame_sizes: 5}}]", "frame_sizes=5"),
        ("items: [{notebook: gro_on_off, grid: {blocks: [9]}, parameters: {blocks: 9}}]", "blocks is in parameters"),
        ("items: [{notebook: gro_on_off}, {notebook: gro_on_off}]", "listed twice"),
        ("items: [{notebook: gro_on_off, label: ../x}]", "items.0.label"),
        ("items: [{notebook: gro_on_off, colour: red}]", "items.0.colour: Extra inputs"),
        ("items: {", "is no YAML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text, words):
    with pytest.raises(RxbookError, match=re.escape(words)):
        of(tmp_path, text)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(RxbookError, match=r"none.yaml: No such file"):
        listed.read(tmp_path / "none.yaml")


def test_guests_take_no_testbed_of_their_own_and_hosts_are_named_by_their_file(tmp_path):
    text = "items: [{notebook: gro_on_off, parameters: {hosts: lab.yaml}}, {notebook: function_cycles, label: b, "
    text += "parameters: {before: a.data}}]\norder: written\n"
    assert [item.device for item in of(tmp_path, text)] == ["hosts:lab.yaml", None]


def test_the_time_left_is_judged_by_what_items_took(tmp_path, monkeypatch):
    found = of(tmp_path)
    now = [100.0]
    monkeypatch.setattr(local.time, "monotonic", lambda: now[0])
    progress = local.Progress(found, found)
    progress.start(found[0])
    now[0] += 2 * found[0].estimate_s
    progress.end(found[0], None)
    assert progress.left_s() == pytest.approx(2 * sum(item.estimate_s for item in found[1:]))


# --- real runs


def command(path, *more):
    return [RXBOOK, "batch", path, "--runs-dir", path.parent / "runs", *more]


def finish(path, *more):
    return subprocess.run(command(path, *more), capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Six items, killed by kill -9 once two are done and one has begun; then the same command again."""
    path = write(tmp_path_factory.mktemp("batch"))
    folder = path.parent / "runs"
    first = subprocess.Popen(command(path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        done = 0
        for line in first.stdout:
            done += "done in" in line
            if done == 2 and re.match(r"item 3/6, \d+:\d\d left", line):
                break
        started = wait_for(
            lambda: [p for p in folder.glob("*/samples.csv") if not (p.parent / "run.json").exists()]
        )
        children = descendants(first.pid)
        os.kill(first.pid, signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    kept = {path.parent.name: path.read_text() for path in folder.glob("*/run.json")}
    gone = wait_for(lambda: not any(alive(pid) for pid in children))
    return path, finish(path), kept, gone and bool(children), started


def wait_for(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def descendants(pid):
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.needs_root
def test_a_killed_batch_leaves_no_process(killed):
    assert killed[3]


@pytest.mark.needs_root
def test_the_next_call_goes_on_and_runs_no_item_twice(killed):
    path, ended, kept, _, started = killed
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("cached") == 2 and len(kept) == 2
    assert len(started) <= 1
    assert "6 of 6 items done, 0 failed" in ended.stdout
    folders = [folder for folder in (path.parent / "runs").iterdir() if folder.is_dir()]
    assert len(folders) == 6
    for folder in folders:
        run = runs.load(folder)
        assert run.status == "finished" and len(run.samples) == 4
        assert json.loads((folder / listed.RESULT).read_text())["error"] is None
        assert (folder / "report.html").exists() and (folder / "notebook.ipynb").exists()
        assert kept.get(folder.name, (folder / "run.json").read_text()) == (folder / "run.json").read_text()
    sizes = pd.concat(runs.load(folder).samples for folder in folders).groupby("frame_size").size()
    assert sizes.to_dict() == {64: 8, 512: 8, 1518: 8}


@pytest.mark.needs_root
def test_a_finished_batch_is_all_cached_and_again_plans_it_anew(killed):
    ended = finish(killed[0])
    assert ended.returncode == 0 and ended.stdout.count("cached") == 6
    dry = finish(killed[0], "--again", "--dry-run")
    assert "6 of 6 items to run" in dry.stdout and "cached" not in dry.stdout
    assert finish(killed[0]).stdout.count("cached") == 6


FAILING = """
order: written
items:
  - {notebook: function_cycles, label: wrong, parameters: {before: broken.data}}
  - {notebook: function_cycles, label: right, parameters: {before: right.txt}}
"""
PRINTED = (
    "# Samples: 10  of event 'cpu-clock'\n# Overhead  Symbol\n    60.00%  [k] one\n    40.00%  [k] two\n"
)


def test_a_failed_item_does_not_stop_the_rest_and_keeps_its_error(tmp_path):
    (tmp_path / "broken.data").write_text("no profile\n")
    (tmp_path / "right.txt").write_text(PRINTED)
    text = FAILING.replace("broken.data", str(tmp_path / "broken.data"))
    path = write(tmp_path, text.replace("right.txt", str(tmp_path / "right.txt")))
    stopped = finish(path, "--stop-on-error")
    assert (
        stopped.returncode == 1
        and "FAILED" in stopped.stdout
        and " 0 of 2 items done, 1 failed" in stopped.stdout
    )
    ended = finish(path)
    assert ended.returncode == 1 and "failed before: --retry-failed" in ended.stdout
    assert "1 of 2 items done, 1 failed" in ended.stdout
    (wrong,) = (tmp_path / "runs").glob("night-wrong-*/notebook.ipynb")
    said = json.loads((wrong.parent / listed.RESULT).read_text())["error"]
    assert "broken.data" in said and "RxbookError" in wrong.read_text()
    (tmp_path / "broken.data").unlink()
    (tmp_path / "broken.data").write_text(PRINTED)
    retried = finish(path, "--retry-failed")
    assert retried.returncode == 0 and "2 of 2 items done, 0 failed" in retried.stdout


# --- on worker processes

MIXED = """
items:
  - notebook: gro_on_off
    label: sizes
    parameters: {blocks: 4, window_s: 0.05, profile: false, udp_csum: computed}
    grid: {frame_sizes: [64, 1518]}
  - {notebook: function_cycles, label: printed, parameters: {before: PRINTED}}
"""


def process_of(pids, words):
    """The process among these whose command line holds the words."""
    for pid in pids:
        try:
            if words in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                return pid
        except OSError:
            continue
    return None


@pytest.mark.needs_root
def test_a_lost_worker_loses_its_item_to_another_and_a_device_is_never_held_twice(tmp_path):
    """The worker that holds the testbed is killed while its item measures; one without a device reads the profile."""
    (tmp_path / "printed.txt").write_text(PRINTED)
    path = write(tmp_path, MIXED.replace("PRINTED", str(tmp_path / "printed.txt")))
    batch = subprocess.Popen(
        command(path, "--local-cluster"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        child = wait_for(lambda: process_of(descendants(batch.pid), "rxbook.testbeds"), 90)
        (item,) = [pid for pid in descendants(batch.pid) if child in descendants(pid) and is_item(pid)]
        worker = int(Path(f"/proc/{item}/stat").read_text().rpartition(")")[2].split()[1])
        started = descendants(worker)
        os.kill(worker, signal.SIGKILL)
        gone = wait_for(lambda: not any(alive(pid) for pid in started))
        said = batch.communicate(timeout=200)[0]
    finally:
        batch.kill()
        batch.wait()
    assert gone and child
    assert batch.returncode == 0, said
    assert "3 of 3 items done, 0 failed" in said
    measured = [runs.load(p.parent) for p in (tmp_path / "runs").glob("*/run.json")]
    assert sorted(run.plan.frame_sizes[0] for run in measured) == [64, 1518]
    spans = sorted((run.samples["start_utc"].min(), run.samples["start_utc"].max()) for run in measured)
    assert spans[0][1] < spans[1][0]
    assert all(len(run.samples) == 8 and run.status == "finished" for run in measured)
    assert not [p for p in (tmp_path / "runs").iterdir() if p.name.startswith(".part-")]


def is_item(pid):
    return process_of([pid], "rxbook.batch.child") is not None


def test_a_scheduler_that_does_not_answer_is_said(tmp_path):
    ended = finish(write(tmp_path), "--cluster", "127.0.0.1:9")
    assert (
        ended.returncode == 1 and "no scheduler answers" in ended.stderr and "Traceback" not in ended.stderr
    )
