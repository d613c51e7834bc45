# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A block where git carries it: in a note of refs/notes/perf, in a cover letter, below the `---` of a patch.

It stands between two marker lines that name its run. The next call replaces what is between them and keeps every other
byte; several runs stand side by side. Markers are in brackets, as no trailer, header or diff is.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from rxbook import RxbookError
from rxbook.mail.block import Block, plain

__all__ = ["REF", "cover", "git", "note"]

REF = "perf"
HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]*:[ \t]|From ")
NEXT_MAIL = re.compile(rb"From [0-9a-f]{40} ")
SHORTLOG = re.compile(rb"\S.* \(\d+\):\s*$")
"""`Author (3):`, by which the list of patches in a cover letter begins."""
TRAILER = re.compile(rb"[A-Z][a-z]+(-[a-z]+)*: \S")


def note(block: Block, commit: str) -> str:
    """Store the block in the git note of a commit, refs/notes/perf, for `git format-patch --notes=perf`; says so.

    The repository is that of the current directory. A note that is there is added to.
    Raises RxbookError where there is no repository or no such commit, or git refuses.
    """
    found = _commit(commit)
    listed = git("notes", f"--ref={REF}", "list").decode().splitlines()
    blob = next((line.split()[0] for line in listed if line.endswith(found)), None)
    before = git("cat-file", "blob", blob) if blob else b""
    after, done = _replaced(before, block, block.text, "the note")
    if not done:
        gap = b"" if not before else b"\n" if before.endswith(b"\n") else b"\n\n"
        after = before + gap + _marked(block, block.text, b"\n")
    stored = git("hash-object", "-w", "--stdin", given=after).decode().strip()
    # -C, as -F would tidy the user's own blanks
    git("notes", f"--ref={REF}", "add", "-f", "-C", stored, found)
    return (
        f"{'replaced in' if done else 'stored in'} the note of {found[:12]}; git format-patch --notes={REF} puts it "
        f"below ---\n(git config notes.rewriteRef refs/notes/{REF} lets notes follow a rebase)"
    )


def cover(block: Block, path: Path) -> str:
    """Write the block into a cover letter, a patch file, or the text of a cover letter that is being edited; says so.

    Before the list of patches; below the first `---`; else at the end, before trailers. Lines end as the file's do.
    Raises RxbookError where the file cannot be read or written, is encoded, or has one marker without the other.
    """
    try:
        before = path.read_bytes()
    except OSError as error:
        raise RxbookError(f"{path}: {error.strerror}; name a cover letter or a patch file") from None
    after, done = _replaced(before, block, block.indented, path.name)
    where = "in its place"
    if not done:
        after, where = _inserted(before, block, path.name)
    try:
        path.write_bytes(after)
    except OSError as error:
        raise RxbookError(f"{path}: {error.strerror}") from None
    return f"{'replaced' if done else 'written'} in {path}, {where}"


def _commit(name: str) -> str:
    try:
        git("rev-parse", "--git-dir")
    except RxbookError as error:
        raise RxbookError(f"{error}; go to the repository that has the commit") from None
    try:
        return (
            git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").decode().strip()
        )
    except RxbookError:
        raise RxbookError(f"no commit is named {name} in this repository") from None


def git(*words: str, given: bytes | None = None) -> bytes:
    """What a git command prints. Raises RxbookError with git's own words where it fails or is not there."""
    try:
        done = subprocess.run(["git", *words], input=given, capture_output=True)
    except FileNotFoundError:
        raise RxbookError("git is not installed") from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise RxbookError(f"git {words[0]}: {said or f'status {done.returncode}'}")
    return done.stdout


def _markers(block: Block) -> tuple[bytes, bytes]:
    name = plain(block.run, "the run's name")
    return f"[begin: rxbook mail {name}]".encode(), f"[end: rxbook mail {name}]".encode()


def _marked(block: Block, text: str, end: bytes) -> bytes:
    begin, last = _markers(block)
    return end.join([begin, *text.encode("ascii").splitlines(), last, b""])


def _replaced(before: bytes, block: Block, text: str, what: str) -> tuple[bytes, bool]:
    """The bytes with a new block between the run's markers; whether there were any."""
    begin, last = _markers(block)
    lines = before.splitlines(keepends=True)
    found = [
        [i for i, line in enumerate(lines) if line.rstrip(b"\r\n") == marker] for marker in (begin, last)
    ]
    if found == [[], []]:
        return before, False
    if [len(places) for places in found] != [1, 1] or found[0] > found[1]:
        raise RxbookError(
            f"{what} has not one line {begin.decode()} and below it one {last.decode()}: remove both, and call again"
        )
    (first,), (final,) = found
    return b"".join([*lines[:first], _marked(block, text, _ending(lines)), *lines[final + 1 :]]), True


def _ending(lines: list[bytes]) -> bytes:
    return b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"


def _inserted(before: bytes, block: Block, what: str) -> tuple[bytes, str]:
    lines = before.splitlines(keepends=True)
    end = _ending(lines)
    place, where = _place(lines, what)
    above, below = b"".join(lines[:place]), b"".join(lines[place:])
    if above and not above.endswith(b"\n"):
        above += end
    needs_gap = above and place and lines[place - 1].strip(b"\r\n") not in (b"", b"---")
    marked = _marked(block, block.indented, end)
    return above + end * bool(needs_gap) + marked + end * bool(below) + below, where


def _place(lines: list[bytes], what: str) -> tuple[int, str]:
    """The index of the line before which a new block goes, and that place in words."""
    body = _body(lines, what)
    last = next((i for i in range(body + 1, len(lines)) if NEXT_MAIL.match(lines[i])), len(lines))
    for i in range(body, last):
        if lines[i].rstrip(b"\r\n") == b"---":
            return i + 1, "below ---"
        if SHORTLOG.match(lines[i]) and lines[i + 1 : i + 2] and lines[i + 1].startswith(b"  "):
            return i, "before the list of patches"
        if lines[i].startswith(b"diff --git"):
            raise RxbookError(f"{what} has a diff without a line --- above it: make it by git format-patch")
    signature = next((i for i in range(body, last) if lines[i].rstrip(b"\r\n") == b"-- "), last)
    trailers = signature
    while trailers > body and (TRAILER.match(lines[trailers - 1]) or not lines[trailers - 1].strip()):
        trailers -= 1
    if any(line.strip() for line in lines[trailers:signature]):
        while not lines[trailers].strip():
            trailers += 1
        return trailers, "before the trailers"
    return signature, "at the end"


def _body(lines: list[bytes], what: str) -> int:
    """Where the body of a mail begins; 0 in a text without headers. Raises RxbookError where it is encoded."""
    if not lines or not HEADER.match(lines[0]):
        return 0
    body = next((i + 1 for i, line in enumerate(lines) if not line.strip()), len(lines))
    head = b"".join(lines[:body]).lower()
    if re.search(
        rb"^content-transfer-encoding:\s*(quoted-printable|base64)|^content-type:\s*multipart/", head, re.M
    ):
        raise RxbookError(
            f"{what} is encoded (base64, quoted-printable or MIME parts): make it by git format-patch"
        )
    return body
