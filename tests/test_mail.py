# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A run's block in notes, cover letters, patches and drafts, judged by the real git. Nothing leaves the machine."""

import email
import email.policy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulated_runs
import synthetic_profiles
from rxbook import RxbookError, cli, runs
from rxbook.mail import draft, placing
from rxbook.mail.block import Block, block, plain
from rxbook.profile import saved

HOSTILE = "--- a\n\ndiff -u\nFrom x Mon Sep 17 00:00:00 2001\n+++ b\n-- \n#1\nIndex: c\nMachine: d\n"
"""Lines that git, or a mailbox, would take for something else in the first column."""

ORIGINAL = b"""From: =?utf-8?q?J=C3=B6rg_Author?= <author@example.org>
To: netdev@vger.kernel.org
Cc: Other <other@example.org>, Dev <dev@example.org>,
 AUTHOR@example.org
Subject: RE: re: [PATCH net-next 0/1] net:
 faster
Message-ID: <2@example.org>
In-Reply-To: <1@example.org>
References: <0@example.org>
 <1@example.org>

Body.
"""


ATTACHED = {"report.txt": "text \u00b1\n", "report.html": "<p>\u00b1\n", "notebook.ipynb": '{"a": 1}'}


@pytest.fixture(scope="module", autouse=True)
def known_host():
    with simulated_runs.known_host():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of SIMULATED windows."""
    return simulated_runs.finished(tmp_path_factory.mktemp("runs") / "a-run").path


@pytest.fixture(scope="module")
def made(run):
    return block(run)


@pytest.fixture
def rxbook(monkeypatch, capsys):
    """Runs `rxbook mail`; returns (status, stdout, stderr)."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["rxbook", "mail", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def two_commits(tmp_path_factory):
    """A repository on branch main, to be copied."""
    path = tmp_path_factory.mktemp("template") / "repo"
    path.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        alone(patch, path.parent)
        patch.chdir(path)
        git("init", "-q", "-b", "main")
        git("config", "user.name", "D\u00e9v Eloper")
        git("config", "user.email", "dev@example.org")
        for number in (1, 2):
            (path / "file").write_text("".join(f"{line}\n" for line in range(number)))
            git("add", "file")
            git("commit", "-q", "-m", f"net: change {number}\n\nWhy.\n\nSigned-off-by: Dev <dev@example.org>")
    return path


@pytest.fixture
def repo(two_commits, tmp_path, monkeypatch):
    """A repository of two commits, which is the current directory."""
    alone(monkeypatch, tmp_path)
    path = Path(shutil.copytree(two_commits, tmp_path / "repo"))
    monkeypatch.chdir(path)
    return path


def alone(patch, home):
    """Nothing of the user's configuration counts for git."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        patch.delenv(name)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        patch.setenv(name, os.devnull)
    patch.setenv("HOME", str(home))


def git(*words, given=None):
    done = subprocess.run(["git", *map(str, words)], input=given, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def applied(patch):
    """The changelog that git am makes of the last patch of a file, in a branch that has not got it."""
    git("checkout", "-q", "-B", "elsewhere", "main~1")
    git("am", "-q", patch)
    assert git("diff", "main", "HEAD") == ""
    message = git("log", "-1", "--format=%B")
    git("checkout", "-q", "main")
    return message


def message_of(path):
    return email.message_from_bytes(path.read_bytes(), policy=email.policy.default)


# --- the block


def test_the_block_is_the_table_with_what_reviewers_ask(rxbook, run):
    status, out, err = rxbook(run)
    lines = out.splitlines()
    assert status == 0 and out.isascii() and max(map(len, lines)) <= 72 and len(lines) <= 41
    assert all(line.startswith("  ") for line in lines if line)
    for answer in (
        "GRO off",
        "GRO on",
        "64-byte frames",
        "checksum zero",
        "+/-",
        "FCS",
        "Machine: ",
        "24 windows",
    ):
        assert answer in out
    assert re.fullmatch(r"other tables, by --table: .*size_csum.*\n", err)


def test_tables_are_chosen_and_say_what_they_share_once(rxbook, run):
    status, out, err = rxbook(run, "--table", "size_csum", "--table", "cost", "--table", "cost")
    assert status == 0 and err == ""
    assert out.count("ns per packet") == 1 and out.index("by frame size") < out.index("ns per packet")
    assert out.count("Machine: ") == 1 and out.count("FCS") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--table", "gr"], "a-run has no table gr; it has: gro, cost, size_csum, windows"),
        (["--attach", "html"], "name its file by --draft"),
        (["--draft", "x.eml", "--reply-to", "a", "--series", "b"], "leave one out"),
        (["--draft", "x.eml", "--attach", "pdf"], "--attach pdf: choose text, html, ipynb"),
        (["--draft", "x.eml", "--attach", "html"], "a-run has no report.html to attach"),
        (["--draft", "no/x.eml"], "no/x.eml: No such file or directory"),
        (["--draft", "x.eml", "--reply-to", "none.eml"], "none.eml: No such file or directory; name a file"),
        (["--draft", "x.eml", "--reply-to", "file"], "file is no mail: it has no header From and Subject"),
        (["--draft", "x.eml", "--series", "."], ". holds no *.patch: name what git format-patch wrote"),
        (["--cover", "none.patch"], "none.patch: No such file or directory; name a cover letter"),
        (["--note", "no-such"], "no commit is named no-such"),
        (["--note", "--all"], "no commit is named --all"),
    ],
)
def test_a_mistake_is_answered_in_one_line_and_writes_nothing(rxbook, run, repo, words, said):
    status, out, err = rxbook(run, *words)
    assert status == 1 and out == "" and err.startswith("rxbook: ") and err.count("\n") == 1 and said in err
    assert (
        sorted(path.name for path in repo.iterdir()) == [".git", "file"]
        and git("status", "--porcelain") == ""
    )


def test_a_folder_without_repository_and_an_unknown_run_are_refused(rxbook, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "not a git repository" in rxbook(run, "--note", "HEAD")[2]
    assert "is no run folder" in rxbook("unknown")[2]


def test_a_label_stays(tmp_path):
    assert block(runs.SAMPLES / "gro_on_off").text.startswith("RECORDED ")
    folder = simulated_runs.begin(tmp_path / "cut", rows=7)
    assert "MEASURED, running" in block(tmp_path / "cut").text
    folder.close()
    found = block(tmp_path / "cut")
    assert "MEASURED, interrupted" in found.text and "WARNING: fewer than 5" in found.text
    assert "interrupted" in found.subject


def test_a_run_without_windows_is_refused(tmp_path):
    simulated_runs.begin(tmp_path / "empty", rows=0).close()
    with pytest.raises(RxbookError, match="empty has no window"):
        block(tmp_path / "empty")


def test_many_traffic_shapes_are_shown_by_frame_size():
    found = block(runs.SAMPLES / "gro_on_off", ["gro"])
    assert found.text.count("\n") <= 40 and "gro" not in found.others


def test_accents_go_and_what_would_lose_letters_is_refused_by_name(tmp_path):
    assert plain("\u00b15 na\u00efve", "x") == "+/-5 naive"
    simulated_runs.finished(tmp_path / "run")
    samples = tmp_path / "run" / "samples.csv"  # a plan takes no such label, a file may have it
    samples.write_text(samples.read_text().replace("simulated", "patch \u044f"))
    with pytest.raises(
        RxbookError, match=r"the table has '\u044f' \(U\+044F CYRILLIC SMALL LETTER YA\).*'patch"
    ):
        block(tmp_path / "run")


def test_a_folder_of_compared_inputs_has_its_tables_as_written(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "functions_1.txt").write_text(
        "64 x IP/UDP: functions   from a and b\n\n--- share ---\n"
    )
    (tmp_path / "tables" / "functions_2.txt").write_text("second\n")
    found = block(tmp_path)
    assert found.subject == "64 x IP/UDP: functions from a and b" and found.others == ("functions_2",)
    assert found.indented.splitlines()[2] == "  --- share ---"
    assert block(tmp_path, ["functions_2"]).text == "second\n"


# --- the block of functions


def profiled(path, shapes, lost=0, **parameters):
    """A SIMULATED run of function_cycles: its windows, and two recordings of each cell."""
    run = simulated_runs.finished(
        path, **({"udp_csum": "computed"} | parameters), shapes=shapes, frame_sizes=1518
    )
    (path / "profiles").mkdir()
    for number, cell in enumerate(run.plan.cells("simulated")):
        for repeat in (1, 2):
            name = path / "profiles" / f"cell-{number}-{repeat}"
            made_up = synthetic_profiles.profile(
                {"inet_gro_receive": 100 + 50 * number, "csum_partial": 300, "memcpy": 90, "ip_rcv": 5},
                lost=lost, comm="cpumap",
            )  # fmt: skip
            saved.save(made_up, name.with_suffix(".csv"))
            name.with_suffix(".json").write_text(json.dumps({"cell": cell.model_dump(), "task": "cpumap"}))
    return path


def test_a_run_of_functions_shows_its_largest_and_what_was_sent(tmp_path):
    found = block(profiled(tmp_path / "run", "ip-udp"))
    lines = found.text.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 68 and found.text.startswith("Functions by share of ")
    for answer in (
        "1 x IP/UDP: 1518-byte frames, UDP checksum computed",
        "cpumap",
        "2 for each column",
        "Machine: ",
    ):
        assert answer in " ".join(found.text.split())
    rows = [line.split()[0] for line in lines if re.search(r"\d\.\d\d", line)]
    assert {"GRO", "checksum", "inet_gro_receive", "csum_partial", "memcpy"} <= set(
        rows
    ) and "ip_rcv" not in rows
    assert found.text.count("1518-byte") == 1 and "ns per packet" not in found.text
    assert {"functions_1", "gro"} <= set(found.others)


def test_many_shapes_show_families_and_every_warning(tmp_path):
    found = block(profiled(tmp_path / "run", "ip-udp,ipip-udp,ip-tcp,ipip-tcp", lost=7))
    said = " ".join(found.text.split())
    assert "csum_partial" not in said and len(re.findall(r"checksum \d\d\.\d\d", said)) == 4
    for shape in ("1 x IP/UDP", "1 x IP/IP/UDP", "1 x IP/TCP", "1 x IP/IP/TCP"):
        assert f"{shape}: 1518-byte" in said and f"WARNING: {shape}: GRO off: 14 samples were lost" in said


def test_functions_that_were_asked_for_are_all_shown(tmp_path):
    found = block(profiled(tmp_path / "run", "ip-udp", functions="ip_rcv,inet_gro_receive"))
    assert (
        "\nip_rcv " in found.text
        and "\ninet_gro_receive " in found.text
        and "\ncsum_partial" not in found.text
    )


# --- a changelog that has the block, as pasted


def test_git_keeps_a_changelog_whole_that_has_any_block_in_it(repo):
    pasted = f"net: change\n\nWhy.\n\n{Block('run', '', HOSTILE).indented}"
    git("commit", "-q", "--amend", "-s", "--cleanup=strip", "-F", "-", given=pasted.encode())
    git("format-patch", "-q", "-1")
    patch = next(repo.glob("*.patch"))
    message = applied(patch)
    assert all(f"  {line}".rstrip() in message.splitlines() for line in HOSTILE.splitlines())
    assert "\n\nSigned-off-by:" in message, "the last line of the block was taken for a trailer"


def test_git_cuts_a_changelog_at_such_lines_in_the_first_column(repo):
    """Why the block is indented: without, this changelog loses its end."""
    git("commit", "-q", "--amend", "-F", "-", given=b"net: change\n\nWhy.\n\n--- GRO on --- 2.3\n\nEnd.\n")
    git("format-patch", "-q", "-1")
    assert "End." not in applied(next(repo.glob("*.patch")))


# --- the git note


def test_a_note_stands_below_the_line_and_out_of_the_changelog(rxbook, run, repo):
    status, out, err = rxbook(run, "--note", "HEAD")
    assert (status, out) == (0, "") and "git format-patch --notes=perf" in err
    git("format-patch", "-q", "--notes=perf", "-1")
    patch = next(repo.glob("*.patch"))
    changelog, below = patch.read_text().split("\n---\n", 1)
    notes, diff = below.split("diff --git", 1)
    assert "Mpps" not in changelog + diff and "Notes (perf):\n    [begin: rxbook mail a-run]\n" in notes
    assert "UDP GRO, Mpps" in notes and max(map(len, notes.splitlines())) <= 72
    assert applied(patch) == git("log", "-1", "--format=%B", "main")


def test_a_note_keeps_what_the_user_wrote_and_other_runs(run, repo):
    own = "mine, with blanks:   \n\n\n\n--- and more\n"
    blob = git("hash-object", "-w", "--stdin", given=own.encode()).strip()
    git("notes", "--ref=perf", "add", "-C", blob, "HEAD")
    for one in (Block("other", "", "other\n"), Block("a-run", "", "old\n"), Block("a-run", "", HOSTILE)):
        said = placing.note(one, "main")
    stored = git("cat-file", "blob", git("notes", "--ref=perf", "list", "main").strip())
    assert said.startswith("replaced in the note") and stored.startswith(own) and "old" not in stored
    assert (
        stored.count("[begin: ") == 2
        and f"[begin: rxbook mail a-run]\n{HOSTILE}[end: rxbook mail a-run]\n" in stored
    )


# --- cover letter and patch file


@pytest.fixture
def cover(repo):
    git("format-patch", "-q", "--cover-letter", "-1")
    path = repo / "0000-cover-letter.patch"
    text = (
        path.read_text()
        .replace("*** SUBJECT HERE ***", "net: faster")
        .replace("*** BLURB HERE ***", "Hello.")
    )
    path.write_text(text)
    return path


def outside(text, name="a-run"):
    begin, end = (f"[{word}: rxbook mail {name}]" for word in ("begin", "end"))
    assert text.count(begin) == text.count(end) == 1
    return text.split(begin)[0] + text.split(end)[1]


def test_a_cover_letter_gets_the_block_between_text_and_list_of_patches(rxbook, run, cover):
    before = cover.read_text()
    status, out, err = rxbook(run, "--cover", cover)
    assert (status, out) == (0, "") and "before the list of patches" in err
    text = cover.read_text()
    assert (
        text.index("Hello.\n\n[begin: ")
        < text.index("UDP GRO, Mpps")
        < text.index("]\n\nD\u00e9v Eloper (1):")
    )
    assert outside(text).replace("\n\n\n", "\n") == before.replace("\n\n", "\n", 0).replace(
        "Hello.\n\nD", "Hello.\n\nD"
    )


def test_the_next_call_replaces_the_block_and_nothing_else(run, cover):
    placing.cover(Block("other", "", "of another run\n"), cover)
    placing.cover(Block("a-run", "", "first\n"), cover)
    edited = cover.read_bytes().replace(b"Hello.", b"Hello \xff\r world.  ")
    cover.write_bytes(edited)
    said = placing.cover(Block("a-run", "", "second\nline\n"), cover)
    assert said.startswith("replaced in ")
    assert cover.read_bytes() == edited.replace(b"  first\n", b"  second\n  line\n")


def test_a_patch_file_gets_it_below_the_line_and_still_applies(rxbook, run, cover):
    patch = next(cover.parent.glob("0001-*.patch"))
    crlf = cover.parent / "crlf.patch"
    crlf.write_bytes(patch.read_bytes().replace(b"\n", b"\r\n"))
    message = git("log", "-1", "--format=%B", "main")
    for file in (patch, crlf):
        assert rxbook(run, "--cover", file)[0] == 0
    assert b"\n---\n[begin: " in patch.read_bytes()
    assert not re.search(rb"[^\r]\n", crlf.read_bytes()), "a line that ends otherwise than the file's"
    assert applied(patch) == message
    placing.cover(Block("other", "", HOSTILE), patch)
    assert applied(patch) == message


def test_a_mailbox_of_cover_and_patches_gets_it_in_the_cover(repo):
    box = repo / "series.mbox"
    box.write_text(git("format-patch", "--cover-letter", "--stdout", "-1"))
    placing.cover(Block("a-run", "", HOSTILE), box)
    first, second = box.read_text().split("\nFrom ", 1)
    assert "[end: rxbook mail a-run]" in first and "rxbook" not in second


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (b"net: title\n\nBlurb.\n\nSigned-off-by: Dev <d@example.org>", b"Blurb.\n\n[B][E]\n\nSigned-off"),
        (b"title\n\nBlurb.", b"Blurb.\n\n[B][E]\n"),
        (b"", b"[B][E]\n"),
    ],
)
def test_the_text_of_a_cover_letter_that_is_being_edited(tmp_path, text, after):
    file = tmp_path / "EDITMSG"
    file.write_bytes(text)
    placing.cover(Block("a-run", "", "x\n"), file)
    marked = re.sub(rb"\[begin.*\n  x\n\[end.*\]", b"[B][E]", file.read_bytes())
    assert after in marked and marked.startswith(text[:10])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Subject: x\nContent-Transfer-Encoding: base64\n\nAA==\n", "is encoded"),
        ("Subject: x\n\ndiff --git a/x b/x\n", "without a line ---"),
        ("[begin: rxbook mail a-run]\nSubject\n", "has not one line"),
        ("[end: rxbook mail a-run]\n[begin: rxbook mail a-run]\n", "has not one line"),
    ],
)
def test_a_file_that_cannot_hold_it_is_refused_and_kept(tmp_path, text, said):
    (tmp_path / "file").write_text(text)
    with pytest.raises(RxbookError, match=said):
        placing.cover(Block("a-run", "", "x\n"), tmp_path / "file")
    assert (tmp_path / "file").read_text() == text


PIECES = [
    b"---", b"", b"From: a@b", b"Subject: x", b"Dev (2):", b"  net: y", b"text \xff\r text", b"-- ", b"2.39",
    b"Cc: a@b", b"[begin: rxbook mail other]", b"[end: rxbook mail other]", b"From " + b"0" * 40 + b" Mon",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES)), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_writing_only_adds_to_a_file_and_writing_again_changes_nothing(lines, end, ended):
    before = end.join([*lines, b""] if ended else lines)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_bytes(before)
        placing.cover(Block("a-run", "", "x\n"), file)
        after = file.read_bytes()
        placing.cover(Block("a-run", "", "x\n"), file)
        assert file.read_bytes() == after
    first = after.index(b"[begin: rxbook mail a-run]")
    same = next(at for at in range(first, -1, -1) if before.startswith(after[:at]))
    assert after.endswith(before[same:]) and after.count(b"[begin: rxbook mail a-run]") == 1


# --- drafts


def test_a_new_mail_is_plain_text_in_seven_bits(rxbook, run, made, repo):
    status, out, err = rxbook(run, "--draft", "new.eml")
    assert (status, out) == (0, "") and "nothing is sent" in err
    raw, mail = Path("new.eml").read_bytes(), message_of(Path("new.eml"))
    assert raw.isascii() and b"\r" not in raw and mail["X-Unsent"] == "1"
    assert mail.get_content_type() == "text/plain" and mail["Content-Type"].params == {"charset": "us-ascii"}
    assert mail["Content-Transfer-Encoding"] == "7bit" and mail["From"] == "D\u00e9v Eloper <dev@example.org>"
    assert (
        mail["Subject"].startswith("UDP GRO, Mpps (measured 20") and mail["To"] is mail["Message-ID"] is None
    )
    assert mail.get_content() == made.indented
    assert "exists already" in rxbook(run, "--draft", "new.eml")[2] and Path("new.eml").read_bytes() == raw


def test_a_reply_goes_to_all_but_oneself_in_the_same_thread(rxbook, run, repo):
    Path("mail.mbox").write_bytes(b"From x Thu Jan  1 00:00:00 1970\n" + ORIGINAL)
    assert rxbook(run, "--draft", "re.eml", "--reply-to", "mail.mbox")[0] == 0
    mail = message_of(Path("re.eml"))
    assert mail["To"] == "J\u00f6rg Author <author@example.org>"
    assert mail["Cc"] == "netdev@vger.kernel.org, Other <other@example.org>"
    assert mail["Subject"] == "Re: [PATCH net-next 0/1] net: faster"
    assert mail["In-Reply-To"] == "<2@example.org>"
    assert mail["References"].split() == ["<0@example.org>", "<1@example.org>", "<2@example.org>"]
    assert Path("re.eml").read_bytes().isascii() and "Body." not in mail.get_content()


@pytest.mark.parametrize(
    ("old", "new", "header", "value"),
    [
        (b"To: ", b"Reply-To: list@example.org\nTo: ", "To", "list@example.org"),
        (b"<2@", b"<" + b"2" * 150 + b"@", "In-Reply-To", f"<{'2' * 150}@example.org>"),
        (b"net:\n", b"=?utf-8?q?a=0A=0Db?=\n", "Subject", "Re: [PATCH net-next 0/1] a b faster"),
        (b"<other@example.org>", b'<"o t"@example.org>', "Cc", "netdev@vger.kernel.org"),
        (b"<1@example.org>\n\n", b"<=?utf-8?q?=FF?=>\n\n", "References", "<0@example.org> <2@example.org>"),
        (b"netdev@vger.kernel.org", b"undisclosed-recipients:;", "Cc", "Other <other@example.org>"),
    ],
)
def test_hostile_and_long_headers_make_a_whole_draft(run, made, repo, old, new, header, value):
    Path("mail.eml").write_bytes(ORIGINAL.replace(old, new))
    draft.write(made, Path("re.eml"), run, Path("mail.eml"), [])
    mail = message_of(Path("re.eml"))
    assert mail[header] == value and mail["Bcc"] is None and not mail.defects
    assert value not in ("", None) and (
        header != "In-Reply-To" or value.encode() in Path("re.eml").read_bytes()
    )


def test_a_header_that_cannot_be_read_is_refused(run, made, repo):
    Path("mail.eml").write_bytes(ORIGINAL.replace(b"=C3=B6rg", b"=0ABcc:_x"))
    with pytest.raises(RxbookError, match="header From cannot be read"):
        draft.write(made, Path("re.eml"), run, Path("mail.eml"), [])


def test_a_series_is_answered_at_its_cover_letter(rxbook, run, repo):
    git("format-patch", "-q", "--cover-letter", "--thread", "--to=netdev@vger.kernel.org", "-1", "-o", "out")
    _, _, err = rxbook(run, "--draft", "re.eml", "--series", "out")
    cover = message_of(next(Path("out").glob("0000-*.patch")))
    mail = message_of(Path("re.eml"))
    assert (
        mail["In-Reply-To"] == cover["Message-ID"]
        and mail["To"] == "netdev@vger.kernel.org"
        and "WARNING" not in err
    )
    assert mail["Subject"] == "Re: [PATCH 0/1] *** SUBJECT HERE ***"


def test_a_series_without_message_ids_and_recipients_is_told(rxbook, run, repo):
    git("format-patch", "-q", "-1", "-o", "out")
    _, _, err = rxbook(run, "--draft", "re.eml", "--series", next(Path("out").iterdir()))
    assert "has no Message-ID" in err and "names nobody but you" in err
    mail = message_of(Path("re.eml"))
    assert mail["In-Reply-To"] is mail["To"] is None and mail["Subject"] == "Re: [PATCH] net: change 2"


@pytest.fixture(scope="module")
def attachable(tmp_path_factory):
    """The files of a run that can be attached, by name, in a folder."""
    folder = tmp_path_factory.mktemp("attached")
    for name, content in ATTACHED.items():
        (folder / name).write_text(content)
    return folder


def attached(path):
    parts = message_of(path).iter_attachments()
    return {part.get_filename(): part.get_payload(decode=True).decode() for part in parts}


def test_attachments_are_whole_and_lists_that_refuse_them_are_named(made, attachable, repo):
    Path("mail.eml").write_bytes(ORIGINAL)
    said = draft.write(made, Path("re.eml"), attachable, Path("mail.eml"), list(draft.ATTACHABLE))
    assert re.findall("WARNING: (.*?) is a mailing list", " ".join(said)) == ["netdev@vger.kernel.org"]
    assert attached(Path("re.eml")) == ATTACHED and Path("re.eml").read_bytes().isascii()
    assert message_of(Path("re.eml")).get_body().get_content() == made.indented


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("bpf@vger.kernel.org", True),
        ("x@lists.linux.dev", True),
        ("linux-mm@kvack.org", True),
        ("intel-wired-lan@lists.osuosl.org", True),
        ("tools@linux.kernel.org", True),
        ("kuba@kernel.org", False),
        ("someone@vger.kernel.org.example.org", False),
    ],
)
def test_lists_are_told_from_people(made, attachable, repo, address, told):
    Path("mail.eml").write_bytes(ORIGINAL.replace(b"netdev@vger.kernel.org", address.encode()))
    said = draft.write(made, Path("re.eml"), attachable, Path("mail.eml"), ["text"])
    assert any(address in line for line in said) is told
    assert not any(
        "WARNING" in line for line in draft.write(made, Path("2"), attachable, Path("mail.eml"), [])
    )


# --- git send-email


@pytest.fixture
def sendmail(tmp_path):
    """What sends by a local program, which keeps what it is given; and the folder of what it got."""
    if not (Path(git("--exec-path").strip()) / "git-send-email").exists():
        pytest.skip("git send-email is not installed (package git-email)")
    kept = tmp_path / "sent"
    kept.mkdir()
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\ncat > "{kept}/$$"\n')
    program.chmod(0o755)
    words = ["send-email", "--confirm=never", "--quiet", f"--smtp-server={program}", "--suppress-cc=self"]
    return words, kept


@pytest.mark.parametrize("attach", [[], ["text", "html", "ipynb"]])
def test_git_send_email_hands_a_draft_on_as_it_is(made, attachable, repo, sendmail, attach):
    words, kept = sendmail
    Path("mail.eml").write_bytes(ORIGINAL)
    draft.write(made, Path("re.eml"), attachable, Path("mail.eml"), attach)
    git(*words, "--dry-run", "re.eml")
    assert not list(kept.iterdir())
    git(*words, "re.eml")
    (sent,) = kept.iterdir()
    given, handed = message_of(Path("re.eml")), message_of(sent)
    for name in ("To", "Cc", "Subject", "In-Reply-To", "References"):
        assert str(handed[name]).split() == str(given[name]).split(), name
    assert handed["Message-ID"] and sent.read_bytes().isascii() and attached(sent) == attached(Path("re.eml"))
    assert handed.get_body().get_content().rstrip() == given.get_body().get_content().rstrip()


def test_git_send_email_takes_cover_letter_and_patch(made, repo, cover, sendmail):
    words, kept = sendmail
    for path in repo.glob("*.patch"):
        placing.cover(made, path)
    git(*words, "--dry-run", "--to=list@example.org", *sorted(repo.glob("*.patch")))
    assert not list(kept.iterdir())
    git(*words, "--to=list@example.org", *sorted(repo.glob("*.patch")))
    sent = [message_of(path) for path in kept.iterdir()]
    assert {mail["Subject"] for mail in sent} == {"[PATCH 0/1] net: faster", "[PATCH 1/1] net: change 2"}
    assert all(made.indented in mail.get_content() for mail in sent)
