# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A file's DWARF made quick to look addresses up in, by the package `symbolic`, and kept for the next time.

Reading a kernel's DWARF takes seconds; what is made of it, a SymCache, opens in milliseconds. It is kept in
$XDG_CACHE_HOME/rxbook, else ~/.cache/rxbook, by build id and version of symbolic; the folder can be deleted any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rxbook import RxbookError

if TYPE_CHECKING:
    from symbolic import SymCache


def opened(path: Path, build_id: str) -> SymCache:
    """The SymCache of an ELF file with DWARF, kept or made now. RxbookError where its DWARF is damaged."""
    from symbolic import SymbolicError, SymCache  # 0.1 s that others need not pay

    kept = _folder() / f"{_key(path, build_id)}.symcache"
    if kept.is_file():
        with contextlib.suppress(SymbolicError):  # a damaged one is made again
            return SymCache.open(str(kept))
    try:
        made = _made(path)
    except SymbolicError as error:
        reason = str(error).splitlines()[0]
        raise RxbookError(
            f"cannot read the DWARF of {path.name}: {reason}; give an undamaged file"
        ) from error
    with contextlib.suppress(OSError):  # without a folder to write to it is made each time
        _keep(made, kept)
    return made


def _made(path: Path) -> SymCache:
    from symbolic import Archive

    return next(Archive.open(str(path)).iter_objects()).make_symcache()


def _keep(made: SymCache, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
        try:
            made.dump_into(file)
            file.close()
            os.replace(file.name, kept)
        except BaseException:
            os.unlink(file.name)
            raise


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path("~/.cache").expanduser()) / "rxbook"


def _key(path: Path, build_id: str) -> str:
    """Names the contents: by build id, else by what changes when a file does."""
    if not build_id:
        at = path.stat()
        build_id = hashlib.sha256(f"{path.resolve()} {at.st_size} {at.st_mtime_ns}".encode()).hexdigest()[:40]
    return f"{build_id}-symbolic-{version('symbolic')}"
