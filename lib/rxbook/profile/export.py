# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording in the form that flame-graph viewers read."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from rxbook import RxbookError
from rxbook.profile import perfdata, symbols

__all__ = ["folded"]


def folded(
    path: str | os.PathLike[str], event: str | None = None, kallsyms: str | os.PathLike[str] | None = None
) -> list[str]:
    """`comm;outermost;...;innermost samples`, one line for each stack of one event, most samples first.

    event: default the first that has samples. A recording without call chains gives the sampled function alone.
    Raises RxbookError where the file cannot be read, or has no such event.
    """
    data = perfdata.read(path)
    beside = Path(path).with_name("kallsyms")
    if kallsyms is None and beside.is_file():
        kallsyms = beside
    counts = data.count(chains=True)
    functions = symbols.resolve(data, counts, kallsyms)
    names = [each.name for each in data.events]
    sampled = [names[number] for number in counts.event]
    wanted = event or next((name for name in names if name in set(sampled)), None)
    if wanted is None:
        return []
    if wanted not in names:
        raise RxbookError(f"{Path(path).name} has no event {wanted}; it has {', '.join(names)}")
    # a frame's separator must not stand in a name
    symbol = [name.replace(";", ":") for name in functions.symbol]
    stacks: Counter[str] = Counter()
    for group, name in enumerate(sampled):
        if name == wanted:
            chain = counts.chain[counts.offsets[group] : counts.offsets[group + 1]]
            callers = [symbol[functions.caller[frame]] for frame in chain[:0:-1]]
            words = [counts.comms[counts.comm[group]].replace(";", ":"), *callers]
            stacks[";".join([*words, symbol[functions.leaf[counts.leaf[group]]]])] += int(
                counts.samples[group]
            )
    return [f"{stack} {samples}" for stack, samples in stacks.most_common()]
