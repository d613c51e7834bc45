# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The run folder, on SIMULATED windows: what a kill leaves, what resuming does, what loading gives."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import simulated_runs
from rxbook import RxbookError, measure, report, runs
from rxbook.plan import Cell, make_plan

PER_BLOCK = 4


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "a-run"


def lines(path):
    return (path / "samples.csv").read_bytes().splitlines()


# --- writing


def test_each_window_is_on_disk_when_append_returns(path):
    folder = simulated_runs.begin(path, rows=0)
    for count, row in enumerate(simulated_runs.windows(folder.plan), 1):
        folder.append(row)
        assert len(lines(path)) == count + 1
        assert (path / "samples.csv").read_bytes().endswith(b"\n")
    folder.close()
    assert lines(path)[0].decode() == ",".join(runs.COLUMNS)


def test_the_folder_says_what_it_measures_before_it_measures(path):
    folder = simulated_runs.begin(path, rows=0)
    folder.close()
    record = json.loads((path / "plan.json").read_text())
    assert record["parameters"]["frame_sizes"] == [64] and record["seed"] == 1
    assert record["fingerprint"] == folder.plan.fingerprint() and record["argv"] == sys.argv
    assert json.loads((path / "host.json").read_text())["cpu_count"] > 0
    assert not list(path.glob("*.part"))


def test_run_json_comes_last(path):
    folder = simulated_runs.begin(path)
    assert not (path / "run.json").exists()
    folder.finish({"wall_s": 2.0})
    record = json.loads((path / "run.json").read_text())
    assert record["status"] == "finished" and record["wall_s"] == 2.0
    assert record["parameters"] == folder.plan.model_dump() and "python" in record["versions"]


def test_a_plan_survives_its_run_folder(path):
    folder = simulated_runs.begin(path, flows="1,64", burst="1,16", drop_tcp="false", seed=None)
    folder.close()
    assert runs.load(path).plan == folder.plan


def test_a_folder_that_cannot_be_made_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RxbookError, match=r"file/run: Not a directory; choose another place"):
        simulated_runs.begin(tmp_path / "file" / "run")


# --- status


def test_status_is_running_while_written_then_interrupted_then_finished(path):
    folder = simulated_runs.begin(path, rows=3)
    assert runs.status(path) == runs.load(path).status == "running"
    folder.close()
    assert runs.status(path) == runs.load(path).status == "interrupted"
    assert runs.load(path).source == "measured, interrupted"
    folder = runs.Folder.resume(path, folder.plan)
    assert runs.status(path) == "running"
    folder.finish({})
    assert runs.status(path) == runs.load(path).status == "finished"
    assert runs.load(path).source == "measured"


def test_a_killed_writer_leaves_an_interrupted_run(path):
    code = (
        "import os, signal, sys; from pathlib import Path; import simulated_runs; "
        "folder = simulated_runs.begin(Path(sys.argv[1]), rows=5); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path(__file__).parent, timeout=60)
    assert done.returncode == -9
    assert runs.status(path) == "interrupted" and len(runs.load(path).samples) == 5


def began(path, started):
    """An interrupted run of one window that began then."""
    simulated_runs.begin(path, rows=1).close()
    record = json.loads((path / "plan.json").read_text())
    runs.write_json(path / "plan.json", record | {"started_utc": started})
    return path


def test_runs_are_listed_by_when_they_began_and_other_folders_are_none(tmp_path):
    began(tmp_path / "mine", "2026-12-02T10:00:00+00:00")
    began(tmp_path / "yours", "2026-12-01T10:00:00+00:00")
    (tmp_path / "notes").mkdir()
    assert runs.list_runs(tmp_path) == [("yours", "interrupted"), ("mine", "interrupted")]
    assert runs.list_runs(tmp_path / "nowhere") == []


@pytest.mark.parametrize("name", ["plan.json", "host.json", "samples.csv"])
def test_a_damaged_run_is_listed_and_refused_in_words(tmp_path, name):
    path = began(tmp_path / "mine", "2026-12-02T10:00:00+00:00")
    with open(path / name, "a") as file:
        file.write("{,\nx" + "," * 99 + "\n")
    assert runs.list_runs(tmp_path) == [("mine", "interrupted")]
    with pytest.raises(RxbookError, match=r"mine: plan.json, host.json or samples.csv is damaged \(.+\)"):
        runs.load(path)


# --- naming


@pytest.fixture
def three(tmp_path):
    """Three runs, of which the one whose name sorts first began last."""
    for day, name in ((3, "a-patch"), (1, "baseline"), (2, "baseline-again")):
        began(tmp_path / name, f"2026-12-0{day}T10:00:00+00:00")
    return tmp_path


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("a-patch", "a-patch"),
        ("patch", "a-patch"),
        ("last", "a-patch"),
        ("baseline", "baseline"),  # its whole name, though it is part of another
        ("again", "baseline-again"),
        ("elsewhere/baseline/", "baseline"),
    ],
)
def test_a_run_is_found_by_any_unique_part_of_its_name(three, named, name):
    assert runs.find(named, three) == three / name


def test_a_path_is_a_name_from_anywhere(three, monkeypatch):
    assert runs.find(str(three / "baseline"), three / "nowhere") == three / "baseline"
    monkeypatch.chdir(three / "baseline")
    assert runs.find(".", three).samefile(three / "baseline")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("base", "base names 2 runs, say more of one: baseline-again, baseline"),
        ("baselin-again", "has a name like it; did you mean baseline-again?"),
        ("zebra", "'zebra' is no run folder, .*; last runs there: a-patch, baseline-again, baseline"),
        ("", "'' is no run folder"),
    ],
)
def test_what_names_no_run_or_several_is_refused(three, named, said):
    with pytest.raises(RxbookError, match=said):
        runs.find(named, three)


def test_without_runs_none_is_the_last(tmp_path):
    with pytest.raises(RxbookError, match=r"'last' is no run folder, .*; last runs there: none"):
        runs.find("last", tmp_path)


def test_of_many_runs_the_newest_are_named(tmp_path):
    for minute in range(10, 17):
        began(tmp_path / f"run-{minute}", f"2026-12-01T10:{minute}:00+00:00")
    with pytest.raises(
        RxbookError, match="names 7 runs, say more of one: run-16, run-15, run-14, run-13, and 3 older"
    ):
        runs.find("run", tmp_path)


def test_what_is_no_run_is_refused_with_those_that_are(tmp_path):
    simulated_runs.begin(tmp_path / "one", rows=1).close()
    with pytest.raises(RxbookError, match=r"two is no run folder: it has no plan.json. Last runs there: one"):
        runs.load(tmp_path / "two")


def test_a_new_name_is_a_time_and_a_notebook():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}Z-gro_on_off", runs.new_name("gro_on_off"))


# --- a crash


@pytest.mark.parametrize("kept", [0, 1, 20])
def test_a_torn_last_line_is_left_out_and_cut_by_resuming(path, kept):
    folder = simulated_runs.begin(path, rows=PER_BLOCK + 1)
    folder.close()
    whole = (path / "samples.csv").read_bytes()
    row = whole.splitlines(keepends=True)[-1]
    with open(path / "samples.csv", "ab") as file:
        file.write(row[:kept])
    assert len(runs.load(path).samples) == PER_BLOCK + 1
    runs.Folder.resume(path, folder.plan).close()
    assert (path / "samples.csv").read_bytes() == whole


@pytest.mark.parametrize("text", ["", "block,ord", None])
def test_a_run_killed_before_its_first_window_has_none(path, text):
    folder = simulated_runs.begin(path, rows=0)
    folder.close()
    if text is None:
        (path / "samples.csv").unlink()
    else:
        (path / "samples.csv").write_text(text)
    assert runs.load(path).samples.empty
    folder = runs.Folder.resume(path, folder.plan)
    assert len(runs.blocks_left(path, folder.plan, PER_BLOCK)) == folder.plan.blocks
    folder.append(simulated_runs.windows(folder.plan)[0])
    folder.close()
    assert len(runs.load(path).samples) == 1


# --- resuming


def resumed(path, plan):
    """Go on with a run by simulated windows, in the order that `measure` would take."""
    folder = runs.Folder.resume(path, plan)
    cells = plan.cells("simulated")
    by_cell = {
        Cell(**{name: row[name] for name in Cell.model_fields}): row for row in simulated_runs.windows(plan)
    }
    for block, order, cell in list(measure.schedule(folder, cells)):
        folder.append(by_cell[cell] | {"block": block, "order": order})
    folder.finish({})


def test_resuming_keeps_a_cut_block_and_measures_one_more(path):
    folder = simulated_runs.begin(path, rows=2 * PER_BLOCK + 1)
    folder.close()
    before = lines(path)
    resumed(path, folder.plan)
    assert lines(path)[: len(before)] == before
    sizes = runs.load(path).samples.groupby("block").size()
    assert sizes.to_dict() == {0: 4, 1: 4, 2: 1, 3: 4, 4: 4, 5: 4, 6: 4}
    assert (sizes == PER_BLOCK).sum() == folder.plan.blocks


def test_a_run_may_be_cut_again_and_again(path):
    folder = simulated_runs.begin(path, rows=1)
    folder.close()
    for block in (1, 2):
        folder = runs.Folder.resume(path, folder.plan)
        folder.append(simulated_runs.windows(folder.plan)[0] | {"block": block})
        folder.close()
    assert runs.blocks_left(path, folder.plan, PER_BLOCK) == range(3, 9)
    resumed(path, folder.plan)
    assert not runs.blocks_left(path, folder.plan, PER_BLOCK)


def test_the_seed_of_the_beginning_counts(path):
    folder = simulated_runs.begin(path, rows=0)
    folder.close()
    other = make_plan(folder.plan.model_dump() | {"seed": 99})
    folder = runs.Folder.resume(path, other)
    folder.close()
    assert folder.seed == 1


def test_resuming_with_other_parameters_names_them(path):
    folder = simulated_runs.begin(path, rows=1)
    folder.close()
    other = make_plan(folder.plan.model_dump() | {"frame_sizes": [64, 512], "blocks": 9})
    with pytest.raises(RxbookError) as caught:
        runs.Folder.resume(path, other)
    assert str(caught.value) == (
        "a-run was begun with other parameters: frame_sizes=[64, 512] (was [64]), blocks=9 (was 6)"
    )


@pytest.mark.parametrize("fact", ["kernel_release", "cpu_model", "cpu_count"])
def test_resuming_elsewhere_is_refused(path, fact):
    folder = simulated_runs.begin(path, rows=1)
    folder.close()
    host = json.loads((path / "host.json").read_text())
    runs.write_json(path / "host.json", host | {fact: "zebra"})
    with pytest.raises(RxbookError, match=f"another machine: {fact} was zebra, is "):
        runs.Folder.resume(path, folder.plan)


def test_two_cannot_write_one_run_and_the_second_changes_nothing(path):
    folder = simulated_runs.begin(path, rows=1)
    with open(path / "samples.csv", "a") as file:
        file.write("half a li")  # as a reader may see it while a line is written
    before = (path / "samples.csv").read_bytes()
    with pytest.raises(RxbookError, match="being written by another process"):
        runs.Folder.resume(path, folder.plan)
    assert (path / "samples.csv").read_bytes() == before
    folder.close()


def test_a_finished_run_is_never_begun_anew(path):
    simulated_runs.finished(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(RxbookError, match="holds a run already"):
        simulated_runs.begin(path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


# --- taking back


def test_a_run_without_a_window_is_taken_back(path):
    folder = simulated_runs.begin(path, rows=0)
    folder.log("setting up")
    folder.discard_if_empty()
    folder.close()
    assert not path.exists() and path.parent.exists()


def test_a_run_with_a_window_is_kept(path):
    folder = simulated_runs.begin(path, rows=1)
    folder.discard_if_empty()
    folder.close()
    assert len(runs.load(path).samples) == 1


def test_what_is_not_the_runs_own_is_not_taken_back(path):
    folder = simulated_runs.begin(path, rows=0)
    (path / "notes.txt").write_text("mine")
    folder.discard_if_empty()
    folder.close()
    assert [file.name for file in path.iterdir()] == ["notes.txt"]


# --- loading


def test_columns_have_the_types_that_they_name(path):
    samples = simulated_runs.finished(path, protocol="udp", drop_tcp="false").samples
    assert list(samples.columns) == runs.COLUMNS
    kinds = {name: samples[name].dtype.kind for name in runs.COLUMNS}
    assert kinds["drop_tcp"] == "b" and not samples["drop_tcp"].any()
    for name in ("block", "order", "ip_version", "frame_size", "flows", "burst", "frames", "payload_bytes"):
        assert kinds[name] == "i", name
    for name in (
        "mpps",
        "ns_per_packet",
        "segs_per_skb",
        "window_s",
        "receiver_idle",
        "cpu_pressure",
        "steal",
    ):
        assert kinds[name] == "f", name
    for name in ("variant", "receiver", "gro", "protocol", "encap", "udp_csum", "rx_gro_list", "start_utc"):
        assert all(isinstance(value, str) for value in samples[name]), name


@pytest.mark.parametrize("variant", ["6.10", "NA", "true", "7", 'patch 3, "v2"'])
def test_a_variant_is_read_as_it_was_written(path, variant):
    samples = simulated_runs.finished(path, variant=variant).samples
    assert set(samples["variant"]) == {variant}
    assert samples["encap"].eq("none").all()


def test_flags_are_empty_words_where_there_are_none(path):
    folder = simulated_runs.begin(path, rows=0)
    first, second, *_ = simulated_runs.windows(folder.plan)
    folder.append(first | {"flags": ""})
    folder.append(second | {"flags": "sender_limited;short", "segs_per_skb": None, "cpu_pressure": None})
    folder.close()
    samples = runs.load(path).samples
    assert samples["flags"].tolist() == ["", "sender_limited;short"]
    assert pd.isna(samples["segs_per_skb"][1]) and pd.isna(samples["cpu_pressure"][1])


def test_a_run_has_every_table_and_figure_as_files(path):
    simulated_runs.finished(path, tables=True, aa=True, frame_sizes="64,512", udp_csum="computed")
    assert {file.name for file in (path / "tables").iterdir()} == {
        f"{name}.{ending}"
        for names, endings in (
            (("gro", "cost", "size_csum", "noise", "windows", "published"), ("txt", "md", "html", "csv")),
            (("gro_bars", "window_strip"), ("png", "svg")),
        )
        for name in names
        for ending in endings
    }


@pytest.mark.parametrize(
    "axes", [{"gro": "on"}, {"gro": "off"}, {"receiver": "cpumap,stack", "flows": "1,64"}]
)
def test_plans_of_one_setting_or_of_many_make_tables(path, axes):
    run = simulated_runs.finished(path, udp_csum="computed", **axes)
    assert {"gro", "cost", "windows"} <= set(report.tables_of(run))


# --- pyperf


def pyperf(*words):
    done = subprocess.run(
        [sys.executable, "-m", "pyperf", *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pyperf_reads_the_suite(path):
    # GRO off only: the simulated sender never limits it
    run = simulated_runs.finished(path, tables=True, gro="off", blocks=10)
    said = pyperf("stats", path / "bench.json")
    assert "cpumap gro off udp4 64 B csum computed 1x1" in said and "csum zero" in said
    windows = run.samples[(run.samples["udp_csum"] == "computed") & (run.samples["flags"] == "")]
    mean = (windows["window_s"] / windows["frames"]).mean()
    shown = re.search(r"csum computed.*?Mean.*?: ([\d.]+) us", said, re.DOTALL)
    assert float(shown[1]) == pytest.approx(mean * 1e6, rel=0.01)


def test_pyperf_compares_two_runs(tmp_path):
    for name, variant in (("one", "baseline"), ("two", "patch 3")):
        simulated_runs.finished(tmp_path / name, tables=True, gro="off", blocks=10, variant=variant)
    said = pyperf("compare_to", tmp_path / "one" / "bench.json", tmp_path / "two" / "bench.json")
    assert "csum computed" in said and "csum zero" in said


# --- sharing


def test_a_shared_copy_has_no_names_and_loads(path, tmp_path):
    run = simulated_runs.finished(path)
    facts = json.loads((path / "run.json").read_text()) | {"hostname": "zebra"}
    runs.write_json(path / "run.json", facts)
    runs.scrub(path, tmp_path / "new" / "copy")
    copy = runs.load(tmp_path / "new" / "copy")
    assert copy.samples.equals(run.samples) and copy.plan == run.plan and copy.status == "finished"
    text = "".join(file.read_text() for file in copy.path.iterdir())
    assert "zebra" not in text and "argv" not in text and sys.executable not in text


def test_only_a_finished_run_is_shared_and_nothing_is_overwritten(path, tmp_path):
    simulated_runs.begin(path, rows=1).close()
    with pytest.raises(RxbookError, match="interrupted: only a finished run"):
        runs.scrub(path, tmp_path / "copy")
    with pytest.raises(RxbookError, match="no run folder"):
        runs.scrub(tmp_path / "unknown", tmp_path / "copy")
    simulated_runs.finished(tmp_path / "whole")
    (tmp_path / "copy").mkdir()
    with pytest.raises(RxbookError, match="exists already"):
        runs.scrub(tmp_path / "whole", tmp_path / "copy")
