# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf record of whole CPUs: its command, and a recording that is switched on and off while it runs."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path

from rxbook import RxbookError
from rxbook.kernel import probes
from rxbook.kernel.lifetime import die_with_parent

__all__ = [
    "FOLDERS",
    "FREQUENCY",
    "Control",
    "Recording",
    "record_command",
    "save_kallsyms",
    "temporary_folder",
]

FREQUENCY = 4999
"""Samples per second: off the round numbers at which the kernel's own work comes."""

START_S, ANSWER_S, STOP_S = 20.0, 10.0, 60.0
"""How long perf may take to be ready, to obey, and to write what it has."""

CONTROL, ANSWERS = "control", "answers"

FOLDERS = "rxbook-perf-"
"""How the names of temporary folders of recordings begin; the process follows, so that its end frees them."""


def record_command(cpus: str) -> list[str]:
    """perf record of these CPUs ("1", "0-3,5"; "" for all), whatever runs there; add "-o" and a file.

    Samples cycles where the machine counts them, else time (cpu-clock). Raises RxbookError where perf is missing.
    """
    if probes.perf_version() is None:
        raise RxbookError(f"no perf tool that runs. {probes.PERF_PACKAGES}")
    event = "cpu-clock" if probes.cycle_counter() else "cycles"
    where = ["-C", cpus] if cpus else ["-a"]
    return ["perf", "record", "-q", *where, "-e", event, "-F", str(FREQUENCY)]


def temporary_folder() -> tempfile.TemporaryDirectory:
    """A folder for a recording's fifos; `rxbook clean` and the next run delete that of a process which was killed."""
    return tempfile.TemporaryDirectory(prefix=f"{FOLDERS}{os.getpid()}-")


def save_kallsyms(folder: Path, symbols: bytes) -> None:
    """Keep what /proc/kallsyms says now in a folder of recordings: modules and BPF programs come and go.

    Raises RxbookError where a copy from another boot lies there: the kernel may have moved since.
    """
    copy = folder / "kallsyms"
    if copy.exists():
        with open(copy, "rb") as before:
            if not symbols.startswith(before.readline()):
                raise RxbookError(
                    f"{folder} has recordings of another kernel or boot: record into an empty folder"
                )
    copy.write_bytes(symbols)


class Control:
    """Switches a recording on and off, from any process, by the two fifos in its folder."""

    def __init__(self, folder: Path):
        # Open for both ways, neither end waits for the other.
        self._control, self._answers = (os.open(folder / name, os.O_RDWR) for name in (CONTROL, ANSWERS))

    def send(self, word: str, timeout_s: float = ANSWER_S) -> bool:
        """Send enable, disable, ping or stop; False where perf did not confirm it in time."""
        os.write(self._control, f"{word}\n".encode())
        return self.answered(timeout_s)

    def obey(self, word: str) -> None:
        """Send it; raises RxbookError where perf did not confirm it in time."""
        if not self.send(word):
            raise RxbookError(f"perf record did not {word} within {ANSWER_S:.0f} s")

    def answered(self, timeout_s: float) -> bool:
        """Wait for the answer to what was sent; False where none came in time."""
        return bool(select.select([self._answers], [], [], timeout_s)[0]) and bool(os.read(self._answers, 64))

    def close(self) -> None:
        os.close(self._control)
        os.close(self._answers)


class Recording:
    """A perf record that is off until `control` sends "enable". It ends with this process, however that ends.

    command: perf record, and what it samples. folder: takes perf's fifos and what it says. Raises RxbookError where
    perf is missing or refuses.
    """

    def __init__(self, command: list[str], data: Path, folder: Path):
        for name in (CONTROL, ANSWERS):
            os.mkfifo(folder / name, 0o600)
        self._said = folder / "perf.err"
        command = [*command, "-D", "-1", "-o", str(data)]
        command += ["--control", f"fifo:{folder / CONTROL},{folder / ANSWERS}"]
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            # A benchmark is often tied to the CPU that is measured; perf's own work belongs elsewhere.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, range(os.cpu_count() or 1))

        self.control = Control(folder)
        with open(self._said, "wb") as said:
            self._perf = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=prepare
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S
        ready = self.control.send("ping", 0.02)
        while not ready and self._perf.poll() is None and time.monotonic() < deadline:
            ready = self.control.answered(0.02)
        ended = self._perf.poll() is not None
        if ended or not ready:
            self.end()
            raise RxbookError(
                self._refusal() if ended else f"perf record was not ready within {START_S:.0f} s"
            )

    def _refusal(self) -> str:
        said = self._said.read_text(errors="replace")
        if "perf_event_paranoid" in said:
            return (
                "perf may not sample whole CPUs here: run as root, "
                "or as root: sysctl kernel.perf_event_paranoid=-1 kernel.kptr_restrict=0"
            )
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return f"perf record: {lines[-1] if lines else f'ended with status {self._perf.returncode}'}"

    def stop(self) -> None:
        """End the recording, so that its file is whole. Raises RxbookError where perf fails."""
        try:
            self.control.send("stop")
            self._perf.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise RxbookError(f"perf record did not end within {STOP_S:.0f} s") from None
        finally:
            self.end()
        if self._perf.returncode:
            raise RxbookError(self._refusal())

    def end(self) -> None:
        """End perf at once, if it still runs."""
        self._perf.kill()
        self._perf.wait()
        self.control.close()
