# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `rxbook` command: one short function per command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rxbook import RxbookError

__all__ = ["main"]

app = typer.Typer(
    help="Measure the kernel's receive path; print the tables of a patch mail.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    notebook: Annotated[str, typer.Argument(help="a notebook of notebooks/, such as gro_on_off")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="a parameter; lists as 64,512")
    ] = None,
    resume: Annotated[str | None, typer.Option(help="name of an interrupted run to finish")] = None,
    runs_dir: Annotated[Path | None, typer.Option(help="where run folders lie; default: runs/")] = None,
) -> None:
    """Run a notebook by papermill; print its tables, the run folder and the page."""
    try:
        from rxbook import execute

        execute.run(notebook, _parse(settings or []), resume, runs_dir)
    except KeyboardInterrupt as stop:  # here, as typer would end without a word
        print(f"\nrxbook: interrupted{stop}", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def parameters() -> None:
    """List the parameters that --set and the notebooks take."""
    from rxbook.plan import Plan, allowed

    for name, field in Plan.model_fields.items():
        default = ",".join(map(str, field.default)) if isinstance(field.default, list) else field.default
        print(
            f"{name}={'' if default in (None, {}) else default}\n    {field.description}\n    {allowed(name)}"
        )


@app.command()
def doctor() -> None:
    """Say what this machine can do, what is missing, and the remedy of each."""
    from rxbook import doctor

    found = doctor.checks()
    print(doctor.report(found))
    raise typer.Exit(0 if doctor.can_run_live(found)[0] else 1)


@app.command()
def clean() -> None:
    """End what a crash may have left: sender and receiver processes without a run, devices."""
    from rxbook.testbeds import leftovers

    for line in leftovers.sweep() or ["nothing was left over"]:
        print(line)


@app.command()
def perf(
    files: Annotated[
        list[Path], typer.Argument(help="perf.data, or what perf report, top or script printed")
    ],
    top: Annotated[int, typer.Option(help="so many functions; the others are one row")] = 20,
    only: Annotated[list[str] | None, typer.Option(help="a function, or a pattern such as '*gro*'")] = None,
    by: Annotated[str | None, typer.Option(help="one section for each: dso, comm or cpu")] = None,
    event: Annotated[str | None, typer.Option(help="default: cycles, else time, else the first")] = None,
    children: Annotated[bool, typer.Option(help="add up call chains, too")] = False,
    kallsyms: Annotated[Path | None, typer.Option(help="/proc/kallsyms of the recorded machine")] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, html or csv")] = "text",
    folded: Annotated[bool, typer.Option(help="stacks for flame-graph viewers, of one perf.data")] = False,
) -> None:
    """Print the functions of a profile with intervals; of two files, before and after, the differences."""
    from rxbook.profile import export, show

    if folded:
        if len(files) != 1:
            raise RxbookError(f"--folded takes one file, not {len(files)}")
        print("\n".join(export.folded(files[0], event, kallsyms)))
        return
    print(show.files(files, top, only, by, event, children, kallsyms, form), end="")


@app.command()
def scrub(
    run: Annotated[str, typer.Argument(help="a finished run, by name or folder")],
    folder: Annotated[Path, typer.Argument(help="a new folder for the copy")],
) -> None:
    """Copy a run without host name, user, paths and commands, fit to be shared."""
    from rxbook import runs

    runs.scrub(runs.find(run), folder)
    print(f"{folder} can be shared: host.json and samples.csv hold no names and no paths")


kernels = typer.Typer(help="The kernels that can be booted as guests.", no_args_is_help=True)
app.add_typer(kernels, name="kernels")


@kernels.command("add")
def add_kernel(
    label: Annotated[str, typer.Argument(help="a name of your own, as baseline or patch 3")],
    image: Annotated[Path | None, typer.Option(help="bzImage or vmlinuz, x86-64")] = None,
    modules: Annotated[Path | None, typer.Option(help="the folder below which its modules lie")] = None,
    config: Annotated[Path | None, typer.Option(help="its configuration; default: beside vmlinuz")] = None,
    tree: Annotated[Path | None, typer.Option(help="a tree that was just built, in place of these")] = None,
) -> None:
    """Copy a kernel into the store, in place of one of that label."""
    from rxbook.guests import kernels

    if (image is None) == (tree is None):
        raise RxbookError("say --image FILE, or --tree DIR, and not both")
    added = kernels.add_tree(label, tree) if tree else kernels.add(label, image, modules, config)
    print(kernels.line(added))


@kernels.command("fetch")
def fetch_kernel(
    wanted: Annotated[str, typer.Argument(help="debian:6.12, or debian: for the newest")],
    label: Annotated[str | None, typer.Option(help="default: the same")] = None,
) -> None:
    """Fetch a kernel from Debian's mirror, its signature checked; nothing is installed."""
    from rxbook.guests import debian, kernels

    print(kernels.line(debian.fetch(wanted, label)))


@kernels.command("list")
def list_kernels() -> None:
    """List them: label, release, GRO in cpumap, bulk skb cache, and where each is from."""
    from rxbook.guests import kernels

    print(kernels.listing())


def _parse(settings: list[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise RxbookError(f"--set {setting}: write it as NAME=VALUE, as in --set frame_sizes=64,512")
        if name.strip() in parsed:
            raise RxbookError(
                f"--set {name.strip()} is given twice: write several values as one list, 64,512"
            )
        parsed[name.strip()] = value.strip()
    return parsed


def main() -> None:
    """Entry point: a user's mistake is one line on stderr and status 1."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # a warning of ipykernel's debugger
    try:
        app()
    except RxbookError as error:
        print(f"rxbook: {error}", file=sys.stderr)
        sys.exit(1)
