# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long a child process lives: never longer than its parent, also after kill -9."""

from __future__ import annotations

import ctypes
import os
import signal

from rxbook import RxbookError

__all__ = ["die_with_parent"]

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, however it ends.

    It also holds after an exec. Raises RxbookError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise RxbookError(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
