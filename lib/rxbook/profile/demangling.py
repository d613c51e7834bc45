# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""C++ and Rust names as people write them, without parameters, as perf prints them.

The C++ runtime library (libstdc++) does the work, but for newer Rust (rustnames.py); without it, names stay as
they are.
"""

from __future__ import annotations

import ctypes
import functools
import re

from rxbook.profile.rustnames import demangle_v0

_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_RUST_ESCAPES = {
    "$SP$": "@", "$BP$": "*", "$RF$": "&", "$LT$": "<", "$GT$": ">", "$LP$": "(", "$RP$": ")", "$C$": ",",
    "..": "::",
}  # fmt: skip
_RUST_CODE = re.compile(r"\$u([0-9a-f]{1,6})\$")


@functools.cache
def demangle(name: str) -> str:
    """The name in words, or as it is where it is no mangled name."""
    if name.startswith("_R"):
        return demangle_v0(name) or name
    if not name.startswith("_Z"):
        return name
    full = _cxx(name.partition(".")[0])  # .cold, .isra.0 and the like are left out, as perf does
    if full is None:
        rust = _cxx(name)  # $..$ and dots stand within the older names of Rust
        return _rust(rust) if rust else name
    if _RUST_HASH.search(full):
        return _rust(full)
    return _without_parameters(full, special=name.startswith(("_ZT", "_ZG")))


def _cxx(name: str) -> str | None:
    library = _library()
    if library is None:
        return None
    status = ctypes.c_int()
    result = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    try:
        return (
            ctypes.cast(result, ctypes.c_char_p).value.decode("utf-8", "replace")
            if status.value == 0
            else None
        )
    finally:
        _libc().free(result)


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.__cxa_demangle.argtypes = [
        ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int),
    ]  # fmt: skip
    return library


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    return libc


def _rust(name: str) -> str:
    """Rust's older scheme: C++ names that end in a hash, other characters written as $..$."""
    name = _RUST_HASH.sub("", name)
    name = re.sub(r"(^|::)_\$", r"\1$", name)
    for escape, character in _RUST_ESCAPES.items():
        name = name.replace(escape, character)
    return _RUST_CODE.sub(
        lambda found: chr(int(found[1], 16)) if int(found[1], 16) < 0x110000 else found[0], name
    )


_OPERATORS = re.compile(r"operator ?(<=>|<<=|>>=|<<|>>|->\*|->|<=|>=|<|>|\(\))")
_QUALIFIERS = re.compile(r"( const| volatile| &&?| noexcept| \[clone [^]]*\]| \[abi:[^]]*\])+$")


def _without_parameters(full: str, special: bool) -> str:
    """Leave out the parameters at the end and, of a template, the type before the name (special: a vtable's name)."""
    operators: list[str] = []

    def hide(found: re.Match[str]) -> str:
        operators.append(found[0])
        return f"\0{len(operators) - 1}\0"

    hidden = _QUALIFIERS.sub("", _OPERATORS.sub(hide, full))
    hidden = _without_last_group(hidden)
    if not special:
        hidden = hidden[_name_start(hidden) :]
    return re.sub("\0(\\d+)\0", lambda found: operators[int(found[1])], hidden)


def _without_last_group(said: str) -> str:
    """Cut the parentheses at the end; "(anonymous namespace)" is part of a name."""
    if not said.endswith(")") or said.endswith("(anonymous namespace)"):
        return said
    depth = 0
    for at in range(len(said) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(said[at], 0)
        if depth == 0:
            return said[:at] or said
    return said


def _name_start(said: str) -> int:
    """Where the name begins behind a return type: after the last space outside of all brackets."""
    depth, start = 0, 0
    for at, character in enumerate(said):
        depth += {"<": 1, "(": 1, "{": 1, "[": 1, ">": -1, ")": -1, "}": -1, "]": -1}.get(character, 0)
        if (
            character == " "
            and depth == 0
            and not said[:at].endswith(("operator", "\0"))
            and not said[at + 1 :].startswith(("const", "volatile", "&", "*"))
        ):
            start = at + 1
    return start
