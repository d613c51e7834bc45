# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a kernel image tells without being booted: its release, and from its BTF what its receive path has."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.block
import zstandard

from rxbook import RxbookError

__all__ = ["btf", "release"]

# Documentation/arch/x86/boot.rst, offsets of the setup header
SECTOR, SETUP_SECTORS, MAGIC, KERNEL_VERSION, PAYLOAD = 512, 0x1F1, 0x202, 0x20E, 0x248
LZ4_BLOCK = 8 << 20  # what one holds at most


def _zstd(payload: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(payload)


def _gzip(payload: bytes) -> bytes:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(payload)


def _xz(payload: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(payload)


def _bzip2(payload: bytes) -> bytes:
    return bz2.BZ2Decompressor().decompress(payload)


def _lz4(payload: bytes) -> bytes:
    """The legacy format: the magic, then blocks, each behind its length."""
    opened, at = b"", 4
    while at + 4 <= len(payload):
        (length,) = struct.unpack_from("<I", payload, at)
        if length > len(payload) - at - 4:
            break  # what stands behind the last block
        opened += lz4.block.decompress(payload[at + 4 : at + 4 + length], LZ4_BLOCK)
        at += 4 + length
    return opened


FORMATS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x28\xb5\x2f\xfd": _zstd,
    b"\x1f\x8b": _gzip,
    b"\xfd7zXZ": _xz,
    b"\x5d\x00\x00": _xz,
    b"BZh": _bzip2,
    b"\x02\x21\x4c\x18": _lz4,
    b"\x7fELF": bytes,
}
"""How an image's payload begins, and how it is opened; its size follows it, which each of these leaves alone."""


def release(image: bytes) -> str:
    """The release of a bzImage, as `uname -r` would say it. Raises RxbookError where it is none."""
    if image[MAGIC : MAGIC + 4] != b"HdrS":
        raise RxbookError("no x86 kernel image (bzImage): name arch/x86/boot/bzImage or a vmlinuz of x86-64")
    (offset,) = struct.unpack_from("<H", image, KERNEL_VERSION)
    return image[offset + SECTOR :][:200].split(b"\0")[0].split(b" ")[0].decode()


def btf(image: bytes) -> bytes | None:
    """The BTF of a bzImage; None where it was built without, or is compressed in a way that is not known here."""
    start, length = struct.unpack_from("<II", image, PAYLOAD)
    start += ((image[SETUP_SECTORS] or 4) + 1) * SECTOR
    payload = image[start : start + length]
    for magic, opened in FORMATS.items():
        if payload.startswith(magic):
            return _section(opened(payload), b".BTF")
    return None


def _section(elf: bytes, wanted: bytes) -> bytes | None:
    """A section of a 64-bit little-endian ELF file, by its name."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * number) for number in range(count)]
    for name, _, _, _, offset, length in headers:
        at = headers[names][4] + name
        if elf[at : elf.index(b"\0", at)] == wanted:
            return elf[offset : offset + length]
    return None


def opened_module(path: Path) -> bytes:
    """A kernel module's content, decompressed."""
    content = path.read_bytes()
    endings: dict[str, Callable[[bytes], bytes]] = {
        ".xz": lzma.decompress, ".gz": gzip.decompress, ".zst": _zstd, ".ko": bytes,
    }  # fmt: skip
    return endings[path.suffix](content)
