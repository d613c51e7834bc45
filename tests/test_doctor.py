# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The doctor's lines on this machine, on machines that are not at hand, and without root."""

import dataclasses
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rxbook import doctor
from rxbook.generators import pktgen, xdp_trafficgen
from rxbook.kernel import facts, probes

LIB = str(Path(facts.__file__).resolve().parents[2])

NAMES = [
    "Python", "root", "libbpf", "BTF", "live frames", "veth, native XDP", "threaded NAPI", "cpumap",
    "GRO in cpumap", "netfilter BPF link", "pktgen", "xdp_trafficgen", "perf tool",
    "cycle counter", "CPUs", "CPU isolation", "governor", "turbo", "SMT", "other load",
]  # fmt: skip

GOOD = doctor.Findings(
    python=(3, 11, 7),
    root=True,
    libbpf="1.1",
    btf={"cpumap_gro": True, "netfilter_link": True},
    probes=dict.fromkeys(["live_frames", "veth", "native_xdp", "threaded_napi", "cpumap"], ""),
    perf="6.18",
    cycle_counter="",
    cpus={"online": [0, 1, 2, 3], "isolated": [2, 3], "usable": [0, 1, 2, 3]},
    first_core=[0],
    machine={"governor": "performance", "turbo": "off", "cpu_quota": None, "load_1min": 0.1},
    smt="off",
    virtualised=False,
    pressure=0.0,
    steal=0.0,
    generators={"pktgen": ("", ""), "xdp_trafficgen": ("", "")},
)


def line(name, **changes):
    """The one line of that name, on a machine that differs from a good one in these findings."""
    found = doctor.judge(dataclasses.replace(GOOD, **changes))
    return next(check for check in found if check.name == name)


def troubled(**texts):
    return {**GOOD.probes, **texts}


def assert_fits_a_mail(text):
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 72


# --- this machine


@pytest.fixture(scope="module")
def here():
    return doctor.checks()


def test_each_line_comes_once_and_has_a_remedy_where_it_needs_one(here):
    assert [check.name for check in here] == NAMES
    assert all(bool(check.remedy) is (check.status != "ok") for check in here)
    assert all(check.finding for check in here)


def test_the_report_fits_and_shows_every_line(here):
    text = doctor.report(here)
    assert_fits_a_mail(text)
    assert all(sum(row[9:].startswith(name + " ") for row in text.splitlines()) == 1 for name in NAMES)


@pytest.mark.skipif(os.geteuid() != 0, reason="a live run needs root")
def test_this_machine_can_run_live(here):
    assert doctor.can_run_live(here) == (True, [])
    assert doctor.report(here).endswith("A live run is possible.")


def test_a_look_is_cheap():
    # CPU time, as other tests may share the machine
    def spent():
        return sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )

    before = spent()
    doctor.checks()
    assert spent() - before < 2


def test_a_user_without_root_sees_all_lines():
    # the packages may lie where only root can read them, so they are loaded before root is given up
    code = (
        "import os; from rxbook import doctor; doctor.checks()\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "found = doctor.checks(); print(len(found)); print(doctor.report(found))\n"
        "print(doctor.can_run_live(found)[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": LIB}
    )
    assert done.returncode == 0, done.stderr
    count, report = done.stdout.split("\n", 1)
    report, reasons = report.rsplit("\n", 2)[:2]
    assert int(count) == len(NAMES)
    assert_fits_a_mail(report)
    assert "missing  root" in report and report.count(probes.NEEDS_ROOT) == 4
    assert reasons.startswith("['root: no:") and "sudo" in reasons
    assert "missing: root. `make run` shows" in " ".join(report.split())


# --- other machines


def test_a_good_machine_has_nothing_to_mend():
    found = doctor.judge(GOOD)
    assert {check.status for check in found} == {"ok"}
    assert doctor.can_run_live(found) == (True, [])


def test_without_libbpf_its_packages_are_named():
    text = "libbpf.so.1 is not installed. ..."
    found = doctor.judge(
        dataclasses.replace(
            GOOD, libbpf=None, btf=None, probes=troubled(live_frames=text, native_xdp=text, cpumap=text)
        )
    )
    live, reasons = doctor.can_run_live(found)
    assert not live and any(
        "apt install libbpf1" in reason and "dnf install libbpf" in reason for reason in reasons
    )
    assert {check.name: check.status for check in found}["GRO in cpumap"] == "warn"
    assert_fits_a_mail(doctor.report(found))


def test_a_kernel_without_gro_in_cpumap_can_still_run():
    check = line("GRO in cpumap", btf={"cpumap_gro": False, "netfilter_link": True})
    assert check.status == "warn" and "N/A is printed" in check.finding and "`stack`" in check.finding
    assert doctor.can_run_live([check])[0]


@pytest.mark.parametrize(
    ("name", "changes", "status", "word"),
    [
        ("Python", {"python": (3, 9, 2)}, "missing", "python3"),
        ("BTF", {"btf": None}, "warn", "CONFIG_DEBUG_INFO_BTF"),
        ("live frames", {"probes": troubled(live_frames="Invalid argument")}, "missing", "5.18"),
        ("veth, native XDP", {"probes": troubled(veth="Operation not supported")}, "missing", "CONFIG_VETH"),
        (
            "veth, native XDP",
            {"probes": troubled(native_xdp="Operation not supported")},
            "missing",
            "CONFIG_VETH",
        ),
        ("threaded NAPI", {"probes": troubled(threaded_napi="No such file or directory")}, "missing", "5.12"),
        ("cpumap", {"probes": troubled(cpumap="Operation not permitted")}, "missing", "container"),
        (
            "netfilter BPF link",
            {"btf": {"cpumap_gro": True, "netfilter_link": False}},
            "warn",
            "drop_tcp=false",
        ),
        (
            "pktgen",
            {"generators": {**GOOD.generators, "pktgen": ("not loaded", pktgen.REMEDY)}},
            "missing",
            "modprobe pktgen",
        ),
        (
            "xdp_trafficgen",
            {"generators": {**GOOD.generators, "xdp_trafficgen": ("not installed", xdp_trafficgen.PACKAGES)}},
            "missing",
            "apt install xdp-tools",
        ),
        ("perf tool", {"perf": None}, "missing", "linux-perf"),
        ("cycle counter", {"cycle_counter": "this machine has none"}, "warn", "PMU"),
        ("cycle counter", {"cycle_counter": "not allowed without root"}, "warn", "sudo"),
        ("CPUs", {"cpus": {"online": [0], "isolated": [], "usable": [0]}}, "missing", "add a CPU"),
        ("CPUs", {"machine": {**GOOD.machine, "cpu_quota": "1.5 CPUs"}}, "warn", "cgroup"),
        ("CPU isolation", {"cpus": {**GOOD.cpus, "isolated": []}}, "warn", "isolcpus"),
        ("governor", {"machine": {**GOOD.machine, "governor": "powersave"}}, "warn", "pyperf system tune"),
        ("turbo", {"machine": {**GOOD.machine, "turbo": "on"}}, "warn", "pyperf system tune"),
        ("SMT", {"smt": "on", "first_core": [0, 4]}, "warn", "receiver_cpu"),
        ("other load", {"pressure": 0.4}, "warn", "stop what else runs"),
        ("other load", {"steal": 0.05}, "warn", "other guests"),
        ("other load", {"machine": {**GOOD.machine, "load_1min": 1.8}}, "warn", "stop what else runs"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(name, changes, status, word):
    check = line(name, **changes)
    assert check.status == status and word in check.remedy
    runs, reasons = doctor.can_run_live([check])
    assert runs is not (status == "missing" and name in doctor.NEEDED)
    assert all(check.remedy in reason for reason in reasons)
    assert_fits_a_mail(doctor.report([check]))


@pytest.mark.parametrize("name", ["governor", "turbo"])
def test_what_a_virtual_machine_hides_is_not_held_against_it(name):
    check = line(name, virtualised=True, machine={**GOOD.machine, "governor": None, "turbo": None})
    assert (check.status, check.finding) == ("ok", "not visible in a virtual machine")


def test_two_cpus_are_not_told_to_isolate_any():
    check = line("CPU isolation", cpus={"online": [0, 1], "isolated": [], "usable": [0, 1]})
    assert check.status == "ok"


def test_a_report_is_ascii_whatever_a_tool_says():
    assert_fits_a_mail(
        doctor.report([doctor.Check("perf tool", "ok", "version\u00a06.1 \u00b5 " + "x" * 200)])
    )
