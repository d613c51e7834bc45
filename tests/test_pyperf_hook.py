# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The pyperf hook: what runs on the CPUs asked for is recorded, whoever runs it, and the functions are metadata."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pyperf
import pytest
from pyperf._hooks import HookError, get_hook_names

from rxbook import profile, pyperf_hook, runs
from rxbook.kernel import perf_tool, probes
from rxbook.profile import show
from rxbook.pyperf_hook import Rxbook
from rxbook.testbeds import leftovers

pytestmark = pytest.mark.needs_root

CPU = max(os.sched_getaffinity(0))
ON_S, OFF_S = 0.2, 0.3
BENCHMARK = f"""
import time, pyperf
def wait(loops):
    begin = time.perf_counter()
    time.sleep({ON_S} * loops)
    return time.perf_counter() - begin
pyperf.Runner().bench_time_func("wait", wait)
"""


@pytest.fixture(scope="module", autouse=True)
def perf_tool_there():
    if shutil.which("perf") is None:
        pytest.skip("the perf tool is not installed")


@pytest.fixture(scope="module")
def busy():
    """Another task, no child of the benchmark, that keeps the kernel busy on one CPU: its name."""
    command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"]
    pin = {"preexec_fn": lambda: os.sched_setaffinity(0, {CPU})}
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **pin)
    yield "dd"
    process.kill()
    process.wait()


@pytest.fixture
def settings(monkeypatch, tmp_path):
    monkeypatch.setenv("RXBOOK_PERF_CPUS", str(CPU))
    monkeypatch.setenv("RXBOOK_PERF_DIR", str(tmp_path / "kept"))
    return monkeypatch


def run_pyperf(*words, after=(), **variables):
    if "rxbook" not in get_hook_names():
        pytest.skip("rxbook was installed before it had a hook; `make setup` installs it anew")
    command = [sys.executable, *map(str, words), "--warmups", "0", "--loops", "1", "--quiet"]
    command += ["--inherit-environ", ",".join(variables), "--hook", "rxbook", *after]
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def suite(busy, tmp_path_factory):
    """Two processes of a benchmark with both hooks, the recordings beside."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "benchmark.py").write_text(BENCHMARK)
    (folder / "own").mkdir()
    run_pyperf(
        folder / "benchmark.py", "--processes", "2", "--values", "1", "-o", folder / "out.json",
        "--hook", "perf_record",
        RXBOOK_PERF_CPUS=CPU, RXBOOK_PERF_DIR=folder / "kept", PYPERF_PERF_RECORD_DATA_DIR=folder / "own",
    )  # fmt: skip
    return folder


def comms(path):
    samples = profile.load(path).functions.groupby("comm")["samples"].sum()
    return samples / samples.sum()


def test_what_another_task_does_on_the_cpu_is_in_the_metadata(suite, busy):
    told = pyperf.BenchmarkSuite.load(str(suite / "out.json")).get_benchmarks()[0].get_runs()
    assert len(told) == 2
    for metadata in (run.get_metadata() for run in told):
        assert metadata["rxbook_cpus"] == str(CPU) and metadata["rxbook_samples"] > 100
        recorded = metadata["rxbook_perf_data"]
        assert comms(recorded)[busy] > 0.1
        functions = profile.load(recorded).functions
        largest = functions.groupby("symbol")["samples"].sum().nlargest(3).index
        assert metadata["rxbook_function_01"].split(" % ")[1] in largest


def test_pyperfs_own_hook_misses_it_and_leaves_files_that_are_read_like_any_other(suite, busy):
    files = sorted((suite / "own").iterdir())
    assert len(files) == 2 and all(path.name.startswith("perf.data.") for path in files)
    for path in files:
        assert busy not in comms(path)
        assert "Functions" in show.files([path])


def test_the_processes_of_a_benchmark_are_repeats(suite, tmp_path):
    assert "in 2 repeats" in show.files([suite / "out.json"])
    moved = shutil.copytree(suite / "kept", tmp_path / "moved")
    shutil.copy(suite / "out.json", moved)
    (suite / "kept").rename(suite / "elsewhere")
    try:
        assert "in 2 repeats" in show.files([moved / "out.json"])
    finally:
        (suite / "elsewhere").rename(suite / "kept")


def test_a_command_is_recorded_once(tmp_path):
    # pyperf makes a second hook in the process that starts the command
    out = tmp_path / "out.json"
    run_pyperf(
        "-m", "pyperf", "command", "-p1", "-n2", "-o", out, RXBOOK_PERF_DIR=tmp_path / "kept", after=["true"]
    )
    (run,) = pyperf.Benchmark.load(str(out)).get_runs()
    (recording,) = (tmp_path / "kept").glob("perf.data.*")
    assert run.get_metadata()["rxbook_perf_data"] == str(recording)
    assert "true" in comms(recording)


def test_only_the_timed_code_is_sampled(settings, busy):
    hook = Rxbook()
    time.sleep(OFF_S)
    for _ in range(2):
        with hook:
            time.sleep(ON_S)
        time.sleep(OFF_S)
    metadata = {}
    hook.teardown(metadata)
    assert 0.3 < metadata["rxbook_samples"] / (2 * ON_S * perf_tool.FREQUENCY) < 1.3, metadata
    assert pyperf_hook.CONTROL not in os.environ


def test_no_sample_is_said_and_nothing_is_kept_unasked(settings, tmp_path):
    settings.delenv("RXBOOK_PERF_DIR")
    settings.setattr("tempfile.tempdir", str(tmp_path))
    hook, metadata = Rxbook(), {}
    assert list(tmp_path.iterdir())
    hook.teardown(metadata)
    assert metadata["rxbook_samples"] == 0 and "no sample" in metadata["rxbook_warning"]
    pyperf.Run([1.0], metadata=metadata, collect_metadata=False)  # pyperf takes them
    assert not list(tmp_path.iterdir()) and "rxbook_perf_data" not in metadata


def test_perf_ends_with_a_killed_worker_and_its_folder_is_left_to_rxbook_clean(monkeypatch, tmp_path):
    code = "from rxbook.pyperf_hook import Rxbook; h = Rxbook(); print(h._recording._perf.pid, flush=True); input()"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    worker = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
    perf = int(worker.stdout.readline())
    assert runs_still(perf) and not leftovers.delete_recordings()
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    deadline = time.monotonic() + 2
    while runs_still(perf) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs_still(perf)
    assert list(tmp_path.iterdir()) and len(leftovers.delete_recordings()) == 1
    assert not list(tmp_path.iterdir())


def runs_still(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize(("cpus", "words"), [("one", "RXBOOK_PERF_CPUS=one"), ("0,4095", "not online: 4095")])
def test_cpus_that_there_are_not_are_refused(settings, cpus, words):
    settings.setenv("RXBOOK_PERF_CPUS", cpus)
    with pytest.raises(HookError, match=words):
        Rxbook()


def test_without_perf_the_hook_says_where_it_comes_from(settings):
    settings.setattr(probes, "perf_version", lambda: None)
    with pytest.raises(HookError, match="apt install"):
        Rxbook()


def test_a_folder_of_another_boot_is_refused(settings, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "kallsyms").write_text("ffffffff00000000 A of_another_boot\n")
    with pytest.raises(HookError, match="another kernel or boot"):
        Rxbook()


def test_what_perf_may_not_do_is_one_line():
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv, which takes capabilities away, is not installed")
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1:
        pytest.skip("this kernel lets everyone sample whole CPUs")
    code = "from rxbook.pyperf_hook import Rxbook; Rxbook()"
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert "HookError: perf may not sample whole CPUs here: run as root" in done.stderr


def test_the_entry_point_is_declared():
    project = tomllib.loads((runs.ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["pyperf.hook"]["rxbook"].partition(":")
    assert getattr(importlib.import_module(module), name) is Rxbook
