# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The counters that perf stat printed, as a table; of two files, before and after."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rxbook.tables import Section, Table

__all__ = ["counter_table"]

SEVERAL = "Counted apart, by interval (-I) or by CPU: these are sums."


def counter_table(columns: Mapping[str, pd.DataFrame], source: str) -> Table:
    """Counters by event, a column for each text of perf stat; each later one is compared with the first, in percent.

    columns: by label, as text.stat() gives them. A change has a 95 % interval where perf says how far repeats (-r)
    differ: that is the standard error of the mean, in percent of it. The frame has one row for each event and column.
    """
    counted = {label: _sums(frame) for label, frame in columns.items()}
    events = list(dict.fromkeys(event for found in counted.values() for event in found.index))
    first = next(iter(columns))
    rows, records = [], []
    for event in events:
        cells = [_cell(found, event) for found in counted.values()]
        changes = [
            _change(counted[first], found, event) for label, found in counted.items() if label != first
        ]
        rows.append((event, *cells, *(_said(*change) for change in changes)))
        for label, found in counted.items():
            if event in found.index:
                records.append({"event": event, "column": label, **found.loc[event].to_dict()})
    later = [label for label in columns if label != first]
    heads = [("", label) for label in columns] + [
        ("", f"{label} %" if len(later) > 1 else "diff, %") for label in later
    ]
    notes = [SEVERAL] * any(frame["event"].duplicated().any() for frame in columns.values())
    notes += [str(warning) for frame in columns.values() for warning in frame.attrs.get("warnings", ())]
    if later:
        notes.append(
            "diff: 95 % interval where perf stat -r told how far the repeats differ; ~: no difference shown."
        )
    return Table(
        "counters of perf stat", (("", "event"), *heads), (Section("Counters", tuple(rows)),), tuple(notes),
        pd.DataFrame(records), source,
    )  # fmt: skip


def _sums(frame: pd.DataFrame) -> pd.DataFrame:
    """value, unit, variance_percent, note by event."""
    by_event = frame.groupby("event", sort=False)
    found = by_event[["unit", "note"]].first()
    found["value"] = by_event["value"].sum(min_count=1).astype("Float64")
    alone = by_event["value"].size() == 1
    found["variance_percent"] = by_event["variance_percent"].first().where(alone).astype("Float64")
    return found


def _cell(found: pd.DataFrame, event: str) -> str:
    if event not in found.index:
        return "-"
    row = found.loc[event]
    if pd.isna(row["value"]):
        return "-" if pd.isna(row["note"]) else str(row["note"])
    value = float(row["value"])
    shown = f"{value:.0f}" if value.is_integer() else f"{value:.6g}"
    return shown + ("" if pd.isna(row["unit"]) else f" {row['unit']}")


def _change(first: pd.DataFrame, other: pd.DataFrame, event: str) -> tuple[float, float]:
    """(change, half-width of its interval) in percent; NaN where not known."""
    if event not in first.index or event not in other.index:
        return np.nan, np.nan
    values = [first.loc[event, "value"], other.loc[event, "value"]]
    if any(pd.isna(value) for value in values) or not values[0]:
        return np.nan, np.nan
    ratio = float(values[1] / values[0])
    errors = [found.loc[event, "variance_percent"] for found in (first, other)]
    if any(pd.isna(error) for error in errors):
        return (ratio - 1) * 100, np.nan
    return (ratio - 1) * 100, 1.96 * ratio * float(np.hypot(*map(float, errors)))


def _said(change: float, reach: float) -> str:
    if np.isnan(change):
        return "-"
    if np.isnan(reach):
        return f"{change:+.1f}"
    return f"{'~' if abs(change) <= reach else f'{change:+.1f}'} +/-{reach:.1f}"
