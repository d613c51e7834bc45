# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""SIMULATED profiles for tests: no sample here was taken."""

from __future__ import annotations

import pandas as pd

from rxbook.profile import COLUMNS, INLINED_COLUMNS, EventTotals, Profile
from rxbook.profile.text_rows import typed

KERNEL = "[kernel.kallsyms]"
MADE_UP = ["tcp_gro_receive", "inet_gro_receive", "kmem_cache_free", "csum_partial", "ip_rcv", "veth_poll"]
CPP = "ns::table<key, std::vector<value, std::allocator<value>>>::insert(key const&, {})"


def profile(counts, event="cycles", lost=0, warnings=(), source="simulated.data (perf.data)", **fields):
    """A profile of kernel functions with these samples; `fields` are columns for all or lists of one each.

    With `within`, and `through` where one is inlined into another, samples count what is inlined.
    """
    frame = pd.DataFrame(
        {"event": event, "dso": KERNEL, "kind": "k", "symbol": list(counts), "samples": list(counts.values())}
    ).assign(**fields)
    frame = frame.reindex(columns=[*COLUMNS, *(INLINED_COLUMNS if "within" in frame else [])])
    frame["period"] = frame["samples"] * 1000
    if "within" in frame:
        frame[["within", "through"]] = frame[["within", "through"]].astype("string")
        holders = frame["through"].str.split("\n").str[-1].fillna(frame["within"])
        held = frame.groupby(holders)["samples"].sum()
        frame["own_samples"] = frame["samples"] - frame["symbol"].map(held).fillna(0).astype(int)
        frame["own_period"] = frame["own_samples"] * 1000
    own = frame["kind"] != "i"
    total = int(frame["samples"][own].sum())
    frame["share"] = frame["samples"] / max(total, 1)
    totals = EventTotals(total, total * 1000)
    return Profile(typed(frame), {event: totals}, lost, tuple(warnings), source)


def published(shares):
    """What a mail prints: percentages of a few functions, nothing else."""
    frame = pd.DataFrame({"event": "unknown", "dso": KERNEL, "kind": "k", "symbol": list(shares)})
    frame["share"] = [percent / 100 for percent in shares.values()]
    return Profile(typed(frame.reindex(columns=COLUMNS)), {}, 0, (), "mail")


def drawn(shares, total, rng):
    counts = rng.multinomial(total, shares)
    return profile({name: int(count) for name, count in zip(MADE_UP, counts, strict=True) if count})


def line(table, function, column=None):
    """The one row of the frame for a function or family, in the last column unless told."""
    rows = table.frame[table.frame["function"] == function]
    rows = rows[rows["column"] == (column or rows["column"].iloc[-1])]
    assert len(rows) == 1
    return rows.iloc[0]


def names(table, kind="function"):
    return list(dict.fromkeys(table.frame["function"][table.frame["row"] == kind]))
