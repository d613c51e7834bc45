# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perf printed, where the recording itself is not at hand: report, top, script, diff and stat, and mails of them.

parse() gives one Profile, profiles() all that a text holds, stat() the counters of perf stat. Quote marks of mails,
wrapped rows and decimal commas are understood. Lines that are not are named in Profile.warnings; a text of which
nothing can be read raises RxbookError.
"""

import re
from dataclasses import replace

import pandas as pd

from rxbook import RxbookError
from rxbook.profile import Profile, text_diff, text_report, text_script, text_stat
from rxbook.profile.text_rows import Line, Warnings, shorten, split_lines
from rxbook.profile.text_table import SYMBOL_MARK, read_header

KINDS = ("perf report", "perf top", "perf script", "perf diff", "perf stat")
_EARLY = 5000  # lines that tell the kind
_SHARE = re.compile(r"[0-9]{1,3}[.,][0-9]+%")


def kind(text: str) -> str | None:
    """Which of KINDS the text is; None where it is none of them."""
    return _kind(split_lines(text))


def _kind(lines: list[Line]) -> str | None:
    early = lines[:_EARLY]
    if any(line.text.startswith("# Event '") for line in early):
        return "perf diff"
    if any("PerfTop:" in line.text for line in early):
        return "perf top"
    if any(read_header(a, b) for a, b in zip(early, [*early[1:], None], strict=True)):
        return "perf report"
    if text_stat.is_stat(early):
        return "perf stat"
    if any(_SHARE.search(line.text) and SYMBOL_MARK.search(line.text) for line in lines):
        return "perf top"
    return "perf script" if any(_is_script(line.text) for line in early) else None


def _is_script(text: str) -> bool:
    head = text_script.read_head(text)
    if head is None:
        return text[:1] in (" ", "\t") and text_script.read_frame(text) is not None
    # Prose has words that end in a colon as well: what follows an event is an address or nothing.
    return not head[1].strip() or text_script.read_frame(head[1]) is not None or head[0].cpu is not None


def parse(text: str, name: str) -> Profile:
    """The text's profile; name is the file's, for messages.

    Of several the first (of perf diff the baseline), of perf top's screens the last, with a warning that says so.
    """
    last = "PerfTop:" in text
    found, count = _found(text, name, slice(-1, None) if last else slice(1))
    if count == 1:
        return found[0]
    note = f"{count} tables here, this is the {'last' if last else 'first'}: {found[0].source}"
    return replace(found[0], warnings=(*found[0].warnings, note))


def profiles(text: str, name: str) -> tuple[Profile, ...]:
    """All profiles of the text in order: the tables of a mail, perf top's screens, perf diff's files."""
    return tuple(_found(text, name, slice(None))[0])


def _found(text: str, name: str, wanted: slice) -> tuple[list[Profile], int]:
    """The wanted ones of the text's profiles, and how many it holds."""
    lines = split_lines(text)
    what = _kind(lines)
    warnings = Warnings()
    if what == "perf stat":
        raise RxbookError(f"{name} holds counters of perf stat, not functions")
    if what is None:
        raise RxbookError(f"{name} is no output of perf that is known here{_example(lines)}")
    found, count = _read(what, lines, name, warnings, wanted)
    if all(profile.functions.empty for profile in found):
        why = "; ".join(warnings.all()[:3]) or "no row in it"
        raise RxbookError(f"{name} looks like {what}, but nothing in it could be read: {why}")
    return found, count


def _read(
    what: str, lines: list[Line], name: str, warnings: Warnings, wanted: slice
) -> tuple[list[Profile], int]:
    if what == "perf diff":
        found = text_diff.read(lines, name, warnings)
        return found[wanted], len(found)
    if what == "perf script":
        return [text_script.read(lines, warnings, f"{name} ({what})")], 1
    groups = text_report.read(lines, warnings)
    said = warnings.all()
    alone = len(groups) == 1
    found = [
        text_report.profile(group, said, f"{name} ({what}{'' if alone else _place(group[0])})")
        for group in groups[wanted]
    ]
    return found, len(groups)


def _place(table: text_report.Table) -> str:
    return f", line {table.line}" + (f": {table.label}" if table.label else "")


def _example(lines: list[Line]) -> str:
    first = next((line for line in lines if line.text.strip()), None)
    return f": line {first.number} is {shorten(first.text)!r}" if first else ": it is empty"


def stat(text: str, name: str) -> pd.DataFrame:
    """The counters of a perf stat text (text_stat.COLUMNS); frame.attrs["warnings"] says what could not be read.

    value is in unit, <NA> with a note ("not counted", "not supported") where perf has none; interval_s is the time of
    -I; cpu is -1 and part <NA> unless counted apart; "time elapsed", "user" and "sys" are rows in seconds.
    """
    lines = split_lines(text)
    warnings = Warnings()
    frame = text_stat.read(lines, warnings)
    if frame.empty:
        why = "; ".join(warnings.all()[:3]) or "it is empty"
        raise RxbookError(f"{name}: no counter of perf stat could be read: {why}")
    frame.attrs["warnings"] = warnings.all()
    return frame
