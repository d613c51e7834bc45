# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a run to a patch mail: a block to paste, and the places where git and mail programs take it. Sends nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rxbook import RxbookError, runs
from rxbook.mail import draft as drafts
from rxbook.mail import placing
from rxbook.mail.block import block

__all__ = ["write"]


def write(
    run: str,
    tables: Sequence[str],
    note: str | None,
    cover: Path | None,
    draft: Path | None,
    reply_to: Path | None,
    series: Sequence[Path],
    attach: Sequence[str],
) -> None:
    """What `rxbook mail` does: print the block, or write it where the options say. Raises RxbookError."""
    if not draft and (reply_to or series or attach):
        raise RxbookError("--reply-to, --series and --attach are about a draft: name its file by --draft")
    if reply_to and series:
        raise RxbookError("--reply-to and --series both say what the draft answers: leave one out")
    path = Path(run) if any(Path(run).glob("tables/*.txt")) else runs.find(run)
    made = block(path, tables)
    said = []
    if draft:
        reply = drafts.original(series) if series else reply_to
        said += drafts.write(made, draft, path, reply, attach)
    if cover:
        said.append(placing.cover(made, cover))
    if note:
        said.append(placing.note(made, note))
    if not said:
        print(made.indented, end="")
    if not tables and made.others:
        said.append(f"other tables, by --table: {', '.join(made.others)}")
    for line in said:
        print(line, file=sys.stderr)
