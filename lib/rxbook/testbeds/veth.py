# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two network namespaces on this machine and a veth pair between them: a real receive path without a NIC."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from typing import Any

from rxbook import RxbookError
from rxbook.kernel import facts
from rxbook.plan import Cell
from rxbook.testbeds import leftovers
from rxbook.testbeds.lock import Lock
from rxbook.testbeds.processes import Role

__all__ = ["Veth"]


class Veth:
    """The testbed, as a context manager: made on entry, gone on exit, however that comes.

    The namespaces belong to two processes and have no names, so nothing outlives these. Names of the
    devices are new for each testbed; `sender` and `receiver` are the processes.
    """

    def __init__(
        self, sender_cpu: int = 0, receiver_cpu: int = 1, queue_size: int = 2048, holder: str = "rxbook"
    ):
        usable = facts.cpus()["usable"]
        if len(usable) < 2 and sender_cpu != receiver_cpu:
            raise RxbookError(
                f"{len(usable)} CPU can be used here: a sender and a receiver need one each. "
                "Use a machine or a CPU set with two"
            )
        for name, cpu in (("sender_cpu", sender_cpu), ("receiver_cpu", receiver_cpu)):
            if cpu not in usable:
                raise RxbookError(f"{name}={cpu}: this process may use CPUs {', '.join(map(str, usable))}")
        self._cpus = sender_cpu, receiver_cpu
        self._queue_size = queue_size
        self._lock = Lock(holder)
        self._loaded: dict[str, Any] | None = None
        self.offloads_before: dict[str, str] = {}
        self.offloads_after: dict[str, str] = {}

    def __enter__(self) -> Veth:
        self._lock.acquire()
        self._roles: list[Role] = []
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, trouble: type[BaseException] | None, *_: object) -> None:
        try:
            if trouble is None:  # else the receiver may be in a long window; the device goes in any case
                self.sender.call("stop")
                self.offloads_after = self.receiver.call("restore")
        finally:
            self.close()

    def _set_up(self) -> None:
        leftovers.remove()
        for name in ("sender", "receiver"):
            self._roles.append(Role(name))
        self.sender, self.receiver = self._roles
        for role in self._roles:
            role.ask("enter")
        for role in self._roles:
            role.answer("enter")
        token = secrets.token_hex(3)
        ours, theirs = f"rxb{token}s", f"rxb{token}r"
        self.sender.call("connect", name=ours, peer=theirs, peer_pid=self.receiver.pid, cpu=self._cpus[0])
        self.offloads_before = self.receiver.call("connect", name=theirs, cpu=self._cpus[1])
        self.devices = {"sender": ours, "receiver": theirs}

    def measure(self, cell: Cell, warmup_s: float, window_s: float) -> dict[str, float | None]:
        """Send a cell's frames for one window; returns the changes of the receiver's counters in it."""
        self.prepare(cell)
        self.sender.call("start")
        try:
            return self.count(warmup_s, window_s)
        finally:
            self.sender.call("stop")

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

    def capture(self, cell: Cell, count: int) -> list[bytes]:
        """The first `count` frames of a cell as they reach the receiver's device, before any skb or GRO."""
        self.load(cell)
        self.receiver.call("capture", limit=count)
        self.sender.call("send", count=count)
        return [bytes.fromhex(packet) for packet in self.receiver.call("captured")]

    def close(self) -> None:
        """End both processes, and with them their namespaces and devices."""
        with contextlib.ExitStack() as each:
            each.callback(self._lock.release)
            for role in self._roles:
                each.callback(role.close)
