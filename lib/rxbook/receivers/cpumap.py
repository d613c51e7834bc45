# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Redirects every frame to another CPU; the cpumap kthread there makes skbs and runs GRO."""

from __future__ import annotations

import struct

from rxbook.kernel import counters, libbpf
from rxbook.receivers.device import Device

__all__ = ["Cpumap"]


class Cpumap:
    """The test of the threads: veth's NAPI and XDP on the sender's CPU, skbs and the stack on the receiver's."""

    AT_ONCE = 1024

    def __init__(self, device: Device, queue_size: int):
        self._device = device
        device.bpf.update("cpus", struct.pack("=I", device.cpu), struct.pack("=Ii", queue_size, 0))
        map_id = device.bpf.map_id("cpus")
        device.state.counted_map_id = map_id
        libbpf.attach_raw_tracepoint(device.bpf.program_fd("count_kthread"), "xdp_cpumap_kthread")
        self.pid = counters.find_kthread(f"cpumap/{device.cpu}/map:{map_id}")

    def start(self) -> None:
        """Take the device; the kthread lives as long as the map."""
        self._device.attach("to_cpumap")

    def frames(self) -> int:
        """Frames of which the kthread made skbs so far; those for which it got no memory are none."""
        return self._device.state.frames

    def offered(self) -> int:
        """Frames so far that reached the device: those that the full queue dropped, too."""
        return self._device.packets() + self._device.dropped()

    def stop(self) -> None:
        """Leave the device."""
        self._device.detach()
