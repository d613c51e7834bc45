# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""JupyterLab as a person uses it, in a real browser: a run is measured, then explored.

One run for all: starting the lab takes seconds. The tests look at what each chapter left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import no_other_run
from rxbook import runs
from rxbook.notebooks import NOTEBOOKS

CHROMIUM = shutil.which("chromium")
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]

START_S, RUN_S = 60, 120
ERROR = "[data-mime-type='application/vnd.jupyter.stderr']"
"""What the lab takes for a cell's error, and for what it printed to stderr: neither is there when all is well."""
IDLE = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
SETTINGS = {
    # news would be fetched from outside; cells out of sight would be taken off the page
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}
RAN = r"""error => document.querySelector(error)
|| /\[\d+\]/.test([...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].at(-1).textContent)"""
CHANGES = "([name, before]) => document.querySelector(`img[alt=${name}]`).src != before"
WIDTHS = (
    "all => all.map(each => [each.querySelector('text')?.textContent, each.getBoundingClientRect().width])"
)
"""Name and width in pixels of each function of a flame graph."""
CHANGED = """
frame_sizes = [64, 512]
udp_csum = "computed"
blocks = 8
profile_s = 0.2
profile_repeats = 1
call_graph = True
"""


def write_home(home: Path) -> dict[str, str]:
    """A lab's settings, and a kernel of this interpreter by the notebooks' name; returns its environment."""
    for name, setting in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(setting))
    kernel = home / "data" / "kernels" / "rxbook" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "rxbook", "language": "python"}))
    rooms = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
    own = {f"JUPYTER_{name}": str(home / room) for name, room in rooms.items()}
    own |= {f"JUPYTERLAB_{name.upper()}_DIR": str(home / name) for name in ("settings", "workspaces")}
    return os.environ | own | {"IPYTHONDIR": str(home / "ipython")}


@contextlib.contextmanager
def jupyter_lab(home: Path) -> Iterator[str]:
    """A lab over a copy of the notebooks, in a process of its own; gives its address."""
    shutil.copytree(NOTEBOOKS, home / "notebooks", ignore=shutil.ignore_patterns(".*"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex()
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
        f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home / 'notebooks'}",
        "--ServerApp.port_retries=0", "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    with open(home / "lab.log", "w") as log:
        lab = subprocess.Popen(command, env=write_home(home), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert lab.poll() is None and time.monotonic() < deadline, (home / "lab.log").read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/lab/tree/{{notebook}}?token={token}&reset"
    finally:
        lab.terminate()  # it ends its kernels
        try:
            lab.wait(15)
        except subprocess.TimeoutExpired:
            lab.kill()
            lab.wait()


class Lab:
    """A page of the lab, what it told, and what was seen in the chapters."""

    def __init__(self, page, address: str):
        self.page, self._address = page, address
        self.told: list[str] = []
        self.outside: list[str] = []
        page.on("pageerror", lambda error: self.told.append(str(error)))
        page.on("console", lambda said: self.told.append(said.text) if said.type == "error" else None)
        page.on("request", self._requested)

    def _requested(self, request) -> None:
        if not re.match(r"(https?|wss?)://127\.0\.0\.1:|data:|blob:", request.url):
            self.outside.append(request.url)

    def open(self, notebook: str) -> None:
        self.page.goto(self._address.format(notebook=notebook), timeout=START_S * 1000)
        self.page.wait_for_selector(IDLE, timeout=START_S * 1000)

    def add_to_parameters(self, lines: str) -> None:
        """Type lines at the end of the cell that begins with the parameters."""
        self.page.locator(".jp-CodeCell .cm-content").first.click()
        self.page.keyboard.press("Control+End")
        self.page.keyboard.insert_text(lines)

    def run_all(self) -> None:
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

    def wait_until_run(self) -> None:
        """Wait until the last cell has its number, or a cell failed."""
        self.page.wait_for_function(RAN, arg=ERROR, timeout=RUN_S * 1000)
        self.page.wait_for_selector(IDLE, timeout=RUN_S * 1000)

    def outputs(self) -> list[str]:
        """The first words of each output."""
        return [text[:200] for text in self.page.locator(".jp-OutputArea-output").all_inner_texts()]

    def errors(self) -> list[str]:
        """What cells raised."""
        return self.page.locator(ERROR).all_inner_texts()

    def cell(self, source: str):
        """The code cell with this source."""
        return self.page.locator(".jp-CodeCell").filter(has_text=source)

    def picture(self, name: str) -> str:
        """What the picture of this name shows now."""
        return self.page.locator(f"img.rxbook-picture[alt={name}]").get_attribute("src")


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """What was seen of a run measured in the lab, and of exploring it."""
    home = tmp_path_factory.mktemp("lab")
    seen: dict[str, object] = {}
    with jupyter_lab(home) as address, sync_api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1400, "height": 1200})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        lab = Lab(context.new_page(), address)
        try:
            measure(lab, home, seen)
            explore(lab, home, seen)
        except Exception as error:
            lab.page.screenshot(path=home / "failed.png")
            error.add_note(f"told: {lab.told}; outputs: {lab.outputs()}; picture: {home / 'failed.png'}")
            raise
        seen |= {"told": lab.told, "outside": lab.outside}
        browser.close()
    return seen


def measure(lab: Lab, home: Path, seen: dict[str, object]) -> None:
    lab.open("gro_on_off.ipynb")
    lab.add_to_parameters(f"{CHANGED}runs_dir = {str(home / 'runs')!r}\n")
    progress = lab.page.locator(".jp-OutputArea-output", has_text=re.compile(r"block \d+/8, window \d+/32"))
    failed = lab.page.locator(ERROR)
    while True:  # another run may take the testbed first
        with no_other_run():
            pass
        lab.run_all()
        progress.or_(failed).first.wait_for(timeout=RUN_S * 1000)
        if not any("another run measures" in error for error in lab.errors()):
            break
    seen["progress"] = progress.inner_text()
    lab.wait_until_run()
    seen["table"] = lab.page.locator("table.rxbook caption").all_inner_texts()
    seen["measured errors"] = lab.errors()
    seen["runs"] = runs.list_runs(home / "runs")
    seen["plan"] = runs.load(home / "runs" / seen["runs"][0][0]).plan


def explore(lab: Lab, home: Path, seen: dict[str, object]) -> None:
    page = lab.page
    lab.open("explore.ipynb")
    lab.add_to_parameters(f"\nruns_dir = {str(home / 'runs')!r}\nruns = ['nonsense']\n")
    lab.run_all()
    page.locator(ERROR).wait_for(timeout=RUN_S * 1000)
    seen["refused"] = lab.errors()
    lab.add_to_parameters("runs = []\n")
    lab.run_all()
    page.locator(".rxbook-filters").wait_for(timeout=RUN_S * 1000)
    lab.wait_until_run()
    seen["opened"] = page.locator(".jp-OutputArea-output", has_text="[1] ").first.inner_text()
    before = {name: lab.picture(name) for name in ("gro_bars", "window_strip", "by_axis")}
    page.locator(".rxbook-filters button", has_text="512").click()
    page.get_by_text("2 of 4 cells").wait_for()
    for name in before:
        with contextlib.suppress(sync_api.TimeoutError):  # the test says which did not change
            page.wait_for_function(CHANGES, arg=[name, before[name]], timeout=30_000)
    seen["changed"] = {name for name, shown in before.items() if lab.picture(name) != shown}
    tables = lab.cell('view.table("gro")')
    seen["copied from"] = tables.locator("details pre").text_content()
    tables.locator("button.rxbook-copy").click()
    seen["copied"] = page.evaluate("navigator.clipboard.readText()")
    lab.cell('view.picture("gro_bars")').locator("button.rxbook-save").click()
    lab.cell('view.picture("gro_bars")').get_by_text(".svg, .png").wait_for()
    seen["saved"] = sorted(path.name for path in (home / "runs" / "explored").iterdir())
    if shutil.which("perf"):
        look_at_pair(lab, seen)
    seen["explored errors"] = lab.errors()


def look_at_pair(lab: Lab, seen: dict[str, object]) -> None:
    pair = lab.cell("view.pair()")
    heading = pair.locator("thead th", has_text="function").first
    orders = []
    for order in ("ascending", "descending"):
        heading.locator(".dt-column-order").click()
        pair.locator(f"thead th[aria-sort={order}]", has_text="function").first.wait_for()
        orders.append(pair.locator("tbody tr td:first-child").all_inner_texts())
    seen["orders"] = orders
    seen["copies"] = pair.locator(".dt-button").all_inner_texts()
    seen["columns"] = pair.locator("thead th").all_inner_texts()
    slices = pair.locator(".icicle .slice")
    slices.first.wait_for()
    seen["slices"] = slices.evaluate_all(WIDTHS)
    widest = max(width for _, width in seen["slices"])
    number, (name, _) = next(
        (i, each) for i, each in enumerate(seen["slices"]) if each[0] and 30 < each[1] < 0.8 * widest
    )
    slices.nth(number).locator("path").click()
    lab.page.wait_for_timeout(1500)  # the zoom is animated
    seen["zoomed"] = name, dict(slices.evaluate_all(WIDTHS))[name], widest


# --- what was seen


def test_progress_and_the_table_are_seen(story):
    assert re.search(r"block \d+/8, window \d+/32", story["progress"])
    assert any(re.match(r"UDP GRO, Mpps \(measured ", caption) for caption in story["table"])
    assert story["measured errors"] == []


def test_the_changed_parameters_were_measured(story):
    assert [status for _, status in story["runs"]] == ["finished"]
    assert story["plan"].blocks == 8 and story["plan"].frame_sizes == [64, 512] and story["plan"].call_graph


def test_a_wrong_name_is_refused_in_one_line(story):
    (words,) = story["refused"]
    assert words.startswith("rxbook: 'nonsense' is no run folder") and len(words.strip().splitlines()) == 1


def test_explore_opens_the_newest_run_without_an_error(story):
    assert story["opened"].startswith(f"[1] {story['runs'][0][0]}: 32 windows")
    assert story["explored errors"] == []


def test_every_plot_follows_a_filter(story):
    assert story["changed"] == {"gro_bars", "window_strip", "by_axis"}


def test_a_table_is_copied_as_text(story):
    assert story["copied"] == story["copied from"]
    assert "UDP GRO, Mpps" in story["copied"] and max(map(len, story["copied"].splitlines())) <= 72


def test_a_picture_is_saved_in_both_forms(story):
    (name, _) = story["runs"][0]
    assert story["saved"] == [f"{name}-gro_bars-1.png", f"{name}-gro_bars-1.svg"]


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed: no profile to look at")
def test_functions_are_sorted_and_the_flame_graph_zooms(story):
    first, second = story["orders"]
    assert first == sorted(first) and first != second
    name, width, widest = story["zoomed"]
    assert dict(story["slices"])[name] < 0.8 * widest < width


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed: no profile to look at")
def test_the_two_cells_are_still_two_after_a_filter(story):
    named = " ".join(story["columns"])
    assert "GRO off, %" in named and "GRO on, %" in named
    assert story["copies"] == ["Copy", "CSV"]


def test_the_lab_reports_no_error_and_asks_nothing_from_outside(story):
    assert story["told"] == [] and story["outside"] == []
