# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A batch file: notebooks with grids of parameters. From it the items, each of them one run folder.

What is done is told by the run folders alone. Each item has a key, a fingerprint of what it would measure: notebook,
parameters, this library, the kernels' builds. The folder's name ends in it, so a change of any of them is another item.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rxbook import RxbookError, execute, notebooks, runs, yaml_file
from rxbook.kernel import facts
from rxbook.plan import INPUTS, Plan

__all__ = [
    "Batch", "Entry", "Item", "device", "items", "kernel_build", "left", "library", "note_end", "read", "state",
]  # fmt: skip

LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,29}$"
RESULT = "batch.json"
"""In a run folder: how the item ended, written last. A folder without it is to be gone on with."""

State = Literal["new", "started", "done", "failed"]


class Entry(BaseModel):
    """One entry of the file: a notebook with parameters, and a grid whose products are items of their own."""

    model_config = ConfigDict(extra="forbid")

    notebook: str
    label: str = Field("", pattern=rf"^$|{LABEL}")
    parameters: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    repeats: int = Field(1, ge=1, le=10_000)


class Batch(BaseModel):
    """The file. order: "shuffled" by `seed`, or "written"; repeats: of the whole list, each in an order of its own."""

    model_config = ConfigDict(extra="forbid")

    items: list[Entry] = Field(min_length=1)
    order: Literal["shuffled", "written"] = "shuffled"
    seed: int = 1
    repeats: int = Field(1, ge=1, le=10_000)
    runs_dir: str = ""
    name: str = Field("", pattern=rf"^$|{LABEL}")


@dataclass(frozen=True)
class Item:
    """One papermill execution. given: parameters by name. estimate_s: a guess, corrected by those that ended."""

    notebook: str
    label: str
    given: dict[str, Any]
    repeat: int
    key: str
    folder: Path
    estimate_s: float
    device: str | None

    @property
    def words(self) -> str:
        """The item in a line of progress."""
        told = ", ".join(f"{name}={_short(value)}" for name, value in self.given.items())
        return f"{self.label}{f' #{self.repeat}' * (self.repeat > 1)}" + f": {told}" * bool(told)


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def read(path: Path) -> Batch:
    """The file's content. Raises RxbookError that names each wrong line."""
    batch = yaml_file.read(path, Batch, str(path), "batch.md")
    batch.name = batch.name or path.stem
    return batch


def items(batch: Batch, folder: Path, rounds: int = 1, kernel: str | None = None) -> list[Item]:
    """All items in the order in which they are run. Raises RxbookError where parameters are wrong.

    folder: where run folders lie. rounds: as often as the batch was asked for again. kernel: the build that is
    measured, where it is another machine's.
    """
    found: list[Item] = []
    for repeat in range(1, batch.repeats + 1):
        of_repeat = [
            _item(batch, entry, given, (repeat - 1) * entry.repeats + own, folder, rounds, kernel)
            for entry in batch.items
            for given in _products(entry)
            for own in range(1, entry.repeats + 1)
        ]
        if batch.order == "shuffled":
            random.Random(f"{batch.seed}/{repeat}").shuffle(of_repeat)
        found += of_repeat
    folders = [item.folder for item in found]
    twice = next((item for item in found if folders.count(item.folder) > 1), None)
    if twice:
        raise RxbookError(f"{twice.words}: is listed twice with the same label; say repeats: 2 instead")
    return found


def _products(entry: Entry) -> list[dict[str, Any]]:
    both = set(entry.parameters) & set(entry.grid)
    if both:
        raise RxbookError(f"{entry.notebook}: {', '.join(sorted(both))} is in parameters and in grid")
    values = itertools.product(*entry.grid.values())
    return [entry.parameters | dict(zip(entry.grid, combination, strict=True)) for combination in values]


def _item(
    batch: Batch,
    entry: Entry,
    given: dict[str, Any],
    repeat: int,
    folder: Path,
    rounds: int,
    kernel: str | None,
) -> Item:
    label = entry.label or entry.notebook
    declared = notebooks.declared(entry.notebook)
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise RxbookError(f"{label}: the notebook {entry.notebook} has no parameter {', '.join(unknown)}")
    inputs = {name: given[name] for name in INPUTS if given.get(name)}
    try:
        plan = notebooks.plan(entry.notebook, given)
    except RxbookError as error:
        raise RxbookError(f"{label}: {error}") from None
    measures = not inputs and any(name in Plan.model_fields for name in declared)
    text = json.dumps([
        hashlib.sha256(notebooks.find(entry.notebook).read_bytes()).hexdigest(), given, plan.fingerprint(),
        library(), (kernel or kernel_build(plan)) if measures else "", repeat, rounds,
    ], sort_keys=True, default=str)  # fmt: skip
    key = hashlib.sha256(text.encode()).hexdigest()[:10]
    seconds = execute.estimate_s(plan) if measures else execute.START_S
    name = f"{batch.name}-{label}-{key}"
    return Item(
        entry.notebook, label, given, repeat, key, folder / name, seconds, device(plan) if measures else None
    )


def device(plan: Plan) -> str:
    """What an item of this plan holds alone while it runs: this machine's CPUs, or the hosts of a file."""
    return f"hosts:{Path(plan.hosts).name}" if plan.hosts else "veth"


def kernel_build(plan: Plan) -> str:
    """The build of what is measured: of each guest's image, of the hosts' file, or of the running kernel."""
    if plan.hosts:
        return plan.hosts  # what runs there is only known there, and stands in each run
    if not plan.kernels:
        return f"{facts.kernel_release()} {facts.kernel_version()}"
    from rxbook.guests import kernels

    known = {kernel.label: kernel for kernel in kernels.known()}
    return json.dumps({
        label: _digest(known[name].image) if name in known else name
        for label, name in plan.kernels.items()
    })  # fmt: skip


@functools.cache
def _digest(image: Path) -> str:
    """One of many items has it looked at once."""
    return hashlib.sha256(image.read_bytes()).hexdigest()


@functools.cache
def library() -> str:
    """A fingerprint of this library's sources."""
    root = runs.ROOT / "lib" / "rxbook"
    digest = hashlib.sha256()
    for path in sorted(p for end in ("*.py", "*.o") for p in root.rglob(end)):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def state(item: Item) -> State:
    """How far the item is, by its run folder."""
    try:
        return "done" if json.loads((item.folder / RESULT).read_text())["error"] is None else "failed"
    except (OSError, ValueError, KeyError, TypeError):
        return "started" if item.folder.exists() else "new"


def note_end(folder: Path, error: str | None, wall_s: float | None, **more: Any) -> None:
    """Say in a run folder, made where it is not there, how its item ended; `state` reads it."""
    runs.make_folder(folder)
    runs.write_json(folder / RESULT, {**more, "error": error, "wall_s": wall_s})


def left(found: Sequence[Item], retry_failed: bool) -> list[Item]:
    """The items that are to be run, in their order."""
    wanted = {"new", "started", *["failed"] * retry_failed}
    return [item for item in found if state(item) in wanted]
