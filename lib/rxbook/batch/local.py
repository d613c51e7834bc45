# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Works off a batch on this machine, one item after the other, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rxbook import RxbookError, doctor, runs
from rxbook.batch import items as listed
from rxbook.batch.items import Batch, Item, items, left, read, state
from rxbook.testbeds.lock import BUSY, Lock

__all__ = ["Options", "Progress", "begin", "conclude", "plan_lines", "run", "run_item"]

LEAVE_S = 20.0
"""How long an interrupted item may take to put everything back."""

BUSY_S = 600.0
"""So long an item waits for another run to end, as one that a killed batch left does within seconds."""


@dataclass(frozen=True)
class Options:
    """What a batch is asked for beside its file."""

    dry_run: bool = False
    again: bool = False
    retry_failed: bool = False
    stop_on_error: bool = False


def run(file: Path, runs_dir: Path | None, options: Options) -> int:
    """Work off a batch file. Returns the exit status: 0, or 1 where an item failed.

    What is done already is told as cached. Raises RxbookError for a wrong file, KeyboardInterrupt with how to go on.
    """
    batch, found, todo = begin(file, runs_dir, options)
    for line in plan_lines(found, todo):
        print(line, flush=True)
    if options.dry_run:
        return 0
    _refuse_where_nothing_can_be_measured(todo)
    progress = Progress(found, todo)
    try:
        for item in todo:
            progress.start(item)
            error = run_item(item, progress.tick)
            progress.end(item, error)
            if error and options.stop_on_error:
                break
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command goes on where it stopped") from None
    return conclude(batch, found)


def begin(
    file: Path, runs_dir: Path | None, options: Options, kernel: str | None = None
) -> tuple[Batch, list[Item], list[Item]]:
    """The batch, all its items, and those that are still to be run. `again` begins a new round of all."""
    batch = read(file)
    folder = (runs_dir or (file.parent / batch.runs_dir if batch.runs_dir else runs.RUNS)).absolute()
    record = folder / f"{batch.name}.rounds.json"
    rounds = json.loads(record.read_text()) if record.exists() else 1
    if options.again:
        rounds += 1
        if not options.dry_run:
            folder.mkdir(parents=True, exist_ok=True)
            runs.write_json(record, rounds)
    found = items(batch, folder, rounds, kernel)
    return batch, found, left(found, options.retry_failed)


def plan_lines(found: Sequence[Item], todo: Sequence[Item]) -> Iterator[str]:
    """What will be done, and how long that takes."""
    for item in found:
        said = {"done": "cached", "failed": "failed before: --retry-failed runs it"}
        what = f"about {minutes(item.estimate_s)}" if item in todo else said[state(item)]
        what += " (goes on)" * (item in todo and state(item) == "started")
        yield f"{what:>12}  {item.words}"
    seconds = sum(item.estimate_s for item in todo)
    yield f"{len(todo)} of {len(found)} items to run: about {minutes(seconds)}"


def _refuse_where_nothing_can_be_measured(todo: Sequence[Item]) -> None:
    if any(item.device == "veth" for item in todo):
        guests_only = all("variants" in item.given for item in todo if item.device == "veth")
        able, reasons = (True, []) if guests_only else doctor.can_run_live(doctor.checks())
        if not able:
            raise RxbookError(f"nothing can be measured here: {'; '.join(reasons)}")


def run_item(item: Item, tick: Callable[[], None] = lambda: None) -> str | None:
    """Run one item to its end. Returns what went wrong, if anything; its folder says so, too.

    tick: called once a second. Ctrl-C ends the item first, so that it can put everything back.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        if state(item) == "failed":
            (item.folder / listed.RESULT).unlink()
            (item.folder / "report.html").unlink(missing_ok=True)
        error = _run_once(item, tick)
        if error is None or BUSY not in error or time.monotonic() > deadline:
            return error
        _wait_for_the_testbed(deadline, tick)


def _run_once(item: Item, tick: Callable[[], None]) -> str | None:
    asked = {
        "notebook": item.notebook,
        "folder": str(item.folder),
        "given": item.given,
        "parent": os.getpid(),
    }
    item.folder.parent.mkdir(parents=True, exist_ok=True)
    log = item.folder.parent / f"{item.folder.name}.out"
    with open(log, "wb") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "rxbook.batch.child"], stdin=subprocess.PIPE, stdout=said, stderr=said,
            start_new_session=True, text=False,
        )  # fmt: skip
    try:
        child.stdin.write(json.dumps(asked, default=str).encode() + b"\n")
        child.stdin.close()
        while True:
            try:
                child.wait(1.0)
                break
            except subprocess.TimeoutExpired:
                tick()
    except BaseException:
        os.killpg(child.pid, signal.SIGINT)
        _wait_or_kill(child)
        raise
    error = _outcome(item, child.returncode, log)
    if item.folder.exists():
        shutil.move(log, item.folder / "batch.out")
    return error


def _wait_or_kill(child: subprocess.Popen) -> None:
    timer = threading.Timer(LEAVE_S, child.kill)
    timer.start()
    child.wait()
    timer.cancel()


def _outcome(item: Item, status: int, log: Path) -> str | None:
    try:
        return json.loads((item.folder / listed.RESULT).read_text())["error"]
    except (OSError, ValueError):
        pass
    lines = log.read_text(errors="replace").strip().splitlines()
    error = f"its process ended with status {status}" + f": {lines[-1]}" * bool(lines)
    listed.note_end(item.folder, error, None, notebook=item.notebook, parameters=item.given)
    return error


def _wait_for_the_testbed(deadline: float, tick: Callable[[], None]) -> None:
    """Until no other run holds this machine's testbed, or the deadline has come."""
    while time.monotonic() < deadline:
        lock = Lock("a batch")
        try:
            lock.acquire()
        except RxbookError:
            tick()
            time.sleep(1.0)
        else:
            lock.release()
            return


class Progress:
    """A line for each item that begins and ends; in a terminal the last one counts down."""

    def __init__(self, found: Sequence[Item], todo: Sequence[Item]):
        self._total, self._before = len(found), len(found) - len(todo)
        self._todo = list(todo)
        self._spent_s = self._guessed_s = 0.0
        self._done = 0
        self._now: tuple[Item, float] | None = None

    def start(self, item: Item) -> None:
        """An item begins."""
        self._now = item, time.monotonic()
        if not sys.stderr.isatty():
            print(self._line(), file=sys.stderr, flush=True)
        self.tick()

    def tick(self) -> None:
        """Time passes."""
        if sys.stderr.isatty():
            print(f"\r\033[K{self._line()[:120]}", end="", file=sys.stderr, flush=True)

    def end(self, item: Item, error: str | None) -> None:
        """The item that began last has ended."""
        took_s = time.monotonic() - self._now[1]
        self._now = None
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self.took(item, error, took_s)

    def took(self, item: Item, error: str | None, took_s: float) -> None:
        """An item has ended after so many seconds."""
        self._spent_s += took_s
        self._guessed_s += item.estimate_s
        self._done += 1
        print(f"{'FAILED' if error else 'done':>6} in {minutes(took_s)}  {item.words}", flush=True)
        print(f"        {error or item.folder}", flush=True)

    def left_s(self) -> float:
        """Guess of the time left, corrected by what the items so far took against their guesses."""
        factor = self._spent_s / self._guessed_s if self._guessed_s else 1.0
        left_s = factor * sum(item.estimate_s for item in self._todo[self._done :])
        return max(0.0, left_s - (time.monotonic() - self._now[1] if self._now else 0.0))

    def _line(self) -> str:
        place = self._before + self._done + 1
        return f"item {place}/{self._total}, {minutes(self.left_s())} left: {self._now[0].words}"


def conclude(batch: Batch, found: Sequence[Item]) -> int:
    """Say how many items ended how. Returns the exit status."""
    states = [state(item) for item in found]
    print(
        f"batch {batch.name}: {states.count('done')} of {len(found)} items done, {states.count('failed')} failed"
    )
    return 1 if "failed" in states else 0


def minutes(seconds: float) -> str:
    """`1:05`, or `2:03:04`."""
    whole = round(seconds)
    hours = f"{whole // 3600}:{whole // 60 % 60:02}" if whole >= 3600 else f"{whole // 60}"
    return f"{hours}:{whole % 60:02}"
