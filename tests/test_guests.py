# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Kernels as guests: the tables, and real boots under QEMU."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import live
from rxbook import RxbookError, heads, instructions, profile, render, report, runs
from rxbook.guests import debian, kernels, measuring, qemu
from rxbook.plan import make_plan
from rxbook.profile import record
from rxbook.runs import Folder
from rxbook.statistics import per_boot


@pytest.mark.parametrize(
    ("console", "words"),
    [
        (
            "[    1.77] Kernel panic - not syncing: Attempted to kill init! exitcode=0x100\n[ 1.8] CPU: 0",
            "Attempted to kill",
        ),
        ("\x1b[mx\n[    2.0] Oops: 0002 [#1] SMP\n[ 2.1] Kernel panic - not syncing: Fatal", "Oops: 0002"),
        ("[    3.1] BUG: kernel NULL pointer dereference, address: 0", "NULL pointer"),
        ("[    3.1] reboot: Restarting system", ""),
    ],
)
def test_a_crash_is_found_in_the_console(console, words):
    found = qemu.trouble_in(console)
    assert words in found and bool(found) == bool(words) and "\n" not in found


def test_labels_of_variants():
    plan = make_plan({"variants": "baseline=debian:6.12,debian:7.2"})
    assert plan.kernels == {"baseline": "debian:6.12", "debian:7.2": "debian:7.2"}
    assert [cell.variant for cell in plan.cells("x")] == ["baseline"] * 2 + ["debian:7.2"] * 2
    assert make_plan({"count": "instructions"}).kernels == {"running": "running"}
    assert make_plan({}).kernels == {}


@pytest.mark.parametrize(
    "given", [{"aa": True}, {"variant": "x"}, {"hosts": "h.yaml"}, {"variants": ["a=x", "a=y"]}]
)
def test_variants_that_contradict_each_other(given):
    with pytest.raises(RxbookError):
        make_plan({"variants": ["a"], **given})


# --- the table


def rows(figures: dict[tuple[str, str, int], float], drops: dict[tuple[str, str, int], int] | None = None):
    """samples of instructions: (variant, gro, boot) -> instructions per packet."""
    made = []
    for (variant, gro, boot), figure in figures.items():
        cell = next(cell for cell in make_plan({"variants": variant}).cells("") if cell.gro == gro)
        lost = (drops or {}).get((variant, gro, boot), 0)
        counted = {
            "clock_ns": 10**9, "frames": measuring.PACKETS - lost, "cpu_ns": figure * (measuring.PACKETS - lost),
            "skbs": 320, "offered_frames": measuring.PACKETS,
        }  # fmt: skip
        made.append({"block": boot, "order": 0, "boot": boot, **measuring.instruction_row(cell, counted)})
    return pd.DataFrame(made).reindex(columns=runs.COLUMNS)


def guests(differing: int | None = 0, **kernel_facts) -> dict:
    return {"cpu": "X", "packets": measuring.PACKETS, "differing_options": differing,
            "kernels": {name: {"kernel_release": "6.1", "btf": None, "trouble": []} | fact
                        for name, fact in kernel_facts.items()}}  # fmt: skip


def table_of(samples, about, order):
    made = instructions.gro_table(samples, source="measured", guests=about, order=order)
    assert max(map(len, render.text(made).splitlines())) <= 72
    return made.sections[0].rows, " ".join(made.notes)


def test_each_kernel_against_the_first_and_against_the_one_before():
    values = {"base": (4000, 4000), "three": (4100, 2000), "eight": (4100, 1500)}
    samples = rows({(name, gro, boot): pair[gro == "on"] for name, pair in values.items()
                    for gro in ("off", "on") for boot in (0, 1)})  # fmt: skip
    about = guests(base={"btf": {"cpumap_gro": False}}, three={}, eight={})
    table, notes = table_of(samples, about, list(values))
    assert [row[0] for row in table if row] == [
        "base",
        "three",
        "eight",
        "three / base",
        "eight / base",
        "eight / three",
    ]
    assert table[0][5] == "N/A" and table[1][5] == "-51.2%"
    assert [row[3] for row in table[4:]] == ["-50.0%", "-62.5%", "-25.0%"]
    assert table[6][1] == "~"
    assert "0.00 % at most" in notes and "no GRO in base" in notes and "configurations" not in notes


def test_boots_that_differ_are_told():
    table, notes = table_of(rows({("a", "off", 0): 1000, ("a", "off", 1): 1010, ("a", "on", 0): 1004,
                                  ("a", "on", 1): 1004}), guests(a={}), ["a"])  # fmt: skip
    assert table[0][1] == "1005.0 +/-5.0" and table[0][5].startswith("~")
    assert "1.00 % at most" in notes


def test_a_row_with_drops_is_void_and_is_counted():
    figures = {("a", gro, boot): 1000 for gro in ("off", "on") for boot in (0, 1)}
    lost = {("a", "on", 0): 7, ("a", "on", 1): 7}
    table, notes = table_of(rows(figures, lost), guests(a={}), ["a"])
    assert table[0][3] == "void" and table[0][5] == "-" and table[0][6] == "14"
    assert "2 rows are void" in notes


@pytest.mark.parametrize(("differing", "words"), [(12, "differ in 12 options"), (None, "not all known")])
def test_configurations_that_differ_are_told(differing, words):
    samples = rows({(name, gro, 0): 1000 for name in "ab" for gro in ("off", "on")})
    _, notes = table_of(
        samples, guests(differing, a={}, b={"trouble": ["the kernel crashed: Oops"]}), ["a", "b"]
    )
    assert words in notes and "b: 1 boots failed: the kernel crashed: Oops" in notes


def test_where_time_is_counted_a_boot_is_one_value():
    """Windows of one boot share its luck: 40 windows of 2 boots are 2 values."""
    made = []
    for boot, rate in enumerate((1.0, 1.5)):
        for block in range(20):
            for order, cell in enumerate(make_plan({"variants": "a"}).cells("")):
                made.append({**dict.fromkeys(runs.COLUMNS), **cell.model_dump(), "block": boot * 20 + block,
                             "order": order, "boot": boot, "start_utc": f"2026-12-01T00:0{boot}:{block:02}+00:00",
                             "mpps": rate, "frames": 10, "skbs": 10, "window_s": 0.1, "payload_bytes": 18,
                             "flags": "short" if block == 0 else "sender_limited" if boot else ""})  # fmt: skip
    reduced = per_boot(pd.DataFrame(made))
    assert len(reduced) == 4 and sorted(reduced["block"].unique()) == [0, 1]
    assert sorted(reduced["mpps"]) == [1, 1, 1.5, 1.5]
    assert dict(zip(reduced["boot"], reduced["flags"], strict=True)) == {0: "", 1: "sender_limited"}
    assert (reduced["frames"] == 190).all()


# --- real boots


@pytest.fixture(scope="module")
def kernel():
    """A kernel with GRO in cpumap: one of the user's store, else fetched from Debian's mirror into it."""
    if shutil.which(qemu.QEMU) is None:
        pytest.skip(f"no {qemu.QEMU}")
    found = [
        known
        for known in kernels.known()
        if (known.btf or {}).get("cpumap_gro") and known.source.startswith("Debian")
    ]
    for known in found:
        if list(Path(known.folder).glob("*-pktgen.ko")):  # which those fetched long ago have not
            return known
    try:
        return debian.fetch(debian.PREFIX)
    except RxbookError as error:
        if found:
            return found[0]
        pytest.skip(f"no kernel to boot: {error}")


@pytest.fixture(scope="module")
def run(kernel, tmp_path_factory):
    """One kernel under two labels, booted twice each, where the second panics."""
    folder = tmp_path_factory.mktemp("kernels")
    shutil.copytree(kernel.folder, folder / "bad")
    bad = dataclasses.replace(kernel, folder=folder / "bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "find_kernels", lambda _: {"good": kernel, "bad": bad})
        command_line = qemu.command_line

        def without_init(image, *rest):
            words = command_line(image, *rest)
            return [w.replace("/init", "/nothing") for w in words] if image == bad.image else words

        patch.setattr(qemu, "command_line", without_init)
        plan = make_plan({"variants": "good,bad", "count": "instructions", "heads": True})
        folder = Folder.create(tmp_path_factory.mktemp("runs") / "guests", plan, 1, "gro_on_off")
        about = live.wait_for_lock(lambda: measuring.measure(folder, plan.cells("")))
        folder.finish(about)
        return runs.load(folder.path)


def test_a_panic_costs_only_the_rows_of_its_own_kernel(run):
    assert set(run.samples["variant"]) == {"good"} and len(run.samples) == 4
    trouble = run.host["guests"]["kernels"]["bad"]["trouble"]
    assert len(trouble) == 2 and "Kernel panic - not syncing" in trouble[0]
    assert "crash" in (run.path / "log.txt").read_text()


def test_instructions_repeat_from_boot_to_boot_and_show_what_gro_saves(run):
    assert run.exact and run.samples["mpps"].isna().all()
    assert (run.samples["dropped_frames"] == 0).all()
    cells = {gro: instructions.counts(run.samples[run.samples["gro"] == gro]) for gro in ("off", "on")}
    assert instructions.worst_spread(list(cells.values())) < 0.01
    assert cells["on"].mean < cells["off"].mean / 2
    assert cells["off"].segs == 1 and cells["on"].segs > 10


def test_each_boot_records_where_the_instructions_of_each_cell_go(run):
    """Samples at even distances of instructions add up to those counted; GRO's functions cost only with GRO on."""
    recordings = record.recorded(run.path / "profiles")
    assert {cell.gro: len(found) for cell, found in recordings.items()} == {"off": 2, "on": 2}
    for found in recordings.values():
        for recording in found:
            counted = json.loads(recording.data.with_suffix(".json").read_text())["counted"]
            (event,) = profile.load(recording.data).events.values()
            assert event.samples * measuring.PERIOD == pytest.approx(counted["cpu_ns"], rel=0.02)
    tables = report.function_tables(run)
    frame = tables["functions_1"].frame
    assert "by share of instructions" in tables["functions_1"].title
    gro = frame[(frame["row"] == "family") & (frame["function"] == "GRO")].set_index("column")
    assert gro["instructions_per_packet"]["GRO on"] > 5 * gro["instructions_per_packet"]["GRO off"]
    whole = frame[frame["row"] == "all"].set_index("column")["instructions_per_packet"]
    assert whole["GRO off"] == pytest.approx(
        instructions.counts(run.samples[run.samples["gro"] == "off"]).mean
    )


def test_the_slab_gives_as_many_heads_as_it_gets_back(run):
    """GRO leaves heads in NAPI's cache, which feeds the next skbs."""
    (row,) = heads.table(heads.load(run.path / "heads.csv"), source="", order=["good"]).frame.to_dict(
        "records"
    )
    for gro in ("off", "on"):
        assert row[f"{gro}_heads_from_slab_per_frame"] == pytest.approx(
            row[f"{gro}_heads_to_slab_per_frame"], abs=0.02
        )
        assert row[f"{gro}_heads_from_cache_per_frame"] == pytest.approx(1, abs=0.02)
    assert row["off_heads_from_slab_per_frame"] == pytest.approx(1, abs=0.02)
    assert row["on_heads_from_slab_per_frame"] < 0.2


def test_a_guest_has_nothing_of_this_machine(run):
    seen = run.host["guests"]["kernels"]["good"]
    assert [name for name in seen["disks"] if not name.startswith(("loop", "ram"))] == []
    assert [name for name in seen["network_devices"] if name != "lo"] == []


FRAMES = 4096
SENT_BY_PKTGEN = {
    "one flow": {},
    "checksum zero": {"udp_csum": "zero"},
    "1518 bytes, 8 flows": {"frame_sizes": 1518, "flows": 8},
    "IPv6": {"frame_sizes": 128, "ip_version": 6},
}


def counted_in(kernel, cells, generator="live_frames"):
    """The counters of each of these cells, by its name, in one boot."""
    job = {
        "count": "instructions", "perf": None, "heads": False, "generator": generator, "queue_size": 2048,
        "packets": FRAMES,
        "windows": [
            cell.model_dump() | {"frame_spec": dataclasses.asdict(cell.frame_spec)} for cell in cells.values()
        ],
    }  # fmt: skip
    try:
        modules = kernel.modules(["pktgen"] if generator == "pktgen" else [])
    except RxbookError as error:
        pytest.skip(str(error))
    counted = []
    ended = qemu.boot(
        kernel.image,
        job,
        modules,
        kvm=False,
        timeout_s=240,
        report=lambda told: counted.append(told["counted"]),
    )
    assert ended.trouble == ""
    return dict(zip(cells, counted, strict=True))


@pytest.fixture(scope="module")
def sent_by_pktgen(kernel):
    """The counters of one boot in which pktgen sends through cpumap with GRO on."""
    cells = {
        name: live.cell(generator="pktgen", variant="x", **given) for name, given in SENT_BY_PKTGEN.items()
    }
    return counted_in(kernel, cells, "pktgen")


def test_the_kernel_of_debian_12_receives_each_frame_by_both_receivers(kernel):
    """Its verifier knows less, and where ksoftirqd is to run no softirq runs elsewhere."""
    known = [known for known in kernels.known() if known.release.startswith("6.1.")]
    try:
        old = known[0] if known else debian.fetch(f"{debian.PREFIX}6.1")
    except RxbookError as error:
        pytest.skip(f"no kernel to boot: {error}")
    cells = {
        (receiver, gro): live.cell(receiver=receiver, gro=gro, variant="x")
        for receiver in ("cpumap", "stack")
        for gro in ("off", "on")
    }
    counted = counted_in(old, cells)
    assert all(each["frames"] == each["offered_frames"] == FRAMES for each in counted.values())
    segs = {name: each["frames"] / each["skbs"] for name, each in counted.items()}
    assert segs.pop(("stack", "on")) == pytest.approx(64) and set(segs.values()) == {1}
    assert old.btf == {"cpumap_gro": False, "netfilter_link": False, "bulk_skb_cache": False}


@pytest.mark.parametrize("name", SENT_BY_PKTGEN)
def test_pktgen_sends_each_frame_that_was_asked_for(sent_by_pktgen, name):
    counted = sent_by_pktgen[name]
    assert counted["frames"] == counted["offered_frames"] == FRAMES


def test_gro_merges_what_pktgen_sends_with_a_true_checksum(sent_by_pktgen):
    segs = {name: counted["frames"] / counted["skbs"] for name, counted in sent_by_pktgen.items()}
    assert segs["one flow"] > 10 and segs["IPv6"] > 10 and segs["checksum zero"] == 1


def test_a_guest_that_does_not_end_is_ended(kernel):
    ended = qemu.boot(kernel.image, {"count": "instructions", "windows": []}, [], kvm=False, timeout_s=1)
    assert ended.trouble == "no end within 1 s" and ended.wall_s < 10


def test_a_killed_run_leaves_no_guest(kernel):
    job = {"count": "time", "windows": []}
    code = "from pathlib import Path; from rxbook.guests import qemu\n"
    code += f"qemu.boot(Path({str(kernel.image)!r}), {job}, [], kvm=False, timeout_s=60)"
    starter = subprocess.Popen([sys.executable, "-c", code])
    try:
        guest = wait_for(lambda: child_of(starter.pid, qemu.QEMU))
        os.kill(starter.pid, signal.SIGKILL)
    finally:
        starter.kill()
        starter.wait()
    assert guest and wait_for(lambda: not Path(f"/proc/{guest}").exists() or state(guest) == "Z")


def child_of(pid: int, name: str) -> int | None:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == pid and name in (path.parent / "cmdline").read_text().split("\0")[0]:
                return int(path.parent.name)
        except OSError:
            continue
    return None


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(condition, timeout_s: float = 20):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
