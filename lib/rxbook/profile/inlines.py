# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Inlined functions of a recording's frames, from files with DWARF.

An address can lie in C, inlined into B, inlined into A, and only A has a symbol. Then A stays the function of the
frame, named as ever, and B and C become functions of kind "i" within A, C through B; the sample counts for all three,
see profile.Profile. In a call chain an address is where the call returns to, so what was inlined is looked up one byte
before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rxbook import RxbookError
from rxbook.profile import elf, symbols, symcache
from rxbook.profile.demangling import demangle
from rxbook.profile.folding import Counts
from rxbook.profile.perfdata import PerfData
from rxbook.profile.resolved import Functions, Image, Inlined, Place
from rxbook.profile.symtab import SymbolTable

_VMLINUX = "linux_banner"
"""A symbol that every kernel has, and nothing else."""
_SPAN = 1 << 32
"""So far from a file's first address a SymCache reaches."""


@dataclass(frozen=True)
class _Debug:
    """A file with DWARF."""

    path: Path
    file: elf.Elf
    build_id: str
    kernel: bool


class DebugFiles:
    """Files with DWARF, for one recording. RxbookError where one cannot be read, or has no DWARF."""

    def __init__(self, data: PerfData, files: Sequence[str | os.PathLike[str]]) -> None:
        self._data = data
        self._files = [_read(Path(path)) for path in dict.fromkeys(files)]
        self._found: dict[Image, _Debug] = {}

    def match(self, places: Sequence[Place]) -> list[str]:
        """Find what each file describes; gives warnings.

        Each is taken for what has its build id: vmlinux for the kernel. Where the recording or the file has no build
        id, a vmlinux is taken for the kernel and others go by their name, with a warning. RxbookError where a file is
        another build than the one recorded.
        """
        images = {place.image: self._build_id(place.image) for place in places if _can_have(place.image)}
        self._found = {
            image: debug
            for image, build_id in images.items()
            for debug in self._files
            if debug.kernel == image.kernel and symbols.same_id(debug.build_id, build_id)
        }
        left = [debug for debug in self._files if debug not in self._found.values()]
        said = []
        for debug in left:
            named = [image for image in images if _is_named(debug, image)]
            for image in [image for image in named if image not in self._found]:
                _allow(debug, image, images[image])
                self._found[image] = debug
                said.append(f"{debug.path.name} is taken for {image.dso} unverified: no build id to compare")
            if not named:
                said.append(f"no sample lies in what {debug.path.name} describes ({debug.build_id})")
        return said

    def table(self, image: Image) -> SymbolTable | None:
        """Symbols of an image from its file, placed as its addresses are; None where there is no file."""
        debug = self._found.get(image)
        if debug is None:
            return None
        if not debug.kernel:
            return elf.symbol_table(debug.file, self._mapped(image, debug))
        return elf.linked_table(debug.file, self._moved(debug.file))

    def attribute(self, counts: Counts, functions: Functions) -> None:
        """Enter the inlined functions at the frames into functions, whose places were matched."""
        called = np.ones(len(counts.chain), bool)
        called[counts.offsets[:-1][np.diff(counts.offsets) > 0]] = False
        sides = (_Side(len(counts.ip), counts.leaf, 0), _Side(len(counts.ip), counts.chain[called], 1))
        for place in functions.places:
            debug = self._found.get(place.image)
            if debug is not None:
                lookup = symcache.opened(debug.path, debug.build_id).lookup
                offsets = self._offsets(place, debug)
                for side in sides:
                    side.take(functions, place, offsets, lookup)
        functions.leaf_inlined, functions.caller_inlined = (side.inlined() for side in sides)

    def _build_id(self, image: Image) -> str:
        return symbols.kernel_build_id(self._data) if image.kernel else image.build_id

    def _offsets(self, place: Place, debug: _Debug) -> np.ndarray:
        """Where in the file's address space the frames lie, from its start on, as a SymCache counts."""
        start = np.uint64(debug.file.loads[0][0])
        if debug.kernel:
            return place.addresses - np.uint64(self._moved(debug.file) % (1 << 64)) - start
        return elf.to_addresses(place.addresses, self._mapped(place.image, debug).loads) - start

    def _moved(self, vmlinux: elf.Elf) -> int:
        """How far the recorded kernel stood from where it was linked to stand (address randomisation)."""
        kernel = next((event for _, event in self._data.side_band if symbols.is_kernel(event)), None)
        if kernel is None or not kernel.pgoff:
            return 0
        reference = elf.symbol_value(vmlinux, kernel.name[len(symbols.KERNEL) :])
        return kernel.pgoff - reference if reference is not None else 0

    def _mapped(self, image: Image, debug: _Debug) -> elf.Elf:
        """The file that tells the offsets: a file of debug information alone has others than the one that ran."""
        if debug.file.has_code():
            return debug.file
        runtime = symbols.runtime_file(image.name, image.build_id, symbols.recorded_here(self._data))
        if runtime is None:
            raise RxbookError(
                f"{debug.path.name} holds debug information alone, and {image.name} with build id "
                f"{image.build_id or 'unknown'} is not at hand: give a file with code and DWARF"
            )
        return runtime


class _Side:
    """The inlined functions at the frames that were sampled, or called from: those lie `back` bytes before."""

    def __init__(self, frames: int, used: np.ndarray, back: int) -> None:
        self._used = np.zeros(frames, bool)
        self._used[used] = True
        self._back = back
        self._chains: list[list[int]] = [[] for _ in range(frames)]

    def take(
        self, functions: Functions, place: Place, offsets: np.ndarray, lookup: Callable[[int], list]
    ) -> None:
        """Look up the frames of a place that are of this side; equal addresses once."""
        wanted = self._used[place.frames] & (offsets >= self._back) & (offsets < _SPAN)
        holders = functions.caller if self._back else functions.leaf
        known: dict[tuple[int, int], list[int]] = {}
        for frame, offset in zip(place.frames[wanted].tolist(), offsets[wanted].tolist(), strict=True):
            key = int(holders[frame]), offset
            if key not in known:
                known[key] = _numbers(functions, key[0], [*_names(lookup, offset, self._back)][::-1])
            self._chains[frame] = known[key]

    def inlined(self) -> Inlined:
        offsets = np.cumsum([0, *map(len, self._chains)])
        return Inlined(offsets, np.array([number for chain in self._chains for number in chain], np.int64))


def _names(lookup: Callable[[int], list], offset: int, back: int) -> Iterator[str]:
    """Inlined functions there, innermost first; the last that DWARF tells is the function itself."""
    lines = lookup(offset - back)
    if back and lines:
        after = lookup(offset)
        # a call that does not return can be the last instruction: the symbol at the address is the next function's
        if after and (after[-1].symbol, after[-1].sym_addr) != (lines[-1].symbol, lines[-1].sym_addr):
            return
    for line in lines[:-1]:
        if line.symbol:
            yield demangle(line.symbol)


def _numbers(functions: Functions, holder: int, names: Sequence[str]) -> list[int]:
    dso, within = functions.dso[holder], functions.symbol[holder]
    return [
        functions.number(dso, holder, name, "i", within, "\n".join(names[:depth]))
        for depth, name in enumerate(names)
    ]


def _read(path: Path) -> _Debug:
    try:
        file = elf.Elf(str(path))
    except OSError as error:
        raise RxbookError(f"cannot read debug file {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RxbookError(f"{path} is no debug file: {error}; give an ELF file with DWARF") from error
    if file.relocatable:
        raise RxbookError(
            f"{path.name} is a relocatable object, as modules are: inlined functions of modules are not supported"
        )
    if file.named(".debug_info") is None and file.named(".zdebug_info") is None:
        raise RxbookError(
            f"{path.name} has no DWARF: give the file of the debug package, or one that was built with -g"
        )
    return _Debug(path, file, file.build_id(), elf.symbol_value(file, _VMLINUX) is not None)


def _can_have(image: Image | None) -> bool:
    """Whether there can be a file for it here; a module's is refused."""
    if image is None or image.bpf is not None or image.jit is not None:
        return False
    return image.dso == symbols.KERNEL if image.kernel else image.placed


def _is_named(debug: _Debug, image: Image) -> bool:
    if debug.kernel or image.kernel:
        return debug.kernel and image.kernel
    return debug.path.name.removesuffix(".debug") == image.name.rpartition("/")[2]


def _allow(debug: _Debug, image: Image, build_id: str) -> None:
    """RxbookError where build ids differ."""
    if build_id and debug.build_id:
        raise RxbookError(
            f"{debug.path.name} has build id {debug.build_id}, but the recorded {image.dso} has {build_id}: "
            "give the debug file of that very build"
        )
