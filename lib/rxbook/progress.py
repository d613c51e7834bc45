# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One line on how far a run is, in a notebook, and in a terminal by reading the run's samples file.

Printed between windows only, or once a second by another process: neither takes a CPU from a window for long.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rxbook.plan import Cell

__all__ = ["NotebookProgress", "line", "profile_line", "windows_in"]


def line(done: int, total: int, per_block: int, elapsed_s: float, now: str = "") -> str:
    """ "block 3/40, window 26/480, 1:52 left, ..." ; the time left is judged by the windows done."""
    left = "" if done == 0 else f", {_minutes(elapsed_s / done * (total - done))} left"
    block = min(done // per_block + 1, total // per_block)
    return f"block {block}/{total // per_block}, window {done}/{total}{left}" + (f", {now}" if now else "")


def profile_line(done: int, total: int) -> str:
    """ "profile 7/36" ; these windows come after all others."""
    return f"profile {done}/{total}"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def windows_in(samples: Path) -> int:
    """Windows written so far to a samples.csv; 0 where there is none yet."""
    try:
        return max(0, samples.read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0


class NotebookProgress:
    """Reports to the notebook's own output, replaced in place; to a terminal where there is no notebook."""

    def __init__(self, per_block: int):
        self._per_block, self._done = per_block, 0
        self._start = self._last = time.monotonic()
        self._handle = _display_handle()

    def __call__(self, done: int, total: int, cell: Cell) -> None:
        """Called after each window; writes at most twice a second."""
        now, self._done = time.monotonic(), done
        if now - self._last < 0.5:
            return
        self._last = now
        self._show(line(done, total, self._per_block, now - self._start, cell.label()))

    def profile(self, done: int, total: int) -> None:
        """Called after each recording."""
        self._show(profile_line(done, total))

    def _show(self, words: str) -> None:
        if self._handle:
            self._handle.update({"text/plain": words}, raw=True)
        elif sys.stderr.isatty():
            print(f"\r\033[K{words[:100]}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal on a fresh line, and say how long it took."""
        self._show(f"{self._done} windows in {_minutes(time.monotonic() - self._start)}")
        if not self._handle and sys.stderr.isatty():
            print(file=sys.stderr)


def _display_handle() -> object | None:
    """A place in the notebook's output that can be replaced; None outside a notebook."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.display import display

    return display({"text/plain": "setting up the testbed"}, raw=True, display_id=True)
