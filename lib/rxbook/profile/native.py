# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls the loops of kernels.py, and keeps their machine code between processes.

numba keeps code too, but to load it takes 0.7 CPU seconds of imports, more than to walk 500 MB. So the code that
numba made is kept as it is, and linked by llvmlite, on which numba stands, in some 30 ms. It is made anew when the
kernels, llvmlite or the processor change, or when there is no folder to keep it in.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from rxbook.profile.elf import Elf, undefined

_HERE = Path(__file__).parent
_SOURCES = ("kernels.py", "walk.py")
_DIGEST = 32
_NUMBA_OWN = ("NRT_", "numba_")
"""How the names begin that numba's wrappers need to raise an exception, which no kernel does."""


def call(name: str, *arguments: np.ndarray | int | bool) -> int:
    """Call an entry of kernels.ENTRIES; an array goes as its address and its length."""
    flat: list[int] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            flat += (argument.ctypes.data, len(argument))
        else:
            flat.append(int(argument))
    code = _code()[name]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(flat))(code.address)(*flat)


@dataclass(frozen=True)
class _Code:
    """Where an entry's machine code is, and what keeps it in memory."""

    address: int
    owner: Any


@functools.cache
def _code() -> dict[str, _Code]:
    return _kept() or _compiled()


_Objects = dict[str, tuple[str, bytes]]
"""By entry: the symbol to call, and the object file that has it."""


def _places() -> Iterator[Path]:
    """Where the code may be kept: beside the compiled Python, else in the user's cache."""
    parts = [(_HERE / source).read_bytes() for source in _SOURCES]
    machine = f"{llvmlite.__version__} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    key = hashlib.sha256(b"\0".join([*parts, machine.encode()])).hexdigest()[:16]
    yield _HERE / "__pycache__" / f"kernels.{key}.native"
    yield (
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rxbook" / f"kernels.{key}.native"
    )


def _compiled() -> dict[str, _Code]:
    """Let numba compile, which takes seconds, and keep what it made."""
    from rxbook.profile import kernels

    made = kernels.compiled()
    _keep({name: (entry.native_name, entry._library._get_compiled_object()) for name, entry in made.items()})
    return {name: _Code(entry.address, entry) for name, entry in made.items()}


def _keep(objects: _Objects) -> None:
    """Write them to the first place that can be written, whole or not at all."""
    missing = sorted({name for _, code in objects.values() for name in _not_here(code)})
    if not all(name.startswith(_NUMBA_OWN) for name in missing):
        return
    head = {
        "missing": missing,
        "entries": {name: (symbol, len(code)) for name, (symbol, code) in objects.items()},
    }
    body = json.dumps(head).encode() + b"\n" + b"".join(code for _, code in objects.values())
    for path in _places():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(hashlib.sha256(body).digest() + body)
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
            return
        except OSError:
            continue


def _not_here(code: bytes) -> list[str]:
    """Names that an object file needs and this process does not have."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        needed = undefined(Elf(file.name))
    process = ctypes.CDLL(None)
    return [name for name in needed if not hasattr(process, name)]


def _kept() -> dict[str, _Code] | None:
    """What _keep wrote, made callable; None where there is nothing or it is damaged."""
    for path in _places():
        try:
            data = path.read_bytes()
        except OSError:
            continue
        body = data[_DIGEST:]
        if hashlib.sha256(body).digest() == data[:_DIGEST]:
            head, _, code = body.partition(b"\n")
            return _linked(json.loads(head), code)
    return None


def _linked(head: dict[str, Any], code: bytes) -> dict[str, _Code]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    end = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for name in head["missing"]:
        if llvm.address_of_symbol(name) is None:
            llvm.add_symbol(name, end)
    linked, at = {}, 0
    for name, (symbol, length) in head["entries"].items():
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code[at : at + length]))
        engine.finalize_object()
        linked[name] = _Code(engine.get_function_address(symbol), engine)
        at += length
    return linked
