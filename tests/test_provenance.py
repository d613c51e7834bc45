# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The host record: complete, and silent about who and where."""

import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rxbook import provenance
from rxbook.kernel import facts, libbpf

LIB = str(Path(facts.__file__).resolve().parents[2])


@pytest.fixture(scope="module")
def record():
    return provenance.host()


def test_the_record_has_every_key_and_is_json(record):
    assert set(record) == set(provenance.PUBLISHED) - {
        "offloads_before",
        "offloads_after",
        "guests",
        "interface",
    }
    assert json.loads(json.dumps(record)) == record
    assert provenance.scrub(record) == record
    assert record["kernel_release"] == os.uname().release
    assert record["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_record_names_nobody_and_no_place(record):
    text = json.dumps(record)
    for name in (socket.gethostname(), getpass.getuser()):
        assert not re.search(rf"\b{re.escape(name)}\b", text)
    assert str(Path.home()) not in text
    # "usercopy/swapgs" of a mitigation is no path
    assert not re.search(r"(?<!\w)/\w", text)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
def test_a_telling_host_and_user_name_do_not_show():
    code = (
        "import socket, json; socket.sethostname('zebrahost'); from rxbook import provenance; "
        "assert socket.gethostname() == 'zebrahost'; print(json.dumps(provenance.host()))"
    )
    names = {"USER": "zebrauser", "LOGNAME": "zebrauser", "HOME": "/home/zebrauser", "HOSTNAME": "zebrahost"}
    done = subprocess.run(
        ["unshare", "--uts", sys.executable, "-c", code],
        env={**os.environ, **names, "PYTHONPATH": LIB}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "kernel_release" in done.stdout and "zebra" not in done.stdout


def test_scrub_keeps_only_what_is_named(record):
    told = {
        **record,
        "hostname": "zebra",
        "offloads_before": {"rxb7f3": {"gro": "off"}},
        "cmdline": "root=/dev/zebra mitigations=off",
        "versions": {**record["versions"], "python_executable": "/home/zebra/python"},
        "git": {"commit": "abc", "dirty": False, "remote": "zebra"},
    }
    before = json.dumps(told)
    kept = provenance.scrub(told)
    assert "zebra" not in json.dumps(kept) and "rxb7f3" not in json.dumps(kept)
    assert kept["cmdline"] == "mitigations=off"
    assert kept["git"] == {"commit": "abc", "dirty": False}
    assert [kept[key] for key in ("kernel_release", "cpu_model", "date_utc")] == [
        record[key] for key in ("kernel_release", "cpu_model", "date_utc")
    ]
    assert json.dumps(told) == before


@pytest.mark.parametrize(
    ("model", "release", "virtual", "label"),
    [
        ("AMD EPYC", "6.18.44-zebra1", True, "2-CPU VM, AMD EPYC, Linux 6.18.44"),
        ("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "6.12.0-rc3+", False,
         "2-CPU machine, Intel Xeon E5-2690 v4, Linux 6.12.0-rc3"),
        ("AMD EPYC 7763 64-Core Processor", "7.3.4", None, "2-CPU machine, AMD EPYC 7763, Linux 7.3.4"),
    ],
)  # fmt: skip
def test_machine_label(model, release, virtual, label):
    told = {"cpu_model": model, "kernel_release": release, "virtualised": virtual, "cpu_count": 2}
    assert provenance.machine_label(told) == label


def test_a_missing_libbpf_leaves_the_rest(monkeypatch):
    def missing():
        raise provenance.RxbookError("libbpf.so.1 is not installed")

    monkeypatch.setattr(libbpf, "library", missing)
    told = provenance.host()
    assert told["btf"] is None and told["versions"]["libbpf"] is None and told["config_hash"] is not ...


# --- the commit


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository of its own with a module in it that takes the place of rxbook/provenance.py."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(tmp_path, "init", "-q")
    (tmp_path / "provenance.py").write_text("one\n")
    git(tmp_path, "add", "provenance.py")
    git(tmp_path, "commit", "-q", "-m", "one")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "provenance.py"))
    return tmp_path


def test_the_commit_and_whether_it_is_all(checkout):
    commit = git(checkout, "rev-parse", "--short=12", "HEAD")
    assert provenance.host()["git"] == {"commit": commit, "dirty": False}
    (checkout / "provenance.py").write_text("two\n")
    assert provenance.host()["git"] == {"commit": commit, "dirty": True}


def test_an_environment_inside_another_checkout_is_not_its_commit(checkout, monkeypatch):
    installed = checkout / "venv/rxbook"
    installed.mkdir(parents=True)
    (installed / "provenance.py").write_text("one\n")
    monkeypatch.setattr(provenance, "__file__", str(installed / "provenance.py"))
    assert provenance.host()["git"] is None
