# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The notebook explore without a browser: its data, its flame graphs, and papermill's way through it."""

import gzip
import json
import re
import socket
from collections import Counter
from pathlib import Path

import numpy as np
import papermill
import pytest

import simulated_runs
from rxbook import RxbookError, execute, figures, runs
from rxbook.explore import View, data, view
from rxbook.explore.pair import WIDTHS, Pair
from rxbook.notebooks import NOTEBOOKS
from rxbook.plan import Cell
from rxbook.profile import flame_pictures, flames
from rxbook.statistics import Interval

SIMULATED = {"frame_sizes": "64,1518", "udp_csum": "computed,zero", "flows": "1,64", "burst": 16, "blocks": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two SIMULATED runs of one variant, a third of another, an empty one; in this order."""
    path = tmp_path_factory.mktemp("runs")
    with simulated_runs.known_host():
        simulated_runs.finished(path / "first", **SIMULATED)
        simulated_runs.finished(path / "second", **SIMULATED)
        simulated_runs.finished(path / "other", **SIMULATED | {"variant": "patched"})
    return path


@pytest.fixture(scope="module")
def sample():
    return runs.recorded(data.SAMPLE)


# --- what is opened


def test_runs_are_opened_by_name_and_the_newest_by_default(folder):
    assert [run.path.name for run in data.opened(["first", "oth"], folder)] == ["first", "other"]
    newest = runs.list_runs(folder)[-1][0]
    assert [run.path.name for run in data.opened([], folder)] == [newest]


def test_without_a_run_the_recorded_sample_is_opened_and_says_so(tmp_path, capsys):
    opened = view.start({"runs_dir": str(tmp_path)})
    assert opened.runs[0].recorded and "RECORDED" in capsys.readouterr().out
    assert not opened.live


def test_what_cannot_be_opened_is_refused(folder, tmp_path):
    with pytest.raises(RxbookError, match="nowhere"):
        data.opened(["nowhere"], folder)
    with pytest.raises(RxbookError, match="first is named twice"):
        data.opened(["first", "first"], folder)
    with simulated_runs.known_host():
        simulated_runs.begin(tmp_path / "empty", rows=0).close()
    with pytest.raises(RxbookError, match="empty has no windows"):
        data.opened(["empty"], tmp_path)
    assert data.opened([], tmp_path)[0].recorded


def test_a_misspelt_parameter_is_refused(folder):
    cells = ["", "# Parameters\nrun = 'first'\n"]
    with pytest.raises(RxbookError, match="unknown parameter run; known: runs, show"):
        view.start({"runs_dir": str(folder), "In": cells})


@pytest.mark.parametrize(("asked", "live"), [("yes", True), ("false", False), (None, False)])
def test_widgets_are_there_where_they_are_asked_for(folder, asked, live):
    assert view.start({"runs_dir": str(folder), "widgets": asked}).live is live


def test_widgets_are_yes_or_no(folder):
    with pytest.raises(RxbookError, match="widgets=maybe: say true or false"):
        view.start({"runs_dir": str(folder), "widgets": "maybe"})


# --- the data


def test_every_column_of_every_frame_is_described(sample):
    shown = View([sample], {})
    for frame in (shown.windows, shown.cells, shown.functions):
        assert len(frame) and set(frame.columns) <= set(data.DESCRIBED)


def test_variants_of_one_name_are_told_apart_by_their_run(folder):
    found = data.opened(["first", "second", "other"], folder)
    frame = data.windows(found)
    assert list(frame["variant"].unique()) == ["simulated [1]", "simulated [2]", "patched"]
    assert len(frame) == sum(len(run.samples) for run in found)
    table = data.table(found, frame, "gro")
    assert {"simulated [1]", "simulated [2]", "patched"} == set(table.frame["variant"])
    assert (
        not data.table(found[:1], data.windows(found[:1]), "gro")
        .frame["variant"]
        .str.contains("[", regex=False)
        .any()
    )


def test_cells_have_the_figures_of_the_tables(folder):
    found = data.opened(["first"], folder)
    frame = data.windows(found)
    cells = data.cells(frame)
    assert len(cells) == 16 and (cells["windows"] == 6).all()
    table = data.table(found, frame, "gro").frame
    for gro in ("off", "on"):
        of_gro = cells[cells["gro"] == gro].sort_values(["frame_size", "udp_csum", "flows"])
        expected = table.sort_values(["frame_size", "udp_csum", "flows"])[f"{gro}_mpps"]
        np.testing.assert_allclose(of_gro["mpps"], expected)
    assert (cells["mpps_low"] < cells["mpps"]).all() and (cells["mpps"] < cells["mpps_high"]).all()


@pytest.mark.parametrize(
    ("show", "left"),
    [
        ({}, 16),
        ({"frame_size": [64]}, 8),
        ({"frame_size": 64, "gro": "on"}, 4),
        ("frame_size=64 1518; gro=on; flows=64", 4),
        ({"gro": [False]}, 8),  # as YAML reads a bare off
        ({"gro": []}, 0),
    ],
)
def test_filters_leave_cells(folder, show, left):
    frame = data.windows(data.opened(["first"], folder))
    kept = data.select(frame, data.as_show(show))
    assert len(kept[list(Cell.model_fields)].drop_duplicates()) == left


def test_a_filter_that_fits_nothing_is_refused(folder):
    frame = data.windows(data.opened(["first"], folder))
    with pytest.raises(RxbookError, match=r"show=frame_siz: no such column; did you mean frame_size\?"):
        data.select(frame, {"frame_siz": [64]})
    with pytest.raises(RxbookError, match="show=frame_size=65: not measured; there is 64, 1518"):
        data.select(frame, {"frame_size": [65]})
    with pytest.raises(RxbookError, match="say COLUMN=VALUE"):
        data.as_show("frame_size")


def test_there_is_a_filter_for_what_was_asked_and_for_what_varies(folder):
    axes = data.axes(data.windows(data.opened(["first", "other"], folder)))
    assert list(axes)[:5] == ["frame_size", "udp_csum", "gro", "flows", "variant"]
    assert axes["variant"] == ["simulated", "patched"] and axes["run"] == ["first", "other"]
    assert axes["burst"] == [1, 16] and "protocol" not in axes


# --- pictures


def test_lines_along_a_column_are_what_cells_say(folder):
    frame = data.select(data.windows(data.opened(["first"], folder)), {"flows": [1], "udp_csum": ["zero"]})
    drawn = figures.by_axis(frame, "frame_size", "mpps", data.VALUES["mpps"])
    axes = drawn.axes[0]
    heights = {tuple(bar.lines[0].get_ydata()) for bar in axes.containers}
    assert heights == {(value,) for value in data.cells(frame)["mpps"]}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["64", "1518"]
    assert sorted(text.get_text() for text in drawn.legends[0].get_texts()) == ["GRO off", "GRO on"]


def test_a_picture_says_where_no_window_counts(folder):
    frame = data.windows(data.opened(["first"], folder)).assign(flags="pressure")
    drawn = figures.by_axis(frame, "flows", "mpps", "Mpps")
    assert "no window counts" in " ".join(text.get_text() for text in drawn.axes[0].texts)


def test_pictures_are_saved_under_new_names(folder, tmp_path):
    found = data.opened(["first"], folder)
    shown = View(found, {}, folder=tmp_path)
    for number in (1, 2):
        said = shown.save("by_axis", lambda: figures.by_axis(shown.shown, "flows", "mpps", "Mpps"))
        stem = tmp_path / "explored" / f"first-by_axis-{number}"
        assert said == f"{stem}.svg, .png"
        assert (
            "<svg" in Path(f"{stem}.svg").read_text() and Path(f"{stem}.png").read_bytes()[:4] == b"\x89PNG"
        )


# --- flame graphs

FOUND = [
    Counter({("main", "a", "b"): 300, ("main", "a"): 100, ("main", "c"): 600}),
    Counter({("main", "a", "b"): 320, ("main", "a"): 80, ("main", "c"): 600}),
]


def test_nodes_sum_what_was_called_from_there():
    frame = flames.nodes(FOUND, Interval(1000.0, 990.0, 1010.0, 40))
    assert frame["samples"].to_dict() == {
        (): 2000, ("main",): 2000, ("main", "a"): 800, ("main", "a", "b"): 620, ("main", "c"): 1200,
    }  # fmt: skip
    assert frame.loc[[("main", "a")], "value"].item() == pytest.approx(400)
    assert frame.loc[[("main", "a")], "own"].item() == pytest.approx(90)
    assert frame["own"].sum() == pytest.approx(1000)
    percent = flames.nodes(FOUND, None)
    assert percent.loc[[("main", "c")], "value"].item() == pytest.approx(60)


def test_a_difference_is_coloured_only_where_it_is_shown():
    later = [
        Counter({("main", "a", "b"): 305, ("main", "a"): 95, ("main", "c"): 100, ("main", "d"): 500})
        for _ in "12"
    ]
    a, b = flames.nodes(FOUND, None), flames.nodes(later, None)
    over_b = flames.compared(b, a, -1)
    change = {stack[-1]: (row["change"], row["differs"]) for stack, row in over_b.iterrows() if stack}
    assert change["c"] == (pytest.approx(-50), True) and change["d"] == (pytest.approx(50), True)
    assert not change["a"][1]
    over_a = flames.compared(a, b)
    assert over_a.loc[[("main", "c")], "change"].item() == pytest.approx(
        -50
    )  # the same, whichever is drawn over
    trace = flame_pictures.trace(over_b, "%")
    colour = dict(zip(trace.labels, trace.marker.colors, strict=True))
    assert colour["- c"] != colour["+ d"] and colour["a"] == flame_pictures.GREY
    drawn = flame_pictures.figure(over_b, "%", "B against A", source="measured")
    assert {"- c", "+ d", "a"} <= {text.get_text() for text in drawn.axes[0].texts}


def test_a_trace_has_the_sums_that_plotly_demands():
    trace = flame_pictures.trace(flames.nodes(FOUND, None), "%")
    assert trace.branchvalues == "remainder" and sum(trace.values) == pytest.approx(100)
    assert set(trace.parents) - {""} <= set(trace.ids) and len(set(trace.ids)) == len(trace.ids)


def test_the_sample_has_call_chains_and_its_table_has_their_sums(sample):
    pair = Pair(View([sample], {"frame_size": ["64"], "udp_csum": ["computed"], "flows": ["1"]}))
    frame = pair.nodes(WIDTHS[1])
    assert max(map(len, frame.index)) > 8 and "no call chains" not in pair.caption(WIDTHS[1])
    counts = [pair.nodes(width)["samples"].iloc[0] for width in WIDTHS[:2]]
    for width, n in zip(WIDTHS, (*counts, *["{1} and {0}".format(*counts)] * 2), strict=True):
        assert f"n = {n} samples" in pair.figure(width)._suptitle.get_text().replace("\n", " ")
    rows = pair.sortable().set_index("function")
    assert {"dev_gro_receive", "inet_gro_receive"} <= set(rows.index)
    own = frame[frame["name"] == "dev_gro_receive"]
    (percent,) = [name for name in rows if name.endswith("GRO on, %")]
    total = frame["samples"].iloc[0]
    counts = sum(
        n
        for r in pair._conditions()["B"][2]
        for s, n in flames.stacks(r).items()
        if s[-1] == "dev_gro_receive"
    )
    assert len(own) and rows.loc["dev_gro_receive", percent] == pytest.approx(100 * counts / total, abs=0.3)


def test_the_sample_names_nobody_and_no_place(sample):
    for file in (path for path in sample.path.rglob("*") if path.is_file()):
        text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
        assert not re.search(r"/(home|root|work|usr|tmp|mnt|opt|var)\b", text), file
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text) and "argv" not in text, file


# --- papermill


def test_the_notebook_declares_its_parameters():
    assert set(papermill.inspect_notebook(str(NOTEBOOKS / "explore.ipynb"))) == set(view.PARAMETERS)


def test_the_whole_notebook_without_widgets(folder, capsys):
    execute.run("explore", {"show": "frame_size=64; flows=1"}, None, folder)
    said = capsys.readouterr().out
    (path,) = folder.glob("*-explore")
    assert "nothing is measured" in said and "UDP GRO, Mpps" in said
    cells = json.loads((path / "notebook.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert kinds == {"text/html", "text/plain"}  # neither a widget nor a script
    page = (path / "report.html").read_text()
    assert "4 of 16 cells" in page and page.count("<img") == 3 and "as text for a mail" in page
    assert not re.search(r"<script|<link|https?://", page)
    names = {file.name for file in (path / "tables").iterdir()}
    assert {"gro.txt", "cost.csv", "windows.txt", "gro_bars.svg", "by_axis.png", "window_strip.svg"} <= names
    assert len(runs.list_runs(folder)) == 3  # a page is no run


def test_the_command_refuses_a_parameter_that_the_notebook_has_not(folder):
    with pytest.raises(RxbookError, match="explore has no parameter blocks; it has runs, show"):
        execute.run("explore", {"blocks": "3"}, None, folder)
