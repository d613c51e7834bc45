# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two network namespaces on this machine and a veth pair between them: a real receive path without a NIC."""

from __future__ import annotations

from rxbook import RxbookError, generators
from rxbook.kernel import facts
from rxbook.plan import Cell
from rxbook.testbeds import leftovers
from rxbook.testbeds.lock import Lock
from rxbook.testbeds.pair import Pair

__all__ = ["Veth"]


class Veth(Pair):
    """The testbed, as a context manager: made on entry, gone on exit, however that comes.

    The namespaces belong to two processes and have no names, so nothing outlives these. Names of the
    devices are new for each testbed; `sender` and `receiver` are the processes.
    """

    def __init__(
        self,
        sender_cpu: int = 0,
        receiver_cpu: int = 1,
        queue_size: int = 2048,
        holder: str = "rxbook",
        generator: str = "live_frames",
    ):
        usable = facts.cpus()["usable"]
        if len(usable) < 2:
            raise RxbookError(
                f"{len(usable)} CPU can be used here: a sender and a receiver need one each. "
                "Use a machine or a CPU set with two"
            )
        for name, cpu in (("sender_cpu", sender_cpu), ("receiver_cpu", receiver_cpu)):
            if cpu not in usable:
                raise RxbookError(f"{name}={cpu}: this process may use CPUs {', '.join(map(str, usable))}")
        generators.require(generator)
        super().__init__(sender_cpu, receiver_cpu, queue_size, generator)
        self._lock = Lock(holder)
        self.offloads_before: dict[str, str] = {}
        self.offloads_after: dict[str, str] = {}

    def __enter__(self) -> Veth:
        self._lock.acquire()
        try:
            leftovers.remove()
            self.offloads_before = self.connect()
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

    def capture(self, cell: Cell, count: int) -> list[bytes]:
        """The first `count` frames of a cell as they reach the receiver's device, before any skb or GRO."""
        self.load(cell)
        self.receiver.call("capture", limit=count)
        self.sender.call("send", count=count)
        return [bytes.fromhex(packet) for packet in self.receiver.call("captured")]

    def close(self) -> None:
        """End both processes, and with them their namespaces and devices; another run may begin."""
        try:
            super().close()
            leftovers.delete_recordings()  # of a receiver that was ended while it recorded
        finally:
            self._lock.release()
