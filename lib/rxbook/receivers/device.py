# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What every receiver shares: the device, its BPF object, its counters."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from rxbook.kernel import counters, libbpf

__all__ = ["Device", "State"]

CAPTURE_FRAMES, CAPTURE_STRIDE = 4096, 2056  # receive.bpf.c: a length and 2048 bytes, rounded up to 8


class State(ctypes.Structure):
    """`state` of receive.bpf.c."""

    _fields_ = (("frames", ctypes.c_uint64), ("counted_map_id", ctypes.c_uint32),
                ("captured", ctypes.c_uint32), ("capture_limit", ctypes.c_uint32))  # fmt: skip


class Device:
    """The receiving end of the veth pair, with one XDP program attached in native mode."""

    def __init__(self, name: str, ifindex: int, cpu: int):
        self.name, self.ifindex, self.cpu = name, ifindex, cpu
        self.bpf = libbpf.BpfObject(
            "receive", struct.pack("=I", cpu), map_entries={"cpus": max(os.cpu_count() or 1, cpu + 1)}
        )
        self.state = State.from_buffer(self.bpf.memory(".bss", ctypes.sizeof(State)))
        self._statistics = {
            which: counters.CounterFile(f"/sys/class/net/{name}/statistics/rx_{which}")
            for which in ("packets", "dropped")
        }
        self._link: int | None = None

    def attach(self, program: str) -> None:
        """Attach a program of receive.bpf.c in place of the one before."""
        self.detach()
        self._link = libbpf.attach_xdp(self.bpf.program_fd(program), self.ifindex)

    def detach(self) -> None:
        """Leave the device without a program."""
        if self._link is not None:
            os.close(self._link)
            self._link = None

    def packets(self) -> int:
        """Frames that the device's NAPI took so far."""
        return int(self._statistics["packets"].read())

    def dropped(self) -> int:
        """Frames so far that found the device's queue full."""
        return int(self._statistics["dropped"].read())

    def set_threaded_napi(self, threaded: bool) -> int | None:
        """Run NAPI in a kernel thread on the receiver's CPU, or where the sender is. Returns the thread's pid."""
        Path(f"/sys/class/net/{self.name}/threaded").write_text("1" if threaded else "0")
        if not threaded:
            return None
        pid = counters.find_kthread(f"napi/{self.name}-*")
        os.sched_setaffinity(pid, {self.cpu})
        return pid

    def capture(self, limit: int) -> None:
        """Keep the next `limit` frames as they arrive, before any skb or GRO, and drop every frame."""
        self.state.captured, self.state.capture_limit = 0, min(limit, CAPTURE_FRAMES)
        self.attach("to_capture")

    def captured(self) -> list[bytes]:
        """The frames that `capture` kept so far."""
        memory = self.bpf.memory("capture", CAPTURE_FRAMES * CAPTURE_STRIDE)
        packets = []
        for at in range(0, self.state.captured * CAPTURE_STRIDE, CAPTURE_STRIDE):
            (length,) = struct.unpack_from("=I", memory, at)
            packets.append(memory[at + 4 : at + 4 + length])
        return packets
