# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the text readers share: lines freed of what mails and terminals add, numbers, names, the function frame."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from rxbook.profile import COLUMNS

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTE = re.compile(r"(?:> ?)+")
_KEYS = ("event", "comm", "cpu", "dso", "symbol", "kind")
_SUMS = ("samples", "period", "children_samples", "children_period", "share", "children_share")
_KINDS = {".": "u", "k": "k", "g": "g", "u": "g", "h": "h", "H": "h", "b": "b", "i": "i"}
_BPF = re.compile(r"\[?bpf(_|\]|$)")
_KERNEL_NAMES = {"[kernel]", "[kernel.vmlinux]", "vmlinux"}
_USER_BRACKETS = re.compile(r"\[(unknown|heap|stack.*|vdso|vvar|vsyscall|uprobes|anon.*)\]")
INLINED = " (inlined)"
UNKNOWN = "unknown"  # the event, where a text does not name it


@dataclass(frozen=True)
class Line:
    """One line: its number from 1, its words, and how deep a mail quotes it."""

    number: int
    text: str
    depth: int = 0


@dataclass
class Warnings:
    """What could not be read, with its line; the first few in full, the rest counted."""

    limit: int = 20
    words: list[str] = field(default_factory=list)
    more: int = 0

    def line(self, line: Line, why: str) -> None:
        if len(self.words) < self.limit:
            self.words.append(f"line {line.number}: {why}: {shorten(line.text)!r}")
        else:
            self.more += 1

    def note(self, words: str) -> None:
        self.words.append(words)

    def all(self) -> tuple[str, ...]:
        return (*self.words, f"and {self.more} further lines") if self.more else tuple(self.words)


def split_lines(text: str) -> list[Line]:
    """The text's lines, without terminal escapes, carriage returns and the quote marks of mails."""
    lines = []
    # Bytes that were no UTF-8 become a "?" each: one byte, so columns stay where they are.
    text = text.encode("utf-8", "replace").decode()
    # Not splitlines(): names may hold the rarer characters that it also takes for an end of line.
    for number, raw in enumerate(text.split("\n"), 1):
        clean = _ESCAPES.sub("", raw).rstrip("\r").replace("\xa0", " ").replace("\u202f", " ")
        quote = _QUOTE.match(clean)
        depth = quote.group().count(">") if quote else 0
        lines.append(Line(number, clean[quote.end() :] if quote else clean, depth))
    return lines


def shorten(text: str, width: int = 80) -> str:
    text = text.strip()
    return text if len(text) <= width else text[: width - 3] + "..."


def number(text: str) -> float | None:
    """A figure with a decimal point or comma, perhaps a sign and a %; None where it is none."""
    text = text.strip().removesuffix("%").strip()
    if not re.fullmatch(r"[+-]?[0-9]+(?:[.,][0-9]+)?", text):
        return None
    return float(text.replace(",", "."))


def integer(text: str) -> int | None:
    """A count: plain digits."""
    text = text.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def short_dso(name: str) -> str:
    """The name as perf report prints it: no folder, and one name for the kernel itself."""
    name = name.strip()
    if name.startswith("/"):
        name = name.rsplit("/", 1)[1] if not name.endswith("/") else name
    return "[kernel.kallsyms]" if name in _KERNEL_NAMES else name


def kind_of_mark(mark: str, dso: str | None, symbol: str) -> str:
    """The kind by perf report's [k] or [.]; BPF programs by name, as perf marks them [k] as well."""
    if symbol.endswith(INLINED):
        return "i"
    kind = _KINDS[mark]
    return "b" if kind == "k" and _BPF.match(dso or symbol) else kind


def kind_of_frame(dso: str | None, address: int | None) -> str | None:
    """The kind of a perf script frame, which has no mark: by its dso, else by its address's upper half."""
    if dso and _BPF.match(dso):
        return "b"
    if dso and dso.startswith("[guest"):
        return "g"
    if dso and (dso.endswith((".ko", ".ko.xz", ".ko.gz", ".ko.zst")) or dso == "[kernel.kallsyms]"):
        return "k"
    if dso and dso.startswith("[") and not _USER_BRACKETS.fullmatch(dso):
        return "k"
    if address is None:
        return None
    return "k" if address >> 63 else "u"


def function_frame(rows: Iterable[dict]) -> pd.DataFrame:
    """The rows as COLUMNS, those of the same function added up; their order is that of the first of each."""
    sums: dict[tuple, dict] = {}
    for row in rows:
        key = tuple(row.get(name) for name in _KEYS[:-1])
        into = sums.setdefault(key, {name: row.get(name) for name in _KEYS})
        for name in _SUMS:
            if row.get(name) is not None:
                into[name] = into.get(name, 0) + row[name]
    frame = pd.DataFrame(list(sums.values()), columns=COLUMNS)
    return typed(frame)


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the contract's types, also where it is empty; counts beyond 63 bits are damage, so <NA>."""
    for name in ("event", "comm", "dso", "symbol", "kind"):
        frame[name] = frame[name].astype("string")
    for name in _SUMS[:4]:
        counts = [None if pd.isna(x) or x >= 1 << 63 else int(x) for x in frame[name]]
        frame[name] = pd.array(counts, dtype="Int64")
    for name in _SUMS[4:]:
        frame[name] = pd.array([None if pd.isna(x) else float(x) for x in frame[name]], dtype="Float64")
    frame["cpu"] = [-1 if pd.isna(x) else int(x) for x in frame["cpu"]]
    return frame
