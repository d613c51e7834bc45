# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The profiles of a table's columns as arrays over one list of functions, so that any group of them can be summed.

What the row of an inlined function (kind "i") counts, and which others count it too, says profile.Profile. Here a
function has a row for each way that it was inlined (`through`), so that a sum of several counts each sample once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from rxbook import RxbookError
from rxbook.profile import Profile
from rxbook.profile.shares import UNKNOWN, share_interval
from rxbook.statistics import Interval

By = Literal["dso", "comm", "cpu"]
Inlined = Literal["shown", "apart", "hidden"]

FUNCTION = ["group", "symbol", "place", "inlined", "within"]
KEYS = [*FUNCTION, "through"]
FIGURES = ["samples", "share", "children_samples", "children_share"]
PREFERRED = ("cycles", "cpu-cycles", "cpu-clock", "task-clock")
CLOCKS = ("cpu-clock", "task-clock")
NO_SYMBOL = "[unknown]"
COMPLETE = 0.995
"""From this sum of shares on, a function that a text does not list has no samples: perf rounds, and omits zeros."""


def base_name(event: str) -> str:
    """The event without its modifiers: cycles of cycles:kP."""
    return event.split(":")[0]


def event_of(profile: Profile, wanted: str | None) -> str | None:
    """The event of a profile that a table shows: the wanted one, else cycles or time, else the first; None if empty.

    Raises RxbookError where the profile has not the wanted one.
    """
    names = list(dict.fromkeys([*profile.events, *profile.functions["event"].dropna()]))
    if wanted is not None:
        found = [name for name in names if name == wanted] or [n for n in names if base_name(n) == wanted]
        if not found and names:
            has = ", ".join(names)
            raise RxbookError(f"{profile.source} has no event {wanted!r}; it has {has}")
        return found[0] if found else None
    for preferred in PREFERRED:
        for name in names:
            if base_name(name) == preferred:
                return name
    return names[0] if names else None


@dataclass(frozen=True)
class Tally:
    """One column. Arrays of (function, repeat), NaN where a source does not tell.

    Of each repeat: totals, its samples, and complete, whether a function that it does not list has none.
    """

    samples: np.ndarray
    shares: np.ndarray
    children_samples: np.ndarray
    children_shares: np.ndarray
    totals: np.ndarray
    complete: np.ndarray

    def sums(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Samples and share of some functions together, one value for each repeat."""
        shares, none = self.shares[rows], np.where(self.complete, 0.0, np.nan)
        return _sum(self.samples[rows], shares, none), _sum(shares, shares, none)

    def share(self, rows: np.ndarray, idle: np.ndarray | None = None, rest: bool = False) -> Interval:
        """Share of some functions together (with `rest`: of all others); with `idle`, of what these leave."""
        samples, shares = self.sums(rows if idle is None else rows & ~idle)
        totals = self.totals
        if idle is not None:
            waited, waited_share = (np.where(np.isnan(self.sums(idle)[1]), 0.0, x) for x in self.sums(idle))
            totals, busy = totals - waited, 1 - waited_share
            shares = np.divide(shares, busy, out=np.full(len(busy), np.nan), where=busy > 0)
        if rest:
            told = ~np.isnan(self.shares).all(axis=0)
            none = told & np.isnan(shares)
            samples = np.maximum(0.0, totals - np.where(none, 0.0, samples))
            shares = np.where(samples == 0, 0.0, np.maximum(0.0, 1 - np.where(none, 0.0, shares)))
        return share_interval(samples, totals, shares)

    def whole(self) -> Interval:
        """Of everything: 1, with the samples; unknown where nothing was sampled."""
        if np.isnan(self.shares).all():
            return UNKNOWN
        return Interval(1.0, 1.0, 1.0, int(np.nan_to_num(self.totals).sum()))

    def children(self, rows: np.ndarray) -> Interval:
        """Share of the samples with this function anywhere in their call chain."""
        samples, shares = self.children_samples[rows], self.children_shares[rows]
        return share_interval(_sum(samples, shares), self.totals, _sum(shares, shares))


def _sum(figures: np.ndarray, shares: np.ndarray, none: np.ndarray | float = np.nan) -> np.ndarray:
    """Sum over functions of those that a repeat tells of; `none` where it tells of none."""
    told = ~np.isnan(shares)
    return np.where(told.any(axis=0), np.where(told, figures, 0.0).sum(axis=0), none)


def tally(
    columns: Mapping[str, Sequence[Profile]],
    event: str | None = None,
    by: By | None = None,
    inlined: Inlined = "shown",
    asked: Iterable[str] = (),
) -> tuple[pd.DataFrame, dict[str, Tally]]:
    """All functions of all columns (KEYS and the dso, one row each), and each column's figures for them.

    asked: symbols that are given a row although no profile has them.
    """
    frames = {
        name: [_normalised(profile, event_of(profile, event), by, inlined) for profile in profiles]
        for name, profiles in columns.items()
    }
    every = [frame for repeats in frames.values() for frame in repeats]
    names = pd.concat([frame[[*KEYS, "dso"]] for frame in every]).drop_duplicates(KEYS)
    lacking = [symbol for symbol in asked if not (names["symbol"] == symbol).any()]
    added = pd.DataFrame({"symbol": lacking}).assign(group="", place="", inlined=False, dso="")
    added = added.assign(within="", through="")
    names = pd.concat([names, added]).astype({"inlined": bool}).reset_index(drop=True)
    index = pd.MultiIndex.from_frame(names[KEYS])
    return names, {
        name: _tally(repeats, [_total(p, event_of(p, event)) for p in columns[name]], index, inlined)
        for name, repeats in frames.items()
    }


def _total(profile: Profile, event: str | None) -> float:
    """Samples of the event, NaN where unknown: as the source says, but not fewer than its functions have."""
    known = profile.events[event].samples if event in profile.events else None
    rows = _own(profile.functions[(profile.functions["event"] == event).fillna(False)])
    listed = float(rows["samples"].sum())  # without those not told
    if known is not None:
        return max(float(known), listed)
    if rows.empty or rows["samples"].isna().any():
        return 0.0 if event is None else np.nan
    shares = rows["share"].astype(float).sum()
    return float(round(listed / shares)) if 0 < shares < COMPLETE else listed


def _own(functions: pd.DataFrame) -> pd.DataFrame:
    return functions[(functions["kind"] != "i").fillna(True)]


def counts_once(names: pd.DataFrame, inlined: Inlined) -> np.ndarray:
    """The functions whose shares sum to the whole: an inlined one is in its caller too, unless set apart."""
    return np.ones(len(names), bool) if inlined == "apart" else ~names["inlined"].to_numpy(bool)


def _normalised(profile: Profile, event: str | None, by: By | None, inlined: Inlined) -> pd.DataFrame:
    """KEYS, dso and FIGURES of one event, one row for each function; figures are floats."""
    rows = profile.functions[(profile.functions["event"] == event).fillna(False)]
    if inlined == "apart":
        rows = _apart(rows, profile.source)
    kind = rows["kind"].fillna("")
    group = _groups(rows, by, profile.source)
    dso = rows["dso"].astype("object").where(rows["dso"].notna(), "")
    held = rows.reindex(columns=["within", "through"]).astype(object)
    figures = {name: rows[name].astype("Float64").to_numpy(float, na_value=np.nan) for name in FIGURES}
    frame = pd.DataFrame(
        {
            "group": group.astype(object),
            "symbol": rows["symbol"].astype(object).where(rows["symbol"].notna(), NO_SYMBOL),
            "place": dso.where(~(kind.isin(["k", "b"]) | (kind == "i") & dso.str.startswith("[")), ""),
            "inlined": (kind == "i").astype(bool),
            **held.where(held.notna(), ""),
            "dso": dso,
        }
    ).assign(**figures)
    frame = _filled(frame, _total(profile, event))
    by_function = frame.groupby(KEYS, sort=False)
    return by_function[FIGURES].sum(min_count=1).assign(dso=by_function["dso"].first()).reset_index()


def _groups(rows: pd.DataFrame, by: By | None, source: str) -> pd.Series:
    if by is None:
        return pd.Series("", rows.index)
    untold = rows["cpu"] < 0 if by == "cpu" else rows[by].isna()
    if len(rows) and untold.all():
        raise RxbookError(f"{source} does not tell the {by} of its samples, so the table cannot be by {by}")
    return rows[by].astype(object).where(~untold, "unknown").astype(str)


def _filled(frame: pd.DataFrame, total: float) -> pd.DataFrame:
    """With samples by the share where a text prints shares and the total alone, and shares by samples likewise."""
    for prefix in ("", "children_"):
        samples, share = frame[f"{prefix}samples"], frame[f"{prefix}share"]
        frame[f"{prefix}samples"] = samples.where(samples.notna(), (share * total).round())
        if total:
            frame[f"{prefix}share"] = share.where(share.notna(), samples / total)
    return frame


def _apart(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """With what is in no function inlined deeper, instead of all that is in a function."""
    if "own_samples" in rows:
        share = rows["own_period"].astype("Float64") / (_own(rows)["period"].sum() or 1)
        return rows.assign(samples=rows["own_samples"], share=share)
    if ((rows["kind"] == "i") & (rows["share"] > 0)).fillna(False).any():
        raise RxbookError(f"{source} does not say where its functions were inlined; use inlined='shown'")
    return rows


def _tally(
    frames: Sequence[pd.DataFrame], totals: Sequence[float], index: pd.MultiIndex, inlined: Inlined
) -> Tally:
    figures: dict[str, list[np.ndarray]] = {name: [] for name in FIGURES}
    complete = [frame.loc[counts_once(frame, inlined), "share"].sum() >= COMPLETE for frame in frames]
    for frame, total, lists_all in zip(frames, totals, complete, strict=True):
        placed = frame.set_index(KEYS)[FIGURES].reindex(index)
        absent = np.asarray(~index.isin(pd.MultiIndex.from_frame(frame[KEYS])))
        children_known = frame["children_share"].notna().any()
        for name in FIGURES:
            values = placed[name].to_numpy(float).copy()
            if lists_all and (children_known or not name.startswith("children")):
                values[absent] = np.nan if name.endswith("samples") and np.isnan(total) else 0.0
            figures[name].append(values)
    arrays = [np.column_stack(figures[name]) for name in FIGURES]
    return Tally(*arrays, np.array(totals, dtype=float), np.array(complete))
