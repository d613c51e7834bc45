# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names that a shared recording keeps, and what stands for the others: user-1, /user/1, the same for the same name."""

from __future__ import annotations

import re

from rxbook import RxbookError

_NOT_FILES = ("//anon", "[heap]", "[stack]", "[vdso]", "[vsyscall]", "[vvar]", "[uprobes]")
"""What perf and the kernel call user mappings without a file; no program chooses these names."""

_KERNEL_THREAD = re.compile(
    r"""swapper(/\d+)? | kthreadd | rcu_\w+ | rcu[a-z]+/\d+ | (ksoftirqd|migration|cpuhp|watchdog|idle_inject)/\d+
    | kworker/[\w:.+/-]+ | cpumap/\d+/map:\d+ | napi/\S+ | irq/\d+-\S+ | (irq_work|ktimers|backlog_napi)/\d+
    | (kswapd|kcompactd|kpktgend_|scsi_eh_|scsi_tmf_)\d+ | kdamond\.\d+ | vhost-\d+
    | ksmd | khugepaged | kdevtmpfs | kauditd | khungtaskd | oom_reaper | writeback | kblockd | kthrotld | netns
    | inet_frag_wq | mld | ipv6_addrconf | jbd2/[\w-]+ | ext4-rsv-conver | pool_workqueue_""",
    re.VERBOSE,
)
_MODULES = ("/lib/modules/", "/usr/lib/modules/")
_USER_EVENT = re.compile(r"(probe_|sdt_|uprobes)\w*:")
"""Groups of events in user programs; perf names them after the program."""


class Names:
    """Replaces names, the same by the same, in the order in which they are met."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._comms: dict[str, str] = {}

    def comm(self, name: str) -> str:
        """A thread's name. A kernel thread is known by its name alone: its record tells nothing else."""
        if not name or _KERNEL_THREAD.fullmatch(name):
            return name
        return self._comms.setdefault(name, f"user-{len(self._comms) + 1}")

    def file(self, name: str) -> str:
        """A user's file, or the path of a cgroup."""
        if not name or name in _NOT_FILES:
            return name
        return self._files.setdefault(name, f"/user/{len(self._files) + 1}")


def kernel_file(name: str) -> str:
    """The kernel's own name, or a module's: without the folder, unless it is that of all modules."""
    if name.startswith("[") or (name.startswith(_MODULES) and ".." not in name):
        return name
    module = re.search(r"([^/]+)\.ko(\.\w+)?$", name)
    return f"[{module[1].replace('-', '_')}]" if module else "[kernel.kallsyms]"


def refuse_user_event(name: str) -> None:
    """RxbookError where an event is a probe in a user's program, whose name would be shared."""
    if _USER_EVENT.match(name):
        raise RxbookError(
            f"event {name} is a probe in a program of user space, which would be named: record without it"
        )
