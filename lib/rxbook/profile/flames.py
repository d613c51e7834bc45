# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How many samples the receiving thread has in each function as it was called: what flame graphs are drawn of."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rxbook import profile
from rxbook.profile import export
from rxbook.profile.shares import difference, differs, product, share_interval
from rxbook.profile.tasks import COMM_BYTES
from rxbook.statistics import Interval

if TYPE_CHECKING:
    from rxbook.profile.record import Recording

__all__ = ["compared", "nodes", "save", "stacks"]

Stack = tuple[str, ...]

LEAST = 0.001
"""Functions with a smaller share are not drawn: they are part of their caller."""


def stacks(recording: Recording) -> Counter[Stack]:
    """Samples of the receiving thread by stack, outermost function first, the thread's name left out.

    A recording without call chains gives each sampled function alone.
    """
    kept = recording.data.with_suffix(".folded.gz")
    if kept.exists():
        return _parsed(gzip.decompress(kept.read_bytes()).decode())
    if recording.data.suffix == ".csv":
        functions = profile.load(recording.data).functions
        own = functions[functions["kind"] != "i"]
        return Counter({(name,): int(n) for name, n in own.groupby("symbol")["samples"].sum().items() if n})
    task = recording.task[:COMM_BYTES].replace(";", ":")
    found: Counter[Stack] = Counter()
    for (comm, *stack), samples in _parsed(export.folded(recording.data)).items():
        if comm == task:
            found[tuple(stack)] += samples
    return found


def save(recording: Recording, path: Path) -> None:
    """Write the stacks for `stacks` to find, a line each as `export.folded` has them, compressed to a thirtieth."""
    lines = [";".join(stack) + f" {samples}\n" for stack, samples in stacks(recording).items()]
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def _parsed(text: str) -> Counter[Stack]:
    found: Counter[Stack] = Counter()
    for line in text.splitlines():
        names, _, samples = line.rpartition(" ")
        found[tuple(names.split(";"))] += int(samples)
    return found


def nodes(found: Sequence[Mapping[Stack, int]], cost: Interval | None) -> pd.DataFrame:
    """Each function as it was called, from the stacks of each repeat: one row, by `stack`; the first is the whole.

    name, samples; value, low, high: with what it called, per packet in the unit of cost, else percent of the samples;
    own: value in no function that it called. Functions below LEAST have no row.
    """
    totals = np.array([sum(each.values()) for each in found], float)
    counts: dict[Stack, np.ndarray] = defaultdict(lambda: np.zeros(len(found)))
    for repeat, each in enumerate(found):
        for stack, samples in each.items():
            for depth in range(len(stack) + 1):
                counts[stack[:depth]][repeat] += samples
    kept = {stack: sums for stack, sums in sorted(counts.items()) if sums.sum() >= LEAST * totals.sum()}
    rows = []
    for stack, sums in kept.items():
        share = share_interval(
            sums, totals, np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
        )
        per = (
            product(share, cost)
            if cost
            else Interval(share.centre * 100, share.low * 100, share.high * 100, share.n)
        )
        rows.append((stack, stack[-1] if stack else "all", int(sums.sum()), per.centre, per.low, per.high))
    frame = pd.DataFrame(rows, columns=["stack", "name", "samples", "value", "low", "high"]).set_index(
        "stack"
    )
    frame["own"] = frame["value"]
    for stack, value in frame["value"].items():
        if stack:
            frame.at[stack[:-1], "own"] -= value
    frame["own"] = frame["own"].clip(lower=0)  # a sum of floats may end a little below
    return frame


def compared(frame: pd.DataFrame, other: pd.DataFrame, sign: int = 1) -> pd.DataFrame:
    """The nodes of `frame` with `change` to `other` and whether it is shown (`differs`): its interval excludes 0.

    sign: -1 where `frame` is the later one, so that the change is the same in both pictures.
    """
    nothing = Interval(0.0, 0.0, 0.0, 0)
    changes = []
    for stack, row in frame.iterrows():
        there = other.loc[[stack]].iloc[0] if stack in other.index else None
        second = nothing if there is None else _interval(there)
        pair = (_interval(row), second)
        change = difference(*pair[::sign])
        changes.append((change.centre, change.low, change.high, differs(change)))
    names = ["change", "change_low", "change_high", "differs"]
    return frame.join(pd.DataFrame(changes, columns=names, index=frame.index))


def _interval(row: Any) -> Interval:
    return Interval(row["value"], row["low"], row["high"], row["samples"])
