# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One thread's part of a profile of its CPU."""

from __future__ import annotations

from dataclasses import replace

from rxbook.profile import Profile

COMM_BYTES = 15
"""What perf keeps of a thread's name (TASK_COMM_LEN); /proc shows those of kernel threads in full."""


def only_task(profile: Profile, task: str) -> tuple[Profile, int, int]:
    """The samples taken while the thread of this name ran, interrupts on top of it too, as a profile of their own.

    Shares are of that thread's samples. Also returns the number of these, and of all.
    """
    frame = profile.functions
    mine = frame["comm"].eq(task[:COMM_BYTES]).fillna(False)
    everything = int(frame["samples"].sum())
    functions = frame[mine].reset_index(drop=True)
    total = functions.groupby("event")["period"].transform("sum").astype("Float64")
    functions["share"] = functions["period"].astype("Float64") / total
    functions["children_share"] = functions["children_period"].astype("Float64") / total
    sums = functions.groupby("event", observed=True)[["samples", "period"]].sum()
    events = {
        name: replace(about, samples=int(sums.loc[name, "samples"]), period=int(sums.loc[name, "period"]))
        if name in sums.index
        else replace(about, samples=0, period=0)
        for name, about in profile.events.items()
    }
    return replace(profile, functions=functions, events=events), int(functions["samples"].sum()), everything
