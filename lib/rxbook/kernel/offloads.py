# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Offload features of a device, as `ethtool -k` names them; put back to what they were."""

from __future__ import annotations

from pyroute2.ethtool.ethtool import Ethtool

from rxbook import RxbookError

__all__ = ["FEATURES", "Offloads", "compute_checksums"]

FEATURES = {
    "gro": "rx-gro",
    "rx_udp_gro_forwarding": "rx-udp-gro-forwarding",
    "rx_gro_list": "rx-gro-list",
}
"""Our parameter names, and the kernel's names of the features."""


CHECKSUM = "tx-checksum-ip-generic"


def compute_checksums(device: str) -> None:
    """Have the kernel compute checksums itself before it gives a device an skb."""
    ethtool = Ethtool()
    features = ethtool.get_features(device)
    features.features[CHECKSUM].enable = False
    ethtool.set_features(device, features)
    if ethtool.get_features(device).features[CHECKSUM].enable:
        raise RxbookError(f"{device} keeps {CHECKSUM} on: its frames would have no UDP checksum")


class Offloads:
    """The offloads of one device. `before` holds what they were at first sight; `restore` goes back to it."""

    def __init__(self, device: str):
        self.device = device
        self._ethtool = Ethtool()
        self.before = self.read()

    def read(self) -> dict[str, str]:
        """{"gro": "off" or "on", ...} as the device has them now."""
        features = self._ethtool.get_features(self.device).features
        missing = [name for name in FEATURES.values() if name not in features]
        if missing:
            raise RxbookError(f"{self.device} has no feature {', '.join(missing)}: a newer kernel is needed")
        return {ours: "on" if features[theirs].enable else "off" for ours, theirs in FEATURES.items()}

    def apply(self, wanted: dict[str, str]) -> None:
        """Set offloads; raises RxbookError where the device refuses one."""
        if all(self.read()[name] == state for name, state in wanted.items()):
            return
        features = self._ethtool.get_features(self.device)
        for name, state in wanted.items():
            features.features[FEATURES[name]].enable = state == "on"
        self._ethtool.set_features(self.device, features)
        now = self.read()
        for name, state in wanted.items():
            if now[name] != state:
                raise RxbookError(f"{self.device} keeps {FEATURES[name]} {now[name]}, {state} was asked for")

    def restore(self) -> None:
        """Back to what was."""
        self.apply(self.before)
