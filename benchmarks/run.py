# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`make bench`: the speed figures that the project set itself, measured here and now, as root.

Usage: run.py [generator|start|noise|windows|history|changes|fuzz|perf_reader|night ...]; without a name
the first three, about 12 minutes.
"""

from __future__ import annotations

import sys

import fuzz
import generator
import history
import night
import noise
import perf_reader
import start

ALL = {
    "generator": generator.main,
    "start": start.main,
    "noise": noise.main,
    "windows": noise.compare_windows,
    "history": history.main,
    "changes": history.simulate_changes,
    "fuzz": lambda: fuzz.main([]),
    "perf_reader": lambda: perf_reader.main([]),
    "night": lambda: night.main([]),
}
USUAL = ["generator", "start", "noise"]


def main() -> None:
    """Run the benchmarks that are named, or the usual ones."""
    names = sys.argv[1:] or USUAL
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.exit(f"no benchmark is named {', '.join(unknown)}; there are: {', '.join(ALL)}")
    for name in names:
        print(f"== {name}", flush=True)
        ALL[name]()


if __name__ == "__main__":
    main()
