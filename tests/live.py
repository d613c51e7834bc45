# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tests on the real kernel share."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rxbook import RxbookError
from rxbook.plan import Cell, make_plan
from rxbook.testbeds.lock import Lock
from rxbook.testbeds.veth import Veth

LOCK_WAIT_S = 60.0


def wait_for_lock(take: Callable[[], Any]) -> Any:
    """What `take` returns, once no other run holds the testbed; its refusal where one holds it too long."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return take()
        except RxbookError as error:
            if "another run" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def open_testbed(**arguments: Any) -> Iterator[Veth]:
    """A Veth, as soon as the machine's only testbed is free."""
    veth = Veth(**{"holder": "tests", **arguments})
    wait_for_lock(veth.__enter__)
    with contextlib.ExitStack() as stack:
        stack.push(veth.__exit__)
        yield veth


@contextlib.contextmanager
def no_other_run() -> Iterator[None]:
    """Holds the lock, so that what is seen meanwhile belongs to no run."""
    lock = Lock("tests look around")
    wait_for_lock(lock.acquire)
    try:
        yield
    finally:
        lock.release()


def cells(**parameters: Any) -> list[Cell]:
    """The cells of a plan."""
    return make_plan(parameters).cells("this kernel")


def cell(**parameters: Any) -> Cell:
    """The only cell of a plan, GRO on unless said otherwise."""
    (only,) = cells(**{"gro": "on", **parameters})
    return only


def network_counters(pid: int) -> dict[str, int]:
    """{"Ip.InReceives": ..., "Ip6InReceives": ...} of a process's network namespace."""
    counted = {}
    for name in ("snmp", "netstat"):
        lines = [line.split() for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()]
        for (head, *names), (_, *values) in zip(lines[::2], lines[1::2], strict=True):
            counted |= {f"{head[:-1]}.{key}": int(value) for key, value in zip(names, values, strict=True)}
    for line in Path(f"/proc/{pid}/net/snmp6").read_text().splitlines():
        counted[line.split()[0]] = int(line.split()[1])
    return counted


def run(*command: str, **options: Any) -> str:
    """A command's output; raises where it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, **options).stdout
