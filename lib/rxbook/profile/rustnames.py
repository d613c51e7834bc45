# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names of Rust's newer scheme (v0: _R...), in words: a grammar that is read from left to right.

See https://doc.rust-lang.org/rustc/symbol-mangling/v0.html, whose names of rules the methods have.
"""

from __future__ import annotations

import string
from collections.abc import Callable

_BASIC = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
    "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_", "s": "i16", "t": "u16", "u": "()", "v": "...",
    "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_DIGITS = string.digits + string.ascii_lowercase + string.ascii_uppercase
_MOST_STEPS = 2000
"""Back references can make a short name endless."""


class _NoName(Exception):
    """The text is no name of this scheme."""


def demangle_v0(name: str) -> str | None:
    """The name in words without hashes, None where it is none."""
    if not name.startswith("_R") or not name.isascii():
        return None
    try:
        return _Reader(name[2:].partition(".")[0]).path(True)
    except (_NoName, IndexError, ValueError, RecursionError):
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._steps = text, 0, 0

    def _next(self) -> str:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _NoName
        self._at += 1
        return self._text[self._at - 1]

    def _eat(self, letter: str) -> bool:
        if self._text[self._at : self._at + 1] != letter:
            return False
        self._at += 1
        return True

    def _base62(self) -> int:
        if self._eat("_"):
            return 0
        value = 0
        while (digit := self._next()) != "_":
            value = value * 62 + _DIGITS.index(digit)
        return value + 1

    def _disambiguator(self) -> int:
        return self._base62() + 1 if self._eat("s") else 0

    def _identifier(self) -> tuple[str, int]:
        number = self._disambiguator()
        foreign = self._eat("u")
        length = self._length()
        self._eat("_")
        said = self._text[self._at : self._at + length]
        self._at += length
        return (f"punycode{{{said}}}" if foreign else said), number

    def _length(self) -> int:
        """A decimal number; a leading 0 is one of its own."""
        if self._eat("0"):
            return 0
        start = self._at
        while self._text[self._at : self._at + 1].isdigit():
            self._at += 1
        return int(self._text[start : self._at])

    def _backref(self, read: str, *arguments: bool) -> str:
        target = self._base62()
        here, self._at = self._at, target
        said = getattr(self, read)(*arguments)
        self._at = here
        return said

    def path(self, value: bool) -> str:
        """value: generic arguments are set off by ::, as in expressions."""
        kind = self._next()
        if kind == "C":
            return self._identifier()[0]
        if kind == "N":
            return self._nested(value)
        if kind in "MX":
            self._disambiguator()
            self.path(False)
        if kind == "M":
            return f"<{self.type()}>"
        if kind in "XY":
            return f"<{self.type()} as {self.path(False)}>"
        if kind == "I":
            said = self.path(value)
            return f"{said}{'::' if value else ''}<{', '.join(self._until_end(self._argument))}>"
        if kind == "B":
            return self._backref("path", value)
        raise _NoName

    def _nested(self, value: bool) -> str:
        space = self._next()
        outer = self.path(value)
        name, number = self._identifier()
        if space.isupper():
            kind = {"C": "closure", "S": "shim"}.get(space, space)
            return f"{outer}::{{{kind}{':' if name else ''}{name}#{number}}}"
        return f"{outer}::{name}" if name else outer

    def _until_end(self, read: Callable[[], str]) -> list[str]:
        said = []
        while not self._eat("E"):
            said.append(read())
        return said

    def _argument(self) -> str:
        if self._eat("L"):
            self._base62()
            return "'_"
        return self._const() if self._eat("K") else self.type()

    def type(self) -> str:
        """A type's name."""
        kind = self._next()
        if kind in _BASIC:
            return _BASIC[kind]
        if kind in "RQ":
            if self._eat("L"):
                self._base62()
            return f"&{'mut ' if kind == 'Q' else ''}{self.type()}"
        simple = {"P": "*const {}", "O": "*mut {}", "S": "[{}]"}
        if kind in simple:
            return simple[kind].format(self.type())
        if kind == "A":
            return f"[{self.type()}; {self._const()}]"
        if kind == "T":
            parts = self._until_end(self.type)
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if kind == "F":
            return self._function()
        if kind == "D":
            return self._dynamic()
        if kind == "B":
            return self._backref("type")
        self._at -= 1
        return self.path(False)

    def _function(self) -> str:
        if self._eat("G"):
            self._base62()
        unsafe = "unsafe " if self._eat("U") else ""
        abi = ""
        if self._eat("K"):
            abi = 'extern "C" ' if self._eat("C") else f'extern "{self._identifier()[0].replace("_", "-")}" '
        arguments = ", ".join(self._until_end(self.type))
        result = self.type()
        return f"{unsafe}{abi}fn({arguments})" + ("" if result == "()" else f" -> {result}")

    def _dynamic(self) -> str:
        if self._eat("G"):
            self._base62()
        bounds = " + ".join(self._until_end(self._bound))
        if self._eat("L"):
            self._base62()
        return f"dyn {bounds}"

    def _bound(self) -> str:
        said = self.path(False)
        bindings = []
        while self._eat("p"):
            name = self._identifier()[0]
            bindings.append(f"{name} = {self.type()}")
        if bindings and said.endswith(">"):
            return f"{said[:-1]}, {', '.join(bindings)}>"
        return f"{said}<{', '.join(bindings)}>" if bindings else said

    def _const(self) -> str:
        if self._eat("p"):
            return "_"
        if self._eat("B"):
            return self._backref("_const")
        kind = self._next()
        minus = "-" if self._eat("n") else ""
        digits = ""
        while (digit := self._next()) != "_":
            digits += digit
        value = int(digits or "0", 16)
        if kind == "b":
            return "true" if value else "false"
        return f"'{chr(value)}'" if kind == "c" else f"{minus}{value}"
