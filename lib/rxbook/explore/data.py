# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs as tidy DataFrames: one row per window, per cell, per function; each column described."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rxbook import RxbookError, comparison, function_cycles, instructions, report, runs, statistics, words
from rxbook.plan import Cell
from rxbook.profile import record
from rxbook.runs import Run
from rxbook.tables import Table, gro_table, windows_table

__all__ = [
    "DESCRIBED",
    "FILTERS",
    "VALUES",
    "as_show",
    "axes",
    "cells",
    "functions",
    "opened",
    "profiled",
    "select",
    "table",
    "values_in",
    "windows",
]

SAMPLE = "explore"
"""The recorded sample, of data/samples, that stands in where nothing was measured yet."""

FILTERS = ("frame_size", "udp_csum", "gro", "flows", "variant")
"""Columns that always have a filter; the others have one where they vary."""

VALUES = {
    "mpps": "Mpps that the receiver processed",
    "ns_per_packet": "ns per packet",
    "cycles_per_packet": "cycles per packet",
    "instructions_per_packet": "instructions per packet",
    "segs_per_skb": "frames per skb",
}
"""What is plotted, with its axis."""

DESCRIBED = {
    "run": "name of the run's folder",
    "variant": "kernel under comparison; its run's number behind it where several runs have one of this name",
    "receiver": "cpumap or stack (NAPI of the receiving device)",
    "gro": "generic-receive-offload of the receiver: off, on",
    "protocol": "udp, tcp",
    "ip_version": "of the packet that carries UDP or TCP",
    "encap": "none, 4in4, 4in6, 6in6",
    "frame_size": "bytes on the wire, the 4-byte FCS included",
    "udp_csum": "computed, zero",
    "flows": "distinct source ports",
    "burst": "consecutive frames of a flow",
    "rx_udp_gro_forwarding": "lets GRO merge UDP for which no socket listens: off, on",
    "rx_gro_list": "GRO chains skbs instead of merging their pages: off, on",
    "drop_tcp": "netfilter drops TCP at prerouting",
    "generator": "who sends: live_frames, pktgen, xdp_trafficgen",
    "block": "pass over all cells in which the window lies; comparisons are made within blocks",
    "order": "place of the window in its block",
    "start_utc": "when the window began",
    "payload_bytes": "behind the UDP or TCP header",
    "window_s": "length of the window, seconds",
    "frames": "that the receiver processed",
    "skbs": "that entered the stack, after GRO",
    "mpps": "million frames per second that the receiver processed",
    "segs_per_skb": "frames per skb; 1.0: GRO merged nothing",
    "ns_per_packet": "CPU time of the receiver per frame",
    "cycles_per_packet": "cycles of the receiver per frame, where they can be counted",
    "instructions_per_packet": "counted in guests, exact",
    "offered_frames": "that the sender sent",
    "offered_mpps": "million frames per second that the sender sent",
    "sender_mpps": "that the generator itself printed; empty where it prints none",
    "dropped_frames": "that reached the receiver's queue when it was full",
    "receiver_busy": "share of the window in which the receiver ran, 0 to 1",
    "receiver_idle": "share of the window in which its CPU had nothing to do, 0 to 1",
    "cpu_pressure": "share of the window in which some task waited for a CPU, 0 to 1",
    "steal": "share of the window that the hypervisor took, 0 to 1",
    "flags": "why the window is left out of the figures (sender_limited, pressure, short); empty where it counts",
    "boot": "of a guest; empty where the running kernel was measured",
    "windows": "of the cell",
    "counted": "windows that count in the figure of mpps",
    "mpps_is_bound": "the sender was the limit: the receiver can do at least this",
    "repeat": "number of the recording of this cell",
    "symbol": "name of the function",
    "dso": "where the function is: [kernel.kallsyms], a module, a program",
    "samples": "of the receiving thread in this function",
    "share": "of the receiving thread's samples, 0 to 1",
} | {
    f"{value}_{end}": f"{end}er limit of the 95 % interval" for value in VALUES for end in ("low", "high")
}  # fmt: skip
"""What each column of the DataFrames holds."""


def opened(names: Sequence[str], folder: Path = runs.RUNS) -> list[Run]:
    """The runs of these names, as `runs.find` takes them; the newest where none is named, else the recorded sample.

    Raises RxbookError where a name is no run or named twice, where one has no windows, and where some count
    instructions and others time.
    """
    if names:
        found = [runs.load(runs.find(name, folder)) for name in names]
    else:
        newest = [runs.load(folder / name) for name, _ in runs.list_runs(folder)[-1:]]
        found = [run for run in newest if len(run.samples)] or [runs.recorded(SAMPLE)]
    for run in found:
        if run.samples.empty:
            raise RxbookError(f"{run.path.name} has no windows: nothing was measured")
        if sum(run.path.resolve() == other.path.resolve() for other in found) > 1:
            raise RxbookError(f"{run.path.name} is named twice")
    exact = [run.path.name for run in found if run.exact]
    if exact and len(found) > 1:
        raise RxbookError(
            f"{exact[0]} counts instructions: open it alone, its figures compare with no other run"
        )
    return found


def windows(found: Sequence[Run]) -> pd.DataFrame:
    """One row per window of all runs: `runs.COLUMNS` and `run`. Variants of one name are numbered by their run."""
    parts = [
        run.samples.assign(run=run.path.name, variant=run.samples["variant"].replace(renamed))
        for run, renamed in zip(found, renamings(found), strict=True)
    ]
    return pd.concat(parts, ignore_index=True)[["run", *runs.COLUMNS]]


def renamings(found: Sequence[Run]) -> list[dict[str, str]]:
    """Of each run the names of its variants, by those that it gave them; none where no other run has them."""
    named = [set(run.samples["variant"]) for run in found]
    several = {name for names in named for name in names if sum(name in other for other in named) > 1}
    return [
        {name: f"{name} [{number}]" for name in sorted(names & several)}
        for number, names in enumerate(named, 1)
    ]


def axes(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """The columns that filters are made of, each with its values, smallest first."""
    varying = [name for name in ("run", *Cell.model_fields) if frame[name].nunique(dropna=False) > 1]
    names = dict.fromkeys([*FILTERS, *varying])
    return {
        name: words.variant_order(frame) if name == "variant" else sorted(frame[name].unique())
        for name in names
    }


def as_show(value: str | Mapping[str, Any]) -> dict[str, list[Any]]:
    """`frame_size=64 1518; gro=on` from a command line names a mapping. Raises RxbookError where it does not."""
    if not isinstance(value, str):
        return {
            name: list(kept) if isinstance(kept, (list, tuple)) else [kept] for name, kept in value.items()
        }
    named = [part.partition("=") for part in value.split(";") if part.strip()]
    if not all(name.strip() and kept.split() for name, _, kept in named):
        raise RxbookError(f"show={value}: say COLUMN=VALUE VALUE; COLUMN=...")
    return {name.strip(): kept.split() for name, _, kept in named}


def select(frame: pd.DataFrame, show: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """The rows with these values, by column; a column that is not named has all.

    Raises RxbookError for a name that is no column of a cell, and for a value that no row has.
    """
    kept = np.ones(len(frame), bool)
    for name, values in show.items():
        known = ("run", *Cell.model_fields)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"say {', '.join(FILTERS)}"
            raise RxbookError(f"show={name}: no such column; {hint}")
        texts = frame[name].astype(str)
        for value in map(_text, values):
            if value not in set(texts):
                there = ", ".join(dict.fromkeys(texts))
                raise RxbookError(f"show={name}={value}: not measured; there is {there}")
        kept &= texts.isin([_text(value) for value in values]).to_numpy()
    return frame[kept]


def _text(value: Any) -> str:
    """YAML 1.1 reads a bare `off` as the boolean False."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def values_in(frame: pd.DataFrame) -> list[str]:
    """Those of VALUES that the windows have."""
    return [name for name in VALUES if frame[name].notna().any()]


def cells(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per cell and run: windows, and each value with its 95 % interval, flagged windows left out."""
    rows = []
    for key, of_cell in frame.groupby(["run", *Cell.model_fields], dropna=False, sort=False):
        row = dict(zip(["run", *Cell.model_fields], key, strict=True))
        row |= {"windows": len(of_cell), "counted": len(statistics.counted(of_cell))}
        for value in values_in(frame):
            found = instructions.interval_of(of_cell, value)
            row |= {value: found.centre, f"{value}_low": found.low, f"{value}_high": found.high}
            row |= {"mpps_is_bound": found.bound} if value == "mpps" else {}
        rows.append(row)
    return pd.DataFrame(rows)


def functions(found: Sequence[Run], frame: pd.DataFrame) -> pd.DataFrame:
    """One row per function and recording of the cells in `frame`, of the receiving thread alone; empty without any."""
    parts = []
    for cell, (run, _, recordings) in profiled(found, frame).items():
        for repeat, recording in enumerate(recordings, 1):
            (profile,), _ = function_cycles.thread_profiles([recording])
            rows = profile.functions[["symbol", "dso", "samples", "share"]]
            about = {"run": run.path.name} | cell.model_dump() | {"repeat": repeat}
            parts.append(rows.assign(**about)[[*about, *rows.columns]])
    columns = ["run", *Cell.model_fields, "repeat", "symbol", "dso", "samples", "share"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def profiled(found: Sequence[Run], frame: pd.DataFrame) -> dict[Cell, function_cycles.Condition]:
    """The recordings of the cells in `frame`, by these, with the run and the run's own name of the cell."""
    shown = set(frame[["run", *Cell.model_fields]].itertuples(index=False, name=None))
    there = {}
    for run, renamed in zip(found, renamings(found), strict=True):
        for own, recordings in record.recorded(run.path / "profiles").items():
            cell = own.model_copy(update={"variant": renamed.get(own.variant, own.variant)})
            if (run.path.name, *cell.model_dump().values()) in shown:
                there[cell] = (run, own, recordings)
    return there


def table(found: Sequence[Run], frame: pd.DataFrame, name: str) -> Table | None:
    """A table of the windows in `frame`: gro, cost or windows; None where these make no such table.

    Of one run it is as its report prints it; of several, each later variant is compared with the first.
    """
    if len(found) == 1:
        return report.table_of(_narrowed(found[0], frame), name)
    source = comparison.source(found)
    if name == "windows":
        return windows_table(frame, source=source)
    lacking = {
        (renamed.get(variant, variant), gro)
        for run, renamed in zip(found, renamings(found), strict=True)
        for variant, gro in report.not_applicable(run)
    }
    samples = pd.concat(_boots_as_rows(found, frame), ignore_index=True)
    value = {"gro": "mpps", "cost": "ns_per_packet"}[name]
    return gro_table(samples, value, source=source, not_applicable=lacking)


def _boots_as_rows(found: Sequence[Run], frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Of each run its windows; of guests one row per boot, whose windows share its luck."""
    for run in found:
        rows = frame[frame["run"] == run.path.name]
        yield statistics.per_boot(rows) if run.host.get("guests") else rows


def _narrowed(run: Run, frame: pd.DataFrame) -> Run:
    """The run with these windows alone, and no kernel of which it has none."""
    kept = set(frame["variant"])
    labels = [name for name in run.plan.variants if name.rpartition("=")[0] in kept or name in kept]
    return replace(run, samples=frame, plan=run.plan.model_copy(update={"variants": labels}))
