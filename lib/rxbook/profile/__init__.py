# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Profiles of perf: what every reader, binary or text, gives."""

from dataclasses import dataclass

import pandas as pd

COLUMNS = [
    "event", "comm", "cpu", "dso", "symbol", "kind", "samples", "period",
    "children_samples", "children_period", "share", "children_share",
]  # fmt: skip


@dataclass(frozen=True)
class EventTotals:
    """What is known of one event; None where the source does not tell."""

    samples: int | None = None
    period: int | None = None
    frequency: int | None = None  # samples per second asked for
    type: str | None = None  # hardware, software, tracepoint, ...


@dataclass(frozen=True)
class Profile:
    """One recording as functions.

    functions: COLUMNS, one row per (event, comm, cpu, dso, symbol); comm is <NA> and cpu -1 where the source does
    not tell them. kind: "k" kernel, "u" user, "b" BPF, "g" guest, "h" hypervisor, "i" inlined. samples and period
    are Int64, <NA> where a text has only percentages; share and children_share are 0..1 of the event's period.
    warnings say where and why something is partial; source is the file's name, without its folder, and its kind.
    """

    functions: pd.DataFrame
    events: dict[str, EventTotals]
    lost: int
    warnings: tuple[str, ...]
    source: str
