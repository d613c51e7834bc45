# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which lines a table of functions has, and the figures of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from rxbook import RxbookError
from rxbook.profile.families import IDLE, matcher
from rxbook.profile.shares import UNKNOWN, product
from rxbook.profile.tally import FUNCTION, Inlined, Tally, counts_once
from rxbook.statistics import Interval

GROUPS = 8
"""So many values of `by` get a section of their own, those with the largest shares."""
INLINED = " [i]"
"""Behind the name of an inlined function."""


@dataclass(frozen=True)
class Row:
    """One line: figures for each column; shares are 0..1, costs in the columns' unit, n the samples.

    within: of an inlined function, the one that it was inlined into, "" where not known.
    """

    kind: Literal["family", "function", "other", "all"]
    group: str
    name: str
    dso: str
    shares: tuple[Interval, ...]
    children: tuple[Interval, ...]
    costs: tuple[Interval, ...]
    within: str = ""


def _unless_empty(line: Row) -> list[Row]:
    """The line of the others, unless there are none."""
    return [line] if any(share.centre > 0 for share in line.shares) else []


class Rows:
    """Makes lines out of functions: `names` has one row for each, `tallies` their figures by column."""

    def __init__(
        self,
        names: pd.DataFrame,
        tallies: Sequence[Tally],
        costs: Sequence[Interval | None],
        inlined: Inlined,
    ):
        self.names, self.tallies, self.costs = names, tallies, costs
        self.inlined, self.apart = names["inlined"].to_numpy(bool), inlined == "apart"
        self.listed = np.ones(len(names), bool) if inlined != "hidden" else ~self.inlined
        self.once = counts_once(names, inlined)
        self.kernel = (names["place"] == "").to_numpy(bool)
        waiting = self._matching(IDLE) & ~self.inlined | self._matching(IDLE, "within")
        self.waits = waiting & self.kernel
        self.idle = self.waits & self.once
        self.everything = np.ones(len(names), bool)
        # perf report lists them with their children alone.
        self.tells_inlined = bool((self._means()[self.inlined] > 0).any())

    def _matching(self, patterns: Collection[str], column: str = "symbol") -> np.ndarray:
        """Those with a name in the column, which can have several or none, that matches."""
        matches = matcher(patterns)
        known = {
            names: any(map(matches, filter(None, names.split("\n")))) for names in self.names[column].unique()
        }
        return self.names[column].map(known).to_numpy(bool)

    def row(
        self, kind: str, name: str, mask: np.ndarray, group: str = "", dso: str = "", rest: bool = False
    ) -> Row:
        """The line of some functions together; with `rest`, of all others."""
        alone = kind == "function"  # chains go through several functions of a sum
        return Row(
            kind,
            group,
            name,
            dso,
            tuple(found.share(mask, rest=rest) for found in self.tallies),
            tuple(found.children(mask) if alone else UNKNOWN for found in self.tallies),
            tuple(
                self._cost(found, cost, mask, rest)
                for found, cost in zip(self.tallies, self.costs, strict=True)
            ),
        )

    def _cost(self, found: Tally, cost: Interval | None, mask: np.ndarray, rest: bool) -> Interval:
        """The share of the time in which the CPU did not wait, times what a packet costs."""
        busy = mask & ~self.waits
        if cost is None or (mask.any() and not busy.any() and not rest):
            return UNKNOWN
        return product(found.share(busy, self.idle, rest), cost)

    def whole(self) -> Row:
        """The line of everything."""
        shares = tuple(found.whole() for found in self.tallies)
        costs = tuple(cost or UNKNOWN for cost in self.costs)
        return Row("all", "", "all", "", shares, (UNKNOWN,) * len(shares), costs)

    def families(
        self, chosen: Mapping[str, Sequence[str]], given: Collection[str]
    ) -> Iterator[tuple[Row, list[str]]]:
        """The line of each family, and its functions that have samples, largest first.

        A family without samples is left out unless given by the user; the built-in ones have no user functions.
        The sum is the samples in any of the functions, however inlined ones are shown.
        """
        for name, patterns in chosen.items():
            counted = self.kernel | (name in given)
            matching = self._matching(patterns) & counted
            inside = self._matching(patterns, "within") | self._matching(patterns, "through")
            if self.apart:  # what a member's row has lost is still the family's
                mask = matching | inside & counted
            else:
                mask = matching & (self.once | ~inside & (self.names["within"] != "").to_numpy())
            members = self.ranked(matching & mask, self._means())
            if len(members) or name in given:
                yield self.row("family", name, mask), list(dict.fromkeys(self.names["symbol"][members]))

    def _means(self, children: bool = False) -> np.ndarray:
        """(function, column): mean share over the repeats, with children where known; 0 where unknown."""
        figures = [
            np.fmax(found.shares, found.children_shares) if children else found.shares
            for found in self.tallies
        ]
        return np.column_stack([np.nan_to_num(shares).mean(axis=1) for shares in figures])

    def ranked(self, mask: np.ndarray, means: np.ndarray, last: bool = False) -> np.ndarray:
        """Places in `names` of those with samples, by the largest or the last column's share, falling."""
        size = means[:, -1] if last else means.max(axis=1)
        order = np.argsort(-size, kind="stable")
        return order[mask[order] & (means.max(axis=1)[order] > 0)]

    def functions(
        self, top: int, only: Collection[str] | None, by: str | None, children: bool, last: bool
    ) -> list[tuple[str, list[Row]]]:
        """Sections, each a heading with its lines: functions by share, then all others."""
        wanted = self.listed & (self.everything if only is None else self._matching(only))
        if only is not None and not wanted.any() and len(self.names):
            raise RxbookError(f"no function matches {', '.join(only)}; patterns are such as '*_gro_receive'")
        means = self._means(children)
        if by is None:
            lines, shown = self._lines(wanted, means, top, only, last)
            lines += _unless_empty(self.row("other", "other functions", shown & self.once, rest=True))
            return [("Functions", [*lines, self.whole()] if any(self.costs) else lines)]
        return list(self._by(by, wanted, means, top, last))

    def _by(
        self, by: str, wanted: np.ndarray, means: np.ndarray, top: int, last: bool
    ) -> Iterator[tuple[str, list[Row]]]:
        own = pd.DataFrame(self._means()[self.once]).groupby(self.names["group"].to_numpy()[self.once]).sum()
        groups = list(own.max(axis=1).sort_values(ascending=False, kind="stable").index)
        for group in groups[:GROUPS]:
            mask = (self.names["group"] == group).to_numpy()
            lines, shown = self._lines(wanted & mask, means, top, None, last)
            whole = self.row("all", "all", mask & self.once, group)
            other = self.row("other", "other functions", mask & self.once & ~shown, group)
            yield f"{by} {group}", [whole, *lines, *_unless_empty(other)]
        if groups[GROUPS:]:
            mask = self.names["group"].isin(groups[GROUPS:]).to_numpy() & self.once
            yield f"{len(groups) - GROUPS} further values of {by}", [self.row("all", "all", mask, "further")]

    def _lines(
        self, wanted: np.ndarray, means: np.ndarray, top: int, only: Collection[str] | None, last: bool
    ) -> tuple[list[Row], np.ndarray]:
        """The lines of the largest functions, and a mask of what they show."""
        ids = self.names.groupby(FUNCTION, sort=False).ngroup().to_numpy()
        summed = pd.DataFrame(means).groupby(ids).transform("sum").to_numpy()
        places = self.ranked(wanted, summed, last)
        asked = np.flatnonzero(wanted & self.names["symbol"].isin(list(only or ())).to_numpy())
        chosen = list(dict.fromkeys(ids[places]))[:top]
        chosen += [found for found in dict.fromkeys(ids[asked]) if found not in chosen]
        masks = [ids == found for found in chosen]
        shown = np.isin(ids, chosen)
        return [self._line(mask) for mask in masks], shown

    def _line(self, mask: np.ndarray) -> Row:
        first = self.names[mask].iloc[0]
        name = f"{first['symbol']}{INLINED}" if first["inlined"] else first["symbol"]
        line = self.row("function", name, mask, first["group"], first["dso"])
        return replace(line, within=first["within"])
