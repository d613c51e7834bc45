# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who sends: one file per generator, and its name here.

A generator has `load(spec, macs)`, `start()`, `stop()`, `send(count)` and `send_in_calls(calls, each)` as LiveFrames
has them, and `printed_pps`, the rate that it prints of its last `start` to `stop`, frames per second, or None. Its
module has `check(spec, veth)` for the frames that it cannot send, and `trouble()` for a machine on which it cannot run.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rxbook import RxbookError

if TYPE_CHECKING:
    from rxbook.frames import FrameSpec

__all__ = ["GENERATORS", "check", "on_device", "require", "trouble"]

GENERATORS = {"live_frames": "LiveFrames", "pktgen": "Pktgen", "xdp_trafficgen": "XdpTrafficgen"}
"""What `generator` may be, and the class in the module of that name."""


def check(generator: str, spec: FrameSpec, veth: bool) -> None:
    """Raise RxbookError, with the reason, for frames that this generator cannot send; veth: out of such a device."""
    if generator != "live_frames":  # which sends all that frames.check lets pass
        _module(generator).check(spec, veth)


def require(generator: str) -> None:
    """Raise RxbookError, with what to do, where this machine has not what a generator needs."""
    if generator != "live_frames":  # whose needs are those of all runs
        wrong, remedy = trouble(generator)
        if wrong:
            raise RxbookError(f"generator={generator}: {wrong}. {remedy}")


def trouble(generator: str) -> tuple[str, str]:
    """Why a generator other than live_frames cannot run on this machine, and what to do; both empty where it can."""
    return _module(generator).trouble()


def on_device(generator: str, *arguments: Any) -> Any:
    """A generator that sends out of a device; the arguments are those of its class."""
    return getattr(_module(generator), GENERATORS[generator])(*arguments)


def _module(generator: str) -> ModuleType:
    return importlib.import_module(f"rxbook.generators.{generator}")
