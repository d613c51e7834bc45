# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sender and receiver are processes of their own; requests and answers are lines of JSON on their pipes.

They end with the process that started them: the kernel kills them when it dies, and the end of their
standard input tells them so where no signal can (another host).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from rxbook import RxbookError

__all__ = ["TROUBLE", "Role", "RoleEnded", "packed", "serve", "unpacked"]

TROUBLE = "rxbook: "
"""How a line begins by which a process on another host says what it could not put back."""


class RoleEnded(RxbookError):
    """A role's process ended before it answered."""


class Role:
    """Our end of one role process. `call` asks it one thing and waits for the answer."""

    def __init__(self, name: str, start: Callable[[str, Any], Any] | None = None):
        """`start`, called with the name and a file for its errors, returns the process; default: an interpreter."""
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = (start or _interpreter)(name, self._errors)
        self.pid = self._process.pid
        self._asked = 0
        self._read = bytearray()

    def call(self, command: str, timeout_s: float = 30.0, **arguments: Any) -> Any:
        """The answer to one request. Raises RxbookError with what the process said went wrong."""
        self.ask(command, **arguments)
        return self.answer(command, timeout_s)

    def ask(self, command: str, **arguments: Any) -> None:
        """Send a request; `answer` fetches what comes of it."""
        self._asked += 1
        try:
            self._process.stdin.write(json.dumps([self._asked, command, arguments]).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(command) from None

    def answer(self, command: str, timeout_s: float = 30.0) -> Any:
        """The answer to the request sent last."""
        deadline = time.monotonic() + timeout_s
        number = None
        while number != self._asked:  # Ctrl-C in a call leaves its answer to the next one
            line = self._read_line(deadline)
            if line is None:
                raise RxbookError(f"the {self.name} did not answer {command!r} within {timeout_s:g} s")
            if not line:
                raise self._ended(command)
            number, error, result = json.loads(line)
        if error:
            raise RxbookError(f"{self.name}: {error}")
        return result

    def _read_line(self, deadline: float) -> bytes | None:
        """A line, or nothing where the process ended, or None where none came in time."""
        seen = 0
        while (end := self._read.find(b"\n", seen)) < 0:
            seen = len(self._read)
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                return None
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                return b""
            self._read += part
        line = bytes(self._read[: end + 1])
        del self._read[: end + 1]
        return line

    def _ended(self, command: str) -> RxbookError:
        code = self._process.wait()
        last = self.said().splitlines()[-3:]
        return RoleEnded(f"the {self.name} ended (status {code}) at {command!r}: " + " / ".join(last))

    def beat(self) -> None:
        """Tell a process on another host that this end is there."""
        with contextlib.suppress(OSError, ValueError):  # it ended, or is closed: the next call will say so
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def said(self) -> str:
        """What it wrote on its standard error."""
        self._errors.seek(0)
        return self._errors.read().strip()

    def hang_up(self) -> None:
        """Let a process on another host end by itself."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait(self, timeout_s: float) -> str:
        """What a process had to say when it ended by itself; in words also where it did not."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"did not end within {timeout_s:g} s"
        return "; ".join(
            line.removeprefix(TROUBLE) for line in self.said().splitlines() if line.startswith(TROUBLE)
        )

    def close(self) -> None:
        """End the process at once: the kernel takes back all that it holds."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # a last request that it did not read
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()


def _interpreter(name: str, errors: Any) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rxbook.testbeds.roles", name, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,  # Ctrl-C is for the run, which then tells us
    )


def serve(commands: dict[str, Callable[..., Any]], requests: Iterable[str] = sys.stdin) -> None:
    """Answer requests, lines of JSON, until they end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a stray print must not look like an answer
    for line in requests:
        number, command, arguments = json.loads(line)
        try:
            answer = [number, None, commands[command](**arguments)]
        except RxbookError as error:
            answer = [number, str(error), None]
        except Exception as error:
            answer = [number, f"{command}: {type(error).__name__}: {error}", None]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def packed(content: bytes) -> str:
    """A file's content, compressed, as it fits into an answer."""
    return base64.b64encode(zlib.compress(content, 1)).decode()


def unpacked(text: str) -> bytes:
    """What `packed` was given."""
    return zlib.decompress(base64.b64decode(text))


def sleep_until(deadline_ns: int) -> None:
    """Sleep until a time of the monotonic clock, ns."""
    while (left := deadline_ns - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)
