# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Do printed differences follow from the figures printed with them? Judged by what the rounding of these allows.

Figures are those of the threads (`published.load`) or of a mail (`typed.figures`): message, table, row, column,
value, unit, in the order in which they were printed. Each claim is judged by itself: whether unrounded rates exist
that allow all claims of a table at once is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rxbook import RxbookError, published, typed
from rxbook.claim_rules import Claim, limits, rule
from rxbook.published import DIFFERENCE
from rxbook.rounding import printed
from rxbook.tables import Section, Table

__all__ = ["Checked", "check", "of", "table"]

GROUP = "figures"
"""One group, so that with long row names a claim goes below its name and no column goes elsewhere."""


@dataclass(frozen=True)
class Checked:
    """What was found in some figures; notes: what a reader must know of single claims, and what was not checked."""

    claims: tuple[Claim, ...]
    notes: tuple[str, ...]

    @property
    def contradicted(self) -> bool:
        """Does any printed figure contradict the others?"""
        return any(claim.verdict == "contradicts" for claim in self.claims)


def check(figures: pd.DataFrame) -> Checked:
    """Check all that can be checked among these figures, table by table."""
    claims, notes = [], []
    for (message, name), cells in figures.groupby(["message", "table"], sort=False):
        for found in rule(set(cells["unit"]))(message, name, cells):
            (claims if isinstance(found, Claim) else notes).append(found)
    return Checked(tuple(claims), tuple(dict.fromkeys(notes)))


def of(file: Path | None = None) -> tuple[Table, bool]:
    """The claims of a mail, mbox, patch or patchwork page, by default of the published figures, as a table.

    The second value says whether a printed figure contradicts the others.
    Raises RxbookError where the file cannot be read, or holds no figures that can be checked.
    """
    if file is None:
        figures, notes = published.load(), ()
        figures["message"] += " (" + figures["list"] + ", " + figures["date"] + ")"
        source = f"published in {figures['thread'].nunique()} threads"
    else:
        figures, notes = typed.figures(file)
        source = f"from {file.name}"
    checked = check(figures)
    if not checked.claims:
        why = " ".join((*checked.notes, *notes)[:2]) or "no difference is printed."
        name = file.name if file else "data/published"
        raise RxbookError(f"{name} has figures, but none that others say something of: {why}")
    return table(checked, source, notes), checked.contradicted


def table(checked: Checked, source: str, notes: Sequence[str] = ()) -> Table:
    """The claims with what the printed figures allow, one section for each message and table of it.

    source: whence the figures come, as in "published in 3 threads". notes: of who found the figures.
    """
    groups: dict[tuple[str, str], list[Claim]] = {}
    for claim in checked.claims:
        groups.setdefault((claim.message, claim.table), []).append(claim)
    sections, last = [], None
    for (message, name), claims in groups.items():
        heading = name if message == last else f"{message}: {name}"
        sections.append(Section(heading, tuple(_row(claim) for claim in claims)))
        last = message
    columns = (("", "claim"), *((GROUP, name) for name in ("from", "printed", "gives", "allowed", "verdict")))
    frame = pd.DataFrame([_record(claim) for claim in checked.claims])
    said = (*_reading(checked.claims), *checked.notes, *notes)
    return Table("printed claims", columns, tuple(sections), said, frame, source)


def _reading(claims: Sequence[Claim]) -> Iterator[str]:
    """How the table is to be read, as far as its rows need it."""
    found = {claim.verdict for claim in claims}
    yield "gives: computed from the figures as printed. allowed: from what these may have been before rounding."
    if found & {"agree", "possible", "contradicts"}:
        yield (
            "agree: what they give rounds to what is printed. possible: something allowed does. contradicts: "
            "nothing allowed does."
        )
    if found & {"lower", "higher", "unclear"}:
        yield "lower, higher: by points of share, beyond rounding. Whether beyond noise, printed shares cannot tell."
    if "derived" in found:
        yield "derived: implied, not printed. base: of a packet before the change, from cycles saved at a gain."


def _row(claim: Claim) -> tuple[str, ...]:
    shown = f"{claim.printed}{'%' * (claim.unit == DIFFERENCE)}" if claim.printed else "-"
    sign = "+" if claim.signed else ""
    computed = f"{float(claim.computed.point):{sign}.{claim.places}f}"
    allowed = limits(claim.computed, claim.places, claim.signed)
    return (claim.name, claim.figures, shown, computed, allowed, claim.verdict)


def _record(claim: Claim) -> dict[str, str | float]:
    """A row of the frame; printed and the computed figures are in `unit`."""
    return {
        "message": claim.message,
        "table": claim.table,
        "claim": claim.name,
        "from": claim.figures,
        "printed": float(printed(claim.printed).point) if claim.printed else math.nan,
        "unit": claim.unit,
        "computed": float(claim.computed.point),
        "allowed_low": float(claim.computed.low),
        "allowed_high": float(claim.computed.high),
        "verdict": claim.verdict,
    }
