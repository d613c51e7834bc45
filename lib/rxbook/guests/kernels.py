# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernels that can be booted as guests: a cache folder with one folder for each label."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.parse
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rxbook import RxbookError
from rxbook.guests import images
from rxbook.kernel import facts

__all__ = [
    "RUNNING", "Kernel", "add", "add_tree", "check_label", "differing_options", "find", "known", "line",
    "listing", "store",
]  # fmt: skip

RUNNING = "running"
MODULES = ("veth", "ipv6")
"""What a guest needs, where the kernel has it as a module; with what these need."""

OPTIONAL = ("pktgen",)
"""Kept where the kernel has them, and loaded only by a run that asks for them: they change what is counted."""

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:+-]{0,29}")


@dataclass(frozen=True)
class Kernel:
    """A kernel in the store. btf: as `facts.btf_facts`. source: where it came from, in words."""

    label: str
    release: str
    source: str
    btf: dict[str, bool] | None
    folder: str

    @property
    def image(self) -> Path:
        """What QEMU boots."""
        return Path(self.folder) / "image"

    def modules(self, wanted: Collection[str] = ()) -> list[tuple[str, bytes]]:
        """(name, content) of its modules in the order in which they are loaded, of OPTIONAL those that are wanted.

        Raises RxbookError where it has not what is wanted, neither as a module nor, by its configuration, built in.
        """
        files = {path.stem.partition("-")[2]: path for path in sorted(Path(self.folder).glob("*.ko"))}
        for name in wanted:
            if name not in files and f"CONFIG_NET_{name.upper()}=y" not in (self.options() or ()):
                raise RxbookError(
                    f"{self.label} was added without {name}.ko: fetch or add it again; a kernel of your own needs "
                    f"CONFIG_NET_{name.upper()}"
                )
        left_out = set(OPTIONAL) - set(wanted)
        return [(path.name, path.read_bytes()) for name, path in files.items() if name not in left_out]

    def options(self) -> set[str] | None:
        """The lines of its configuration that set something; None where the configuration is not known."""
        path = Path(self.folder) / "config"
        if not path.exists():
            return None
        return {line for line in path.read_text().splitlines() if line.startswith("CONFIG_")}


def store() -> Path:
    """The folder of all kernels."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "rxbook" / "kernels"


def known() -> list[Kernel]:
    """All kernels of the store, by label; the running one is not among them."""
    return [_read(path.parent) for path in sorted(store().glob("*/facts.json"))]


def _read(folder: Path) -> Kernel:
    return Kernel(**json.loads((folder / "facts.json").read_text()), folder=str(folder))


def find(label: str) -> Kernel:
    """A kernel by its label. Raises RxbookError where the store has none of this name."""
    folder = store() / _name(label)
    if (folder / "facts.json").exists():
        return _read(folder)
    if label == RUNNING:
        image = Path(f"/boot/vmlinuz-{facts.kernel_release()}")
        if not image.exists():
            raise RxbookError(f"{RUNNING}: its image {image} is not there, so it cannot be booted as a guest")
        return add(label, image, Path(f"/lib/modules/{facts.kernel_release()}"), source="this machine")
    labels = ", ".join(kernel.label for kernel in known()) or "none yet"
    raise RxbookError(
        f"no kernel is named {label}; there are: {labels}. rxbook kernels add, or fetch debian:6.12"
    )


def add(
    label: str, image: Path, modules: Path | None = None, config: Path | None = None, source: str = ""
) -> Kernel:
    """Copy a kernel into the store, in place of one of that label. modules: any folder above the .ko files.

    Raises RxbookError where the image is no x86 kernel, or a needed module is not there.
    """
    check_label(label)
    try:
        content = image.read_bytes()
        settings = config.read_bytes() if config else _config_beside(image)
    except OSError as error:
        raise RxbookError(f"{error.filename}: {error.strerror}") from None
    release, blob = images.release(content), images.btf(content)
    loaded = list(_modules(modules, settings, label))
    new = store() / f".{_name(label)}.{os.getpid()}"
    new.mkdir(parents=True)
    try:
        (new / "image").write_bytes(content)
        if settings:
            (new / "config").write_bytes(settings)
        for number, (name, module) in enumerate(loaded):
            (new / f"{number}-{name}.ko").write_bytes(module)
        kernel = Kernel(label, release, source or str(image), blob and facts.btf_facts(blob), str(new))
        record = asdict(kernel)
        del record["folder"]
        (new / "facts.json").write_text(json.dumps(record, indent=1) + "\n")
        shutil.rmtree(store() / _name(label), ignore_errors=True)
        new.rename(store() / _name(label))
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return _read(store() / _name(label))


def check_label(label: str) -> None:
    """Raises RxbookError where this cannot be a label."""
    if not LABEL.fullmatch(label):
        raise RxbookError(f"label {label!r}: at most 30 letters, digits, blanks and . _ : + -")


def add_tree(label: str, tree: Path, source: str = "") -> Kernel:
    """The same for a tree, or a build folder, in which `make` has just run. Raises RxbookError where nothing was."""
    image = tree / "arch/x86/boot/bzImage"
    if not image.exists():
        raise RxbookError(f"{image} is not there: build the tree first, by make bzImage modules")
    return add(label, image.resolve(), tree, tree / ".config", source=source or f"tree {tree}")


def _name(label: str) -> str:
    return urllib.parse.quote(label, safe="")


def _config_beside(image: Path) -> bytes | None:
    """As distributions lay it: /boot/vmlinuz-X has /boot/config-X."""
    beside = image.with_name(image.name.replace("vmlinuz", "config"))
    return beside.read_bytes() if beside != image and beside.exists() else None


def _modules(folder: Path | None, settings: bytes | None, label: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the needed modules and of those that they need, which come first."""
    found = {
        path.name.partition(".")[0].replace("-", "_"): path
        for path in (folder.rglob("*.ko*") if folder else ())
        if path.suffix in (".ko", ".xz", ".gz", ".zst")
    }
    taken: set[str] = set()

    def with_needed(name: str) -> Iterator[tuple[str, bytes]]:
        if name in taken or name not in found:
            return
        taken.add(name)
        content = images.opened_module(found[name])
        said = re.search(rb"\0depends=([^\0]*)\0", content)
        for needed in filter(None, said[1].decode().split(",") if said else []):
            yield from with_needed(needed.replace("-", "_"))
        yield name, content

    for name in MODULES + OPTIONAL:
        if f"CONFIG_{name.upper()}=m".encode() in (settings or b"") and name not in found:
            raise RxbookError(f"{label}: {name} is a module, and --modules has no {name}.ko")
        yield from with_needed(name)


def differing_options(kernels: list[Kernel]) -> int | None:
    """How many lines of configuration not all have; None where one's configuration is not known."""
    options = [kernel.options() for kernel in kernels]
    if None in options:
        return None
    names = (
        {line.partition("=")[0] for line in set.union(*options) - set.intersection(*options)}
        if options
        else set()
    )
    return len(names)


def line(kernel: Kernel) -> str:
    """A kernel in a line of the list."""
    has = {True: "yes", False: "no", None: "?"}
    btf = kernel.btf or {}
    facts_of = f"{has[btf.get('cpumap_gro')]:<4} {has[btf.get('bulk_skb_cache')]:<4}"
    return f"{kernel.label:<16} {kernel.release:<28} {facts_of} {kernel.source}"


def listing() -> str:
    """All kernels, the running one first."""
    running = Kernel(RUNNING, facts.kernel_release(), "this machine", facts.btf_facts(), "")
    head = f"{'label':<16} {'release':<28} {'GRO':<4} {'bulk':<4} from"
    foot = "GRO: cpumap runs GRO; bulk: it has napi_skb_cache_get_bulk(). By BTF; ?: it has none."
    return "\n".join(
        [head, line(running), *(line(kernel) for kernel in known() if kernel.label != RUNNING), foot]
    )
