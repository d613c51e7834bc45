# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs in one line each: what was measured, whether it is whole, and what came out."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pandas as pd

from rxbook import RxbookError, runs, words
from rxbook.runs import Run
from rxbook.statistics import AA_NAMES, noise_floor
from rxbook.tables import gro_effect

__all__ = ["facts", "headline", "lines", "shown"]

LEAST = 24
"""Columns that a headline has in any terminal."""


def lines(folder: Path, width: int | None = None) -> list[str]:
    """One line for each run of a folder, oldest first: name, state, variants, headline.

    A run's name begins with its date and ends with its notebook, unless its user named it. width: to which a line is
    shortened, at a word; default: not at all.
    """
    rows = [(name, state, *_about(folder / name)) for name, state in runs.list_runs(folder)]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    shown = []
    for *cells, headline in rows:
        start = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)) + "  "
        left = max(LEAST, width - len(start)) if width else None
        shown.append((start + (_shortened(headline, left) if left else headline)).rstrip())
    return shown


def shown(path: Path) -> str:
    """The report.txt of a run; of one that has none, since it is unfinished or old, as it would be."""
    try:
        return (path / "report.txt").read_text()
    except FileNotFoundError:
        from rxbook import summary  # half a second that no other list of runs needs

    return summary.text(runs.load(path))


def _shortened(text: str, width: int) -> str:
    """Cut at a word: half a figure would be a wrong one."""
    return textwrap.shorten(text, width, placeholder=" ...")


def _about(path: Path) -> tuple[str, str]:
    """Variants and headline; of a finished run as it recorded them, since to compute one takes some 30 ms."""
    try:
        record = json.loads((path / "run.json").read_text())
        return record["variants"], record["headline"]
    except (OSError, ValueError, TypeError, KeyError):
        pass  # unfinished, or of an older rxbook
    try:
        return tuple(facts(runs.load(path)).values())
    except RxbookError as error:
        return "?", f"cannot be read: {error}"


def facts(run: Run) -> dict[str, str]:
    """What run.json keeps for a list of runs: variants and headline."""
    names = (
        name.removesuffix(AA_NAMES[0]).removesuffix(AA_NAMES[1]) for name in run.samples["variant"].unique()
    )
    return {"variants": ", ".join(dict.fromkeys(names)), "headline": headline(run)}


def headline(run: Run) -> str:
    """What came out, in few words, of the run's first traffic shape; cheap, so that hundreds can be listed.

    `64 B computed 0.48 -> 2.37 Mpps +383% +/-12`: GRO off, on, and the difference. Of an A/A run the noise floor, of
    the notebook function_cycles the share of the family GRO.
    """
    if run.samples.empty:
        return "no windows"
    if run.exact:
        return _instructions(run)
    if run.plan.aa:
        return _noise(run.samples)
    shares = _family(run.path / "tables" / "functions_1.csv") if run.notebook == "function_cycles" else ""
    return shares or _gro(run.samples)


def _gro(samples: pd.DataFrame) -> str:
    shape, windows = _first_shape(samples)
    variants = windows["variant"].unique()
    effect = gro_effect(windows[windows["variant"] == variants[0]])
    found = [figure for figure in (effect.off, effect.on) if figure]
    kind = f"{shape['frame_size']} B {shape['udp_csum'] if shape['protocol'] == 'udp' else shape['protocol'].upper()}"
    if not any(figure.n for figure in found):
        return f"{kind}: no window counts"
    rates = " -> ".join(words.figure(figure, "mpps").split(" ")[0] for figure in found)
    change = words.change(effect.change)
    return f"{kind} {rates} Mpps" + (f" {change}" if change != "-" else "")


def _first_shape(samples: pd.DataFrame) -> tuple[dict, pd.DataFrame]:
    """As the first of `words.shapes`, of which the others are not needed."""
    plain = samples[samples["encap"] == "none"]
    return next(words.shapes(plain if len(plain) else samples))


def _instructions(run: Run) -> str:
    """`baseline 6135 -> 6143, gro 6343 -> 1786 instructions per packet`: GRO off and on, by kernel."""
    _, windows = _first_shape(run.samples)
    means = windows.groupby(["variant", "gro"], sort=False)["instructions_per_packet"].mean()
    found = []
    for variant in windows["variant"].unique():
        sides = [means.get((variant, gro)) for gro in ("off", "on")]
        found.append(f"{variant} {' -> '.join(f'{side:.0f}' for side in sides if side is not None)}")
    return f"{', '.join(found)} instructions per packet"


def _noise(samples: pd.DataFrame) -> str:
    try:
        floor = noise_floor(samples)
    except RxbookError:  # interrupted within its first block
        return "A/A, too few windows"
    widths = floor["half_width"].dropna() * 100
    if widths.empty:
        return "A/A, too few windows"
    return f"A/A, shows {widths.min():.1f} to {widths.max():.1f} %, {floor['false_alarm'].sum()} alarms of {len(floor)}"


def _family(file: Path) -> str:
    """`GRO functions 3.1% (GRO off), 21.4% (GRO on)`: shares of the receiving thread, from the run's own table."""
    if not file.exists():
        return ""
    found = pd.read_csv(file)
    family = found[(found["row"] == "family") & (found["function"] == "GRO")].dropna(subset="share_percent")
    shares = [f"{row.share_percent:.1f}% ({row.column})" for row in family.itertuples()]
    return f"GRO functions {', '.join(shares)}" if shares else ""
