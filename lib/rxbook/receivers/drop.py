# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Drops every frame in XDP, on the receiver's CPU: shows what a generator reaches, no plan measures it."""

from __future__ import annotations

from rxbook.receivers.stack import Stack

__all__ = ["Drop"]


class Drop(Stack):
    """As `stack`, but no frame becomes an skb."""

    PROGRAM = "to_nowhere"
