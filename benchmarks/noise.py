# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A/A: the same cell under two names. What is found to differ is a false alarm."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from rxbook import measure, runs, statistics
from rxbook.plan import make_plan

SECONDS = 60
COMPARISONS, PAIRS = 100, 10
WINDOWS = {0.1: 0.02, 0.2: 0.03, 0.5: 0.03, 1.0: 0.03}
"""Window lengths to choose from, each with its warm-up, seconds."""
ROUNDS, ROUND_SECONDS = 2, 30


def main() -> None:
    """Print the half-width after 60 s, and the false alarms of 100 short comparisons."""
    for gro in ("off", "on"):
        samples = record({"gro": gro}, SECONDS)
        found = statistics.noise_floor(samples).iloc[0]
        print(f"GRO {gro}: half-width after {SECONDS} s: {found['half_width']:.1%} (aim: 3 % at most), "
              f"{found['n']} pairs", flush=True)  # fmt: skip
    short = {"gro": "on", "window_s": 0.1, "warmup_s": 0.02}
    samples = record(short, 1.08 * COMPARISONS * PAIRS * 2 * 0.13)
    alarms = cut_alarms(samples, PAIRS, COMPARISONS)
    print(
        f"false alarms at the 5 % level: {sum(alarms)} of {len(alarms)} comparisons of {PAIRS} pairs "
        "(aim: 8 of 100 at most)"
    )


def compare_windows() -> None:
    """Print the A/A half-width of window lengths that take turns."""
    for _ in range(ROUNDS):
        for window_s, warmup_s in WINDOWS.items():
            samples = record({"gro": "on", "window_s": window_s, "warmup_s": warmup_s}, ROUND_SECONDS)
            found = statistics.noise_floor(samples).iloc[0]
            inside = samples["window_s"].sum() / ROUND_SECONDS
            print(f"window {window_s} s: half-width after {ROUND_SECONDS} s {found['half_width']:.1%}, "
                  f"{found['n']} pairs, {inside:.0%} inside windows", flush=True)  # fmt: skip


def record(parameters: dict[str, object], seconds: float) -> pd.DataFrame:
    """Samples of a run that takes about so many seconds."""
    plan = make_plan({"frame_sizes": 64, **parameters, "aa": True})
    per_block = len(plan.cells("here")) * (plan.window_s + plan.warmup_s + 0.01)
    plan = plan.model_copy(update={"blocks": int(seconds / per_block)})
    with tempfile.TemporaryDirectory() as folder:
        written = runs.Folder.create(Path(folder), plan, seed=1, notebook="gro_on_off")
        measure.measure(written, plan.cells("here"))
        written.close()
        return runs.read_samples(Path(folder) / "samples.csv")


def cut_alarms(samples: pd.DataFrame, pairs: int, comparisons: int) -> list[bool]:
    """For each stretch of `pairs` blocks whose windows all count, as many as there are: is it a false alarm?"""
    whole = statistics.usable(samples).groupby("block").filter(lambda block: len(block) == 2)
    blocks = np.unique(whole["block"])[: pairs * comparisons]
    blocks = blocks[: len(blocks) // pairs * pairs]
    if len(blocks) < pairs * comparisons:
        print(f"only {len(blocks) // pairs} comparisons could be cut: the other windows are flagged")
    cuts = [whole[whole["block"].isin(cut)] for cut in blocks.reshape(-1, pairs)]
    return [bool(statistics.noise_floor(cut).iloc[0]["false_alarm"]) for cut in cuts]
