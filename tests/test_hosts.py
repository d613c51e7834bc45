# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The testbed `hosts`, by real SSH to two sshd in namespaces: runs, refusals, lost connections."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import live
from live import cell, wait_for_lock
from rxbook import RxbookError, profile, provenance, report, runs, workbook
from rxbook.kernel import ethtool, interface
from rxbook.plan import make_plan
from rxbook.profile import record
from rxbook.profile.tasks import only_task
from rxbook.testbeds import hosts as testbed
from rxbook.testbeds import ssh
from rxbook.testbeds.hosts import Hosts
from ssh_hosts import MISSING, TwoHosts, two_hosts


@pytest.fixture(scope="module")
def hosts(tmp_path_factory) -> Iterator[TwoHosts]:
    if MISSING:
        pytest.skip(f"no {' and no '.join(MISSING)} (Debian: apt install openssh-server openssh-client)")
    with two_hosts(tmp_path_factory.mktemp("hosts")) as both:
        yield both


@contextlib.contextmanager
def opened(file: Path) -> Iterator[Hosts]:
    """The testbed, as soon as no other run holds this machine."""

    def take() -> Hosts:
        bed = Hosts(file, holder="tests")
        bed.__enter__()
        return bed

    with contextlib.ExitStack() as stack:
        bed = wait_for_lock(take)
        stack.push(bed.__exit__)
        yield bed


def refusal(file: Path) -> str:
    """The words, of one line, by which the testbed is refused before anything is changed."""

    def take() -> None:
        with Hosts(file, holder="tests"):
            pytest.fail("it was not refused")

    with pytest.raises(RxbookError) as caught:
        wait_for_lock(take)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def soon(state: object, look) -> object:
    """What `look` sees as soon as it is `state`, or after 8 s: hosts that lost their connection need a moment."""
    deadline = time.monotonic() + 8
    while (seen := look()) != state and time.monotonic() < deadline:
        time.sleep(0.1)
    return seen


# --- runs


@pytest.mark.needs_root
def test_a_run_over_ssh_is_of_the_receiver_and_leaves_both_hosts_as_they_were(hosts, tmp_path, capsys):
    before = hosts.state()
    file = hosts.write(sender={"cpu": 1}, receiver={"cpu": 0})
    asked = {"runs_dir": str(tmp_path), "run_name": "run", "hosts": str(file), "blocks": 5, "window_s": 0.05}
    asked |= {"profile_s": 0.2, "profile_repeats": 1}
    run = wait_for_lock(lambda: workbook.run("gro_on_off", asked))
    assert (run.status, len(run.samples)) == ("finished", 10)
    on, off = (run.samples[run.samples["gro"] == state] for state in ("on", "off"))
    assert on["segs_per_skb"].median() > 8 and off["segs_per_skb"].median() == pytest.approx(1, abs=0.05)
    assert on["mpps"].median() > 1.3 * off["mpps"].median()
    assert hosts.state() == before
    assert run.host["sender"]["interface"]["driver"] == run.host["receiver"]["interface"]["driver"] == "veth"
    sent = run.host["sender"]["interface"]["counters"]
    assert sum(value for name, value in sent.items() if name.endswith("xdp_xmit")) >= on["frames"].sum()
    assert run.host["kernel_release"] == os.uname().release
    assert run.host["versions"]["pandas"] and run.host["receiver"]["versions"]["pandas"] is None
    assert run.host["offloads_after"] == run.host["offloads_before"]
    assert run.host["receiver"]["interface"]["cpu"] == 0
    said = (run.path / "report.txt").read_text()
    assert "perf on CPU 0 at" in said and "driver veth" in said
    assert_profiled(run) if shutil.which("perf") else print("no perf: no profile over SSH was looked at")
    shared = tmp_path / "shared"
    runs.scrub(run.path, shared)
    text = "".join(path.read_text() for path in shared.glob("*.json"))
    for name in ("near", "far", "data0", "data1", str(hosts.folder)):
        assert f'"{name}' not in text and f"/{name}" not in text
    assert json.loads((shared / "host.json").read_text())["receiver"]["interface"]["driver"] == "veth"
    assert runs.load(shared).plan.hosts == "hosts.yaml"


def assert_profiled(run: runs.Run) -> None:
    """Each cell was recorded on the receiver's host, on its CPU, and is named by its symbols."""
    found = record.recorded(run.path / "profiles")
    assert [measured.gro for measured in found] == ["off", "on"]
    merging = {}
    for measured, (recording,) in found.items():
        noted = json.loads(recording.data.with_suffix(".json").read_text())
        assert noted["argv"][:5] == ["perf", "record", "-q", "-C", "0"]
        assert noted["counted"]["frames"] > 1000 and recording.task.startswith("cpumap/0/map:")
        mine, samples, _ = only_task(profile.load(recording.data), recording.task)
        functions = mine.functions.set_index("symbol")["share"]
        assert samples > 100 and functions["cpu_map_kthread_run"] > 0
        merging[measured.gro] = functions.get("udp_gro_receive", 0.0)
    assert merging["on"] > 0 and merging["off"] == 0
    assert report.function_tables(run)


@pytest.mark.needs_root
@pytest.mark.skipif(shutil.which("perf") is None, reason="the perf tool is not installed")
def test_a_connection_lost_in_a_recording_leaves_neither_perf_nor_its_file(hosts, tmp_path, monkeypatch):
    before = hosts.state()
    with pytest.raises(RxbookError, match="ended"), opened(hosts.file) as bed:

        def lost(self, *_):
            state = hosts.state()
            assert len(state["perf"]) == 1 and any(name.endswith("/perf.data") for name in state["files"])
            os.kill(self.receiver.pid, signal.SIGKILL)

        monkeypatch.setattr(Hosts, "count", lost)
        record.profile_cells(bed, [cell()], tmp_path / "profiles", make_plan({}), 1)
    assert soon(before, hosts.state) == before


@pytest.mark.needs_root
def test_both_roles_may_stand_on_one_host(hosts):
    before = hosts.state()
    hosts.inside(hosts.far, "ip", "link", "add", "both0", "type", "veth", "peer", "both1")
    try:
        for name in ("both0", "both1"):
            hosts.inside(hosts.far, "ip", "link", "set", name, "addrgenmode", "none", "up")
        file = hosts.write(sender={"host": "far", "interface": "both0"}, receiver={"interface": "both1"})
        soon(True, lambda: "NO-CARRIER" not in hosts.inside(hosts.far, "ip", "link", "show"))
        with opened(file) as bed:
            assert bed.measure(cell(), 0.02, 0.1)["frames"] > 1000
    finally:
        hosts.inside(hosts.far, "ip", "link", "del", "both0")
    assert soon(before, hosts.state) == before


@pytest.mark.needs_root
@pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is not installed")
def test_who_is_not_root_needs_sudo_without_a_password(hosts):
    before = hosts.state()
    with opened(hosts.write(receiver={"host": "far_trusted"})) as bed:
        assert bed.measure(cell(), 0.02, 0.1)["frames"] > 1000
        assert hosts.state() != before
    assert soon(before, hosts.state) == before
    said = refusal(hosts.write(receiver={"host": "far_other"}))
    assert "receiver on far_other: sudo: " in said and "password" in said and "log in as root" in said


@pytest.mark.needs_root
def test_a_device_that_sends_nothing_is_named_before_it_looks_like_a_slow_one(hosts):
    """A veth end takes redirected frames only while its peer has an XDP program: here none is attached yet."""
    with opened(hosts.file) as bed:
        bed.load(cell())
        with pytest.raises(RxbookError, match="data0 sends nothing that XDP redirects to it"):
            bed.sender.call("start")


@pytest.mark.needs_root
def test_tcp_is_dropped_on_the_measured_device_and_ssh_lives(hosts):
    with opened(hosts.file) as bed:
        asked = cell(receiver="stack", protocol="tcp", frame_sizes=1000, flows=4, burst=16)
        counted = bed.measure(asked, 0.02, 0.1)
        assert counted["frames"] > 1000 and counted["frames"] / counted["skbs"] > 4
        resets = hosts.inside(hosts.far, "nstat", "-asz", "TcpOutRsts").split()
        assert float(resets[resets.index("TcpOutRsts") + 1]) == 0


# --- lost connections


@pytest.mark.needs_root
def test_a_lost_connection_keeps_windows_and_the_host_puts_everything_back(hosts, tmp_path, monkeypatch):
    before = hosts.state()
    windows = []
    real = Hosts.measure

    def measured(self, *arguments):
        if len(windows) == 3:
            assert hosts.state() != before
            pid = self.receiver.pid
            threading.Timer(0.02, os.kill, (pid, signal.SIGKILL)).start()
            return real(self, arguments[0], 0.0, 3.0)
        windows.append(real(self, *arguments))
        return windows[-1]

    monkeypatch.setattr(Hosts, "measure", measured)
    asked = {
        "runs_dir": str(tmp_path),
        "run_name": "run",
        "hosts": str(hosts.file),
        "blocks": 5,
        "window_s": 0.05,
    }
    with pytest.raises(RxbookError, match=r"the receiver on far ended \(status -9\)"):
        wait_for_lock(lambda: workbook.run("gro_on_off", asked))
    assert soon(before, hosts.state) == before
    run = runs.load(tmp_path / "run")
    assert (run.status, len(run.samples)) == ("interrupted", 3)
    monkeypatch.undo()
    assert len(wait_for_lock(lambda: workbook.run("gro_on_off", asked)).samples) == 3 + 8


@pytest.mark.needs_root
def test_a_host_that_hears_nothing_puts_everything_back(hosts, monkeypatch):
    before = hosts.state()
    monkeypatch.setattr(testbed, "BEAT_S", 1000.0)
    monkeypatch.setattr(testbed, "SILENCE_S", 1.0)
    with pytest.raises(RxbookError, match="ended"), opened(hosts.file) as bed:
        bed.measure(cell(), 0.0, 0.02)
        assert hosts.state() != before
        assert soon(before, hosts.state) == before
        bed.measure(cell(), 0.0, 0.02)


# --- refusals


@pytest.mark.needs_root
def test_what_speaks_against_a_device_is_said_before_anything_is_changed(hosts):
    before = hosts.state()
    hosts.inside(hosts.far, "ip", "route", "add", "default", "dev", "data1")
    said = refusal(hosts.file)
    assert "receiver on far: a default route leaves by data1" in said
    assert "data1, which has no IPv4 address" in said
    hosts.inside(hosts.far, "ip", "addr", "add", "10.88.0.1/24", "dev", "data1")
    with opened(hosts.write(force_default_route=True)) as bed:
        assert bed.measure(cell(), 0.0, 0.02)["frames"] > 0
    assert hosts.inside(hosts.far, "ip", "route", "show", "default").startswith("default dev data1")
    hosts.inside(hosts.far, "ip", "addr", "del", "10.88.0.1/24", "dev", "data1")
    assert hosts.state() == before


OLD_PYTHON = """#!/bin/sh
shift
exec /usr/bin/python3 -c '
import sys
sys.version_info, sys.version = (3, 9, 2), "3.9.2 (stands for an old one)"
sys.argv = sys.argv[1:]
exec(sys.argv[0])' "$@"
"""

OBSTACLES = {
    "ssh1": "this SSH connection comes over ssh1",
    "eth7": "no interface eth7, only lo, data1, ssh1",
    "lo": "the driver of lo has no native XDP",
    "data1 4095": "no CPU 4095",
    "data1 1 0": "data1 has no interrupts of its own",
}
LOOK = """
import sys
from rxbook.kernel.interface import obstacles, ssh_address
for name, *cpus in map(str.split, sys.argv[1:]):
    cpu, *irq_cpus = map(int, cpus or ["0"])
    print("; ".join(obstacles(name, cpu, irq_cpus, False, ssh_address("10.87.0.1 5 10.87.0.2 22"))))
"""


@pytest.mark.needs_root
def test_each_obstacle_is_named(hosts):
    said = hosts.inside(hosts.far, sys.executable, "-c", LOOK, "data1", *OBSTACLES).splitlines()
    assert said[0] == ""
    for (asked, words), line in zip(OBSTACLES.items(), said[1:], strict=True):
        assert words in line, asked


@pytest.mark.needs_root
def test_what_ssh_refuses_is_said_with_its_remedy(hosts):
    known = hosts.folder / "known_hosts"
    text = known.read_text()
    known.write_text("".join(line + "\n" for line in text.splitlines() if not line.startswith("far ")))
    try:
        said = refusal(hosts.file)
    finally:
        known.write_text(text)
    assert "receiver on far: " in said and "verification failed" in said and "compare the key" in said
    # whatever the user's own configuration says
    config = hosts.folder / "lax_config"
    config.write_text((hosts.folder / "ssh_config").read_text().replace("Checking yes", "Checking no"))
    known.write_text("".join(line + "\n" for line in text.splitlines() if not line.startswith("far ")))
    try:
        said = refusal(hosts.write(ssh_config="lax_config"))
    finally:
        known.write_text(text)
    assert "receiver on far: " in said and "verification failed" in said and "compare the key" in said
    assert "install Python 3.11" in refusal(hosts.write(receiver={"python": "python9"}))
    old = hosts.folder / "python3.9"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    said = refusal(hosts.write(receiver={"python": str(old)}))
    assert "Python 3.9.2 is too old: 3.11 or newer is needed" in said and "python: python3.12" in said


@pytest.mark.needs_root
def test_a_jump_host_is_checked_too_and_asks_for_no_password(hosts):
    known = hosts.folder / "known_hosts"
    text = known.read_text()
    known.write_text("".join(line + "\n" for line in text.splitlines() if not line.startswith("near ")))
    try:
        said = refusal(hosts.write(sender={"host": "far"}))
    finally:
        known.write_text(text)
    assert "sender on far: Host key verification failed" in said
    asked = hosts.folder / "asked"
    ask = hosts.folder / "askpass"
    ask.write_text(f"#!/bin/sh\ntouch {asked}\necho x\n")
    ask.chmod(0o755)
    key = hosts.folder / "locked_key"
    live.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(key))
    config = (hosts.folder / "ssh_config").read_text()
    (hosts.folder / "locked_config").write_text(
        config.replace("Host near\n", f"Host near\n  IdentityFile {key}\n").replace(
            f"  IdentityFile {hosts.folder}/user_key\n", ""
        )
        + f"Match host 10.87.0.2\n  IdentityFile {hosts.folder}/user_key\n"
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSH_ASKPASS", str(ask))
        environment.setenv("DISPLAY", ":9")
        file = hosts.write(ssh_config="locked_config")
        assert "no passwords are asked for" in refusal(file)
        with pytest.raises(RxbookError, match="no passwords are asked for"):
            testbed.release(file)
    assert not asked.exists()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Warning: x\r\nroot@a: Permission denied (publickey).\r\n", "no passwords are asked for"),
        ("sudo: a password is required", "log in as root, or let this user run sudo"),
        ("sh: 1: exec: sudo: not found", "log in as root, or let this user run sudo"),
        ("sudo: python9: command not found", "install Python 3.11"),
        (
            "stdio forwarding failed\nchannel 0: open failed: connect failed: refused\nUNKNOWN",
            "the jump host",
        ),
        ("ssh: Could not resolve hostname a: Name or service not known", "see its name in the file"),
        ("ssh: connect to host a port 22: Connection refused", "`ssh a true` works"),
        ("Python 3.9.2 is too old: 3.11 or newer is needed", "python: python3.12"),
    ],
)
def test_what_ssh_and_sudo_say_is_followed_by_a_remedy(said, words):
    explained = ssh.explained(said, "a")
    assert words in explained and "\n" not in explained


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file: "),
        ("sender: {host: a, interface: b, cpu: x}\nreceiver: {host: a, interface: c, cpu: 1}", "sender.cpu"),
        ("sender: {host: -oProxyCommand=x, interface: b, cpu: 0}", "sender.host"),
        ("sender: {host: a, interface: ../b, cpu: 0}", "sender.interface"),
        ("sender: [", "is no YAML"),
    ],
)
def test_a_wrong_file_is_refused_by_its_line(tmp_path, text, words):
    (tmp_path / "hosts.yaml").write_text(text)
    with pytest.raises(RxbookError) as caught:
        testbed.read(tmp_path / "hosts.yaml")
    assert words in str(caught.value) and "\n" not in str(caught.value)


# --- what a device says


def test_settings_of_ethtool_are_the_current_ones():
    said = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\n"
    said += "Current hardware settings:\nRX:\t\t512\nRX Mini:\tn/a\nTX Push:\toff\n"
    assert ethtool.values(said) == {"RX": 512, "TX Push": "off"}
    said = "Coalesce parameters for eth0:\nAdaptive RX: on  TX: on\n\nrx-usecs:\t50\n"
    assert ethtool.values(said) == {"Adaptive RX": "on  TX: on", "rx-usecs": 50}


@pytest.fixture
def mock_interrupts(tmp_path, monkeypatch):
    """A mock of the files of a PCI device with interrupts 41 and 42: no device of this machine may be touched."""
    device, affinities = tmp_path / "net/eth9/device/msi_irqs", tmp_path / "irq"
    for number in ("41", "42"):
        (affinities / number).mkdir(parents=True)
        (affinities / number / "smp_affinity_list").write_text("0-7\n")
    device.mkdir(parents=True)
    for number in ("41", "42"):
        (device / number).write_text("msix")
    monkeypatch.setattr(interface, "NET", tmp_path / "net")
    monkeypatch.setattr(interface, "IRQ", affinities)
    monkeypatch.setattr(interface.socket, "if_nametoindex", lambda name: 1)
    monkeypatch.setattr(interface.Settings, "_read_features", lambda self: {})
    return affinities


def test_interrupts_go_to_the_cpus_and_come_back(mock_interrupts):
    affinities = mock_interrupts
    settings = interface.Settings("eth9")
    interface.set_irq_affinity("eth9", [2, 3])
    assert [path.read_text() for path in affinities.rglob("smp*")] == ["2,3", "2,3"]
    assert settings.restore([], []) == []
    assert [path.read_text() for path in affinities.rglob("smp*")] == ["0-7", "0-7"]


def test_interrupts_that_do_not_move_are_named(mock_interrupts, tmp_path):
    assert list(interface._interrupt_obstacles("eth9")) == []
    (mock_interrupts / "42/smp_affinity_list").unlink()
    assert list(interface._interrupt_obstacles("eth9")) == []  # a vector that is not used
    (mock_interrupts / "42/smp_affinity_list").mkdir()  # an error, as the kernel's own for one that it places
    assert "places interrupts 42 of eth9 itself" in "".join(interface._interrupt_obstacles("eth9"))
    with pytest.raises(RxbookError, match="interrupt 42 of eth9 does not go to CPUs 2: "):
        interface.set_irq_affinity("eth9", [2])


def test_irqbalance_would_undo_it(mock_interrupts, tmp_path):
    shutil.copy("/bin/sleep", tmp_path / "irqbalance")
    with subprocess.Popen([tmp_path / "irqbalance", "60"]) as process:
        try:
            found = soon(1, lambda: len([*interface._interrupt_obstacles("eth9")]))
            said = "".join(interface._interrupt_obstacles("eth9"))
        finally:
            process.kill()
    assert found == 1 and said.startswith("irqbalance runs")


def test_the_archive_needs_no_package_that_a_host_may_not_have(tmp_path):
    (tmp_path / "carried.zip").write_bytes(ssh.archive())
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'carried.zip')!r}); import rxbook.testbeds.remote"
    code += "; print(sorted({'numpy', 'pandas', 'pydantic', 'yaml', 'zstandard'} & set(sys.modules)))"
    done = subprocess.run(["/usr/bin/env", "python3", "-I", "-S", "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_label_names_driver_and_sender():
    record = {"cpu_count": 8, "cpu_model": "Some CPU", "kernel_release": "6.12.1", "virtualised": False}
    both = record | {"receiver": record | {"interface": {"driver": "ice"}}, "sender": record}
    assert provenance.machine_label(both).startswith(
        "8-CPU machine, Some, Linux 6.12.1, driver ice; sender: 8"
    )
