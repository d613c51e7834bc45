# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counters of perf_event_open(2), without the perf tool."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from rxbook import RxbookError

__all__ = ["HARDWARE_CYCLES", "NOT_ALLOWED", "TASK_CLOCK", "Counter"]

SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
HARDWARE_CYCLES, TASK_CLOCK = (0, 0), (1, 1)  # linux/perf_event.h: (type, config)
PERF_FLAG_FD_CLOEXEC = 8
NOT_ALLOWED = "not allowed without root"
REASONS = {
    errno.ENOENT: "this machine has none",
    errno.EOPNOTSUPP: "this machine has none",
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
}


class Counter:
    """One counter of one task, running from the start. Raises RxbookError with the kernel's reason."""

    def __init__(self, event: tuple[int, int], pid: int = 0):
        number = SYSCALL.get(platform.machine())
        if number is None:
            raise RxbookError(f"the number of perf_event_open() is not known on {platform.machine()}")
        # perf_event_attr in its first published size, 64 bytes
        attributes = ctypes.create_string_buffer(struct.pack("=IIQ", event[0], 64, event[1]), 64)
        any_cpu, no_group = -1, -1
        libc = ctypes.CDLL(None, use_errno=True)
        self._file = libc.syscall(
            number, attributes, pid, any_cpu, no_group, ctypes.c_ulong(PERF_FLAG_FD_CLOEXEC)
        )
        if self._file < 0:
            reason = ctypes.get_errno()
            raise RxbookError(REASONS.get(reason, os.strerror(reason)))

    def read(self) -> int:
        """The count now, also of a task that runs at this moment; TASK_CLOCK counts ns."""
        return int.from_bytes(os.read(self._file, 8), "little")

    def close(self) -> None:
        """Take the counter from its task."""
        os.close(self._file)
