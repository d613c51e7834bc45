# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""On what a run was measured: the record that goes into host.json, and what of it may be published.

No record holds a host name, a user name or a path.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import rxbook
from rxbook import RxbookError
from rxbook.kernel import facts, offloads, probes

__all__ = ["PUBLISHED", "hardware", "host", "machine_label", "scrub"]

PACKAGES = ("numpy", "pandas", "pyperf", "pyroute2", "papermill")

PUBLISHED: dict[str, set[str] | None] = {
    "date_utc": None,
    "kernel_release": None,
    "kernel_version": None,
    "config_hash": None,
    "cmdline": None,
    "btf": {"cpumap_gro", "netfilter_link", "bulk_skb_cache"},
    "symbols": {"napi_skb_cache_get_bulk", "gro_receive_skb"},
    "mitigations": None,
    "cpu_model": None,
    "microcode": None,
    "cpu_count": None,
    "cpu_quota": None,
    "cpus_isolated": None,
    "governor": None,
    "turbo": None,
    "smt": None,
    "idle_driver": None,
    "aslr": None,
    "virtualised": None,
    "cycle_counter": None,
    "memory_mib": None,
    "load_1min": None,
    "cpu_pressure": None,
    "steal": None,
    "offloads_before": set(offloads.FEATURES),
    "offloads_after": set(offloads.FEATURES),
    "versions": {"python", "rxbook", "libbpf", "perf", *PACKAGES},
    "git": {"commit", "dirty"},
    "guests": None,
    "interface": {
        "driver",
        "driver_version",
        "firmware",
        "speed_mbps",
        "mtu_bytes",
        "numa_node",
        "rx_queues",
        "rings",
        "coalescing",
        "channels",
        "features_on",
        "counters",
        "cpu",
        "irq_cpus",
    },
}
"""Keys of a host record that may leave the machine, each with its inner keys that may (None: all)."""


def host() -> dict[str, Any]:
    """This machine, now, as host.json has it: keys of PUBLISHED; None where a fact cannot be had.

    A run adds its offloads; one on other hosts `sender` and `receiver`, the records of both, with `interface`.
    Shares (cpu_pressure, steal) are 0 to 1. Needs no root and changes nothing.
    """
    return {
        "date_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **_kernel(),
        **facts.machine(),
        "cpus_isolated": facts.cpus()["isolated"],
        "smt": facts.smt(),
        "microcode": facts.microcode(),
        "mitigations": facts.mitigations(),
        "virtualised": facts.virtualised(),
        "cycle_counter": probes.cycle_counter() == "",
        "memory_mib": facts.memory_mib(),
        "cpu_pressure": facts.pressure(),
        "steal": facts.steal(),
        "versions": _versions(),
        "git": _git(),
    }


def _kernel() -> dict[str, Any]:
    try:
        btf = facts.btf_facts()
    except RxbookError:  # no libbpf: a run says so itself, a record only has less to tell
        btf = None
    return {
        "kernel_release": facts.kernel_release(),
        "kernel_version": facts.kernel_version(),
        "config_hash": facts.config_hash(),
        "cmdline": facts.cmdline(),
        "btf": btf,
        "symbols": facts.symbols("napi_skb_cache_get_bulk", "gro_receive_skb"),
    }


def _versions() -> dict[str, str | None]:
    return {
        "python": platform.python_version(),
        "rxbook": rxbook.__version__,
        "libbpf": facts.libbpf_version(),
        "perf": probes.perf_version(),
        **{name: _package_version(name) for name in PACKAGES},
    }


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git() -> dict[str, Any] | None:
    """Commit of the checkout that rxbook runs from; None where it was installed from a package."""
    # a virtual environment may lie in somebody else's checkout: only one that tracks this file is rxbook's
    if _git_says("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = _git_says("rev-parse", "--short=12", "HEAD")
    changed = _git_says("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changed)} if commit else None


def _git_says(*words: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def scrub(record: dict[str, Any]) -> dict[str, Any]:
    """A host record fit for data/samples: what PUBLISHED does not name is dropped, whatever it is.

    The kernel's command line is filtered once more, since a record may come from elsewhere.
    """
    kept = {key: _inner(value, PUBLISHED[key]) for key, value in record.items() if key in PUBLISHED}
    kept |= {role: scrub(record[role]) for role in ("sender", "receiver") if role in record}
    if kept.get("cmdline"):
        kept["cmdline"] = facts.allowed_options(kept["cmdline"])
    return kept


def _inner(value: Any, allowed: set[str] | None) -> Any:
    if allowed is None or not isinstance(value, dict):
        return value
    return {key: item for key, item in value.items() if key in allowed}


def machine_label(record: dict[str, Any]) -> str:
    """One short line for a table's foot: "2-CPU VM, AMD EPYC, Linux 6.18.44"."""
    # a distribution's suffix says little to others and may be a name of the builder's
    release = re.match(r"[\d.]+(-rc\d+)?", record["kernel_release"])
    label = f"{_cpus(record)}, Linux {release[0] if release else '?'}"
    if "receiver" not in record:
        return label
    return f"{label}, driver {_driver(record)}; sender: {machine_label(record['sender'])}"


def hardware(record: dict[str, Any]) -> str:
    """The same without the kernel, which a machine outlives: "2-CPU VM, AMD EPYC"."""
    if "receiver" not in record:
        return _cpus(record)
    return f"{_cpus(record)}, driver {_driver(record)}; sender: {_cpus(record['sender'])}"


def _cpus(record: dict[str, Any]) -> str:
    kind = "VM" if record.get("virtualised") else "machine"
    model = re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@.*", " ", record["cpu_model"])
    return f"{record['cpu_count']}-CPU {kind}, {' '.join(model.split())}"


def _driver(record: dict[str, Any]) -> str:
    return record["receiver"]["interface"]["driver"] or "unknown"
