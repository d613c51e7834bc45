# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The run folder: written window by window, loaded as tidy DataFrames, never overwritten once finished."""

from __future__ import annotations

import csv
import datetime
import difflib
import fcntl
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rxbook import RxbookError, provenance
from rxbook.plan import Cell, Plan, make_plan

__all__ = [
    "COLUMNS",
    "RUNS",
    "SAMPLES",
    "Folder",
    "Run",
    "blocks_left",
    "boots_left",
    "filled",
    "find",
    "list_runs",
    "load",
    "new_name",
    "recorded",
    "scrub",
]

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs"
SAMPLES = ROOT / "data" / "samples"

COLUMNS = [
    "block", "order", "start_utc", *Cell.model_fields, "payload_bytes", "window_s", "frames", "skbs", "mpps",
    "segs_per_skb", "ns_per_packet", "cycles_per_packet", "offered_frames", "offered_mpps",
    "sender_mpps", "dropped_frames", "receiver_busy", "receiver_idle", "cpu_pressure", "steal", "flags", "boot",
    "instructions_per_packet",
]  # fmt: skip
"""Columns of samples.csv; times in seconds unless the name says ns, shares 0 to 1."""

TYPES = {
    name: field.annotation if field.annotation in (int, bool) else str
    for name, field in Cell.model_fields.items()
} | {"block": int, "order": int, "start_utc": str, "flags": str}
"""Types of those columns that are not read as numbers, or that every row has."""

SHARED = {"status", "notebook", "parameters", "seed", "fingerprint", "started_utc", "finished_utc", "versions",
          "wall_s", "windows_s", "windows", "variants", "headline"}  # fmt: skip
"""Keys of plan.json and run.json that say nothing of whose machine it was."""


@dataclass(frozen=True)
class Run:
    """A loaded run. `samples` has one row per window and the columns COLUMNS."""

    path: Path
    status: str
    notebook: str
    plan: Plan
    seed: int
    host: dict[str, Any]
    samples: pd.DataFrame
    recorded: bool = False

    @property
    def exact(self) -> bool:
        """Whether its figures are instructions per packet, counted in guests: then no row has a rate."""
        return bool(self.samples["instructions_per_packet"].notna().any())

    @property
    def source(self) -> str:
        """What the tables say of where their figures come from."""
        if self.recorded:
            return f"RECORDED {self.host['date_utc'][:10]} on {provenance.machine_label(self.host)}"
        return "measured" if self.status == "finished" else f"measured, {self.status}"


def new_name(notebook: str) -> str:
    """A run's name: when it began, UTC, and what it ran."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H%M%SZ-") + notebook


def find(run: str, folder: Path = RUNS) -> Path:
    """The run folder that is named by its path, or in `folder` by its name, any unique part of it, or `last`.

    `last` is the run that began last, finished or not. Raises RxbookError where none is named so, or several are.
    """
    for path in (Path(run), folder / Path(run).name):
        if (path / "plan.json").exists():
            return path
    names = [name for name, _ in list_runs(folder)]
    matches = names[-1:] if run == "last" else [name for name in names if run.strip() and run in name]
    if len(matches) > 1:
        raise RxbookError(f"{run} names {len(matches)} runs, say more of one: {_newest(matches)}")
    if not matches:
        near = difflib.get_close_matches(run, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"last runs there: {_newest(names)}"
        raise RxbookError(f"{run!r} is no run folder, and no run in {folder} has a name like it; {hint}")
    return folder / matches[0]


def _newest(names: list[str]) -> str:
    more = f", and {len(names) - 4} older" if len(names) > 4 else ""
    return ", ".join(names[:-5:-1]) + more if names else "none"


def is_run(path: Path) -> bool:
    """Whether this is a run's folder."""
    return (path / "plan.json").exists()


def status(path: Path) -> str:
    """finished, running, or interrupted."""
    if (path / "run.json").exists():
        return "finished"
    try:
        with open(path / "samples.csv", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return "interrupted"
    except OSError:
        return "running"
    return "interrupted"


def load(path: str | Path) -> Run:
    """Read a run folder, finished or not; those in data/samples are recorded. Raises RxbookError where it is none."""
    path = Path(path)
    try:
        record = json.loads((path / "plan.json").read_text())
        host = json.loads((path / "host.json").read_text())
        samples = read_samples(path / "samples.csv")
    except FileNotFoundError as missing:
        known = ", ".join(name for name, _ in list_runs(path.parent)[-3:]) or "none"
        raise RxbookError(
            f"{path} is no run folder: it has no {Path(missing.filename).name}. Last runs there: {known}"
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        why = str(error).partition("\n")[0]
        raise RxbookError(f"{path}: plan.json, host.json or samples.csv is damaged ({why})") from None
    plan, is_sample = make_plan(record["parameters"]), path.resolve().parent == SAMPLES.resolve()
    return Run(
        path,
        status(path),
        record.get("notebook", "gro_on_off"),
        plan,
        record["seed"],
        host,
        samples,
        is_sample,
    )


def read_samples(path: Path) -> pd.DataFrame:
    """samples.csv as a DataFrame, empty where there is none yet; a line that a crash cut short is left out.

    Texts stay texts: a variant "6.10" or "NA" is neither a number nor missing. flags is "" where there are none.
    """
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1] or ",".join(COLUMNS)
    missing = {name: [""] for name in COLUMNS if TYPES.get(name) is not str}
    found = pd.read_csv(io.StringIO(whole), dtype=TYPES, keep_default_na=False, na_values=missing)
    return filled(found).reindex(columns=COLUMNS)  # a column that an older run lacks is empty


def filled(samples: pd.DataFrame) -> pd.DataFrame:
    """With the columns of a cell that an older run lacks: what was always so then."""
    told = (
        samples["generator"].astype(object)
        if "generator" in samples
        else pd.Series(index=samples.index, dtype=object)
    )
    return samples.assign(generator=told.fillna("live_frames"))


def blocks_left(path: Path, plan: Plan, per_block: int) -> range:
    """The blocks of a run that are still to be measured.

    A block that an interruption cut is not gone on with, as a comparison within it would span the pause: its
    windows are kept, and one more block is measured in its place.
    """
    return _left(read_samples(path / "samples.csv").groupby("block").size(), plan.blocks, per_block)


def boots_left(path: Path, boots: int, cells: int) -> range:
    """The same for the boots of guests, where a boot has a row of each cell at least."""
    rows = read_samples(path / "samples.csv").drop_duplicates(["boot", *Cell.model_fields])
    return _left(rows.groupby("boot").size(), boots, cells)


def _left(sizes: pd.Series, wanted: int, whole: int) -> range:
    first = int(sizes.index.max()) + 1 if len(sizes) else 0
    return range(first, first + wanted - int((sizes == whole).sum()))


def recorded(notebook: str) -> Run:
    """The recorded sample of a notebook, from data/samples."""
    return load(SAMPLES / notebook)


def list_runs(folder: Path = RUNS) -> list[tuple[str, str]]:
    """(name, status) of each run in a folder, by when it began, oldest first."""
    found = sorted((_started(path), path.parent.name) for path in folder.glob("*/plan.json"))
    return [(name, status(folder / name)) for _, name in found]


def _started(record: Path) -> str:
    """When a run began, UTC, from its plan.json; "" where that is damaged."""
    try:
        return str(json.loads(record.read_text())["started_utc"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def scrub(path: Path, target: Path) -> None:
    """Copy a finished run without what names a machine or a user, fit to be shared or kept in data/samples.

    Raises RxbookError for an unfinished run, and where the target exists.
    """
    run = load(path)
    if run.status != "finished":
        raise RxbookError(f"{path} is {run.status}: only a finished run is worth sharing")
    if target.exists():
        raise RxbookError(f"{target} exists already: name a new folder")
    make_folder(target)
    for name in ("plan.json", "run.json"):
        record = json.loads((path / name).read_text())
        if record["parameters"].get("hosts"):
            record["parameters"]["hosts"] = "hosts.yaml"  # which is not shared
        write_json(target / name, {key: value for key, value in record.items() if key in SHARED})
    write_json(target / "host.json", provenance.scrub(json.loads((path / "host.json").read_text())))
    for name in ("samples.csv", "heads.csv"):
        if (path / name).exists():
            (target / name).write_text((path / name).read_text())
    if (path / "profiles").exists():
        from rxbook.profile import record  # which the many that load a run need not import

        record.scrub(path / "profiles", target / "profiles")


class Folder:
    """A run folder that is being written. Its samples file is locked meanwhile, so `status` says running."""

    def __init__(self, path: Path, plan: Plan, seed: int):
        self.path, self.plan, self.seed = path, plan, seed
        self._samples = open(path / "samples.csv", "a", newline="")  # noqa: SIM115 - until close
        try:
            fcntl.flock(self._samples, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._samples.close()
            raise RxbookError(f"{path} is being written by another process") from None
        self._cut_torn_line()
        self._writer = csv.DictWriter(self._samples, COLUMNS, lineterminator="\n")
        if self._samples.tell() == 0:
            self._writer.writeheader()
            self._samples.flush()

    def _cut_torn_line(self) -> None:
        self._samples.truncate((self.path / "samples.csv").read_bytes().rfind(b"\n") + 1)
        self._samples.seek(0, os.SEEK_END)

    @classmethod
    def create(cls, path: Path, plan: Plan, seed: int, notebook: str) -> Folder:
        """Start a new run of a notebook. A folder is one from the moment that plan.json is in it.

        Raises RxbookError where the folder cannot be made.
        """
        make_folder(path)
        if is_run(path):
            raise RxbookError(f"{path} holds a run already: choose another run_name")
        write_json(path / "host.json", provenance.host())
        record = {
            "notebook": notebook,
            "parameters": plan.model_dump(),
            "seed": seed,
            "fingerprint": plan.fingerprint(),
            "argv": sys.argv,
            "started_utc": _now(),
        }
        write_json(path / "plan.json", record)
        return cls(path, plan, seed)

    @classmethod
    def resume(cls, path: Path, plan: Plan) -> Folder:
        """Go on with an interrupted run. Raises RxbookError where plan or machine are not the same."""
        record = json.loads((path / "plan.json").read_text())
        if record["fingerprint"] != plan.fingerprint():
            before, now = make_plan(record["parameters"]).model_dump(), plan.model_dump()
            changed = [
                f"{name}={now[name]!r} (was {before[name]!r})" for name in now if now[name] != before[name]
            ]
            raise RxbookError(f"{path.name} was begun with other parameters: {', '.join(changed)}")
        if not plan.hosts:  # else the hosts themselves say so, see measured_on
            _same_machine(path, provenance.host())
        return cls(path, plan, record["seed"])

    def measured_on(self, facts: dict[str, Any]) -> None:
        """Say that other machines than this one are measured: host.json is of them.

        Raises RxbookError where the run was begun on others.
        """
        if "receiver" in json.loads((self.path / "host.json").read_text()):
            _same_machine(self.path, facts)
        self.add_to_host(facts)

    def append(self, row: dict[str, Any]) -> None:
        """Write one window; a kill after this loses nothing of it."""
        self._writer.writerow(row)
        self._samples.flush()

    def log(self, line: str) -> None:
        """Add a line to log.txt, with the time."""
        with open(self.path / "log.txt", "a") as file:
            file.write(f"{_now()} {line}\n")

    def add_to_host(self, facts: dict[str, Any]) -> None:
        """Add what is only known after the run to host.json."""
        host = json.loads((self.path / "host.json").read_text())
        write_json(self.path / "host.json", host | facts)

    def finish(self, facts: dict[str, Any]) -> None:
        """Write run.json, by which the run is finished, and close."""
        record = json.loads((self.path / "plan.json").read_text())
        versions = json.loads((self.path / "host.json").read_text())["versions"]
        write_json(
            self.path / "run.json",
            {"status": "finished", **record, "finished_utc": _now(), "versions": versions, **facts},
        )
        self.close()

    def discard_if_empty(self) -> None:
        """Take a run back that measured nothing: a folder without a window is no run."""
        if read_samples(self.path / "samples.csv").empty:
            for name in ("plan.json", "host.json", "samples.csv", "log.txt"):
                (self.path / name).unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def close(self) -> None:
        """Let go of the folder; without `finish` the run stays interrupted."""
        self._samples.close()


def _same_machine(path: Path, now: dict[str, Any]) -> None:
    before = json.loads((path / "host.json").read_text())
    for fact in ("kernel_release", "kernel_version", "cpu_model", "cpu_count"):
        if before[fact] != now[fact]:
            raise RxbookError(
                f"{path.name} was begun on another machine: {fact} was {before[fact]}, is {now[fact]}"
            )


def make_folder(path: Path) -> None:
    """Make a folder and those above it. Raises RxbookError, with the reason, where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RxbookError(f"{path}: {error.strerror}; choose another place") from None


def write_json(path: Path, record: Any) -> None:
    """Write by rename, so that a reader never sees half a file."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.rename(path)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
