# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The `rxbook` command: help, and each mistake answered by one line and status 1."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import simulated_runs
from live import no_other_run
from perf_files import Recording
from rxbook import cli, doctor, execute, runs
from rxbook.plan import Plan, allowed
from rxbook.profile import record

COMMANDS = [
    "batch", "claims", "clean", "compare", "doctor", "mail", "parameters", "perf", "run", "runs", "scrub", "series",
    "show", "trend",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


@pytest.fixture
def rxbook(monkeypatch, capsys):
    """Runs the command line in this process; returns (status, stdout, stderr)."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["rxbook", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture
def no_traffic(monkeypatch):
    """Fails a test that gets as far as starting a notebook."""
    monkeypatch.setattr(execute, "_execute", lambda *_: pytest.fail("a notebook was started"))


def refusal(told):
    """The one line by which a command refused."""
    status, out, err = told
    assert status == 1 and out == "" and err.startswith("rxbook: ") and err.count("\n") == 1
    return err.removeprefix("rxbook: ").strip()


# --- help


def test_the_commands_are_listed_with_what_they_do(rxbook):
    status, out, _ = rxbook("--help")
    assert status == 0 and all(command in out for command in COMMANDS)
    assert sorted(command.callback.__name__ for command in cli.app.registered_commands) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    done = CliRunner().invoke(cli.app, [command, "--help"])
    assert done.exit_code == 0 and "Usage" in done.output
    callback = next(one.callback for one in cli.app.registered_commands if one.callback.__name__ == command)
    assert callback.__doc__.split(".")[0].split()[0] in done.output


def test_an_unknown_command_is_refused(rxbook):
    status, _, err = rxbook("rum")
    assert status == 2 and "No such command 'rum'" in err and "Traceback" not in err


def test_parameters_are_listed_with_default_meaning_and_what_is_allowed(rxbook):
    status, out, _ = rxbook("parameters")
    assert status == 0 and "frame_sizes=64\n" in out and "gro=off,on\n" in out and "seed=\n" in out
    for name, field in Plan.model_fields.items():
        assert f"{name}=" in out and field.description in out and allowed(name) in out


# --- run


@pytest.mark.usefixtures("no_traffic")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gro_on_of"], "no notebook is named gro_on_of; there are: "),
        (["../gro_on_off"], "no notebook is named ../gro_on_off; there are: "),
        (["gro_on_off", "--set", "frame_sizes"], "--set frame_sizes: write it as NAME=VALUE"),
        (["gro_on_off", "--set", "frame_size=64"], "did you mean frame_sizes?"),
        (["gro_on_off", "--set", "frame_sizes=20"], "choose 64 to 1518 bytes"),
        (["gro_on_off", "--set", "frame_sizes=90000"], "choose 64 to 1518 bytes"),
        (["gro_on_off", "--set", "aa=maybe"], "aa=maybe: say true or false"),
        (["gro_on_off", "--set", "flows=1", "--set", "flows=64"], "--set flows is given twice"),
        (["gro_on_off", "--set", "ip_version=6", "--set", "frame_sizes=128"], "zero UDP checksum"),
        (
            ["gro_on_off", "--resume", "unknown"],
            "'unknown' is no run folder, ",
        ),
        (["gro_on_off", "--resume", ""], "is no run folder"),
        (["gro_on_off", "--resume", "."], "is no run folder"),
        (["gro_on_off", "--resume", "a-run", "--set", "blocks=5"], "leave --set out"),
    ],
)
def test_a_mistake_is_answered_in_one_line(rxbook, tmp_path, words, said):
    simulated_runs.begin(tmp_path / "a-run", rows=1).close()
    assert said in refusal(rxbook("run", *words, "--runs-dir", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["a-run"]


@pytest.mark.usefixtures("no_traffic")
def test_a_run_that_is_going_on_is_not_resumed(rxbook, tmp_path):
    folder = simulated_runs.begin(tmp_path / "a-run", rows=1)
    said = refusal(rxbook("run", "gro_on_off", "--resume", "a-run", "--runs-dir", tmp_path))
    folder.close()
    assert said == "a-run is still running: wait for it, or end it"


def test_a_place_that_cannot_be_written_is_refused(rxbook, tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "_announce", lambda *_: None)
    (tmp_path / "file").write_text("")
    said = refusal(rxbook("run", "gro_on_off", "--runs-dir", tmp_path / "file"))
    assert "Not a directory; choose another place" in said


@pytest.mark.parametrize("resume", ["a-run", "runs/a-run", "runs/a-run/"])
def test_a_finished_run_is_shown_from_anywhere_however_named(rxbook, tmp_path, monkeypatch, resume):
    simulated_runs.finished(tmp_path / "runs" / "a-run")
    (tmp_path / "runs" / "a-run" / "report.html").write_text("")
    monkeypatch.chdir(tmp_path)
    status, out, err = rxbook("run", "gro_on_off", "--resume", resume, "--runs-dir", "runs")
    assert (status, err) == (0, "")
    assert "a-run is finished: nothing is measured again" in out and "UDP GRO, Mpps" in out
    assert "run folder  runs/a-run\n" in out


# --- progress in a terminal and in a file


class Terminal(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_of_a_resumed_run_ends_at_its_total(tmp_path, monkeypatch, is_terminal):
    """SIMULATED windows come in as the watcher looks; 1 of 4 in block 2 was there before."""
    folder = simulated_runs.begin(tmp_path / "run", rows=4 + 1)
    rows = simulated_runs.windows(folder.plan)[:4]
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal))
    waited = []

    class Ended:
        def wait(self, seconds):
            waited.append(seconds)
            for row in rows:
                folder.append(row | {"block": len(waited) + 1})
            return len(waited) > 5

    execute._watch(folder.path, folder.plan, Ended())
    folder.close()
    shown = sys.stderr.getvalue()
    assert "block 2/5, window 4/20, " in shown and "window 20/20, 0:00 left" in shown
    assert ("\r" in shown) is is_terminal and set(waited) == {1.0 if is_terminal else 10.0}
    assert shown.count("\n") == (0 if is_terminal else 5)


# --- doctor and clean


@pytest.mark.parametrize(("able", "status"), [(True, 0), (False, 1)])
def test_the_doctor_tells_a_script_by_its_status(rxbook, monkeypatch, able, status):
    check = doctor.Check(
        "root", "ok" if able else "missing", "as a test has it", "" if able else "run as root"
    )
    monkeypatch.setattr(doctor, "checks", lambda: [check])
    told = rxbook("doctor")
    assert told[0] == status and told[2] == ""
    assert ("A live run is possible." in told[1]) is able and told[1].endswith("\n")


@pytest.mark.needs_root
def test_clean_says_when_there_is_nothing_and_touches_no_run(rxbook):
    with no_other_run():
        status, out, err = rxbook("clean")
        assert (status, err) == (0, "") and out.startswith("a run is going on: nothing was touched")
    status, out, err = rxbook("clean")
    assert (status, err) == (0, "") and out


# --- perf: what is written instead of the table


@pytest.fixture
def perf_data(tmp_path):
    path = tmp_path / "perf.data"
    path.write_bytes(Recording().example())
    return path


@pytest.mark.parametrize("form", ["folded", "speedscope", "firefox"])
def test_an_export_is_on_stdout_and_its_warnings_are_not(rxbook, perf_data, form):
    status, out, err = rxbook("perf", perf_data, f"--{form}")
    assert status == 0 and "rxbook: WARNING: 3 samples were lost" in err and "WARNING" not in out
    if form == "folded":
        assert out.splitlines()[0].startswith("one;")
    else:
        assert json.loads(out)


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--folded", "--firefox"], "--firefox does not go with --folded"),
     (["--speedscope", "--only", "x"], "--only does not go with --speedscope"),
     (["--firefox", "--top", "20"], "--top does not go with --firefox"),
     (["--scrub", "copy", "--event", "x"], "--event does not go with --scrub"),
     (["--folded", "again"], "--folded takes one file, not 2")],
)  # fmt: skip
def test_what_an_export_would_not_heed_is_refused(rxbook, perf_data, options, words):
    assert words in refusal(rxbook("perf", perf_data, *options))


def test_a_scrubbed_copy_says_what_to_share_with_it(rxbook, perf_data, tmp_path):
    status, out, err = rxbook("perf", perf_data, "--scrub", tmp_path / "copy.data")
    assert status == 0 and err == "" and "--kallsyms" in out and (tmp_path / "copy.data").exists()
    assert max(map(len, out.replace(str(tmp_path), "").splitlines())) <= 76
    assert "exists already" in refusal(rxbook("perf", perf_data, "--scrub", tmp_path / "copy.data"))


# --- scrub


def test_scrub_says_where_the_copy_is(rxbook, tmp_path):
    simulated_runs.finished(tmp_path / "a-run")
    status, out, err = rxbook("scrub", tmp_path / "a-run", tmp_path / "copy")
    assert (status, err) == (0, "") and str(tmp_path / "copy") in out
    assert runs.load(tmp_path / "copy").status == "finished"
    assert "exists already" in refusal(rxbook("scrub", tmp_path / "a-run", tmp_path / "copy"))
    assert "no run folder" in refusal(rxbook("scrub", "unknown", tmp_path / "other"))
    assert not Path(tmp_path / "other").exists()


# --- runs, show, compare


@pytest.fixture
def place(tmp_path):
    """A folder of two finished runs and an interrupted one."""
    simulated_runs.finished(tmp_path / "one", variant="a")
    simulated_runs.finished(tmp_path / "two", variant="b")
    simulated_runs.begin(tmp_path / "three", rows=12, variant="c").close()
    return "--runs-dir", tmp_path


def test_runs_are_listed(rxbook, place):
    status, out, err = rxbook("runs", *place)
    assert (status, err) == (0, "") and len(out.splitlines()) == 3
    assert {line.split()[0] for line in out.splitlines()} == {"one", "two", "three"} and "interrupted" in out


def test_no_runs_are_said_to_be_none(rxbook, tmp_path):
    assert rxbook("runs", "--runs-dir", tmp_path) == (0, f"no runs in {tmp_path}\n", "")


def test_a_run_is_shown(rxbook, place):
    status, out, err = rxbook("show", "thr", *place)
    assert (status, err) == (0, "") and "MEASURED, INTERRUPTED" in out.upper() and "UDP GRO, Mpps" in out
    assert "t names 2 runs, say more of one" in refusal(rxbook("show", "t", *place))


@pytest.mark.parametrize(
    ("form", "said"),
    [("text", "b diff"), ("markdown", "| b diff |"), ("html", "<th>b diff"), ("csv", "off_mpps")],
)
def test_runs_are_compared_in_every_form(rxbook, place, form, said):
    status, out, err = rxbook("compare", "one", "tw", *place, "--format", form)
    assert status == 0 and said in out
    assert ("WARNING" in err) is (form == "csv") and (form == "csv") is not ("WARNING" in out)


def test_functions_of_two_runs_are_compared(rxbook, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(runs.SAMPLES / "bulk_cache", tmp_path / name)
    status, out, _ = rxbook("compare", "one", "two", "--functions", "--runs-dir", str(tmp_path))
    profiled = len(record.recorded(tmp_path / "one" / "profiles"))
    assert status == 0 and out.count("functions by share of time") == profiled > 1
    assert max(map(len, out.splitlines())) <= 72
    assert re.search(r"\nnapi_skb_cache_get_bulk\s+(\d\S+) +\1 +~ ", out)


@pytest.mark.parametrize("limit", [["--fail-below", "-3%"], ["--fail-below=-3%"]])
def test_a_script_is_told_that_short_runs_cannot_tell(rxbook, place, limit):
    status, out, err = rxbook("compare", "one", "two", *place, *limit)
    assert status == 4 and "b diff" in out and "rxbook: cannot tell whether below -3%: b, 64-byte" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one"], "1 run named: a comparison needs two or more"),
        (["one", "zebra"], "'zebra' is no run folder"),
        (["one", "two", "--value", "watts"], "--value watts: say mpps or ns_per_packet"),
        (["one", "two", "--format", "pdf"], "--format pdf: say one of text"),
        (["one", "two", "--fail-below", "3%"], "say -3% for a loss"),
        (["one", "two", "--fail-below", "-3%", "--value", "ns_per_packet"], "is a limit for rates"),
        (["one", "two", "--functions"], "has no profiles: measure with profile=true"),
        (["one", "two", "three", "--functions"], "--functions is for two runs, not 3"),
    ],
)
def test_a_wrong_comparison_is_refused(rxbook, place, words, said):
    assert said in refusal(rxbook("compare", *words, *place))
