# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What this kernel and this machine are, read without changing anything and without root.

A fact that cannot be read is None, never a guess. What has to be tried to be known is in probes.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import hashlib
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rxbook import RxbookError
from rxbook.kernel import libbpf

__all__ = [
    "allowed_options",
    "btf_facts",
    "btf_members",
    "cmdline",
    "config_hash",
    "cpu_list",
    "cpus",
    "kernel_release",
    "kernel_version",
    "libbpf_version",
    "machine",
    "memory_mib",
    "mitigations",
    "pressure",
    "same_core",
    "smt",
    "steal",
    "symbols",
    "virtualised",
]

CPU_ROOT = Path("/sys/devices/system/cpu")
BTF_VMLINUX = Path("/sys/kernel/btf/vmlinux")

CMDLINE_ALLOWED = """
mitigations spectre_v2 spectre_v2_user spec_store_bypass_disable spectre_bhi l1tf mds mmio_stale_data
retbleed srbds tsx tsx_async_abort gather_data_sampling reg_file_data_sampling spec_rstack_overflow tsa
vmscape pti nopti nospectre_v1 nospectre_v2 nospectre_bhb kpti nokaslr randomize_kstack_offset
isolcpus nohz nohz_full rcu_nocbs rcu_nocb_poll irqaffinity nosmt maxcpus nr_cpus threadirqs skew_tick
idle intel_idle.max_cstate processor.max_cstate cpuidle.off cpuidle.governor cpuidle_haltpoll.force
haltpoll.guest_halt_poll_ns intel_pstate amd_pstate cpufreq.default_governor cpufreq.off tsc clocksource
preempt nowatchdog nmi_watchdog nosoftlockup audit psi numa_balancing transparent_hugepage
default_hugepagesz hugepagesz hugepages init_on_alloc init_on_free iommu iommu.passthrough intel_iommu
amd_iommu
"""
"""Boot options that move a rate. All others may name disks, addresses or hosts, and are dropped."""


def _read(path: Path | str) -> str | None:
    """The file's text without surrounding blanks; None where it is not there or not ours to read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


# --- the kernel


def kernel_release() -> str:
    """As `uname -r` says it."""
    return os.uname().release


def kernel_version() -> str:
    """As `uname -v` says it: build number, preemption model, perhaps a date."""
    return os.uname().version


def config_hash() -> str | None:
    """Twelve hex digits of the kernel configuration's SHA-256; None where the kernel shows none.

    Taken over the text, so /proc/config.gz and /boot/config-* of one build agree.
    """
    try:
        text = gzip.decompress(Path("/proc/config.gz").read_bytes())
    except OSError:
        try:
            text = Path(f"/boot/config-{kernel_release()}").read_bytes()
        except OSError:
            return None
    return hashlib.sha256(text).hexdigest()[:12]


def allowed_options(text: str) -> str:
    """The options of a kernel command line that move a rate, in their order.

    What follows ` -- ` belongs to init and is dropped with the rest.
    """
    words, allowed = text.split(), set(CMDLINE_ALLOWED.split())
    if "--" in words:
        words = words[: words.index("--")]
    return " ".join(word for word in words if word.split("=", 1)[0] in allowed)


def cmdline() -> str | None:
    """This kernel's command line, reduced by `allowed_options`."""
    text = _read("/proc/cmdline")
    return None if text is None else allowed_options(text)


def symbols(*names: str) -> dict[str, bool] | None:
    """Which of these functions the kernel has, by name; None where /proc/kallsyms is not to be read."""
    try:
        table = Path("/proc/kallsyms").read_bytes()
    except OSError:
        return None
    # a module's symbol is followed by a tab and the module's name
    return {name: any(b" %s%s" % (name.encode(), end) in table for end in (b"\n", b"\t")) for name in names}


# --- BTF, through libbpf


def libbpf_version() -> str | None:
    """As "1.1"; None where libbpf is not installed."""
    try:
        library = libbpf.library()
    except RxbookError:
        return None
    return f"{library.libbpf_major_version()}.{library.libbpf_minor_version()}"


def btf_members(*structs: str, blob: bytes | None = None) -> dict[str, list[str] | None] | None:
    """Member names of kernel structs; None for a struct that the kernel has not, None in all without BTF.

    blob: the BTF of another kernel. Raises RxbookError where libbpf is not installed.
    """
    with _btf(blob) as (library, btf):
        return {name: _struct_members(library, btf, name) for name in structs} if btf else None


@contextlib.contextmanager
def _btf(blob: bytes | None) -> Iterator[tuple[ctypes.CDLL, int | None]]:
    """libbpf and its handle on the BTF of this kernel or of a blob; None where there is none."""
    library = libbpf.library()
    if blob is not None:
        btf = library.btf__new(blob, len(blob))
    else:
        btf = library.btf__load_vmlinux_btf() if BTF_VMLINUX.exists() else None
    try:
        yield library, btf
    finally:
        if btf:
            library.btf__free(btf)


def _struct_members(library: ctypes.CDLL, btf: int, name: str) -> list[str] | None:
    kind_struct = 4
    number = library.btf__find_by_name_kind(btf, name.encode(), kind_struct)
    if number < 0:
        return None
    # a btf_type is three 32-bit words; the low half of the second says how many btf_members follow it, and
    # each of these is three words and starts with its name
    header = library.btf__type_by_id(btf, number)
    count = ctypes.c_uint32.from_address(header + 4).value & 0xFFFF
    offsets = [ctypes.c_uint32.from_address(header + 12 + 12 * index).value for index in range(count)]
    return [library.btf__name_by_offset(btf, offset).decode() for offset in offsets]


def btf_facts(blob: bytes | None = None) -> dict[str, bool] | None:
    """`cpumap_gro`: cpumap's kthread runs GRO; `netfilter_link`: BPF programs can be netfilter hooks;
    `bulk_skb_cache`: skbs can be taken from the NAPI cache in bulk.

    blob: the BTF of another kernel. None where the kernel has no BTF. Raises RxbookError where libbpf is not installed.
    """
    members = btf_members("bpf_cpu_map_entry", "bpf_nf_link", blob=blob)
    if members is None:
        return None
    kind_function = 12
    with _btf(blob) as (library, btf):
        bulk = library.btf__find_by_name_kind(btf, b"napi_skb_cache_get_bulk", kind_function) >= 0
    return {
        "cpumap_gro": "gro" in (members["bpf_cpu_map_entry"] or []),
        "netfilter_link": members["bpf_nf_link"] is not None,
        "bulk_skb_cache": bulk,
    }


# --- the machine


def machine() -> dict[str, Any]:
    """What pyperf knows of this machine: model, governor, turbo, idle driver, ASLR, load, CPU quota.

    governor and turbo ("on", "off") are None where the host of a virtual machine keeps them to itself.
    """
    import pyperf  # here, as a guest asks for none of this and imports slowly

    seen = pyperf.Run([1.0]).get_metadata()
    config = seen.get("cpu_config", "")
    idle = re.search(r"idle:(\w+)", config)
    return {
        "cpu_model": seen.get("cpu_model_name") or seen.get("cpu_machine") or platform.machine(),
        "cpu_count": seen.get("cpu_count"),
        "cpu_quota": seen.get("cpu_quota"),
        "governor": ",".join(sorted(set(re.findall(r"governor:(\w+)", config)))) or None,
        "turbo": _turbo(config),
        "idle_driver": idle[1] if idle else None,
        "aslr": seen.get("aslr"),
        "load_1min": seen.get("load_avg_1min"),
    }


def _turbo(config: str) -> str | None:
    """pyperf reads it from intel_pstate; the other drivers share one `boost` file."""
    if found := re.search(r"intel_pstate:(no )?turbo", config):
        return "off" if found[1] else "on"
    return {"1": "on", "0": "off"}.get(_read(CPU_ROOT / "cpufreq/boost"))


def cpu_list(text: str | None) -> list[int]:
    """The kernel's way to write CPUs: "0-2,5" is [0, 1, 2, 5]."""
    found = []
    for item in (text or "").split(","):
        first, _, last = item.partition("-")
        if first.strip():
            found += range(int(first), int(last or first) + 1)
    return found


def cpus() -> dict[str, list[int]]:
    """CPU numbers: `online`; `isolated` from the scheduler; `usable`, where this process may put a task.

    An isolated CPU is not in a process's affinity to begin with, yet it may pin a task there.
    """
    isolated = cpu_list(_read(CPU_ROOT / "isolated"))
    return {
        "online": cpu_list(_read(CPU_ROOT / "online")),
        "isolated": isolated,
        "usable": sorted(os.sched_getaffinity(0) | set(isolated)),
    }


def smt() -> str | None:
    """ "on" where two hardware threads share a core, "off" where not, None where the kernel does not say."""
    return {"1": "on", "0": "off"}.get(_read(CPU_ROOT / "smt/active"))


def same_core(cpu: int) -> list[int]:
    """The CPUs that are hardware threads of this CPU's core, itself included."""
    return cpu_list(_read(CPU_ROOT / f"cpu{cpu}/topology/thread_siblings_list")) or [cpu]


def mitigations() -> dict[str, str]:
    """The kernel's word on each CPU vulnerability that affects this machine."""
    said = {path.name: _read(path) for path in sorted((CPU_ROOT / "vulnerabilities").glob("*"))}
    return {name: text for name, text in said.items() if text and text != "Not affected"}


def microcode() -> str | None:
    """Revision of the CPU's microcode, "0x1000065"; None where the kernel does not say."""
    found = re.search(r"^microcode\s*:\s*(\S+)$", _read("/proc/cpuinfo") or "", re.MULTILINE)
    return found[1] if found else None


def virtualised() -> bool | None:
    """Whether a hypervisor runs below this kernel; None where the CPU has no way to say."""
    flags = re.search(r"^flags\s*:(.*)$", _read("/proc/cpuinfo") or "", re.MULTILINE)
    return "hypervisor" in flags[1].split() if flags else None


def memory_mib() -> int | None:
    """Memory that the kernel can use, MiB."""
    found = re.search(r"MemTotal:\s*(\d+) kB", _read("/proc/meminfo") or "")
    return int(found[1]) // 1024 if found else None


def pressure() -> float | None:
    """Share (0 to 1) of the last 10 s in which a task waited for a CPU; None without PSI."""
    found = re.search(r"some avg10=([\d.]+)", _read("/proc/pressure/cpu") or "")
    return float(found[1]) / 100 if found else None


def steal() -> float | None:
    """Share (0 to 1) of all CPU time since boot that the hypervisor gave to others."""
    words = (_read("/proc/stat") or "").split("\n", 1)[0].split()[1:9]
    total = sum(map(int, words))
    return int(words[7]) / total if total else None
