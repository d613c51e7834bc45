# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Profiles of perf: what every reader, binary or text, gives."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rxbook import RxbookError

COLUMNS = [
    "event", "comm", "cpu", "dso", "symbol", "kind", "samples", "period",
    "children_samples", "children_period", "share", "children_share",
]  # fmt: skip
INLINED_COLUMNS = ["within", "through", "own_samples", "own_period"]
"""What load() adds with debug, see Profile."""


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

    functions: COLUMNS, one row per (event, comm, cpu, dso, symbol); comm is <NA> and cpu -1 where the source does not
    tell them. kind: "k" kernel, "u" user, "b" BPF, "g" guest, "h" hypervisor, "i" inlined. samples and period are
    Int64, <NA> where a text has only percentages; share and children_share are 0..1 of the event's period.

    Any row counts the samples at all addresses of its function, those of functions inlined into it too. So what a row
    of kind "i" counts, the row of the function that has the symbol counts as well, and sums leave it out. With
    INLINED_COLUMNS, an inlined function has one row for each way that it was inlined; its figures are their sums.
    within: the symbol of the function that has one; through: the inlined functions between, outermost first, one a
    line, <NA> where there is none. A function inlined into itself counts a sample once, in its outermost row.
    own_samples, own_period: those in no function inlined deeper; these sum to the whole over all rows.

    warnings say where and why something is partial; source is the file's name, without its folder, and its kind.
    """

    functions: pd.DataFrame
    events: dict[str, EventTotals]
    lost: int
    warnings: tuple[str, ...]
    source: str


def load(
    path: str | os.PathLike[str],
    children: bool = False,
    kallsyms: str | os.PathLike[str] | None = None,
    debug: Sequence[str | os.PathLike[str]] = (),
) -> Profile:
    """The profile in a file: perf.data (also as a folder), what a scrubbed run keeps of one, or the text of perf
    report, top, script, diff or stat.

    children: also sum the call chains of perf.data, which takes longer. kallsyms: a copy of /proc/kallsyms from the
    recorded machine; without it, the file `kallsyms` beside a perf.data is taken, else what perf kept. debug: files
    with DWARF, such as a vmlinux, matched by build id, whose inlined functions get rows of their own: see inlines.py.
    RxbookError where the file cannot be read or is none of these, or a debug file does not fit.
    """
    # Each reader costs start-up time that the other's users need not pay.
    path = Path(path)
    if _is_perf_data(path):
        from rxbook.profile import recording

        return recording.load(path, children, kallsyms, debug)
    if debug:
        raise RxbookError(
            f"{path.name} is no perf.data: only there does a debug file tell the inlined functions"
        )
    from rxbook.profile import saved, text

    words = text_of(path)
    return (saved if words.startswith(saved.HEAD) else text).parse(words, path.name)


def text_of(path: Path) -> str:
    """What a text file holds; nothing for a recording. RxbookError where it cannot be read."""
    # a broken byte must stay one byte: perf pads its columns by bytes
    return "" if _is_perf_data(path) else path.read_text(encoding="utf-8", errors="surrogateescape")


def first_file(path: Path) -> Path:
    """Where a recording begins: in the folder that perf record --threads or --kcore makes, else in the file itself.

    The name in the folder is perf's (tools/perf/util/data.c); perf 5.1 to 5.3 had another. RxbookError where there
    is none.
    """
    if not path.is_dir():
        return path
    found = next((path / name for name in ("data", "header") if (path / name).is_file()), None)
    if found is None:
        raise RxbookError(
            f"{path.name} is a folder without a recording: give a perf.data or what perf printed"
        )
    return found


def _is_perf_data(path: Path) -> bool:
    first = first_file(path)
    try:
        with open(first, "rb") as file:
            return first != path or file.read(8) in (b"PERFILE2", b"2ELIFREP", b"PERFFILE", b"ELIFFREP")
    except OSError as error:
        raise RxbookError(f"cannot read {path.name}: {error.strerror}") from error
