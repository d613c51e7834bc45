# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ends what a crash may have left. After a mere kill -9 the kernel has already done it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyroute2 import IPRoute

from rxbook import RxbookError
from rxbook.kernel import perf_tool
from rxbook.testbeds.lock import Lock

__all__ = ["delete_recordings", "remove", "sweep"]

OUR_DEVICES = re.compile(r"rxb[0-9a-f]{6}[rspq]")


def sweep() -> list[str]:
    """Remove leftovers and say what was removed. What belongs to a run that is going on stays."""
    lock = Lock("rxbook clean")
    try:
        lock.acquire()
    except RxbookError:
        return ["a run is going on: nothing was touched"]
    try:
        return remove()
    finally:
        lock.release()


def remove() -> list[str]:
    """The same for who holds the lock, and has no testbed yet."""
    return _end_orphans() + _delete_devices() + delete_recordings()


def _end_orphans() -> list[str]:
    """Roles of a testbed that does not hold the lock have lost their run."""
    ended = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes().split(b"\0")
            if words[1:3] == [b"-m", b"rxbook.testbeds.roles"]:
                os.kill(int(cmdline.parent.name), signal.SIGKILL)
                ended.append(f"ended {words[3].decode()} process {cmdline.parent.name}")
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return ended


def delete_recordings() -> list[str]:
    """Folders in which a process recorded with perf that was killed since."""
    deleted = []
    for folder in Path(tempfile.gettempdir()).glob(f"{perf_tool.FOLDERS}*"):
        pid = folder.name.removeprefix(perf_tool.FOLDERS).partition("-")[0]
        if not Path("/proc", pid).exists() and folder.lstat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
            deleted.append(f"deleted {folder}")
    return deleted


def _delete_devices() -> list[str]:
    """Our devices never stand in this namespace, unless the kernel moved one here."""
    left = [name for _, name in socket.if_nameindex() if OUR_DEVICES.fullmatch(name)]
    if left:
        # pyroute2 runs an event loop, and a notebook's thread has one that runs already
        with ThreadPoolExecutor(1) as another_thread:
            another_thread.submit(_delete, left).result()
    return [f"deleted device {name}" for name in left]


def _delete(names: list[str]) -> None:
    with IPRoute() as ip:
        for name in names:
            for index in ip.link_lookup(ifname=name):  # none where it went with its peer
                ip.link("del", index=index)
