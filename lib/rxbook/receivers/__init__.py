# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What receives: one file per receiver, and one line here.

A receiver has `start`, which sets `pid`, the thread whose time is counted, `stop`, `frames` and `offered`, and AT_ONCE:
so many frames are sent at once where sender and receiver share a CPU, at most half of what its queue holds.
"""

from rxbook.receivers.cpumap import Cpumap
from rxbook.receivers.drop import Drop
from rxbook.receivers.stack import Stack

__all__ = ["RECEIVERS"]

RECEIVERS = {"cpumap": Cpumap, "stack": Stack, "drop": Drop}
