# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Network namespaces without names, and the veth pair between two of them.

A namespace lives as long as the process that made it, and takes its devices along when it goes. So there
is nothing to undo after kill -9: the kernel does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from pyroute2 import IPRoute

from rxbook import RxbookError

__all__ = ["aside", "connect_veth", "enter_private_namespace", "parking_devices", "set_address"]

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
IFA_F_NODAD = 0x02


def _libc(call: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*arguments) != 0:
        number = ctypes.get_errno()
        raise RxbookError(f"{call}: {os.strerror(number)}" + ("; run as root" if os.geteuid() else ""))


def enter_private_namespace() -> None:
    """Move this process into a new network namespace, with a /sys that shows its devices."""
    _libc("unshare", CLONE_NEWNET | CLONE_NEWNS)
    _libc("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    _libc("mount", b"sysfs", b"/sys", b"sysfs", 0, None)
    if not Path("/proc/self/net/snmp6").exists():
        raise RxbookError("this kernel runs without IPv6: boot it without ipv6.disable=1")
    # without link-local addresses of the kernel's own making nobody asks for routers
    Path("/proc/sys/net/ipv6/conf/default/addr_gen_mode").write_text("1")


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """A private namespace for this thread, for a while; what is made there lasts as long as the process."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _libc("unshare", CLONE_NEWNET)
    os.open("/proc/thread-self/ns/net", os.O_RDONLY)  # never closed: it keeps the namespace
    try:
        yield
    finally:
        _libc("setns", home, CLONE_NEWNET)
        os.close(home)


def connect_veth(name: str, mac: bytes, peer_name: str, peer_mac: bytes, peer_pid: int) -> int:
    """Make a veth pair between this namespace and that of process `peer_pid`. Returns our end's ifindex.

    Both ends are made where they belong, so the machine's own namespace never sees them.
    """
    with IPRoute() as ip:
        ip.link(
            "add", ifname=name, kind="veth", address=mac.hex(":"),
            peer={"ifname": peer_name, "address": peer_mac.hex(":"), "net_ns_pid": peer_pid},
        )  # fmt: skip
        return ip.link_lookup(ifname=name)[0]


def set_address(name: str, addresses: list[str]) -> int:
    """Give a device addresses such as "198.18.0.2/24" and set it up. Returns its ifindex.

    Without ARP the kernel looks for no neighbours and IPv6 asks and reports nothing: all that the device sends
    is the frames of the run, and the receiver's few answers to them.
    """
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=name)[0]
        ip.link("set", index=index, arp=False)
        for address in addresses:
            host, length = address.split("/")
            flags = IFA_F_NODAD if ":" in host else 0
            ip.addr("add", index=index, address=host, prefixlen=int(length), flags=flags)
        ip.link("set", index=index, state="up")
        return index


def parking_devices(name: str) -> tuple[int, int]:
    """A veth pair of this namespace that stays down: a place to attach programs that must not see traffic."""
    with IPRoute() as ip:
        names = f"{name[:-1]}p", f"{name[:-1]}q"
        ip.link("add", ifname=names[0], kind="veth", peer={"ifname": names[1]})
        return tuple(ip.link_lookup(ifname=each)[0] for each in names)
