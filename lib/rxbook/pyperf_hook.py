# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The pyperf hook `rxbook`: perf on whole CPUs while a benchmark's timed code runs, the functions as metadata.

pyperf's own hook perf_record attaches to the benchmark's process, and so misses kernel threads, interrupts and
other processes. Settings are environment variables, which pyperf hands on if told to:
--inherit-environ RXBOOK_PERF_CPUS,RXBOOK_PERF_DIR.

RXBOOK_PERF_CPUS: the CPUs to record, as "1" or "0-3,5"; all by default.
RXBOOK_PERF_DIR: a folder that keeps the recordings; without it they go once the table is made.

Samples cost time in the timed code, as with perf_record: compare values with values under the same hook alone.
pyperf makes a hook for the warm-ups of a process and another for its values; the metadata are of the latter.
This module runs in the measured process and imports only what is small.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from pyperf._hooks import HookBase, HookError  # pyperf exports them nowhere else

from rxbook import RxbookError
from rxbook.kernel import facts, perf_tool

__all__ = ["Rxbook"]

CPUS, KEEP = "RXBOOK_PERF_CPUS", "RXBOOK_PERF_DIR"
CONTROL = "RXBOOK_PERF_CONTROL"
"""Folder of a recording's fifos, for the process that pyperf starts to time a command: it has a hook, too."""

TABLE_S = 120


class Rxbook(HookBase):
    """Records whole CPUs while the timed code runs. HookError where perf is missing or refuses."""

    def __init__(self) -> None:
        self._recording: perf_tool.Recording | None = None
        try:
            if CONTROL in os.environ:
                self._control = perf_tool.Control(Path(os.environ[CONTROL]))
                self._switch("disable")
            else:
                self._start()
        except (RxbookError, OSError) as error:
            raise HookError(str(error)) from error

    def _start(self) -> None:
        self._cpus = _cpus_asked_for()
        self._folder = perf_tool.temporary_folder()
        kept = os.environ.get(KEEP, "")
        place = Path(kept or self._folder.name).absolute()
        place.mkdir(parents=True, exist_ok=True)
        perf_tool.save_kallsyms(place, Path("/proc/kallsyms").read_bytes())
        self._data = place / f"perf.data.{uuid.uuid4().hex[:12]}"
        self._recording = perf_tool.Recording(
            perf_tool.record_command(self._cpus), self._data, Path(self._folder.name)
        )
        self._control = self._recording.control
        os.environ[CONTROL] = self._folder.name

    def _switch(self, word: str) -> None:
        try:
            self._control.obey(word)
        except RxbookError as error:
            raise HookError(str(error)) from error

    def __enter__(self) -> None:
        self._switch("enable")

    def __exit__(self, *_: object) -> None:
        self._switch("disable")

    def teardown(self, metadata: dict[str, Any]) -> None:
        """Add the profile's headline (see `profile.headline`), and what was recorded."""
        if self._recording is None:
            self._control.close()
            return
        del os.environ[CONTROL]
        metadata["rxbook_cpus"] = self._cpus or "all"
        with self._folder:
            try:
                self._recording.stop()
                metadata |= _headline(self._data)
            except RxbookError as error:  # the benchmark's values are good all the same
                metadata["rxbook_warning"] = f"no profile: {error}"
        if self._data.exists():
            metadata["rxbook_perf_data"] = str(self._data)


def _cpus_asked_for() -> str:
    asked = os.environ.get(CPUS, "").strip()
    if not asked:
        return ""
    if not re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", asked):
        raise RxbookError(f'{CPUS}={asked}: name CPUs as "1" or "0-3,5"')
    online = facts.cpus()["online"]
    # perf itself would take those that there are, or end without a word
    if missing := sorted(set(facts.cpu_list(asked)) - set(online)):
        raise RxbookError(f"{CPUS}={asked}: not online: {', '.join(map(str, missing[:5]))}")
    return asked


def _headline(data: Path) -> dict[str, str | int]:
    command = [sys.executable, "-P", "-m", "rxbook.profile.headline", str(data)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TABLE_S)
    except subprocess.TimeoutExpired:
        raise RxbookError(f"{data.name} was not read within {TABLE_S} s") from None
    if done.returncode:
        raise RxbookError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
    return json.loads(done.stdout)
