# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perf.data is read as it was recorded: the corpus of real files, and made ones of each kind."""

import re
import resource
import shutil
import struct
import subprocess
from collections import Counter

import numpy as np
import pytest
import zstandard

from perf_files import (
    CALLCHAIN,
    CORPUS,
    DEFERRED_MARK,
    ID,
    IP,
    KERNEL,
    KERNEL_MARK,
    PERIOD,
    READ,
    TID,
    TIME,
    USER_MARK,
    Recording,
    manifest,
)
from rxbook import RxbookError, profile
from rxbook.profile import deferred, perfdata

BY_COUNT_ALONE = {"perf.data.piped.header_features_aligned-6.12"}
"""perf 6.1 names the event otherwise than the file does."""
SYNTHESIZED = {"perf.data.intel_pt-4.14"}
"""perf counts branches that it decodes from the trace besides, under the event None."""
NO_PERF_DATA = {"etm__perf_inject.data", "invalid_perf.data"}


@pytest.fixture
def written(tmp_path):
    """Write a recording, return its path."""

    def write(recording):
        path = tmp_path / "perf.data"
        path.write_bytes(bytes(recording))
        return path

    return write


def counted(path):
    """(PerfData, samples by event)."""
    data = perfdata.read(path)
    counts = data.count()
    found = Counter()
    for event, samples in zip(counts.event.tolist(), counts.samples.tolist(), strict=True):
        found[data.events[event].name] += samples
    return data, found


# --- the corpus


def perf_counts(row):
    """Samples by event as perf 6.1 counted them, None where it refused the file or gave up within it."""
    listed = [
        part.strip().rsplit("=", 1)
        for part in row["samples_per_event(exact, --stats)"].split(";")
        if "=" in part
    ]
    counts = {name: int(number) for name, number in listed if name not in ("Aggregated", "None")}
    return counts if row["perf61_report_rc"] in ("0", "-11") and counts else None


rows = manifest()


@pytest.mark.skipif(
    not rows, reason=f"the corpus of perf.data files is not in {CORPUS.name} beside the repository"
)
@pytest.mark.parametrize("row", rows, ids=[row["file"].rpartition("/")[2][-60:] for row in rows])
def test_corpus_file_is_read(row):
    path = CORPUS / row["file"]
    if path.name in NO_PERF_DATA:
        with pytest.raises(RxbookError, match=r"is not a perf\.data file"):
            perfdata.read(path)
        return
    data, found = counted(path)
    expected = perf_counts(row)
    if path.name in BY_COUNT_ALONE:
        assert sorted(found.values()) == sorted(expected.values())
    elif expected is not None:
        assert dict(found) == expected
    listed = dict(part.split("=") for part in row["record_counts"].split(",") if "=" in part)
    if "COMPRESSED" not in row["record_counts"]:
        assert data.record_counts.get(9, 0) == int(listed.get("SAMPLE", 0))
    if expected is None:
        assert sum(found.values()) == data.record_counts.get(9, 0)
    if "fuzzcorpus" in path.name:
        assert data.warnings
        assert all("offset" in said or "event" in said or "cut off" in said for said in data.warnings[-1:])


@pytest.mark.skipif(
    not rows, reason=f"the corpus of perf.data files is not in {CORPUS.name} beside the repository"
)
@pytest.mark.parametrize(
    ("name", "samples"),
    [("fibo.compressed2.pipe.data", 547), ("sleep.compressed.data", 8), ("sleep.compressed.pipe.data", 8),
     ("sleep.compressed2.data", 7), ("sleep.compressed2.pipe.data", 7)],
)  # fmt: skip
def test_compressed_files_of_newer_perfs(name, samples):
    data, found = counted(CORPUS / "mstange_linux-perf-data" / name)
    assert sum(found.values()) == samples == data.record_counts[9]


# --- byte orders, pipes, compression


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_each_kind_gives_the_same_table(tmp_path, order, pipe, compress):
    path = tmp_path / "perf.data"
    path.write_bytes(Recording(order, pipe=pipe, compress=compress).example())
    found = profile.load(path, children=True, kallsyms=kallsyms(tmp_path))
    assert found.lost == 3
    assert not [said for said in found.warnings if "offset" in said]
    table = found.functions.groupby(["comm", "symbol"])[["samples", "children_samples", "period"]].sum()
    assert table.loc[("one", "inner")].tolist() == [20, 20, 20_000]
    callers = found.functions.groupby("symbol")["children_samples"].sum()
    assert callers["0x0000000000400200"] == 20
    assert callers["0x0000000000400100"] == 7
    assert found.events["cpu-clock"].samples == 20


def kallsyms(folder):
    path = folder / "kallsyms.txt"
    path.write_text("ffffffff81000000 T _text\nffffffff81000010 T inner\nffffffff81000020 T after\n")
    return path


def test_header_facts(written):
    recording = Recording(features={3: b"", 4: b"", 11: b""})
    recording.features = {
        3: recording.string("box"), 4: recording.string("6.1.0"), 11: recording.pack("I", 1) + recording.string("perf"),
    }  # fmt: skip
    facts = perfdata.read(written(recording.sample(1, 1))).facts
    assert facts == {"hostname": "box", "release": "6.1.0", "command": ["perf"]}


def test_a_damaged_feature_is_lost_alone(written):
    recording = Recording()
    recording.features = {3: b"\xff\xff\xff\xff", 4: recording.string("6.1.0")}
    data = perfdata.read(written(recording.sample(1, 1)))
    assert data.facts == {"release": "6.1.0"}
    assert "feature 3 is damaged" in data.warnings[0]
    assert "offset" in data.warnings[0]


def test_unknown_records_are_passed_over(written):
    recording = Recording().record(22, b"x" * 24).record(86, b"x" * 16).record(60_000, b"x" * 8).sample(1, 1)
    data, found = counted(written(recording))
    assert found == {"cpu-clock": 1}
    assert not data.warnings


def test_records_need_not_be_aligned(written):
    recording = Recording().sample(1, 1)
    recording.records.append(recording.pack("IHH", 40_000, 0, 12) + b"odd!")
    data, found = counted(written(recording.sample(2, 1)))
    assert (found, data.warnings) == ({"cpu-clock": 2}, [])


# --- folders


def folder_of(path, recording, parts):
    """What perf record --threads writes: the recording, and a file of records for each part."""
    path.mkdir()
    (path / "data").write_bytes(bytes(recording))
    for number, part in parts.items():
        (path / f"data.{number}").write_bytes(b"".join(part.records))
    return path


def test_a_folder_is_read_as_one_recording_in_the_order_of_time(tmp_path):
    parts = {
        0: Recording().sample(5, 1, tid=7).sample(25, 1, tid=7),
        2: Recording().comm(10, 7, "later").sample(6, 2, tid=7),
        10: Recording(),
    }
    path = folder_of(tmp_path / "perf.data", Recording().comm(1, 7, "early"), parts)
    found = profile.load(path)
    assert found.functions.groupby("comm")["samples"].sum().to_dict() == {"early": 2, "later": 1}
    assert (found.source, found.warnings) == ("perf.data (perf.data)", ())
    (path / "data.2").write_bytes((path / "data.2").read_bytes()[:-8])
    assert ["data.2: offset" in said for said in profile.load(path).warnings] == [True]


def test_a_folder_has_kallsyms_of_its_own(tmp_path):
    start = 0xFFFFFFFF81000000
    recording = Recording().mmap(0, -1, start, 1 << 24, "[kernel.kallsyms]_text", start, KERNEL)
    path = folder_of(tmp_path / "perf.data", recording.sample(1, start + 0x12, mode=KERNEL), {})
    (path / "kcore_dir").mkdir()
    kallsyms(tmp_path).rename(path / "kcore_dir" / "kallsyms")
    assert profile.load(path).functions["symbol"].tolist() == ["inner"]


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
def test_a_real_folder_of_perf_threads_is_counted_as_perf_does(tmp_path):
    path = tmp_path / "perf.data"
    command = [
        "perf",
        "record",
        "-q",
        "--threads",
        "-a",
        "-e",
        "cpu-clock",
        "-o",
        str(path),
        "--",
        "sleep",
        "0.5",
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("perf record --threads does not work here")
    said = subprocess.run(
        ["perf", "report", "-i", str(path), "--stdio", "-g", "none", "-s", "comm", "-F", "sample,comm", "-t", ";"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = [line.split(";") for line in said.splitlines() if line and line[0] != "#"]
    found = profile.load(path).functions.groupby("comm")["samples"].sum()
    assert len(list(path.glob("data.*"))) > 1
    assert found.to_dict() == {comm.strip(): int(samples) for samples, comm in rows}


# --- what samples hold


def test_events_are_told_apart_by_id(written):
    recording = Recording(events=((1, 0), (0, 1), (2, 77)))
    for event in (0, 1, 1, 2):
        recording.sample(1, 1, event=event)
    assert counted(written(recording))[1] == {"cpu-clock": 1, "instructions": 2, "tracepoint 77": 1}


def test_a_sample_of_no_known_event_is_said(written):
    data, found = counted(written(Recording(events=((1, 0), (0, 1))).sample(1, 1, event=9)))
    assert not found
    assert data.warnings == ["1 samples belong to no event that the file names and are not counted"]


def test_a_sample_without_period_has_that_of_its_event(written):
    recording = Recording(sample_type=IP | TID | TIME, period=250).sample(1, 1).sample(2, 1)
    assert profile.load(written(recording)).events["cpu-clock"].period == 500


def test_group_reads_are_samples_of_each_event(written):
    recording = Recording(
        sample_type=IP | TID | TIME | ID | PERIOD | READ, read_format=8 | 4, events=((0, 0), (0, 1))
    )
    for time, cycles, instructions in ((1, 100, 50), (2, 300, 50), (3, 600, 90)):
        read = recording.pack("QQQQQ", 2, cycles, 100, instructions, 101)
        recording.sample(time, 1, read=read)
    events = profile.load(written(recording)).events
    assert (events["cycles"].samples, events["cycles"].period) == (3, 600)
    assert (events["instructions"].samples, events["instructions"].period) == (2, 90)


def test_each_event_of_a_group_read_has_room_for_its_chain(written):
    number = 300
    recording = Recording(
        sample_type=IP | TID | TIME | ID | READ | CALLCHAIN, read_format=8 | 4, events=((1, 0),) * number
    )
    values = [word for event in range(number) for word in (7, 100 + event)]
    read = recording.pack(f"Q{2 * number}Q", number, *values)
    chain = (USER_MARK, *range(0x1000, 0x1000 + 3000))
    counts = perfdata.read(written(recording.sample(1, 0x1000, chain, read=read))).count(chains=True)
    assert (len(counts.samples), len(counts.chain)) == (number, number * 3000)
    assert (counts.ip[counts.chain].reshape(number, -1) == np.arange(0x1000, 0x1000 + 3000)).all()


def test_context_markers_are_no_callers(written):
    chain = (KERNEL_MARK, 0xFFFFFFFF81000010, USER_MARK, 0x400100)
    data = perfdata.read(written(Recording().sample(1, 0xFFFFFFFF81000010, chain, mode=KERNEL)))
    counts = data.count(chains=True)
    assert [(counts.mode[frame], counts.ip[frame]) for frame in counts.chain] == [
        (KERNEL, 0xFFFFFFFF81000010), (2, 0x400100),
    ]  # fmt: skip


def test_a_chain_with_an_unknown_marker_is_none(written):
    data = perfdata.read(written(Recording().sample(1, 5, ((1 << 64) - 77, 6, 7))))
    counts = data.count(chains=True)
    assert (counts.samples.sum(), len(counts.chain)) == (1, 0)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compress", [False, True])
def test_chains_recorded_apart_are_joined_by_cookie_and_thread(written, order, compress):
    recording = Recording(order, compress=compress)
    for time, (cookie, tid) in enumerate([(5, 1), (6, 2), (5, 1), (6, 1), (8, 1)]):
        chain = (KERNEL_MARK, 0xFFFFFFFF81000010, DEFERRED_MARK, cookie)
        recording.sample(time, 0xFFFFFFFF81000010, chain, tid=tid, mode=KERNEL)
    recording.deferred(10, 6, (USER_MARK, 0x400100, 0x400200), tid=2).deferred(11, 5, (USER_MARK, 0x400300))
    recording.deferred(12, 8, (USER_MARK, 0x400300))
    data = perfdata.read(written(recording))
    counts = data.count(chains=True)
    found = {
        tuple(hex(counts.ip[frame]) for frame in counts.chain[start:end][1:]): samples
        for start, end, samples in zip(
            counts.offsets, counts.offsets[1:], counts.samples.tolist(), strict=False
        )
    }
    assert found == {("0x400100", "0x400200"): 1, ("0x400300",): 3, (): 1}
    assert set(counts.mode[counts.leaf]) == {KERNEL}
    assert data.warnings == [
        "1 samples wait for a call chain of user space that was not recorded: only their kernel part is shown"
    ]


def test_deferred_chains_that_are_damaged_or_too_many_are_left_out(written, monkeypatch):
    monkeypatch.setattr(deferred, "MOST_ADDRESSES", 3)
    recording = Recording().record(22, b"x" * 8).record(22, b"\xff" * 16)
    for cookie in (1, 2, 3):
        recording.sample(cookie, 1, (DEFERRED_MARK, cookie))
        recording.deferred(cookie + 10, cookie, (USER_MARK, 0x400 + cookie // 2))
    counts = perfdata.read(written(recording)).count(chains=True)
    assert (counts.samples.tolist(), counts.ip[counts.chain].tolist()) == ([1, 2], [0x400])


def test_equal_samples_are_one_group_whatever_their_number(written):
    recording = Recording()
    for i in range(5000):
        recording.sample(i, i % 7, (USER_MARK, i % 7, 9), cpu=i % 2)
    counts = perfdata.read(written(recording)).count(chains=True)
    assert len(counts.samples) == 14
    assert counts.samples.sum() == 5000
    assert len(counts.chain) == 28


def test_many_distinct_samples_outgrow_the_first_arrays(written):
    recording = Recording()
    for i in range(70_000):
        recording.sample(i, 8 * i, (USER_MARK, 8 * i, 8 * i + 1))
    counts = perfdata.read(written(recording)).count(chains=True)
    assert len(counts.samples) == 70_000
    assert (counts.samples == 1).all()
    assert (counts.ip[counts.leaf] == 8 * np.arange(70_000, dtype=np.uint64)).all()
    assert (counts.ip[counts.chain[1::2]] == counts.ip[counts.leaf] + 1).all()


# --- who ran, and what was mapped, over time


def test_names_follow_time_not_the_order_in_the_file(written):
    recording = Recording().sample(5, 1, tid=7).sample(15, 1, tid=7).sample(25, 1, tid=8)
    recording.comm(10, 7, "later").fork(20, 8, 7).comm(1, 7, "early")
    table = profile.load(written(recording)).functions
    assert dict(zip(table["comm"], table["samples"], strict=True)) == {"early": 1, "later": 2}


def test_without_times_the_order_in_the_file_counts(written):
    recording = Recording(sample_id_all=False).sample(99, 1, tid=7).comm(0, 7, "named").sample(1, 1, tid=7)
    table = profile.load(written(recording)).functions
    assert dict(zip(table["comm"], table["samples"], strict=True)) == {":7": 1, "named": 1}


def test_a_later_mapping_replaces_what_it_covers(written):
    recording = Recording().mmap(1, 1, 0x1000, 0x3000, "/old").mmap(10, 1, 0x2000, 0x1000, "/new")
    for time, ip in ((5, 0x2500), (15, 0x1500), (15, 0x2500), (15, 0x3500), (15, 0x4000)):
        recording.sample(time, ip)
    table = profile.load(written(recording)).functions
    found = set(zip(table["dso"], table["symbol"], strict=True))
    assert found == {
        ("old", "0x0000000000001500"), ("old", "0x0000000000000500"), ("new", "0x0000000000000500"),
        ("old", "0x0000000000002500"), ("[unknown]", "0x0000000000004000"),
    }  # fmt: skip


def test_a_forked_process_has_its_parents_mappings(written):
    recording = (
        Recording().mmap(1, 1, 0x1000, 0x1000, "/mapped").fork(5, 2, 1).mmap(6, 1, 0x1000, 0x1000, "/after")
    )
    table = profile.load(written(recording.sample(9, 0x1001, tid=2))).functions
    assert table["dso"].tolist() == ["mapped"]


def test_bpf_programs_come_and_go(written):
    start = 0xFFFFFFFFC0000000
    recording = (
        Recording().ksymbol(1, start, 64, "bpf_prog_1_a").ksymbol(10, start, 64, "bpf_prog_1_a", gone=True)
    )
    recording.ksymbol(20, start, 64, "bpf_prog_2_b")
    for time in (5, 15, 25):
        recording.sample(time, start + 8, mode=KERNEL)
    table = profile.load(written(recording)).functions
    assert set(zip(table["symbol"], table["kind"], strict=True)) == {
        ("bpf_prog_1_a", "b"), ("bpf_prog_2_b", "b"), (f"{start + 8:#018x}", "k"),
    }  # fmt: skip


def test_what_was_lost_and_throttled_is_counted(written):
    recording = Recording()
    recording.record(2, recording.pack("QQ", 100, 40) + recording.trailer(1))
    recording.record(13, recording.pack("Q", 50) + recording.trailer(2))
    recording.record(5, recording.pack("QQQ", 3, 100, 100) + recording.trailer(3))
    data = perfdata.read(written(recording.sample(4, 1)))
    assert (data.lost_records, data.lost_samples, data.lost, data.throttled) == (40, 50, 50, 1)


# --- damage


def test_cut_anywhere_what_came_before_is_read(tmp_path):
    whole = Recording().example()
    path = tmp_path / "perf.data"
    samples = []
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            data, found = counted(path)
        except RxbookError as error:
            assert size < 104, error
            continue
        assert data.warnings
        samples.append(sum(found.values()))
    assert samples == sorted(samples)
    assert (samples[0], samples[-1]) == (0, 20)


def test_a_record_without_size_ends_the_reading(written):
    recording = Recording().sample(1, 1)
    recording.records.append(bytes(16))
    data, found = counted(written(recording.sample(2, 1)))
    assert found == {"cpu-clock": 1}
    assert len(data.warnings) == 1
    assert "no record begins here" in data.warnings[0]


def test_a_killed_recording_is_read_to_its_end(written, tmp_path):
    whole = bytearray(bytes(Recording().sample(1, 1).sample(2, 1)))
    struct.pack_into("<Q", whole, 48, 0)
    data, found = counted(written(whole))
    assert found == {"cpu-clock": 2}
    assert "was not finished" in data.warnings[0]


def test_damaged_compression_ends_the_reading(written):
    whole = bytearray(Recording(compress=True).example())
    places = [found.start() for found in re.finditer(rb"\x51\0\0\0\0\0", whole)]
    at = places[len(places) // 2]
    whole[at + 8 : at + 24] = b"\xff" * 16
    data, found = counted(written(whole))
    assert 0 < sum(found.values()) < 20
    assert any("compressed record is damaged" in said for said in data.warnings)


def test_few_bytes_that_unpack_to_many_take_little_memory(written):
    recording = Recording(compress=False)
    payload = zstandard.ZstdCompressor().compress(recording.pack("IHH", 60_000, 0, 8) * (50 << 20))
    for at in range(0, len(payload), 60_000):
        piece = payload[at : at + 60_000]
        recording.records.append(recording.pack("IHH", 81, 0, 8 + len(piece)) + piece)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data = perfdata.read(written(recording))
    assert sum(data.record_counts.values()) > 50 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_numbers_of_threads_and_cpus_that_cannot_be(written):
    recording = Recording().sample(1, 1, tid=-5).sample(2, 1, tid=-(1 << 31), cpu=(1 << 32) - 7)
    table = profile.load(written(recording)).functions
    assert (table["comm"].tolist(), sorted(table["cpu"])) == ([":-1", ":-1"], [-1, 0])


def test_ids_of_many_events_that_are_all_the_same_bytes_are_bounded(written):
    recording = Recording(events=((1, 0),) * 500)
    whole = bytearray(bytes(recording.sample(1, 1))) + bytes(1 << 20)
    attrs_at = struct.unpack_from("<Q", whole, 24)[0]
    for number in range(500):
        struct.pack_into("<QQ", whole, attrs_at + 128 * number + 112, 0, len(whole))
    data = perfdata.read(written(whole))
    assert sum(len(event.ids) for event in data.events) * 8 <= 1 << 22


@pytest.mark.parametrize("content", [b"", b"PERFILE2", b"# Overhead", b"\0" * 200])
def test_no_perf_data(tmp_path, content):
    path = tmp_path / "perf.data"
    path.write_bytes(content)
    with pytest.raises(RxbookError, match=r"perf\.data"):
        perfdata.read(path)


@pytest.mark.parametrize("size", [(1 << 63) + 128, 1 << 40, 0, 79])
def test_an_attribute_size_that_cannot_be_is_said(written, size):
    whole = bytearray(bytes(Recording().sample(1, 1)))
    struct.pack_into("<Q", whole, 16, size)
    data, found = counted(written(whole))
    assert not found
    assert data.warnings[0].startswith(f"the header gives {size} bytes per event")


def test_no_file(tmp_path):
    with pytest.raises(RxbookError, match="cannot read absent"):
        profile.load(tmp_path / "absent")
    with pytest.raises(RxbookError, match="is a folder without a recording"):
        profile.load(tmp_path)
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(RxbookError, match=r"is not a perf\.data"):
        profile.load(tmp_path)
