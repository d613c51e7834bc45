# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `rxbook` command: one short function per command."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from rxbook import RxbookError

__all__ = ["main"]

RunsDir = Annotated[Path | None, typer.Option(help="where run folders lie; default: runs/")]
NAMING = "a folder, a name, any unique part of one, or last"

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
    resume: Annotated[str | None, typer.Option(help=f"an interrupted run to finish: {NAMING}")] = None,
    runs_dir: RunsDir = None,
) -> None:
    """Run a notebook by papermill; print its tables, the run folder and the page."""
    try:
        from rxbook import execute

        execute.run(notebook, _parse(settings or []), resume, runs_dir)
    except KeyboardInterrupt as stop:  # here, as typer would end without a word
        print(f"\nrxbook: interrupted{stop}", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def batch(
    file: Annotated[Path, typer.Argument(help="a YAML file: notebooks with grids of parameters")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and the time it takes")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="run everything once more, into new folders")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="run failed items once more")] = False,
    stop_on_error: Annotated[
        bool, typer.Option("--stop-on-error", help="end at the first that fails")
    ] = False,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="a Dask scheduler, to run on its workers")
    ] = None,
    local_cluster: Annotated[
        bool, typer.Option("--local-cluster", help="the same with workers of this machine")
    ] = False,
    runs_dir: RunsDir = None,
) -> None:
    """Run many notebooks, each into a run folder; what is done already is not run again."""
    try:
        from rxbook.batch import cluster as workers
        from rxbook.batch import local

        options = (dry_run, again, retry_failed, stop_on_error)
        if cluster or local_cluster:
            status = workers.run(file, runs_dir, cluster, local.Options(*options))
        else:
            status = local.run(file, runs_dir, local.Options(*options))
    except KeyboardInterrupt as stop:  # here, as typer would end without a word
        print(f"\nrxbook: interrupted{stop}", file=sys.stderr)
        raise typer.Exit(130) from None
    raise typer.Exit(status)


@app.command()
def series(
    tree: Annotated[Path, typer.Option(help="a git repository of the kernel; its checkout stays as it is")],
    base: Annotated[str, typer.Option(metavar="COMMIT", help="what the series starts from, or LABEL=COMMIT")],
    at: Annotated[str, typer.Option(metavar="COMMIT,COMMIT", help="points of the series, each so too")],
    config: Annotated[str, typer.Option(help="a .config, or small: what the receive path needs")] = "small",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="a parameter, as of rxbook run")
    ] = None,
    notebook: Annotated[str, typer.Option(help="what is run when all are built")] = "gro_on_off",
    jobs: Annotated[int | None, typer.Option(min=1, help="of make; default: one for each CPU")] = None,
    runs_dir: RunsDir = None,
) -> None:
    """Build the kernel at points of a patch series, and compare these as guests in one table."""
    try:
        from rxbook.guests import series as builds

        named = [base, *at.split(",")]
        builds.compare(tree, named, config, notebook, _parse(settings or []), jobs, runs_dir)
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
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(help="perf.data, what perf report, top or script printed, a suite of pyperf"),
    ],
    top: Annotated[int, typer.Option(help="so many functions; the others are one row")] = 20,
    only: Annotated[list[str] | None, typer.Option(help="a function, or a pattern such as '*gro*'")] = None,
    by: Annotated[str | None, typer.Option(help="one section for each: dso, comm or cpu")] = None,
    event: Annotated[str | None, typer.Option(help="default: cycles, else time, else the first")] = None,
    children: Annotated[bool, typer.Option("--children", help="add up call chains, too")] = False,
    kallsyms: Annotated[Path | None, typer.Option(help="/proc/kallsyms of the recorded machine")] = None,
    debug: Annotated[
        list[Path] | None, typer.Option(help="vmlinux or another file with DWARF, for inlined functions")
    ] = None,
    inlined: Annotated[str, typer.Option(help="shown, apart from their callers, or hidden")] = "shown",
    form: Annotated[str, typer.Option("--format", help="text, markdown, html or csv")] = "text",
    together: Annotated[
        bool, typer.Option("--sum", help="all files as one profile, counted side by side")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="with --sum: a Dask scheduler, to count on its workers"),
    ] = None,
    folded: Annotated[bool, typer.Option("--folded", help="stacks for flamegraph.pl and its kin")] = False,
    speedscope: Annotated[bool, typer.Option("--speedscope", help="JSON for speedscope.app")] = False,
    firefox: Annotated[bool, typer.Option("--firefox", help="JSON for profiler.firefox.com")] = False,
    scrub: Annotated[
        Path | None, typer.Option(metavar="COPY", help="write a copy of perf.data fit to be shared")
    ] = None,
) -> None:
    """Print the functions of a profile with intervals; of two files, before and after, the differences."""
    gc.disable()  # the command is short, and keeps what it makes
    # numpy's threads take 0.1 s to start, and have no work here
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    instead = _instead_of_the_table(context)
    if scrub:
        from rxbook.profile import scrub as scrubbing

        scrubbed = scrubbing.copy(files[0], scrub)
        for said in scrubbed.warnings:
            _warn(said)
        print(scrubbing.advice(scrub) + (f"\nLeft out: {scrubbed.left_out}." if scrubbed.left_out else ""))
    elif instead:
        from rxbook.profile import export

        print(export.FORMS[instead](files[0], event, kallsyms, _warn), end="")
    else:
        from rxbook.profile import show

        options = (top, only, by, event, children, kallsyms, form, debug or (), inlined)
        if cluster and not together:
            raise RxbookError("--cluster goes with --sum: one file is read faster here")
        if together:
            gc.enable()
        if cluster:
            from rxbook.batch import cluster as workers

            with workers.executor(cluster) as executor:
                print(show.files(files, *options, together, executor), end="")
        else:
            print(show.files(files, *options, together), end="")


def _instead_of_the_table(context: typer.Context) -> str | None:
    """What else than the table of `perf` is asked for. RxbookError where two are, or with what does not go with it."""
    takes = {"folded": ("event", "kallsyms"), "speedscope": ("event", "kallsyms"), "firefox": ("event", "kallsyms"),
             "scrub": ()}  # fmt: skip
    options = {each.name: each.opts[0] for each in context.command.params}
    given = [name for name in options if context.get_parameter_source(name).name == "COMMANDLINE"]
    asked = [name for name in given if name in takes]
    if not asked:
        return None
    for name in given:
        if name not in ("files", asked[0], *takes[asked[0]]):
            raise RxbookError(f"{options[name]} does not go with {options[asked[0]]}: leave one of them out")
    if len(context.params["files"]) != 1:
        raise RxbookError(f"{options[asked[0]]} takes one file, not {len(context.params['files'])}")
    return asked[0]


def _warn(said: str) -> None:
    print(f"rxbook: WARNING: {said}", file=sys.stderr)


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN", help=f"two or more, each {NAMING}")],
    value: Annotated[str, typer.Option(help="mpps or ns_per_packet")] = "mpps",
    form: Annotated[str, typer.Option("--format", help="text, markdown, html or csv")] = "text",
    fail_below: Annotated[
        str | None, typer.Option(metavar="-3%", help="limit for the exit status, in percent of the first run")
    ] = None,
    functions: Annotated[
        bool,
        typer.Option("--functions", help="of two runs: then what changed in each profiled cell's functions"),
    ] = False,
    runs_dir: RunsDir = None,
) -> None:
    """Compare runs with the first, cell by cell, with intervals, and say what else differed.

    Runs of one variant are repeats: A1 B1 A2 B2 is two of each.

    With --fail-below the exit status is 3 where a whole 95 % interval is below;
    else 4 where one holds the limit, or runs are too short to tell;
    0 where all lie at the limit or above. stderr has the reasons.
    """
    from rxbook import comparison, function_cycles, render, runs, words

    rendered = render.in_form(form)
    if functions and len(names) != 2:
        raise RxbookError(f"--functions is for two runs, not {len(names)}")
    if value not in words.UNITS:
        raise RxbookError(f"--value {value}: say mpps or ns_per_packet")
    if fail_below is not None and value != "mpps":
        raise RxbookError("--fail-below is a limit for rates: leave --value out")
    limit = None if fail_below is None else comparison.percent(fail_below)
    loaded = [runs.load(runs.find(name, runs_dir or runs.RUNS)) for name in names]
    table = comparison.comparison(loaded, value)
    sides = dict(zip(("before", "after"), loaded, strict=False))
    changed = function_cycles.of_runs(sides, loaded[0].plan) if functions else {}
    print("\n".join(map(rendered, (table, *changed.values()))), end="")
    said = [
        note for note in table.notes if note.startswith("WARNING") and form == "csv"
    ]  # which has no notes
    found = comparison.Verdict(0, ()) if limit is None else comparison.verdict(table, limit)
    for line in (*said, *found.lines):
        print(f"rxbook: {line}", file=sys.stderr)
    raise typer.Exit(found.status)


@app.command()
def runs(runs_dir: RunsDir = None) -> None:
    """List runs, oldest first: name, state, variant, and what came out."""
    from rxbook import listing, runs

    folder = runs_dir or runs.RUNS
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(listing.lines(folder, width) or [f"no runs in {folder}"]))


@app.command()
def show(
    run: Annotated[str, typer.Argument(help=f"a run: {NAMING}")] = "last",
    runs_dir: RunsDir = None,
) -> None:
    """Print the report of a run."""
    from rxbook import listing, runs

    print(listing.shown(runs.find(run, runs_dir or runs.RUNS)), end="")


@app.command()
def trend(
    value: Annotated[str, typer.Option(help="mpps or ns_per_packet")] = "mpps",
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="cells of which this holds, as gro=on")
    ] = None,
    since: Annotated[str, typer.Option(metavar="DAY", help="runs that began then or later: 2026-12-01")] = "",
    last: Annotated[int, typer.Option(min=0, help="list so many runs of each cell; 0: all")] = 10,
    form: Annotated[str, typer.Option("--format", help="text, markdown, html or csv")] = "text",
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="write the tables and a figure of each cell there")
    ] = None,
    runs_dir: RunsDir = None,
) -> None:
    """Print each cell over all runs, oldest first, and mark where it changed."""
    from rxbook import trend

    print(trend.shown(value, trend.parse_only(only or []), since, last, form, save, runs_dir), end="")
    if save:
        print(f"rxbook: tables and figures are in {save}", file=sys.stderr)


@app.command()
def mail(
    run: Annotated[str, typer.Argument(help="a run, by name or folder")],
    table: Annotated[list[str] | None, typer.Option(help="a table by its file's name; repeatable")] = None,
    note: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="store as its git note, in refs/notes/perf")
    ] = None,
    cover: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write into a cover letter or patch file")
    ] = None,
    draft: Annotated[Path | None, typer.Option(metavar="FILE", help="write a draft mail, a new .eml")] = None,
    reply_to: Annotated[
        Path | None, typer.Option(metavar="MAIL", help="the draft answers this mail, a file")
    ] = None,
    series: Annotated[
        list[Path] | None, typer.Option(metavar="PATCHES", help="the draft answers this series; repeatable")
    ] = None,
    attach: Annotated[
        list[str] | None, typer.Option(help="to the draft: text, html or ipynb; repeatable")
    ] = None,
) -> None:
    """Print a run's tables to paste into a patch mail, or write them where git takes them. Sends nothing."""
    from rxbook import mail as mails

    mails.write(run, table or [], note, cover, draft, reply_to, series or [], attach or [])


@app.command()
def claims(
    file: Annotated[
        Path | None,
        typer.Argument(help="a mail, mbox, patch or patchwork page; default: the published figures"),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, html or csv")] = "text",
) -> None:
    """Check printed differences against the figures printed with them; status 1 where one contradicts."""
    from rxbook import claims, render

    write = render.in_form(form)
    table, contradicted = claims.of(file)
    print(write(table), end="")
    raise typer.Exit(1 if contradicted else 0)


@app.command()
def scrub(
    run: Annotated[str, typer.Argument(help=f"a finished run: {NAMING}")],
    folder: Annotated[Path, typer.Argument(help="a new folder for the copy")],
    runs_dir: RunsDir = None,
) -> None:
    """Copy a run without host name, user, paths and commands, fit to be shared."""
    from rxbook import runs

    runs.scrub(runs.find(run, runs_dir or runs.RUNS), folder)
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
