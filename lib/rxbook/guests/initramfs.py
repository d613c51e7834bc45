# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A guest's whole file system: an archive in memory with this interpreter, the modules that the guest's part needs,
and the job. The guest has no disk, no shared folder and no network, so it has no way to this machine's files.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import marshal
import os
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rxbook import RxbookError

__all__ = ["archive", "base"]

LIBRARY = Path(__file__).resolve().parents[2]
UNCHECKED = (0b01).to_bytes(
    4, "little"
)  # PEP 552: a hash-based .pyc that is taken without looking at its source

INIT = """#!{python} -S
import os, sys
os.environ.update(PATH="/bin", HOME="/", PYTHONPATH={path!r}, LD_LIBRARY_PATH={libraries!r})
os.execv({python!r}, [{python!r}, "-S", "-m", "rxbook.guests.inside"])
"""


@functools.cache
def base(more: tuple[str, ...] = ()) -> bytes:
    """The part of the archive that all guests share: /init, the interpreter, modules, BPF objects, libraries.

    Found by loading the guest's part in a process of its own and looking at what that opened. more: paths of
    programs that come along, with their libraries, and are found by name. Raises RxbookError where the guest's part
    cannot be loaded.
    """
    found = _loaded()
    programs = [os.path.realpath(sys.executable), *more]
    needed = {os.path.realpath(path) for program in more for path in _needed(program).values()}
    found["libraries"] = sorted({*found["libraries"], *needed})
    python = os.path.realpath(sys.executable)
    folders = [
        str(LIBRARY),
        *(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
    ]
    libraries = sorted({os.path.dirname(path) for path in found["libraries"]})
    init = INIT.format(python=python, path=":".join(folders), libraries=":".join(libraries))
    files: dict[str, tuple[int, bytes]] = {"/init": (0o755, init.encode())}
    for path in (*programs, *found["libraries"]):
        files[path] = (0o755, Path(path).read_bytes())
    for link, target in _links(programs, found["libraries"]):
        files[link] = (stat.S_IFLNK | 0o777, target.encode())
    for program in more:
        files[f"/bin/{os.path.basename(program)}"] = (stat.S_IFLNK | 0o777, program.encode())
    for source in found["modules"]:
        files[source] = (0o644, Path(source).read_bytes())
        if source.endswith(".py"):
            files[importlib.util.cache_from_source(source)] = (0o644, _compiled(source, files[source][1]))
    for path in (LIBRARY / "rxbook" / "kernel" / "bpf").glob("*.o"):
        files[str(path)] = (0o644, path.read_bytes())
    return b"".join(_cpio(_with_folders(files)))


def archive(
    job: Mapping[str, object], modules: Iterable[tuple[str, bytes]], more: tuple[str, ...]
) -> list[bytes]:
    """The parts of one guest's archive: what all share, and its job and kernel modules (name, content)."""
    files = {"/job.json": (0o644, json.dumps(job).encode())}
    files |= {f"/modules/{name}": (0o644, content) for name, content in modules}
    return [base(more), b"".join(_cpio(_with_folders(files)))]


def _loaded() -> dict[str, list[str]]:
    """Files of the Python modules and of the shared libraries that the guest's part opens."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(LIBRARY), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "rxbook.guests.inside", "--loaded"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RxbookError(f"the guest's part cannot be loaded: {done.stderr.strip().splitlines()[-1]}")
    found = json.loads(done.stdout)
    return found


def _links(programs: Iterable[str], libraries: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(link, library) for the names by which the loader looks for libraries, and for the loader's own name."""
    wanted = {os.path.realpath(path) for path in libraries}
    for folder in {os.path.dirname(path) for path in wanted}:
        for entry in os.scandir(folder):
            if entry.is_symlink() and os.path.realpath(entry.path) in wanted:
                yield entry.path, os.path.realpath(entry.path)
    for path in {path for program in programs for name, path in _needed(program).items() if name == path}:
        if path != os.path.realpath(path):
            yield path, os.path.realpath(path)


def _needed(program: str) -> dict[str, str]:
    """The libraries that a program is linked with: name -> path; the loader's name is a path itself."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60).stdout
    found = re.findall(r"^\s*(\S+)(?: => (/\S+))? \(0x", said, re.MULTILINE)
    return {name: path or name for name, path in found if path or name.startswith("/")}


def _compiled(path: str, source: bytes) -> bytes:
    """A .pyc that is taken unchecked: times are lost on the way into the guest, and to compile is slow there."""
    about = os.stat(path)
    fresh = bytes(4) + struct.pack("<II", int(about.st_mtime) & 0xFFFFFFFF, about.st_size & 0xFFFFFFFF)
    try:
        found = Path(importlib.util.cache_from_source(path)).read_bytes()
    except OSError:
        found = b""
    if found[:4] == importlib.util.MAGIC_NUMBER and found[4:16] == fresh:
        code = found[16:]
    else:  # left by an older source, or never written
        code = marshal.dumps(compile(source, path, "exec", dont_inherit=True))
    return importlib.util.MAGIC_NUMBER + UNCHECKED + importlib.util.source_hash(source) + code


def _with_folders(files: Mapping[str, tuple[int, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    """Each file after the folders above it: (path without its first slash, mode with type, content)."""
    made: set[str] = set()
    for path, (mode, content) in sorted(files.items()):
        for folder in reversed(Path(path).parents):
            name = str(folder).lstrip("/")
            if name and name not in made:
                made.add(name)
                yield name, stat.S_IFDIR | 0o755, b""
        yield path.lstrip("/"), mode if stat.S_IFMT(mode) else stat.S_IFREG | mode, content


def _cpio(entries: Iterable[tuple[str, int, bytes]]) -> Iterator[bytes]:
    """The "newc" form, which is the only one that the kernel unpacks (initramfs, buffer-format.rst)."""
    for number, (path, mode, content) in enumerate((*entries, ("TRAILER!!!", 0, b"")), 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        yield header + name + _padding(len(header) + len(name))
        yield content + _padding(len(content))


def _padding(length: int) -> bytes:
    return b"\0" * (-length % 4)
