# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figures in sentences: a gain of throughput with the cycles saved per packet, a clock, a time in cycles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from rxbook.profile.text_rows import Line
from rxbook.published import DIFFERENCE, SAVED
from rxbook.typed_tables import Typed

__all__ = ["sentence_tables"]

_NUMBER = r"(\d+(?:\.\d+)?)"
_GAIN = re.compile(rf"(?<![\w.]){_NUMBER}\s?%")
_CYCLES = re.compile(
    rf"cycles(?:/| per )(?:packet|pkt|frame)(?: of| by|:)? ?[~-]?{_NUMBER}\b"
    rf"|(?<![\w.]){_NUMBER} (?:\w+ )?(?:cycles|cyc)\b"
)
_CLOCK = re.compile(rf"(?<![\w.]){_NUMBER}\s?GHz", re.IGNORECASE)
_TIME = re.compile(rf"(?<![\w.]){_NUMBER}\s?(?:ns|nanoseconds?)\b")
_TOPIC = re.compile(r"throughput|faster|\brates?\b|packets per second|[Mk]?pps\b|\+\d", re.IGNORECASE)
_FURTHER = re.compile(r"\b(further|additional(ly)?|another|on top|more)\b", re.IGNORECASE)
_TOTAL = re.compile(r"\b(total|overall|altogether|in all|all together|combined)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\)?\s+(?=[A-Z~+(])|(?<=[.!?]\))\s+(?=[A-Z])")


def sentence_tables(lines: Sequence[Line]) -> list[Typed]:
    """Steps of throughput and cycles as one table, and each time that is given in cycles as another."""
    steps: list[tuple[str, str, str]] = []
    products: list[Typed] = []
    clocks: list[str] = []
    start = 0
    for line, sentence in _sentences(lines):
        clocks += [value for value in _CLOCK.findall(sentence) if value not in clocks]
        found = list(_steps(sentence))
        start = start or (line if found else 0)
        steps += found
        products += _product(line, sentence)
    steps = _once(steps)
    if not steps:
        return products
    table = Typed("throughput and cycles per packet", start)
    for name, gain, saved in steps:
        table.figures += [(name, "throughput", gain, DIFFERENCE), (name, "saved per packet", saved, SAVED)]
    if len(clocks) == 1:
        table.figures.append(("host", "clock", clocks[0], "GHz"))
    return [table, *products]


def _sentences(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    """Each sentence of each paragraph, with the line at which the paragraph begins."""
    for (_, blank), group in groupby(lines, lambda line: (line.depth, not line.text.strip())):
        if not blank:
            paragraph = list(group)
            words = " ".join(line.text.strip() for line in paragraph)
            for sentence in _SENTENCE_END.split(words):
                yield paragraph[0].number, sentence or ""


def _steps(sentence: str) -> Iterator[tuple[str, str, str]]:
    """(first, further or total; gain in %; cycles saved) of each gain that is followed by cycles."""
    if not _TOPIC.search(sentence):
        return
    gains = list(_GAIN.finditer(sentence))
    if len(gains) == 1 and len(cycles := list(_CYCLES.finditer(sentence))) == 1:  # in either order
        yield _step_name(sentence), gains[0][1], cycles[0][1] or cycles[0][2]
        return
    begin = 0
    for at, gain in enumerate(gains):
        end = gains[at + 1].start() if at + 1 < len(gains) else len(sentence)
        cycles = _CYCLES.search(sentence, gain.end(), end)
        if cycles:
            said = sentence[begin : cycles.end() if gain is not gains[-1] else end]
            yield _step_name(said), gain[1], cycles[1] or cycles[2]
            begin = cycles.end()


def _step_name(said: str) -> str:
    return "total" if _TOTAL.search(said) else "further" if _FURTHER.search(said) else "first"


def _once(steps: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Each step once, under its most telling name: a summary above repeats the total as if it were the first."""
    names: dict[tuple[str, str], str] = {}
    for name, *figures in steps:
        if names.get(tuple(figures), "first") == "first":
            names[tuple(figures)] = name
    ordered = sorted(names.items(), key=lambda item: ("first", "further", "total").index(item[1]))
    numbered: dict[str, int] = {}
    found = []
    for (gain, saved), name in ordered:
        numbered[name] = numbered.get(name, 0) + 1
        found.append((name if numbered[name] == 1 else f"{name} {numbered[name]}", gain, saved))
    return found


def _product(line: int, sentence: str) -> Iterator[Typed]:
    time, clock, cycles = (pattern.search(sentence) for pattern in (_TIME, _CLOCK, _CYCLES))
    if time and clock and cycles:
        figures = [
            ("time", time[1], "ns"),
            ("clock", clock[1], "GHz"),
            ("cost", cycles[1] or cycles[2], "cycles"),
        ]
        yield Typed(f"{time[1]} ns in cycles", line, [], [("estimate", *figure) for figure in figures])
