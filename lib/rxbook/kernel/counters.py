# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counters that the kernel keeps anyway: reading them costs the receive path nothing."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from rxbook import RxbookError
from rxbook.kernel.perf_events import HARDWARE_CYCLES, TASK_CLOCK, Counter

__all__ = [
    "CounterFile",
    "Task",
    "find_kthread",
    "find_process",
    "ip_receives",
    "pressure_us",
    "steal_s",
]


class CounterFile:
    """A file of /proc or /sys that is read again and again, kept open."""

    def __init__(self, path: str | Path):
        self._file = os.open(path, os.O_RDONLY)

    def read(self) -> str:
        """The file's text now."""
        return os.pread(self._file, 16384, 0).decode()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def find_kthread(pattern: str) -> int:
    """Process id of the kernel thread of that name, `*` for any end; raises RxbookError if there is none."""
    found = find_process(pattern)
    if found is None:
        raise RxbookError(f"no kernel thread is named {pattern}: its CPU time cannot be read")
    return found


def find_process(pattern: str) -> int | None:
    """Id of a process of that name, `*` for any end; None if there is none."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if fnmatchcase(comm.read_text().strip(), pattern):
                return int(comm.parent.name)
        except OSError:  # a process that ended meanwhile
            continue
    return None


class Task:
    """A thread's time on its CPU and waiting for it, ns, and its CPU cycles where the machine counts these.

    The time on the CPU is perf's task clock: /proc/PID/schedstat and the thread's CPU clock stand still
    between two scheduler ticks, 4 ms at HZ=250, which is 2 % of a window of 0.2 s.
    """

    def __init__(self, pid: int):
        self._clock = Counter(TASK_CLOCK, pid)
        try:
            self._cycles = Counter(HARDWARE_CYCLES, pid)
        except RxbookError:  # most virtual machines
            self._cycles = None
        self._schedstat = CounterFile(f"/proc/{pid}/schedstat")
        self._stat = CounterFile(f"/proc/{pid}/stat")

    def cpu_ns(self) -> int:
        """Time that the thread ran so far."""
        return self._clock.read()

    def cycles(self) -> int | None:
        """Cycles that the thread ran so far."""
        return self._cycles.read() if self._cycles else None

    def waited_ns(self) -> int:
        """Time that the thread was ready so far, but its CPU was taken."""
        return int(self._schedstat.read().split()[1])

    def sleeps(self) -> bool:
        """Whether the thread waits for work; one whose CPU is taken by others does not."""
        return self._stat.read().rpartition(")")[2].split()[0] in "SI"

    def close(self) -> None:
        """Let go of the thread."""
        self._clock.close()
        if self._cycles:
            self._cycles.close()
        self._schedstat.close()
        self._stat.close()


def ip_receives(snmp: str, snmp6: str) -> int:
    """skbs that entered IPv4 and IPv6, from /proc/net/snmp and snmp6. What GRO merged counts as one."""
    names, values = [line.split() for line in snmp.splitlines() if line.startswith("Ip:")]
    count = int(values[names.index("InReceives")])
    for line in snmp6.splitlines():
        if line.startswith("Ip6InReceives"):
            count += int(line.split()[1])
    return count


def pressure_us(pressure: str) -> int | None:
    """Time in which some task waited for a CPU, us, from /proc/pressure/cpu; None where it is switched off."""
    for word in pressure.split("\n", 1)[0].split():
        if word.startswith("total="):
            return int(word.removeprefix("total="))
    return None


def steal_s(stat: str, cpu: int) -> float:
    """Seconds that the hypervisor took from a CPU, from /proc/stat."""
    for line in stat.splitlines():
        if line.startswith(f"cpu{cpu} "):
            return int(line.split()[8]) / os.sysconf("SC_CLK_TCK")
    return 0.0
