# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf script: samples, with or without call chains, added up to functions.

Whatever -F asks for, perf prints the fields in one order: comm, pid/tid, [cpu], flags, time:, period, event:, and
then the address, symbol and (dso) behind it, or one such line per frame below it.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rxbook import RxbookError
from rxbook.profile import EventTotals, Profile
from rxbook.profile.text_facts import Facts
from rxbook.profile.text_rows import (
    UNKNOWN,
    Line,
    Warnings,
    function_frame,
    integer,
    kind_of_frame,
    short_dso,
)

_TIME = re.compile(r"(?:^|\s)[0-9]+[.,][0-9]{6,9}:(?=\s|$)")
_EVENT = re.compile(r"(?:^|\s)(?: {0,20}(?P<period>[0-9]+) +)?(?P<event>[^\s:]\S*):(?=\s|$)")
_WHO = re.compile(
    r"(?P<comm>\S.*?)??"
    r"(?:(?:^|\s+)(?:-?[0-9]+/)?-?[0-9]+(?=\s|$))?"
    r"(?:\s*\[(?P<cpu>[0-9]{3,6})\])?(?:(?<=[0-9\]])\s+[A-Z][A-Za-z]{0,5})?"
)
_PERIOD = re.compile(r"\s*(?P<period>[0-9]+)(?= *$| +[0-9a-f]+ [^\s(])")
_FRAME = re.compile(r"\s*(?P<ip>[0-9a-f]{1,16}) (?P<rest>\S.*)$")
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")
_LONGEST_HEAD = 200
_SOURCE_LINE = re.compile(
    r"\s+\S.*:[0-9]+(?: \(discriminator [0-9]+\))?$|\s*\S+\[[0-9a-f]+\]$|\s+\?\?:[?0-9]+$"
)
_LOST = re.compile(r"PERF_RECORD_LOST.*?lost[: ]+([0-9]{1,19})")


@dataclass(frozen=True)
class Frame:
    """One address of a sample as perf named it."""

    symbol: str
    dso: str | None
    kind: str | None


@dataclass
class Sample:
    """One sample: its frames from the innermost, and whether they are a call chain."""

    event: str
    comm: str | None
    cpu: int | None
    period: int | None
    frames: list[Frame] = field(default_factory=list)
    chain: bool = False


def read_head(text: str) -> tuple[Sample, str] | None:
    """A sample's first line, and what stands behind its event; None where the line is no such."""
    time = _TIME.search(text)
    event = _EVENT.search(text, time.end() if time else 0)
    before = time or event
    if before is None or before.start() > _LONGEST_HEAD:
        return None
    who = _WHO.fullmatch(text[: before.start()].strip())
    if who is None:
        return None
    end = event.end() if event else before.end()
    period = _PERIOD.match(text, end) if event is None else _period_of(event, time is not None)
    if period and event is None:
        end = period.end()
    sample = Sample(
        event["event"] if event else UNKNOWN,
        who["comm"],
        int(who["cpu"]) if who["cpu"] else None,
        integer(period["period"]) if period else None,
    )
    return sample, text[end:]


def _period_of(event: re.Match, timed: bool) -> re.Match | None:
    """Without a time a lone number before the event is a thread, unless it has the width of a period."""
    wide = event["period"] and event.end("period") - event.start() > 10
    return event if event["period"] and (timed or wide) else None


@functools.lru_cache(1 << 16)
def read_frame(text: str) -> Frame | None:
    """A frame: address, symbol, perhaps an offset, perhaps a dso in brackets; None where the line is none."""
    match = _FRAME.match(_without_branches(text.rstrip()))
    if not match:
        return None
    symbol, dso = _split_dso(match["rest"])
    if dso == "inlined":
        return Frame(_OFFSET.sub("", symbol), None, "i")
    dso = short_dso(dso) if dso is not None else None
    return Frame(_OFFSET.sub("", symbol), dso, kind_of_frame(dso, int(match["ip"], 16)))


def _without_branches(text: str) -> str:
    """The line before the branch stack ("0x1/0x2/P/-/-/0") or the registers that -F may add to it."""
    ends = [text.rfind(" ", 0, place) for place in (text.find("/-/"), text.find(" ABI:") + 1) if place > 0]
    return text[: min(ends)].rstrip() if ends and min(ends) > 0 else text


def _split_dso(text: str) -> tuple[str, str | None]:
    """Take the last balanced brackets off, where a space stands before them: C++ arguments have none."""
    if not text.endswith(")"):
        return text, None
    depth = 0
    for place in range(len(text) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return (
                (text[: place - 1].rstrip(), text[place + 1 : -1]) if text[place - 1] == " " else (text, None)
            )
    return text, None


class _Reader:
    """Goes through the lines once and hands out each sample when the next one begins."""

    def __init__(self, warnings: Warnings, chains_without_heads: bool):
        self.warnings = warnings
        self.facts = Facts()
        self.lost = 0
        self.sample: Sample | None = None
        self.headless = False
        self.chains_without_heads = chains_without_heads

    def samples(self, lines: list[Line]) -> Iterator[Sample]:
        for line in lines:
            yield from self._line(line)
        yield from self._finished()

    def _line(self, line: Line) -> Iterator[Sample]:
        text = line.text
        if not text.strip():
            yield from self._finished()
        elif text.startswith("#"):
            self.facts.take(text)
        elif "PERF_RECORD_" in text:
            lost = _LOST.search(text)
            self.lost += int(lost[1]) if lost else 0
        elif text[0] == "\t" and (frame := read_frame(text)):
            # Only frames start with a tab; after spaces a comm such as "dd" could be taken for an address.
            yield from self._frame(frame)
        elif head := read_head(text):
            yield from self._finished()
            self._head(*head)
        elif text[0] == " " and (frame := read_frame(text)):
            yield from self._frame(frame)
        elif not (self.sample and (_SOURCE_LINE.match(text) or "/-/" in text)):
            self.warnings.line(line, "not understood as a sample or a frame")

    def _head(self, sample: Sample, rest: str) -> None:
        self.sample = sample
        self.headless = False
        if rest.strip() and (frame := read_frame(rest)):
            sample.frames.append(frame)
        elif not rest.strip():
            sample.chain = True

    def _frame(self, frame: Frame) -> Iterator[Sample]:
        if self.headless and not self.chains_without_heads:
            yield from self._finished()
        if self.sample is None:
            self.sample = Sample(UNKNOWN, None, None, None, chain=self.chains_without_heads)
            self.headless = True
        elif not self.sample.frames:
            # A tracepoint's line ends in its own words, and its chain stands below them.
            self.sample.chain = True
        self.sample.frames.append(frame)

    def _finished(self) -> Iterator[Sample]:
        if self.sample is not None:
            yield self.sample
        self.sample = None


def read(lines: list[Line], warnings: Warnings, source: str) -> Profile:
    """The samples as functions: self by the innermost frame that is no inlined one, children once per sample."""
    last = max((place for place, line in enumerate(lines) if line.text.strip()), default=0)
    # Without heads a chain is known by its tabs, or by the blank lines between chains.
    chained = any(not line.text.strip() or line.text.startswith("\t") for line in lines[:last])
    reader = _Reader(warnings, chained)
    sums = _Sums()
    for sample in reader.samples(lines):
        sums.add(sample)
    refused = len(warnings.words) + warnings.more
    if 2 * refused > sum(bool(line.text.strip()) for line in lines):
        # a word and a colon look like the head of a sample: most of any prose would be one warning after another
        first = warnings.words[0] if warnings.words else "nothing"
        raise RxbookError(
            f"{source} is not what perf printed: {refused} lines are no sample, the first: {first}"
        )
    if sums.nameless:
        warnings.note(f"{sums.nameless} samples have no address and symbol: no function is known for them")
    if None in (total.period for total in sums.totals.values()):
        warnings.note("no periods: shares are of the samples")
    known = reader.facts.attributes
    totals = {
        event: replace(known.get(event, total), samples=total.samples, period=total.period)
        for event, total in sums.totals.items()
    }
    return Profile(function_frame(sums.rows()), totals, reader.lost, warnings.all(), source)


class _Sums:
    """Samples and periods by function, self and with children."""

    def __init__(self):
        self.totals: dict[str, EventTotals] = {}
        self.chained: set[str] = set()
        self.nameless = 0
        self.own: dict[tuple, list[int]] = {}
        self.children: dict[tuple, list[int]] = {}

    def add(self, sample: Sample) -> None:
        period = sample.period
        total = self.totals.get(sample.event, EventTotals(0, 0))
        whole = None if period is None or total.period is None else total.period + period
        self.totals[sample.event] = EventTotals(total.samples + 1, whole)
        where = (sample.event, sample.comm, sample.cpu)
        frames = _with_outer_dso(sample.frames)
        own = next((frame for frame in frames if frame.kind != "i"), None)
        self.nameless += own is None
        _count(self.own, (*where, own), period)
        if sample.chain:
            self.chained.add(sample.event)
            for frame in dict.fromkeys(frames):
                _count(self.children, (*where, frame), period)

    def rows(self) -> Iterator[dict]:
        keys = dict.fromkeys([*self.own, *self.children])
        rows = [self._row(key) for key in keys]
        # Stable, so that equal ones keep the order in which they were first seen.
        return iter(sorted(rows, key=lambda row: (row["share"], row.get("children_share", 0)), reverse=True))

    def _row(self, key: tuple) -> dict:
        event, comm, cpu, frame = key
        total = self.totals[event]
        row = {"event": event, "comm": comm, "cpu": cpu}
        if frame is not None:
            row.update(dso=frame.dso, symbol=frame.symbol, kind=frame.kind)
        row.update(_figures("", self.own.get(key, [0, 0]), total))
        if event in self.chained:
            row.update(_figures("children_", self.children.get(key, [0, 0]), total))
        return row


def _with_outer_dso(frames: list[Frame]) -> list[Frame]:
    """The frames, those inlined with the dso of the function that they were inlined into, which stands behind them."""
    dso, out = None, []
    for frame in reversed(frames):
        dso = dso if frame.kind == "i" else frame.dso
        out.append(replace(frame, dso=dso) if frame.kind == "i" else frame)
    return out[::-1]


def _count(sums: dict[tuple, list[int]], key: tuple, period: int | None) -> None:
    entry = sums.setdefault(key, [0, 0])
    entry[0] += 1
    entry[1] += period or 0


def _figures(prefix: str, sums: list[int], total: EventTotals) -> dict:
    samples, period = sums
    if total.period:
        return {
            f"{prefix}samples": samples,
            f"{prefix}period": period,
            f"{prefix}share": period / total.period,
        }
    return {f"{prefix}samples": samples, f"{prefix}share": samples / total.samples}
