# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording in the forms that flame-graph viewers read."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import rxbook
from rxbook.profile.firefox import firefox
from rxbook.profile.stacks import Stacks, Warn, outermost_first, read, unsaid

__all__ = ["FORMS", "firefox", "folded", "speedscope"]


def folded(
    path: str | os.PathLike[str],
    event: str | None = None,
    kallsyms: str | os.PathLike[str] | None = None,
    warn: Warn = unsaid,
) -> str:
    """Lines `comm;outermost;...;innermost samples`, one for each stack of one event, most samples first.

    event: default the first that has samples. A recording without call chains gives the sampled function alone.
    warn is told, a line each, what makes the stacks partial. Raises RxbookError where the file cannot be read, or
    has no such event or no samples.
    """
    lines: Counter[str] = Counter()
    found = read(path, event, kallsyms, warn)
    if len(found) > 1:
        others = ", ".join(stacks.event for stacks in found[1:])
        warn(f"only {found[0].event} is folded; the file also has {others}: name one by --event")
    for stacks in found[:1]:
        # a frame's separator must not stand in a name
        symbol = [name.replace(";", ":") for name in stacks.functions.symbol]
        comms = [name.replace(";", ":") for name in stacks.comms]
        for (comm, chain), (samples, _) in stacks.weights.items():
            names = [symbol[number] for number in outermost_first(chain)]
            lines[";".join([comms[comm], *names])] += samples
    return "".join(f"{stack} {samples}\n" for stack, samples in lines.most_common())


def speedscope(
    path: str | os.PathLike[str],
    event: str | None = None,
    kallsyms: str | os.PathLike[str] | None = None,
    warn: Warn = unsaid,
) -> str:
    """speedscope's JSON: a sampled profile for each event that has samples, or for the event asked for.

    The outermost frame is the thread's name; weights are periods: nanoseconds of a clock, else what the event counts.
    Warns and raises as folded() does.
    """
    frames: dict[tuple[str, str | None], int] = {}
    profiles = [_sampled(stacks, frames) for stacks in read(path, event, kallsyms, warn)]
    listed = [{"name": name} if dso is None else {"name": name, "file": dso} for name, dso in frames]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": f"rxbook@{rxbook.__version__}",
            "name": Path(path).name,
            "shared": {"frames": listed},
            "profiles": profiles,
        }
    )


def _sampled(stacks: Stacks, frames: dict[tuple[str, str | None], int]) -> dict[str, Any]:
    """One event as a profile; frames takes in those that it does not have yet."""
    functions = stacks.functions
    place: dict[int, int] = {}
    samples = []
    for comm, chain in stacks.weights:
        numbers = outermost_first(chain)
        for number in numbers:
            if number not in place:
                key = (functions.symbol[number], functions.dso[number])
                place[number] = frames.setdefault(key, len(frames))
        root = frames.setdefault((stacks.comms[comm], None), len(frames))
        samples.append([root, *(place[number] for number in numbers)])
    weights = [period for _, period in stacks.weights.values()]
    return {
        "type": "sampled",
        "name": stacks.event,
        "unit": stacks.unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


FORMS = {"folded": folded, "speedscope": speedscope, "firefox": firefox}
