# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An Ethernet device of a host: what speaks against using it, and its settings, put back to what they were."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError
from pyroute2.ethtool.ethtool import Ethtool
from pyroute2.ethtool.ioctl import EthtoolError
from pyroute2.netlink import NLM_F_REQUEST, genlmsg
from pyroute2.netlink.generic import GenericNetlinkSocket

from rxbook import RxbookError
from rxbook.kernel import counters, facts, libbpf

__all__ = [
    "Settings", "add_address", "irqs", "mac", "obstacles", "set_irq_affinity", "ssh_address", "takes_redirected",
]  # fmt: skip

NET, IRQ = Path("/sys/class/net"), Path("/proc/irq")
OLDEST_LINUX = (5, 18)
FULL_MTU = 1500
RESTORE_S = 5.0
NETDEV_CMD_DEV_GET, NETDEV_XDP_ACT_BASIC, NETDEV_XDP_ACT_NDO_XMIT = 1, 1, 4  # linux/netdev.h
IFA_F_NODAD = 0x02


def obstacles(
    name: str, cpu: int, irq_cpus: list[int], force_default_route: bool, ssh_address: str
) -> Iterator[str]:
    """What speaks against measuring on a device, each with its remedy. Looks only, changes nothing.

    ssh_address: this host's own end of the SSH connection, "" if there is none.
    """
    yield from _machine_obstacles([cpu, *irq_cpus])
    if name not in (there := [each for _, each in socket.if_nameindex()]):
        yield f"there is no interface {name}, only {', '.join(there)}"
        return
    with IPRoute() as ip:
        (link,) = ip.link("get", index=socket.if_nametoindex(name))
        addresses = [each.get_attr("IFA_ADDRESS") for each in ip.addr("dump", index=link["index"])]
        routes = set(_routes(ip, link["index"]))
    above = [path.name.removeprefix("upper_") for path in (NET / name).glob("upper_*")]
    if not force_default_route:
        forced = "take another, or say force_default_route: true and risk losing the host"
        if any(default for _, default in routes):
            yield f"a default route leaves by {name}: {forced}"
        if ssh_address in addresses:
            yield f"this SSH connection comes over {name}: {forced}"
        if above:
            yield f"{name} belongs to {', '.join(above)}: {forced}"
    if any(family == socket.AF_INET for family, _ in routes) and not any("." in each for each in addresses):
        # the kernel takes such routes away together with the last address, which would be ours
        yield f"IPv4 routes leave by {name}, which has no IPv4 address: give it one, or take the routes away"
    if link.get_attr("IFLA_OPERSTATE") not in ("UP", "UNKNOWN") or not link["flags"] & 1:
        yield f"{name} is not up: ip link set {name} up, check the cable and the other end"
    if link.get_attr("IFLA_MTU") < FULL_MTU:
        yield f"{name} has an MTU of {link.get_attr('IFLA_MTU')}: ip link set {name} mtu {FULL_MTU}"
    xdp = link.get_attr("IFLA_XDP")
    if xdp and xdp.get_attr("IFLA_XDP_ATTACHED"):
        yield f"{name} has an XDP program already: end what attached it, or ip link set {name} xdp off"
    if not _can(link["index"], NETDEV_XDP_ACT_BASIC):
        yield f"the driver of {name} has no native XDP: use a device whose driver has"
    if irq_cpus:
        yield from _interrupt_obstacles(name)


def _interrupt_obstacles(name: str) -> Iterator[str]:
    if not irqs(name):
        yield f"{name} has no interrupts of its own: leave irq_cpus out"
    if kept := [str(number) for number in irqs(name) if not _movable(number)]:
        yield f"the kernel places interrupts {', '.join(kept)} of {name} itself: leave irq_cpus out"
    if counters.find_process("irqbalance"):
        yield "irqbalance runs, and would move the interrupts again: systemctl stop irqbalance"


def _movable(irq: int) -> bool:
    """Whether an interrupt may be given to other CPUs: tried with those that it has."""
    path = IRQ / str(irq) / "smp_affinity_list"
    try:
        path.write_text(path.read_text())
    except FileNotFoundError:  # a vector that the driver does not use
        return True
    except OSError:
        return False
    return True


def _machine_obstacles(cpus: list[int]) -> Iterator[str]:
    release = tuple(map(int, re.findall(r"\d+", facts.kernel_release())[:2]))
    if release < OLDEST_LINUX:
        yield f"Linux {facts.kernel_release()} is too old: 5.18 or newer is needed"
    try:
        libbpf.library()
    except RxbookError as error:
        yield str(error)
    online = facts.cpus()["online"]
    if missing := [str(cpu) for cpu in cpus if cpu not in online]:
        yield f"no CPU {', '.join(missing)}: online are {', '.join(map(str, online))}"


def _routes(ip: IPRoute, index: int) -> Iterator[tuple[int, bool]]:
    """(address family, whether it is a default route) of the routes over a device, in any table."""
    for family in (socket.AF_INET, socket.AF_INET6):
        for route in ip.route("dump", family=family):
            ways = [route.get_attr("RTA_OIF")]
            ways += [hop["oif"] for hop in route.get_attr("RTA_MULTIPATH") or []]
            if index in ways:
                yield family, route["dst_len"] == 0


class _DeviceGet(genlmsg):
    nla_map = (("UNSPEC", "none"), ("IFINDEX", "uint32"), ("PAD", "none"), ("XDP_FEATURES", "uint64"))


def takes_redirected(name: str) -> bool:
    """Whether the device sends what XDP redirects to it, as it is set now; True where the kernel does not tell."""
    return _can(socket.if_nametoindex(name), NETDEV_XDP_ACT_NDO_XMIT)


def _can(index: int, action: int) -> bool:
    """Whether the driver has one of NETDEV_XDP_ACT_*; True before Linux 6.3, which does not tell."""
    request = _DeviceGet()
    request["cmd"], request["version"], request["attrs"] = NETDEV_CMD_DEV_GET, 1, [("IFINDEX", index)]
    try:
        with contextlib.closing(GenericNetlinkSocket()) as netlink:
            netlink.bind("netdev", _DeviceGet)
            (answer,) = netlink.nlm_request(request, msg_type=netlink.prid, msg_flags=NLM_F_REQUEST)
    except NetlinkError:
        return True
    return bool(dict(answer["attrs"])["XDP_FEATURES"] & action)


def mac(name: str) -> str:
    """The device's address, twelve hexadecimal digits."""
    return (NET / name / "address").read_text().strip().replace(":", "")


def irqs(name: str) -> list[int]:
    """Interrupts of a device: its own, or of the PCI device that a virtio device is in."""
    for folder in (NET / name / "device/msi_irqs", NET / name / "device/../msi_irqs"):
        if folder.is_dir():
            return sorted(int(path.name) for path in folder.iterdir())
    return []


def set_irq_affinity(name: str, cpus: list[int]) -> None:
    """Serve the device's interrupts on these CPUs only. Raises RxbookError where the kernel refuses one."""
    wanted = ",".join(map(str, cpus))
    for number in irqs(name):
        path = IRQ / str(number) / "smp_affinity_list"
        try:
            if path.exists():
                path.write_text(wanted)
        except OSError as error:
            raise RxbookError(
                f"interrupt {number} of {name} does not go to CPUs {wanted}: {error.strerror}; name others in irq_cpus"
            ) from None


def add_address(name: str, address: str, neighbour: str, neighbour_mac: str) -> None:
    """Give a device an address such as "198.18.0.2/24" and tell it its neighbour's, so that nobody is asked for it."""
    index = socket.if_nametoindex(name)
    host, length = address.split("/")
    with IPRoute() as ip:
        flags = IFA_F_NODAD if ":" in host else 0
        ip.addr("replace", index=index, address=host, prefixlen=int(length), flags=flags)
        ip.neigh("replace", dst=neighbour, lladdr=neighbour_mac, ifindex=index, state="permanent")


class Settings:
    """A device's settings as they are when this is made. `restore` goes back to them, whoever changed them."""

    def __init__(self, name: str):
        self.name, self._index = name, socket.if_nametoindex(name)
        self._features = self._read_features()
        self._addresses, self._neighbours = self._read_addresses()
        self._files = {path: _read(path) for path in self._paths()}

    def _paths(self) -> list[Path]:
        affinities = [IRQ / str(number) / "smp_affinity_list" for number in irqs(self.name)]
        return [path for path in [NET / self.name / "threaded", *affinities] if path.exists()]

    def _read_features(self) -> dict[str, bool]:
        features = Ethtool().get_features(self.name).features
        return {name: feature.enable for name, feature in features.items()}

    def _read_addresses(self) -> tuple[set[tuple[str, int]], set[str]]:
        with IPRoute() as ip:
            addresses = {
                (each.get_attr("IFA_ADDRESS"), each["prefixlen"])
                for each in ip.addr("dump", index=self._index)
            }
            neighbours = {
                each.get_attr("NDA_DST")
                for family in (socket.AF_INET, socket.AF_INET6)
                for each in ip.neigh("dump", family=family, ifindex=self._index)
            }
        return addresses, neighbours

    def features_on(self) -> dict[str, list[str]]:
        """`features_on`: names of the features that were on, as `ethtool -k` has them."""
        return {"features_on": sorted(name for name, on in self._features.items() if on)}

    def restore(self, addresses: list[str], neighbours: list[str]) -> list[str]:
        """Back to what was; takes those of the addresses and neighbours away that were not there.

        Returns what could not be put back, in words.
        """
        failed = []
        for what, step in (
            ("features", self._restore_features),
            ("addresses", lambda: self._remove(addresses, neighbours)),
            ("threaded NAPI and interrupts", self._restore_files),
        ):
            try:
                step()
            except Exception as error:  # the other steps still count
                failed.append(f"{what} of {self.name} are not as before: {type(error).__name__} {error}")
        return failed

    def _restore_features(self) -> None:
        """Some are held back while a BPF program is on the device or on its peer; both go in the background."""
        ethtool, deadline = Ethtool(), time.monotonic() + RESTORE_S
        while changed := [name for name, on in self._read_features().items() if on != self._features[name]]:
            if time.monotonic() > deadline:
                raise RxbookError(", ".join(changed))
            wanted = ethtool.get_features(self.name)
            for name in changed:
                wanted.features[name].enable = self._features[name]
            with contextlib.suppress(EthtoolError):  # it does what it can, and complains of the rest
                ethtool.set_features(self.name, wanted)
            time.sleep(0.02)

    def _remove(self, addresses: list[str], neighbours: list[str]) -> None:
        now, known = self._read_addresses()
        with IPRoute() as ip:
            for neighbour in neighbours:
                if neighbour in known - self._neighbours:
                    ip.neigh("del", dst=neighbour, ifindex=self._index)
            for address in addresses:
                host, length = address.split("/")
                if (host, int(length)) in now - self._addresses:
                    ip.addr("del", index=self._index, address=host, prefixlen=int(length))

    def _restore_files(self) -> None:
        for path, text in self._files.items():
            if text is not None and _read(path) != text:
                path.write_text(text)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def ssh_address(connection: str) -> str:
    """This host's address in $SSH_CONNECTION, "" without one."""
    words = connection.split()
    return words[2].removeprefix("::ffff:") if len(words) == 4 else ""
