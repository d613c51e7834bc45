# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sends by the kernel's pktgen (Documentation/networking/pktgen.rst): UDP from a kernel thread of the sender's CPU.

Its payload begins with 16 bytes of its own, a number that counts up among them; the IPv4 identification counts up, too,
and DF is not set.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rxbook import RxbookError, frames

__all__ = ["Pktgen", "Result", "check", "forget", "result", "trouble"]

PLACE = Path("/proc/net/pktgen")
REMEDY = "as root: modprobe pktgen; a kernel of your own needs CONFIG_NET_PKTGEN"

OWN_BYTES = 16
"""struct pktgen_hdr: a payload is never shorter."""

CLONES = 64
"""So often is an skb sent where all frames are equal and the device allows that."""

DEADLINE_S = 5.0
POLL_S = 0.002
ENOTSUPP = 524  # the kernel's own, which errno lacks

RESULT = re.compile(
    r"^Result: OK: (\d+)\(c\d+\+d\d+\) usec, (\d+) \((\d+)byte,\d+frags\)\n\s+(\d+)pps .*errors: (\d+)$",
    re.MULTILINE,
)
SENT = re.compile(r"pkts-sofar: (\d+)")


@dataclass(frozen=True)
class Result:
    """What pktgen prints after a run. frame_bytes: without FCS. pps: frames per second. errors: the device refused."""

    seconds: float
    frames: int
    frame_bytes: int
    pps: int
    errors: int


def result(text: str) -> Result | None:
    """The result in the text of /proc/net/pktgen/DEVICE; None where there is none yet."""
    found = RESULT.search(text)
    if not found:
        return None
    usec, sent, length, pps, errors = map(int, found.groups())
    return Result(usec / 1e6, sent, length, pps, errors)


def trouble() -> tuple[str, str]:
    """What is wrong and what to do where this kernel has no pktgen loaded; else both empty."""
    return ("", "") if PLACE.is_dir() else ("this kernel has it not loaded", REMEDY)


def check(spec: frames.FrameSpec, veth: bool) -> None:
    """Raise RxbookError for frames that pktgen does not make."""
    instead = "or use generator=live_frames"
    if spec.protocol != "udp":
        raise RxbookError(
            f"generator=pktgen makes UDP only, not {spec.protocol}: say protocol=udp, {instead}"
        )
    if spec.encap != "none":
        raise RxbookError(
            f"generator=pktgen makes no IP in IP, encap={spec.encap}: leave encap out, {instead}"
        )
    if frames.payload_bytes(spec) < OWN_BYTES:
        least = spec.frame_size - frames.payload_bytes(spec) + OWN_BYTES
        raise RxbookError(
            f"frame_sizes={spec.frame_size}: generator=pktgen puts {OWN_BYTES} bytes of its own into each payload; "
            f"choose {least} or more for IPv{spec.ip_version}, {instead}"
        )
    if veth and spec.flows > 1 and spec.burst > 1:
        raise RxbookError(_no_bursts(spec.burst, "veth"))


def _no_bursts(burst: int, device: str) -> str:
    return (
        f"burst={burst}: generator=pktgen changes the port with each skb, and repeats one (clone_skb) only where the "
        f"device shares skbs, which {device} does not: say burst=1 or flows=1, or use generator=live_frames"
    )


def forget(cpu: int, device: str) -> None:
    """Take a device from pktgen's thread, where it is still there: it outlives the process that gave it."""
    with contextlib.suppress(OSError, RxbookError):
        thread = PLACE / f"kpktgend_{cpu}"
        if device in thread.read_text().split():
            _say(thread, "rem_device_all")


class Pktgen:
    """Sends the frames of a FrameSpec out of one device, from one CPU, until told to stop."""

    def __init__(self, device: str, cpu: int):
        self._device, self._control = PLACE / device, PLACE / "pgctrl"
        held = sorted({path.name for path in PLACE.iterdir()} - {"pgctrl", device} - _threads())
        if held:  # pgctrl starts all at once
            raise RxbookError(
                f"pktgen holds {', '.join(held)} for somebody else: wait, or as root: echo reset > {self._control}"
            )
        if not self._device.exists():
            _say(PLACE / f"kpktgend_{cpu}", f"add_device {device}")
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self.printed_pps: float | None = None
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR1, True)

    def load(self, spec: frames.FrameSpec, macs: bytes = frames.RECEIVER_MAC + frames.SENDER_MAC) -> None:
        """Choose what is sent; macs: the receiver's, then the sender's. Raises RxbookError for what cannot be sent."""
        first = frames.FIRST_SRC_PORT
        for line in (
            f"pkt_size {spec.frame_size - frames.FCS_BYTES}",
            "delay 0",
            "flag NO_TIMESTAMP",
            f"flag {'UDPCSUM' if spec.udp_csum == 'computed' else '!UDPCSUM'}",
            f"dst_mac {macs[:6].hex(':')}",
            f"src_mac {macs[6:].hex(':')}",
            *_addresses(spec.ip_version),
            f"udp_dst_min {frames.DST_PORT}",
            f"udp_dst_max {frames.DST_PORT}",
            f"udp_src_min {first}",
            f"udp_src_max {first + spec.flows if spec.flows > 1 else first}",  # the first that is not used
        ):
            _say(self._device, line)
        self._repeat(spec)

    def _repeat(self, spec: frames.FrameSpec) -> None:
        repeats = CLONES if spec.flows == 1 else spec.burst if spec.burst > 1 else 0
        try:
            _say(self._device, f"clone_skb {repeats}")
        except RxbookError as error:
            if getattr(error.__cause__, "errno", None) not in (ENOTSUPP, errno.EOPNOTSUPP):
                raise
            if spec.flows > 1:
                raise RxbookError(_no_bursts(spec.burst, self._device.name)) from None
            _say(self._device, "clone_skb 0")

    def start(self) -> None:
        """Begin to send; returns when the first frames are on their way."""
        self._begin(0)
        deadline = time.monotonic() + DEADLINE_S
        while not int(SENT.search(self._device.read_text())[1]):
            if self._error or time.monotonic() > deadline:
                raise self._error or RxbookError(f"pktgen sent nothing within {DEADLINE_S:g} s")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop sending; `printed_pps` is then of what was sent."""
        if self._thread is None:
            return
        self.printed_pps = float(self._end(interrupt=True).pps)

    def send(self, count: int) -> float:
        """Send `count` frames and return the seconds that pktgen says it took."""
        self._begin(count)
        done = self._end(interrupt=False)
        if done.frames != count or done.errors:
            raise RxbookError(f"pktgen sent {done.frames} of {count} frames, {done.errors} errors")
        return done.seconds

    def send_in_calls(self, calls: int, each: int) -> None:
        """Send `calls` times `each` frames; between them pktgen sleeps for some 0.1 s."""
        for _ in range(calls):
            self.send(each)

    def _begin(self, count: int) -> None:
        _say(self._device, f"count {count}")
        self._error = None
        # it stays in the kernel until all is sent; a signal to it means stop
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            _say(self._control, "start")
        except Exception as error:
            self._error = error

    def _end(self, interrupt: bool) -> Result:
        deadline = time.monotonic() + DEADLINE_S
        while self._thread.is_alive():
            if interrupt:
                with contextlib.suppress(ProcessLookupError):
                    signal.pthread_kill(self._thread.ident, signal.SIGUSR1)
                if time.monotonic() > deadline:
                    raise RxbookError(f"pktgen did not stop within {DEADLINE_S:g} s")
            self._thread.join(POLL_S if interrupt else None)
        self._thread = None
        if self._error:
            raise self._error
        while not (done := result(self._device.read_text())):
            if time.monotonic() > deadline:
                raise RxbookError(f"pktgen told no result: {self._device.read_text().splitlines()[-1]}")
            time.sleep(POLL_S)
        return done


def _addresses(ip_version: int) -> tuple[str, ...]:
    if ip_version == 6:
        return f"dst6 {frames.RECEIVER_IP6}", f"src6 {frames.SENDER_IP6}"
    return ("flag !IPV6", f"dst {frames.RECEIVER_IP4}", f"src_min {frames.SENDER_IP4}",
            f"src_max {frames.SENDER_IP4}")  # fmt: skip


def _threads() -> set[str]:
    return {path.name for path in PLACE.glob("kpktgend_*")}


def _say(file: Path, line: str) -> None:
    """Write one command: pktgen takes one with each write."""
    try:
        number = os.open(file, os.O_WRONLY)
        try:
            os.write(number, line.encode() + b"\n")
        finally:
            os.close(number)
    except OSError as error:
        raise RxbookError(f"pktgen: {file.name} refuses {line!r}: {error.strerror}") from error
