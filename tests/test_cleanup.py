# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""However a run ends, nothing of it is left: processes, BPF programs, kernel threads, namespaces, the lock."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live import no_other_run, open_testbed
from rxbook.kernel import libbpf

pytestmark = pytest.mark.needs_root

GONE_WITHIN_S = 2.0
AT_RANDOM = random.Random(20261201)
HOLDER = """
import sys
from live import cell, open_testbed

def say(word):
    print(word, flush=True)

say("setup")
with open_testbed() as veth:
    try:
        asked = cell(protocol="tcp", frame_sizes=1000, flows=64, burst=16, rx_gro_list="on")
        veth.prepare(asked)
        say("between")
        if "between" in sys.argv:
            sys.stdin.read()
        if "raise" in sys.argv:
            raise ValueError("of the caller's own")
        veth.sender.call("start")
        say("window")
        veth.receiver.call("window", warmup_s=0.0, window_s=20.0)
    finally:
        say("leaving")
say("left " + str(veth.offloads_after == veth.offloads_before))
"""

Thing = tuple[str, int, str]


def bpf_things(kind: str, name_at: int | None) -> set[Thing]:
    """All BPF programs, maps or links of the machine: (kind, id, name)."""
    library, found, number = libbpf.library(), set(), ctypes.c_uint32(0)
    while getattr(library, f"bpf_{kind}_get_next_id")(number, ctypes.byref(number)) == 0:
        fd = getattr(library, f"bpf_{kind}_get_fd_by_id")(number)
        if fd < 0:  # it ended meanwhile
            continue
        info, length = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
        library.bpf_obj_get_info_by_fd(fd, info, ctypes.byref(length))
        os.close(fd)
        name = "" if name_at is None else info.raw[name_at : name_at + 16].split(b"\0")[0].decode()
        found.add((kind, number.value, name))
    return found


def kernel_things() -> set[Thing]:
    """What a run makes in the kernel, of all runs on this machine."""
    found = bpf_things("prog", 64) | bpf_things("map", 24) | bpf_things("link", None)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.add(("namespace", int(os.readlink(process / "ns/net")[5:-1]), ""))
        with contextlib.suppress(OSError):
            name = (process / "comm").read_text().strip()
            if name.startswith("cpumap/"):
                found.add(("kthread", int(process.name), name))
    return found


def roles_of(pid: int) -> set[int]:
    """Role processes that the process `pid` started."""
    found = set()
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = cmdline.read_bytes().split(b"\0")
            if b"rxbook.testbeds.roles" in words and str(pid).encode() in words:
                found.add(int(cmdline.parent.name))
    return found


class Run:
    """A process that holds the testbed, and what the machine was before."""

    def __init__(self, *words: str):
        with no_other_run():
            self.before = kernel_things()
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
            start_new_session=True,
        )

    def wait_for(self, word: str) -> None:
        """Go on when the run has said so."""
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"the run ended before {word!r}: {self.process.stderr.read()}")

    def made(self) -> set[Thing]:
        """What there is now and was not before."""
        return kernel_things() - self.before

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; returns its status, and what is left on its output and errors."""
        output, errors = self.process.communicate(timeout=10)
        return self.process.returncode, output, errors

    def assert_nothing_is_left(self) -> None:
        """Neither at once, for the lock; nor after a moment, for what the kernel takes apart in the background."""
        with no_other_run():
            deadline = time.monotonic() + GONE_WITHIN_S
            while (left := (roles_of(self.process.pid), self.made())) != (set(), set()):
                assert time.monotonic() < deadline, left
                time.sleep(0.02)


@pytest.fixture
def start():
    """Starts runs, and ends them if a test does not."""
    runs = []

    def start_run(*words: str) -> Run:
        runs.append(Run(*words))
        return runs[-1]

    yield start_run
    for run in runs:
        run.process.kill()
        run.process.communicate()


def assert_a_run_is_seen(run: Run) -> None:
    """The looks above must be able to find something."""
    made = run.made()
    names = {name for kind, _, name in made if kind in ("prog", "map")}
    assert {"send_same", "send_ring", "to_cpumap", "count_kthread", "drop_tcp", "ring", "cpus"} <= names
    kinds = [kind for kind, _, _ in made]
    assert kinds.count("namespace") >= 2 and kinds.count("kthread") >= 1 and kinds.count("link") >= 5
    assert len(roles_of(run.process.pid)) == 2


@pytest.mark.parametrize("where", ["between", "window"])
@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_kill_9(start, where, kill):
    run = start(where)
    run.wait_for(where)
    assert_a_run_is_seen(run)
    kill(run.process.pid, signal.SIGKILL)
    assert run.end()[0] == -signal.SIGKILL
    run.assert_nothing_is_left()


@pytest.mark.parametrize("delay_s", [0.0, *(round(AT_RANDOM.uniform(0.0, 0.8), 3) for _ in range(5))])
def test_kill_9_at_any_time_of_the_setup(start, delay_s):
    run = start()
    run.wait_for("setup")
    time.sleep(delay_s)
    run.process.kill()
    assert run.end()[0] == -signal.SIGKILL
    run.assert_nothing_is_left()


@pytest.mark.parametrize("where", ["between", "window"])
def test_ctrl_c(start, where):
    run = start(where)
    run.wait_for(where)
    os.killpg(run.process.pid, signal.SIGINT)
    status, output, errors = run.end()
    assert status != 0 and errors.strip().endswith("KeyboardInterrupt")
    assert output.split() == ["leaving"]
    run.assert_nothing_is_left()


def test_an_exception_of_the_caller(start):
    run = start("raise")
    status, output, errors = run.end()
    assert status == 1 and errors.strip().endswith("ValueError: of the caller's own")
    assert output.split()[-1] == "leaving"
    run.assert_nothing_is_left()


def test_a_kill_of_both_roles(start):
    run = start("window")
    run.wait_for("window")
    for pid in roles_of(run.process.pid):
        os.kill(pid, signal.SIGKILL)
    status, _, errors = run.end()
    assert status == 1 and "the receiver ended (status -9) at 'window'" in errors.strip().splitlines()[-1]
    run.assert_nothing_is_left()


def test_a_later_start_ends_the_roles_that_lost_their_run():
    """As after a crash that left a role alive: here one whose pipe is held open by this test."""
    parent = os.getpid()
    orphan = subprocess.Popen(
        [sys.executable, "-m", "rxbook.testbeds.roles", "sender", str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    orphan.stdin.write(b'[1, "enter", {}]\n')
    orphan.stdin.flush()
    orphan.stdout.readline()  # it stands in its namespace now
    with open_testbed():
        assert orphan.wait(2) == -signal.SIGKILL
    orphan.stdin.close()
    orphan.stdout.close()
