# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`rxbook perf --sum` over a night's recordings: seconds, and the memory of its largest process, few files and many.

The files are links to one large recording, see perf_reader.py; that sums are right is in the tests.

    python benchmarks/night.py [--megabytes 100] [--files 20,200]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import perf_reader

GROWTH = 1.1
"""What ten times as many files may take of the memory of one time."""


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each number of files, and whether memory is bounded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100, help="size of each recording")
    parser.add_argument("--files", default="20,200", help="so many at a time")
    options = parser.parse_args(arguments)
    peaks = []
    with tempfile.TemporaryDirectory() as temporary:
        recording = perf_reader.made(Path(temporary), True, options.megabytes)
        for count in map(int, options.files.split(",")):
            night = [Path(temporary) / f"{count}-{number:04}.data" for number in range(count)]
            for path in night:
                path.hardlink_to(recording)
            command = [*perf_reader.OURS, "--sum", *map(str, night)]
            start = time.monotonic()
            used, peak = perf_reader.cost(command)
            peaks.append(peak)
            print(
                f"{count:5} files of {options.megabytes} MB: {time.monotonic() - start:6.1f} s, {used:6.1f} s of CPU, "
                f"{peak:.0f} MiB in the largest process",
                flush=True,
            )
    bounded = max(peaks) <= GROWTH * min(peaks)
    print(f"memory is {'bounded' if bounded else 'NOT bounded'} ({max(peaks) / min(peaks):.2f} of the least)")


if __name__ == "__main__":
    main()
