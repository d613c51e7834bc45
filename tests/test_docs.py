# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/extending.md, done as it is written: a receiver, a generator and a table more, in a copy of the library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from rxbook import runs

PAGE = runs.ROOT / "docs" / "extending.md"

MEASURED = """
import live
from rxbook import render, report, runs
from rxbook.plan import make_plan
from rxbook.receivers import RECEIVERS
from rxbook.waiting import waiting_table

with live.open_testbed(generator="packet_socket") as testbed:
    (cell,) = make_plan({"gro": "on", "receiver": "cpumap_short", "generator": "packet_socket"}).cells("x")
    counted = testbed.measure(cell, 0.05, 0.3)
print("frames", counted["frames"])
assert all(receiver.AT_ONCE for receiver in RECEIVERS.values()) and RECEIVERS["cpumap_short"].AT_ONCE == 32
run = runs.recorded("gro_on_off")
print(render.text(report.table_of(run, "waiting")))
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """The copy, with all that the page adds."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copytree(runs.ROOT / "lib", root / "lib")
    (root / "data").symlink_to(runs.ROOT / "data")
    page = PAGE.read_text()
    for path, content in re.findall(
        r"^`(lib/\S+\.py)`:\n\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    ):
        (root / path).write_text(content)
    if shutil.which("patch") is None:
        pytest.skip("no patch(1)")
    for diff in re.findall(r"^```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        done = subprocess.run(
            ["patch", "-p1", "--fuzz=3", "-d", root], input=diff, capture_output=True, text=True
        )
        assert done.returncode == 0 and "garbage" not in done.stdout, done.stdout
    return root


@pytest.mark.needs_root
def test_what_the_page_adds_works(extended):
    environment = os.environ | {"PYTHONPATH": f"{extended / 'lib'}:{runs.ROOT / 'tests'}"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"frames (\d+)", done.stdout)[1]) > 100
    assert "Idle receiver" in done.stdout and "GRO on" in done.stdout
