# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The notebooks of the project: which there are, the parameters that they declare, how a run of one is repeated."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rxbook import RxbookError, runs
from rxbook.plan import Plan, make_plan
from rxbook.runs import Run

__all__ = ["NOTEBOOKS", "command", "declared", "find", "plan"]

NOTEBOOKS = runs.ROOT / "notebooks"


def find(name: str) -> Path:
    """The file of a notebook. Raises RxbookError where none has this name."""
    path = NOTEBOOKS / f"{name}.ipynb"
    if not path.exists():
        known = ", ".join(path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb")))
        raise RxbookError(f"no notebook is named {name}; there are: {known}")
    return path


def declared(name: str) -> dict[str, Any]:
    """The parameters of a notebook, with its defaults: the assignments in its cell tagged `parameters`."""
    found = {}
    for cell in json.loads(find(name).read_text())["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            for node in ast.parse("".join(cell["source"])).body:
                if isinstance(node, ast.AnnAssign):
                    found[node.target.id] = ast.literal_eval(node.value)
    return found


def plan(name: str, given: Mapping[str, Any]) -> Plan:
    """The plan of a notebook with these parameters; what is none of a plan's is left out."""
    asked = declared(name) | dict(given)
    return make_plan({name: value for name, value in asked.items() if name in Plan.model_fields})


def command(run: Run) -> str:
    """The command that measures a run again, the order of its cells too."""
    defaults, asked = plan(run.notebook, {}).model_dump(), run.plan.model_dump() | {"seed": run.seed}
    changed = {name: value for name, value in asked.items() if value != defaults[name]}
    words = ["rxbook", "run", run.notebook]
    for name, value in changed.items():
        words += ["--set", f"{name}={_on_command_line(value)}"]
    return shlex.join(words)


def _on_command_line(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}={' '.join(patterns)}" for name, patterns in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
