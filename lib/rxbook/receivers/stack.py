# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""No redirect: veth's NAPI makes skbs and runs GRO, in a kernel thread on the receiver's CPU."""

from __future__ import annotations

from rxbook.receivers.device import Device

__all__ = ["Stack"]


class Stack:
    """Threaded NAPI: without it veth would receive on the sender's CPU, and its rate be that of both."""

    PROGRAM = "to_stack"
    AT_ONCE = 128  # veth's own queue holds 256 frames (VETH_RING_SIZE), queue_size is cpumap's

    def __init__(self, device: Device, queue_size: int):
        self._device = device

    def start(self) -> None:
        """Take the device and give NAPI a thread, whose process id is `pid`."""
        self._device.attach(self.PROGRAM)
        self.pid = self._device.set_threaded_napi(True)

    def frames(self) -> int:
        """Frames that NAPI took from veth's queue so far."""
        return self._device.packets()

    def offered(self) -> int:
        """Frames so far that were sent to the device: those that its full queue dropped, too."""
        return self._device.packets() + self._device.dropped()

    def stop(self) -> None:
        """Leave the device, and NAPI where it was."""
        self._device.set_threaded_napi(False)
        self._device.detach()
