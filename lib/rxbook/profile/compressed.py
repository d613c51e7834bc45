# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Compressed records (perf record -z): payloads of zstandard that continue one stream over many records."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import zstandard

from rxbook.profile.records import COMPRESSED2

WINDOW_LIMIT = 1 << 27
"""Largest window a stream may ask for: zstd's own limit, a damaged file cannot ask for more memory."""


class Decompressor:
    """Decompresses payloads in turn. A record may begin in one payload and end in a later one."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT).decompressobj()
        self.rest = b""

    def records(self, payload: memoryview, piece: int = 1 << 11) -> Iterator[np.ndarray]:
        """What a payload holds, as bytes that begin at a record; the caller puts an unfinished end into `rest`.

        zstandard.ZstdError where the stream is damaged. Piece by piece, as a payload can hold gigabytes of zeros.
        """
        for start in range(0, len(payload), piece):
            if self._stream.eof:
                self._stream = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT).decompressobj()
            plain = self._stream.decompress(payload[start : start + piece])
            joined = self.rest + plain
            self.rest = b""
            if joined:
                yield np.frombuffer(bytearray(joined), np.uint8)


def payload_range(record: bytes, kind: int, at: int, size: int, endian: str) -> tuple[int, int]:
    """Offsets of a compressed record's payload in the file, from the record's first bytes.

    COMPRESSED2 gives its payload's length, as the record is padded. perf 6.16 counted the 16 bytes before the
    payload in: then it does not fit the record.
    """
    if kind != COMPRESSED2:
        return at + 8, at + size
    (length,) = struct.unpack_from(f"{endian}Q", record, 8)
    if 16 + (length + 7) // 8 * 8 > size:
        length -= 16
    return at + 16, min(at + 16 + length, at + size)
