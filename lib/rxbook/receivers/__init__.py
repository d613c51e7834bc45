# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What receives: one file per receiver, and one line here."""

from rxbook.receivers.cpumap import Cpumap
from rxbook.receivers.drop import Drop
from rxbook.receivers.stack import Stack

__all__ = ["RECEIVERS"]

RECEIVERS = {"cpumap": Cpumap, "stack": Stack, "drop": Drop}
