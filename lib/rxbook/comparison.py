# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs beside each other: the table of differences with a warning of what else differed, and a verdict for scripts.

Why a single run has to last (SETTLED_S): one that lasts little longer than its drift takes a slow minute for a slow
kernel. False alarms at the 5 % level of one run against one, simulated for two cells, windows of 0.1 s, and drift of
12 % with a memory of 5 s: 35 % after 12 s, 24 % after 24 s, 13 % after 60 s, 4 % after 120 s. Of two, three or
five runs against as many, 10 s each and every run with a luck of its own of 5 %: 0 %, 5 %, 2 % (60 comparisons each).
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rxbook import RxbookError, differing, provenance, report, words
from rxbook.runs import Run
from rxbook.statistics import AA_NAMES, usable
from rxbook.tables import GRO, Table, gro_table

__all__ = ["CANNOT_TELL", "FAILED", "Verdict", "comparison", "percent", "source", "verdict"]

FAILED, CANNOT_TELL = 3, 4
"""Statuses of `rxbook compare --fail-below`."""

SETTLED_S = 100
"""From so many seconds between its first and last window on, one run alone can stand for a variant."""

CELL = [*words.SHAPE, "gro"]
LONGEST_LABEL = 15
"""With longer names of rows the table would be cut in two."""

LISTED = 6
"""So many cells that were not compared are named."""


@dataclass(frozen=True)
class Verdict:
    """What a script is told: status 0, FAILED or CANNOT_TELL, and why, in lines."""

    status: int
    lines: tuple[str, ...]


def comparison(runs: Sequence[Run], value: str = "mpps") -> Table:
    """Each later run against the first, by traffic shape and GRO setting, as `tables.gro_table` shows variants.

    Rows are named by variant, or A, B and so on where a name is long; runs of one variant are repeats and stand in one
    row. Where all have the same variant, each run is a row: A, B and so on. value: "mpps" or "ns_per_packet".

    The frame is that of `gro_table` and, for each row: runs (names), settled (may single runs stand for a variant, see
    SETTLED_S), off_compared and on_compared (was the cell measured in all).

    Raises RxbookError for fewer than two runs, for one named twice, for one without windows or with several variants,
    and where no cell was measured in all.
    """
    labels = _labels(runs)
    samples = pd.concat(
        [
            _one_variant(run).assign(variant=label, run=number)
            for number, (run, label) in enumerate(zip(runs, labels, strict=True))
        ],
        ignore_index=True,
    )
    order = list(dict.fromkeys(labels))
    shared = samples.groupby(CELL, dropna=False)["variant"].transform("nunique") == len(order)
    if not shared.any():
        raise RxbookError(
            "no cell was measured in all these runs: their traffic or their GRO settings differ"
        )
    lacking = {
        (label, gro) for run, label in zip(runs, labels, strict=True) for _, gro in report.not_applicable(run)
    }
    table = gro_table(samples[shared], value, source=source(runs), variants=order, not_applicable=lacking)
    settled = _settled(samples, value).reindex(order, fill_value=False)
    notes = (
        *_warnings(runs, labels, settled),
        *_left_out(samples, shared),
        *table.notes,
        *_reading(labels),
        *_who(runs, labels),
    )
    frame = _with_facts(table.frame, samples[shared], lacking, runs, labels, settled)
    title = table.title.replace("GRO,", "GRO, runs compared,")
    return replace(table, title=title, notes=notes, frame=frame)


def _labels(runs: Sequence[Run]) -> list[str]:
    """One for each run: its variant, or a letter where that is long or the same in all."""
    paths = [run.path.resolve() for run in runs]
    if len(runs) < 2:
        raise RxbookError(f"{len(runs)} run named: a comparison needs two or more")
    for run, path in zip(runs, paths, strict=True):
        if paths.count(path) > 1:
            raise RxbookError(f"{run.path.name} is named twice: it cannot be compared with itself")
    variants = [_variant(run) for run in runs]
    if len(set(variants)) == 1:
        variants = [run.path.resolve().as_posix() for run in runs]
    elif max(map(len, variants)) <= LONGEST_LABEL:
        return variants
    order = list(dict.fromkeys(variants))
    if len(order) > len(string.ascii_uppercase):
        raise RxbookError(f"{len(order)} runs or variants: name at most {len(string.ascii_uppercase)}")
    return [string.ascii_uppercase[order.index(variant)] for variant in variants]


def _variant(run: Run) -> str:
    if run.samples.empty:
        raise RxbookError(f"{run.path.name} has no windows: nothing was measured")
    names = {name for name in _one_variant(run)["variant"]}
    if len(names) > 1:
        raise RxbookError(f"{run.path.name} holds several variants: its own tables compare them")
    return names.pop().removesuffix(AA_NAMES[0])


def _one_variant(run: Run) -> pd.DataFrame:
    """The windows of a run; of an A/A run those under the first name, as a block may hold a cell once."""
    return run.samples[~run.samples["variant"].str.endswith(AA_NAMES[1])]


def source(runs: Sequence[Run]) -> str:
    """What tables of several runs say of where their figures come from."""
    days = sorted({min(run.samples["start_utc"])[:10] for run in runs if run.source == "measured"})
    measured = [f"measured {' to '.join(dict.fromkeys((days[0], days[-1])))}"] if days else []
    others = (run.source for run in runs if run.source != "measured")
    return " and ".join(dict.fromkeys([*measured, *others]))


def _settled(samples: pd.DataFrame, value: str) -> pd.Series:
    """By variant: has it several runs, or one that lasted long enough? Only windows that count are seen."""
    counting = usable(samples, value, bound=True)
    starts = pd.to_datetime(counting["start_utc"], format="ISO8601", utc=True)
    by_run = starts.groupby([counting["variant"], counting["run"]])
    seconds = (by_run.max() - by_run.min()).dt.total_seconds()
    by_variant = seconds.groupby(level="variant")
    # repeats count as such only where both sides have them, see statistics.compare
    return (by_variant.max() >= SETTLED_S) | (by_variant.size().min() > 1)


def _warnings(runs: Sequence[Run], labels: Sequence[str], settled: pd.Series) -> Iterator[str]:
    for what, found in (
        ("also different", differing.of_machines(runs, labels)),
        ("measured differently", differing.of_plans(runs, labels)),
    ):
        if found:
            yield f"WARNING: {what}: {', '.join(found)}."
    for run, label in zip(runs, labels, strict=True):
        said = ["recorded elsewhere or before"] if run.recorded else []
        said += [f"{run.status}, not finished"] if run.status != "finished" else []
        said += ["an A/A run, of which the first name's windows count"] if run.plan.aa else []
        if said:
            yield f"WARNING: {label}: {run.path.name} is {' and '.join(said)}."
    short = [label for label in dict.fromkeys(labels) if not settled[label]]
    if short:
        yield (
            f"WARNING: {' and '.join(short)} measured for less than {SETTLED_S} s: drift may pass for a difference, "
            "more often than 1 in 20. Measure more blocks, or name several runs of each variant."
        )


def _left_out(samples: pd.DataFrame, shared: pd.Series) -> Iterator[str]:
    """The cells that not all have, and who has them."""
    fields = words.varying(samples)
    settings: dict[tuple[str, str], list[str]] = {}
    for values, windows in samples[~shared].groupby(CELL, dropna=False):
        cell = dict(zip(CELL, values, strict=True))
        having = ", ".join(windows["variant"].unique())
        settings.setdefault((words.traffic(cell, fields) if fields else "", having), []).append(cell["gro"])
    said = []
    for (traffic, having), gro in settings.items():
        setting = "" if traffic and len(gro) == len(GRO) else f"GRO {' and '.join(gro)}"
        said.append(f"{', '.join(filter(None, (traffic, setting)))} (only {having})")
    if said:
        more = f"; and {len(said) - LISTED} more" if len(said) > LISTED else ""
        yield f"Not compared, as not all have it: {'; '.join(said[:LISTED])}{more}."


def _reading(labels: Sequence[str]) -> Iterator[str]:
    yield "diff: not paired, so wider than a comparison within one run."
    counts = {label: labels.count(label) for label in labels}
    if max(counts.values()) > 1:
        repeats = ", ".join(f"{count} of {label}" for label, count in counts.items())
        yield f"Runs of one variant are repeats: {repeats}."
    if min(counts.values()) > 1:
        yield "Each run counts by its mean, so that the luck of a boot or a day is in the intervals of diff."
    else:
        yield "The luck of a boot or a day is not in the intervals: only several runs of each variant show it."


def _who(runs: Sequence[Run], labels: Sequence[str]) -> Iterator[str]:
    """Which run is which, and on what."""
    machines = [provenance.machine_label(run.host) for run in runs]
    same = len(set(machines)) == 1
    for run, label, machine in zip(runs, labels, machines, strict=True):
        variant = _variant(run)
        about = ["" if variant == label else f"variant {variant}", "" if same else machine]
        yield f"{label}: {'; '.join(filter(None, (run.path.name, *about)))}."
    if same:
        yield f"Machine: {machines[0]}."


def _with_facts(
    frame: pd.DataFrame,
    samples: pd.DataFrame,
    lacking: set[tuple[str, str]],
    runs: Sequence[Run],
    labels: Sequence[str],
    settled: pd.Series,
) -> pd.DataFrame:
    names: dict[str, list[str]] = {}
    for run, label in zip(runs, labels, strict=True):
        names.setdefault(label, []).append(run.path.name)
    first = labels[0]
    facts: dict[str, Any] = {
        "runs": ["; ".join(names[variant]) for variant in frame["variant"]],
        "settled": [bool(settled[first] and settled[variant]) for variant in frame["variant"]],
    }
    measured = set(samples[CELL].itertuples(index=False, name=None))
    shapes = list(frame[list(words.SHAPE)].itertuples(index=False, name=None))
    for gro in GRO:
        facts[f"{gro}_compared"] = [
            (*shape, gro) in measured and variant != first and (variant, gro) not in lacking
            for shape, variant in zip(shapes, frame["variant"], strict=True)
        ]
    return frame.assign(**facts)


def percent(text: str) -> float:
    """`-3%`, `-3` and `-3 %` are -3.0; a bare 3 is refused, as it may be meant as a loss or as a gain."""
    bare = text.strip().removesuffix("%").strip().replace("\N{MINUS SIGN}", "-")
    try:
        limit = float(bare)
    except ValueError:
        limit = np.nan
    if not -100 < limit < np.inf:
        raise RxbookError(f"--fail-below {text}: say a percentage above -100, as in --fail-below -3%")
    if limit > 0 and not bare.startswith("+"):
        raise RxbookError(
            f"--fail-below {text}: say -{bare}% for a loss, +{bare}% for a gain that is demanded"
        )
    return limit


def verdict(table: Table, limit: float) -> Verdict:
    """Is a rate of a `comparison` below the first run's by more than a limit in percent (-3.0)?

    FAILED where the whole 95 % interval of some difference lies below the limit. Else CANNOT_TELL where the limit is
    inside an interval, a bound leaves it open, or runs are not settled (see SETTLED_S). 0 where all intervals lie at
    the limit or above. Cells that not all runs have are not judged.
    """
    failed, open_, fine = [], [], 0
    for row in table.frame.to_dict("records"):
        for gro in GRO:
            if not row[f"{gro}_compared"]:
                continue
            low, high = _possible(row, gro)
            said = f"{row['variant']}, {words.traffic(row)}, GRO {gro}: {_span(low, high)}"
            if not row["settled"]:
                open_.append(f"{said}; too short for a verdict")
            elif high < limit:
                failed.append(said)
            elif not low >= limit:
                open_.append(said)
            else:
                fine += 1
    lines = [f"below {limit:+g}%: {said}" for said in failed]
    lines += [f"cannot tell whether below {limit:+g}%: {said}" for said in open_]
    if open_:
        lines.append("to tell: measure more blocks, or name several runs of each variant")
    if not (failed or open_ or fine):
        lines.append("nothing could be compared")
    return Verdict(FAILED if failed else 0 if fine and not open_ else CANNOT_TELL, tuple(lines))


def _possible(row: dict[str, Any], gro: str) -> tuple[float, float]:
    """Limits of what a difference may be, in percent; a bound leaves one side open, or both."""
    low, high = (row[f"{gro}_vs_first_percent_{end}"] for end in ("low", "high"))
    bound = row[f"{gro}_vs_first_bound"]
    return (
        low if bound in ("exact", "at_least") else -np.inf,
        high if bound in ("exact", "at_most") else np.inf,
    )


def _span(low: float, high: float) -> str:
    ends = [
        "unknown" if np.isnan(end) else "open" if np.isinf(end) else f"{end:+.1f}%" for end in (low, high)
    ]
    return f"{ends[0]} to {ends[1]}" if ends[0] != ends[1] else ends[0]
