# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Without root: the recorded sample is shown, says that it is recorded, and says nothing of whose machine it was."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from PIL import Image

import simulated_runs
from rxbook import doctor, render, report, runs, workbook
from rxbook.notebooks import NOTEBOOKS

BIN = Path(sys.executable).parent
NOBODY = 65534
REASON = "root: no: only recorded runs can be shown. run as root (sudo)"
MARK = r"RECORDED \d{4}-\d\d-\d\d on \d+-CPU (VM|machine), .+, Linux [\d.]+"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def simulated_sample(tmp_path, monkeypatch):
    """A sample of SIMULATED windows in the place of data/samples."""
    simulated_runs.finished(tmp_path / "run")
    runs.scrub(tmp_path / "run", tmp_path / "samples" / "gro_on_off")
    monkeypatch.setattr(runs, "SAMPLES", tmp_path / "samples")


@pytest.fixture
def machine_that_cannot_run_live(monkeypatch):
    monkeypatch.setattr(doctor, "can_run_live", lambda found: (False, [REASON]))


@pytest.fixture
def everyones_folder():
    """A folder in which also others than root may read and write, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def assert_says_recorded(run):
    assert re.fullmatch(MARK, run.source)
    for table in report.tables_of(run).values():
        flat = " ".join(render.text(table).split())
        assert re.search(MARK, flat), flat
        for written in (render.markdown(table), render.html(table), render.csv(table)):
            assert "RECORDED" in written and run.host["date_utc"][:10] in written
    for name in report.FIGURES:
        figure = report.figure_of(run, name)
        shown = " ".join(text.get_text() for text in figure.findobj(lambda item: hasattr(item, "get_text")))
        assert re.search(MARK, " ".join(shown.split())), shown


@pytest.mark.usefixtures("simulated_sample", "machine_that_cannot_run_live")
def test_the_recorded_sample_is_shown_and_marked_everywhere(tmp_path, capsys):
    run = workbook.run("gro_on_off", {"frame_sizes": 64, "runs_dir": str(tmp_path / "runs")})
    assert run.recorded and run.status == "finished"
    assert_says_recorded(run)
    said = capsys.readouterr().err
    assert said.startswith("RECORDED sample, nothing was measured here: root: no")
    assert "sudo" in said and "`rxbook doctor` names each remedy" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("simulated_sample", "machine_that_cannot_run_live")
def test_wrong_parameters_are_refused_all_the_same():
    with pytest.raises(workbook.RxbookError, match="frame_sizes=20"):
        workbook.run("gro_on_off", {"frame_sizes": 20})


@pytest.mark.usefixtures("simulated_sample")
def test_a_measured_run_is_never_marked_recorded_and_a_sample_always(tmp_path):
    assert "RECORDED" not in runs.load(tmp_path / "run").source
    assert re.match(MARK, runs.load(tmp_path / "samples" / "gro_on_off").source)


@as_root
@pytest.mark.usefixtures("simulated_sample")
def test_a_user_without_root_is_shown_the_sample(everyones_folder):
    shutil.copytree(runs.SAMPLES, everyones_folder / "samples")
    # the packages may lie where only root can read them, so they are loaded before root is given up
    code = (
        "import os, pathlib, sys, scipy.special; from rxbook import doctor, report, render, runs, workbook\n"
        "runs.SAMPLES = pathlib.Path(sys.argv[1]); doctor.checks()\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "run = workbook.run('gro_on_off', {}); print(render.text(report.table_of(run, 'gro')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, everyones_folder / "samples"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "RECORDED sample, nothing was measured here: root: no" in done.stderr
    assert re.search(MARK, " ".join(done.stdout.split()))


# --- the sample that is kept


@pytest.fixture(scope="module")
def kept():
    return runs.recorded("gro_on_off")


def test_every_notebook_has_a_sample():
    notebooks = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    assert notebooks <= {path.name for path in runs.SAMPLES.iterdir()}


def test_the_sample_is_a_finished_run_and_says_recorded(kept):
    assert kept.recorded and kept.status == "finished"
    assert {"plan.json", "host.json", "samples.csv", "run.json"} <= {
        file.name for file in kept.path.iterdir()
    }
    assert list(kept.samples.columns) == runs.COLUMNS
    per_block = len(kept.plan.cells("x"))
    assert not runs.blocks_left(kept.path, kept.plan, per_block)
    assert_says_recorded(kept)


def test_the_sample_answers_what_reviewers_asked(kept):
    assert set(kept.samples["udp_csum"]) == {"computed", "zero"} and 64 in set(kept.samples["frame_size"])
    table = render.text(report.table_of(kept, "gro"))
    assert "UDP checksum computed" in table and "UDP checksum zero" in table


def test_the_sample_names_nobody_and_no_place(kept):
    for file in kept.path.iterdir():
        # of a picture what its maker wrote into it: any few bytes may stand among its pixels
        text = str(Image.open(file).info) if file.suffix == ".png" else file.read_text()
        assert not re.search(r"/(home|root|work|usr|tmp|mnt|opt|var)\b", text), file
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text), file
        assert "argv" not in text and "rxb" not in text.replace("rxbook", ""), file


# another user may not be able to read the packages; root of which a user namespace makes a mere user can
MERE_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def test_the_whole_command_without_root(tmp_path, kept):
    user = () if os.geteuid() else MERE_USER
    if user and (
        not shutil.which("unshare") or subprocess.run([*user, "true"], capture_output=True).returncode
    ):
        pytest.skip("unshare cannot make a user namespace here")
    done = subprocess.run(
        [*user, BIN / "rxbook", "run", "gro_on_off", "--runs-dir", "runs"],
        capture_output=True, text=True, timeout=90, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RECORDED sample, nothing was measured here: root") == 1
    assert re.search(MARK, " ".join(done.stdout.split()))
    assert "of traffic" not in done.stdout and "run folder" not in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    page = (folder / "report.html").read_text()
    assert "RECORDED" in page and page.count("<img") == 2
    assert runs.list_runs(tmp_path / "runs") == []  # what is shown is no run of this machine
