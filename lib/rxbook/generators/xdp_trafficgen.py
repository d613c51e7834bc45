# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sends by xdp-trafficgen of xdp-tools: UDP over IPv6 from CPU 0, by live frames as our own generator.

All payload bytes are 0. It takes some 0.3 s to begin and, as it sends 2^20 frames a call, up to 0.5 s to end.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from rxbook import RxbookError, frames
from rxbook.kernel import lifetime

__all__ = ["AT_ONCE", "XdpTrafficgen", "check", "program", "rate", "trouble"]

PROGRAM = "xdp-trafficgen"
PACKAGES = "Debian 13 or newer: apt install xdp-tools; Fedora: dnf install xdp-tools"
SHORTEST = 66
INTERVAL_S = 1.0
"""How often it prints its rate."""

AT_ONCE = 8192
"""Sent by one start where sender and receiver share a CPU, as a start takes 2 s there: a queue must hold them."""

DEADLINE_S = 20.0
POLL_S = 0.002
YIELD_S = 0.05

LINE = re.compile(r"^\S+->\S+\s.*?([\d,.]+) xmit/s", re.MULTILINE)


def rate(text: str, seconds: float) -> float | None:
    """Frames per second by what it printed when it sent for some seconds; None where it printed nothing.

    The mean of its whole intervals, without the rest at the end. Its first line takes an interval for whole, however
    short it was (xdp-tools 1.6.3, lib/util/xdp_sample.c): where there is no other, it is the frames of all the time.
    """
    found = [int(re.sub(r"\D", "", number)) for number in LINE.findall(text)]
    if len(found) > 1:
        return sum(found[:-1]) / (len(found) - 1)
    return found[0] * INTERVAL_S / seconds if found else None


def program() -> str:
    """Its path; raises RxbookError where it is not installed."""
    path = _path()
    if path is None:
        raise RxbookError(f"generator=xdp_trafficgen: {PROGRAM} is not installed. {PACKAGES}")
    return path


def _path() -> str | None:
    return shutil.which(PROGRAM, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def trouble() -> tuple[str, str]:
    """What is wrong and what to do where it is not here, is too old, or does not run on this kernel; else empty."""
    path = _path()
    if path is None:
        return "not installed", PACKAGES
    if "--pkt-size" not in _told(path, "udp", "--help")[1]:
        return "this one is too old, it knows no --pkt-size", PACKAGES
    if os.geteuid() != 0:
        return "installed, but cannot be tried by this user", "run as root (sudo)"
    status, said = _told(path, "probe")
    if "xdp_redirect_map_err" in said:
        return (
            "it needs a tracepoint that this kernel has no more (xdp_redirect_map_err)",
            "use xdp-tools 1.6",
        )
    if status:
        why = said.strip().splitlines() or [f"status {status}"]
        return f"it says: {why[-1].strip()}", "use a newer xdp-tools, and Linux 5.18 or newer"
    return "", ""


def _told(*command: str) -> tuple[int, str]:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S
    )
    return done.returncode, done.stdout


def check(spec: frames.FrameSpec, veth: bool) -> None:
    """Raise RxbookError for frames that it does not make."""
    instead = "or use generator=live_frames"
    if spec.protocol != "udp":
        raise RxbookError(
            f"generator=xdp_trafficgen with protocol={spec.protocol}: its TCP is one connection with a socket that "
            f"answers; say protocol=udp, {instead}"
        )
    if spec.udp_csum == "zero":
        raise RxbookError(
            f"udp_csum=zero: generator=xdp_trafficgen always computes it; say udp_csum=computed, {instead}"
        )
    if spec.encap != "none" or spec.ip_version != 6:
        raise RxbookError(
            f"generator=xdp_trafficgen makes IPv6 without a tunnel only: say ip_version=6, {instead}"
        )
    if spec.frame_size < SHORTEST:
        raise RxbookError(
            f"frame_sizes={spec.frame_size}: generator=xdp_trafficgen makes {SHORTEST} bytes or more; with {SHORTEST} "
            "the UDP payload is empty and GRO merges nothing"
        )
    if spec.flows > 1:
        raise RxbookError(
            f"flows={spec.flows}: generator=xdp_trafficgen spoils the UDP checksum of most frames when it varies the "
            f"port (--dyn-ports, seen in xdp-tools 1.6.3), so GRO merges none; say flows=1, {instead}"
        )


class XdpTrafficgen:
    """Sends the frames of a FrameSpec out of one device until told to stop."""

    def __init__(self, device: str, cpu: int):
        self._program, self._device = program(), device
        if cpu != 0:
            raise RxbookError(
                f"generator=xdp_trafficgen sends from CPU 0 and from no other, not from CPU {cpu}"
            )
        self._process: subprocess.Popen | None = None
        self._output: IO[str]
        self._start = 0.0
        self.printed_pps: float | None = None

    def load(self, spec: frames.FrameSpec, macs: bytes = frames.RECEIVER_MAC + frames.SENDER_MAC) -> None:
        """Choose what is sent; macs: the receiver's, then the sender's."""
        self._arguments = [
            "udp", "--pkt-size", str(spec.frame_size), "--dst-mac", macs[:6].hex(":"), "--src-mac",
            macs[6:].hex(":"), "--dst-addr", str(frames.RECEIVER_IP6), "--src-addr", str(frames.SENDER_IP6),
            "--dst-port", str(frames.DST_PORT), "--src-port", str(frames.FIRST_SRC_PORT),
        ]  # fmt: skip

    def start(self) -> None:
        """Begin to send; returns when the thread that sends is there."""
        self._begin()
        tasks, deadline = Path(f"/proc/{self._process.pid}/task"), time.monotonic() + DEADLINE_S
        while len(list(tasks.iterdir())) < 2:  # its output comes late, as it is no terminal's
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise self._trouble()
            time.sleep(POLL_S)
        self._start = time.monotonic()

    def stop(self) -> None:
        """Stop sending; `printed_pps` is then of what was sent."""
        if self._process is None:
            return
        seconds = time.monotonic() - self._start
        self._process.send_signal(signal.SIGINT)
        text = self._end()
        self.printed_pps = rate(text, seconds)

    def send(self, count: int) -> float:
        """Send `count` frames and return the seconds it took, all its preparations included."""
        start = time.monotonic()
        self._begin("--num-packets", str(count))
        if not LINE.search(self._end()):
            raise self._trouble()
        return time.monotonic() - start

    def send_in_calls(self, calls: int, each: int) -> None:
        """Send `calls` times `each` frames, AT_ONCE with each start, and let others have the CPU in between."""
        for sent in range(0, calls * each, AT_ONCE):
            self.send(min(AT_ONCE, calls * each - sent))
            time.sleep(YIELD_S)

    def _begin(self, *more: str) -> None:
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - until the next one
        self._process = subprocess.Popen(
            [self._program, *self._arguments, *more, self._device],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(lifetime.die_with_parent, os.getpid()),
        )

    def _end(self) -> str:
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RxbookError(f"{PROGRAM} did not end within {DEADLINE_S:g} s") from None
        self._process = None
        return self._text()

    def _text(self) -> str:
        self._output.seek(0)
        return self._output.read()

    def _trouble(self) -> RxbookError:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        return RxbookError(f"{PROGRAM} sends nothing: {' / '.join(self._text().strip().splitlines()[-2:])}")
