# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The notebook in each of its ways in, with real traffic; what Ctrl-C and kill -9 leave, and how a run goes on.

A run's start takes seconds, so two runs are told as stories, and the tests look at what each of their chapters left.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from live import no_other_run
from rxbook import RxbookError, execute, notebooks, progress, report, runs, workbook
from rxbook.notebooks import NOTEBOOKS
from rxbook.plan import INPUTS, Plan, make_plan
from rxbook.workbook import PLACE

import papermill  # isort: skip

BIN = Path(sys.executable).parent
NOTEBOOK = NOTEBOOKS / "gro_on_off.ipynb"
BLOCKS = 10
BUSY = "another run measures"
DIFFERENT = {
    "gro_on_off": {"frame_sizes", "udp_csum", "top"},
    "function_cycles": {"frame_sizes", "flows", "burst", "shapes", "blocks", "profile_s", "profile_repeats"},
    "bulk_cache": {"frame_sizes", "udp_csum", "flows", "burst", "blocks", "heads", "functions", "top"},
}
"""Parameters whose default in a notebook is not the plan's own."""


# --- processes


@dataclasses.dataclass
class Ended:
    """A command that has ended. windows: in samples.csv when it was killed; left: its processes 3 s later."""

    status: int
    out: str
    err: str
    windows: int = 0
    left: Sequence[int] = ()


class Command:
    """A command in another folder than the project's, started again where another run took the testbed first."""

    def __init__(self, folder: Path, *words: object):
        self._folder, self._words = folder, [str(word) for word in words]
        self._before = self._windows()
        self._start()

    def _start(self) -> None:
        with no_other_run():
            pass
        with open(self._folder / "out.txt", "w") as out, open(self._folder / "err.txt", "w") as err:
            self._process = subprocess.Popen(self._words, cwd=self._folder, stdout=out, stderr=err)

    def end(self) -> Ended:
        """Wait for its end."""
        self._wait(lambda: False)
        return self._ended()

    def kill(self, number: int, after: int) -> Ended:
        """Send it a signal as soon as it has measured that many windows."""
        self._wait(lambda: self._windows() >= self._before + after)
        windows, family = self._windows(), descendants(self._process.pid)
        self._process.send_signal(number)
        return self._ended(windows, family)

    def _wait(self, enough: Callable[[], bool]) -> None:
        while not enough():
            time.sleep(0.02)
            if self._process.poll() is not None:
                if BUSY not in self._said("err"):
                    return
                self._start()

    def _ended(self, windows: int = 0, family: Sequence[int] = ()) -> Ended:
        status = self._process.wait(30)
        deadline = time.monotonic() + 3
        while (left := [pid for pid in family if alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        return Ended(status, self._said("out"), self._said("err"), windows, left)

    def _windows(self) -> int:
        return sum(map(progress.windows_in, self._folder.glob("runs/*/samples.csv")))

    def _said(self, name: str) -> str:
        return (self._folder / f"{name}.txt").read_text()


def descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def alive(pid: int) -> bool:
    """Whether a thread of the process still runs; its first may have ended before the others."""
    try:
        stats = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # one ended as we looked
        return alive(pid)
    return any(stat.rpartition(")")[2].split()[0] not in "ZX" for stat in stats)


def only_run(folder: Path) -> Path:
    (path,) = (folder / "runs").iterdir()
    return path


# --- two runs, told from beginning to end


class Story:
    """What was seen of one run: how each chapter ended, and the run's status then."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.chapters: dict[str, Ended] = {}
        self.status: dict[str, str] = {}

    def tell(self, chapter: str, ended: Ended) -> None:
        self.chapters[chapter] = ended
        self.status[chapter] = runs.status(self.path)

    @property
    def path(self) -> Path:
        (only,) = (self.folder / "runs").iterdir()
        return only


@pytest.fixture(scope="module")
def by_command(tmp_path_factory):
    """`rxbook run` ended by Ctrl-C, resumed, ended by kill -9, and resumed to its end."""
    story = Story(tmp_path_factory.mktemp("by_command"))
    rxbook = (story.folder, BIN / "rxbook", "run", "gro_on_off", "--runs-dir", "runs")
    short = {"window_s": 0.05, "profile_s": 0.1, "profile_repeats": 1, "heads": True}
    new = Command(*rxbook, *settings(frame_sizes=64, udp_csum="computed", blocks=BLOCKS, **short))
    story.tell("Ctrl-C", new.kill(signal.SIGINT, after=3))
    resume = (*rxbook, "--resume", story.path.name)
    story.tell("kill -9", Command(*resume).kill(signal.SIGKILL, after=3))
    story.tell("finished", Command(*resume).end())
    return story


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """`papermill` by hand, ended by kill -9, and gone on with by the same command."""
    story = Story(tmp_path_factory.mktemp("by_hand"))
    words = (
        story.folder, BIN / "papermill", NOTEBOOK, "out.ipynb", "-k", "python3",
        "-p", "frame_sizes", "64", "-y", "{gro: [off, on], udp_csum: [computed]}", "-p", "blocks", BLOCKS,
        "-p", "window_s", "0.05", "-p", "profile", "false",
        "-p", "runs_dir", story.folder / "runs", "-p", "run_name", "mine",
    )  # fmt: skip
    story.tell("kill -9", Command(*words).kill(signal.SIGKILL, after=3))
    story.tell("finished", Command(*words).end())
    return story


def settings(**parameters):
    return [word for name, value in parameters.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module", params=["by_command", "by_hand"])
def story(request):
    return request.getfixturevalue(request.param)


@pytest.mark.needs_root
def test_kill_9_leaves_no_process_and_no_window_is_lost(story):
    killed = story.chapters["kill -9"]
    assert killed.status == -signal.SIGKILL and not killed.left
    assert story.status["kill -9"] == "interrupted"
    assert 3 <= killed.windows <= len(runs.load(story.path).samples)


@pytest.mark.needs_root
def test_an_interrupted_run_is_gone_on_with_to_its_end(story):
    assert story.chapters["finished"].status == 0, story.chapters["finished"].err
    assert story.status["finished"] == "finished"
    run = runs.load(story.path)
    sizes = run.samples.groupby("block").size()
    assert (sizes == 2).sum() == BLOCKS
    assert len(run.samples) - 2 * BLOCKS <= 2  # blocks that an end cut, of one window each
    record = json.loads((story.path / "run.json").read_text())
    assert record["status"] == "finished" and record["windows"] < len(run.samples)


@pytest.mark.needs_root
def test_real_frames_were_measured(story):
    samples = runs.load(story.path).samples
    assert list(samples.columns) == runs.COLUMNS
    assert samples["window_s"].between(0.04, 0.2).all() and (samples["frames"] > 0).any()
    segs = samples.groupby("gro")["segs_per_skb"].median()
    assert segs["off"] == pytest.approx(1, abs=0.01) and segs["on"] > 4


@pytest.mark.needs_root
def test_ctrl_c_ends_in_one_line_that_says_how_to_go_on(by_command):
    ended = by_command.chapters["Ctrl-C"]
    assert ended.status == 130 and not ended.left
    assert by_command.status["Ctrl-C"] == "interrupted"
    assert len(ended.err.strip().splitlines()) == 1, ended.err
    assert re.fullmatch(
        rf"rxbook: interrupted; \d+ windows are kept: rxbook run gro_on_off --resume {by_command.path.name} "
        r"--runs-dir runs",
        ended.err.strip(),
    )


@pytest.mark.needs_root
def test_the_terminal_shows_the_table_and_where_all_lies(by_command):
    shown = by_command.chapters["finished"].out
    table = (by_command.path / "tables" / "gro.txt").read_text()
    assert table.strip() in shown and "UDP GRO, Mpps" in table
    assert max(map(len, table.splitlines())) <= 72 and table.isascii()
    assert f"\nfor a mail  rxbook mail runs/{by_command.path.name}\n" in shown
    for name in ("", "/report.html"):
        assert re.search(rf"^[a-z ]+  runs/{by_command.path.name}{name}$", shown, re.MULTILINE)
    assert "Traceback" not in by_command.chapters["finished"].err


@pytest.mark.needs_root
def test_the_run_folder_is_complete(by_command):
    promised = re.findall(r"^\| ([a-z][\w./, ]+?) \|", (runs.RUNS / "README.md").read_text(), re.MULTILINE)
    names = {name.strip("/") for cell in promised for name in cell.split(", ") if name != "file"}
    assert {"samples.csv", "tables", "report.html", "log.txt", "run.json"} <= names
    if shutil.which("perf") is None:
        names.remove("profiles")
    there = {file.name for file in by_command.path.iterdir()}
    run = runs.load(by_command.path)
    flagged = report.pyperf_suite(run.samples, run.source) is None  # on a busy machine, every window may be
    assert there == names - {"bench.json"} if flagged else there == names
    log = (by_command.path / "log.txt").read_text()
    assert log.count("measuring") == 3 and "interrupted: KeyboardInterrupt" in log and "finished" in log


@pytest.mark.needs_root
def test_the_page_stands_alone(by_command):
    page = (by_command.path / "report.html").read_text()
    assert page.count("<img") == 2 == page.count("data:image/png;base64,")
    assert page.count("<table") >= 3 and "UDP GRO, Mpps" in page
    assert not re.search(r"<script|<link|https?://|@import|url\(", page)
    assert str(by_command.folder) not in page and by_command.path.name in page
    assert len(page) < 100_000


@pytest.mark.needs_root
def test_a_finished_run_is_shown_and_not_written_again(by_command, capsys):
    before = {file: file.read_bytes() for file in by_command.path.rglob("*") if file.is_file()}
    execute.run("gro_on_off", {}, by_command.path.name, by_command.path.parent)
    shown = capsys.readouterr().out
    assert "nothing is measured again" in shown and "UDP GRO, Mpps" in shown
    assert {file: file.read_bytes() for file in by_command.path.rglob("*") if file.is_file()} == before


# --- refused


@pytest.mark.needs_root
def test_a_second_run_is_told_who_holds_the_testbed_and_leaves_nothing(tmp_path):
    with no_other_run():
        done = subprocess.run(
            [BIN / "rxbook", "run", "gro_on_off", "--runs-dir", tmp_path / "runs"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        with pytest.raises(RxbookError, match="another run measures"):
            workbook.run("gro_on_off", {"runs_dir": str(tmp_path / "runs"), "run_name": "mine"})
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"rxbook: another run measures on this machine: process {os.getpid()}, tests"
    )
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("runs/*"))


def test_a_parameter_misspelt_by_hand_is_refused_in_one_line(tmp_path):
    done = subprocess.run(
        [BIN / "papermill", NOTEBOOK, "out.ipynb", "-k", "python3", "-p", "frame_size", "64",
         "-p", "runs_dir", tmp_path / "runs"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    words = "rxbook: unknown parameter frame_size=64; did you mean frame_sizes?"
    assert done.returncode != 0 and words in done.stderr
    assert "lib/rxbook" not in done.stderr  # papermill's own traceback follows its own ways
    cells = json.loads((tmp_path / "out.ipynb").read_text())["cells"]
    errors = [out for cell in cells for out in cell.get("outputs", []) if out["output_type"] == "error"]
    assert [error["traceback"] for error in errors] == [[words]]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "/tmp/run", "."])
def test_a_run_name_is_no_path(tmp_path, name):
    with pytest.raises(RxbookError, match="no plain name"):
        workbook.run("gro_on_off", {"runs_dir": str(tmp_path), "run_name": name})
    assert not list(tmp_path.iterdir())


# --- as stored


MEASURING = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.stem != "explore"]


@pytest.mark.parametrize("notebook", MEASURING, ids=lambda path: path.stem)
def test_a_notebook_that_measures_declares_every_parameter_with_the_plans_default(notebook):
    declared = papermill.inspect_notebook(str(notebook))
    inputs = {name: declared.pop(name)["default"] for name in INPUTS if name in declared}
    assert set(declared) == {*Plan.model_fields, *PLACE}
    assert inputs == (dict.fromkeys(INPUTS, "[]") if notebook.stem == "function_cycles" else {})
    given = {name: ast.literal_eval(about["default"]) for name, about in declared.items()}
    assert [given.pop(name) for name in PLACE] == ["", ""]
    own, plans = make_plan(given).model_dump(), Plan().model_dump()
    assert {name for name in own if own[name] != plans[name]} <= DIFFERENT[notebook.stem]


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_papermill_tells_type_and_help_of_each_parameter(notebook):
    told = papermill.inspect_notebook(str(notebook))
    assert set(told) >= set(notebooks.declared(notebook.stem)) and len(told) > 1
    for name, about in told.items():
        assert about["inferred_type_name"] not in ("None", "") and about["help"], name


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
