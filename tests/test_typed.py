# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figures out of mails, mboxes, patches and pages, as people type and quote them."""

import email.message
import email.policy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rxbook import RxbookError, claims, typed

TABLE = """\
My UDP GRO test, small frames:

              GRO off    GRO on
baseline      2.7        N/A       Mpps
patch 3       2.3        4         Mpps

1...3 diff    -17        +48       %
"""
EXPECTED = [
    ("baseline", "GRO off", "2.7", "Mpps"),
    ("baseline", "GRO on", "N/A", "Mpps"),
    ("patch 3", "GRO off", "2.3", "Mpps"),
    ("patch 3", "GRO on", "4", "Mpps"),
    ("1...3 diff", "GRO off", "-17", "%"),
    ("1...3 diff", "GRO on", "+48", "%"),
]
PERF = """\
perf top while replaying 64 streams:
net-next:
    6.94% [kernel] [k] inet_gro_receive
    3.02%  [kernel.kallsyms]  [k] tcp_gro_receive

patch applied:
    4.27% [kernel] [k] tcp_gro_receive
    4.22% [kernel] [k] inet_gro_receive
"""


@pytest.fixture
def read(tmp_path):
    """Reads a text, or bytes, as a file; returns its figures and notes."""

    def call(content):
        path = tmp_path / "mail"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return typed.figures(path)

    return call


def found(told):
    frame, _ = told
    return list(frame[["row", "column", "value", "unit"]].itertuples(index=False, name=None))


def quoted(text, mark="> "):
    return "".join(f"{mark}{line}".rstrip() + "\n" for line in text.splitlines())


def mail(body, subject="[PATCH net-next 0/8] cpumap: GRO", encoding="quoted-printable", **more):
    message = email.message.EmailMessage(policy=email.policy.SMTP)
    message["From"] = "A Person <person@example.org>"
    message["Subject"] = subject
    message["Date"] = "Fri, 17 Jan 2025 12:58:34 +0000"
    message.set_content(body, cte=encoding, **more)
    return message


def verdicts(told):
    return [claim.verdict for claim in claims.check(told[0]).claims]


# --- what a file can be


def test_a_text_as_it_is_typed(read):
    told = read(TABLE)
    assert found(told) == EXPECTED
    assert set(told[0]["table"]) == {"My UDP GRO test, small frames"} and told[0]["line"].iloc[0] == 4


@pytest.mark.parametrize("encoding", ["7bit", "quoted-printable", "base64"])
def test_a_raw_mail_in_each_encoding(read, encoding):
    told = read(mail(TABLE, encoding=encoding).as_bytes())
    assert found(told) == EXPECTED
    assert set(told[0]["message"]) == {"[PATCH net-next 0/8] cpumap: GRO"}


def test_soft_line_breaks_of_quoted_printable_are_undone(read):
    raw = mail(TABLE).as_bytes().replace(b"2.3        4 ", b"2.3  =\r\n      =34 ")
    assert b"=34" in raw and found(read(raw)) == EXPECTED


def test_an_attached_patch_is_read_and_html_left_alone(read):
    message = mail("See the attached.\n")
    message.add_alternative("<p>baseline 9.9 Mpps</p>", subtype="html")
    message.add_attachment(TABLE, subtype="x-patch", filename="0001.patch")
    assert found(read(message.as_bytes())) == EXPECTED


def test_an_encoded_subject_names_the_message(read):
    told = read(mail(TABLE, subject="[PATCH 1/2] für alle").as_bytes())
    assert set(told[0]["message"]) == {"[PATCH 1/2] für alle"}


def test_an_mbox_gives_each_table_once(read):
    mails = [mail(TABLE), mail("I see:\n\n" + quoted(TABLE), subject="Re: GRO"), mail(PERF, subject="perf")]
    box = b"".join(b"From mboxrd@z Thu Jan  1 00:00:00 1970\n" + m.as_bytes() + b"\n" for m in mails)
    frame, notes = read(box.replace(b"\r\n", b"\n"))
    assert list(frame["message"].unique()) == ["[PATCH net-next 0/8] cpumap: GRO", "perf"]
    assert any("checked once (1 more)" in note for note in notes)


def test_a_patch_of_git_is_read_without_its_hunks(read):
    hunk = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n+ a  1.0 Mpps\n+ b  9.0 Mpps\n+ diff +1 %\n"
    )
    patch = (
        "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n"
        "From: A Person <person@example.org>\nSubject: [PATCH] cpumap\n\n"
    )
    told = read(f"{patch}{TABLE}---\n x | 2 +-\n\n{hunk}-- \n2.47.1\n")
    assert found(told) == EXPECTED and set(told[0]["message"]) == {"[PATCH] cpumap"}


def test_a_page_is_cut_into_its_messages(read):
    text = f"[PATCH 0/2] one\n\n{TABLE}\nRe: [PATCH 0/2] one\n\n{quoted(TABLE)}\nIndeed.\n\n[PATCH 1/2] two\n\n{PERF}"
    frame, _ = read(text)
    assert list(frame["message"].unique()) == ["[PATCH 0/2] one", "[PATCH 1/2] two"]


def test_a_mail_whose_line_ends_were_lost(read):
    body = quoted(TABLE).replace("GRO off    GRO on", "GRO off GRO on")
    raw = mail("A writes:\n" + body).as_string().replace("\r\n", "\n")
    told = read(" ".join(f"From mboxrd@z Thu Jan 1 00:00:00 1970 {raw}".split()))
    assert found(told) == EXPECTED
    assert set(told[0]["message"]) == {"[PATCH net-next 0/8] cpumap: GRO"}


@pytest.mark.parametrize("charset", ["latin-1", "no-such-charset"])
def test_other_charsets_lose_no_figure(read, charset):
    raw = mail(TABLE + "Grüße\n", encoding="8bit", charset="latin-1").as_bytes()
    assert found(read(raw.replace(b'charset="iso-8859-1"', b"charset=" + charset.encode()))) == EXPECTED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no text"),
        ("Looks good to me.\n", "no table of rates or of perf top, and no gain"),
        ("<!DOCTYPE html><html></html>", "is HTML: save the page as text"),
        (b"\x00\xff\xfe" * 50, "no table of rates"),
    ],
)
def test_a_file_without_figures_is_refused(read, content, said):
    with pytest.raises(RxbookError, match=said):
        read(content)


# --- how people type


@pytest.mark.parametrize(
    "change",
    [
        lambda text: quoted(text),
        lambda text: quoted(text, "> > > "),
        lambda text: quoted(text, ">>"),
        lambda text: text.replace("        ", "\t"),
        lambda text: text.replace("  ", " ").replace("  ", " ").replace("  ", " "),
        lambda text: text.replace("-17 ", "\u221217 "),
        lambda text: text.replace("\n", "\r\n"),
    ],
)
def test_spacing_and_quoting_do_not_matter(read, change):
    assert found(read(change(TABLE))) == EXPECTED


def test_pipes_and_attached_units(read):
    told = read(
        "| kernel | off | on |\n|---|---:|---:|\n| base | 2.70Mpps | 4.00Mpps |\n| new | 2.97Mpps | 4.40Mpps |\n"
        "| diff | +10% | +10% |\n"
    )
    assert verdicts(told) == ["agree", "agree"]
    assert told[0]["column"].unique().tolist() == ["off", "on"]


def test_a_difference_in_its_own_column(read):
    told = read(
        "Rates, Mpps:\n\nframe   off    on    diff\n64     1.00   1.50   +50%\n512    1.00   1.50   +60%\n"
    )
    assert verdicts(told) == ["agree", "contradicts"]


def test_a_second_table_without_a_heading_has_the_columns_of_the_first(read):
    told = read(
        TABLE
        + "\nAgainst each other:\n\nold   2.0   3.0   Mpps\nnew   2.2   3.3   Mpps\ndiff  +10   +10   %\n"
    )
    assert [c.name for c in claims.check(told[0]).claims][2:] == ["diff, GRO off", "diff, GRO on"]


def test_a_sentence_above_a_table_is_no_row(read):
    for sentence in (
        "These are the results of version 3",
        "Before we had 2.5 Mpps",
        "We now see a rate of 9.9",
    ):
        assert found(read(TABLE.replace("frames:\n\n", f"frames:\n{sentence}\n"))) == EXPECTED


def test_what_is_no_difference_is_no_claim(read):
    told = read(TABLE.replace("1...3", "CPU load      80         85        %\n1...3"))
    assert found(told) == EXPECTED
    with pytest.raises(RxbookError):
        read(
            "off on\nbase 2.70 +/-0.01 Mpps\nnew 2.90 +/-0.01 Mpps\n"
        )  # measured: more is known than the rounding


def test_lines_that_were_not_understood_are_told(read):
    _, notes = read(TABLE + "\nSomeone reported from +14%[2] to +18%[3] of throughput.\n")
    assert notes == ("line 9 not checked: Someone reported from +14%[2] to +18%[3] of throughput.",)


def test_perf_tables_have_a_column_for_each_label(read):
    frame, _ = read(quoted(PERF))
    assert set(frame["table"]) == {"perf top while replaying 64 streams"}
    assert list(frame["column"].unique()) == ["net-next", "patch applied"]
    sums = [claim.figures for claim in claims.check(frame).claims if "together" in claim.name]
    assert sums == ["9.96->8.49"]


def test_perf_tables_of_two_traffics_are_two(read):
    frame, _ = read(PERF + "\n" + PERF.replace("64 streams", "one stream").replace("6.94", "7.94"))
    assert len(frame["table"].unique()) == 2


@pytest.mark.parametrize(
    ("sentence", "steps"),
    [
        ("Throughput is up ~13%, with reduction in cycles per packet of ~13.", [("first", "13", "13")]),
        ("It saves 13 cycles per packet: +13 % pps at 2.4 GHz.", [("first", "13", "13")]),
        ("A further ~14% of throughput, 11 fewer cycles per packet.", [("further", "14", "11")]),
        ("In total 27% more throughput and 24 cycles less.", [("total", "27", "24")]),
        (
            "Throughput improves by 13% and 13 cycles, a further 14% and 11 cycles, so 27% and 24 cycles in total.",
            [("first", "13", "13"), ("further", "14", "11"), ("total", "27", "24")],
        ),
    ],
)
def test_gains_in_sentences(read, sentence, steps):
    frame, _ = read(sentence.replace(" ", "\n", 3))
    told = frame[frame["row"] != "host"].groupby("row", sort=False)["value"].agg(tuple)
    assert [(row, *values) for row, values in told.items()] == steps


def test_a_summary_that_repeats_the_total_is_no_step(read):
    frame, _ = read(
        "This yields a 27% increase in throughput and 24 cycles less.\n\n"
        "Throughput improves by 13% and 13 cycles. A further 14% of throughput and 11 cycles come with batches, "
        "for a total of 27% and 24 cycles.\n"
    )
    assert frame["row"].unique().tolist() == ["first", "further", "total"]


def test_a_time_in_cycles_is_checked_at_its_clock(read):
    told = read("Each access costs approx 2 ns (times 2.4GHz ~4.8 cycles).\n")
    assert verdicts(told) == ["agree"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [*TABLE.splitlines(), *PERF.splitlines(), "From: x", "diff --git a b", "[P 1/2] x", ""]
            ),
            st.text(alphabet="ab> |.%+-0123456789\t:=N/A", max_size=40),
        ),
        max_size=25,
    )
)
def test_any_text_is_read_or_refused(read, lines):
    try:
        frame, notes = read("\n".join(lines))
    except RxbookError:
        return
    checked = claims.check(frame)
    claims.table(checked, "from a mail", notes)
