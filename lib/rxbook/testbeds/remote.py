# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What runs on another host: it comes over SSH as an archive in memory, and goes with its process.

Two processes. The guard looks whether the device may be used, remembers its settings, and puts them back when its
child has ended, however that ended. The child is the sender or the receiver; it ends when the connection is lost,
and with it its BPF programs leave the device.

Imports of numpy, pandas, pydantic and others that the host may not have are not allowed here, nor in what this imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

from rxbook import RxbookError, frames, generators, provenance
from rxbook.generators import pktgen
from rxbook.generators.live_frames import LiveFrames
from rxbook.kernel import ethtool, interface, libbpf, lifetime, namespaces
from rxbook.testbeds import roles
from rxbook.testbeds.lock import BUSY, Lock
from rxbook.testbeds.processes import TROUBLE, serve

__all__ = ["main"]

ADDRESSES = {
    f"{frames.RECEIVER_IP4}/24": str(frames.SENDER_IP4),
    f"{frames.RECEIVER_IP6}/64": str(frames.SENDER_IP6),
}
"""The receiver's addresses, each with its neighbour's."""


class Sender(roles.Sender):
    """Sends out of a device of this host."""

    def connect(self, name: str, cpu: int, generator: str) -> None:
        """Make ready to send."""
        self._name, index = name, socket.if_nametoindex(name)
        self._redirects = generator != "pktgen"
        if self._redirects:  # drivers take frames of XDP only while a program is attached
            libbpf.attach_xdp(libbpf.BpfObject("send").program_fd("pass_all"), index)
        if generator == "live_frames":
            with namespaces.aside():
                self._generator = LiveFrames(index, cpu, namespaces.parking_devices("rxbooks"))
        else:
            generators.require(generator)
            self._generator = generators.on_device(generator, name, cpu)

    def start(self) -> None:
        """Begin to send."""
        if self._redirects and not interface.takes_redirected(self._name):
            raise RxbookError(
                f"{self._name} sends nothing that XDP redirects to it: take a device whose driver does (ndo_xdp_xmit)"
            )
        super().start()

    def load(self, frame: str, slots: str, header_bytes: int, offset: int, words: int) -> None:
        """Choose the frames by the parts of a frames.Ring; bytes as hexadecimal digits."""
        self._generator.take(bytes.fromhex(frame), header_bytes, offset, words, bytes.fromhex(slots))

    def load_spec(self, spec: dict[str, Any], macs: str) -> None:
        """The same for a generator that makes frames itself: a FrameSpec's fields, both addresses as digits."""
        self._generator.load(frames.FrameSpec(**spec), bytes.fromhex(macs))


class Receiver(roles.Receiver):
    """Receives on a device of this host."""

    def connect(self, name: str, cpu: int, irq_cpus: list[int], sender_mac: str) -> dict[str, str]:
        """Give the device its address and its interrupts their CPUs. Returns its offloads as they were."""
        for address, neighbour in ADDRESSES.items():
            interface.add_address(name, address, neighbour, bytes.fromhex(sender_mac).hex(":"))
        if irq_cpus:
            interface.set_irq_affinity(name, irq_cpus)
        self._queues = ethtool.rx_queues(name)
        return self._take(name, socket.if_nametoindex(name), cpu)

    def configure(self, receiver: str, **asked: Any) -> int:
        """As on a veth pair, which has one queue: of several, each would have a thread and a share of the frames."""
        if receiver == "stack" and self._queues > 1:
            name = self._device.name
            raise RxbookError(
                f"receiver=stack needs a device with one queue, {name} has {self._queues}: ethtool -L {name} combined 1"
            )
        return super().configure(receiver, **asked)


def main(config: str, connection: str) -> None:
    """Be the guard of one role.

    config: JSON of a role ("sender" or "receiver"), its interface, cpu, irq_cpus, force_default_route, the holder of
    the lock, and silence_s, after which the connection counts as lost. connection: $SSH_CONNECTION.
    """
    asked = json.loads(config)
    lock = Lock(asked["holder"])
    try:
        name = _checked(asked, connection)
        _take_lock(lock, asked["holder"])
        settings = interface.Settings(name)
        device = ethtool.describe(name) | settings.features_on()
        device |= {key: asked[key] for key in ("cpu", "irq_cpus")}
        facts = {"mac": interface.mac(name), "host": provenance.host() | {"interface": device}}
    except RxbookError as error:
        _say([0, str(error), None])
        return
    _say([0, None, facts])
    with tempfile.TemporaryDirectory(prefix="rxbook-") as tempfile.tempdir:  # of the child, however that ends
        child = os.fork()
        if child == 0:
            _be(asked["role"], name, asked["silence_s"])
        _guard(child)
    pktgen.forget(asked["cpu"], name)
    addresses = ADDRESSES if asked["role"] == "receiver" else {}
    for failed in settings.restore(list(addresses), list(addresses.values())):
        with contextlib.suppress(OSError):
            print(TROUBLE + failed, file=sys.stderr, flush=True)
    lock.release()


def _checked(asked: dict[str, Any], connection: str) -> str:
    """The name of the device; raises RxbookError with all that speaks against it."""
    found = interface.obstacles(
        asked["interface"], asked["cpu"], asked["irq_cpus"], asked["force_default_route"],
        interface.ssh_address(connection),
    )  # fmt: skip
    if said := "; ".join(found):
        raise RxbookError(said)
    return asked["interface"]


def _take_lock(lock: Lock, holder: str) -> None:
    """The other role of the same run may hold it, where both stand on one host."""
    for _ in range(20):
        try:
            return lock.acquire()
        except RxbookError as error:
            if holder in str(error):
                return None
            if "not written its name" not in str(error):
                raise
            time.sleep(0.05)
    raise RxbookError(f"{BUSY}: wait for it, or end it")


def _say(answer: list[Any]) -> None:
    print(json.dumps(answer), flush=True)


def _guard(child: int) -> None:
    """Wait until the child has ended; what would end this process ends the child first."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGKILL))
    os.waitpid(child, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def _be(role: str, device: str, silence_s: float) -> None:
    """In the child: answer requests until the connection ends."""
    try:
        lifetime.die_with_parent(os.getppid())
        mine = {"sender": Sender, "receiver": Receiver}[role]()
        requests = {key: getattr(mine, key) for key in dir(mine) if not key.startswith("_")}
        serve({"device_counters": lambda: ethtool.counters(device), **requests}, _requests(silence_s))
    finally:
        os._exit(1)


def _requests(silence_s: float) -> Iterator[str]:
    """Lines of standard input. A thread reads them, so that the end of the connection ends any work that goes on."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        rest = b""
        while select.select([0], [], [], silence_s)[0] and (part := os.read(0, 1 << 16)):
            *whole, rest = (rest + part).split(b"\n")
            for line in filter(None, whole):  # an empty line only says that the other end is there
                lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get().decode()
