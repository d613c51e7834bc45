# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A patch series: the kernel at each of its points is built, put into the store, and measured in one run.

All points are built from one worktree of our own and at one path, so that make builds only what a commit changed: a
point starts from a copy of the build folder of the point that differs in the fewest files. The user's checkout is
never touched, nor are its build products.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rxbook import RxbookError, execute
from rxbook.guests import building, kernels, qemu
from rxbook.guests.building import Built, Place
from rxbook.guests.kernels import Kernel

__all__ = ["Point", "build", "compare", "points"]

BUILT = ".rxbook-built"
LABEL_LENGTH = 30


@dataclass(frozen=True)
class Point:
    """A commit of a series, its full hash, and the label of its kernel."""

    label: str
    commit: str


def compare(
    tree: Path, named: list[str], config: str, notebook: str, given: dict[str, str], jobs: int | None,
    runs_dir: Path | None,
) -> None:  # fmt: skip
    """Build the kernel at each named point and run a notebook with these as variants, as `rxbook series` does.

    jobs: of make, None for one on each CPU. given: parameters of the notebook. Raises RxbookError for what a user can
    put right, KeyboardInterrupt that says what is kept.
    """
    if "variants" in given:
        raise RxbookError("the points of the series are the variants: leave --set variants out")
    series = points(tree, named)
    given = given | {"variants": ",".join(point.label for point in series)}
    execute.planned(notebook, given)  # a wrong parameter is told before minutes of make
    qemu.require()
    try:
        for kernel in build(tree, series, config, jobs or len(os.sched_getaffinity(0))):
            print(kernels.line(kernel))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; what was built stays, the same command goes on") from None
    execute.run(notebook, given, None, runs_dir)


def points(tree: Path, named: list[str]) -> list[Point]:
    """The points of a series, each named "COMMIT" or "LABEL=COMMIT"; without a label it is made of hash and subject.

    Raises RxbookError where git knows no such commit, a label cannot be one, or two are the same.
    """
    found = []
    for name in named:
        label, equals, commit = name.rpartition("=")
        if equals:
            kernels.check_label(label)
        if not commit.strip():
            raise RxbookError(f"{name or 'a point'}: no commit; write COMMIT or LABEL=COMMIT")
        told = _git(
            tree, "log", "-1", "--no-show-signature", "--format=%H %h %s", "--end-of-options", commit, "--"
        )
        full, short, subject = told.strip().split(" ", 2)
        found.append(Point(label or _label(short, subject), full))
    labels = [point.label for point in found]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice:
        raise RxbookError(f"two points have the label {twice}: write LABEL=COMMIT")
    return found


def _label(short: str, subject: str) -> str:
    """ "48b2fd6 enable GRO, skbs fro": the subject without its "net: gro:", in the letters of labels."""
    words = re.sub(r"[^A-Za-z0-9 ._:+-]+", " ", subject.rpartition(": ")[2])
    return f"{short} {' '.join(words.split())}"[:LABEL_LENGTH].strip()


def build(tree: Path, series: list[Point], config: str, jobs: int) -> list[Kernel]:
    """Build each point where it was not built before, and put it into the store under its label.

    Says how far it is. What was built stays, also where a later point fails or all is interrupted: then the same call
    goes on from there. Raises RxbookError at the first point that cannot be built.
    """
    wanted = building.configuration(config)
    _warn_of_uncommitted(tree)
    place = _workplace(tree)
    with _held(place) as lock, _ended_as_by_ctrl_c():
        # left by a make that was killed, which had no time to remove what was half made
        shutil.rmtree(place / "build", ignore_errors=True)
        keys = {point: _key(point, wanted) for point in series}
        added = []
        for number, point in enumerate(series, 1):
            head, folder = f"{number}/{len(series)} {point.label}", place / f"point-{keys[point]}"
            if (folder / BUILT).exists():
                print(f"{head}: was built before", flush=True)
            else:
                start = _nearest(tree, place, point, keys[point])
                built = _build_point(tree, place, point, keys[point], start, config, wanted, jobs, head, lock)
                seconds = int(built.seconds)
                origin = ", from the nearest point's folder" if start and start != folder else ""
                print(f"{head}: built in {seconds // 60}:{seconds % 60:02}, {built.files} files compiled{origin}",
                      flush=True)  # fmt: skip
            added.append(
                kernels.add_tree(point.label, folder, source=f"{tree.resolve().name} {point.commit[:12]}")
            )
        for other in place.glob("point-*"):
            if other.name.removeprefix("point-").removesuffix(".log") not in keys.values():
                shutil.rmtree(other) if other.is_dir() else other.unlink()
    return added


def _build_point(
    tree: Path, place: Path, point: Point, key: str, start: Path | None, config: str, wanted: str, jobs: int, head: str,
    lock: int,
) -> Built:  # fmt: skip
    source, folder = place / "source", place / "build"
    if start and start.name == f"point-{key}":
        start.rename(folder)
    else:
        _begin(start, folder)
    try:
        print(f"{head}: source at {point.commit[:12]}", flush=True)
        _check_out(tree, source, point.commit)
        there = Place(source, folder, place / f"point-{key}.log", lock)
        refused = building.configure(there, config, wanted)
        if refused:
            print(f"{head}: WARNING: this tree leaves unset {', '.join(refused)}", file=sys.stderr)
        with _Progress(head) as progress:
            built = building.build(there, jobs, progress)
        (folder / BUILT).write_text(json.dumps({"commit": point.commit, "seconds": built.seconds}) + "\n")
        return built
    except RxbookError as error:
        raise RxbookError(f"{point.label}: {error}. Nothing was measured; what was built stays") from None
    finally:
        folder.rename(place / f"point-{key}")


def _begin(start: Path | None, folder: Path) -> None:
    """A copy, with all times, by which make tells what is to be done; under its name only when complete."""
    partial = folder.with_name("copy")
    shutil.rmtree(partial, ignore_errors=True)
    if start:
        done = subprocess.run(["cp", "-a", "--reflink=auto", start, partial], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(partial, ignore_errors=True)
            raise RxbookError(f"the build folder cannot be copied: {done.stderr.strip().splitlines()[-1]}")
        (partial / BUILT).unlink(missing_ok=True)
    else:
        partial.mkdir()
    partial.rename(folder)


def _nearest(tree: Path, place: Path, point: Point, key: str) -> Path | None:
    """The build folder to start from: the point's own, else of those that were built, or of the others where none was,
    that which differs in the fewest files.
    """
    folders = {path.name.removeprefix("point-"): path for path in place.glob("point-*") if path.is_dir()}
    if key in folders:
        return folders[key]
    configured = key.partition("-")[2]
    distances = {}
    for other, path in folders.items():
        if other.partition("-")[2] == configured:
            with contextlib.suppress(RxbookError):  # of a commit that is gone
                changed = _git(tree, "diff", "--name-only", other.partition("-")[0], point.commit, "--")
                distances[path] = (not (path / BUILT).exists(), changed.count("\n"))
    return min(distances, key=distances.__getitem__, default=None)


def _key(point: Point, wanted: str) -> str:
    """Names a build folder: the commit, and a hash of what else decides on the kernel."""
    words = json.dumps([wanted, {name: os.environ.get(name) for name in ("ARCH", "LLVM")}])
    return f"{point.commit}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"


def _workplace(tree: Path) -> Path:
    """A folder of ours for this repository, whichever of its worktrees is named."""
    common = _git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
    name = re.sub(r"[^A-Za-z0-9._-]", "_", tree.resolve().name)
    return kernels.store().parent / "series" / f"{name}-{hashlib.sha256(common.encode()).hexdigest()[:8]}"


@contextlib.contextmanager
def _held(place: Path) -> Iterator[int]:
    """The folder is for one series at a time. Gives the file that is locked."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RxbookError(f"another series is being built in {place}: wait for it, or end it") from None
        yield lock.fileno()


@contextlib.contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """A terminal that is closed, or a kill, ends make in good order too."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    taken = [each for each in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(each) == signal.SIG_DFL]
    for each in taken:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def _check_out(tree: Path, source: Path, commit: str) -> None:
    """Files that do not change keep their times. The repository's hooks are for its user, not for us."""
    try:
        lock = _git(source, "rev-parse", "--path-format=absolute", "--git-path", "index.lock").strip()
    except RxbookError:
        shutil.rmtree(source, ignore_errors=True)
        # forced, as git may remember a folder of this name that somebody removed
        _git(tree, "worktree", "add", "--quiet", "--force", "--detach", str(source), commit)
    else:
        Path(lock).unlink(missing_ok=True)  # of a git that was killed; nobody else works here
        _git(source, "checkout", "--quiet", "--force", "--detach", commit)


def _warn_of_uncommitted(tree: Path) -> None:
    if _git(tree, "rev-parse", "--is-inside-work-tree").strip() != "true":
        return
    changed = _git(tree, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no").splitlines()
    if changed:
        print(
            f"WARNING: changes in {tree} that are not committed are not built: {len(changed)} files",
            file=sys.stderr,
        )


def _git(tree: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), "-c", "core.hooksPath=/dev/null", *words],
            env=building.environment(), capture_output=True, text=True, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        raise RxbookError("git is not installed. Debian: apt install git; Fedora: dnf install git") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"git {words[0]} ended with status {done.returncode}"]
        raise RxbookError(f"{tree}: {said[0].removeprefix('fatal: ')}")
    return done.stdout


class _Progress:
    """One line on how far make is: replaced each second in a terminal, else another each half minute."""

    def __init__(self, head: str):
        self._head, self._terminal = head, sys.stderr.isatty()
        self._start = self._last = time.monotonic()

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, files: int, line: str) -> None:
        now = time.monotonic()
        if now - self._last < (1 if self._terminal else 30):
            return
        self._last, seconds = now, int(now - self._start)
        words = f"{self._head}: {seconds // 60}:{seconds % 60:02}, {files} files, {line}"
        print(f"\r\033[K{words[:100]}" if self._terminal else words, end="" if self._terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
