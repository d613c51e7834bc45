# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How tables and figures say things, in ASCII: traffic in words, figures with their uncertainty, notes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from rxbook.plan import MIN_BLOCKS, Cell
from rxbook.statistics import (
    AA_NAMES,
    EXCLUDING_FLAGS,
    Comparison,
    Interval,
    cells_of,
    counted,
    has_flag,
    is_bound,
    number_runs,
)

SHAPE = tuple(name for name in Cell.model_fields if name not in ("variant", "gro"))
"""The columns of a cell that say what is sent and who receives: a table has one section for each."""

UNITS = {"mpps": "Mpps", "ns_per_packet": "ns per packet"}
PLACES = {"mpps": 2, "ns_per_packet": 0, "instructions_per_packet": 1}
"""Digits behind the point, unless the half-width asks for more."""

ENCAPSULATIONS = {"4in4": "IPv4 in IPv4", "4in6": "IPv4 in IPv6", "6in6": "IPv6 in IPv6"}

RECEIVERS = {
    "cpumap": "cpumap: frames are redirected to another CPU, GRO runs in the cpumap kthread there.",
    "stack": "stack: no redirect, GRO runs in the NAPI of the receiving device.",
}

GENERATORS = {
    "live_frames": "live frames (BPF_PROG_RUN)",
    "pktgen": "pktgen",
    "xdp_trafficgen": "xdp-trafficgen",
}


def shapes(samples: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Each traffic shape (see SHAPE) with its windows in time order: plain frames first, sorted by its columns."""
    groups = [
        (dict(zip(SHAPE, values, strict=True)), windows)
        for values, windows in number_runs(samples).groupby(list(SHAPE), dropna=False)
    ]
    yield from sorted(groups, key=lambda group: group[0]["encap"] != "none")


def varying(samples: pd.DataFrame) -> set[str]:
    """The columns of SHAPE that are not the same in all rows."""
    return {name for name in SHAPE if samples[name].nunique(dropna=False) > 1}


def variant_order(samples: pd.DataFrame) -> list[str]:
    """Variants by the run in which they first appear, then by name, "(A again)" after "(A)"."""
    first_run = number_runs(samples).groupby("variant")["run"].min()
    return sorted(first_run.index, key=lambda name: (first_run[name], name.endswith(AA_NAMES[1]), name))


def traffic(cell: Mapping[str, Any], fields: Collection[str] = SHAPE) -> str:
    """The traffic and the receiver of a cell in words, or what these fields say; usual offloads go unsaid."""
    udp = cell["protocol"] == "udp"
    protocol = (
        f"UDP checksum {cell['udp_csum']}" if udp and "udp_csum" in fields else cell["protocol"].upper()
    )
    flows = "1 flow" if cell["flows"] == 1 else f"{cell['flows']} flows in bursts of {cell['burst']}"
    parts = [
        ({"frame_size"}, f"{cell['frame_size']}-byte frames"),
        ({"protocol", "udp_csum"}, protocol),
        ({"flows", "burst"}, flows),
        ({"ip_version", "encap"}, ENCAPSULATIONS.get(cell["encap"], f"IPv{cell['ip_version']}")),
        ({"receiver"}, cell["receiver"]),
        (
            {"rx_udp_gro_forwarding"},
            "rx-udp-gro-forwarding off" if udp and cell["rx_udp_gro_forwarding"] == "off" else "",
        ),
        ({"rx_gro_list"}, "rx-gro-list on" if cell["rx_gro_list"] == "on" else ""),
        (
            {"generator"},
            "" if cell["generator"] == "live_frames" else f"sent by {GENERATORS[cell['generator']]}",
        ),
        ({"drop_tcp"}, "" if udp or cell["drop_tcp"] else "TCP not dropped"),
    ]
    return ", ".join(said for columns, said in parts if said and columns & set(fields))


def named(cell: Mapping[str, Any], fields: Collection[str]) -> str:
    """What these fields of a cell say, variant and GRO first: `patch 3, GRO on, 64-byte frames`."""
    said = [str(cell["variant"])] if "variant" in fields else []
    said += [f"GRO {cell['gro']}"] if "gro" in fields else []
    return ", ".join(filter(None, [*said, traffic(cell, fields)]))


def short_traffic(cell: Mapping[str, Any]) -> str:
    """`64 x IP/IP/UDP`, as the threads name it: flows, and the headers from outside in."""
    headers = {"4in4": "IP/IP", "4in6": "IPv6/IP", "6in6": "IPv6/IPv6"}
    inner = "IP" if cell["ip_version"] == 4 else "IPv6"
    return f"{cell['flows']} x {headers.get(cell['encap'], inner)}/{cell['protocol'].upper()}"


def dated(source: str, samples: pd.DataFrame) -> str:
    """A bare "measured" with the day of the first window, any other source as it is."""
    if source != "measured" or samples.empty:
        return source
    return f"measured {min(samples['start_utc'])[:10]}"


def marked(source: str) -> str:
    """The source as it is shown: its first word in capitals unless these are measurements of this run."""
    first, space, rest = source.partition(" ")
    return source if first == "measured" else first.upper() + space + rest


def _places(half_width: float, least: int) -> int:
    """Digits behind the point that show the first digit of a half-width."""
    if not (math.isfinite(half_width) and half_width > 0):
        return least
    return max(least, min(4, -math.floor(math.log10(half_width))))


def _plus_minus(half_width: float, places: int) -> str:
    return f"+/-{half_width:.{places}f}" if math.isfinite(half_width) else "+/-?"


def figure(interval: Interval | None, value: str) -> str:
    """`1.50 +/-0.03`; `>=2.20` for a lower bound, rounded down; `-` where nothing was measured."""
    if interval is None or math.isnan(interval.centre):
        return "-"
    places = _places(interval.half_width, PLACES[value])
    if interval.bound:
        return f">={_rounded(interval.centre, places, math.floor):.{places}f}"
    return f"{interval.centre:.{places}f} {_plus_minus(interval.half_width, places)}"


def change(comparison: Comparison) -> str:
    """`+305% +/-9` in points; `~ +/-4` where no difference is shown; `>=+480%` for a bound; `-` for none."""
    low, high = ((limit - 1) * 100 for limit in (comparison.low, comparison.high))
    places = _places((high - low) / 2, 0)
    if comparison.bound == "at_least" and not math.isnan(low):
        return f">={_rounded(low, places, math.floor):+.{places}f}%"
    if comparison.bound == "at_most" and not math.isnan(high):
        return f"<={_rounded(high, places, math.ceil):+.{places}f}%"
    if comparison.bound != "exact" or math.isnan(comparison.ratio):
        return "-"
    shown = f"{(comparison.ratio - 1) * 100:+.{places}f}%"
    if not comparison.differs and not math.isnan(low):
        shown = "~"
    return f"{shown} {_plus_minus((high - low) / 2, places)}"


def _rounded(number: float, places: int, towards: Any) -> float:
    return towards(number * 10**places) / 10**places


def notes(samples: pd.DataFrame, value: str, comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    """What a reader must know before believing a table of these samples, gravest first."""
    if samples.empty:
        return ("No window was measured.",)
    comparisons = [found for found in comparisons if found.n]
    said = [*_warnings(samples, value), left_out(samples, value)]
    said += [RECEIVERS[name] for name in sorted(samples["receiver"].unique())]
    said += [*fates(samples), _setting(samples)]
    if comparisons:
        said.append(
            "+/-: half-width of the 95 % interval; a rate's includes drift, a difference's is in points."
        )
        said.append("~: no difference shown.")
    if any(found.paired for found in comparisons):
        said.append("Differences compare windows of one block, so that drift cancels.")
    if not all(found.paired for found in comparisons):
        said.append("Some differences are between runs, not within blocks: all else that changed counts too.")
    return tuple(note for note in said if note)


def fates(samples: pd.DataFrame) -> Iterator[str]:
    """What becomes of the skbs: reviewers ask how UDP GRO works here at all."""
    udp = samples[samples["protocol"] == "udp"]
    if (udp["rx_udp_gro_forwarding"] == "on").any():
        yield "rx-udp-gro-forwarding is on; no socket listens, so the stack drops UDP after the look-up."
    elif len(udp):
        yield "rx-udp-gro-forwarding is off and no socket listens: UDP GRO has no reason to merge."
    if samples[samples["protocol"] == "tcp"]["drop_tcp"].any():
        yield "netfilter drops TCP at prerouting."


def _setting(samples: pd.DataFrame) -> str:
    blocks = len(number_runs(samples)[["run", "block"]].drop_duplicates())
    return (
        f"Frame sizes include the 4-byte FCS. {len(samples)} windows of {window(samples)} "
        f"in {blocks} block{'s' if blocks != 1 else ''}, sent by {senders(samples)}."
    )


def window(samples: pd.DataFrame) -> str:
    """How long a window is, as counted: "0.1 s", "1.25 s"; the last digits of a short one are the timer's."""
    seconds = samples["window_s"].median()
    return f"{seconds:.{2 if seconds < 1 else 3}g} s"


def senders(samples: pd.DataFrame) -> str:
    """The generators that sent."""
    return ", ".join(GENERATORS[name] for name in sorted(samples["generator"].unique()))


def left_out(samples: pd.DataFrame, value: str) -> str:
    """`3 of 80 windows left out (2 pressure, 1 short).`, or nothing where none was."""
    kept = sum(len(counted(windows, value)) for windows in cells_of(samples))
    if kept == len(samples):
        return ""
    counts = [(int(has_flag(samples, flag).sum()), flag) for flag in EXCLUDING_FLAGS]
    named = ", ".join(f"{count} {flag}" for count, flag in counts if count)
    return f"{len(samples) - kept} of {len(samples)} windows left out ({named})."


def _warnings(samples: pd.DataFrame, value: str) -> Iterator[str]:
    cells = cells_of(samples)
    if min(len(counted(windows, value)) for windows in cells) < MIN_BLOCKS:
        yield f"WARNING: fewer than {MIN_BLOCKS} windows count in some cells: too few to trust an interval."
    if any(is_bound(windows, value) for windows in cells):
        yield ">=, <=: the sender was the limit, so the receiver's rate is a bound, not a figure."
    if value == "ns_per_packet" and has_flag(samples, "sender_limited").any():
        yield "In some windows the sender was the limit: their cost per packet is that of a lower load."
    if has_flag(samples, "empty_payload").any():
        yield "Some frames have an empty UDP payload: GRO never merges these."
