# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What leaves a run: its tables and figures as files, a pyperf suite, and the executed notebook as HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pyperf
from matplotlib.figure import Figure

from rxbook import figures, profile, provenance, render, statistics, tables, words
from rxbook.plan import Cell
from rxbook.profile import record
from rxbook.profile.functions import Column, function_table
from rxbook.profile.headline import headline
from rxbook.runs import Run
from rxbook.tables import Table

__all__ = [
    "FIGURES",
    "figure_of",
    "not_applicable",
    "notebook_html",
    "pyperf_suite",
    "save",
    "table_of",
    "tables_named",
    "tables_of",
]

FIGURES = {"gro_bars": figures.gro_bars, "window_strip": figures.window_strip}
"""Figures of a run, by the names of their files."""

CSS = """body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
pre{font-size:13px;overflow-x:auto}img{max-width:100%}table{border-collapse:collapse}
.output_stderr,.stderr{color:#555}@media print{body{margin:0}}"""


def not_applicable(run: Run) -> set[tuple[str, str]]:
    """(variant, GRO setting) pairs that mean nothing on the run's kernel: cpumap before it had GRO.

    From BTF, as recorded in host.json: struct bpf_cpu_map_entry without a member `gro`.
    """
    only_cpumap = set(run.samples["receiver"]) == {"cpumap"}
    if only_cpumap and (run.host.get("btf") or {}).get("cpumap_gro") is False:
        return {(variant, "on") for variant in run.samples["variant"].unique()}
    return set()


def _table_makers(run: Run) -> dict[str, Callable[[], Table]]:
    samples, source = run.samples, run.source
    gro = partial(tables.gro_table, samples, source=source, not_applicable=not_applicable(run))
    found = {"gro": gro, "cost": partial(gro, value="ns_per_packet")}
    if samples["frame_size"].nunique() > 1 or samples["udp_csum"].nunique() > 1:
        found["size_csum"] = partial(tables.size_csum_table, samples, source=source)
    if run.plan.aa:
        found["noise"] = partial(tables.noise_table, samples, source=source)
    found["windows"] = partial(tables.windows_table, samples, source=source)
    return found | _function_tables(run)


def _function_tables(run: Run) -> dict[str, Callable[[], Table]]:
    """One table of functions for each traffic shape that was profiled: GRO off, then on."""
    shapes: dict[tuple, dict[str, tuple[Cell, Path]]] = {}
    for cell, data in record.recorded(run.path / "profiles"):
        shape = tuple(value for name, value in cell if name != "gro")
        shapes.setdefault(shape, {})[f"GRO {cell.gro}"] = (cell, data)
    return {
        f"functions_{number}": partial(_function_table, run, profiled)
        for number, profiled in enumerate(shapes.values(), 1)
    }


def _function_table(run: Run, profiled: dict[str, tuple[Cell, Path]]) -> Table:
    columns = {}
    for name, (cell, data) in profiled.items():
        windows = run.samples[tables.is_cell(run.samples, cell.model_dump())]
        columns[name] = Column([profile.load(data)], statistics.cell_interval(windows, "ns_per_packet"))
    table = function_table(columns, source=words.dated(run.source, run.samples))
    cell, _ = next(iter(profiled.values()))
    return replace(table, notes=(f"{words.traffic(cell.model_dump())}.", *table.notes))


def table_of(run: Run, name: str) -> Table | None:
    """One table of a run, by the name of its file; None where the run's cells make no such table."""
    make = _table_makers(run).get(name)
    if make is None:
        return None
    table = make()
    return replace(table, notes=(*table.notes, f"Machine: {provenance.machine_label(run.host)}."))


def tables_named(run: Run) -> list[str]:
    """The names of a run's tables, none of them made yet."""
    return list(_table_makers(run))


def tables_of(run: Run) -> dict[str, Table]:
    """All tables of a run, by the names of their files."""
    return {name: table_of(run, name) for name in tables_named(run)}


def figure_of(run: Run, name: str) -> Figure:
    """One figure of a run, by the name of its file."""
    return FIGURES[name](run.samples, source=run.source)


def save(run: Run) -> None:
    """Write into the run's folder every table as text, Markdown, HTML and CSV, every figure, and bench.json."""
    folder = run.path / "tables"
    folder.mkdir(exist_ok=True)
    for name, table in tables_of(run).items():
        for ending, write in (
            ("txt", render.text), ("md", render.markdown), ("html", render.html), ("csv", render.csv),
        ):  # fmt: skip
            (folder / f"{name}.{ending}").write_text(write(table))
    for name in FIGURES:
        figure = figure_of(run, name)
        figure.savefig(folder / f"{name}.png", dpi=110)
        figure.savefig(folder / f"{name}.svg")
    profiled = record.recorded(run.path / "profiles")
    headlines = {cell: headline([profile.load(data)]) for cell, data in profiled}
    suite = pyperf_suite(run.samples, run.source, headlines)
    if suite:
        suite.dump(str(run.path / "bench.json"), replace=True)


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


def notebook_html(notebook: Path, page: Path, title: str) -> None:
    """Write an executed notebook as one page without code, scripts or outside links."""
    import nbconvert  # 2 s, which no measuring process needs to wait for

    exporter = nbconvert.HTMLExporter(
        template_name="basic", exclude_input=True, exclude_output_prompt=True, exclude_anchor_links=True
    )
    body, _ = exporter.from_filename(str(notebook))
    page.write_text(
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<style>{CSS}</style>\n<body>{body}</body></html>\n"
    )
