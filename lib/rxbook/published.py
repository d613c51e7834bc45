# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The figures that the threads print, from data/published: not measured by rxbook, and never mixed with what is."""

from __future__ import annotations

import pandas as pd

from rxbook import runs

__all__ = ["COLUMNS", "DIFFERENCE", "FOLDER", "SAVED", "SHARE", "load"]

DIFFERENCE, SHARE, SAVED = "%", "% of CPU", "cycles saved"
"""Units of which there are claims; the others are those of rates, and of what is in a sentence."""

FOLDER = runs.ROOT / "data" / "published"

COLUMNS = [
    "thread",
    "list",
    "date",
    "message",
    "message_id",
    "table",
    "row",
    "column",
    "value",
    "unit",
    "decimals",
]


def load(name: str | None = None) -> pd.DataFrame:
    """The figures of one file of data/published, or of all: COLUMNS, all of them texts, values as printed.

    See data/published/README.md for what the columns are; rows stand in the order in which they were printed.
    """
    paths = [FOLDER / f"{name}.csv"] if name else sorted(FOLDER.glob("*.csv"))
    return pd.concat(
        [pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths], ignore_index=True
    )
