# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sender and receiver on one or two other machines, by SSH, on the Ethernet devices that a small YAML file names."""

from __future__ import annotations

import dataclasses
import functools
import secrets
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rxbook import RxbookError, frames, yaml_file
from rxbook.plan import Cell
from rxbook.testbeds import ssh
from rxbook.testbeds.pair import Pair
from rxbook.testbeds.processes import Role, RoleEnded

__all__ = ["Hosts", "HostsFile", "Place", "read", "release"]

BEAT_S = 5.0
"""How often each host hears that this end is there."""

SILENCE_S = 20.0
"""A host that hears nothing for so long takes the connection for lost."""

START_S, LEAVE_S = 90.0, 15.0
"""How long a host may take to begin, and to put everything back."""


OF_THE_RUN = {"versions", "git", "interface"}
"""What a run's host.json says of this machine, where the run is made, or only of each host."""


class Place(BaseModel):
    """Where a role stands. `host` is what ssh calls it; `python` its interpreter."""

    model_config = ConfigDict(extra="forbid", strict=True)

    host: str = Field(pattern=r"^[^-\s]\S*$")
    interface: str = Field(pattern=r"^[^/\s]{1,15}$")
    cpu: int = Field(ge=0)
    irq_cpus: list[int] = []
    python: str = Field("python3", min_length=1)


class HostsFile(BaseModel):
    """The YAML file. `ssh_config`, beside the file or absolute, takes the place of the user's own."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sender: Place
    receiver: Place
    force_default_route: bool = False
    ssh_config: str = ""


def read(path: str | Path) -> HostsFile:
    """The file's content; raises RxbookError that names each wrong line."""
    path = Path(path)
    found = yaml_file.read(path, HostsFile, f"hosts={path}", "two-machines.md")
    if found.ssh_config:
        found.ssh_config = str(path.parent.absolute() / found.ssh_config)
    return found


def release(path: str | Path) -> str:
    """The release of the receiver's kernel, which is the one that is measured."""
    file = read(path)
    return ssh.release(file.receiver.host, file.ssh_config)


class Hosts(Pair):
    """The testbed, as a context manager: checked before anything is changed, put back by the hosts themselves.

    `host` has the facts of both machines as provenance.host, the receiver's own under their usual names.
    """

    def __init__(
        self,
        path: str | Path,
        queue_size: int = 2048,
        holder: str = "rxbook",
        generator: str = "live_frames",
    ):
        self._file = read(path)
        super().__init__(self._file.sender.cpu, self._file.receiver.cpu, queue_size, generator)
        self._holder = f"{holder} by SSH ({secrets.token_hex(4)})"
        self._places = {"sender": self._file.sender, "receiver": self._file.receiver}
        self._begun: list[Role] = []
        self._ended = threading.Event()
        self._sent: frames.FrameSpec | None = None
        self.host: dict[str, Any] = {}
        self.offloads_before: dict[str, str] = {}
        self.offloads_after: dict[str, str] = {}

    def __enter__(self) -> Hosts:
        try:
            self.offloads_before = self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, trouble: type[BaseException] | None, *_: object) -> None:
        try:
            if trouble is None:
                self.sender.call("stop")
                self.offloads_after = self.receiver.call("restore")
                for name, role in (("sender", self.sender), ("receiver", self.receiver)):
                    self.host[name]["interface"]["counters"] = _changes(
                        self._counters[name], role.call("device_counters")
                    )
        finally:
            self.close()

    def connect(self) -> dict[str, str]:
        """Begin on both hosts. Returns the offloads of the receiver's device."""
        for name, place in self._places.items():
            start = functools.partial(self._start_at, name)
            self._roles.append(Role(f"{name} on {place.host}", start))
        self.sender, self.receiver = self._roles
        about = {name: self._about(name, role) for name, role in zip(self._places, self._roles, strict=True)}
        threading.Thread(target=self._beat, daemon=True).start()
        measured = {
            key: about["receiver"]["host"][key] for key in about["receiver"]["host"].keys() - OF_THE_RUN
        }
        self.host = measured | {name: about[name]["host"] for name in about}
        self._macs = bytes.fromhex(about["receiver"]["mac"] + about["sender"]["mac"])
        self._counters = {
            name: role.call("device_counters") for name, role in zip(self._places, self._roles, strict=True)
        }
        sender, receiver = self._file.sender, self._file.receiver
        before = self.receiver.call(
            "connect", name=receiver.interface, cpu=receiver.cpu, irq_cpus=receiver.irq_cpus,
            sender_mac=about["sender"]["mac"],
        )  # fmt: skip
        self.sender.call("connect", name=sender.interface, cpu=sender.cpu, generator=self._generator)
        return before

    def _start_at(self, name: str, _: str, errors: Any) -> subprocess.Popen:
        place = self._places[name]
        asked = {
            "role": name,
            "holder": self._holder,
            "silence_s": SILENCE_S,
            "force_default_route": self._file.force_default_route,
            **place.model_dump(include={"interface", "cpu", "irq_cpus"}),
        }
        return ssh.start(place.host, self._file.ssh_config, place.python, asked, errors)

    def _about(self, name: str, role: Role) -> dict[str, Any]:
        """What a host says first. Raises RxbookError in one line: which host, what is wrong, what to do."""
        try:
            about = role.answer("start", START_S)
        except RoleEnded:
            raise RxbookError(f"{role.name}: {ssh.explained(role.said(), self._places[name].host)}") from None
        self._begun.append(role)
        return about

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            for role in self._roles:
                role.beat()

    def load(self, cell: Cell) -> None:
        """Give the sender a cell's frames, made here, with the addresses of both devices."""
        spec = cell.frame_spec
        if spec != self._sent and self._generator != "live_frames":
            self.sender.call("load_spec", spec=dataclasses.asdict(spec), macs=self._macs.hex())
        elif spec != self._sent:
            ring = frames.ring(spec)
            self.sender.call(
                "load", frame=(self._macs + ring.frame[len(self._macs) :]).hex(), slots=ring.slots.tobytes().hex(),
                header_bytes=frames.headers_bytes(spec), offset=ring.offset, words=ring.words,
            )  # fmt: skip
        self._sent = spec

    def close(self) -> None:
        """Let both hosts put everything back, and wait for that."""
        self._ended.set()
        for role in self._roles:
            if role not in self._begun:  # its ssh may still be connecting
                role.close()
        for role in self._begun:
            role.hang_up()
        for role in self._begun:
            said = role.wait(LEAVE_S)
            role.close()
            if said:
                print(f"{role.name}: {said}", file=sys.stderr)


def _changes(before: dict[str, int] | None, after: dict[str, int] | None) -> dict[str, int] | None:
    """Counters that moved, and by how much; None where there are none."""
    if before is None or after is None:
        return None
    moved = {name: value - before.get(name, 0) for name, value in after.items()}
    return {name: change for name, change in moved.items() if change}
