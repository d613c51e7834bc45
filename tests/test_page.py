# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The page of a run, in a real browser: nothing that comes from input runs, and it fits a phone and a dark room."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import escape

import nbformat
import pytest
from nbformat import v4
from PIL import Image

import simulated_runs
import synthetic_profiles
from rxbook import function_cycles, page, render, report
from rxbook.plan import make_plan
from rxbook.profile import saved

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--allow-file-access-from-files")  # fmt: skip
SCRIPT = "<script>document.title='owned'</script>"
VARIANT = "<img src=x onerror=alert(1)>"

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page with the tables and pictures of a simulated run, and a profile with a symbol that is a script."""
    folder = tmp_path_factory.mktemp("page")
    run = simulated_runs.finished(folder / "run", tables=True, variant=VARIANT)
    saved.save(synthetic_profiles.profile({SCRIPT: 60, "inet_gro_receive": 40}), folder / "evil.csv")
    tables = function_cycles.comparison([str(folder / "evil.csv")], [], make_plan({}))
    outputs = [
        {"text/html": render.html(table)} for table in (*report.tables_of(run).values(), *tables.values())
    ]
    notebook = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# Simulated"),
            v4.new_code_cell(
                f"code = {SCRIPT!r}\nruns_dir = '/home/somebody'\nrun_name = 'x'\n",
                outputs=[
                    v4.new_output("stream", text=f"{SCRIPT} in a stream\n"),
                    *(v4.new_output("display_data", data) for data in outputs),
                ],
            ),
        ]
    )
    nbformat.write(notebook, folder / "notebook.ipynb")
    page.write(folder / "notebook.ipynb", folder / "report.html", f"run {SCRIPT}")
    return folder / "report.html"


def browse(written, *options):
    profile = written.parent / "browser"
    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_page_has_no_script_and_no_outside_link(written):
    text = written.read_text()
    assert not re.search(r"<script|<link|https?://|@import|url\(|<img(?! src=.data:)", text)
    assert "/home/somebody" not in text and "<span" not in text


@needs_browser
def test_input_is_shown_as_text_and_does_not_run(written):
    shown = browse(written, "--dump-dom", written.as_uri())
    assert f"<title>run {escape(SCRIPT, quote=False)}</title>" in shown
    assert shown.count("&lt;script&gt;document.title") >= 3 and "<script" not in shown
    assert "&lt;img src=x onerror" in shown and "owned</title>" not in shown


@needs_browser
def test_a_phone_needs_no_sideways_scrolling_and_code_waits_for_its_switch(written):
    frame = written.with_name("frame.html")
    frame.write_text(
        f"<iframe id=f width=390 height=800 src={written.name}></iframe><p id=said></p><script>onload=()=>{{"
        "const d=f.contentDocument,code=()=>getComputedStyle(d.querySelector('.input')).display;"
        "said.textContent=d.documentElement.scrollWidth+' '+code();d.getElementById('code').click();"
        "said.textContent+=' '+code()}</script>"
    )
    width, hidden, shown = re.search(
        r"<p id=\"?said\"?>(\d+) (\w+) (\w+)", browse(written, "--dump-dom", frame.as_uri())
    ).groups()
    assert int(width) <= 390 and (hidden, shown) == ("none", "block")


@needs_browser
@pytest.mark.parametrize(
    ("options", "dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)]
)
def test_the_page_follows_the_readers_light_or_dark(written, options, dark):
    picture = written.with_name("shot.png")
    browse(written, *options, "--window-size=800,600", f"--screenshot={picture}", written.as_uri())
    with Image.open(picture) as shot:
        assert (sum(shot.convert("RGB").getpixel((5, 300))) < 200) == dark
