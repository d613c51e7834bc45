# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the ethtool command says of an Ethernet device: driver, firmware, rings, coalescing, channels, counters."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["counters", "describe", "rx_queues", "values"]

ASKED = {"rings": "-g", "coalescing": "-c", "channels": "-l"}


def describe(name: str) -> dict[str, object]:
    """The device as it is set now; None for what neither the kernel nor an installed ethtool tells.

    speed_mbps, mtu_bytes and rx_queues are numbers; rings, coalescing and channels are what ethtool calls current
    settings. Holds no address and no name of the device.
    """
    about = _ask("-i", name) or {}
    return {
        "driver": about.get("driver") or _driver(name),
        "driver_version": about.get("version"),
        "firmware": about.get("firmware-version"),
        "speed_mbps": _number(f"/sys/class/net/{name}/speed"),
        "mtu_bytes": _number(f"/sys/class/net/{name}/mtu"),
        "numa_node": _number(f"/sys/class/net/{name}/device/numa_node"),
        "rx_queues": rx_queues(name),
        **{key: _ask(option, name) for key, option in ASKED.items()},
    }


def counters(name: str) -> dict[str, int] | None:
    """The hardware's and driver's own counters, `ethtool -S`; None without ethtool or where the driver has none."""
    found = _ask("-S", name)
    return found and {key: value for key, value in found.items() if isinstance(value, int)}


def rx_queues(name: str) -> int:
    """How many queues the device receives into."""
    return len(list(Path(f"/sys/class/net/{name}/queues").glob("rx-*")))


def _ask(option: str, name: str) -> dict[str, int | str] | None:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])  # sudo's path may lack these
    tool = shutil.which("ethtool", path=path)
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, option, name],
            capture_output=True,
            text=True,
            timeout=10,
            env={"LC_ALL": "C", "PATH": path},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return values(done.stdout) if done.returncode == 0 else None


def values(text: str) -> dict[str, int | str]:
    """`NAME: VALUE` lines of ethtool's output, of the current settings only where it tells the possible ones, too.

    Whole numbers are numbers; "n/a" and empty values are left out.
    """
    text = text.partition("Current hardware settings:")[2] or text
    found: dict[str, int | str] = {}
    for line in text.splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        if colon and value and not value.startswith("n/a"):
            found[name] = int(value) if value.isdigit() else value
    return found


def _driver(name: str) -> str | None:
    link = Path(f"/sys/class/net/{name}/device/driver")
    return link.resolve().name if link.exists() else None


def _number(path: str) -> int | None:
    """None where the kernel does not know: it says so by an error, or by -1."""
    try:
        number = int(Path(path).read_text())
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None
