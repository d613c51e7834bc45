# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The executed notebook as one HTML page: no scripts, no outside links, for phones and dark rooms too."""

from __future__ import annotations

import html
import re
from pathlib import Path

import nbformat

from rxbook import render

__all__ = ["write"]

STYLE = """:root{color-scheme:light dark}
body{font:15px/1.5 sans-serif;max-width:60em;margin:1.5em auto;padding:0 1em}
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:1.6em}
pre,.output_html{overflow-x:auto}pre{font-size:13px}
.rxbook tbody th{position:sticky;left:0;background:Canvas}
@media(max-width:600px){.rxbook{font-size:11px!important}}
img{max-width:100%}.output_stderr{opacity:.7}
.input{display:none}#code:checked~main .input{display:block}
.input pre{padding:.5em .7em;background:#8882;border-radius:4px}
label,#code{font-size:12px;vertical-align:middle}
@media(prefers-color-scheme:dark){img{filter:invert(.88) hue-rotate(180deg)}}
@media print{body{margin:0}label,#code{display:none}}"""
"""Pictures are drawn on white: turned round, and their colours back, they fit a dark page."""

PLACE = re.compile(r"^(runs_dir|run_name) = .*\n?", re.MULTILINE)
"""Of the parameters that papermill put in: paths of this machine, which a page that is sent need not tell."""
HIGHLIGHTED = re.compile(r'<div class="highlight.*?</div>', re.DOTALL)
SPAN = re.compile(r"</?span[^>]*>")
SWITCH = "<input type=checkbox id=code> <label for=code>show the code</label>"


def write(notebook: Path, page: Path, title: str) -> None:
    """Write an executed notebook as a page; its code is left out until the reader ticks a box."""
    import nbconvert  # 2 s, which no measuring process needs to wait for

    exporter = nbconvert.HTMLExporter(
        template_name="basic",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    cells = nbformat.read(notebook, as_version=4)
    for cell in cells.cells:
        cell.source = PLACE.sub("", cell.source)
    body, _ = exporter.from_notebook_node(cells)
    # once in the head instead of beside each table; and colours of code would be half of a page
    body = body.replace(render.STYLE, "")
    body = HIGHLIGHTED.sub(lambda found: SPAN.sub("", found[0]), body)
    page.write_text(
        f"<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<meta name=viewport content='width=device-width,initial-scale=1'>{render.STYLE}"
        f"<style>{STYLE}</style></head>\n"
        f"<body>{SWITCH}<main>{body}</main></body></html>\n"
    )
