# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Symbols and build id of an ELF file, of 32 or 64 bits, in either byte order.

Symbols are placed by offset in the file, as mappings are: address - start + pgoff.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from rxbook.profile.demangling import demangle
from rxbook.profile.symtab import SymbolTable, with_ends

_NOTE, _SYMTAB, _DYNSYM, _NOBITS = 7, 2, 11, 8
_LOAD = 1
_RELOCATABLE = 1
_NOTYPE, _OBJECT, _FUNC, _IFUNC = 0, 1, 2, 10
_GLOBAL, _WEAK = 1, 2
_PLT_SIZES = {40: (20, 12), 183: (32, 16)}
"""(header, entry) of a procedure linkage table on arm and arm64; 16 and 16 elsewhere."""


class ElfError(ValueError):
    """The file is no ELF, or damaged."""


@dataclass(frozen=True)
class _Section:
    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int


class Elf:
    """An ELF file's sections. ElfError where it is none."""

    def __init__(self, path: str) -> None:
        self._bytes = np.memmap(path, np.uint8, "r")
        ident = self._bytes[:16].tobytes()
        if ident[:4] != b"\x7fELF" or ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise ElfError("no ELF file")
        self._wide = ident[4] == 2
        self._endian = "<" if ident[5] == 1 else ">"
        try:
            self._read_header()
        except struct.error as error:
            raise ElfError(f"damaged ELF header: {error}") from error

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        size = struct.calcsize(self._endian + form)
        return struct.unpack(self._endian + form, self._bytes[at : at + size].tobytes())

    def _read_header(self) -> None:
        kind, self.machine = self._unpack("HH", 16)
        self.relocatable = kind == _RELOCATABLE
        if self._wide:
            program_at, section_at = self._unpack("QQ", 32)
            program_size, programs, section_size, sections, names = self._unpack("HHHHH", 54)
        else:
            program_at, section_at = self._unpack("II", 28)
            program_size, programs, section_size, sections, names = self._unpack("HHHHH", 42)
        self.loads = [
            load
            for i in range(programs)
            if (load := self._program(program_at + i * program_size)) is not None
        ]
        raw = [self._section(section_at + i * section_size) for i in range(sections)]
        table = self._data(raw[names][1]) if names < len(raw) else b""
        self.sections = [
            _Section(_string(table, name), found.type, found.address, found.offset, found.size, found.link)
            for name, found in raw
        ]

    def _program(self, at: int) -> tuple[int, int, int] | None:
        """(address, size, file offset) of what is loaded."""
        if self._wide:
            kind, _, offset, address, _, in_file, in_memory = self._unpack("IIQQQQQ", at)
        else:
            kind, offset, address, _, in_file, in_memory = self._unpack("IIIIII", at)
        return (address, max(in_file, in_memory), offset) if kind == _LOAD else None

    def _section(self, at: int) -> tuple[int, _Section]:
        form = "IIQQQQI" if self._wide else "IIIIIII"
        name, kind, _, address, offset, size, link = self._unpack(form, at)
        return name, _Section("", kind, address, offset, size, link)

    def _data(self, section: _Section) -> bytes:
        if section.type == _NOBITS:
            return b""
        return self._bytes[section.offset : section.offset + section.size].tobytes()

    def build_id(self) -> str:
        """The GNU build id in hex, "" where there is none."""
        for section in self.sections:
            if section.type == _NOTE:
                found = build_id_note(self._data(section), self._endian)
                if found:
                    return found
        return ""

    def named(self, name: str) -> _Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def has_symtab(self) -> bool:
        return any(section.type == _SYMTAB for section in self.sections)

    def has_code(self) -> bool:
        """Whether it holds what it describes: a file of debug information alone does not."""
        text = self.named(".text")
        return text is not None and text.type != _NOBITS

    def symbols(self, section: _Section) -> tuple[np.ndarray, bytes]:
        """A symbol table's entries, with columns name, info, other, section, value, size; and its strings."""
        end = self._endian
        order = (
            [("name", f"{end}u4"), ("info", "u1"), ("other", "u1"), ("section", f"{end}u2")],
            [("value", f"{end}u8"), ("size", f"{end}u8")],
        )
        narrow = [("name", f"{end}u4"), ("value", f"{end}u4"), ("size", f"{end}u4")]
        fields = order[0] + order[1] if self._wide else narrow + order[0][1:]
        dtype = np.dtype(fields)
        data = self._data(section)
        entries = np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)
        strings = self._data(self.sections[section.link]) if section.link < len(self.sections) else b""
        return entries, strings

    def relocation_symbols(self, section: _Section) -> np.ndarray:
        """Index of the symbol that each relocation of a section names."""
        with_addend = section.name.startswith(".rela")
        word = 8 if self._wide else 4
        data = self._data(section)
        step = word * (3 if with_addend else 2)
        words = np.frombuffer(data[: len(data) // step * step], f"{self._endian}u{word}").reshape(
            -1, step // word
        )
        return words[:, 1] >> np.array(32 if self._wide else 8, words.dtype)


def symbol_value(elf: Elf, name: str) -> int | None:
    """Value of a symbol, the first of its name."""
    wanted = name.encode() + b"\0"
    for section in _tables(elf, _SYMTAB):
        entries, strings = elf.symbols(section)
        # linkers let a name begin within a longer one that ends in it
        begins, at = [], strings.find(wanted)
        while at >= 0:
            begins.append(at)
            at = strings.find(wanted, at + 1)
        found = entries["value"][np.isin(entries["name"], begins)]
        if len(found):
            return int(found[0])
    return None


def undefined(elf: Elf) -> list[str]:
    """Names that a file needs from others."""
    names = []
    for section in elf.sections:
        if section.type == _SYMTAB:
            entries, strings = elf.symbols(section)
            wanted = entries["name"][(entries["section"] == 0) & (entries["name"] != 0)]
            names += [_string(strings, at) for at in wanted.tolist()]
    return names


def build_id_note(data: bytes, endian: str) -> str:
    """The build id among notes, in hex, or ""."""
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from(f"{endian}III", data, at)
        name_at = at + 12
        begin = name_at + (name_size + 3) // 4 * 4
        if kind == 3 and data[name_at : name_at + name_size] == b"GNU\0":
            return data[begin : begin + size].hex()
        at = begin + (size + 3) // 4 * 4
    return ""


def _string(table: bytes, at: int) -> str:
    end = table.find(b"\0", at)
    return table[at : end if end >= 0 else len(table)].decode("utf-8", "replace")


def symbol_table(
    elf: Elf, runtime: Elf | None = None, at: list[tuple[int, int, int]] | None = None
) -> SymbolTable:
    """All symbols of an ELF file that can name code or data, by file offset, and those of its linkage table.

    runtime: the file that was mapped, where elf holds its debug information: it tells the offsets. at: what is loaded
    where, instead of what the file says; with none, symbols are placed by address.
    """
    runtime = runtime or elf
    loads = runtime.loads if at is None else at
    parts = [
        _placed(elf if section in elf.sections else runtime, loads, section)
        for section in [*_tables(elf, _SYMTAB), *_tables(runtime, _DYNSYM)]
    ]
    parts.append(_linkage(runtime))
    starts, sizes, bindings, names, tables = (list(column) for column in zip(*parts, strict=True))
    counts = [len(part) for part in starts]
    which = np.repeat(np.arange(len(parts)), counts)
    start, size, binding, name = (np.concatenate(column) for column in (starts, sizes, bindings, names))
    order = np.argsort(start, kind="stable")
    start, size, binding, name, which = (column[order] for column in (start, size, binding, name, which))
    ends = with_ends(start, size)

    def raw(i: int) -> str:
        table, suffix = tables[which[i]]
        return demangle(_string(table, int(name[i]))) + suffix

    def rank(i: int) -> tuple[int, ...]:
        """As perf prefers them: with a size, not weak, global, few underscores in front, long, first."""
        said = _string(tables[which[i]][0], int(name[i]))
        in_front = len(said) - len(said.lstrip("_"))
        return (
            int(size[i] > 0),
            int(binding[i] != _WEAK),
            int(binding[i] == _GLOBAL),
            -in_front,
            len(said),
            -i,
        )

    return SymbolTable(start, ends, raw, rank)


def linked_table(elf: Elf, moved: int) -> SymbolTable:
    """Symbols of a kernel at the addresses where it stood: `moved` bytes from those it was linked for."""
    found = symbol_table(elf, at=[])
    # per-CPU variables, from address 0 on, are nowhere
    first = int(np.searchsorted(found.starts, np.uint64(elf.loads[0][0])))
    by = np.uint64(moved % (1 << 64))
    rank = found.rank
    return SymbolTable(
        found.starts[first:] + by,
        found.ends[first:] + by,
        lambda i: found.name(i + first),
        rank and (lambda i: rank(i + first)),
    )


def _tables(elf: Elf, kind: int) -> list[_Section]:
    return [section for section in elf.sections if section.type == kind][:1]


_Part = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[bytes, str]]
"""Starts, sizes, bindings, places of the names; the strings and what to append to a name."""


def _placed(elf: Elf, loads: list[tuple[int, int, int]], section: _Section) -> _Part:
    entries, strings = elf.symbols(section)
    kind = entries["info"] & 15
    named = (entries["name"] != 0) & (entries["section"] != 0) & (entries["section"] < len(elf.sections))
    is_code = np.array(
        [("text" in part.name or "data" in part.name) and part.address > 0 for part in elf.sections]
        or [False]
    )
    label = (kind == _NOTYPE) & np.isin(entries["other"] & 3, (0, 3))
    label &= is_code[np.minimum(entries["section"], len(is_code) - 1)]
    kept = entries[named & (np.isin(kind, (_OBJECT, _FUNC, _IFUNC)) | label)]
    values = kept["value"].astype(np.uint64)
    return (
        _to_offsets(values, loads), kept["size"].astype(np.uint64), kept["info"] >> 4,
        kept["name"].astype(np.int64), (strings, ""),
    )  # fmt: skip


def _to_offsets(values: np.ndarray, loads: list[tuple[int, int, int]]) -> np.ndarray:
    """Addresses as offsets in the file; what is not loaded stays as it is."""
    offsets = values.copy()
    for address, size, offset in loads:
        inside = (values >= np.uint64(address)) & (values < np.uint64(address + size))
        offsets[inside] = values[inside] - np.uint64(address) + np.uint64(offset)
    return offsets


def to_addresses(offsets: np.ndarray, loads: list[tuple[int, int, int]]) -> np.ndarray:
    """Offsets in the file (uint64) as addresses; the largest number for what is not loaded."""
    addresses = np.full_like(offsets, np.iinfo(np.uint64).max)
    for address, size, offset in loads:
        inside = (offsets >= np.uint64(offset)) & (offsets < np.uint64(offset + size))
        addresses[inside] = offsets[inside] - np.uint64(offset) + np.uint64(address)
    return addresses


def _linkage(elf: Elf) -> _Part:
    """name@plt for each entry of the procedure linkage table, in the order of its relocations."""
    nothing = np.zeros(0, np.uint64)
    table = elf.named(".plt.sec") or elf.named(".plt")
    relocations = elf.named(".rela.plt") or elf.named(".rel.plt")
    dynamic = _tables(elf, _DYNSYM)
    if table is None or relocations is None or not dynamic:
        return nothing, nothing, nothing, nothing.astype(np.int64), (b"", "@plt")
    head, each = _PLT_SIZES.get(elf.machine, (16, 16))
    entries, strings = elf.symbols(dynamic[0])
    symbols = elf.relocation_symbols(relocations)
    symbols = symbols[symbols < len(entries)]
    first = table.offset + (0 if table.name == ".plt.sec" else head)
    starts = np.uint64(first) + np.arange(len(symbols), dtype=np.uint64) * np.uint64(each)
    sizes = np.full(len(symbols), each, np.uint64)
    names = entries["name"][symbols].astype(np.int64)
    return starts, sizes, np.full(len(symbols), _GLOBAL, np.uint8), names, (strings, "@plt")
