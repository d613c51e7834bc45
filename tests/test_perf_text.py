# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perf printed, read back: recorded texts, mails of them, damaged ones, and fresh ones of one recording."""

import contextlib
import functools
import os
import shutil
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rxbook import RxbookError
from rxbook.profile import COLUMNS, Profile, text, text_stat

FIXTURES = Path(__file__).parent / "data" / "perf_text"
MIX = "ring::Table<unsigned long, 200>::mix"
THREAD = """\
perf top while replaying 64 parallel streams:
base:
        6.94% [kernel] [k] inet_gro_receive
        3.02% [kernel] [k] tcp_gro_receive

patched:
        4.27% [kernel] [k] tcp_gro_receive
        4.22% [kernel] [k] inet_gro_receive

That is about 50% of the CPU's work.
"""


def load(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text()


@functools.cache
def profile(name: str) -> Profile:
    return text.parse(load(name), f"{name}.txt")


def row(frame: pd.DataFrame, symbol: str, **where) -> pd.Series:
    """The one row of the symbol."""
    found = frame[frame.symbol == symbol]
    for column, value in where.items():
        found = found[found[column] == value]
    assert len(found) == 1, found
    return found.iloc[0]


FUNCTIONAL = sorted(p.stem for p in FIXTURES.glob("*.txt") if not p.stem.startswith(("stat", "report_hier")))


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_every_recorded_text_is_read_without_a_complaint(name):
    for found in text.profiles(load(name), name):
        frame = found.functions
        assert list(frame.columns) == COLUMNS
        assert not frame.duplicated(["event", "comm", "cpu", "dso", "symbol"]).any()
        assert set(frame.kind.dropna()) <= set("kubghi")
        assert frame.share.dropna().between(0, 1).all()
        assert name == "diff_ratio" or not found.warnings


def test_report_flat_names_with_spaces_brackets_and_commas():
    found = profile("report_flat")
    mix = row(found.functions, MIX)
    assert (mix.comm, mix.dso, mix.kind, mix.share, mix.cpu) == ("demo [a], b 7", "demo", "u", 0.6167, -1)
    assert row(found.functions, "do_syscall_64").kind == "k"
    assert pd.isna(mix.samples) and pd.isna(mix.children_share)
    assert (found.events["cpu-clock"].samples, found.events["cpu-clock"].period) == (300, 300902700)
    assert found.source == "report_flat.txt (perf report)"


def test_report_fields_in_another_order_and_separated_give_exact_counts():
    fields = profile("report_fields").functions
    separated = profile("report_separated").functions
    by_name = fields.groupby(["dso", "symbol"])[["samples", "period"]].sum()
    assert set(fields.cpu) <= {0, 1}
    for line in separated.itertuples():
        assert tuple(by_name.loc[(line.dso, line.symbol)]) == (line.samples, line.period)
        assert line.share == line.period / 300902700
    assert separated.samples.sum() == 300


def test_report_of_a_group_gives_each_event_its_rows():
    found = profile("report_group").functions
    assert set(found.event) == {"cpu-clock", "page-faults"}
    mix = row(found, MIX)
    assert mix.event == "cpu-clock" and mix.share < mix.children_share + 1e-9
    assert found[found.event == "page-faults"].samples.sum() > 0


@pytest.mark.parametrize("name", ["report_graph", "report_folded"])
def test_call_graphs_below_rows_are_no_rows(name):
    found = profile(name).functions
    main = row(found, "main", event="cpu-clock")
    assert main.share == 0 and main.children_share > 0.9
    assert set(found.event) == {"cpu-clock", "page-faults"}
    pd.testing.assert_frame_equal(found, profile("report_graph").functions)


def test_hierarchies_are_refused_with_the_line():
    with pytest.raises(RxbookError, match="line 9: perf report --hierarchy"):
        profile("report_hierarchy")


def test_header_facts_and_comments():
    event = "# event : name = cycles, , type = 0, size = 128, { sample_period, sample_freq } = 4000, x, freq = 1\n"
    found = text.parse(event + load("report_flat").replace("'cpu-clock'", "'cycles'"), "a")
    assert (found.events["cycles"].frequency, found.events["cycles"].type) == (4000, "hardware")
    lost = (
        load("report_flat")
        .replace("Lost Samples: 0", "Lost Samples: 17")
        .replace("Samples: 300 ", "Samples: 3K ")
    )
    found = text.parse(lost, "a")
    assert found.lost == 17 and found.events["cpu-clock"].samples is None


def test_decimal_commas():
    comma = load("report_flat").replace(".67%", ",67%").replace(".33%", ",33%").replace(".00%", ",00%")
    assert ",67%" in comma
    pd.testing.assert_frame_equal(text.parse(comma, "a").functions, profile("report_flat").functions)


def test_names_in_other_letters_and_broken_ones_keep_the_columns():
    # perf pads by bytes, so a two-byte letter takes the place of two spaces or letters.
    name = load("report_flat").replace("demo [a], b 7", "d\u00e9mo [a], b\udcff")
    found = text.parse(name, "a")
    mix = row(found.functions, MIX)
    assert (mix.comm, mix.dso) == ("d\u00e9mo [a], b?", "demo") and not found.warnings


def test_a_mail_that_quotes_and_wraps_a_report():
    wrapped = load("report_samples").replace("  [k] read_zero", "\n[k] read_zero")
    quoted = "Hi,\n\n" + "".join(f"> > {line}\n" for line in wrapped.splitlines()) + "\nWhy so much?\n"
    found = text.parse(quoted, "mail")
    pd.testing.assert_frame_equal(found.functions, profile("report_samples").functions)
    assert found.warnings == ()


def test_columns_that_a_mail_collapsed():
    lines = [
        " ".join(line.split()) if line.startswith("  ") else line
        for line in load("report_separated").split("\n")
    ]
    assert text.parse("\n".join(lines), "a").functions.samples.sum() == 300
    short = "# Overhead  Shared Object  Symbol\n# ........  .............  ......\n#\n 1.50% [kernel] [k] napi_poll\n"
    assert row(text.parse(short, "a").functions, "napi_poll").share == 0.015


def test_perf_top_tables_of_a_thread_come_with_their_labels():
    found = text.profiles(THREAD, "thread")
    assert [p.source for p in found] == [
        "thread (perf top, line 3: base)",
        "thread (perf top, line 7: patched)",
    ]
    assert row(found[1].functions, "inet_gro_receive").share == pytest.approx(0.0422)
    assert row(found[0].functions, "inet_gro_receive").dso == "[kernel.kallsyms]"
    assert "this is the first" in text.parse(THREAD, "thread").warnings[-1]
    reply = THREAD + "".join(f"> {line}\n" for line in THREAD.splitlines())
    assert len(text.profiles(reply, "thread")) == 2


def test_perf_top_screens():
    found = text.parse(load("top"), "top.txt")
    assert row(found.functions, MIX).share > 0.5
    assert found.events["cpu-clock"].frequency == 499
    assert "this is the last" in found.warnings[-1]
    assert len(text.profiles(load("top"), "top")) > 1
    screen = "Samples: 12K of event 'cycles:P', 4000 Hz, Event count (approx.): 99 lost: 0/7 drop: 0/0\n"
    screen += "Overhead  Shared Object  Symbol\n   3.03%  [kernel]       [k] inet_gro_receive\n"
    found = text.parse(screen, "a")
    assert found.lost == 7 and found.events["cycles:P"].frequency == 4000
    assert row(found.functions, "inet_gro_receive").share == 0.0303


def test_script_agrees_with_the_report_of_the_same_recording():
    script = profile("script_flat").functions
    report = profile("report_separated").functions
    for line in report.itertuples():
        same = script[(script.symbol == line.symbol) & (script.dso == line.dso)]
        assert (same.samples.sum(), same.period.sum()) == (line.samples, line.period)
        assert set(same.kind) == {line.kind}
    assert set(script.comm) == {"demo", "demo [a], b 7"}


def test_script_call_chains():
    found = profile("script_chain").functions
    clock = found[found.event == "cpu-clock"]
    main = clock[clock.symbol == "main"]
    assert main.samples.sum() == 0 and main.children_share.sum() > 0.9
    assert set(found[found.kind == "i"].dso.dropna()) <= {"demo"}
    total = profile("script_chain").events["cpu-clock"]
    assert clock.samples.sum() == total.samples and clock.share.sum() == pytest.approx(1)


# What -F printed, then the sample's line: comm, cpu, period, event.
HEADS = {
    "comm,tid,cpu,time,period,event": ("web 2 x 12 [001]  9.123456:  10 cycles:ppp: ", "web 2 x", 1, 10, "cycles:ppp"),
    "comm,pid,tid,time,event": ("a/0:1-ev 7/12 9.123456: sched:switch: ", "a/0:1-ev", -1, None, "sched:switch"),
    "comm,period,event": ("dd       2004008  cpu-clock: ", "dd", -1, 2004008, "cpu-clock"),
    "comm,tid,event": ("dd 21079 cpu-clock: ", "dd", -1, None, "cpu-clock"),
    "tid,cpu,time,period": ("21079 [003] 99,123456:    77 ", None, 3, 77, "unknown"),
    "event with commas": ("x 1 [000] 9.123456: 5 cpu/event=0x3c,umask=0/: ", "x", 0, 5, "cpu/event=0x3c,umask=0/"),
    "flags": ("x 1 [000] K  9.123456: 5 cycles: ", "x", 0, 5, "cycles"),
}  # fmt: skip


@pytest.mark.parametrize("head, comm, cpu, period, event", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("chain", [False, True])
def test_script_fields(head, comm, cpu, period, event, chain):
    frame = "ffffffff81369742 handle_softirqs+0x72 ([kernel.kallsyms])"
    found = text.parse(f"{head}\n\t{frame}\n\n" if chain else f"  {head} {frame}\n", "a").functions
    line = row(found, "handle_softirqs")
    assert (line.dso, line.kind, line.cpu, line.event) == ("[kernel.kallsyms]", "k", cpu, event)
    assert line.samples == 1
    assert pd.isna(line.comm) if comm is None else line.comm == comm
    assert pd.isna(line.period) if period is None else line.period == period


FRAMES = {
    "operator new(unsigned long)+0x1f (/usr/lib/libx.so)": ("operator new(unsigned long)", "libx.so", "u"),
    "<a::B as c::D>::e+0x1 (/opt/my app (deleted))": ("<a::B as c::D>::e", "my app (deleted)", "u"),
    "f<(anonymous namespace)::X>(int, char) const (/x/y)": ("f<(anonymous namespace)::X>(int, char) const", "y", "u"),
    "nft_do_chain+0x5 ([nf_tables])": ("nft_do_chain", "[nf_tables]", "k"),
    "bpf_prog_614b434cd8324ecc_to_stack+0x9 (bpf_prog_614b434cd8324ecc_to_stack)": (
        "bpf_prog_614b434cd8324ecc_to_stack", "bpf_prog_614b434cd8324ecc_to_stack", "b"),
    "[unknown] ([unknown])": ("[unknown]", "[unknown]", "u"),
}  # fmt: skip


@pytest.mark.parametrize("words", FRAMES)
def test_script_frames(words):
    found = text.parse(f"x 1 [000] 9.123456: 5 cycles: \n\t    7f7b5479b100 {words}\n\n", "a").functions
    assert tuple(found.iloc[0][["symbol", "dso", "kind"]]) == FRAMES[words]


def test_script_inlined_frames_are_children_of_their_function():
    chain = "x 1 [000] 9.123456: 5 cycles: \n\t 1f inner (inlined)\n\t 1f outer+0x3 (/a/b)\n\t 2f main+0x1 (/a/b)\n\n"
    found = text.parse(chain, "a").functions
    inner = row(found, "inner")
    assert (inner.kind, inner.dso, inner.samples, inner.children_samples) == ("i", "b", 0, 1)
    assert row(found, "outer").samples == 1


def test_script_of_addresses_alone_and_lost_samples():
    found = text.parse("     7f7b5479b100 foo\n ffffffff81369742 bar\n     7f7b5479b101 foo\n", "a")
    assert row(found.functions, "foo").samples == 2 and found.functions.children_share.isna().all()
    lost = "x 1 [000] 1.123456: PERF_RECORD_LOST id:3: lost:12\n" + load("script_flat")
    assert text.parse(lost, "a").lost == 12


def test_diff_gives_both_sides():
    before, after = text.profiles(load("diff_periods"), "d")
    assert before.functions.period.sum() == 300902700 == after.functions.period.sum()
    assert before.functions.share.sum() == pytest.approx(1, abs=0.01)
    assert after.functions.share.sum() == pytest.approx(1, abs=0.01)
    three = text.profiles(load("diff_three"), "d")
    assert [p.source for p in three] == [f"d (perf diff, {n}.data)" for n in ("one1", "one2", "two1")]
    assert "ratios" in text.parse(load("diff_ratio"), "d").warnings[0]


@pytest.mark.parametrize("name", [p.stem for p in FIXTURES.glob("stat_*.txt")])
def test_stat_reads_every_counter(name):
    found = text.stat(load(name), name)
    assert list(found.columns) == text_stat.COLUMNS
    assert {"cpu-clock", "context-switches", "page-faults", "cycles"} <= set(found.event)
    assert found.attrs["warnings"] == ()
    assert text.kind(load(name)) == "perf stat"
    clock = found[found.event == "cpu-clock"]
    assert set(clock.unit) == {"msec"} and set(found[found.event == "cycles"].note) == {"not supported"}
    if "_A" in name:
        assert set(clock.cpu) == {0, 1}
    if "_i" in name:
        assert clock.interval_s.between(0, 1).all() and len(clock) == 3
    if "_r" in name:
        assert clock.variance_percent.between(0, 50).all()
    if name.split("_")[1] in ("S", "C"):
        assert clock.part.str.startswith("S0").all()


STAT = {
    "   1,234,567      cycles:u    #    1.234 GHz    ( +-  0.50% )  (75.01%)": (1234567, "cycles:u", 1.234, 0.5, 75.01),
    "   1.234.567      cycles:u    #    1,234 GHz    ( +-  0,50% )  (75,01%)": (1234567, "cycles:u", 1.234, 0.5, 75.01),
    "     1 234 567      cycles:u": (1234567, "cycles:u", None, None, None),
    "     1,234      cycles": (1234, "cycles", None, None, None),
    "     1.234,57 msec task-clock    #    0,998 CPUs utilized": (1234.57, "task-clock", 0.998, None, None),
}  # fmt: skip


@pytest.mark.parametrize("line", STAT)
def test_stat_figures_in_several_locales(line):
    found = text.stat(f" Performance counter stats for 'x':\n\n{line}\n", "a").iloc[0]
    got = (found.value, found.event, found.metric_value, found.variance_percent, found.running_percent)
    assert tuple(None if pd.isna(x) else x for x in got) == STAT[line]


def test_stat_json_with_a_first_line_that_is_none_and_csv_with_commas_in_names():
    found = text.stat("started on today\n" + load("stat_json_r"), "a")
    assert len(found) == 4 and "line 1: not understood" in found.attrs["warnings"][0]
    found = text.stat("12,,cpu/event=0x3c,umask=0x0/,5000,50.00,,\n", "a").iloc[0]
    assert (found.event, found.running_percent) == ("cpu/event=0x3c,umask=0x0/", 50)


def test_what_is_not_understood_is_said_with_its_line():
    damaged = load("report_flat").replace("8.33%", "8.x3%", 1)
    found = text.parse(damaged, "a")
    assert len(found.warnings) == 1 and found.warnings[0].startswith("line 14: not understood as a row")
    for words in ("", "hello\nworld\n", "half of it, 50%, is [k] kept\n"):
        with pytest.raises(RxbookError, match="a is no output of perf"):
            text.parse(words, "a")
    with pytest.raises(RxbookError, match="holds counters of perf stat, not functions"):
        text.parse(load("stat_table"), "a")
    with pytest.raises(RxbookError, match="no counter"):
        text.stat("hello\n", "a")


PIECES = [
    "",
    " ",
    "\n",
    "\t",
    "%",
    "#",
    ";",
    ",",
    "[k] ",
    "> ",
    "0",
    "9" * 25,
    "(",
    ")",
    ":",
    "é",
    "\x1b[H",
    "1.2%",
]


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(p.stem for p in FIXTURES.glob("*.txt"))),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 40), st.sampled_from(PIECES) | st.text(max_size=5)),
        max_size=6,
    ),
    st.floats(0, 1),
)
def test_damaged_texts_give_a_part_or_one_clear_error(name, edits, cut):
    words = load(name)[:12000]
    words = words[: int(len(words) * cut)] if cut < 0.5 else words
    for place, length, piece in edits:
        at = int(len(words) * place)
        words = words[:at] + piece + words[at + length :]
    for reader in (text.parse, text.stat):
        try:
            reader(words, name)
        except RxbookError as error:
            assert name in str(error)


@pytest.mark.parametrize(
    "unit", [" ", "(", "a/-/", "1 ", "[k] ", "1.00% ", "> ", "a: ", "1.123456: ", "12", ") ", "#"]
)
def test_long_lines_take_no_long_time(unit):
    heads = (
        "x 1 [000] 9.123456: 5 cycles: ",
        "",
        "# Samples: 1 of event 'x'\n",
        load("report_flat"),
        load("stat_A"),
    )
    start = time.process_time()
    for head in heads:
        for reader in (text.parse, text.stat):
            with contextlib.suppress(RxbookError):
                reader(head + unit * (20000 // len(unit)), "a")
    assert time.process_time() - start < 5


PERF = shutil.which("perf")
fresh = pytest.mark.skipif(not PERF or os.geteuid() != 0, reason="recording fresh texts needs perf, and root")


def perf(*arguments, folder: Path) -> str:
    command, env = [PERF, *map(str, arguments)], {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done.stderr if arguments[0] == "stat" else done.stdout


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    """A recording of a short copy, with call chains."""
    folder = tmp_path_factory.mktemp("perf")
    work = ("dd", "if=/dev/zero", "of=/dev/null", "bs=4k", "count=400000")
    perf(
        "record",
        "-q",
        "-F",
        997,
        "--sample-cpu",
        "-e",
        "cpu-clock",
        "-g",
        "-o",
        "a.data",
        "--",
        *work,
        folder=folder,
    )
    return folder


def sums(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    named = frame[(frame.kind == "k") & ~frame.symbol.str.startswith(("0x", "[unknown"))]
    return named.groupby(["dso", "symbol"])[list(columns)].sum().sort_index()


@fresh
def test_fresh_report_and_script_count_alike(recording):
    report = ("report", "--stdio", "-i", "a.data", "-g", "none")
    flat = text.parse(
        perf(*report, "--no-children", "-F", "sample,period,symbol,dso", "-t", ";", folder=recording), "r"
    )
    script = text.parse(perf("script", "-i", "a.data", folder=recording), "s")
    assert flat.events["cpu-clock"].samples == script.events["cpu-clock"].samples
    assert flat.events["cpu-clock"].period == script.events["cpu-clock"].period
    ours = sums(script.functions, "samples", "period")
    pd.testing.assert_frame_equal(sums(flat.functions, "samples", "period"), ours[ours.samples > 0])
    children = text.parse(perf(*report, "--children", "-s", "sym,dso", folder=recording), "c")
    a, b = (sums(p.functions, "children_share", "share") for p in (children, script))
    assert len(a) > 5 and (a - b).abs().max().max() < 0.0002
    assert not (flat.warnings or script.warnings or children.warnings)


@fresh
def test_fresh_diff_against_itself_has_no_difference(recording):
    before, after = text.profiles(perf("diff", "a.data", "a.data", folder=recording), "d")
    pd.testing.assert_frame_equal(before.functions, after.functions)


@fresh
@pytest.mark.parametrize(
    "form", [(), ("-x,",), ("-x;", "-r2"), ("-j",), ("-r2",), ("-I20",), ("-I20", "-j"), ("-a", "-A")]
)
def test_fresh_stat(form, tmp_path):
    found = text.stat(
        perf("stat", *form, "-e", "task-clock,page-faults", "sleep", "0.05", folder=tmp_path), "s"
    )
    assert {"task-clock", "page-faults"} <= set(found.event)
    assert found.value.dropna().ge(0).all() and found.attrs["warnings"] == ()
