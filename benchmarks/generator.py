# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generator's rate against the bare live-frame loop, in alternating rounds.

The bare loop runs a program that only drops: no frame leaves it. The generator's frames go through
redirect, veth and NAPI to a receiver that drops them in XDP on the other CPU, and only what that receiver
took is counted. Both programs stay in the XDP dispatcher, so neither pays for being patched in; a third
figure shows the bare loop as it is without that, at 2^18 frames a call.
"""

from __future__ import annotations

import numpy as np

from rxbook import statistics
from rxbook.plan import Cell, make_plan
from rxbook.testbeds.veth import Veth

ROUNDS, WINDOW_S, WARMUP_S = 30, 0.2, 0.03
BARE_FRAMES = 1 << 22
TARGETS = {"one flow": 0.80, "64 flows": 0.65}


def main() -> None:
    """Print rates in Mpps and the ratios, with 95 % intervals."""
    shapes = {
        "one flow": make_plan({}).cells("here")[0],
        "64 flows": make_plan({"flows": 64, "burst": 16}).cells("here")[0],
    }
    rates: dict[str, list[float]] = {name: [] for name in ("bare loop", "bare loop, 2^18 a call", *shapes)}
    with Veth(holder="benchmarks") as testbed:
        testbed.load(shapes["one flow"])
        for _ in range(ROUNDS):
            rates["bare loop"].append(
                BARE_FRAMES / testbed.sender.call("send_nothing", count=BARE_FRAMES) / 1e6
            )
            unparked = testbed.sender.call("send_nothing", count=1 << 18, parked=False)
            rates["bare loop, 2^18 a call"].append((1 << 18) / unparked / 1e6)
            for name, cell in shapes.items():
                rates[name].append(_received(testbed, cell))
    for name, values in rates.items():
        found = statistics.mean_interval(values)
        print(f"{name:24} {found.centre:6.2f} Mpps +/- {found.half_width:.2f}")
    for base in ("bare loop", "bare loop, 2^18 a call"):
        for name, target in TARGETS.items():
            ratio = statistics.mean_interval(np.divide(rates[name], rates[base]))
            aim = f"  (aim {target:.2f})" if base == "bare loop" else ""
            print(f"{name} / {base}: {ratio.centre:.2f} +/- {ratio.half_width:.2f}{aim}")


def _received(testbed: Veth, cell: Cell) -> float:
    counted = testbed.measure(cell.model_copy(update={"receiver": "drop"}), WARMUP_S, WINDOW_S)
    return counted["frames"] / counted["clock_ns"] * 1e3
