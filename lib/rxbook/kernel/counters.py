# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counters that the kernel keeps anyway: reading them costs the receive path nothing."""

from __future__ import annotations

import os
import time
from fnmatch import fnmatchcase
from pathlib import Path

from rxbook import RxbookError

__all__ = [
    "CounterFile",
    "cpu_time_ns",
    "find_kthread",
    "ip_receives",
    "pressure_us",
    "run_delay_ns",
    "steal_s",
]

CPUCLOCK_SCHED = 2  # kernel/time/posix-cpu-timers.c: nanoseconds from the scheduler


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
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if fnmatchcase(comm.read_text().strip(), pattern):
                return int(comm.parent.name)
        except OSError:  # a process that ended meanwhile
            continue
    raise RxbookError(f"no kernel thread is named {pattern}: its CPU time cannot be read")


def cpu_time_ns(pid: int) -> int:
    """CPU time of a thread so far, ns. Unlike /proc/PID/schedstat it is current within a scheduler tick."""
    return time.clock_gettime_ns(~pid << 3 | CPUCLOCK_SCHED)


def run_delay_ns(schedstat: str) -> int:
    """Time that a thread was ready but waited for its CPU, ns, from /proc/PID/schedstat."""
    return int(schedstat.split()[1])


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
