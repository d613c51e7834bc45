# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Run folders of SIMULATED windows, written by the code that writes real ones."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import synthetic
from rxbook import provenance, report, runs
from rxbook.plan import Plan, make_plan

PARAMETERS = {"frame_sizes": 64, "udp_csum": "computed,zero", "blocks": 6, "variant": "simulated"}


def windows(plan: Plan) -> list[dict[str, Any]]:
    """Rows of a whole run of a plan, in time order."""
    cells = [cell.model_dump() for cell in plan.cells("simulated")]
    return synthetic.simulate(cells, plan.blocks, window_s=plan.window_s).to_dict("records")


@contextlib.contextmanager
def known_host() -> Iterator[None]:
    """Look at this machine once for many runs: each look takes a fifth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "host", functools.cache(provenance.host))
        yield


def begin(path: Path, rows: int | None = None, **parameters: Any) -> runs.Folder:
    """A run that is being written, its first `rows` windows in it; close or finish it."""
    plan = make_plan(PARAMETERS | parameters)
    folder = runs.Folder.create(path, plan, seed=1, notebook="gro_on_off")
    for row in windows(plan)[:rows]:
        folder.append(row)
    return folder


def finished(path: Path, *, tables: bool = False, **parameters: Any) -> runs.Run:
    """A finished run, if wanted with its tables, figures and bench.json, which takes a second."""
    folder = begin(path, **parameters)
    if tables:
        report.save(runs.load(path))
    folder.finish({"wall_s": 1.0, "windows_s": 0.9, "windows": len(runs.load(path).samples)})
    return runs.load(path)
