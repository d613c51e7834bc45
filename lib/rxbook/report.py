# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What leaves a run: its tables and figures as files, a pyperf suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pyperf
from matplotlib.figure import Figure

from rxbook import (
    beside,
    figures,
    function_cycles,
    heads,
    instructions,
    provenance,
    render,
    runs,
    statistics,
    tables,
    words,
)
from rxbook.plan import Cell
from rxbook.profile.bars import function_bars
from rxbook.runs import Run
from rxbook.tables import Table

__all__ = [
    "FIGURES",
    "SHOWN",
    "figure_of",
    "function_tables",
    "machines",
    "not_applicable",
    "pyperf_suite",
    "save",
    "save_functions",
    "table_of",
    "tables_named",
    "tables_of",
    "write_figure",
    "write_files",
]

SHOWN = {
    "gro_on_off": ("gro", "size_csum", "noise"),
    "function_cycles": (*(f"functions_{number}" for number in range(1, 9)), "gro"),
    "bulk_cache": ("gro", "heads", *(f"functions_{number}" for number in range(1, 9))),
}
"""Tables that the terminal and report.txt show of a notebook's run; the page and the run's folder have all."""

FIGURES = {"gro_bars": figures.gro_bars, "window_strip": figures.window_strip}
"""Figures of a run, by the names of their files."""


def not_applicable(run: Run) -> set[tuple[str, str]]:
    """(variant, GRO setting) pairs that mean nothing on the run's kernel: cpumap before it had GRO.

    From BTF, as recorded in host.json: struct bpf_cpu_map_entry without a member `gro`.
    """
    only_cpumap = set(run.samples["receiver"]) == {"cpumap"}
    guests = run.host.get("guests")
    if guests:
        lacking = {
            name for name, fact in guests["kernels"].items() if (fact["btf"] or {}).get("cpumap_gro") is False
        }
        return {(variant, "on") for variant in lacking} if only_cpumap else set()
    if only_cpumap and (run.host.get("btf") or {}).get("cpumap_gro") is False:
        return {(variant, "on") for variant in run.samples["variant"].unique()}
    return set()


def _table_makers(run: Run) -> dict[str, Callable[[], Table]]:
    samples, source = run.samples, run.source
    guests = run.host.get("guests")
    if run.exact:
        gro = partial(
            instructions.gro_table, samples, source=source, guests=guests, order=list(run.plan.kernels)
        )
        return {"gro": gro} | _heads(run) | function_cycles.makers(run)
    variants = None
    if guests:
        samples, variants = statistics.per_boot(samples), list(run.plan.kernels)
    gro = partial(
        tables.gro_table, samples, source=source, variants=variants, not_applicable=not_applicable(run)
    )
    found = {"gro": gro, "cost": partial(gro, value="ns_per_packet")}
    if samples["frame_size"].nunique() > 1 or samples["udp_csum"].nunique() > 1:
        found["size_csum"] = partial(tables.size_csum_table, samples, source=source)
    if run.plan.aa:
        found["noise"] = partial(tables.noise_table, samples, source=source)
    found["windows"] = partial(tables.windows_table, run.samples, source=source)
    return found | _heads(run) | function_cycles.makers(run) | beside.makers(run)


def _heads(run: Run) -> dict[str, Callable[[], Table]]:
    counted = heads.load(run.path / "heads.csv")
    order = list(run.plan.kernels) or words.variant_order(run.samples)
    source = words.dated(run.source, run.samples)
    return {"heads": partial(heads.table, counted, source=source, order=order)} if len(counted) else {}


def table_of(run: Run, name: str) -> Table | None:
    """One table of a run, by the name of its file; None where the run's cells make no such table."""
    make = _table_makers(run).get(name)
    if make is None:
        return None
    table, guests = make(), run.host.get("guests")
    if guests and not run.exact:
        said = [
            *instructions.warnings(guests, list(run.plan.kernels)),
            *instructions.releases(guests, list(run.plan.kernels)),
        ]
        table = replace(
            table,
            notes=(
                *said,
                "Guests under KVM. Each boot is one value, the median of its windows.",
                *table.notes,
            ),
        )
    said = f"Machine: {provenance.machine_label(run.host)}."
    return replace(table, notes=(*table.notes, said), about=(*table.about, machines([run])))


def tables_named(run: Run) -> list[str]:
    """The names of a run's tables, none of them made yet."""
    return list(_table_makers(run))


def tables_of(run: Run) -> dict[str, Table]:
    """All tables of a run, by the names of their files."""
    return {name: table_of(run, name) for name in tables_named(run)}


def function_tables(run: Run) -> dict[str, Table]:
    """The tables of functions of a run, one for each traffic shape that was profiled, by the names of their files."""
    return {name: table_of(run, name) for name in function_cycles.makers(run)}


def figure_of(run: Run, name: str) -> Figure | None:
    """One of FIGURES, of a run; None where it has no rates."""
    if run.exact:
        return None
    return FIGURES[name](run.samples, source=run.source, machine=machines([run]))


def machines(found: Sequence[Run]) -> str:
    """Where runs were measured, for the title of a figure; of a recording its source says it."""
    labels = (provenance.machine_label(run.host) for run in found if not run.recorded)
    return "; ".join(dict.fromkeys(labels))


def save(run: Run) -> None:
    """Write into the run's folder every table as text, Markdown, HTML and CSV, every figure, and bench.json."""
    made = tables_of(run)
    drawn = {name: figure for name in FIGURES if (figure := figure_of(run, name)) is not None}
    write_files(run.path / "tables", made, drawn | _bars(made))
    suite = None if run.exact else pyperf_suite(run.samples, run.source, function_cycles.headlines(run))
    if suite:
        suite.dump(str(run.path / "bench.json"), replace=True)


def save_functions(path: Path, made: dict[str, Table]) -> None:
    """Write tables of functions, and their bars, into a folder as a run's are."""
    write_files(path / "tables", made, _bars(made))


def _bars(made: dict[str, Table]) -> dict[str, Figure]:
    return {name: function_bars(table) for name, table in made.items() if name.startswith("functions")}


def write_files(folder: Path, made: Mapping[str, Table], drawn: Mapping[str, Figure]) -> None:
    """Write tables as text, Markdown, HTML and CSV, and figures as PNG and SVG, by the names of their files."""
    runs.make_folder(folder)
    for name, table in made.items():
        for ending, form in (
            ("txt", render.text), ("md", render.markdown), ("html", render.html), ("csv", render.csv),
        ):  # fmt: skip
            (folder / f"{name}.{ending}").write_text(form(table))
    for name, figure in drawn.items():
        write_figure(folder, name, figure)


def write_figure(folder: Path, name: str, figure: Figure) -> None:
    """Write a figure as PNG and SVG."""
    (folder / f"{name}.png").write_bytes(figures.png(figure))
    figure.savefig(folder / f"{name}.svg")


def pyperf_suite(
    samples: pd.DataFrame, source: str, headlines: Mapping[Cell, Mapping[str, str | int]] | None = None
) -> pyperf.BenchmarkSuite | None:
    """The run as a pyperf suite: seconds per packet, one benchmark per cell, flagged windows left out.

    pyperf knows no rates, takes lower as better, and has no word for a bound: cells that the sender limited
    are left out. Its compare_to tests for significance only where both suites have as many values of a
    benchmark, so where as many windows were left out. headlines: of the cells' profiles, as metadata.
    Returns None where no cell remains.
    """
    benchmarks = []
    several = samples["variant"].nunique() > 1
    for fields, windows in samples.groupby(list(Cell.model_fields), sort=False):
        windows = statistics.counted(windows)
        if windows.empty or statistics.is_bound(windows):
            continue
        cell = Cell(**dict(zip(Cell.model_fields, fields, strict=True)))
        name = cell.label() if several else cell.label().removeprefix(cell.variant + " ")
        metadata = {"name": name, "unit": "second", "rxbook_source": source, "rxbook_variant": cell.variant}
        metadata |= (headlines or {}).get(cell, {})
        values = (windows["window_s"] / windows["frames"]).tolist()
        benchmarks.append(
            pyperf.Benchmark(
                [pyperf.Run([value], metadata=metadata, collect_metadata=False) for value in values]
            )
        )
    return pyperf.BenchmarkSuite(benchmarks) if benchmarks else None
