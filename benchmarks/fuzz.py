# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Damaged recordings and texts of perf, one after another: each must give a profile or an RxbookError.

Each is read in a process of its own, with limits of time and memory. A crash, a hang, or memory beyond a few times
the file is a fault: its seed is printed and the file kept, and the exit status is 1.

    python benchmarks/fuzz.py [--seconds 480] [--seed 1] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rxbook import RxbookError, profile
from rxbook.profile import export, text

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from mutations import mutate, mutate_text, recordings  # noqa: E402

WALL_S, CPU_S = 30, 10
MEMORY, TIMES = 100 << 20, 8
"""A reading may take so many bytes, and so many times its file: symbols of this machine are read as well."""
REFUSED = 3


def main(arguments: list[str] | None = None) -> None:
    """Mutate and read until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--seed", type=int, default=1, help="the first; each file has the next one")
    parser.add_argument("--keep", type=Path, help="folder for files that show a fault")
    options = parser.parse_args(arguments)
    keep = options.keep or Path(tempfile.mkdtemp(prefix="rxbook-fuzz-"))
    keep.mkdir(parents=True, exist_ok=True)
    binaries, texts = recordings(), [path.read_bytes() for path in sorted((TESTS / "data").rglob("*.txt"))]
    read_recording(first := written(keep / "first", binaries[0]))  # code that is compiled once
    first.unlink()
    found: Counter[str] = Counter()
    end, seed = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end:
        fault = one(seed, binaries, texts, keep)
        found[fault.partition(":")[0]] += 1
        if fault not in ("read", "refused"):
            print(f"seed {seed}: {fault}", flush=True)
        seed += 1
    print(f"{seed - options.seed} files: " + ", ".join(f"{number} {what}" for what, number in found.items()))
    if set(found) - {"read", "refused"}:
        sys.exit(f"the files that show faults are in {keep}")
    keep.rmdir()


def one(seed: int, binaries: list[bytes], texts: list[bytes], keep: Path) -> str:
    """What became of the file of this seed: "read", "refused" or the fault; a file with a fault stays."""
    chance = random.Random(seed)
    if chance.random() < 0.6:
        data, read = mutate(bytearray(chance.choice(binaries)), chance), read_recording
    else:
        data, read = mutate_text(bytearray(chance.choice(texts)), chance), read_text
    path = written(keep / f"{seed}.{read.__name__}", bytes(data))
    fault = result(path, read)
    if fault in ("read", "refused"):
        path.unlink()
    return fault


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def read_recording(path: Path) -> None:
    """Both ways to sum, and the stacks."""
    for children in (False, True):
        found = profile.load(path, children=children)
        assert (found.functions["samples"] >= 0).all()
    export.folded(path)


def read_text(path: Path) -> None:
    """As functions and, whatever that gave, as counters."""
    content = path.read_text(encoding="utf-8", errors="surrogateescape")
    refused = None
    for parse in (text.profiles, text.stat):
        try:
            parse(content, path.name)
        except RxbookError as error:
            refused = error
    if refused is not None:
        raise refused


def result(path: Path, read: Callable[[Path], None]) -> str:
    """Read the file in a child process and say how that ended."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    said, say = os.pipe()
    child = os.fork()
    if child == 0:
        in_child(path, read, say)
    os.close(say)
    with os.fdopen(said) as lines:
        words = lines.read()
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        return (
            f"{signal.Signals(os.WTERMSIG(status)).name}: after {usage.ru_utime + usage.ru_stime:.1f} CPU s"
        )
    if os.WEXITSTATUS(status) not in (0, REFUSED):
        return words or f"status {os.WEXITSTATUS(status)}"
    more = (usage.ru_maxrss << 10) - before
    if more > MEMORY + TIMES * path.stat().st_size:
        return f"memory: {more >> 20} MiB for a file of {path.stat().st_size} bytes"
    return "refused" if os.WEXITSTATUS(status) == REFUSED else "read"


def in_child(path: Path, read: Callable[[Path], None], say: int) -> None:
    """Read within limits; the status tells how it ended, `say` takes the words. Does not return."""
    signal.alarm(WALL_S)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    status = 0
    try:
        read(path)
    except RxbookError as error:
        status = REFUSED if str(error) else 1
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        os.write(
            say, f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})".encode()
        )
        status = 1
    os._exit(status)


if __name__ == "__main__":
    main()
