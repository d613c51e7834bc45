# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions are named as perf names them: on fresh recordings, row by row, and on made tables of symbols."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from perf_files import KERNEL, Recording
from rxbook import RxbookError, profile
from rxbook.profile import elf, symbols, symtab
from rxbook.profile.demangling import demangle

WORK = "import hashlib; [hashlib.sha256(bytes(i)).digest() for i in range(9000)]; open('/dev/null').close()"


def can_record():
    """Why no recording can be made here, empty where it can."""
    if not shutil.which("perf"):
        return "perf is not installed"
    tried = subprocess.run(
        ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-o", "/dev/null", "--", "true"],
        capture_output=True,
    )
    return "" if tried.returncode == 0 else "perf may not record all CPUs here (root?)"


@pytest.fixture(scope="module", params=["flat", "chains", "two events", "compressed"])
def recorded(request, tmp_path_factory):
    """A recording of all CPUs made now: below two seconds."""
    reason = can_record()
    if reason:
        pytest.skip(reason)
    options = {"chains": ["-g"], "two events": ["-e", "page-faults", "-g"], "compressed": ["-z"]}
    path = tmp_path_factory.mktemp("recorded") / "perf.data"
    command = ["perf", "record", "-q", "-a", "-F", "999", "-e", "cpu-clock", *options.get(request.param, [])]
    work = f"{sys.executable} -c {WORK!r}; ls -R /usr/share/doc > /dev/null; cat /proc/kallsyms > /dev/null"
    subprocess.run([*command, "-o", str(path), "--", "sh", "-c", work], check=True, capture_output=True)
    return path


def linkage(symbol):
    """One name for the procedure linkage table: perf 6.1 takes it for the function before it, later ones do not."""
    return "PLT" if symbol == "_init" or symbol.endswith("@plt") else symbol


def perf_rows(path, children):
    """{(event, symbol, dso): [samples, period, children in percent]} of perf report, rows of one name added up."""
    mode = ["--children", "-F", "overhead_children,sample,period,symbol,dso"]
    flat = ["--no-children", "-F", "sample,period,symbol,dso"]
    command = ["perf", "report", "-i", str(path), "--stdio", "-t", ";", "-g", "none", "--no-group"]
    environment = os.environ | {"LC_ALL": "C"}
    shown = subprocess.run(
        [*command, *(mode if children else flat)], capture_output=True, text=True, check=True, env=environment
    )
    rows, event = {}, ""
    for line in shown.stdout.splitlines():
        if line.startswith("# Samples:"):
            event = line.split("'")[1]
        if not line.strip() or line.startswith("#"):
            continue
        *share, samples, period, symbol, dso = (cell.strip() for cell in line.split(";"))
        row = rows.setdefault((event, linkage(symbol[4:]), dso), [0, 0, 0.0])
        row[0] += int(samples)
        row[1] += int(period)
        row[2] += float(share[0].rstrip("%")) if share and share[0] != "N/A" else 0.0
    return rows


def our_rows(path, children):
    table = profile.load(path, children=children).functions
    table["symbol"] = table["symbol"].map(linkage)
    table["percent"] = 100 * table["children_share"].fillna(0)
    sums = table.groupby(["event", "symbol", "dso"])[["samples", "period", "percent"]].sum()
    return {key: list(row) for key, row in zip(sums.index, sums.itertuples(index=False), strict=True)}


def test_rows_are_those_of_perf_report(recorded):
    theirs, ours = perf_rows(recorded, False), our_rows(recorded, False)
    assert {key: row[:2] for key, row in ours.items()} == {key: row[:2] for key, row in theirs.items()}
    assert len(ours) > 50


def test_rows_with_children_are_those_of_perf_report(recorded):
    theirs, ours = perf_rows(recorded, True), our_rows(recorded, True)
    assert {key: row[:2] for key, row in ours.items()} == {key: row[:2] for key, row in theirs.items()}
    if any(row[2] for row in theirs.values()):
        for key, row in theirs.items():  # perf prints two digits; rows of one name each add a rounding
            assert ours[key][2] == pytest.approx(row[2], abs=0.0151), key


def test_what_was_recorded_here_needs_no_warning(recorded):
    assert profile.load(recorded).warnings == ()


# --- kallsyms


def table(text, module="", shift=0):
    found = symtab.kallsyms(text.encode(), module, shift)
    return lambda address: found.find(np.array([address], np.uint64))[0]


KALLSYMS = (
    "ffffffff81000000 T first\nffffffff81000100 t alias\nffffffff81000100 T wins\nffffffff81000180 r constant\n"
    "ffffffff81000200 T last\nffffffffc0000000 t of_module\t[mod]\nffffffffc0000100 t of_other\t[other]\n"
)


def test_the_last_name_at_an_address_wins():
    find = table(KALLSYMS)
    assert find(0xFFFFFFFF810000FF)[1] == "first"
    assert find(0xFFFFFFFF81000100)[1] == find(0xFFFFFFFF810001FF)[1] == "wins"


def test_modules_have_their_own_table():
    assert table(KALLSYMS, "mod")(0xFFFFFFFFC0000010)[1] == "of_module"
    assert table(KALLSYMS, "other")(0xFFFFFFFFC0000010) is None
    assert table(KALLSYMS)(0xFFFFFFFFC0000010) is None


def test_the_kernel_may_have_stood_elsewhere():
    assert table(KALLSYMS, shift=0x1000)(0xFFFFFFFF81001000) == (0xFFFFFFFF81001000, "first")


@pytest.mark.parametrize(
    "text", ["", "0000000000000000 T a\n0000000000000000 T b\n", "no kallsyms\n", "12 T a"]
)
def test_kallsyms_without_addresses_are_none(text):
    assert symtab.kallsyms(text.encode()) is None


def kernel_recording(folder, release="6.1.0-foreign", moved=0):
    recording = Recording()
    recording.features = {3: recording.string("elsewhere"), 4: recording.string(release)}
    start = 0xFFFFFFFF81000000 + moved
    recording.mmap(0, -1, start, 0x1000000, "[kernel.kallsyms]first", start, KERNEL)
    recording.sample(1, start + 0x110, mode=KERNEL)
    path = folder / "perf.data"
    path.write_bytes(bytes(recording))
    return path


def test_a_foreign_kernel_is_not_named_from_this_machine(tmp_path):
    found = profile.load(kernel_recording(tmp_path))
    assert found.functions["symbol"].tolist() == ["0xffffffff81000110"]
    assert "no kallsyms of that kernel (release 6.1.0-foreign)" in found.warnings[0]


def test_the_same_release_on_another_host_is_foreign(tmp_path):
    found = profile.load(kernel_recording(tmp_path, os.uname().release))
    assert found.functions["symbol"].tolist() == ["0xffffffff81000110"]


@pytest.mark.parametrize("moved", [0, 0x2000000])
def test_kallsyms_kept_beside_the_recording_name_it(tmp_path, moved):
    (tmp_path / "kallsyms").write_text(KALLSYMS)
    found = profile.load(kernel_recording(tmp_path, moved=moved))
    assert found.functions["symbol"].tolist() == ["wins"]
    assert found.functions["dso"].tolist() == ["[kernel.kallsyms]"]
    assert not found.warnings


def test_kallsyms_that_cannot_be_read(tmp_path):
    with pytest.raises(RxbookError, match="cannot read kallsyms"):
        profile.load(kernel_recording(tmp_path), kallsyms=tmp_path / "absent")


# --- user space


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program with a static function, an alias and a C++ name."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.mktemp("program")
    source = folder / "program.cc"
    source.write_text(
        "namespace ns { template <class T> struct A { __attribute__((noinline)) T f(T n)"
        "{ volatile T s = 0; for (T i = 0; i < n; i++) s += i; return s; } }; }\n"
        'extern "C" __attribute__((noinline)) int plain(int n) { return ns::A<long>().f(n); }\n'
        "int main(int argc, char **) { return plain(argc); }\n"
    )
    subprocess.run(["g++", "-O1", "-Wl,--build-id", "-o", folder / "program", source], check=True)
    return folder / "program"


def test_symbols_of_an_elf_file(program):
    file = elf.Elf(str(program))
    found = elf.symbol_table(file)
    names = {found.name(i) for i in range(len(found.starts))}
    assert {"main", "plain", "ns::A<long>::f"} <= names
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    address = next(int(line.split()[0], 16) for line in listed.splitlines() if line.endswith(" T plain"))
    load = next(load for load in file.loads if load[0] <= address < load[0] + load[1])
    offset = address - load[0] + load[2]
    assert found.find(np.array([offset, offset + 1], np.uint64)) == [(offset, "plain")] * 2


def test_a_file_with_another_build_id_is_not_taken(program):
    build_id = elf.Elf(str(program)).build_id()
    assert len(build_id) == 40
    assert symbols.user_table(str(program), build_id, here=False) is not None
    assert symbols.user_table(str(program), "ab" * 20, here=True) is None
    assert symbols.user_table(str(program), "", here=False) is None


@pytest.mark.parametrize("size", [0, 3, 20, 63, 70])
def test_a_damaged_elf_file_is_none(program, tmp_path, size):
    path = tmp_path / "cut"
    path.write_bytes(program.read_bytes()[:size])
    assert symbols.user_table(str(path), "", here=True) is None


def test_jit_maps():
    found = symtab.perf_map("7f00 10 one two\n0x7f20 20 three\nnonsense\n")
    assert found.find(np.array([0x7F00, 0x7F0F, 0x7F10, 0x7F3F], np.uint64)) == [
        (0x7F00, "one two"), (0x7F00, "one two"), None, (0x7F20, "three"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("main", "main"),
        ("_ZN2ns1AIlE1fEl", "ns::A<long>::f"),
        ("_ZStlsISt11char_traitsIcEERSt13basic_ostreamIcT_ES5_PKc", "std::operator<< <std::char_traits<char> >"),
        ("_ZN3fooclEv", "foo::operator()"),
        ("_ZN12_GLOBAL__N_13barEv", "(anonymous namespace)::bar"),
        ("_ZTV3foo", "vtable for foo"),
        ("_ZNK3foo3barEv.cold", "foo::bar"),
        ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
        ("_ZN58_$LT$alloc..string..String$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE",
         "<alloc::string::String as core::fmt::Debug>::fmt"),
        ("_Znonsense", "_Znonsense"),
        ("_RNvCsjrHSEGnQ3l9_7mycrate3foo", "mycrate::foo"),
        ("_RNvNtNtCsjrHSEGnQ3l9_3std2rt4mod_19lang_start_internal", "std::rt::mod_::lang_start_internal"),
        ("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"),
        ("_RNCNvC1a4main0", "a::main::{closure#0}"),
        ("_RNvXCs1_1aNtB2_3FooNtB2_3Bar3baz", "<a::Foo as a::Bar>::baz"),
        ("_RNvMC1aShE3fooB", "_RNvMC1aShE3fooB"),
        ("_RBB_", "_RBB_"),
    ],
)  # fmt: skip
def test_demangling(mangled, plain):
    assert demangle(mangled) == plain
