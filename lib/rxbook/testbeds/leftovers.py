# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ends what a crash may have left. After a mere kill -9 the kernel has already done it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from pathlib import Path

from pyroute2 import IPRoute

from rxbook.testbeds.lock import lock_path

__all__ = ["sweep"]

OUR_DEVICES = re.compile(r"rxb[0-9a-f]{6}[rspq]")


def sweep() -> list[str]:
    """Remove leftovers and say what was removed. What belongs to a run that is going on stays."""
    with open(lock_path(), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return ["a run is going on: nothing was touched"]
        return _end_orphans() + _delete_devices()


def _end_orphans() -> list[str]:
    """Roles of a testbed whose lock nobody holds have lost their run."""
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


def _delete_devices() -> list[str]:
    """Our devices never stand in this namespace, unless the kernel moved one here."""
    deleted = []
    with IPRoute() as ip:
        for link in ip.get_links():
            name = link.get_attr("IFLA_IFNAME")
            if OUR_DEVICES.fullmatch(name):
                ip.link("del", index=link["index"])
                deleted.append(f"deleted device {name}")
    return deleted
