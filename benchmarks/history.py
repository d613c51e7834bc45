# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long a thousand runs take to load; and how often a change is shown, and found, in SIMULATED series of runs."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rxbook import changes, history, runs, trend

RUNS, BLOCKS = 1000, 25
SAMPLE = runs.SAMPLES / "gro_on_off"
LUCK, BAD_NIGHTS, BAD = 0.03, 0.05, -0.15


def main() -> None:
    """Make a thousand runs of two hundred windows from the recorded sample, and time what a trend does with them."""
    with tempfile.TemporaryDirectory() as folder:
        windows = make_runs(Path(folder))
        print(f"{RUNS} runs, {windows} windows")
        loaded = _timed("load", lambda: history.load(Path(folder)), "2 s at most")
        _timed("the figure of each cell and run", lambda: history.figures(loaded))
        _timed("rxbook trend in all, with changes and tables", lambda: trend.tables(trend.of(Path(folder))))


def _timed(what: str, work: Callable[[], Any], aim: str = "") -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what}: {wall:.2f} s, {cpu:.2f} s of CPU" + (f" (aim: {aim})" if aim else ""), flush=True)
    return found


def make_runs(folder: Path, count: int = RUNS) -> int:
    """Run folders, one a day, of the sample's first four sizes and checksums, GRO off and on; how many windows."""
    sample = runs.read_samples(SAMPLE / "samples.csv")
    sample = sample[sample["frame_size"].isin([64, 512])]
    starts = sample["block"].drop_duplicates().to_numpy()[::BLOCKS][:-1]
    parts = [sample[sample["block"].between(start, start + BLOCKS - 1)] for start in starts]
    texts = [part.to_csv(index=False) for part in parts]
    records = {name: json.loads((SAMPLE / f"{name}.json").read_text()) for name in ("plan", "run", "host")}
    for number, began in enumerate(pd.date_range("2024-01-01T02:00:00Z", periods=count)):
        path = folder / f"{began:%Y-%m-%dT%H%M%SZ}-gro_on_off"
        path.mkdir()
        (path / "samples.csv").write_text(texts[number % len(texts)])
        for name, record in records.items():
            when = {} if name == "host" else {"started_utc": began.isoformat()}
            runs.write_json(path / f"{name}.json", record | when)
    return count * len(parts[0])


def simulate_changes(repeats: int = 1000) -> None:
    """Print the table of `rxbook.changes`."""
    rng = np.random.default_rng(1)
    print("runs      nothing  luck that lasts     -5 %    -10 %")
    for n in (6, 10, 30, 100, 300):
        shown = [np.mean([bool(changes.find(_series(rng, n, lasting))) for _ in range(repeats)])
                 for lasting in (0.0, 0.6)]  # fmt: skip
        found = [np.mean([_is_found(rng, n, shift) for _ in range(repeats)]) for shift in (-0.05, -0.10)]
        print(f"{n:4} {shown[0]:12.1%} {shown[1]:16.1%} {found[0]:8.0%} {found[1]:8.0%}", flush=True)


def _series(rng: np.random.Generator, n: int, lasting: float = 0.0, shift: float = 0.0) -> np.ndarray:
    luck = rng.normal(0, LUCK, n)
    for run in range(1, n):
        luck[run] = lasting * luck[run - 1] + np.sqrt(1 - lasting**2) * luck[run]
    luck += BAD * (rng.random(n) < BAD_NIGHTS)
    luck[n // 2 :] += np.log1p(shift)
    return np.exp(luck)


def _is_found(rng: np.random.Generator, n: int, shift: float) -> bool:
    found = changes.find(_series(rng, n, shift=shift))
    return any(abs(change.first - n // 2) <= max(1, n / 10) for change in found)
