# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Configures and builds a kernel out of its tree, by the tree's own make and scripts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rxbook import RxbookError

__all__ = ["SMALL", "Built", "Place", "build", "configuration", "configure", "environment", "lacking"]

SMALL = "small"
SMALL_FILE = Path(__file__).with_name("small.config")

NEEDED = (
    "NET_NS", "INET", "IPV6", "VETH", "BPF_SYSCALL", "BPF_JIT", "PERF_EVENTS", "SCHED_INFO", "BLK_DEV_INITRD",
    "BINFMT_ELF", "BINFMT_SCRIPT", "PROC_FS", "SYSFS", "DEVTMPFS", "SERIAL_8250_CONSOLE",
)  # fmt: skip
"""Options without which no guest measures; veth and ipv6 can be modules."""

CONFIGURED = ".rxbook-configured"
SHOWN_LINES = 15
STEP = re.compile(
    r"\s+[A-Z][A-Z0-9_]*(?: \[M\])?\s+\S+|make(?:\[\d+\])?: (?:Entering|Leaving) directory .*|#.*|"
)
"""What make prints when all goes well: "  CC      net/core/dev.o"."""
LACKS_A_TOOL = re.compile(r"\b(?:flex|bison|bc|pahole|gcc|ld|objcopy)\b.*not found|gelf\.h|libelf|openssl/")
COMPILED = re.compile(r"\s+(?:CC|AS)\b")

TOOLS = (
    "A kernel build needs, on Debian, apt install build-essential flex bison bc libelf-dev libssl-dev pahole "
    "(Debian 12: dwarves); on Fedora, dnf install gcc make flex bison bc elfutils-libelf-devel openssl-devel dwarves"
)

Report = Callable[[int, str], None]


@dataclass(frozen=True)
class Place:
    """Where a kernel is built: its source, the folder that everything goes into, and a log of all that make says.

    lock: a file that make holds open too, so that it stays locked until make ends, whatever becomes of us.
    """

    source: Path
    folder: Path
    log: Path
    lock: int


@dataclass(frozen=True)
class Built:
    """What a build was: seconds, and how many files were compiled."""

    seconds: float
    files: int


def configuration(config: str) -> str:
    """The text of a configuration: "small", or a file. Raises RxbookError where the file cannot be read."""
    try:
        return (SMALL_FILE if config == SMALL else Path(config)).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise RxbookError(f"--config {config}: {reason}; name a .config, or say {SMALL}") from None


def configure(place: Place, config: str, wanted: str) -> list[str]:
    """Make .config in the build folder, once; later brought up to the tree's options only. wanted: its text.

    Returns the options of "small" that this tree refuses. Raises RxbookError where a guest needs one of them.
    """
    folder = place.folder
    if not (folder / CONFIGURED).exists():
        if config == SMALL:
            _make(place, ["tinyconfig"])
            # -n: what neither names is off, also where the tree's default is on, as for mice and 60 makers of NICs
            merge = [
                "sh",
                "scripts/kconfig/merge_config.sh",
                "-n",
                "-O",
                str(folder),
                str(folder / ".config"),
            ]
            _run([*merge, str(SMALL_FILE)], place)
        else:
            (folder / ".config").write_text(wanted)
        (folder / CONFIGURED).touch()
    _make(place, ["olddefconfig"])
    made = (folder / ".config").read_text()
    missing = [name for name in NEEDED if not re.search(rf"^CONFIG_{name}=[ym]$", made, re.MULTILINE)]
    if missing:
        raise RxbookError(f"--config {config}: a guest needs CONFIG_{', CONFIG_'.join(missing)}, which this tree's "
                          "make olddefconfig leaves unset")  # fmt: skip
    refused = lacking(wanted, made)
    if "CONFIG_DEBUG_INFO_BTF" in refused:
        raise RxbookError("CONFIG_DEBUG_INFO_BTF stays unset, and without it nobody sees what a kernel has: "
                          f"pahole is missing or too old. {TOOLS}")  # fmt: skip
    return refused if config == SMALL else []


def lacking(wanted: str, made: str) -> list[str]:
    """The options that a configuration has otherwise than wanted; one that is not there is unset."""
    lines = set(made.splitlines())
    options = {line.partition("=")[0] for line in lines if line.startswith("CONFIG_")}
    refused = []
    for line in wanted.splitlines():
        unset = re.fullmatch(r"# (CONFIG_\w+) is not set", line)
        if unset and unset[1] in options:
            refused.append(unset[1])
        elif line.startswith("CONFIG_") and line not in lines:
            refused.append(line.partition("=")[0])
    return refused


def build(place: Place, jobs: int, report: Report = lambda *_: None) -> Built:
    """Build what changed. `report` is called with the number of files compiled so far and make's last line.

    Raises RxbookError where make fails, after showing its last lines on stderr.
    """
    start = time.monotonic()
    files = _make(place, [f"-j{jobs}", "all"], report)
    return Built(time.monotonic() - start, files)


def environment() -> dict[str, str]:
    """For git and make: without what a make or git that called us would have them do, and with fixed words where
    a kernel names who built it and when, so that kernels differ by their source alone.
    """
    foreign = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "KBUILD_OUTPUT", "O")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in foreign and not name.startswith("GIT_")
    }
    return kept | {"LC_ALL": "C", "KBUILD_BUILD_USER": "rxbook", "KBUILD_BUILD_HOST": "rxbook",
                   "KBUILD_BUILD_VERSION": "1", "KBUILD_BUILD_TIMESTAMP": "1970-01-01"}  # fmt: skip


def _make(place: Place, targets: list[str], report: Report = lambda *_: None) -> int:
    # LOCALVERSION= keeps make from adding "+" to the release of a commit that has no tag
    return _run(["make", f"O={place.folder}", "LOCALVERSION=", *targets], place, report)


def _run(command: list[str], place: Place, report: Report = lambda *_: None) -> int:
    """Run it in the tree, what it says goes into the log. Returns how many files it compiled."""
    files, said = 0, []
    with open(place.log, "a") as log:
        try:
            process = subprocess.Popen(
                command, cwd=place.source, env=environment(), text=True, errors="replace",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                process_group=0, pass_fds=(place.lock,),
            )  # fmt: skip
        except FileNotFoundError:
            raise RxbookError(f"{command[0]} is not installed. {TOOLS}") from None
        try:
            for line in process.stdout:
                log.write(line)
                files += bool(COMPILED.match(line))
                if not STEP.fullmatch(line.rstrip("\n")):
                    said.append(line.rstrip("\n"))
                report(files, line.strip())
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)  # make then removes what is half made
            process.wait()
            raise
        finally:
            process.stdout.close()
    if status:
        last = "\n".join(said[-SHOWN_LINES:])
        print(last, file=sys.stderr)
        hint = f". {TOOLS}" if LACKS_A_TOOL.search(last) else ""
        raise RxbookError(f"{command[0]} {command[-1]} fails with status {status}; all that it said is in "
                          f"{place.log}{hint}")  # fmt: skip
    return files
