# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SIMULATED samples for tests: no window here was measured; shapes and noise follow a real machine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

DEFAULT_CELL = {
    "variant": "simulated",
    "receiver": "cpumap",
    "gro": "off",
    "protocol": "udp",
    "ip_version": 4,
    "encap": "none",
    "frame_size": 64,
    "udp_csum": "computed",
    "flows": 1,
    "burst": 1,
    "rx_udp_gro_forwarding": "on",
    "rx_gro_list": "off",
    "drop_tcp": True,
    "generator": "live_frames",
}
OFFERED_MPPS = 2.5
DRIFT_SD = 0.126  # with a memory of 5 s: 12 % between windows 3 s apart
DRIFT_MEMORY_S = 5.0


def cells(**axes: Sequence[Any]) -> list[dict[str, Any]]:
    """All combinations of the axes given, the rest as DEFAULT_CELL."""
    return [
        DEFAULT_CELL | dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]


def true_rate(cell: dict[str, Any]) -> float:
    """Mpps that the simulated receiver can process."""
    small = cell["frame_size"] < 512
    if cell["gro"] == "off":
        return 0.37 if small else 0.28
    if not merges(cell):
        return 0.32 if small else 0.25
    return (1.5 if small else 0.94) * (0.75 if cell["flows"] > 1 else 1)


def merges(cell: dict[str, Any]) -> bool:
    """Would GRO merge these frames?"""
    return (
        cell["gro"] == "on" and cell["udp_csum"] == "computed" and (cell["flows"] == 1 or cell["burst"] > 1)
    )


def simulate(
    chosen: list[dict[str, Any]],
    blocks: int = 40,
    *,
    seed: int = 1,
    factors: dict[str, float] | None = None,
    window_noise: float = 0.05,
    outliers: float = 0.05,
    window_s: float = 0.2,
    start: str = "2026-12-01T10:00:00Z",
) -> pd.DataFrame:
    """Samples of one simulated run.

    factors: rate of a variant relative to `true_rate`. outliers: share of windows at half speed.
    Windows whose cell could take more than the sender offers come out flagged sender_limited.
    """
    rng = np.random.default_rng(seed)
    step = np.exp(-(window_s + 0.05) / DRIFT_MEMORY_S)
    drift = rng.normal(0, DRIFT_SD)
    time = pd.Timestamp(start)
    rows = []
    for block in range(blocks):
        for order, index in enumerate(rng.permutation(len(chosen))):
            cell = chosen[index]
            drift = step * drift + rng.normal(0, DRIFT_SD * np.sqrt(1 - step**2))
            slow = 0.5 if rng.random() < outliers else 1.0
            rate = true_rate(cell) * (factors or {}).get(cell["variant"], 1.0)
            rate *= slow * np.exp(drift + rng.normal(0, window_noise))
            rows.append(_window(block, order, time, cell, float(rate), window_s))
            time += pd.Timedelta(seconds=window_s + 0.05)
    return pd.DataFrame(rows)


def _window(block, order, time, cell, rate, window_s):
    limited = rate > OFFERED_MPPS
    mpps = min(rate, OFFERED_MPPS)
    frames = round(mpps * 1e6 * window_s)
    skbs = round(frames / 20.6) if merges(cell) else frames
    return {
        "block": block,
        "order": order,
        "start_utc": time.isoformat(),
        **cell,
        "payload_bytes": max(cell["frame_size"] - 46, 0),
        "window_s": window_s,
        "frames": frames,
        "skbs": skbs,
        "mpps": mpps,
        "segs_per_skb": frames / skbs,
        "ns_per_packet": 1000 / rate,
        "offered_frames": round(OFFERED_MPPS * 1e6 * window_s),
        "offered_mpps": OFFERED_MPPS,
        "dropped_frames": round((OFFERED_MPPS - mpps) * 1e6 * window_s),
        "receiver_busy": mpps / rate,
        "receiver_idle": 1 - mpps / rate,
        "cpu_pressure": 0.0,
        "steal": 0.0,
        "flags": "sender_limited" if limited else "",
    }


def flag(samples: pd.DataFrame, rows: Any, name: str) -> pd.DataFrame:
    """A copy with a flag added to some rows (a boolean mask, or labels)."""
    flagged = samples.copy()
    flagged.loc[rows, "flags"] = [f"{old};{name}".strip(";") for old in flagged.loc[rows, "flags"]]
    return flagged
