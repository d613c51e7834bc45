# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All runs of a folder at once: their windows in one DataFrame, and from these the figure of each cell and run.

The run folders are what is read, every time, by Arrow: nothing is kept beside them that could be stale. A thousand runs
of two hundred windows take about a second (`benchmarks/run.py history`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
from pyarrow import csv

from rxbook import provenance, runs
from rxbook.plan import Cell
from rxbook.statistics import AA_NAMES, LIMITED, has_flag, mean_intervals, per_boot, usable

__all__ = ["COUNTS", "History", "figures", "load"]

COLUMNS = [
    "block", "start_utc", *Cell.model_fields, "mpps", "ns_per_packet", "instructions_per_packet", "frames", "skbs",
    "offered_frames", "dropped_frames", "flags", "boot",
]  # fmt: skip
"""Columns of samples.csv that are read."""

COUNTS = "instructions_per_packet"
"""The value of runs that count instructions in guests, and have no rate."""

ARROW = {int: arrow.int64(), bool: arrow.bool_(), str: arrow.string()}
# as in runs.read_samples, texts stay texts, and a column that an older run lacks is empty
CONVERT = csv.ConvertOptions(
    column_types={name: ARROW.get(runs.TYPES.get(name), arrow.float64()) for name in COLUMNS},
    include_columns=COLUMNS,
    include_missing_columns=True,
    strings_can_be_null=False,
    null_values=[""],
    true_values=["True"],
    false_values=["False"],
)


@dataclass(frozen=True)
class History:
    """The runs of a folder.

    about: one row per run, by when it began, oldest first: run (its name), started_utc, status, recorded (is it of
    data/samples), hardware, host (the record), aa. samples: one row per window, COLUMNS and `run`. unread: why a
    run is left out, one line each.
    """

    about: pd.DataFrame
    samples: pd.DataFrame
    unread: tuple[str, ...]


def load(folder: Path, since: str = "") -> History:
    """Read all runs of a folder that began on or after a day, "2026-12-01"; default: all.

    A run that cannot be read does not hide the others, see `History.unread`.
    """
    about, unread = [], []
    recorded = folder.resolve() == runs.SAMPLES.resolve()
    for name, status in runs.list_runs(folder):
        try:
            record = _record(folder / name)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            unread.append(f"{name} cannot be read: plan.json or host.json is damaged ({error})")
            continue
        if record["started_utc"] >= since:
            about.append({"run": name, "status": status, "recorded": recorded} | record)
    frame = pd.DataFrame(
        about, columns=["run", "started_utc", "status", "recorded", "hardware", "host", "aa"]
    )
    read = [part for part in _windows(folder, frame["run"], unread) if len(part)]
    empty = pd.DataFrame(columns=[*COLUMNS, "run"])
    samples = pd.concat(read, ignore_index=True) if read else empty
    return History(frame, samples, tuple(unread))


def _record(path: Path) -> dict[str, Any]:
    plan = json.loads((path / "plan.json").read_text())
    host = json.loads((path / "host.json").read_text())
    return {
        "started_utc": str(plan["started_utc"]),
        "hardware": provenance.hardware(host),
        "host": host,
        "aa": bool(plan["parameters"].get("aa")),
    }


def _windows(folder: Path, names: Sequence[str], unread: list[str]) -> Iterator[pd.DataFrame]:
    """The windows of runs; adds to `unread`. Runs whose files have the same columns are one text to Arrow.

    A thousand runs took 0.6 s of CPU; file by file, as an Arrow dataset, 1.1 s, and in DuckDB 2.2 s, or 26 s with
    union_by_name, which runs of several versions need.
    """
    alike: dict[bytes, dict[str, bytes]] = {}
    for name in names:
        try:
            text = (folder / name / "samples.csv").read_bytes()
        except FileNotFoundError:
            continue  # begun, and nothing measured yet
        header, _, lines = text[: text.rfind(b"\n") + 1].partition(
            b"\n"
        )  # a line that a crash cut short is left out
        alike.setdefault(header, {})[name] = lines
    for header, texts in alike.items():
        try:
            yield _parsed(header, texts)
        except (arrow.ArrowException, ValueError):  # of some run: all others are read
            for name, lines in texts.items():
                try:
                    yield _parsed(header, {name: lines})
                except (arrow.ArrowException, ValueError) as error:
                    why = str(error).partition("\n")[0]
                    unread.append(f"{name} cannot be read: samples.csv is damaged ({why})")


def _parsed(header: bytes, texts: dict[str, bytes]) -> pd.DataFrame:
    text = arrow.BufferReader(b"\n".join([header, b"".join(texts.values())]))
    found = csv.read_csv(text, convert_options=CONVERT)
    lines = [text.count(b"\n") for text in texts.values()]
    if sum(lines) != len(found):
        raise ValueError(f"{sum(lines)} lines are {len(found)} rows")
    return runs.filled(found.to_pandas().assign(run=np.repeat(list(texts), lines)))


def figures(history: History, value: str = "mpps") -> pd.DataFrame:
    """One row for each run and cell, by time: what `statistics.cell_interval` says of the cell's windows.

    value: "mpps" or "ns_per_packet"; a run that counts instructions has COUNTS. Columns: hardware, of ("" for this
    kernel, "guests" where each boot is one value, "instructions"), label (a variant that the user named; "" where it
    is just a release), the fields of a cell but variant, run, started_utc, status, kernel (release), variant, value,
    centre, low, high (95 % interval; of instructions the range of the boots), n (windows or boots that count),
    windows (all), bound (the sender was the limit), segs_per_skb.

    Of an A/A run the cells under the first name count.
    """
    samples = history.samples[~history.samples["variant"].astype(str).str.endswith(AA_NAMES[1])]
    by_run = history.about.set_index("run")
    in_guests = {name for name, host in by_run["host"].items() if host.get("guests")}
    counting = samples[COUNTS].notna().groupby(samples["run"]).any()
    exact = set(counting.index[counting]) & in_guests
    parts = [
        _figures(samples[~samples["run"].isin(in_guests)], value).assign(of=""),
        _exact(samples[samples["run"].isin(exact)]).assign(of="instructions"),
    ]
    for name in in_guests - exact:
        rows = samples[samples["run"] == name]
        parts.append(_figures(per_boot(rows).assign(run=name), value).assign(of="guests"))
    made = [part for part in parts if len(part)]
    if not made:
        return pd.concat(parts).assign(hardware="", label="", kernel="", started_utc="", status="")
    found = pd.concat(made, ignore_index=True).join(by_run[["hardware", "started_utc", "status"]], on="run")
    found["variant"] = found["variant"].str.removesuffix(AA_NAMES[0])
    hosts = dict(by_run["host"])
    found["kernel"] = [
        _release(hosts[run], variant) for run, variant in zip(found["run"], found["variant"], strict=True)
    ]
    found["label"] = [
        "" if kernel.startswith(variant) else variant
        for kernel, variant in zip(found["kernel"], found["variant"], strict=True)
    ]
    return found.sort_values(["started_utc", "run"], kind="stable", ignore_index=True)


def _release(host: dict[str, Any], variant: str) -> str:
    guest = ((host.get("guests") or {}).get("kernels") or {}).get(variant) or {}
    return str(guest.get("kernel_release") or host.get("kernel_release") or "?")


KEY = ["run", *Cell.model_fields]


def _figures(samples: pd.DataFrame, value: str) -> pd.DataFrame:
    """As `statistics.cell_interval` of each cell, but cells with as many windows are computed at once."""
    samples = samples.reset_index(drop=True)
    cell = samples.groupby(KEY, sort=False).ngroup().to_numpy()
    good = usable(samples, bound=True).index
    bound = np.zeros(cell.max(initial=-1) + 1, bool)
    if value == "mpps":
        limited = has_flag(samples, "sender_limited")[good].groupby(cell[good]).mean()
        bound[limited.index[limited > LIMITED]] = True
    kept = good[bound[cell[good]] | good.isin(usable(samples, value).index)]
    kept = kept[samples[value][kept].notna()]
    kept = kept[np.argsort(cell[kept], kind="stable")]  # cell by cell, each in time order

    n = np.bincount(cell[kept], minlength=len(bound))
    limits = np.full((len(bound), 3), np.nan)
    values, first = samples[value][kept].to_numpy(float), np.cumsum(n) - n
    for size in np.unique(n[n > 0]):
        alike = np.flatnonzero(n == size)
        rows = values[first[alike, None] + np.arange(size)]
        limits[alike] = np.stack(mean_intervals(rows), axis=-1)

    sums = {name: np.bincount(cell[kept], samples[name][kept], len(bound)) for name in ("frames", "skbs")}
    with np.errstate(invalid="ignore", divide="ignore"):
        segs = sums["frames"] / sums["skbs"]
    cells = samples.loc[np.unique(cell, return_index=True)[1], KEY].reset_index(drop=True)
    return cells.assign(
        value=value,
        centre=limits[:, 0],
        low=limits[:, 1],
        high=limits[:, 2],
        n=n,
        windows=np.bincount(cell, minlength=len(bound)),
        bound=bound,
        segs_per_skb=np.where(sums["skbs"] > 0, segs, np.nan),
    )


def _exact(samples: pd.DataFrame) -> pd.DataFrame:
    """As `instructions.counts`, of many cells: a row with drops is void."""
    valid = samples[~has_flag(samples, "drops")]
    by_cell = valid.groupby(KEY, sort=False)[COUNTS]
    counts = by_cell.agg(centre="mean", low="min", high="max", n="count")
    # the half-width is half of the range, as the tables have it, around the mean
    half = (counts["high"] - counts["low"]) / 2
    counts = counts.assign(low=counts["centre"] - half, high=counts["centre"] + half, bound=False)
    cells = samples.groupby(KEY, sort=False)
    sums = cells[["frames", "skbs"]].sum()
    counts = counts.assign(windows=cells.size(), segs_per_skb=sums["frames"] / sums["skbs"])
    return counts.reset_index().assign(value=COUNTS)
