# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sends XDP live frames: one system call runs a BPF program on millions of frames, Python costs nothing."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import threading
import time

from rxbook import RxbookError, frames
from rxbook.kernel import libbpf

__all__ = ["LiveFrames"]

FRAMES_PER_CALL = 1 << 24  # a signal ends a call early, so it may be long
STOP_DEADLINE_S = 2.0
YIELD_S = 0.05
HEADER_ROOM = 120  # send.bpf.c


class _State(ctypes.Structure):
    """`state` of send.bpf.c."""

    _fields_ = (("header", ctypes.c_uint8 * HEADER_ROOM), ("header_bytes", ctypes.c_uint32),
                ("offset", ctypes.c_uint32), ("words", ctypes.c_uint32), ("end", ctypes.c_uint32),
                ("next", ctypes.c_uint32))  # fmt: skip


class LiveFrames:
    """Sends the frames of a FrameSpec out of one device, from one CPU, until told to stop.

    `parking` are two devices of this namespace that carry no traffic. The programs are attached there and
    so stay in the kernel's XDP dispatcher (kernel/bpf/dispatcher.c): otherwise each BPF_PROG_RUN call
    patches them in and out again and waits for RCU twice, about 24 ms of silence per call.
    """

    def __init__(self, ifindex: int, cpu: int, parking: tuple[int, int], batch: int = 128):
        self._ifindex, self._cpu, self._batch = ifindex, cpu, batch
        self._bpf = libbpf.BpfObject("send", struct.pack("=I", ifindex))
        self._same, self._ring = self._bpf.program_fd("send_same"), self._bpf.program_fd("send_ring")
        self._links = [
            libbpf.attach_xdp(program, device, generic=True)
            for program, device in zip((self._same, self._ring), parking, strict=True)
        ]
        self._ring_memory = self._bpf.memory("ring", frames.RING_WORDS * 8)
        self._state = _State.from_buffer(self._bpf.memory(".bss", ctypes.sizeof(_State)))
        self._rings: dict[frames.FrameSpec, frames.Ring] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._error: Exception | None = None
        self.printed_pps = None  # it counts nothing: the receiver does
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, True)

    def load(self, spec: frames.FrameSpec) -> None:
        """Choose what `start` sends. Raises RxbookError for frames that cannot be sent."""
        if spec not in self._rings:
            frames.check(spec)
            self._rings[spec] = frames.ring(spec)
        ring = self._rings[spec]
        self.take(ring.frame, frames.headers_bytes(spec), ring.offset, ring.words, ring.slots.tobytes())

    def take(self, frame: bytes, header_bytes: int, offset: int, words: int, slots: bytes) -> None:
        """Choose what `start` sends by the parts of a frames.Ring, made elsewhere."""
        self._frame, self._program = frame, self._ring if words else self._same
        self._ring_memory[: len(slots)] = slots
        self._state.header_bytes = header_bytes
        ctypes.memmove(self._state.header, frame, header_bytes)
        self._state.offset, self._state.words, self._state.end = offset, words, len(slots) // 8

    def start(self) -> None:
        """Begin to send, in a thread that stays in the kernel."""
        self._stopping, self._error, self._state.next = False, None, 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, within a batch of frames. Raises what the sending thread met."""
        if self._thread is None:
            return
        self._stopping = True
        deadline = time.monotonic() + STOP_DEADLINE_S
        while self._thread.is_alive():
            # again and again: a signal between two system calls is not seen by the next one
            with contextlib.suppress(ProcessLookupError):
                signal.pthread_kill(self._thread.ident, signal.SIGUSR1)
            self._thread.join(0.002)
            if time.monotonic() > deadline:
                raise RxbookError(f"the sender did not stop within {STOP_DEADLINE_S} s")
        self._thread = None
        if self._error:
            raise self._error

    def send(self, count: int) -> float:
        """Send `count` frames from this thread and return the seconds it took."""
        self._state.next = 0
        os.sched_setaffinity(0, {self._cpu})
        start = time.monotonic()
        libbpf.run_live_frames(self._program, self._frame, self._ifindex, count, self._batch)
        return time.monotonic() - start

    def send_in_calls(self, calls: int, each: int) -> None:
        """Send `calls` times `each` frames, and let others have the CPU after each call until they sleep."""
        self._state.next = 0
        os.sched_setaffinity(0, {self._cpu})
        for _ in range(calls):
            libbpf.run_live_frames(self._program, self._frame, self._ifindex, each, self._batch)
            time.sleep(YIELD_S)

    def send_nothing(self, count: int, parked: bool) -> float:
        """Run the bare loop, whose program drops each frame, from this thread; returns the seconds it took."""
        program = self._bpf.program_fd("send_nothing")
        link = libbpf.attach_xdp(program, socket.if_nametoindex("lo"), generic=True) if parked else None
        os.sched_setaffinity(0, {self._cpu})
        start = time.monotonic()
        libbpf.run_live_frames(program, self._frame, self._ifindex, count, self._batch)
        seconds = time.monotonic() - start
        if link is not None:
            os.close(link)
        return seconds

    def _send(self) -> None:
        try:
            os.sched_setaffinity(0, {self._cpu})
            while not self._stopping:
                libbpf.run_live_frames(
                    self._program, self._frame, self._ifindex, FRAMES_PER_CALL, self._batch
                )
        except Exception as error:
            self._error = error
