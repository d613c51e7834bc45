# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The text of a mail, an mbox, a patch or a patchwork page, message by message, decoded; quote marks are kept.

Python's email and mailbox read what is a mail; a page or a mail's body alone is taken as it is.
"""

from __future__ import annotations

import email
import email.policy
import itertools
import mailbox
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

from rxbook import RxbookError

__all__ = ["SUBJECT", "Message", "read"]

SUBJECT = re.compile(r"(?:[A-Za-z]{2,4}: )*\[[^\]]*\b\d+/\d+\] \S.*")
"""A line of a page or a saved thread that begins a message of a series."""

HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*:(?=[ \t]|$)")
HEADER_NAMES = (
    "Received|From|To|Cc|Subject|Date|Message-I[dD]|In-Reply-To|References|MIME-Version|Content-Type|"
    "Content-Transfer-Encoding|Precedence|Authentication-Results|DKIM-Signature|Reply-To|Sender|User-Agent|"
    r"Organization|(?:ARC|X|List)-[\w-]+"
)
MOST_BYTES = 100_000_000


@dataclass(frozen=True)
class Message:
    """One message. subject: "" where none is known; line: that of the text at which it begins, from 1."""

    subject: str
    text: str
    line: int = 1


def read(path: Path) -> list[Message]:
    """The messages of a file, in order.

    Raises RxbookError where it cannot be read, is HTML or holds no text.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RxbookError(f"{path.name} is larger than {MOST_BYTES // 1_000_000} MB: give one thread")
        raw = path.read_bytes()
    except OSError as error:
        raise RxbookError(f"cannot read {path.name}: {error.strerror}") from error
    if re.match(rb"\s*(<!doctype html|<html)", raw, re.IGNORECASE):
        raise RxbookError(f"{path.name} is HTML: save the page as text, or give the mail itself")
    raw = raw.replace(b"\r\n", b"\n")
    found = [part for message in _messages(path, raw) for part in message]
    if not any(message.text.strip() for message in found):
        raise RxbookError(f"{path.name} holds no text")
    return found


def _messages(path: Path, raw: bytes) -> Iterator[list[Message]]:
    if _lost_its_lines(raw):
        raw = _with_lines(raw)
    elif raw.startswith(b"From ") and len(re.findall(rb"^From .*\n[\w-]+:", raw, re.MULTILINE)) > 1:
        box = mailbox.mbox(path, create=False)
        for key in box.iterkeys():
            yield [_parsed(box.get_bytes(key))]
        return
    if raw.startswith(b"From "):
        raw = raw.partition(b"\n")[2]
    if _has_headers(raw):
        yield [_parsed(raw)]
    else:
        yield list(_split(raw.decode("utf-8", "replace")))


def _has_headers(raw: bytes) -> bool:
    head = raw.lstrip(b"\n").partition(b"\n\n")[0].decode("utf-8", "replace")
    lines = head.split("\n")
    headers = [line for line in lines if HEADER.match(line)]
    folded = [line for line in lines if line[:1] in (" ", "\t")]
    named = {line.partition(":")[0].lower() for line in headers}
    return len(headers) + len(folded) == len(lines) and bool(named & {"from", "subject", "message-id"})


def _parsed(raw: bytes) -> Message:
    message = email.message_from_bytes(raw.lstrip(b"\n"), policy=email.policy.default)
    return Message(_header(message, "Subject"), "\n".join(_texts(message)))


def _header(message: EmailMessage, name: str) -> str:
    # email's header parser raises many kinds of errors on damaged headers: a lost subject loses no figure
    try:
        return " ".join(str(message.get(name, "")).split())
    except Exception:
        return ""


def _texts(message: EmailMessage) -> Iterator[str]:
    """The plain texts of a message, attached patches included."""
    for part in message.walk():
        if part.get_content_maintype() != "text" or part.get_content_subtype() == "html":
            continue
        try:
            yield part.get_content().replace("\r\n", "\n")
        except (LookupError, UnicodeError, ValueError):  # a charset that is none
            yield (part.get_payload(decode=True) or b"").decode("utf-8", "replace")


def _split(text: str) -> Iterator[Message]:
    """A page or a saved thread, cut where the subject of a message stands."""
    lines = text.split("\n")
    starts = [at for at, line in enumerate(lines) if SUBJECT.fullmatch(line.rstrip())]
    edges = [0, *(at for at in starts if at), len(lines)]
    for at, end in itertools.pairwise(edges):
        named = at in starts
        yield Message(lines[at].strip() if named else "", "\n".join(lines[at:end]), at + 1)


# --- a mail whose line ends were lost


def _lost_its_lines(raw: bytes) -> bool:
    """Are header lines, as of a mail copied out of a web page, all in one line?"""
    first = raw.lstrip().partition(b"\n")[0]
    return len(re.findall(rb" (?:Subject|Date|From|To|Message-I[dD]): ", first)) >= 3


def _with_lines(raw: bytes) -> bytes:
    """The mail with its header lines, and the lines of a quoted body, put back as far as the text tells them."""
    text = raw.decode("utf-8", "surrogateescape")
    text = re.sub(r"^\s*From \S+ \w{3} \w{3} +\d+ [\d:]+ \d{4} ", "", text)
    # the headers of a body are the last that a mail has
    kinds = (r" Content-Transfer-Encoding: \S+", r" Content-Type: text/\S+(?: charset=\S+)?")
    end = max((found.end() for kind in kinds if (found := re.search(kind, text))), default=len(text))
    head, body = text[:end], text[end:].strip()
    head = re.sub(rf" (?=(?:{HEADER_NAMES}): )", "\n", head.strip())
    body = re.sub(r" (?=>(?: |$))", "\n", body)
    return f"{head}\n\n{body}\n".encode("utf-8", "surrogateescape")
