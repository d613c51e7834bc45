# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A draft mail with a block as its body, as a file for a mail program or git send-email. Nothing is sent.

Plain text in 7 bits, not format=flowed, without the quoted original: what to quote is the author's to say. X-Unsent
makes mail programs open it as a draft. Date and Message-ID are left to whoever sends it.
"""

from __future__ import annotations

import email
import email.errors
import email.policy
import re
from collections.abc import Iterable, Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from rxbook import RxbookError
from rxbook.mail import placing
from rxbook.mail.block import Block

__all__ = ["ATTACHABLE", "original", "write"]

ATTACHABLE = {
    "text": ("report.txt", "text", "plain"),
    "html": ("report.html", "text", "html"),
    "ipynb": ("notebook.ipynb", "application", "x-ipynb+json"),
}
"""What --attach takes: the file of the run, and its MIME type."""

LISTS = {"vger.kernel.org", "kvack.org", "lists.sourceforge.net"}
"""Hosts of mailing lists, beside those named lists.* and *.kernel.org."""

MESSAGE_ID = re.compile(r"<((?!=\?)[!-;=?-~])+>")
"""ASCII, and nothing that a header would take for an encoded word."""

ATOM = r"[\w!#$%&'*+/=?^`{|}~-]+"
ADDRESS = re.compile(rf"{ATOM}(\.{ATOM})*@{ATOM}(\.{ATOM})*", re.ASCII)


def write(block: Block, path: Path, run: Path, reply: Path | None, attach: Sequence[str]) -> list[str]:
    """Write the draft; returns what its author must know before sending it.

    reply: the mail it answers, see `original`; without one it is a new mail. attach: names of ATTACHABLE.
    Raises RxbookError where the file exists, the mail cannot be read, or the run has not what is to be attached.
    """
    mail, said = EmailMessage(), []
    sender = _sender()
    if sender:
        mail["From"] = sender
    said += _answer(mail, _read(reply), reply.name, sender) if reply else []
    if not reply:
        mail["Subject"] = _one_line(block.subject)
    mail["X-Unsent"] = "1"
    mail.set_content(block.indented, charset="us-ascii", cte="7bit")
    _attach(mail, run, attach)
    said += _refusing(mail) if attach else []
    try:
        with open(path, "xb") as file:
            file.write(mail.as_bytes(policy=_policy(mail)))
    except FileExistsError:
        raise RxbookError(f"{path} exists already: name a new file") from None
    except OSError as error:
        raise RxbookError(f"{path}: {error.strerror}") from None
    return [f"draft in {path}; nothing is sent", *said]


def original(series: Sequence[Path]) -> Path:
    """The mail of a patch series that a reply answers: its cover letter, else its first patch.

    series: a folder or files, as git format-patch writes them. Raises RxbookError where there is none.
    """
    files = [
        file for given in series for file in (sorted(given.glob("*.patch")) if given.is_dir() else [given])
    ]
    if not files:
        raise RxbookError(f"{', '.join(map(str, series))} holds no *.patch: name what git format-patch wrote")
    covers = [file for file in files if re.search(r"\b0+/\d+\]", _words(_read(file), "Subject"))]
    return (covers or files)[0]


def _read(path: Path) -> EmailMessage:
    """The first message of a file: of an mbox, too."""
    try:
        found = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    except OSError as error:
        raise RxbookError(f"{path}: {error.strerror}; name a file that holds a mail") from None
    lacking = " and ".join(name for name in ("From", "Subject") if not _header(found, name))
    if lacking:
        raise RxbookError(f"{path} is no mail: it has no header {lacking}; save it as a raw message or mbox")
    return found


def _header(mail: EmailMessage, name: str) -> list[Any]:
    """All headers of this name, parsed. Raises RxbookError where one cannot be."""
    try:
        return mail.get_all(name, [])
    except (ValueError, LookupError, AttributeError, TypeError, email.errors.MessageError) as error:
        raise RxbookError(f"the mail's header {name} cannot be read: {_one_line(str(error))}") from None


def _words(mail: EmailMessage, *names: str) -> str:
    """The first of these headers that is there, on one line."""
    return next((_one_line(str(header)) for name in names for header in _header(mail, name)), "")


def _message_ids(mail: EmailMessage, *names: str) -> list[str]:
    return [found[0] for found in MESSAGE_ID.finditer(_words(mail, *names))]


def _answer(mail: EmailMessage, answered: EmailMessage, name: str, sender: Address | None) -> list[str]:
    """Set the headers of a reply to all but oneself; returns what is lacking."""
    own = {sender.addr_spec.lower()} if sender else set()
    said: list[str] = []
    others, copied = (_addresses(answered, said, name) for name in ("To", "Cc"))
    to, rest = _without(_addresses(answered, said, "Reply-To", "From"), own), [*others, *copied]
    if not to:  # one's own mail
        to, rest = _without(others, own), copied
    seen = own | {one.addr_spec.lower() for one in to}
    for header, people in (("To", to), ("Cc", _without(rest, seen))):
        if people:
            mail[header] = people
    if not to:
        said.append(f"{name} names nobody but you: fill in To and Cc")
    mail["Subject"] = "Re: " + re.sub(r"^(re:\s*)+", "", _words(answered, "Subject"), flags=re.IGNORECASE)
    thread = _message_ids(answered, "Message-ID")[:1]
    if not thread:
        said.append(f"{name} has no Message-ID, so the draft is in no thread: name the mail as it was sent")
        return said
    before = _message_ids(answered, "References", "In-Reply-To")
    mail["In-Reply-To"] = thread[0]
    mail["References"] = " ".join(dict.fromkeys([*before, *thread]))
    return said


def _addresses(mail: EmailMessage, said: list[str], *names: str) -> list[Address]:
    """Of the first of these headers that has any. What a 7-bit header cannot hold is left out, and said."""
    for name in names:
        found = [one for header in _header(mail, name) for one in getattr(header, "addresses", ())]
        said += [
            f"left out of the draft: {_one_line(str(one))}, no plain address, in {name}"
            for one in found
            if not ADDRESS.fullmatch(one.addr_spec)
        ]
        kept = [
            Address(_one_line(one.display_name), addr_spec=one.addr_spec)
            for one in found
            if ADDRESS.fullmatch(one.addr_spec)
        ]
        if kept:
            return kept
    return []


def _without(people: Iterable[Address], seen: set[str]) -> list[Address]:
    kept = {one.addr_spec.lower(): one for one in reversed(list(people))}
    return [one for key, one in reversed(kept.items()) if key not in seen]


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _sender() -> Address | None:
    """Who writes, as git knows him; None where it does not."""
    try:
        name, address = (
            placing.git("config", "--get", f"user.{key}").decode().strip() for key in ("name", "email")
        )
        return Address(_one_line(name), addr_spec=address)
    except (RxbookError, UnicodeDecodeError, email.errors.HeaderParseError, ValueError, IndexError):
        return None


def _attach(mail: EmailMessage, run: Path, names: Sequence[str]) -> None:
    for name in dict.fromkeys(names):
        if name not in ATTACHABLE:
            raise RxbookError(f"--attach {name}: choose {', '.join(ATTACHABLE)}")
        file, kind, subtype = ATTACHABLE[name]
        try:
            content = (run / file).read_bytes()
        except FileNotFoundError:
            raise RxbookError(f"{run.name} has no {file} to attach") from None
        if kind == "text":
            mail.add_attachment(content.decode(), subtype=subtype, filename=file)
        else:
            mail.add_attachment(content, maintype=kind, subtype=subtype, filename=file)


def _refusing(mail: EmailMessage) -> list[str]:
    people = [one for header in ("To", "Cc") if mail[header] for one in mail[header].addresses]
    return [
        f"WARNING: {one.addr_spec} is a mailing list: kernel lists want plain text without attachments, and refuse "
        "HTML; take it out, or leave --attach out"
        for one in people
        if one.domain in LISTS or one.domain.startswith("lists.") or one.domain.endswith(".kernel.org")
    ]


def _policy(mail: EmailMessage) -> email.policy.EmailPolicy:
    """Lines of 78, but never a Message-ID cut or encoded: a header grows with its longest word."""
    longest = max((len(word) for value in mail.values() for word in str(value).split()), default=0)
    return email.policy.SMTP.clone(linesep="\n", cte_type="7bit", max_line_length=max(78, longest + 14))
