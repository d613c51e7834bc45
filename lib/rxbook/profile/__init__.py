# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Profiles of perf: what every reader, binary or text, gives."""

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rxbook import RxbookError

COLUMNS = [
    "event", "comm", "cpu", "dso", "symbol", "kind", "samples", "period",
    "children_samples", "children_period", "share", "children_share",
]  # fmt: skip


@dataclass(frozen=True)
class EventTotals:
    """What is known of one event; None where the source does not tell."""

    samples: int | None = None
    period: int | None = None
    frequency: int | None = None  # samples per second asked for
    type: str | None = None  # hardware, software, tracepoint, ...


@dataclass(frozen=True)
class Profile:
    """One recording as functions.

    functions: COLUMNS, one row per (event, comm, cpu, dso, symbol); comm is <NA> and cpu -1 where the source does
    not tell them. kind: "k" kernel, "u" user, "b" BPF, "g" guest, "h" hypervisor, "i" inlined. samples and period
    are Int64, <NA> where a text has only percentages; share and children_share are 0..1 of the event's period.
    warnings say where and why something is partial; source is the file's name, without its folder, and its kind.
    """

    functions: pd.DataFrame
    events: dict[str, EventTotals]
    lost: int
    warnings: tuple[str, ...]
    source: str


def load(
    path: str | os.PathLike[str], children: bool = False, kallsyms: str | os.PathLike[str] | None = None
) -> Profile:
    """The profile in a file: perf.data, what a scrubbed run keeps of one, or the text of perf report, top, script,
    diff or stat.

    children: also sum the call chains of perf.data, which takes longer. kallsyms: a copy of /proc/kallsyms from the
    recorded machine; without it, the file `kallsyms` beside a perf.data is taken, else what perf kept.
    RxbookError where the file cannot be read or is none of these.
    """
    # Each reader costs start-up time that the other's users need not pay.
    path = Path(path)
    if _is_perf_data(path):
        from rxbook.profile import recording

        return recording.load(path, children, kallsyms)
    from rxbook.profile import saved, text

    # a broken byte must stay one byte: perf pads its columns by bytes
    words = path.read_text(encoding="utf-8", errors="surrogateescape")
    return (saved if words.startswith(saved.HEAD) else text).parse(words, path.name)


def _is_perf_data(path: Path) -> bool:
    if path.is_dir():
        raise RxbookError(f"{path.name} is a folder: give a perf.data file or what perf printed")
    try:
        with open(path, "rb") as file:
            return file.read(8) in (b"PERFILE2", b"2ELIFREP", b"PERFFILE", b"ELIFFREP")
    except OSError as error:
        raise RxbookError(f"cannot read {path.name}: {error.strerror}") from error
