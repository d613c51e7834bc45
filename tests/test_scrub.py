# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A scrubbed perf.data names nobody and gives the same kernel table, in rxbook and in perf."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess

import pytest

from perf_files import KERNEL, KERNEL_MARK, USER_MARK, Recording, corpus_files
from rxbook import RxbookError, profile
from rxbook.profile import perfdata, records, scrub, scrub_names

KEYS = ["event", "cpu", "dso", "symbol", "kind"]
VALUES = ["samples", "period", "children_samples", "children_period"]


def kernel_rows(path, kallsyms=None):
    functions = profile.load(path, children=True, kallsyms=kallsyms).functions
    inside = functions[functions["kind"] != "u"]
    sums = inside.groupby(KEYS, dropna=False)[VALUES].sum().reset_index()
    return sorted(map(tuple, sums.itertuples(index=False)))


def total(path):
    return profile.load(path).functions[["samples", "period"]].sum().tolist()


def secrets(path):
    """Names that a copy must not hold: short ones and those that the kernel's own names contain say nothing."""
    data = perfdata.read(path)
    names = {data.facts.get("hostname", ""), *data.facts.get("command", [])}
    for _, event in data.side_band:
        if isinstance(event, records.Comm) or (
            isinstance(event, records.Mapping) and event.pid != records.KERNEL_PID
        ):
            names.add(event.name)
    events = {event.name.partition(":")[0] for event in data.events}
    return {
        name for name in names
        if len(name) > 5 and name.partition(":")[0] not in events and name not in scrub_names._NOT_FILES
        and not scrub_names._KERNEL_THREAD.fullmatch(name)
    }  # fmt: skip


def copied(path, folder):
    copy = folder / "copy.data"
    return copy, scrub.copy(path, copy)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_each_kind_of_file_loses_its_names_and_keeps_its_counts(tmp_path, order, pipe, compress):
    path = tmp_path / "perf.data"
    path.write_bytes(Recording(order, pipe=pipe, compress=compress).example())
    copy, scrubbed = copied(path, tmp_path)
    assert not scrubbed.warnings
    assert kernel_rows(copy) == kernel_rows(path) and total(copy) == total(path)
    functions = profile.load(copy).functions
    assert set(functions["comm"]) == {"user-1"}
    data = copy.read_bytes()
    assert b"one\0" not in data and b"host\0" not in data and b"/user/1\0" in data
    assert b"bpf_prog_1234_x\0" in data and b"[kernel.kallsyms]_text\0" in data


def test_equal_names_stay_equal_and_kernel_threads_keep_theirs(tmp_path):
    recording = Recording()
    for tid, name in enumerate(["secret", "ksoftirqd/1", "other", "secret", "cpumap/1/map:9"], 1):
        recording.comm(tid, tid, name).sample(10 + tid, 0x1000, tid=tid)
    path = tmp_path / "perf.data"
    path.write_bytes(bytes(recording))
    copy, _ = copied(path, tmp_path)
    counted = profile.load(copy).functions.groupby("comm")["samples"].sum().to_dict()
    assert counted == {"user-1": 2, "ksoftirqd/1": 1, "user-2": 1, "cpumap/1/map:9": 1}


def test_a_module_outside_the_modules_folder_loses_its_path(tmp_path):
    recording = Recording().mmap(0, -1, 0xFFFFFFFFC0000000, 0x1000, "/home/jo/src/my-net.ko", 0, KERNEL)
    recording.mmap(0, -1, 0xFFFFFFFFC1000000, 0x1000, "/lib/modules/6.1/kernel/net/veth.ko", 0, KERNEL)
    recording.sample(1, 0xFFFFFFFFC0000010, mode=KERNEL).sample(2, 0xFFFFFFFFC1000010, mode=KERNEL)
    path = tmp_path / "perf.data"
    path.write_bytes(bytes(recording))
    copy, _ = copied(path, tmp_path)
    assert set(profile.load(copy).functions["dso"]) == {"[my_net]", "[veth]"}
    assert b"/home" not in copy.read_bytes()


def test_what_is_not_known_is_left_out_and_said(tmp_path):
    recording = Recording(features={3: Recording().string("host"), 60: b"secret thing"})
    recording.sample(1, 0x1000).record(99, b"secret record").record(73, b"secret threads")
    path = tmp_path / "perf.data"
    path.write_bytes(bytes(recording))
    copy, scrubbed = copied(path, tmp_path)
    assert b"secret" not in copy.read_bytes()
    assert scrubbed.left_out == "records of type 99 (1), THREAD_MAP (1), feature 60 (1)"


def test_words_of_a_stack_that_were_taken_for_callers_are_blanked(tmp_path):
    """As the kernel does where a program has no frame pointers."""
    words = int.from_bytes(b"/bash\0\0\0", "little")
    recording = Recording().mmap(1, 1, 0x400000, 0x1000, "/usr/bin/one")
    kernel = 0xFFFFFFFF81000010
    recording.sample(2, kernel, (KERNEL_MARK, kernel, USER_MARK, 0x400100, 0x400200, words), mode=KERNEL)
    recording.deferred(3, 7, (0x400100, words, 0x400300))
    path = tmp_path / "perf.data"
    path.write_bytes(bytes(recording))
    copy, _ = copied(path, tmp_path)
    held = copy.read_bytes()
    assert b"/bash" in path.read_bytes() and b"/bash" not in held
    for address in (0x400100, 0x400200, 0x400300):
        assert struct.pack("<Q", address) in held


def test_raw_data_and_what_is_behind_a_name_are_blanked(tmp_path):
    kinds = 1 | 2 | 4 | 1 << 10  # IP, TID, TIME, RAW
    recording = Recording(sample_type=kinds)
    raw = struct.pack("<I", 20) + b"secret-secret-secret"
    recording.record(9, struct.pack("<QiiQ", 0xFFFFFFFF81000000, 1, 1, 5) + raw, KERNEL)
    recording.record(3, struct.pack("<ii", 1, 1) + b"me\0hide!" + recording.trailer(1))
    path = tmp_path / "perf.data"
    path.write_bytes(bytes(recording))
    copy, _ = copied(path, tmp_path)
    assert b"secret" not in copy.read_bytes() and b"hide" not in copy.read_bytes()
    assert total(copy) == total(path) == [1, 1000]


def test_a_probe_in_a_program_is_refused(tmp_path):
    with pytest.raises(RxbookError, match="probe_nginx:handler"):
        scrub_names.refuse_user_event("probe_nginx:handler")
    scrub_names.refuse_user_event("probe:tcp_v4_rcv")


def test_nothing_is_overwritten_and_texts_are_refused(tmp_path):
    path = tmp_path / "perf.data"
    path.write_bytes(Recording().example())
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(RxbookError, match="exists already"):
        scrub.copy(path, tmp_path / "kept")
    with pytest.raises(RxbookError, match=r"cannot write .*absent"):
        scrub.copy(path, tmp_path / "absent" / "copy")
    (tmp_path / "report.txt").write_text("# Overhead  Symbol\n")
    with pytest.raises(RxbookError, match=r"is not a perf\.data file"):
        scrub.copy(tmp_path / "report.txt", tmp_path / "copy")
    assert (tmp_path / "kept").read_text() == "kept" and len(list(tmp_path.iterdir())) == 3


def test_damaged_files_are_copied_in_part_or_refused(tmp_path):
    whole = Recording().example()
    path, copy = tmp_path / "perf.data", tmp_path / "copy.data"
    chance = random.Random(1)
    done = 0
    for _ in range(60):
        damaged = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
        for _ in range(chance.randrange(8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        copy.unlink(missing_ok=True)
        try:
            scrub.copy(path, copy)
        except RxbookError as error:
            assert str(error) and not copy.exists()
        else:
            done += 1
            profile.load(copy)
    assert done > 10


CORPUS = [path for path in corpus_files() if path.stat().st_size < 300_000]


@pytest.mark.skipif(not CORPUS, reason="the corpus of perf.data files is not beside the repository")
def test_the_corpus_is_scrubbed_or_refused(tmp_path):
    done = 0
    for path in CORPUS:
        copy = tmp_path / f"{done}.data"
        try:
            scrub.copy(path, copy)
        except RxbookError as error:
            assert "fuzzcorpus" in path.name or "not a perf.data file" in str(error), path
            continue
        done += 1
        assert kernel_rows(copy) == kernel_rows(path) and total(copy) == total(path), path
        held = copy.read_bytes()
        assert not [name for name in secrets(path) if name.encode() + b"\0" in held], path
    assert done > 30


# --- perf itself


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    if shutil.which("perf") is None:
        pytest.skip("the perf tool is not installed")
    folder = tmp_path_factory.mktemp("scrub")
    path = folder / "perf.data"
    work = "exec -a secret-name dd if=/dev/zero of=/dev/null bs=64k count=40000 # secret-argument"
    command = ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", "1999", "-o", str(path)]
    done = subprocess.run([*command, "--", "bash", "-c", work], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf cannot record here: {done.stderr.strip()[:100]}")
    shutil.copyfile("/proc/kallsyms", folder / "kallsyms")
    return path


def by_perf(path, kallsyms):
    """perf report's rows of the kernel: samples, period, symbol and file."""
    command = ["perf", "report", "-i", str(path), "--kallsyms", str(kallsyms), "--no-children", "-g", "none"]
    command += ["-F", "sample,period,symbol,dso", "-t", ";", "--stdio"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    rows = [[cell.strip() for cell in line.split(";")] for line in done.stdout.splitlines()]
    return sorted(row for row in rows if len(row) == 4 and row[2].startswith("[k]"))


@pytest.mark.needs_root
def test_perf_and_rxbook_read_the_same_kernel_table(recording, tmp_path):
    kallsyms = recording.with_name("kallsyms")
    copy, _ = copied(recording, tmp_path)
    rows = by_perf(copy, kallsyms)
    assert rows == by_perf(recording, kallsyms) and len(rows) > 3
    assert any(re.search(r"[a-z]{4}", row[2]) for row in rows)
    assert kernel_rows(copy, kallsyms) == kernel_rows(recording, kallsyms)


@pytest.mark.needs_root
def test_strings_finds_no_host_command_or_path(recording, tmp_path):
    copy, _ = copied(recording, tmp_path)
    held, source = copy.read_bytes(), recording.read_bytes()
    sought = [b"secret-argument", b"/usr/", b"libc.so", b"bash", b"HOSTNAME", str(tmp_path.parent).encode()]
    assert sum(word in source for word in sought) >= 4
    assert not [word for word in [*sought, b"/bin/", b"/home", b"/root"] if word in held]
    assert not any(name.encode() + b"\0" in held for name in secrets(recording))
    assert os.uname().nodename.encode() + b"\0" not in held


@pytest.mark.needs_root
def test_perf_opens_a_scrubbed_recording_of_tracepoints(tmp_path):
    path = tmp_path / "perf.data"
    command = [
        "perf",
        "record",
        "-q",
        "-a",
        "-e",
        "sched:sched_switch",
        "-o",
        str(path),
        "--",
        "sleep",
        "0.1",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf cannot record tracepoints here: {done.stderr.strip()[:100]}")
    copy, scrubbed = copied(path, tmp_path)
    assert not scrubbed.warnings and kernel_rows(copy) == kernel_rows(path)
    script = ["perf", "script", "-F", "comm,event,trace", "-i"]
    told = subprocess.run([*script, str(copy)], check=True, capture_output=True, text=True).stdout
    assert "sched:sched_switch" in told and "prev_comm= prev_pid=0" in told
