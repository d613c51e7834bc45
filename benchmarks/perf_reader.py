# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CPU seconds and memory of our table of functions and of perf report's, on one large recording.

The recording is a real one, whose samples are repeated, later each time, until the file has the size asked for.

    python benchmarks/perf_reader.py [--megabytes 1000] [--flat-megabytes 100] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rxbook.profile import perfdata, records, walk
from rxbook.profile.folding import event_layout

LOAD = """
import socket
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("127.0.0.1", 0))
for _ in range(300_000):
    here.sendto(bytes(64), here.getsockname())
    here.recv(64)
"""
"""Datagrams through the stack to oneself: what rxbook profiles is kernel code of the network."""
OURS = """
import sys
from rxbook import profile
found = profile.load(sys.argv[1], children=sys.argv[2] == "children")
print(found.functions.head(20).to_string())
"""
TARGETS = {"flat": (4.0, 0.5), "children": (20.0, 0.5), "flat, no chains": (1.0, 0.5)}
"""How many times less CPU than perf, and what share of its memory."""


def record(path: Path, chains: bool) -> None:
    """A real recording of all CPUs under some load."""
    options = ["-g"] if chains else []
    command = ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", "4999", *options, "-o", str(path), "--"]
    subprocess.run([*command, sys.executable, "-c", LOAD], check=True, capture_output=True)


def repeat(source: Path, target: Path, size: int) -> None:
    """Write source, then its samples again and again, each time later, until there are `size` bytes of them."""
    data = source.read_bytes()
    at, length = struct.unpack_from("<QQ", data, 40)
    samples, times = samples_of(source, data, at, at + length)
    places = times[:, None] + np.arange(8)
    values = samples[places].view("<u8").reshape(-1)
    count = max(1, size // len(samples))
    head = bytearray(data[:at])
    struct.pack_into("<Q", head, 48, length + count * len(samples))
    with open(target, "wb") as out:
        out.write(head + data[at : at + length])
        for number in range(1, count + 1):
            later = values + np.uint64(number) * (values.max() - values.min() + np.uint64(1000))
            samples[places] = later.view(np.uint8).reshape(-1, 8)
            out.write(samples.tobytes())
        out.write(relocated_features(bytearray(data[at + length :]), data[72:104], count * len(samples)))


def samples_of(path: Path, data: bytes, at: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples (and ends of rounds) among the records, and where in them the times are."""
    in_sample = event_layout(perfdata.read(path).events[0])[walk.TIME_AT]
    kept, times, length = [], [], 0
    while at < end:
        kind, _, size = struct.unpack_from("<IHH", data, at)
        if kind in (records.SAMPLE, records.FINISHED_ROUND):
            if kind == records.SAMPLE:
                times.append(length + in_sample)
            kept.append(data[at : at + size])
            length += size
        at += size
    return np.frombuffer(b"".join(kept), np.uint8).copy(), np.array(times)


def relocated_features(tail: bytearray, flags: bytes, shift: int) -> bytes:
    """The feature sections behind the records, moved by shift."""
    for i in range(int.from_bytes(flags, "little").bit_count()):
        (offset,) = struct.unpack_from("<Q", tail, 16 * i)
        struct.pack_into("<Q", tail, 16 * i, offset + shift)
    return bytes(tail)


def cost(command: list[str]) -> tuple[float, float]:
    """(CPU seconds, peak MiB) of a command and what it starts."""
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def compare(name: str, path: Path, perf_options: list[str], children: bool) -> None:
    """Print one row: perf's cost, ours, and whether the target is reached."""
    report = ["perf", "report", "-i", str(path), "--stdio", "-g", "none", "-F", "sample,period,symbol,dso"]
    mine = [sys.executable, "-c", OURS, str(path), "children" if children else "flat"]
    cost(mine)  # compiled code goes into its cache
    ours, our_memory = cost(mine)
    perf, perf_memory = cost([*report, *perf_options])
    times, share = TARGETS[name]
    reached = "reached" if perf / ours >= times and our_memory <= share * perf_memory else "missed"
    size = path.stat().st_size / 1e6
    print(
        f"{name:16} {size:6.0f} MB  perf {perf:6.2f} s {perf_memory:6.0f} MiB  ours {ours:5.2f} s {our_memory:5.0f} MiB"
        f"  {perf / ours:5.1f} times less (target {times:g}), memory {our_memory / perf_memory:.2f} (target {share:g})"
        f"  {reached}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the recording with call chains")
    parser.add_argument("--flat-megabytes", type=int, default=100, help="size of the one without")
    parser.add_argument(
        "--keep", type=Path, help="folder for the recordings; they are not made anew if there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        chains = made(folder, True, options.megabytes)
        plain = made(folder, False, options.flat_megabytes)
        compare("flat", chains, ["--no-children"], False)
        compare("children", chains, ["--children"], True)
        compare("flat, no chains", plain, ["--no-children"], False)


def made(folder: Path, chains: bool, megabytes: int) -> Path:
    """The recording of that size, made where it is not there."""
    target = folder / f"{'chains' if chains else 'plain'}-{megabytes}.data"
    if not target.exists():
        source = folder / f"source-{int(chains)}.data"
        record(source, chains)
        repeat(source, target, megabytes * 1_000_000)
    return target


if __name__ == "__main__":
    main()
