# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The recordings that a pyperf suite names: those that the hook `rxbook` kept."""

from __future__ import annotations

from pathlib import Path

import pyperf

from rxbook import RxbookError

__all__ = ["recordings"]


def recordings(path: Path) -> dict[str, list[Path]]:
    """{benchmark: perf.data of each of its processes} of a pyperf JSON file; they are repeats of one condition.

    Raises RxbookError where it is no such file, or names no recordings or lost ones.
    """
    try:
        suite = pyperf.BenchmarkSuite.load(str(path))
    except OSError as error:
        raise RxbookError(f"cannot read {path.name}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RxbookError(f"{path.name} is no suite of pyperf: {error}") from error
    found = {
        benchmark.get_name(): [
            _found(Path(run.get_metadata()["rxbook_perf_data"]), path.parent)
            for run in benchmark.get_runs()
            if run.values and "rxbook_perf_data" in run.get_metadata()
        ]
        for benchmark in suite
    }
    found = {name: files for name, files in found.items() if files}
    if not found:
        raise RxbookError(
            f"{path.name} names no recordings: run the benchmark with RXBOOK_PERF_DIR=FOLDER "
            "--hook rxbook --inherit-environ RXBOOK_PERF_DIR"
        )
    gone = [file for files in found.values() for file in files if not file.exists()]
    if gone:
        raise RxbookError(f"{path.name}: {len(gone)} of its recordings are gone, such as {gone[0]}")
    return found


def _found(recording: Path, folder: Path) -> Path:
    """Where the recording lies now: the suite may have been copied with those beside it."""
    return recording if recording.exists() else folder / recording.name
