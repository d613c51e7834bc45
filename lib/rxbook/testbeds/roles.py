# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the sender and the receiver process of a testbed can be asked. Run as a module, one role each."""

from __future__ import annotations

import gc
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

from rxbook import RxbookError, frames, generators
from rxbook.kernel import counters, libbpf, lifetime, namespaces, perf_tool
from rxbook.kernel.offloads import Offloads, compute_checksums
from rxbook.testbeds.processes import packed, serve, sleep_until

__all__ = ["Receiver", "Sender", "run"]


class Sender:
    """Stands in a namespace of its own and sends the frames it is told to."""

    def connect(self, name: str, peer: str, peer_pid: int, cpu: int, generator: str) -> None:
        """Make the veth pair, our end set up, the other in the namespace of process `peer_pid`."""
        namespaces.connect_veth(name, frames.SENDER_MAC, peer, frames.RECEIVER_MAC, peer_pid)
        ifindex = namespaces.set_address(name, [f"{frames.SENDER_IP4}/24", f"{frames.SENDER_IP6}/64"])
        if generator == "live_frames":
            self._generator = generators.on_device(generator, ifindex, cpu, namespaces.parking_devices(name))
        else:
            # an skb's checksum would be left to the device, and veth leaves it to nobody
            compute_checksums(name)
            self._generator = generators.on_device(generator, name, cpu)

    def load(self, spec: dict[str, Any]) -> None:
        """Choose the frames, by the fields of a FrameSpec."""
        self._generator.load(frames.FrameSpec(**spec))

    def start(self) -> None:
        """Begin to send."""
        self._generator.start()

    def stop(self) -> float:
        """Stop sending; returns the seconds that took."""
        start = time.monotonic()
        self._generator.stop()
        return time.monotonic() - start

    def printed_pps(self) -> float | None:
        """The rate that the generator printed of what it sent last, frames per second."""
        return self._generator.printed_pps

    def send(self, count: int) -> float:
        """Send `count` frames and return the seconds they took."""
        return self._generator.send(count)

    def send_in_calls(self, calls: int, each: int) -> None:
        """Send `calls` times `each` frames; in between whoever shares the CPU takes what was sent."""
        self._generator.send_in_calls(calls, each)

    def send_nothing(self, count: int, parked: bool = True) -> float:
        """Run the bare live-frame loop on `count` frames and return the seconds it took."""
        return self._generator.send_nothing(count, parked)


class Receiver:
    """Stands in a namespace of its own, receives, and counts."""

    def __init__(self) -> None:
        self._receivers: dict[str, Any] = {}
        self._receiver: Any = None
        self._task: counters.Task | None = None
        self._heads: Any = None
        self._recording: perf_tool.Recording | None = None
        self._filters: tuple[int, ...] = ()

    def connect(self, name: str, cpu: int) -> dict[str, str]:
        """Set up our end of the veth pair. Returns its offloads as they were."""
        addresses = [f"{frames.RECEIVER_IP4}/24", f"{frames.RECEIVER_IP6}/64"]
        return self._take(name, namespaces.set_address(name, addresses), cpu)

    def _take(self, name: str, ifindex: int, cpu: int) -> dict[str, str]:
        """Receive on a device that is set up. Returns its offloads as they were."""
        from rxbook.receivers.device import Device

        self._device = Device(name, ifindex, cpu)
        self._offloads = Offloads(name)
        self._files = {
            "snmp": counters.CounterFile("/proc/self/net/snmp"),
            "snmp6": counters.CounterFile("/proc/self/net/snmp6"),
            "pressure": _optional("/proc/pressure/cpu"),
            "stat": counters.CounterFile("/proc/stat"),
        }
        return self._offloads.before

    def configure(self, receiver: str, queue_size: int, offloads: dict[str, str], drop_tcp: bool) -> int:
        """Make ready for a cell; what it shares with the cell before stays as it is.

        Returns the process id of the thread that receives.
        """
        from rxbook.receivers import RECEIVERS

        if receiver not in self._receivers:
            self._receivers[receiver] = RECEIVERS[receiver](self._device, queue_size)
        if self._receiver is not self._receivers[receiver]:
            self._leave_receiver()
            self._receiver = self._receivers[receiver]
            self._receiver.start()
            if self._task:
                self._task.close()
            self._task = counters.Task(self._receiver.pid)
        self._offloads.apply(offloads)
        if drop_tcp and not self._filters:
            program = {"drop_tcp": (libbpf.BPF_PROG_TYPE_NETFILTER, libbpf.BPF_NETFILTER)}
            ifindex = struct.pack("=I", self._device.ifindex)
            self._filter = libbpf.BpfObject("drop_tcp", ifindex, program_types=program)
            self._filters = tuple(libbpf.attach_netfilter(self._filter.program_fd("drop_tcp")))
        elif not drop_tcp:
            self._remove_filters()
        return self._receiver.pid

    def window(self, warmup_s: float, window_s: float) -> dict[str, float | None]:
        """Let traffic run for `warmup_s`, then count for `window_s`. Returns what changed in that time."""
        start_ns = time.monotonic_ns() + int(warmup_s * 1e9)
        sleep_until(start_ns)
        before = self._count()
        sleep_until(before["clock_ns"] + int(window_s * 1e9))
        after = self._count()
        return {name: None if after[name] is None else after[name] - before[name] for name in after}

    def _count(self) -> dict[str, float | None]:
        receiver, files = self._receiver, self._files
        for _ in range(20):
            # clock and frames stand side by side; try again where we were interrupted between them
            clock_ns = time.monotonic_ns()
            received, cpu_ns = receiver.frames(), self._task.cpu_ns()
            if time.monotonic_ns() - clock_ns < 100_000:
                break
        skbs = counters.ip_receives(files["snmp"].read(), files["snmp6"].read())
        return {
            "clock_ns": clock_ns,
            "frames": received,
            "cpu_ns": cpu_ns,
            "cycles": self._task.cycles(),
            "skbs": skbs,
            "offered_frames": receiver.offered(),
            "run_delay_ns": self._task.waited_ns(),
            "pressure_us": counters.pressure_us(files["pressure"].read()) if files["pressure"] else None,
            "steal_s": counters.steal_s(files["stat"].read(), self._device.cpu),
            **(self._heads.read() if self._heads else {}),
        }

    def counters(self) -> dict[str, float | None]:
        """All counters, once what was sent is received."""
        self._wait_until_quiet()
        return self._count()

    def count_heads(self, counting: bool) -> None:
        """Count where heads of skbs come from, in the windows from now on, or no longer."""
        from rxbook.kernel.skb_heads import SkbHeads

        if self._heads:
            self._heads.close()
        self._heads = SkbHeads(self._device.cpu) if counting else None

    def perf_command(self) -> list[str]:
        """The command that records this receiver's CPU, as `perf_tool.record_command`."""
        return perf_tool.record_command(str(self._device.cpu))

    def start_recording(self, argv: list[str]) -> None:
        """Record from now on; what perf needs on disk lies in a temporary folder."""
        self._folder = perf_tool.temporary_folder()
        place = Path(self._folder.name)
        try:
            self._recording = perf_tool.Recording(argv, place / "perf.data", place)
            self._recording.control.obey("enable")
        except RxbookError:
            self._folder.cleanup()
            raise

    def stop_recording(self) -> dict[str, str]:
        """End the recording. Returns the name of the thread that receives, `task`, and perf.data, `data`, packed."""
        with self._folder:
            self._recording.stop()
            data = packed(Path(self._folder.name, "perf.data").read_bytes())
        return {"task": Path(f"/proc/{self._receiver.pid}/comm").read_text().strip(), "data": data}

    def kallsyms(self) -> str:
        """The kernel's symbols now, packed."""
        return packed(Path("/proc/kallsyms").read_bytes())

    def capture(self, limit: int) -> None:
        """Keep the next `limit` frames instead of receiving."""
        self._leave_receiver()
        self._device.capture(limit)

    def captured(self) -> list[str]:
        """The frames that were kept, in hexadecimal."""
        return [packet.hex() for packet in self._device.captured()]

    def offloads(self) -> dict[str, str]:
        """The device's offloads now."""
        return self._offloads.read()

    def restore(self) -> dict[str, str]:
        """Take everything back that `configure` changed. Returns the offloads as they are then."""
        self._remove_filters()
        self._leave_receiver()
        self._offloads.restore()
        return self._offloads.read()

    def _wait_until_quiet(self) -> None:
        """Queues hold TCP segments after the sender stopped; none may be answered with a reset."""
        before = None
        while (now := self._receiver.frames()) != before or not self._task.sleeps():
            before = now
            time.sleep(0.005)

    def _leave_receiver(self) -> None:
        if self._receiver:
            self._receiver.stop()
        self._receiver = None

    def _remove_filters(self) -> None:
        if self._filters and self._receiver:
            self._wait_until_quiet()
        for link in self._filters:
            os.close(link)
        self._filters = ()


def _optional(path: str) -> counters.CounterFile | None:
    try:
        return counters.CounterFile(path)
    except OSError:
        return None


def main() -> None:
    """`python -m rxbook.testbeds.roles sender|receiver PARENT_PID`."""
    name, parent = sys.argv[1], int(sys.argv[2])
    lifetime.die_with_parent(parent)
    run(name)


def run(name: str) -> None:
    """Be the sender or the receiver until standard input ends."""
    gc.disable()
    role = {"sender": Sender, "receiver": Receiver}[name]()

    requests = {key: getattr(role, key) for key in dir(role) if not key.startswith("_")}
    serve({"enter": namespaces.enter_private_namespace, **requests})


if __name__ == "__main__":
    try:
        main()
    except RxbookError as error:
        sys.exit(str(error))
