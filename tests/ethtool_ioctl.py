# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Features of a device by the ioctl that `ethtool -k` used before netlink: run as a program it prints JSON."""

from __future__ import annotations

import ctypes
import fcntl
import json
import socket
import struct
import sys

SIOCETHTOOL, GET_STRING_SETS, GET_STRINGS, GET_FEATURES, FEATURE_SET = 0x8946, 0x37, 0x1B, 0x3A, 4


def features(device: str) -> dict[str, bool]:
    """The features of a device of this namespace, by the ioctl that `ethtool -k` used before netlink."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anchor:

        def ask(request: bytes, room: int) -> bytes:
            buffer = ctypes.create_string_buffer(request, len(request) + room)
            data = struct.pack("16sQ16x", device.encode(), ctypes.addressof(buffer))
            fcntl.ioctl(anchor, SIOCETHTOOL, data)
            return buffer.raw

        sets = ask(struct.pack("=IIQ", GET_STRING_SETS, 0, 1 << FEATURE_SET), 4)
        (count,) = struct.unpack_from("=I", sets, 16)
        names = ask(struct.pack("=III", GET_STRINGS, FEATURE_SET, count), count * 32)[12:]
        words = -(-count // 32)
        # a block of 32 features: available, requested, active, never changed
        blocks = struct.unpack(
            "=" + "IIII" * words, ask(struct.pack("=II", GET_FEATURES, words), 16 * words)[8:]
        )
    return {
        names[32 * at : 32 * at + 32].split(b"\0")[0].decode(): bool(blocks[at // 32 * 4 + 2] >> at % 32 & 1)
        for at in range(count)
    }


if __name__ == "__main__":
    print(json.dumps(features(sys.argv[1])))
