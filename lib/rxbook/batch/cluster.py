# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Works off a batch on the workers of a Dask cluster: each testbed is a resource that one item holds at a time.

A worker that may send traffic is started with what it holds: `dask worker ADDRESS --nthreads 1 --resources veth=1` on a
machine whose own CPUs are measured, `--resources hosts:lab.yaml=1` where items with hosts=lab.yaml start. Items that
measure nothing go to workers without such a resource, where there are any. A run folder is made on the worker and
comes back as an archive, so that all lie in one place. A worker that is lost loses its item to another one: what it had
started ends with it, and the testbed's lock is waited for, so no device is ever used twice at once.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

from rxbook import RxbookError
from rxbook.batch import items as listed
from rxbook.batch import local
from rxbook.batch.items import Item
from rxbook.kernel import facts

__all__ = ["executor", "run", "work"]

CONNECT_S = 10
ANALYSIS_WORKERS = 1
"""Of a local cluster, beside the one that holds the testbed."""


def run(file: Path, runs_dir: Path | None, address: str | None, options: local.Options) -> int:
    """Work off a batch file on a cluster; address None: on worker processes of this machine. See `local.run`."""
    with _client(address) as client:
        workers = _workers(client)
        builds = sorted({about["kernel"] for about in workers.values() if about["resources"]})
        batch, found, todo = local.begin(file, runs_dir, options, "; ".join(builds))
        for line in local.plan_lines(found, todo):
            print(line, flush=True)
        _refuse_without_workers(todo, workers)
        if options.dry_run:
            return 0
        try:
            _work_off(client, workers, todo, options.stop_on_error)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("; the same command goes on where it stopped") from None
    return local.conclude(batch, found)


@contextlib.contextmanager
def _client(address: str | None) -> Iterator[Any]:
    from distributed import Client, Nanny, Scheduler, SpecCluster

    if address:
        try:
            client = Client(address, timeout=CONNECT_S)
        except (OSError, ValueError) as error:
            raise RxbookError(
                f"--cluster {address}: no scheduler answers ({error}); start one by: dask scheduler"
            ) from None
        with client:
            yield client
        return
    options = {"nthreads": 1, "silence_logs": 50}
    spec = {"device": {"cls": Nanny, "options": {**options, "resources": {"veth": 1}}}}
    spec |= {f"analysis-{n}": {"cls": Nanny, "options": options} for n in range(ANALYSIS_WORKERS)}
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1", "port": 0}}
    with SpecCluster(spec, scheduler, silence_logs=50) as cluster, Client(cluster) as client:
        client.wait_for_workers(len(spec), timeout=60)
        yield client


@contextlib.contextmanager
def executor(address: str) -> Iterator[Executor]:
    """The cluster's workers that hold no device, or all where each holds one. Files must be theirs to read, too."""
    with _client(address) as client:
        workers = _workers(client)
        idle = _idle(workers)
        yield client.get_executor(workers=idle or list(workers), pure=False)


def _workers(client: Any) -> dict[str, dict[str, Any]]:
    """Of each worker, by address: its resources, its kernel's build. All must have this library."""
    resources = {
        name: about["resources"] for name, about in client.scheduler_info(n_workers=-1)["workers"].items()
    }
    if not resources:
        raise RxbookError(
            "the cluster has no worker; start one on each machine by: dask worker ADDRESS --nthreads 1"
        )
    told = client.run(_about)
    for name, about in told.items():
        if about["library"] != listed.library():
            raise RxbookError(
                f"worker {name} has another version of rxbook's library: install the same there"
            )
    return {name: about | {"resources": resources[name]} for name, about in told.items()}


def _idle(workers: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, about in workers.items() if not about["resources"]]


def _about() -> dict[str, str]:
    build = f"{facts.kernel_release()} {facts.kernel_version()}"
    return {"library": listed.library(), "kernel": build}


def _refuse_without_workers(todo: Sequence[Item], workers: dict[str, dict[str, Any]]) -> None:
    held = {name for about in workers.values() for name in about["resources"]}
    for item in todo:
        if item.device and item.device not in held:
            raise RxbookError(
                f"no worker holds {item.device}, which {item.label} needs; start one by: "
                f"dask worker ADDRESS --nthreads 1 --resources {item.device}=1"
            )


def _work_off(
    client: Any, workers: dict[str, dict[str, Any]], todo: Sequence[Item], stop_on_error: bool
) -> None:
    from distributed import as_completed

    idle = _idle(workers)
    by_future = {}
    for place, item in enumerate(todo):
        where = {"resources": {item.device: 1}} if item.device else {"workers": idle} if idle else {}
        future = client.submit(
            work, item, key=f"rxbook-{item.key}-{place}", pure=False, priority=-place, **where
        )
        by_future[future] = item
    progress = local.Progress(todo, todo)
    for future in as_completed(by_future):
        item = by_future[future]
        error = future.exception()
        if error is not None:  # a worker that died again and again
            said, took_s = f"{type(error).__name__}: {error}", 0.0
            listed.note_end(item.folder, said, None, notebook=item.notebook, parameters=item.given)
        else:
            said, archive, took_s = future.result()
            _unpack(archive, item.folder)
            future.release()
        progress.took(item, said, took_s)
        if said and stop_on_error:
            client.cancel(list(by_future))
            return


def work(item: Item) -> tuple[str | None, bytes, float]:
    """On a worker: run an item. Returns what went wrong, its run folder as an archive, and the seconds it took."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def tick() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":  # whoever asked for it is gone
            raise Cancelled

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rxbook-") as place:
        here = replace(item, folder=Path(place) / item.folder.name)
        try:
            error = local.run_item(here, tick)
        except Cancelled:
            return "cancelled", b"", time.monotonic() - start
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            archive.add(here.folder, arcname=".")
    return error, packed.getvalue(), time.monotonic() - start


class Cancelled(BaseException):
    """The batch that asked for the item has ended."""


def _unpack(archive: bytes, folder: Path) -> None:
    """A run folder appears whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(part, filter="data")
    if folder.exists():  # of an earlier attempt that failed
        shutil.rmtree(folder)
    part.chmod(0o755)
    part.rename(folder)
