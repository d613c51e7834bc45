# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One testbed at a time on a machine: two would measure each other."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import tempfile
from pathlib import Path

from rxbook import RxbookError

__all__ = ["Lock", "lock_path"]


def lock_path() -> Path:
    """Where the lock lies: /run, which a reboot empties, or the temporary folder of who may not write there."""
    run = Path("/run")
    return (run if os.access(run, os.W_OK) else Path(tempfile.gettempdir())) / "rxbook.lock"


BUSY = "another run measures on this machine"
"""What a refusal begins with."""


class Lock:
    """An flock: the kernel lets go of it when its process ends, so it is never stale."""

    def __init__(self, holder: str):
        self._holder = holder
        self._file = None

    def acquire(self) -> None:
        """Take the lock; raises RxbookError that says who holds it."""
        while not self._take():
            pass
        self._file.truncate(0)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        json.dump({"pid": os.getpid(), "since": now, "run": self._holder}, self._file)
        self._file.flush()

    def _take(self) -> bool:
        """False where the file was deleted by its last holder between our open and our flock."""
        self._file = open(lock_path(), "a+")  # noqa: SIM115 - held until release
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            text = self._file.read()
            self._file.close()
            self._file = None
            raise RxbookError(f"{BUSY}: {_describe(text)}. Wait for it, or end it") from None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._file.fileno()), os.stat(lock_path())):
                return True
        self._file.close()
        return False

    def release(self) -> None:
        """Let go, and delete the file: nothing of a run is left on a machine."""
        if self._file:
            with contextlib.suppress(OSError):
                os.unlink(lock_path())
            self._file.close()
            self._file = None


def _describe(text: str) -> str:
    try:
        holder = json.loads(text)
        return f"process {holder['pid']}, {holder['run']}, since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "its process has not written its name yet"
