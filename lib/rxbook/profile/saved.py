# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A profile as a small CSV file: what a run that is shared keeps of its recordings."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from rxbook import RxbookError
from rxbook.profile import COLUMNS, EventTotals, Profile

HEAD = "# rxbook profile, samples lost: "
_COUNTS = [name for name in COLUMNS if name.endswith(("samples", "period"))]
_TYPES = (
    dict.fromkeys(COLUMNS, "string")
    | dict.fromkeys(_COUNTS, "Int64")
    | {"cpu": "int64", "share": "Float64", "children_share": "Float64"}
)


def save(profile: Profile, path: Path) -> None:
    """Write the functions of a profile; its warnings are not kept."""
    path.write_text(f"{HEAD}{profile.lost}\n" + profile.functions[COLUMNS].to_csv(index=False))


def parse(text: str, name: str) -> Profile:
    """The profile in the text of such a file. RxbookError where it is damaged."""
    head, _, rows = text.partition("\n")
    try:
        # a function can have any name, NA too
        functions = pd.read_csv(io.StringIO(rows), dtype=_TYPES, keep_default_na=False, na_values=[""])[
            COLUMNS
        ]
        lost = int(head.removeprefix(HEAD))
    except (ValueError, KeyError) as error:
        raise RxbookError(f"{name} begins as a profile that rxbook saved, but is damaged: {error}") from None
    sums = functions.groupby("event", sort=False)[["samples", "period"]].sum()
    events = {event: EventTotals(int(row["samples"]), int(row["period"])) for event, row in sums.iterrows()}
    return Profile(functions, events, lost, (), f"{name} (saved profile)")
