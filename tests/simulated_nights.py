# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs of SIMULATED windows, one a night, written by the code that writes real ones."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

import synthetic
from rxbook import runs
from rxbook.plan import make_plan

LUCK = (0.99, 1.01, 1.0, 1.02, 0.98, 1.005, 0.995)
"""Of runs, one after the other: small, so that a test's change is no question of chance."""


def night(folder, number, *, factor=1.0, kernel="6.18.1", flag=None, host=None, columns=None, **parameters):
    """A finished run of the night with this number, its rates those of `synthetic` without noise, times factor."""
    began = pd.Timestamp("2026-11-01T02:00:00Z") + pd.Timedelta(days=number)
    plan = make_plan({"variant": None, "blocks": 6} | parameters)
    path = folder / f"{began:%Y-%m-%dT%H%M%SZ}-gro_on_off"
    written = runs.Folder.create(path, plan, seed=1, notebook="gro_on_off")
    cells = [cell.model_dump() for cell in plan.cells(kernel)]
    windows = synthetic.simulate(
        cells, plan.blocks, start=began.isoformat(), outliers=0, window_noise=0, seed=number
    )
    rates = [synthetic.true_rate(row) * factor * LUCK[number % len(LUCK)] for _, row in windows.iterrows()]
    windows = windows.assign(mpps=rates, ns_per_packet=1000 / np.array(rates), flags="")
    if flag:
        windows.loc[windows.index[flag[1]], "flags"] = flag[0]
    for row in windows.assign(**(columns or {})).to_dict("records"):
        written.append(row)
    written.add_to_host({"kernel_release": kernel} | (host or {}))
    written.finish({})
    for name in ("plan.json", "run.json"):
        record = json.loads((path / name).read_text())
        runs.write_json(path / name, record | {"started_utc": began.isoformat()})
    return path
