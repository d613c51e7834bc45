# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a rounded figure allows: exact interval arithmetic on numbers as they are printed.

A value v printed with d digits behind the point stands for all of v - 0.5 * 10^-d to v + 0.5 * 10^-d, both ends
included, as authors round a half up as well as to even. Fractions keep 4.7/4 = 1.175 exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from rxbook import RxbookError

__all__ = ["Range", "Verdict", "decimals", "exactly", "printed", "verdict"]

Verdict = Literal["agree", "possible", "contradicts"]

_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?")


@dataclass(frozen=True)
class Range:
    """A figure as it follows from the printed digits (point), and the limits within which it may lie."""

    point: Fraction
    low: Fraction
    high: Fraction

    def __add__(self, other: Range | int) -> Range:
        other = exactly(other)
        return Range(self.point + other.point, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Range | int) -> Range:
        other = exactly(other)
        return Range(self.point - other.point, self.low - other.high, self.high - other.low)

    def __mul__(self, other: Range | int) -> Range:
        other = exactly(other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Range(self.point * other.point, min(ends), max(ends))

    def __truediv__(self, other: Range | int) -> Range:
        """Raises RxbookError where the divisor may be zero."""
        other = exactly(other)
        if other.low <= 0 <= other.high:
            raise RxbookError(
                f"{float(other.point):g} may be a rounded zero, so nothing can be divided by it"
            )
        return self * Range(1 / other.point, 1 / other.high, 1 / other.low)

    def overlaps(self, other: Range) -> bool:
        """Is there a value that both allow?"""
        return self.low <= other.high and other.low <= self.high

    def holds(self, value: Fraction) -> bool:
        """Is the value within the limits?"""
        return self.low <= value <= self.high


def exactly(value: Range | int) -> Range:
    """The range of a number that is not rounded."""
    return value if isinstance(value, Range) else Range(Fraction(value), Fraction(value), Fraction(value))


def printed(text: str) -> Range:
    """The range of a printed number, as in "2.7", "+48" or "2,7". Raises RxbookError for other texts."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise RxbookError(f"{text!r} is no printed number")
    point = Fraction(text.replace(",", "."))
    half = Fraction(1, 2 * 10 ** decimals(text))
    return Range(point, point - half, point + half)


def decimals(text: str) -> int:
    """Digits behind the point."""
    return len(re.split("[.,]", text.strip(), maxsplit=1)[1]) if re.search("[.,]", text) else 0


def verdict(claim: Range, computed: Range) -> Verdict:
    """How a printed figure stands to what other printed figures give.

    agree: their point rounds to it. possible: some values within the roundings do. contradicts: none does.
    """
    if claim.holds(computed.point):
        return "agree"
    return "possible" if claim.overlaps(computed) else "contradicts"
