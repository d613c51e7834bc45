# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Kernel images and modules as a build makes them, with nothing in them but what rxbook reads."""

import bz2
import gzip
import lzma
import struct

import lz4.block
import zstandard


def lz4_legacy(content: bytes, block: int = 8 << 20) -> bytes:
    """As `lz4 -l`, which a kernel's build calls."""
    parts = [content[at : at + block] for at in range(0, len(content), block)]
    packed = [lz4.block.compress(part, store_size=False) for part in parts]
    return b"\x02\x21\x4c\x18" + b"".join(struct.pack("<I", len(part)) + part for part in packed)


COMPRESS = {
    "zstd": zstandard.compress,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "lz4": lz4_legacy,
    "none": bytes,
}


def elf(btf: bytes) -> bytes:
    """An ELF file with a section .BTF."""
    names = b"\0.BTF\0.shstrtab\0"
    at = 64 + len(btf)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, at + len(names), 0, 64, 0, 0, 64, 3, 2)
    sections = [(0, 0, 0), (1, 64, len(btf)), (6, at, len(names))]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0) for name, offset, size in sections
    )
    return header + btf + names + table


def bzimage(payload: bytes, release: str = "6.99.1-mine") -> bytes:
    """An image as the boot protocol lays it out: one sector, a setup sector, the payload."""
    setup = bytearray(1024)
    setup[0x1F1] = 1
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", setup, 0x20E, 0x300 - 0x200)
    setup[0x300 : 0x300 + 40] = f"{release} (me@here) #1 SMP".encode().ljust(40, b"\0")
    struct.pack_into("<II", setup, 0x248, 0, len(payload) + 4)
    return bytes(setup) + payload + struct.pack("<I", 12345)


def module(needs: str = "") -> bytes:
    return f"\x7fELF\0license=GPL\0depends={needs}\0".encode()
