# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""report.txt: a run in ASCII of at most 72 columns, as it can stand in or below a mail."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rxbook import notebooks, provenance, render, report, words
from rxbook.kernel import perf_tool
from rxbook.plan import Plan
from rxbook.profile import record
from rxbook.runs import Run
from rxbook.statistics import cells_of, counted

__all__ = ["text"]

WIDTH = 72
JOINT = "\0"  # a blank at which no line is broken
LOSS = re.compile(r"drop|miss|discard|err|no_?buf|overflow", re.IGNORECASE)
NAME = 12  # columns for the name of a fact


def text(run: Run) -> str:
    """What was measured, the tables, how, what is flagged, and the command that measures it again."""
    parts = [_head(run), *_tables(run), "\n".join(_how(run)), _flagged(run), _again(run)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _head(run: Run) -> str:
    said = [form.format(_listed(values)) for form, values in _axes(run) if values]
    source = words.marked(words.dated(run.source, run.samples))
    return _fill(f"{run.path.name}: {', '.join(said)}; GRO {' and '.join(run.plan.gro)}; {source}.")


def _axes(run: Run) -> Iterator[tuple[str, list[str]]]:
    """(how it is said, values in the plan's order) of what the cells send and who receives."""
    cells = run.plan.cells("")

    def values(name: str) -> list[str]:
        return list(dict.fromkeys(str(getattr(cell, name)) for cell in cells))

    yield "{}", list(dict.fromkeys(words.short_traffic(cell.model_dump()) for cell in cells))
    yield "in bursts of {}", values("burst") if any(cell.flows > 1 for cell in cells) else []
    yield "frames of {} bytes", values("frame_size")
    yield "UDP checksum {}", values("udp_csum") if "udp" in values("protocol") else []
    yield "{}", values("receiver")
    yield "kernels {}", variants if len(variants := values("variant")) > 1 else []


def _listed(values: Sequence[str]) -> str:
    *others, last = values
    return f"{', '.join(others)} and {last}" if others else last


def _tables(run: Run) -> Iterator[str]:
    """The notebook's tables; a note that an earlier one has is not repeated."""
    said: set[str] = set()
    for name in report.SHOWN[run.notebook]:
        table = report.table_of(run, name)
        if table is not None:
            notes = [note for note in table.notes if note not in said and not note.startswith("Machine:")]
            said.update(notes)
            yield render.text(replace(table, notes=tuple(notes)), WIDTH)


def _how(run: Run) -> Iterator[str]:
    host, plan = run.host, run.plan
    yield "How it was measured"
    yield from _fact("kernel", _joined(host, "kernel_release", "kernel_version"))
    yield from _fact("config", f"hash {host.get('config_hash') or 'not known'}")
    yield from _fact("machine", provenance.machine_label(host) + _cpu(host))
    for role in ("receiver", "sender"):
        if role in host:
            yield from _fact(role, _device(host[role]["interface"]))
    yield from _fact("mitigations", _mitigations(host))
    yield from _fact("offloads", _offloads(plan))
    for label, guest in (host.get("guests") or {}).get("kernels", {}).items():
        yield from _fact("guest", _guest(label, guest))
    yield from _fact("windows", _counts(run) if run.exact else _windows(run))
    recorded = record.recordings(run.path / "profiles")
    if recorded:
        yield from _fact("profiles", _profiles(run, recorded))
    versions = host.get("versions") or {}
    named = ", ".join(
        f"{name} {versions[name]}" for name in ("rxbook", "libbpf", "perf", "python") if versions.get(name)
    )
    yield from _fact("versions", named + _commit(host))


def _cpu(host: dict) -> str:
    told = {"governor": "governor {}", "turbo": "turbo {}", "smt": "SMT {}", "idle_driver": "idle driver {}"}
    said = [form.format(host[name]) for name, form in told.items() if host.get(name)]
    isolated = host.get("cpus_isolated")
    said.append(f"isolated CPUs {','.join(map(str, isolated))}" if isolated else "no isolated CPU")
    return "; " + ", ".join(said)


def _device(device: dict) -> str:
    """An Ethernet device of another host, its CPUs, and which of its counters of loss moved during the run."""
    told = {"driver": "driver {}", "firmware": "firmware {}", "speed_mbps": "{} Mbit/s", "rx_queues": "{} queue(s)",
            "cpu": "CPU {}"}  # fmt: skip
    said = [form.format(device[name]) for name, form in told.items() if device.get(name) not in (None, "")]
    if device.get("irq_cpus"):
        said.append(f"interrupts on CPU {','.join(map(str, device['irq_cpus']))}")
    said += [
        f"{name} {', '.join(f'{key} {value}' for key, value in device[name].items())}"
        for name in ("rings", "coalescing")
        if device.get(name)
    ]
    said += [
        f"{name} {value:+d}" for name, value in (device.get("counters") or {}).items() if LOSS.search(name)
    ]
    return "; ".join(said)


def _mitigations(host: dict) -> str:
    found = host.get("mitigations") or {}
    return "; ".join(f"{name}: {state.partition(';')[0]}" for name, state in found.items()) or "not known"


def _offloads(plan: Plan) -> str:
    shaped = "as each shape says" if plan.shapes else plan.rx_gro_list
    return (
        f"gro {'/'.join(plan.gro)}, rx-udp-gro-forwarding {plan.rx_udp_gro_forwarding}, rx-gro-list {shaped}"
        f"{', netfilter drops TCP' * plan.drop_tcp}"
    )


def _windows(run: Run) -> str:
    plan, samples = run.plan, run.samples
    each = [len(counted(windows)) for windows in cells_of(samples)]
    count = f"{min(each)} to {max(each)}" if each and min(each) != max(each) else str(each[0] if each else 0)
    return (
        f"{len(samples)} of {plan.window_s:g} s after {plan.warmup_s:g} s of warm-up, in {samples['block'].nunique()} "
        f"blocks of {len(each)} cells in random order (seed {run.seed}); {count} count in each cell"
    )


def _guest(label: str, guest: dict) -> str:
    """A kernel that was booted: what it is, and how long that took."""
    named = _joined(guest, "kernel_release", "kernel_version")
    booted = ", ".join(f"{seconds:.0f} s" for seconds in guest["boot_s"])
    config = f"hash of its options {guest['options_hash'] or 'not known'}"
    return f"{label}: {named}; {config}; booted in {booted}; mitigations {_mitigations(guest)}"


def _counts(run: Run) -> str:
    guests, samples = run.host["guests"], run.samples
    return (
        f"{len(samples)} of {guests['packets']} frames, one of each cell in each of {samples['boot'].nunique()} boots, "
        f"counted in instructions: QEMU's icount, CPU {guests['cpu']}"
    )


def _profiles(run: Run, recorded: int) -> str:
    plan = run.plan
    chains = ", with call chains" * plan.call_graph
    if run.exact:
        about = run.host["guests"]
        return (
            f"{recorded} of {about['packets']} frames, a sample each {about['period']} instructions{chains}"
        )
    cpu = run.host["receiver"]["interface"].get("cpu", "?") if plan.hosts else plan.receiver_cpu
    return f"{recorded} of {plan.profile_s:g} s, perf on CPU {cpu} at {perf_tool.FREQUENCY} Hz{chains}"


def _commit(host: dict) -> str:
    git = host.get("git")
    return f"; rxbook commit {git['commit']}{', changed' * git['dirty']}" if git else ""


def _flagged(run: Run) -> str:
    samples = run.samples
    said = [words.left_out(samples, "mpps") or "no window was left out."] if len(samples) else []
    if run.status != "finished":
        said.append(f"The run is {run.status}.")
    return "Flagged\n" + "\n".join(_fill(line, "  ") for line in said)


def _again(run: Run) -> str:
    line = notebooks.command(run).replace("--set ", f"--set{JOINT}")
    pieces = textwrap.wrap(
        line, WIDTH - 4, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return "To measure it again\n  " + " \\\n  ".join(pieces).replace(JOINT, " ")


def _joined(host: dict, *names: str) -> str:
    return " ".join(str(host[name]) for name in names if host.get(name))


def _fact(name: str, said: str) -> Iterator[str]:
    yield _fill(said, f"  {name}".ljust(NAME + 2), " " * (NAME + 2))


def _fill(said: str, first: str = "", later: str | None = None) -> str:
    return textwrap.fill(
        render.to_ascii(said), WIDTH, initial_indent=first, subsequent_indent=first if later is None else later,
        break_on_hyphens=False,
    )  # fmt: skip
