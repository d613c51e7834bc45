# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts rxbook's Python on another host by the system's ssh: the user's own configuration, keys and jump hosts.

An archive of what runs there is sent first, and is only ever in that process's memory: nothing is installed, nothing
is left. Never asks for a password: what ssh and sudo cannot do without a question, they refuse.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shlex
import subprocess
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyperf
import pyroute2

import rxbook
from rxbook import RxbookError

__all__ = ["archive", "explained", "release", "start"]

CARRIED = ("kernel", "generators", "receivers", "testbeds")
ROOM = Path(rxbook.__file__).parent

# Reads the archive into a file that only this process has, and begins. One line, as any login shell must take it.
BOOT = (
    "import os,sys;"
    "sys.version_info>=(3,11) or sys.exit('Python '+sys.version.split()[0]+' is too old: 3.11 or newer is needed');"
    "data=bytearray();"
    "[data.extend(os.read(0,min({size}-len(data),65536)) or sys.exit('the connection ended'))"
    " for _ in iter(lambda:len(data)<{size},False)];"
    "carried=os.memfd_create('rxbook');"
    "os.write(carried,data);"
    "sys.path.insert(0,'/proc/self/fd/%d'%carried);"
    "from rxbook.testbeds import remote;"
    "remote.main(*sys.argv[1:])"
)

OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",  # the user's own are of his own sessions, and taken
    "RemoteCommand=none",
)
"""What holds whatever the user's configuration says; of a jump host his configuration alone decides."""

SILENT = {"SSH_ASKPASS_REQUIRE": "never"}
"""BatchMode is not of jump hosts: without a terminal and this, they have nobody to ask for a password."""

AS_ROOT = "log in as root, or let this user run sudo without a password"
REMEDIES = {
    "verification failed": "connect once by hand, compare the key with the host's own, and accept it",
    "Permission denied": "no passwords are asked for: let `ssh -o BatchMode=yes HOST true` work, by a key or an agent",
    "sudo: not found": AS_ROOT,
    "sudo: command not found": AS_ROOT,
    "not found": "install Python 3.11 or newer there, or name it in the file, python: python3.12",
    "sudo:": AS_ROOT,
    "too old": "name another in the file, python: python3.12",
    "resolve hostname": "see its name in the file, and your ssh configuration",
    "ssh: connect to": "see that it runs and that `ssh HOST true` works",
    "open failed": "the jump host does not reach it: see its name and port in your ssh configuration",
}
"""What ssh, sudo and shells say, and what to do."""


@functools.cache
def archive() -> bytes:
    """A zip of what runs on the other host: rxbook's roles, BPF objects, and the pure Python packages they need."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as carried:
            own = [ROOM / f"{name}.py" for name in ("__init__", "frames", "provenance")]
            own += [path for name in CARRIED for path in sorted((ROOM / name).rglob("*"))]
            _add(carried, ROOM, (path for path in own if path.suffix in (".py", ".o")))
            for package in (pyroute2, pyperf):
                _add_package(carried, package)
        return file.getvalue()


def _add_package(carried: zipfile.ZipFile, package: ModuleType) -> None:
    room = Path(package.__file__).parent
    _add(carried, room, sorted(path for path in room.rglob("*.py") if "test" not in path.parts))


def _add(carried: zipfile.ZipFile, room: Path, paths: Iterable[Path]) -> None:
    for path in paths:
        carried.writestr(str(Path(room.name, path.relative_to(room))), path.read_bytes())


def start(host: str, ssh_config: str, python: str, asked: dict[str, Any], errors: Any) -> subprocess.Popen:
    """The ssh process whose pipes are those of remote.main(asked), as root; `errors` takes what is said there."""
    boot = BOOT.format(size=len(archive()))
    run = f'{shlex.quote(python)} -c {shlex.quote(boot)} {shlex.quote(json.dumps(asked))} "$SSH_CONNECTION"'
    script = f'if [ "$(id -u)" = 0 ]; then exec {run}; else exec sudo -n {run}; fi'
    process = subprocess.Popen(
        _command(host, ssh_config, f"exec sh -c {shlex.quote(script)}"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=os.environ | SILENT,
        start_new_session=True,  # Ctrl-C is for the run, which then tells the other end
    )
    threading.Thread(target=_send, args=(process, archive()), daemon=True).start()
    return process


def _send(process: subprocess.Popen, carried: bytes) -> None:
    """In a thread, so that both hosts begin at once; nobody asks anything before the answer to this has come."""
    with contextlib.suppress(OSError, ValueError):  # it ended, or was closed: its reason follows
        process.stdin.write(carried)
        process.stdin.flush()


def _command(host: str, ssh_config: str, command: str) -> list[str]:
    own = ["-F", ssh_config] if ssh_config else []
    return ["ssh", "-T", *own, *(word for option in OPTIONS for word in ("-o", option)), "--", host, command]


def release(host: str, ssh_config: str) -> str:
    """The kernel's release on a host. Raises RxbookError where it cannot be asked."""
    try:
        done = subprocess.run(
            _command(host, ssh_config, "uname -r"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | SILENT,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RxbookError(f"{host}: {error}; see that `ssh {host} true` works") from None
    if done.returncode:
        raise RxbookError(f"{host}: {explained(done.stderr, host)}")
    return done.stdout.strip()


def explained(said: str, host: str) -> str:
    """What ssh or the host said, in one line with its remedy: the last line that has one, else the last."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    for line in reversed(lines):
        remedy = next((words for sign, words in REMEDIES.items() if sign in line), "")
        if remedy:
            return f"{line}; {remedy.replace('HOST', host)}"
    return lines[-1] if lines else "ssh ended without a word"
