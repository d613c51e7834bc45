# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Printed differences against the figures printed with them, the published figures, and the command."""

import re
import sys
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rxbook import RxbookError, claims, cli, published, render, runs, typed
from rxbook.claim_rules import compared
from rxbook.rounding import printed, verdict

THREADS = runs.ROOT.parent / "shared" / "threads"
TEXTS = {
    "cpumap-gro-v2.txt": ("[PATCH net-next v2 0/8]", "[PATCH net-next v2 6/8]"),
    "cpumap-bulk-v2-6of8.txt": ("[PATCH net-next v2 6/8]",),
    "cpumap-bulk-v3-6of8-reply.txt": ("Re: [PATCH net-next v3 6/8]",),
    "gro-flush-checks-v7.txt": ("[net-next,v7,2/3]",),
    "xdp-redirect-xsk-rfc.txt": ("[RFC PATCH bpf-next 0/8]", "Re: [RFC PATCH bpf-next 0/8]"),
}
with_threads = pytest.mark.skipif(
    not THREADS.exists(), reason="the threads' texts are not beside the repository"
)


def figures(text):
    """`row | column value unit, ...` lines as a table of figures."""
    rows = []
    for line in text.strip().splitlines():
        row, _, cells = line.partition("|")
        for cell in cells.split(","):
            column, value, unit = cell.strip().split(" ", 2)
            rows.append(("a message", "a table", row.strip(), column, value, unit))
    return pd.DataFrame(rows, columns=["message", "table", "row", "column", "value", "unit"])


def checked(text):
    return claims.check(figures(text))


def verdicts(found):
    return [claim.verdict for claim in found.claims]


# --- rounding


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("2.7", "2.65", "2.75"),
        ("4", "3.5", "4.5"),
        ("-17", "-17.5", "-16.5"),
        ("10,50", "10.495", "10.505"),
    ],
)
def test_a_printed_figure_stands_for_all_that_rounds_to_it(text, low, high):
    found = printed(text)
    assert (found.low, found.high) == (Fraction(low), Fraction(high))


@pytest.mark.parametrize("text", ["N/A", "", "2.7.1", "1e3", "-", "nan"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(RxbookError, match="no printed number"):
        printed(text)


rates = st.floats(1, 1000)
places = st.integers(0, 3)


def change_of(base, new):
    return (printed(new) / printed(base) - 1) * 100


@settings(max_examples=300, deadline=None)
@given(rates, rates, places, places, places)
def test_honestly_rounded_figures_never_contradict(base, new, of_base, of_new, of_change):
    computed = change_of(f"{base:.{of_base}f}", f"{new:.{of_new}f}")
    change = printed(f"{(new / base - 1) * 100:+.{of_change}f}")
    assert verdict(change, computed) in ("agree", "possible")


@settings(deadline=None)
@given(rates, rates, places)
def test_a_change_outside_the_roundings_contradicts(base, new, of_both):
    computed = change_of(*(f"{value:.{of_both}f}" for value in (base, new)))
    for limit in (float(computed.high) + 1.1, float(computed.low) - 1.1):
        assert verdict(printed(f"{limit:.0f}"), computed) == "contradicts"


def test_a_half_may_be_rounded_up_or_down():
    for change in ("+17", "+18"):
        assert verdicts(checked(f"a | on 4 Mpps\nb | on 4.7 Mpps\ndiff | on {change} %")) == ["agree"]


# --- differences

COVER = """
baseline | off 2.7 Mpps, on N/A Mpps
patch 3 | off 2.3 Mpps, on 4 Mpps
patch 8 | off 2.4 Mpps, on 4.7 Mpps
"""


@pytest.mark.parametrize(
    ("row", "judged"),
    [
        ("1...3 diff | off -15 %, on +48 %", ["agree", "agree"]),
        ("1...3 diff | off -17 %, on +48 %", ["possible", "agree"]),
        ("1...3 diff | off -20 %, on +80 %", ["contradicts", "contradicts"]),
        ("1...8 diff | off -11 %, on +74 %", ["agree", "agree"]),
    ],
)
def test_a_difference_is_judged_by_what_the_roundings_allow(row, judged):
    found = checked(COVER + row)
    assert verdicts(found) == judged
    assert found.contradicted is ("contradicts" in judged)


def test_a_base_without_a_figure_in_a_column_gives_its_first_and_says_so():
    found = checked(COVER + "1...8 diff | on +74 %")
    assert found.claims[0].figures == "4.7 / 2.7*"
    assert any(note.startswith("*: the base has no figure in this column") for note in found.notes)


@pytest.mark.parametrize(
    ("label", "pair"),
    [
        ("1...8 diff", [("patch 8", "baseline")]),
        ("patches 1-3", [("patch 3", "baseline")]),
        ("patch 3 diff", [("patch 3", "baseline")]),
        ("diff", [("patch 8", "baseline"), ("patch 8", "patch 3")]),
        ("patch 8 vs patch 3", [("patch 8", "patch 3")]),
        ("patch 8 / patch 3", [("patch 8", "patch 3")]),
        ("vs patch 3", [("patch 8", "patch 3")]),
        ("diff to patch 3", [("patch 8", "patch 3")]),
        ("baseline diff", []),
    ],
)
def test_a_label_names_the_rows_that_it_compares(label, pair):
    assert compared(label, ["baseline", "patch 3", "patch 8"]) == pair


@pytest.mark.parametrize(
    ("change", "figures_taken"), [("+50", "3.0 / 2.0"), ("+20", "3.0 / 2.5"), ("+90", "3.0 / 2.0")]
)
def test_a_bare_difference_of_three_rows_is_read_as_fits_best(change, figures_taken):
    found = checked(f"a | x 2.0 Mpps\nb | x 2.5 Mpps\nc | x 3.0 Mpps\ndiff | x {change} %")
    assert found.claims[0].figures == figures_taken and found.contradicted is (change == "+90")


def test_a_difference_beside_its_two_figures_is_checked():
    assert verdicts(checked("64 | off 1.00 Mpps, on 1.50 Mpps, diff +50 %")) == ["agree"]


def test_what_cannot_be_checked_is_said():
    found = checked("base | x N/A Mpps\nnew | x 1.5 Mpps\ndiff | x +3 %")
    assert not found.claims and "diff, x: +3%" in found.notes[0]
    assert "the rates are not printed" in checked("rr | x +14 %").notes[0]
    assert not checked(
        "base | x 0 Mpps\nnew | x 1 Mpps\ndiff | x +3 %"
    ).claims  # a rounded zero divides nothing


# --- shares


def test_a_cost_that_moves_is_summed_by_family():
    found = checked(
        """inet_gro_receive | before 6.94 % of CPU, after 4.22 % of CPU
        tcp_gro_receive | before 3.02 % of CPU, after 4.27 % of CPU"""
    )
    assert verdicts(found) == ["lower", "higher", "lower"]
    assert found.claims[-1].figures == "9.96->8.49"
    assert found.claims[-1].computed.point == Fraction("-1.47")


def test_a_family_is_not_summed_where_a_figure_is_missing():
    found = checked(
        """inet_gro_receive | before 6.94 % of CPU, after 4.22 % of CPU
        tcp_gro_receive | before 3.02 % of CPU"""
    )
    assert len(found.claims) == 1 and "tcp_gro_receive has no figure in some columns" in found.notes[0]


def test_a_move_within_the_roundings_is_unclear():
    found = checked("inet_gro_receive | before 3.1 % of CPU, after 3.0 % of CPU, later 3.0 % of CPU")
    assert verdicts(found) == ["unclear", "unclear"]


# --- cycles


def test_a_gain_and_the_cycles_saved_imply_the_base():
    found = checked("first | gain 13 %, saved 13 cycles saved\nhost | clock 2.4 GHz")
    base, rate = found.claims
    assert float(base.computed.point) == 113 and float(rate.computed.point) == pytest.approx(21.24, abs=0.01)
    assert base.computed.low == Fraction(25, 2) * (1 / Fraction("0.135") + 1)
    assert base.verdict == rate.verdict == "derived"


STEPS = """
first | gain {} %, saved 13 cycles saved
further | gain {} %, saved 11 cycles saved
total | gain {} %, saved {} cycles saved
"""


@pytest.mark.parametrize(
    ("printed_figures", "judged", "figures_of_gain"),
    [
        (("13", "14", "27", "24"), ["derived", "agree", "agree", "agree"], "13 + 14"),
        (("10", "10", "21", "24"), ["derived", "agree", "agree", "agree"], "10 * 10"),
        (("13", "14", "40", "24"), ["derived", "contradicts", "contradicts", "agree"], "13 + 14"),
        (("13", "14", "27", "30"), ["derived", "contradicts", "agree", "contradicts"], "13 + 14"),
    ],
)
def test_steps_and_their_total_are_held_against_each_other(printed_figures, judged, figures_of_gain):
    found = checked(STEPS.format(*printed_figures))
    assert verdicts(found) == judged
    assert [claim.figures for claim in found.claims if claim.name == "total, throughput"] == [figures_of_gain]


# --- the published figures


def test_each_published_figure_says_what_it_is():
    found = published.load()
    assert list(found.columns) == published.COLUMNS
    assert not found.duplicated(["message", "table", "row", "column"]).any()
    assert not (found.drop(columns=["message_id", "decimals"]) == "").any(axis=None)
    for value, places_said in zip(found["value"], found["decimals"], strict=True):
        assert (value == "N/A" and places_said == "") or int(places_said) == len(value.partition(".")[2])


def test_the_published_claims_come_out_as_known():
    found = claims.check(published.load())
    by_verdict = pd.Series([claim.verdict for claim in found.claims]).value_counts().to_dict()
    assert by_verdict == {"agree": 15, "lower": 6, "higher": 2, "derived": 2, "possible": 1}
    (possible,) = (claim for claim in found.claims if claim.verdict == "possible")
    assert (possible.printed, possible.figures) == ("-17", "2.3 / 2.7")
    sums = [claim.figures for claim in found.claims if claim.name == "GRO together"]
    assert sums == ["9.96->8.49", "12.17->10.65"]


@with_threads
def test_each_published_figure_is_in_its_text():
    for text, messages in TEXTS.items():
        words = (THREADS / text).read_text()
        mine = published.load()[lambda frame, m=messages: frame["message"].str.startswith(m)]
        assert len(mine)
        for figure in mine.to_dict("records"):
            ending = r"\s*%" if "%" in figure["unit"] and figure["table"].startswith("64 x") else ""
            assert re.search(rf"(?<![\d.]){re.escape(figure['value'])}(?![\d]|\.\d){ending}", words), figure
            assert not figure["message_id"] or figure["message_id"] in words


@with_threads
@pytest.mark.parametrize("text", TEXTS)
def test_a_thread_and_its_published_figures_give_the_same_verdicts(text):
    mine = published.load()[lambda frame: frame["message"].str.startswith(TEXTS[text])]
    read, _ = typed.figures(THREADS / text)

    def told(frame):
        return [(c.name, c.figures, c.printed, c.computed, c.verdict) for c in claims.check(frame).claims]

    assert told(read) == told(mine)


# --- the command


@pytest.fixture
def rxbook(monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["rxbook", "claims", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


MAIL = "\n\n".join(["Rates:", "a    2.0   Mpps\nb    3.0   Mpps\ndiff {}   %"])


def test_the_published_claims_fit_a_mail(rxbook):
    status, out, err = rxbook()
    assert (status, err) == (0, "") and out.isascii()
    assert max(map(len, out.splitlines())) <= 72
    assert out.startswith("printed claims") and "PUBLISHED in 3 threads" in out.splitlines()[0]


@pytest.mark.parametrize(("change", "status"), [("+50", 0), ("+51", 0), ("+90", 1)])
def test_the_status_says_whether_something_contradicts(rxbook, tmp_path, change, status):
    (tmp_path / "mail").write_text(MAIL.format(change))
    ended, out, err = rxbook(tmp_path / "mail")
    assert ended == status and err == "" and "FROM mail" in out


@pytest.mark.parametrize(
    ("form", "holds"), [("csv", "allowed_low"), ("markdown", "| --- |"), ("html", "<table")]
)
def test_other_forms(rxbook, form, holds):
    status, out, _ = rxbook("--format", form)
    assert status == 0 and holds in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "cannot read nowhere: No such file"),
        (["."], "cannot read"),
        (["--format", "pdf"], "--format pdf: say one of text"),
        ([Path(__file__).with_name("conftest.py")], "no table of rates or of perf top"),
        (["rates_alone"], "has figures, but none that others say something of: no difference is printed"),
    ],
)
def test_a_mistake_is_answered_in_one_line(rxbook, tmp_path, monkeypatch, words, said):
    (tmp_path / "rates_alone").write_text("Rates:\n\na    2.0   Mpps\nb    3.0   Mpps\n")
    monkeypatch.chdir(tmp_path)
    status, out, err = rxbook(*words)
    assert status == 1 and out == "" and err.count("\n") == 1 and said in err


def test_long_names_put_each_claim_below_its_name(tmp_path):
    text = MAIL.replace("diff", "a rather long name of a row, with the difference").format("+50")
    (tmp_path / "mail").write_text(text)
    table, _ = claims.of(tmp_path / "mail")
    assert max(map(len, render.text(table).splitlines())) <= 72
