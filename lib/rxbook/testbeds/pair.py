# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A sender and a receiver process, each in a network namespace of its own, and a veth pair between them."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rxbook.testbeds.processes import Role

if TYPE_CHECKING:
    from rxbook.plan import Cell

__all__ = ["Pair"]


class Pair:
    """Both processes, `sender` and `receiver`, from `connect` to `close`; their namespaces have no names.

    start: how their processes are started, see `Role`.
    """

    def __init__(
        self,
        sender_cpu: int,
        receiver_cpu: int,
        queue_size: int,
        generator: str,
        start: Callable | None = None,
    ):
        self._cpus = sender_cpu, receiver_cpu
        self._generator = generator
        self._queue_size = queue_size
        self._start = start
        self._roles: list[Role] = []
        self._loaded: dict[str, Any] | None = None

    def connect(self) -> dict[str, str]:
        """Make processes, namespaces and devices. Returns the offloads of the receiver's device."""
        for name in ("sender", "receiver"):
            self._roles.append(Role(name, self._start))
        self.sender, self.receiver = self._roles
        for role in self._roles:
            role.ask("enter")
        for role in self._roles:
            role.answer("enter")
        token = secrets.token_hex(3)
        ours, theirs = f"rxb{token}s", f"rxb{token}r"
        self.sender.call(
            "connect", name=ours, peer=theirs, peer_pid=self.receiver.pid, cpu=self._cpus[0],
            generator=self._generator,
        )  # fmt: skip
        self.devices = {"sender": ours, "receiver": theirs}
        return self.receiver.call("connect", name=theirs, cpu=self._cpus[1])

    def measure(self, cell: Cell, warmup_s: float, window_s: float) -> dict[str, float | None]:
        """Send a cell's frames for one window; returns the changes of the receiver's counters in it.

        Among them sender_pps, what the generator printed of all that it sent, warm-up included; None where it does not.
        """
        self.prepare(cell)
        self.sender.call("start")
        try:
            counted = self.count(warmup_s, window_s)
        finally:
            self.sender.call("stop")
        return counted | {"sender_pps": self.sender.call("printed_pps")}

    def count(self, warmup_s: float, window_s: float) -> dict[str, float | None]:
        """The changes of the receiver's counters in one window of the traffic that runs."""
        return self.receiver.call("window", 30 + warmup_s + window_s, warmup_s=warmup_s, window_s=window_s)

    def prepare(self, cell: Cell) -> int:
        """Make sender and receiver ready for a cell, without traffic; returns the pid of the thread that receives."""
        self.load(cell)
        return self.receiver.call(
            "configure",
            receiver=cell.receiver,
            queue_size=self._queue_size,
            offloads={
                "gro": cell.gro,
                "rx_udp_gro_forwarding": cell.rx_udp_gro_forwarding,
                "rx_gro_list": cell.rx_gro_list,
            },
            drop_tcp=cell.drop_tcp and cell.protocol == "tcp",
        )

    def load(self, cell: Cell) -> None:
        """Give the sender a cell's frames."""
        spec = dataclasses.asdict(cell.frame_spec)
        if spec != self._loaded:
            self.sender.call("load", spec=spec)
            self._loaded = spec

    def close(self) -> None:
        """End both processes, and with them their namespaces and devices."""
        with contextlib.ExitStack() as each:
            for role in self._roles:
                each.callback(role.close)
