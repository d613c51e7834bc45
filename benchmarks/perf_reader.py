# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CPU seconds and memory of our tables of functions and stacks and of perf's, on large recordings.

A recording is a real one, whose samples are repeated, later each time, until the file has the size asked for. Ours
and perf's take turns; figures are medians. Ours is the command as a user types it, start-up included. Folded stacks
are compared with perf script piped into a collapser of a few lines.

    python benchmarks/perf_reader.py [--megabytes 1000] [--flat-megabytes 100] [--stack-megabytes 1000] [--turns 3]
        [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
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
OURS = [sys.executable, "-c", "from rxbook.cli import main; main()", "perf"]
COLLAPSE = """
import collections, sys
stacks, comm, frames = collections.Counter(), "", []
for line in sys.stdin:
    if line[0] not in "\\t\\n ":
        comm = line.strip()
    elif frames and not line.strip():
        stacks[";".join([comm, *reversed(frames)])] += 1
        frames = []
    elif line.strip():
        frames.append(line.split(None, 1)[1].strip())
for stack, samples in stacks.items():
    print(stack, samples)
"""
"""Stacks from perf script -F comm,ip,sym: a line with the thread's name, one for each frame, and an empty one."""
SPAWN = """
import json, os, subprocess, sys
source, started = subprocess.DEVNULL, []
for number, command in enumerate(pipe := json.loads(sys.argv[1])):
    out = subprocess.PIPE if number + 1 < len(pipe) else subprocess.DEVNULL
    started.append(subprocess.Popen(command, stdin=source, stdout=out, stderr=subprocess.DEVNULL))
    if number:
        source.close()
    source = started[-1].stdout
ended = [os.wait4(process.pid, 0) for process in started]
if any(status for _, status, _ in ended):
    sys.exit(1)
usages = [usage for _, _, usage in ended]
print([sum(used.ru_utime + used.ru_stime for used in usages), max(used.ru_maxrss for used in usages) / 1024])
"""
"""Runs a pipe from a small process: Linux counts the memory of the process that starts a command as the command's."""
TARGETS = {"flat": (4.0, 0.5), "children": (20.0, 0.5), "flat, no chains": (1.0, 0.5), "folded": (40.0, 0.5)}
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


def cost(*pipe: list[str]) -> tuple[float, float]:
    """(CPU seconds of all, peak MiB of the largest) of commands, each reading what the one before it prints."""
    done = subprocess.run(
        [sys.executable, "-c", SPAWN, json.dumps(pipe)], stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise SystemExit(f"failed: {' | '.join(command[0] for command in pipe)}")
    seconds, memory = json.loads(done.stdout)
    return seconds, memory


def compare(name: str, path: Path, turns: int, theirs: list[list[str]], *options: str) -> None:
    """Print one row: perf's cost, ours, and whether the target is reached."""
    mine = [*OURS, str(path), *options]
    cost(mine)  # compiled code goes into its cache
    taken = [(cost(mine), cost(*theirs)) for _ in range(turns)]
    (ours, our_memory), (perf, perf_memory) = np.median(taken, axis=0)
    times, share = TARGETS[name]
    cpu, memory = perf / ours, our_memory / perf_memory
    cpu_aim, memory_aim = ("reached" if met else "missed" for met in (cpu >= times, memory <= share))
    print(
        f"{name:16} {path.stat().st_size / 1e6:6.0f} MB"
        f"  perf {perf:6.2f} s {perf_memory:6.0f} MiB  ours {ours:5.2f} s {our_memory:5.0f} MiB\n"
        f"    {cpu:.1f} times less CPU (target {times:g}: {cpu_aim}), "
        f"memory {memory:.2f} of perf's (target {share:g}: {memory_aim})",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Make the recordings and print a row for each comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the recording with call chains")
    parser.add_argument("--flat-megabytes", type=int, default=100, help="size of the one without")
    parser.add_argument(
        "--stack-megabytes", type=int, default=1000, help="size of the one whose stacks are folded"
    )
    parser.add_argument("--turns", type=int, default=3, help="so often each is measured")
    parser.add_argument(
        "--keep", type=Path, help="folder for the recordings; they are not made anew if there"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        chains = made(folder, True, options.megabytes)
        plain = made(folder, False, options.flat_megabytes)
        stacks = made(folder, True, options.stack_megabytes)
        compare("flat", chains, options.turns, [[*report(chains), "--no-children"]])
        compare("children", chains, 1, [[*report(chains), "--children"]], "--children")
        compare("flat, no chains", plain, options.turns, [[*report(plain), "--no-children"]])
        script = ["perf", "script", "-i", str(stacks), "-F", "comm,ip,sym"]
        compare("folded", stacks, 1, [script, [sys.executable, "-c", COLLAPSE]], "--folded")


def report(path: Path) -> list[str]:
    return ["perf", "report", "-i", str(path), "--stdio", "-g", "none", "-F", "sample,period,symbol,dso"]


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
