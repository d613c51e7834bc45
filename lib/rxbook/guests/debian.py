# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Debian's kernels for virtual machines: fetched by apt with its signatures checked, unpacked into the store, never
installed. apt works in folders of our own, so the machine's package lists stay as they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rxbook import RxbookError
from rxbook.guests import kernels
from rxbook.guests.kernels import Kernel

__all__ = ["PREFIX", "fetch", "newest"]

PREFIX = "debian:"
MIRROR = "http://deb.debian.org/debian"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITES = ("oldstable", "stable", "stable-backports", "testing", "unstable", "experimental")
TOOLS = ("apt-get", "apt-cache", "dpkg-deb")
TIMEOUT_S = 300

PACKAGE = re.compile(r"linux-(?:image|binary)-((\d+(?:\.\d+)+)\S*-cloud-amd64)")
PARTS = ("image", "binary", "modules", "base")
"""Until 7.1 all is in linux-image; from 7.2 the image is in linux-binary, the configuration in linux-base."""


def fetch(wanted: str, label: str | None = None) -> Kernel:
    """Put a Debian kernel into the store: "debian:6.12" the newest 6.12, "debian:" the newest of all.

    Raises RxbookError where apt is not there or refuses, or the mirror has no such kernel.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or not KEYS.exists():
        lacking = ", ".join(missing) or str(KEYS)
        raise RxbookError(f"{wanted}: needs Debian's apt and its keys, and {lacking} is not there")
    configuration = _configure(kernels.store().parent / "apt")
    _run(configuration, "apt-get", "update", "-qq")
    names = _run(configuration, "apt-cache", "pkgnames", "linux-").split()
    flavour = newest(names, wanted.removeprefix(PREFIX))
    packages = [f"linux-{part}-{flavour}" for part in PARTS if f"linux-{part}-{flavour}" in names]
    with tempfile.TemporaryDirectory(prefix="rxbook-") as folder:
        os.chmod(folder, 0o755)
        _run(
            configuration,
            "apt-get",
            "download",
            "-qq",
            "-o",
            "APT::Sandbox::User=root",
            *packages,
            cwd=folder,
        )
        root = Path(folder) / "root"
        for package in sorted(Path(folder).glob("*.deb")):
            _run(configuration, "dpkg-deb", "-x", str(package), str(root))
        image, config = (next(root.rglob(name), None) for name in ("vmlinuz*", "config-*"))
        if image is None:
            raise RxbookError(f"{wanted}: no kernel image in {', '.join(packages)}")
        version = next(Path(folder).glob("*.deb")).name.split("_")[1]
        series = ".".join(re.split(r"[.+-]", flavour)[:2])
        name = label or (PREFIX + series if wanted == PREFIX else wanted)
        config = config or next(root.rglob("config"), None)
        return kernels.add(name, image, root, config, source=f"Debian linux-image-{flavour} {version}")


def newest(names: list[str], wanted: str) -> str:
    """Of these package names the newest kernel of a version ("6.12", "" for any), as "6.12.117+deb13-cloud-amd64".

    Raises RxbookError where there is none.
    """
    found = {match[1]: match[2] for match in map(PACKAGE.fullmatch, names) if match}
    of_version = {
        flavour: number
        for flavour, number in found.items()
        if not wanted or number == wanted or number.startswith(wanted + ".")
    }
    if not of_version:
        series = sorted({".".join(number.split(".")[:2]) for number in found.values()}, key=_ordered)
        raise RxbookError(f"{PREFIX}{wanted}: Debian's mirror serves {', '.join(series) or 'none'}")
    return max(of_version, key=lambda flavour: _ordered(of_version[flavour]))


def _ordered(number: str) -> list[int]:
    return [int(part) for part in number.split(".")]


def _configure(folder: Path) -> dict[str, str]:
    """apt's environment, for lists and sources in a folder of our own."""
    for name in ("lists/partial", "cache/archives/partial", "state"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    mirror = _mirror()
    lines = [f"deb [signed-by={KEYS} arch=amd64] {mirror} {suite} main" for suite in SUITES]
    (folder / "sources.list").write_text("\n".join(lines) + "\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::State": folder / "state",
        "Dir::State::lists": folder / "lists", "Dir::State::status": "/dev/null", "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none", "APT::Architecture": "amd64", "APT::Sandbox::User": "root",
    }  # fmt: skip
    (folder / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}


def _mirror() -> str:
    """The mirror that this machine takes Debian from, if it is one."""
    said = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)"], capture_output=True, text=True
    )
    for line in said.stdout.splitlines():
        origin, _, place = line.partition(" ")
        if origin == "Debian" and place.rstrip("/").endswith("/debian"):
            return place.rstrip("/")
    return MIRROR


def _run(environment: dict[str, str], *command: str, cwd: str | None = None) -> str:
    try:
        done = subprocess.run(
            command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise RxbookError(f"{command[0]}: no end within {TIMEOUT_S} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise RxbookError(f"{' '.join(command[:2])}: {words[-1]}")
    return done.stdout
