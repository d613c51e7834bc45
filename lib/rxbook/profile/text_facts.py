# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perf says above its tables: events, totals, lost samples, filters."""

import re
from dataclasses import dataclass, field, replace

from rxbook.profile import EventTotals

_SAMPLES = re.compile(
    r"Samples: +([0-9.,]{1,19})([KMGT]?) +of events? '(.*?)'(?=,|\s|$)(?:, ([0-9]{1,19}) Hz)?"
)
_COUNT = re.compile(r"Event count \(approx\.\): ([0-9]{1,19})")
_LOST = re.compile(r"Total Lost Samples: ([0-9]{1,19})")
_LOST_LIVE = re.compile(r"\blost: [0-9]+/([0-9]{1,19})")
_TOP = re.compile(r"PerfTop: .*\[(?:([0-9]{1,19})Hz )?(\S[^\]]*)\]")
_DIFF_EVENT = re.compile(r"# Event '(.*)'")
_DIFF_FILE = re.compile(r"#  \[([0-9]{1,19})\] (.*?)(?: \(Baseline\))? *$")
_FILTER = re.compile(r"# (comm|dso|symbol|thread): (.*)$")
_ATTRIBUTE = re.compile(r"# event : name = ([^,]+),.* type = ([0-9]{1,19})(.*)")
_FREQUENCY = re.compile(r"sample_freq \} = ([0-9]{1,19}),.* freq = 1")
_TYPES = ("hardware", "software", "tracepoint", "cache", "raw", "breakpoint")


@dataclass
class Facts:
    """The facts in force at a line of a text; a table takes those that stand above it."""

    events: list[str] = field(default_factory=list)
    totals: dict[str, EventTotals] = field(default_factory=dict)
    attributes: dict[str, EventTotals] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    filters: dict[str, str] = field(default_factory=dict)
    lost: int = 0

    def period(self, event: str) -> int | None:
        return self.totals[event].period if event in self.totals else None

    def take(self, text: str) -> bool:
        """Whether the line states a fact, which is then in force."""
        takers = (
            self._samples,
            self._top,
            self._lost,
            self._count,
            self._diff,
            self._attribute,
            self._filter,
        )
        # A line of perf top's screen holds samples, event count and losses at once.
        return any([taker(text) for taker in takers])

    def _samples(self, text: str) -> bool:
        if not (match := _SAMPLES.search(text)):
            return False
        self.events = split_group(match[3])
        # "10K" is rounded, so no count; and a group's figures are those of all its events together.
        exact = match[1].isdigit() and not match[2] and len(self.events) == 1
        for event in self.events:
            known = self.attributes.get(event, EventTotals())
            frequency = int(match[4]) if match[4] else known.frequency
            samples = int(match[1]) if exact else None
            self.totals[event] = replace(known, samples=samples, frequency=frequency)
        return True

    def _count(self, text: str) -> bool:
        if not (match := _COUNT.search(text)):
            return False
        if len(self.events) == 1:
            event = self.events[0]
            self.totals[event] = replace(self.totals[event], period=int(match[1]))
        return True

    def _lost(self, text: str) -> bool:
        if not (match := _LOST.search(text) or _LOST_LIVE.search(text)):
            return False
        self.lost = int(match[1])
        return True

    def _top(self, text: str) -> bool:
        if not (match := _TOP.search(text)):
            return False
        self.events = [match[2].strip()]
        self.totals = {self.events[0]: EventTotals(frequency=int(match[1]) if match[1] else None)}
        return True

    def _diff(self, text: str) -> bool:
        if match := _DIFF_EVENT.match(text):
            self.events = [match[1]]
            self.totals[match[1]] = EventTotals()
        elif match := _DIFF_FILE.match(text):
            self.files.append(match[2].rsplit("/", 1)[-1])
        return match is not None

    def _attribute(self, text: str) -> bool:
        if not (match := _ATTRIBUTE.match(text)):
            return False
        kind = int(match[2]) if len(match[2]) < 3 else len(_TYPES)
        frequency = _FREQUENCY.search(match[3])
        self.attributes[match[1].strip()] = EventTotals(
            frequency=int(frequency[1]) if frequency else None,
            type=_TYPES[kind] if kind < len(_TYPES) else None,
        )
        return True

    def _filter(self, text: str) -> bool:
        if match := _FILTER.match(text):
            self.filters[match[1]] = match[2].strip()
        return match is not None


def split_group(words: str) -> list[str]:
    """The events of "anon group { cycles, instructions }", or the one event."""
    match = re.fullmatch(r".*\{ (.*) \}", words)
    return [part.strip() for part in match[1].split(", ")] if match else [words]
