# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Facts and probes against independent sources on the running kernel."""

import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live import no_other_run
from rxbook import RxbookError
from rxbook.kernel import facts, libbpf, probes

LIB = str(Path(facts.__file__).resolve().parents[2])

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="probing needs root")


def says(*command: str) -> str:
    """Output of a tool that must be there; the test is skipped, by name, where it is not."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_btf() -> bool:
    return facts.BTF_VMLINUX.exists() and facts.libbpf_version() is not None


# --- the kernel


def test_release_and_version_are_unames():
    assert f"{facts.kernel_release()} {facts.kernel_version()}" == says("uname", "-r", "-v").strip()


def test_config_hash_is_that_of_the_text():
    if not Path("/proc/config.gz").exists():
        pytest.skip("this kernel shows no /proc/config.gz")
    digest = says("sh", "-c", "zcat /proc/config.gz | sha256sum")
    assert facts.config_hash() == digest[:12]


def test_only_options_that_move_a_rate_are_kept():
    text = (
        "BOOT_IMAGE=/vmlinuz root=UUID=1234 mitigations=off isolcpus=domain,2-3 ip=10.0.0.1 nosmt "
        "hostname=secret luks=x intel_pstate=disable quiet -- --addr 10.0.0.2 nohz_full=1"
    )
    assert facts.allowed_options(text) == "mitigations=off isolcpus=domain,2-3 nosmt intel_pstate=disable"


def test_cmdline_is_a_part_of_the_kernels():
    assert set(facts.cmdline().split()) <= set(Path("/proc/cmdline").read_text().split())


def test_symbols_agree_with_the_table():
    names = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    asked = ["napi_skb_cache_get_bulk", "gro_receive_skb", "napi_gro_receive", "napi_gro_rec", "no_such"]
    assert facts.symbols(*asked) == {name: name in names for name in asked}


def test_a_symbol_of_a_module_counts(tmp_path, monkeypatch):
    table = tmp_path / "kallsyms"
    table.write_text("0000000000000000 t veth_poll\t[veth]\n")
    monkeypatch.setattr(facts, "Path", lambda _: table)
    assert facts.symbols("veth_poll", "veth_pol") == {"veth_poll": True, "veth_pol": False}


# --- BTF


@pytest.mark.skipif(not has_btf(), reason="needs libbpf and a kernel with BTF")
@pytest.mark.parametrize("struct", ["bpf_cpu_map_entry", "bpf_nf_link", "sk_buff", "net_device"])
def test_members_are_those_that_bpftool_prints(struct):
    dump = says("bpftool", "btf", "dump", "file", str(facts.BTF_VMLINUX))
    found = re.search(rf"STRUCT '{struct}' .*\n((?:\t.*\n)*)", dump)
    printed = found and re.findall(r"^\t'(.*)' type_id", found[1], re.MULTILINE)
    ours = facts.btf_members(struct)[struct]
    # bpftool prints a nameless member as "(anon)"
    assert (ours and [name or "(anon)" for name in ours]) == printed


@pytest.mark.skipif(not has_btf(), reason="needs libbpf and a kernel with BTF")
def test_netfilter_link_agrees_with_the_configuration():
    if not Path("/proc/config.gz").exists():
        pytest.skip("this kernel shows no /proc/config.gz")
    configured = "CONFIG_NETFILTER_BPF_LINK=y" in says("zcat", "/proc/config.gz")
    assert facts.btf_facts()["netfilter_link"] is configured


@pytest.mark.skipif(not has_btf(), reason="needs libbpf and a kernel with BTF")
def test_btf_is_read_fast_and_knows_what_is_not_there():
    start = time.process_time()
    assert facts.btf_members("no_such_struct") == {"no_such_struct": None}
    assert time.process_time() - start < 0.5


def test_a_kernel_without_btf_gives_no_guess(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "BTF_VMLINUX", tmp_path / "vmlinux")
    assert facts.btf_facts() is None


def test_missing_libbpf_names_its_packages(monkeypatch):
    def missing(name, **_):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(libbpf, "library", libbpf.library.__wrapped__)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(
        RxbookError, match=r"libbpf\.so\.1 is not installed.*apt install libbpf1.*dnf install"
    ):
        facts.btf_facts()
    assert facts.libbpf_version() is None


# --- the machine


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", []), (None, []), ("0", [0]), ("0-3", [0, 1, 2, 3]), ("0-1,4,6-7", [0, 1, 4, 6, 7])],
)
def test_cpu_list(text, numbers):
    assert facts.cpu_list(text) == numbers


def test_cpus_agree_with_nproc():
    cpus = facts.cpus()
    assert len(cpus["online"]) == facts.machine()["cpu_count"] == int(says("getconf", "_NPROCESSORS_ONLN"))
    assert set(cpus["usable"]) <= set(cpus["online"])
    assert cpus["online"][0] in facts.same_core(cpus["online"][0])


def test_isolated_cpus_are_usable_though_outside_the_affinity(tmp_path, monkeypatch):
    (tmp_path / "online").write_text("0-3\n")
    (tmp_path / "isolated").write_text("2-3\n")
    monkeypatch.setattr(facts, "CPU_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert facts.cpus() == {"online": [0, 1, 2, 3], "isolated": [2, 3], "usable": [0, 1, 2, 3]}


def test_governor_and_turbo_come_from_pyperf(tmp_path, monkeypatch):
    told = "0-3=driver:intel_pstate, intel_pstate:no turbo, governor:powersave; idle:intel_idle"

    class Run:
        def __init__(self, _):
            pass

        def get_metadata(self):
            return {"cpu_config": told, "cpu_count": 4}

    monkeypatch.setattr("pyperf.Run", Run)
    seen = facts.machine()
    assert (seen["governor"], seen["turbo"], seen["idle_driver"]) == ("powersave", "off", "intel_idle")
    told = "0-3=driver:amd-pstate-epp, governor:performance"
    monkeypatch.setattr(facts, "CPU_ROOT", tmp_path)
    assert facts.machine()["turbo"] is None
    (tmp_path / "cpufreq").mkdir()
    (tmp_path / "cpufreq/boost").write_text("1\n")
    assert (facts.machine()["turbo"], facts.machine()["governor"]) == ("on", "performance")


def test_memory_agrees_with_free():
    assert facts.memory_mib() == int(says("free", "-m").splitlines()[1].split()[1])


def test_virtualised_agrees_with_lscpu():
    if facts.virtualised() is None:
        pytest.skip("this CPU has no flag that says so")
    assert facts.virtualised() is ("Hypervisor vendor" in says("lscpu"))


def test_shares_are_shares():
    assert facts.pressure() is None or 0 <= facts.pressure() <= 1
    assert 0 <= facts.steal() <= 1


def test_mitigations_leave_out_what_does_not_affect():
    assert all(text != "Not affected" for text in facts.mitigations().values())


# --- perf


def test_perf_version_is_what_perf_says():
    assert f"perf version {probes.perf_version()}" == says("perf", "--version").strip()


def test_a_perf_that_fails_is_no_perf(tmp_path, monkeypatch):
    wrapper = tmp_path / "perf"
    wrapper.write_text("#!/bin/sh\necho WARNING: perf not found for this kernel >&2\nexit 2\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probes.perf_version() is None


@needs_root
def test_cycle_counter_agrees_with_perf():
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    done = subprocess.run(["perf", "stat", "-x,", "-e", "cycles", "true"], capture_output=True, text=True)
    counted = re.search(r"^\d+,", done.stderr, re.MULTILINE) is not None
    assert (probes.cycle_counter() == "") is counted


# --- probes


def around() -> tuple:
    """What a probe could leave behind. Of mounts only those of sysfs: others may make some meanwhile."""
    programs = says("bpftool", "prog", "show") if shutil.which("bpftool") else ""
    return (
        programs.count("send_nothing"),
        socket.if_nameindex(),
        [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " sysfs " in line],
        os.readlink("/proc/self/ns/net"),
        sorted(os.listdir("/sys/class/net")),
    )


@needs_root
def test_probing_leaves_nothing():
    with no_other_run():
        before = around()
        answers = probes.probe()
        assert around() == before
    assert list(answers) == ["live_frames", "veth", "native_xdp", "threaded_napi", "cpumap"]


@needs_root
def test_this_kernel_can_do_all():
    answers = probes.probe()
    if "no namespace" in answers["veth"]:
        pytest.skip(answers["veth"])
    assert set(answers.values()) == {""}


@needs_root
def test_root_of_a_container_is_told_what_is_refused():
    code = "from rxbook.kernel import probes; print(*probes.probe().values(), sep='\\n')"
    command = ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", code]
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": LIB}
    )
    assert set(done.stdout.splitlines()) == {"no namespace can be made: unshare: Operation not permitted"}


def test_without_root_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(subprocess, "run", None)
    assert set(probes.probe().values()) == {probes.NEEDS_ROOT}


def test_a_probe_that_dies_or_hangs_is_reported(tmp_path, monkeypatch):
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 5\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert set(probes.probe().values()) == {"the probe ended with 1"}
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr(probes, "TIMEOUT_S", 0.1)
    assert set(probes.probe().values()) == {"no answer in 0.1 s"}
