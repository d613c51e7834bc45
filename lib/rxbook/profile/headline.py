# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The headline of a profile as metadata of a pyperf benchmark.

As a command, `python -m rxbook.profile.headline FILE` prints it as JSON: a process that is measured need not load
the reader.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rxbook import profile
from rxbook.profile import Profile
from rxbook.profile.function_words import LEAST, figure
from rxbook.profile.functions import Column, function_table
from rxbook.statistics import Interval

__all__ = ["headline"]

TOP = 10


def headline(profiles: Sequence[Profile]) -> dict[str, str | int]:
    """Event, samples, and the shares of families and of the largest functions, in percent with 95 % intervals.

    profiles: one, or the repeats of one condition. pyperf sorts metadata by name and takes no line breaks, so
    there is one key for each line of the table: rxbook_family_GRO = "31.2 +/-1.3 %", rxbook_function_01 =
    "12.30 +/-0.40 % dev_gro_receive". Inlined functions are counted in their callers.
    """
    table = function_table({"": Column(profiles)}, top=TOP, inlined="hidden")
    lines: dict[str, list[dict[str, Any]]] = {"family": [], "function": [], "other": []}
    for line in table.frame.to_dict("records"):
        lines[line["row"]].append(line)
    functions = [*lines["function"], *lines["other"]]
    said: dict[str, str | int] = {
        "rxbook_event": functions[0]["event"] if functions else "none",
        "rxbook_samples": int(sum(line["samples"] for line in functions)),
        "rxbook_lost_samples": sum(found.lost for found in profiles),
    }
    warnings = [note.removeprefix("WARNING: ") for note in table.notes if note.startswith("WARNING: ")]
    if warnings:
        said["rxbook_warning"] = " ".join(warnings)
    for line in lines["family"]:
        said[f"rxbook_family_{line['function'].replace(' ', '_')}"] = _percent(line)
    for number, line in enumerate(lines["function"], 1):
        said[f"rxbook_function_{number:02}"] = f"{_percent(line)} {line['function']}"
    for line in lines["other"]:
        said["rxbook_function_others"] = _percent(line)
    return said


def _percent(line: Mapping[str, Any]) -> str:
    share = Interval(line["share_percent"], line["share_percent_low"], line["share_percent_high"], 0)
    return f"{figure(share, LEAST['share'])} %"


if __name__ == "__main__":
    print(json.dumps(headline([profile.load(Path(sys.argv[1]))])))
