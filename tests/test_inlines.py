# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Inlined functions get rows of their own: of a program built and recorded here, and as addr2line tells them."""

import os
import shutil
import subprocess
from collections import Counter

import pandas as pd
import pytest

from perf_files import KERNEL, USER, USER_MARK, Recording
from rxbook import RxbookError, profile
from rxbook.profile import elf, show
from rxbook.profile.functions import Column, function_table
from synthetic_profiles import line

if not (shutil.which("gcc") and shutil.which("addr2line")):
    pytest.skip("gcc and binutils are not installed", allow_module_level=True)

SOURCE = """
#define inlined static inline __attribute__((always_inline))
inlined unsigned inner(unsigned x) { for (int i = 0; i < 64; i++) x = x * 1664525u + 1013904223u ^ x >> 3; return x; }
inlined unsigned middle(unsigned x) { return inner(x) / 3 + 1; }
__attribute__((noinline)) unsigned outer(unsigned x) { return middle(x) ^ 5; }
__attribute__((noinline)) unsigned other(unsigned x) { return inner(x) ^ 7; }
unsigned more(unsigned x) { if (x > 9) x = middle(x) + inner(x + 1); for (; x > 99; x /= 3) x += middle(x); return x; }
inlined unsigned again(unsigned x) {
  __attribute__((always_inline)) inline unsigned again(unsigned x) { return inner(x) / 5 + 2; }
  return again(x * 3 + 1) / 7 + 3;
}
__attribute__((noinline)) unsigned nested(unsigned x) { return again(x) ^ 9; }
inlined unsigned relay(unsigned x) { return outer(x) + outer(x + VARIANT); }
int main(void) { unsigned x = 1; for (int n = 0; n < 2000000; n++) x = other(relay(x)); return x & 1; }
"""
BASE = 0xFFFFFFFF81000000


def built(folder, name, *options, source=SOURCE):
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    command = ["gcc", "-x", "c", "-", "-O2", "-w", "-Wl,--build-id", "-o", str(path)]
    subprocess.run([*command, "-DVARIANT=1", *options], input=source, text=True, check=True, timeout=60)
    return path


def symbol_at(path):
    found = subprocess.run(["nm", "-S", str(path)], capture_output=True, text=True, check=True).stdout
    rows = [row.split() for row in found.splitlines()]
    return {row[3]: (int(row[0], 16), int(row[1], 16)) for row in rows if len(row) == 4}


def addr2line(path, addresses):
    """Function names at each address, innermost first."""
    given = "\n".join(map(hex, addresses))
    command = ["addr2line", "-a", "-i", "-f", "-e", str(path)]
    shown = subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
    chains = []
    for row in shown.splitlines():
        if row.startswith("0x"):
            chains.append([])
        else:
            chains[-1].append(row)
    return [chain[::2] for chain in chains]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "rxbook"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return built(tmp_path_factory.mktemp("program"), "hot", "-g")


@pytest.fixture(scope="module")
def recorded(program):
    """A recording of the program, made now."""
    if not shutil.which("perf"):
        pytest.skip("perf is not installed")
    path = program.with_name("perf.data")
    command = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "4999", "-o", str(path), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if not path.is_file():
        pytest.skip(f"perf cannot record here: {done.stderr.strip()[:100]}")
    return path


@pytest.fixture(scope="module")
def told(recorded, program):
    return profile.load(recorded, children=True, debug=[program])


def row(found, symbol, within):
    """Of a function that was inlined in one way there."""
    rows = found.functions
    rows = rows[(rows["symbol"] == symbol) & (rows["within"].fillna("") == within)]
    assert len(rows) == 1
    return rows.iloc[0]


# --- what is counted where


def test_most_samples_are_in_the_innermost_function_of_each_that_holds_it(told):
    in_outer, in_other = row(told, "inner", "outer"), row(told, "inner", "other")
    assert in_outer["kind"] == in_other["kind"] == "i" and in_outer["dso"] == "hot"
    assert in_outer["share"] > 0.4 > in_other["share"] > 0.2
    assert in_outer["samples"] <= row(told, "middle", "outer")["samples"] <= row(told, "outer", "")["samples"]


def test_functions_with_symbols_have_what_they_had(recorded, told):
    plain = profile.load(recorded, children=True)
    assert "within" not in plain.functions and (plain.functions["kind"] != "i").all()
    own = told.functions[told.functions["kind"] != "i"]
    assert own["within"].isna().all() and own["through"].isna().all()
    pd.testing.assert_frame_equal(
        own[profile.COLUMNS].reset_index(drop=True), plain.functions, check_like=True
    )
    assert told.events == plain.events


def test_what_lies_between_counts_the_inner_one(told):
    middle, inner = row(told, "middle", "outer"), row(told, "inner", "outer")
    assert middle["samples"] == middle["own_samples"] + inner["samples"] == middle["children_samples"]
    assert inner["samples"] == inner["own_samples"] == inner["children_samples"] > 10 * middle["own_samples"]
    assert inner["through"] == "middle" and pd.isna(middle["through"])


@pytest.mark.parametrize("inlined", ["shown", "apart", "hidden"])
def test_the_sums_of_families_are_the_samples_in_any_member(told, inlined):
    chosen = {"chain": ["middle", "inner"], "outermost": ["middle", "other"]}
    table = function_table({"a": Column([told])}, families=chosen, inlined=inlined)
    in_middle, in_other = row(told, "middle", "outer")["samples"], row(told, "inner", "other")["samples"]
    assert line(table, "chain")["samples"] == in_middle + in_other
    assert line(table, "outermost")["samples"] == in_middle + row(told, "other", "")["samples"]


def test_set_apart_the_rows_sum_to_the_whole(told):
    table = function_table({"a": Column([told])}, top=10_000, inlined="apart", children=True)
    rows = table.frame[table.frame["row"] == "function"]
    assert rows["share_percent"].sum() == pytest.approx(100)
    assert line(table, "outer")["share_percent"] < 10


# --- what the table says


@pytest.mark.parametrize("inlined", ["shown", "apart"])
def test_the_table_tells_two_holders_apart(recorded, program, inlined):
    text = show.files([recorded], debug=[program], inlined=inlined)
    assert max(map(len, text.splitlines())) <= 72
    assert "inner [i1]" in text and "inner [i2]" in text
    said = " ".join(text.split())
    assert "Inlined into: [i1] outer, [i2] other" in said


def test_without_dwarf_the_table_says_who_counts_them(recorded, program):
    said = "Inlined functions are counted in their callers."
    assert said in show.files([recorded])
    hidden = show.files([recorded], debug=[program], inlined="hidden")
    assert said in hidden and "[i" not in hidden
    assert said not in show.files([recorded], debug=[program])


def test_an_unknown_way_to_show_them_is_refused(recorded):
    with pytest.raises(RxbookError, match="--inlined both: say one of shown, apart, hidden"):
        show.files([recorded], inlined="both")


# --- addresses


def recording_of(folder, mapped, start, addresses, kernel=False, chain=()):
    """One sample at each address, on this machine, all with the same chain."""
    made = Recording()
    made.features = {
        3: made.string(os.uname().nodename),
        4: made.string("other" if kernel else os.uname().release),
    }
    if kernel:
        made.mmap(0, -1, start, 0x1000000, mapped, start, KERNEL)
    else:
        made.mmap(0, 1, start, 0x1000000, mapped)
    for address in addresses:
        made.sample(1, address, chain, mode=KERNEL if kernel else USER)
    path = folder / "perf.data"
    path.write_bytes(bytes(made))
    return path


def offset_of(address, loads):
    return next(address - start + offset for start, size, offset in loads if start <= address < start + size)


def inlined_rows(found):
    rows = found.functions[found.functions["kind"] == "i"]
    return rows.groupby(["symbol", "within"])["samples"].sum().to_dict()


def wanted_rows(chains):
    """What inlined_rows() should give: each function once for each address."""
    return Counter((name, chain[-1]) for chain in chains for name in set(chain[:-1]))


@pytest.fixture(scope="module")
def everywhere(program, tmp_path_factory):
    """addr2line's chains of all addresses of the program's functions, and the profile of one sample at each."""
    at, loads = symbol_at(program), elf.Elf(str(program)).loads
    ranges = [at[name] for name in ("outer", "other", "more", "nested", "main")]
    addresses = [start + n for start, size in ranges for n in range(size)]
    path = recording_of(
        tmp_path_factory.mktemp("everywhere"),
        str(program),
        0x400000,
        [0x400000 + offset_of(address, loads) for address in addresses],
    )
    return addr2line(program, addresses), profile.load(path, debug=[program])


def test_every_address_of_the_program_is_as_addr2line_says(everywhere):
    chains, found = everywhere
    wanted = wanted_rows(chains)
    assert len(chains) > 200 and sum(wanted.values()) > 50
    assert ["inner", "middle", "more"] in chains and ["inner", "more"] in chains
    assert inlined_rows(found) == wanted
    rows = found.functions
    assert sum(rows["own_samples"]) == len(chains)
    own = rows.groupby(["symbol", rows["within"].fillna("")])["own_samples"].sum()
    assert own[own > 0].to_dict() == Counter((chain[0], chain[-1] if chain[1:] else "") for chain in chains)
    assert found.warnings == ("hot is taken for hot unverified: no build id to compare",)


def test_a_function_inlined_into_itself_counts_once(everywhere):
    chains, found = everywhere
    assert ["inner", "again", "again", "nested"] in chains
    rows = found.functions[found.functions["symbol"] == "again"]
    assert rows["samples"].sum() == sum("again" in chain for chain in chains)
    assert rows["through"].fillna("").tolist() == ["", "again"] and rows["samples"].iloc[1] == 0


@pytest.mark.parametrize("inlined", ["shown", "apart", "hidden"])
@pytest.mark.parametrize("members", ["middle", "inner middle", "again inner", "more inner", "again other"])
def test_a_family_counts_each_address_once_however_inlined_functions_are_shown(everywhere, members, inlined):
    chains, found = everywhere
    table = function_table({"a": Column([found])}, families={"these": members.split()}, inlined=inlined)
    assert line(table, "these")["samples"] == sum(bool(set(members.split()) & set(chain)) for chain in chains)
    if inlined == "apart":
        rows = table.frame[table.frame["row"] == "function"]
        assert rows["samples"].sum() == len(chains)


def test_what_was_called_is_looked_up_before_where_the_call_returns_to(tmp_path, program):
    at, loads = symbol_at(program), elf.Elf(str(program)).loads
    start, size = at["main"]
    chains = addr2line(program, range(start, start + size))
    after = next(n for n in range(1, size) if chains[n - 1] == ["relay", "main"] and chains[n] == ["main"])
    sampled, caller = (0x400000 + offset_of(address, loads) for address in (at["other"][0], start + after))
    path = recording_of(tmp_path, str(program), 0x400000, [sampled], chain=(USER_MARK, sampled, caller))
    relay = row(profile.load(path, children=True, debug=[program]), "relay", "main")
    assert (relay["samples"], relay["children_samples"]) == (0, 1)


def test_children_count_a_function_once_that_was_inlined_in_two_ways(tmp_path, program):
    at, loads = symbol_at(program), elf.Elf(str(program)).loads
    start, size = at["more"]
    chains = addr2line(program, range(start, start + size))
    deep, after = chains.index(["inner", "middle", "more"]), chains.index(["inner", "more"]) + 1
    assert chains[after] == ["inner", "more"]
    sampled, caller = (0x400000 + offset_of(start + n, loads) for n in (deep, after))
    path = recording_of(tmp_path, str(program), 0x400000, [sampled], chain=(USER_MARK, sampled, caller))
    rows = profile.load(path, children=True, debug=[program]).functions
    sums = rows.groupby("symbol")[["samples", "children_samples"]].sum()
    assert sums.loc[["inner", "middle", "more"]].to_numpy().tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("moved", [0, 0x17200000])
def test_a_kernel_may_have_stood_elsewhere(tmp_path, moved):
    source = SOURCE + 'const char linux_banner[] = "Linux";'
    options = (
        "-g",
        "-nostdlib",
        "-static",
        "-no-pie",
        f"-Wl,-Ttext-segment={BASE:#x},--defsym=_text={BASE:#x},-e,main",
    )
    vmlinux = built(tmp_path, "vmlinux", *options, source=source)
    start, size = symbol_at(vmlinux)["outer"]
    chains = addr2line(vmlinux, range(start, start + size))
    wanted = wanted_rows(chains)
    addresses = [start + n + moved for n in range(size)]
    found = profile.load(
        recording_of(tmp_path, "[kernel.kallsyms]_text", BASE + moved, addresses, kernel=True),
        debug=[vmlinux],
    )
    assert wanted and inlined_rows(found) == wanted
    assert found.warnings == ("vmlinux is taken for [kernel.kallsyms] unverified: no build id to compare",)


# --- the files


def test_another_build_is_refused_with_both_build_ids(recorded, program, tmp_path):
    other = built(tmp_path, "hot", "-g", "-DVARIANT=2")
    ids = [elf.Elf(str(path)).build_id() for path in (other, program)]
    with pytest.raises(RxbookError, match=f"hot has build id {ids[0]}, but the recorded hot has {ids[1]}"):
        profile.load(recorded, debug=[other])
    assert not profile.load(recorded, debug=[other, program]).functions.empty


def test_a_file_that_no_sample_lies_in_is_said(recorded, tmp_path):
    cold = built(tmp_path, "cold", "-g", "-DVARIANT=2")
    assert (
        profile.load(recorded, debug=[cold]).warnings[0].startswith("no sample lies in what cold describes")
    )


def test_debug_information_alone_is_enough_beside_the_program(recorded, program, told, tmp_path):
    debug = tmp_path / "hot.debug"
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    assert inlined_rows(profile.load(recorded, debug=[debug])) == {
        key: samples for key, samples in inlined_rows(told).items() if samples
    }


@pytest.mark.parametrize(
    ("options", "reason"), [((), "has no DWARF"), (("-g", "-c"), "is a relocatable object")]
)
def test_files_without_dwarf_and_modules_are_refused(recorded, tmp_path, options, reason):
    with pytest.raises(RxbookError, match=reason):
        profile.load(recorded, debug=[built(tmp_path, "hot", *options)])


def test_what_is_no_debug_file_is_refused(recorded, tmp_path):
    with pytest.raises(RxbookError, match=r"cannot read debug file .*: No such file"):
        profile.load(recorded, debug=[tmp_path / "absent"])
    (tmp_path / "text").write_text("no ELF file, but long enough to hold the header of one " * 9)
    with pytest.raises(RxbookError, match="is no debug file: no ELF file"):
        profile.load(recorded, debug=[tmp_path / "text"])
    with pytest.raises(RxbookError, match=r"is no perf\.data"):
        profile.load(tmp_path / "text", debug=[tmp_path / "text"])


# --- the cache


def test_what_was_made_of_a_file_is_kept_and_made_again_where_damaged(recorded, program, told, cache):
    (kept,) = cache.glob(f"{elf.Elf(str(program)).build_id()}-*")
    before = kept.stat()
    profile.load(recorded, debug=[program])
    assert kept.stat().st_ino == before.st_ino and [kept] == list(cache.glob(f"{kept.name[:20]}*"))
    kept.write_bytes(b"damaged")
    again = profile.load(recorded, children=True, debug=[program])
    assert inlined_rows(again) == inlined_rows(told) and kept.stat().st_size == before.st_size


def test_a_folder_that_cannot_be_written_to_costs_the_cache_alone(
    recorded, program, told, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert inlined_rows(profile.load(recorded, children=True, debug=[program])) == inlined_rows(told)
