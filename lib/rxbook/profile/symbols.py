# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From frames to functions, as perf names them: by kallsyms, BPF symbols, ELF files and JIT maps.

A kernel's addresses are named from this machine's kallsyms only where the recording says that it was this kernel:
by its build id or, where it gives none, by host name and release. ELF files are taken by build id from perf's cache
(~/.debug), from /usr/lib/debug and from where they were mapped.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rxbook import RxbookError
from rxbook.profile import elf, records, symtab
from rxbook.profile.folding import Counts
from rxbook.profile.perfdata import PerfData
from rxbook.profile.records import Mapping
from rxbook.profile.resolved import Functions, Image, Place
from rxbook.profile.spaces import find_mappings
from rxbook.profile.symtab import SymbolTable

if TYPE_CHECKING:
    from rxbook.profile.inlines import DebugFiles

CACHE = Path("~/.debug").expanduser()
"""Where perf record keeps kallsyms and the files it saw, by build id."""
DEBUG = Path("/usr/lib/debug")
KERNEL, GUEST_KERNEL, UNKNOWN = "[kernel.kallsyms]", "[guest.kernel.kallsyms]", "[unknown]"

_KINDS = {
    records.KERNEL_MODE: "k", records.HYPERVISOR_MODE: "h", records.GUEST_KERNEL_MODE: "g",
    records.GUEST_USER_MODE: "g",
}  # fmt: skip
_ANONYMOUS = ("//anon", "/dev/zero", "/anon_hugepage")
_NO_FILE = ("[stack", "/SYSV", "[heap]")


def resolve(
    data: PerfData,
    counts: Counts,
    kallsyms: str | os.PathLike[str] | None = None,
    debug: DebugFiles | None = None,
) -> Functions:
    """Name the frames. RxbookError where kallsyms is given and cannot be read.

    kallsyms: a copy of /proc/kallsyms from the recorded machine; without it, the file `kallsyms` beside the
    recording is taken where there is one, or that which perf record --kcore kept. debug: is matched with what was
    recorded, and names what nothing else does.
    """
    beside = (data.path.with_name("kallsyms"), data.path / "kcore_dir" / "kallsyms")
    if kallsyms is None:
        kallsyms = next(filter(Path.is_file, beside), None)
    if kallsyms is not None and _read(Path(kallsyms)) is None:
        raise RxbookError(
            f"cannot read kallsyms {kallsyms}: give a copy of /proc/kallsyms of the recorded machine"
        )
    return _Resolver(data, kallsyms, debug).resolve(counts)


class _Resolver:
    def __init__(
        self, data: PerfData, kallsyms: str | os.PathLike[str] | None, debug: DebugFiles | None
    ) -> None:
        self._data, self._debug = data, debug
        self._here = recorded_here(data)
        self._kallsyms_path = kallsyms
        self._functions = Functions()

    def resolve(self, counts: Counts) -> Functions:
        functions = self._functions
        functions.leaf = np.zeros(len(counts.ip), np.int64)
        functions.caller = np.zeros(len(counts.ip), np.int64)
        functions.places = self._by_image(counts)
        if self._debug is not None:
            functions.warnings += self._debug.match(functions.places)
        for place in functions.places:
            self._name(place, counts.ip)
        return functions

    def _by_image(self, counts: Counts) -> list[Place]:
        """One for each image and kind."""
        found: dict[tuple[Image | None, str], list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        images: dict[Mapping, Image] = {}
        for mapping, frames in find_mappings(self._data.side_band, counts.state, counts.ip):
            modes = counts.mode[frames]
            for mode in np.unique(modes).tolist():
                part = frames[modes == mode]
                place = self._kernel if mapping is None and mode == records.KERNEL_MODE else mapping
                kind = (place.symbol if place else "") or _KINDS.get(mode, "u")
                image = (
                    None
                    if place is None
                    else images.get(place) or images.setdefault(place, self._image(place))
                )
                found[image, kind].append((part, counts.ip[part] - _shift(image, place)))
        return [
            Place(image, kind, *(np.concatenate(column) for column in zip(*parts, strict=True)))
            for (image, kind), parts in found.items()
        ]

    @functools.cached_property
    def _kernel(self) -> Mapping | None:
        """The kernel's mapping, for what lies in none: it is shorter than the kernel and ends before its init text."""
        kernel = next((event for _, event in self._data.side_band if is_kernel(event)), None)
        return kernel if kernel is not None and self._kernel_table is not None else None

    def _image(self, mapping: Mapping) -> Image:
        build_id = mapping.build_id or self._data.build_ids.get(mapping.name, "")
        return Image(short_name(mapping), mapping.name, build_id, *_special(mapping))

    def _name(self, place: Place, ips: np.ndarray) -> None:
        """Enter the functions at the addresses; equal addresses are looked up once."""
        image, kind, frames, addresses = place.image, place.kind, place.frames, place.addresses
        functions, dso = self._functions, image.dso if image else UNKNOWN
        table = self._table(image) or (self._debug.table(image) if self._debug and image else None)
        if table is None and image is not None and image.kernel and image.dso == KERNEL:
            self._warn_of_kernel()
        distinct, each = np.unique(addresses, return_inverse=True)
        found = table.find(distinct) if table is not None else [None] * len(distinct)
        numbers = np.array(
            [functions.number(dso, *symbol, kind) if symbol else -1 for symbol in found], np.int64
        )[each]
        functions.leaf[frames] = functions.caller[frames] = numbers
        for frame, address in zip(frames[numbers < 0].tolist(), addresses[numbers < 0].tolist(), strict=True):
            ip = int(ips[frame])
            functions.leaf[frame] = functions.number(dso, address, address_name(address), kind)
            functions.caller[frame] = functions.number(dso, ip, address_name(ip), kind)

    def _table(self, image: Image | None) -> SymbolTable | None:
        if image is None:
            return None
        if image.bpf is not None:
            start, end = image.bpf
            return SymbolTable(np.array([start], np.uint64), np.array([end], np.uint64), lambda _: image.name)
        if image.kernel:
            if image.dso == GUEST_KERNEL:
                return None
            return self._kernel_table if image.dso == KERNEL else self._module_table(image.dso.strip("[]"))
        if image.jit is not None:
            return self._jit_table(image.jit)
        return user_table(image.name, image.build_id, self._here)

    @functools.cached_property
    def _kernel_table(self) -> SymbolTable | None:
        """The kernel's own symbols, or None."""
        for place in self._kallsyms_places(saved_first=True):
            text = _read(place)
            table = symtab.kallsyms(text, shift=self._moved(text)) if text else None
            if table is not None:
                return table
        return None

    def _warn_of_kernel(self) -> None:
        build_id = kernel_build_id(self._data)
        said = f"build id {build_id}" if build_id else f"release {self._data.facts.get('release', 'unknown')}"
        self._functions.warnings.append(
            f"kernel functions are not named: no kallsyms of that kernel ({said}) with addresses is at hand"
        )

    def _module_table(self, module: str) -> SymbolTable | None:
        """A module's symbols; what perf saved can be of another boot, when the module stood elsewhere."""
        for place in self._kallsyms_places(saved_first=False):
            text = _read(place)
            table = symtab.kallsyms(text, module, self._moved(text)) if text else None
            if table is not None:
                return table
        return None

    def _kallsyms_places(self, saved_first: bool) -> list[Path]:
        """Where a kallsyms that fits the recording can be. The running kernel's takes 0.1 s to read."""
        if self._kallsyms_path is not None:
            return [Path(self._kallsyms_path)]
        build_id = kernel_build_id(self._data)
        saved = [_cached(build_id) / "kallsyms"] if build_id else []
        running = [Path("/proc/kallsyms")] if self._here else []
        return saved + running if saved_first else running + saved

    def _moved(self, text: bytes) -> int:
        """How far the recorded kernel stood from where this kallsyms has it (address randomisation)."""
        for _, event in self._data.side_band:
            if is_kernel(event) and event.pgoff:
                reference = symtab.kallsyms_address(text, event.name[len(KERNEL) :])
                return event.pgoff - reference if reference is not None else 0
        return 0

    def _jit_table(self, pid: int) -> SymbolTable | None:
        path = Path(f"/tmp/perf-{pid}.map")
        if not self._here or not path.is_file():
            return None
        return symtab.perf_map(path.read_text(errors="replace"))


def _shift(image: Image | None, mapping: Mapping | None) -> np.uint64:
    """What to take off an address to have it as the image's symbols are placed: by file offset, or as it is."""
    if image is None or mapping is None or not image.placed:
        return np.uint64(0)
    return np.uint64((mapping.start - mapping.pgoff) % (1 << 64))


def _special(mapping: Mapping) -> tuple[bool, tuple[int, int] | None, int | None, bool]:
    """kernel, bpf, jit, placed of an Image."""
    if mapping.symbol:
        return True, (mapping.start, mapping.end), None, False
    if mapping.pid == records.KERNEL_PID:
        return True, None, None, False
    if mapping.name.startswith(_ANONYMOUS):
        return False, None, mapping.pid, False
    return False, None, None, not mapping.name.startswith(_NO_FILE)


def is_kernel(event: object) -> bool:
    """Whether it is the mapping of the host's kernel itself; its name ends in a symbol, whose address is its pgoff."""
    return isinstance(event, Mapping) and event.name.startswith(KERNEL) and not event.guest


def short_name(mapping: Mapping) -> str:
    """What perf shows as the shared object."""
    name = mapping.name
    if mapping.symbol:
        return name
    if mapping.pid == records.KERNEL_PID:
        if name.startswith((KERNEL, GUEST_KERNEL)):
            return GUEST_KERNEL if name.startswith(GUEST_KERNEL) else KERNEL
        found = re.search(r"([^/]+)\.ko(\.\w+)?$", name)
        return f"[{found[1].replace('-', '_')}]" if found else name.rpartition("/")[2]
    if name.startswith(_ANONYMOUS):
        return f"[JIT] tid {mapping.pid}"
    return name.rpartition("/")[2] or name


def address_name(address: int) -> str:
    """An address without a symbol, as perf prints it: 0 has no 0x."""
    return f"{address:#018x}" if address else "0" * 16


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def kernel_build_id(data: PerfData) -> str:
    """Build id of the recorded kernel, "" where the file does not tell."""
    mapped = next((event.build_id for _, event in data.side_band if is_kernel(event)), "")
    return data.build_ids.get(KERNEL) or mapped


def recorded_here(data: PerfData) -> bool:
    """Whether this machine's running kernel is the one recorded: by build id, else by host name and release."""
    build_id = kernel_build_id(data)
    if build_id:
        return build_id == running_build_id()
    facts = data.facts
    return "release" in facts and (facts["release"], facts.get("hostname")) == (
        os.uname().release,
        os.uname().nodename,
    )


def running_build_id() -> str:
    """Build id of the running kernel, "" where it does not tell."""
    try:
        notes = Path("/sys/kernel/notes").read_bytes()
    except OSError:
        return ""
    return elf.build_id_note(notes, "<" if sys.byteorder == "little" else ">")


def user_table(name: str, build_id: str, here: bool) -> SymbolTable | None:
    """Symbols of a file by its build id; without one, of the file where it was mapped, on this machine only."""
    runtime = runtime_file(name, build_id, here)
    for path in _debug_files(build_id or (runtime.build_id() if runtime is not None else "")):
        debug = _opened(path)
        if debug is not None and debug.has_symtab():
            return elf.symbol_table(debug, runtime)
    return elf.symbol_table(runtime) if runtime is not None else None


def _debug_files(build_id: str) -> list[Path]:
    if not build_id:
        return []
    by_id = DEBUG / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    return [_cached(build_id) / "debug", by_id]


def runtime_file(name: str, build_id: str, here: bool) -> elf.Elf | None:
    """The file that was mapped."""
    if build_id:
        places = [_cached(build_id) / "elf", _cached(build_id) / "vdso", Path(name)]
    else:
        places = [Path(name)] if here else []
    for place in places:
        file = _opened(place)
        if file is not None and (not build_id or same_id(file.build_id(), build_id)):
            return file
    return None


def same_id(found: str, wanted: str) -> bool:
    """Whether build ids agree; older recordings pad shorter ones with zeros."""
    return bool(found) and wanted.startswith(found) and not wanted[len(found) :].strip("0")


def _opened(path: Path) -> elf.Elf | None:
    if not path.is_absolute() or not path.is_file():
        return None
    try:
        return elf.Elf(str(path))
    except (OSError, ValueError):
        return None


def _cached(build_id: str) -> Path:
    return CACHE / ".build-id" / build_id[:2] / build_id[2:]
