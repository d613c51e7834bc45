# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What differed between runs besides the variant: facts of their machines, and how they were measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from rxbook.plan import NOT_MEASURED, Cell, Plan
from rxbook.provenance import PUBLISHED
from rxbook.runs import Run

__all__ = ["of_machines", "of_plans"]

PASSING = {"date_utc", "memory_mib", "load_1min", "cpu_pressure", "steal"}
"""Facts of a machine that change by themselves."""

FOLLOWING = {"btf", "symbols"}
"""Facts that follow from the kernel."""

OF_CELLS = {*Cell.model_fields, "frame_sizes", "shapes"}
"""Parameters that say which cells there are: cells that differ are not compared."""

APART = {"blocks", "aa", "profile", "profile_s", "profile_repeats", "call_graph"}
"""Parameters that change no window, only how many there are, and what is recorded beside them."""

NAMES = {
    "kernel_release": "kernel",
    "kernel_version": "kernel build",
    "config_hash": "kernel config",
    "cmdline": "kernel option",
    "cpu_model": "CPU",
    "cpu_count": "CPUs",
    "cpus_isolated": "isolated CPUs",
    "smt": "SMT",
    "virtualised": "VM",
    "offloads_before": "offload",
    "offloads_after": "offload after",
    "versions": "",
    "mitigations": "mitigation",
    "git": "rxbook",
}
"""How facts are named, where not by their key."""

LONGEST = 40
"""Of two values that are not both this short only the name is told."""


def of_machines(runs: Sequence[Run], labels: Sequence[str]) -> list[str]:
    """`kernel 6.12.9 / 6.13.1`: each fact that differs, one value for each label, in order.

    A fact that some run did not record is passed over: it is not known to differ.
    """
    names = [name for name in PUBLISHED if name not in PASSING | FOLLOWING]
    return [
        said
        for name in names
        if all(name in run.host for run in runs)
        for said in _differing(name, [run.host[name] for run in runs], labels)
    ]


def of_plans(runs: Sequence[Run], labels: Sequence[str]) -> list[str]:
    """`window_s 0.1 / 0.2`: each parameter that differs and has to do with how a window was measured."""
    names = [name for name in Plan.model_fields if name not in OF_CELLS | APART | NOT_MEASURED]
    plans = [run.plan.model_dump() for run in runs]
    return [said for name in names for said in _differing(name, [plan[name] for plan in plans], labels)]


def _differing(name: str, values: Sequence[Any], labels: Sequence[str]) -> Iterator[str]:
    if all(value == values[0] for value in values):
        return
    shown = NAMES.get(name, name)
    if name == "cmdline":
        values = [_options(text) for text in values]
    if not all(isinstance(value, dict) for value in values):
        yield _line(shown, values, labels)
        return
    for key in dict.fromkeys(itertools.chain(*values)):
        inner = [value.get(key) for value in values]
        if any(value != inner[0] for value in inner):
            yield _line(f"{shown} {key}".strip(), inner, labels)


def _options(cmdline: str | None) -> dict[str, str]:
    """The kernel's options by name; one without a value is "set"."""
    pairs = (option.partition("=") for option in (cmdline or "").split())
    return {name: value if equals else "set" for name, equals, value in pairs}


def _line(name: str, values: Sequence[Any], labels: Sequence[str]) -> str:
    by_label: dict[str, list[str]] = {}
    for label, value in zip(labels, values, strict=True):
        by_label.setdefault(label, []).append(_text(value))
    sides = [" or ".join(dict.fromkeys(texts)) for texts in by_label.values()]
    return f"{name} {' / '.join(sides)}" if all(len(side) <= LONGEST for side in sides) else name


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)
