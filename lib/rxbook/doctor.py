# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What this machine can do for a run, and what to do about what it cannot.

`gather` looks and `judge` decides, so that each verdict can be tested for machines that are not at hand.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import textwrap
from collections.abc import Callable
from typing import Any, Literal

from rxbook import generators
from rxbook.kernel import facts, perf_events, probes
from rxbook.kernel.libbpf import LIBBPF_PACKAGES

__all__ = ["Check", "Findings", "can_run_live", "checks", "gather", "instead", "judge", "report"]

WIDTH = 72
NAME_COLUMN, TEXT_COLUMN = 9, 29

BUSY_PRESSURE, BUSY_STEAL, BUSY_LOAD = 0.10, 0.02, 0.5
"""Above these, other tasks or other guests of the host show in a rate."""

NEEDED = ("Python", "root", "libbpf", "live frames", "veth, native XDP", "cpumap", "CPUs")
"""The lines without which nothing can be measured."""

AS_ROOT = "run as root (sudo)"
OUTSIDE = "run as root of the machine, not of a container"
TUNE = "as root: python -m pyperf system tune (undo: python -m pyperf system reset)"


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the report. `missing`: not there; `warn`: not known, or it may spoil figures."""

    name: str
    status: Literal["ok", "warn", "missing"]
    finding: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Findings:
    """What was seen, before any verdict. The texts of probes and generators are empty where the thing works."""

    python: tuple[int, ...]
    root: bool
    libbpf: str | None
    btf: dict[str, bool] | None
    probes: dict[str, str]
    perf: str | None
    cycle_counter: str
    cpus: dict[str, list[int]]
    first_core: list[int]
    machine: dict[str, Any]
    smt: str | None
    virtualised: bool | None
    pressure: float | None
    steal: float | None
    generators: dict[str, tuple[str, str]]


def gather() -> Findings:
    """Look at this machine. Takes about a second, changes nothing, works without root."""
    libbpf, cpus = facts.libbpf_version(), facts.cpus()
    return Findings(
        pressure=facts.pressure(),  # before the probes add to it
        steal=facts.steal(),
        machine=facts.machine(),
        python=sys.version_info[:3],
        root=os.geteuid() == 0,
        libbpf=libbpf,
        btf=facts.btf_facts() if libbpf else None,
        probes=probes.probe(),
        perf=probes.perf_version(),
        cycle_counter=probes.cycle_counter(),
        cpus=cpus,
        first_core=facts.same_core(cpus["usable"][0]),
        smt=facts.smt(),
        virtualised=facts.virtualised(),
        generators={name: generators.trouble(name) for name in ("pktgen", "xdp_trafficgen")},
    )


def checks() -> list[Check]:
    """The verdicts on this machine, one for each line of the report, always the same lines."""
    return judge(gather())


def judge(seen: Findings) -> list[Check]:
    """The verdicts on what was seen."""
    return [row(seen) for row in ROWS]


# --- one function for each line


def _python(seen: Findings) -> Check:
    version = ".".join(map(str, seen.python))
    if seen.python < (3, 11):
        remedy = "3.11 or newer is needed. Debian 12: apt install python3; Fedora: dnf install python3"
        return Check("Python", "missing", f"{version} is too old", remedy)
    return Check("Python", "ok", version)


def _root(seen: Findings) -> Check:
    if seen.root:
        return Check("root", "ok", "yes")
    finding = "no: only recorded runs can be shown, and some lines below are not known"
    return Check("root", "missing", finding, AS_ROOT)


def _libbpf(seen: Findings) -> Check:
    if seen.libbpf:
        return Check("libbpf", "ok", seen.libbpf)
    return Check("libbpf", "missing", "libbpf.so.1 is not installed", LIBBPF_PACKAGES)


def _btf(seen: Findings) -> Check:
    if seen.btf is not None:
        return Check("BTF", "ok", "the kernel describes its types")
    if seen.libbpf is None:
        return Check("BTF", "warn", "cannot be read without libbpf", LIBBPF_PACKAGES)
    finding = "none: what this kernel's cpumap can do is not known"
    return Check("BTF", "warn", finding, "use a kernel built with CONFIG_DEBUG_INFO_BTF=y")


def _probed(seen: Findings, name: str, trouble: str, works: str, remedy: str) -> Check:
    if not trouble:
        return Check(name, "ok", works)
    if trouble == probes.NEEDS_ROOT:
        return Check(name, "warn", trouble, AS_ROOT)
    if seen.libbpf is None:
        return Check(name, "missing", "cannot be tried without libbpf", LIBBPF_PACKAGES)
    return Check(name, "missing", trouble, remedy)


def _live_frames(seen: Findings) -> Check:
    remedy = f"use Linux 5.18 or newer; {OUTSIDE}"
    return _probed(seen, "live frames", seen.probes["live_frames"], "BPF_PROG_RUN sends frames", remedy)


def _veth(seen: Findings) -> Check:
    trouble = seen.probes["veth"] or seen.probes["native_xdp"]
    remedy = f"use a kernel with CONFIG_VETH; {OUTSIDE}"
    return _probed(seen, "veth, native XDP", trouble, "a pair can be made, native XDP attaches", remedy)


def _threaded_napi(seen: Findings) -> Check:
    remedy = "use Linux 5.12 or newer, or no threaded NAPI"
    return _probed(seen, "threaded NAPI", seen.probes["threaded_napi"], "veth can be switched to it", remedy)


def _cpumap(seen: Findings) -> Check:
    remedy = f"use a kernel with CONFIG_BPF_SYSCALL; {OUTSIDE}"
    return _probed(seen, "cpumap", seen.probes["cpumap"], "a map can be made", remedy)


def _by_btf(seen: Findings, name: str, fact: str, lacking: str, remedy: str) -> Check:
    if seen.btf is None:
        return Check(name, "warn", "not known without BTF", "see the line BTF")
    if seen.btf[fact]:
        return Check(name, "ok", "yes, by BTF")
    return Check(name, "warn", f"no, by BTF: {lacking}", remedy)


def _cpumap_gro(seen: Findings) -> Check:
    lacking = "N/A is printed for cpumap with GRO; the `stack` receiver still works"
    remedy = "use Linux 6.15 or newer, or receiver=stack"
    return _by_btf(seen, "GRO in cpumap", "cpumap_gro", lacking, remedy)


def _netfilter(seen: Findings) -> Check:
    remedy = "use Linux 6.4 or newer with CONFIG_NETFILTER_BPF_LINK=y, or drop_tcp=false"
    lacking = "TCP cannot be dropped before the stack"
    return _by_btf(seen, "netfilter BPF link", "netfilter_link", lacking, remedy)


def _generator(seen: Findings, name: str) -> Check:
    wrong, remedy = seen.generators[name]
    if not wrong:
        return Check(name, "ok", "can send (generator=" + name + ")")
    return Check(name, "missing", f"{wrong}; only generator={name} needs it", remedy)


def _pktgen(seen: Findings) -> Check:
    return _generator(seen, "pktgen")


def _xdp_trafficgen(seen: Findings) -> Check:
    return _generator(seen, "xdp_trafficgen")


def _perf(seen: Findings) -> Check:
    if seen.perf:
        return Check("perf tool", "ok", seen.perf)
    finding = "no perf that runs: rates work, profiles do not"
    return Check("perf tool", "missing", finding, probes.PERF_PACKAGES)


def _cycle_counter(seen: Findings) -> Check:
    if not seen.cycle_counter:
        return Check("cycle counter", "ok", "counts kernel cycles")
    if seen.cycle_counter == perf_events.NOT_ALLOWED:
        return Check("cycle counter", "warn", seen.cycle_counter, AS_ROOT)
    finding = f"{seen.cycle_counter}: time per packet is shown, cycles are not"
    remedy = "use a machine with a PMU, or give the guest one (QEMU: -cpu host,pmu=on)"
    return Check("cycle counter", "warn", finding, remedy)


def _cpus(seen: Findings) -> Check:
    usable, online = seen.cpus["usable"], seen.cpus["online"]
    finding = f"{len(usable)} usable of {len(online)} online"
    if len(usable) < 2:
        remedy = "two are needed, one to send and one to receive: add a CPU, or widen taskset or cpuset"
        return Check("CPUs", "missing", finding, remedy)
    if quota := seen.machine["cpu_quota"]:
        finding += f", but a cgroup limits this process to {quota}"
        return Check("CPUs", "warn", finding, "run outside of the cgroup that has cpu.max set")
    return Check("CPUs", "ok", finding)


def _isolation(seen: Findings) -> Check:
    if isolated := seen.cpus["isolated"]:
        return Check("CPU isolation", "ok", "isolated: " + ",".join(map(str, isolated)))
    if len(seen.cpus["online"]) <= 2:
        return Check("CPU isolation", "ok", "none; of two CPUs none can be spared")
    finding = "none: other tasks may run on the CPUs that are measured"
    return Check("CPU isolation", "warn", finding, "for steadier figures boot with isolcpus=SENDER,RECEIVER")


def _hidden(seen: Findings) -> str:
    return "not visible in a virtual machine" if seen.virtualised else "not known: no driver tells"


def _governor(seen: Findings) -> Check:
    governor = seen.machine["governor"]
    if governor in (None, "performance"):
        return Check("governor", "ok", governor or _hidden(seen))
    return Check("governor", "warn", f"{governor}: the clock follows the load", TUNE)


def _turbo(seen: Findings) -> Check:
    turbo = seen.machine["turbo"]
    if turbo != "on":
        return Check("turbo", "ok", turbo or _hidden(seen))
    return Check("turbo", "warn", "on: the clock follows heat and load", TUNE)


def _smt(seen: Findings) -> Check:
    if seen.smt != "on":
        return Check("SMT", "ok", seen.smt or _hidden(seen))
    core = " and ".join(map(str, seen.first_core))
    finding = f"on; the first core is CPUs {core}"
    remedy = "set sender_cpu and receiver_cpu to CPUs of two cores"
    return Check("SMT", "warn", finding, remedy)


def _load(seen: Findings) -> Check:
    load, pressure, steal = seen.machine["load_1min"] or 0.0, seen.pressure, seen.steal or 0.0
    waiting = "not known" if pressure is None else f"{pressure:.0%}"
    finding = f"load {load:.2f}, CPU pressure {waiting}, steal {steal:.1%} since boot"
    if load <= BUSY_LOAD and (pressure or 0.0) <= BUSY_PRESSURE and steal <= BUSY_STEAL:
        return Check("other load", "ok", finding)
    remedy = "stop what else runs and wait a minute; steal is other guests' work on the same host"
    return Check("other load", "warn", finding, remedy)


ROWS: tuple[Callable[[Findings], Check], ...] = (
    _python, _root, _libbpf, _btf, _live_frames, _veth, _threaded_napi, _cpumap, _cpumap_gro, _netfilter,
    _pktgen, _xdp_trafficgen, _perf, _cycle_counter, _cpus, _isolation, _governor, _turbo, _smt, _load,
)  # fmt: skip


# --- what follows from it


def can_run_live(found: list[Check]) -> tuple[bool, list[str]]:
    """Whether a run can measure here; if not, one sentence for each reason, with its remedy."""
    reasons = [
        f"{check.name}: {check.finding}. {check.remedy}"
        for check in found
        if check.name in NEEDED and check.status == "missing"
    ]
    return not reasons, reasons


def instead(reasons: list[str]) -> str:
    """What to say where the recorded sample is shown instead of a run, given the reasons of `can_run_live`."""
    return (
        f"RECORDED sample, nothing was measured here: {'; '.join(reasons)}\n"
        "For a live run: `rxbook doctor` names each remedy."
    )


def report(found: list[Check]) -> str:
    """All lines as ASCII text of at most 72 columns, remedies below their findings, then the verdict."""
    lines = ["What this machine can do", ""]
    for check in found:
        lines += _paragraph(f"{check.status:<{NAME_COLUMN}}{check.name}", check.finding)
        lines += _paragraph("", "-> " + check.remedy) if check.remedy else []
    live, reasons = can_run_live(found)
    missing = ", ".join(reason.split(":", 1)[0] for reason in reasons)
    refusal = f"No live run is possible here; missing: {missing}. `make run` shows the recorded sample."
    verdict = "A live run is possible." if live else refusal
    text = "\n".join([*lines, "", *textwrap.wrap(verdict, WIDTH)])
    return text.encode("ascii", "replace").decode()


def _paragraph(head: str, text: str) -> list[str]:
    body = textwrap.wrap(text, WIDTH - TEXT_COLUMN, break_on_hyphens=False)
    return [f"{head:<{TEXT_COLUMN}}{body[0]}", *(" " * TEXT_COLUMN + line for line in body[1:])]
