# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions of files and runs: what is refused, and what needs no traffic; test_profiled_run.py has real runs."""

from __future__ import annotations

import pytest

import simulated_runs
import synthetic_profiles
from rxbook import RxbookError, function_cycles, profile, workbook
from rxbook.plan import make_plan
from rxbook.profile import saved
from rxbook.profile.tasks import only_task

SHOWN = make_plan({})
TEXT = """# Samples: 1K of event 'cycles'
# Event count (approx.): 1000
#
# Overhead  Samples  Shared Object      Symbol
    {0}.00%      {0}00  [kernel.kallsyms]  [k] inet_gro_receive
    {1}.00%      {1}00  [kernel.kallsyms]  [k] tcp_gro_receive
"""


def texts(folder):
    for name, counts in (("before", (70, 30)), ("after", (40, 60))):
        (folder / f"{name}.txt").write_text(TEXT.format(*counts))
    return [str(folder / "before.txt")], [str(folder / "after.txt")]


def test_printed_texts_are_compared(tmp_path):
    (table,) = function_cycles.comparison(*texts(tmp_path), SHOWN).values()
    changes = table.frame[table.frame["column"] == "after"].set_index("function")["share_points_vs_first"]
    assert changes["inet_gro_receive"] == pytest.approx(-30)
    assert changes["GRO"] == pytest.approx(0)  # what moves within the family is no change of it
    assert table.source == "from before.txt and after.txt"


def test_functions_families_and_top_are_those_asked_for(tmp_path):
    shown = make_plan({"families": "tcp=tcp_*", "top": 1})
    (table,) = function_cycles.comparison(texts(tmp_path)[0], [], shown).values()
    rows = table.frame.set_index("function")["row"]
    assert rows["tcp"] == "family" and list(rows.index[rows == "function"]) == ["inet_gro_receive"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([], ["x.data"], "x.data is no file, and no run of that name"),
        (["nowhere"], [], "nowhere is no file"),
    ],
)
def test_a_wrong_input_is_named(before, after, said):
    with pytest.raises(RxbookError, match=said):
        function_cycles.comparison(before, after, SHOWN)


def test_after_alone_is_refused(tmp_path):
    with pytest.raises(RxbookError, match="before is empty"):
        function_cycles.comparison([], texts(tmp_path)[1], SHOWN)


def test_a_run_without_profiles_is_refused(tmp_path):
    run = simulated_runs.finished(tmp_path / "run")
    with pytest.raises(RxbookError, match="run has no profiles: measure with profile=true"):
        function_cycles.comparison([str(run.path)], [], SHOWN)


def test_inputs_are_lists_or_one_text(tmp_path):
    before, after = texts(tmp_path)
    tables, run = workbook.functions({"before": before[0], "after": f"{after[0]}, {after[0]}"})
    assert run is None and list(tables) == ["functions_1"]
    assert any("after.txt" in note and "2 repeats" in note for note in tables["functions_1"].notes)


# --- one thread of a CPU's profile


def test_a_threads_part_has_shares_of_its_own():
    whole = synthetic_profiles.profile(
        {"inet_gro_receive": 30, "memcpy": 10, "python_loop": 60},
        comm=["cpumap/1/map:3", "cpumap/1/map:3", "python3"],
    )
    mine, ours, everything = only_task(whole, "cpumap/1/map:3")
    assert (ours, everything) == (40, 100)
    assert mine.functions.set_index("symbol")["share"].to_dict() == {"inet_gro_receive": 0.75, "memcpy": 0.25}
    assert mine.events["cycles"].samples == 40
    nobody, ours, _ = only_task(whole, "no such thread")
    assert ours == 0 and nobody.functions.empty


def test_a_long_thread_name_is_found_by_what_perf_keeps_of_it():
    whole = synthetic_profiles.profile({"inet_gro_receive": 30}, comm="cpumap/1/map:12")
    assert only_task(whole, "cpumap/1/map:12345")[1] == 30


def test_a_saved_profile_is_read_as_it_was(tmp_path):
    whole = synthetic_profiles.profile({"inet_gro_receive": 30, "NA": 10}, lost=7)
    saved.save(whole, tmp_path / "cell.csv")
    found = profile.load(tmp_path / "cell.csv")
    assert found.lost == 7 and found.events["cycles"].samples == 40
    columns = ["event", "symbol", "kind", "samples", "share"]
    assert found.functions[columns].astype(object).equals(whole.functions[columns].astype(object))


def test_a_damaged_saved_profile_is_refused(tmp_path):
    (tmp_path / "cell.csv").write_text(saved.HEAD + "7\nevent,comm\nx,y\n")
    with pytest.raises(RxbookError, match="begins as a profile that rxbook saved, but is damaged"):
        profile.load(tmp_path / "cell.csv")
