# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is measured: a `Plan` holds the parameters of a run, a `Cell` is one combination of them.

Every way in (papermill, `rxbook run --set`, JupyterLab) ends here, so a parameter is checked once and
means the same everywhere.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rxbook import RxbookError, frames, generators

__all__ = ["INPUTS", "MIN_BLOCKS", "NOT_MEASURED", "Cell", "Plan", "allowed", "make_plan"]

MIN_BLOCKS = 5
"""Below this a comparison has too few pairs for a 95 % interval worth printing."""

SHAPES: dict[str, dict[str, str]] = {
    "ip-udp": {"encap": "none", "protocol": "udp", "rx_gro_list": "off"},
    "ipip-udp": {"encap": "4in4", "protocol": "udp", "rx_gro_list": "on"},
    "ip-tcp": {"encap": "none", "protocol": "tcp", "rx_gro_list": "off"},
    "ipip-tcp": {"encap": "4in4", "protocol": "tcp", "rx_gro_list": "off"},
}
"""The traffic of "net: gro: move L3 flush checks" (netdev, April 2024), of which only one has rx-gro-list on."""

NOT_MEASURED = {"seed", "functions", "families", "debug", "top"}
"""Parameters of which a resumed run can have others: the seed, and what tables show."""

INPUTS = ("before", "after")
"""Parameters of the notebook function_cycles: what it shows instead of measuring a plan."""

ON_OFF_WORDS = {"on": "on", "true": "on", "yes": "on", "off": "off", "false": "off", "no": "off"}


def _as_list(value: Any) -> Any:
    """`64,512` from a command line, a bare 64, and [64, 512] all name a list."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _as_on_off(value: Any) -> Any:
    # YAML 1.1 reads a bare `off` as the boolean False, so both spellings reach us.
    if isinstance(value, bool):
        return "on" if value else "off"
    return ON_OFF_WORDS.get(value.strip().lower(), value) if isinstance(value, str) else value


def _as_bool(value: Any) -> Any:
    """The string "false" is false; a string that is no yes or no is refused, never true."""
    if isinstance(value, str) and value.strip().lower() in ON_OFF_WORDS:
        return ON_OFF_WORDS[value.strip().lower()] == "on"
    if isinstance(value, bool):
        return value
    raise ValueError("say true or false")


def _as_number(value: Any) -> Any:
    if isinstance(value, bool):  # which Python takes for 0 or 1
        raise ValueError("a number is wanted")
    return value


def _as_ip_version(value: Any) -> Any:
    return int(value) if value in ("4", "6") else value


def _printable(value: str) -> str:
    if not (value.isascii() and value.isprintable() and value.strip()):
        raise ValueError("a mail cannot show it")
    return value


def _as_families(value: Any) -> Any:
    """`flush=inet_gro_flush gro_network_flush; copy=memcpy*` from a command line names a mapping."""
    if not isinstance(value, str):
        return value
    named = [part.partition("=") for part in value.split(";") if part.strip()]
    if not all(name.strip() and patterns.split() for name, _, patterns in named):
        raise ValueError("say NAME=PATTERN PATTERN; NAME=...")
    return {name.strip(): patterns.split() for name, _, patterns in named}


OnOff = Annotated[Literal["off", "on"], BeforeValidator(_as_on_off)]
YesNo = Annotated[bool, BeforeValidator(_as_bool)]
Whole = Annotated[int, BeforeValidator(_as_number)]
Number = Annotated[float, BeforeValidator(_as_number)]
IpVersion = Annotated[Literal[4, 6], BeforeValidator(_as_ip_version)]
Variant = Annotated[str, Field(min_length=1, max_length=30), AfterValidator(_printable)]


def _axis(item: Any, least: int = 1) -> Any:
    return Annotated[list[item], BeforeValidator(_as_list), Field(min_length=least)]


def _whole(low: int, high: int) -> Any:
    return Annotated[Whole, Field(ge=low, le=high)]


class Cell(BaseModel):
    """One combination that is measured. Its field names are columns of samples.csv."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    receiver: str
    gro: Literal["off", "on"]
    protocol: str
    ip_version: int
    encap: str
    frame_size: int
    udp_csum: str
    flows: int
    burst: int
    rx_udp_gro_forwarding: Literal["off", "on"]
    rx_gro_list: Literal["off", "on"]
    drop_tcp: bool
    generator: str = "live_frames"  # which runs had that did not say

    @property
    def frame_spec(self) -> frames.FrameSpec:
        """The frames that this cell sends."""
        return frames.FrameSpec(
            frame_size=self.frame_size,
            udp_csum=self.udp_csum,
            flows=self.flows,
            burst=self.burst,
            protocol=self.protocol,
            ip_version=self.ip_version,
            encap=self.encap,
        )

    def label(self) -> str:
        """A short name for progress lines and logs."""
        kind = f"{self.protocol}{self.ip_version}" + ("" if self.encap == "none" else f" {self.encap}")
        return (
            f"{self.variant} {self.receiver} gro {self.gro} {kind} {self.frame_size} B "
            f"csum {self.udp_csum} {self.flows}x{self.burst}"
        )


class Plan(BaseModel):
    """The parameters of a run. A list is an axis: cells are the product of all axes."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    # the axes
    receiver: _axis(Literal["cpumap", "stack"]) = Field(
        ["cpumap"], description="cpumap: redirect to another CPU, GRO there; stack: GRO in veth's own NAPI"
    )
    gro: _axis(OnOff) = Field(["off", "on"], description="generic-receive-offload of the receiver's device")
    frame_sizes: _axis(Whole) = Field([64], description="bytes on the wire, the 4-byte FCS included")
    udp_csum: _axis(Literal["computed", "zero"]) = Field(
        ["computed"], description="UDP checksum of the frames"
    )
    flows: _axis(_whole(1, frames.MAX_FLOWS)) = Field([1], description="distinct source ports")
    burst: _axis(_whole(1, frames.MAX_BURST)) = Field(
        [1], description="consecutive frames of a flow; no meaning with one flow"
    )
    protocol: _axis(Literal["udp", "tcp"]) = Field(["udp"], description="TCP sends segments in sequence")
    ip_version: IpVersion | None = Field(
        None, description="of the packet that carries UDP or TCP; default 4, or what encap says"
    )
    encap: _axis(Literal["none", "4in4", "4in6", "6in6"]) = Field(["none"], description="IP in IP")
    shapes: _axis(Literal["ip-udp", "ipip-udp", "ip-tcp", "ipip-tcp"], least=0) = Field(
        [],
        description="in place of protocol, encap and rx_gro_list: the traffic of the GRO flush-check thread",
    )

    generator: Literal["live_frames", "pktgen", "xdp_trafficgen"] = Field(
        "live_frames",
        description="who sends: BPF_PROG_RUN, the kernel's pktgen, or xdp-trafficgen (docs/generators.md)",
    )

    # the receiver's offloads and filter
    rx_udp_gro_forwarding: OnOff = Field("on", description="lets GRO merge UDP for which no socket listens")
    rx_gro_list: OnOff = Field("off", description="GRO chains skbs instead of merging their pages")
    drop_tcp: YesNo = Field(True, description="netfilter drops TCP at prerouting, so no resets are sent")

    # the measurement
    window_s: Number = Field(0.1, ge=0.02, le=60, description="length of one window, seconds")
    warmup_s: Number = Field(0.02, ge=0, le=10, description="traffic before each window, discarded, seconds")
    blocks: Whole = Field(
        80, ge=1, le=10000, description="passes over all cells, each in a fresh random order"
    )
    seed: Whole | None = Field(None, ge=0, description="of the random order; default: drawn and recorded")
    aa: YesNo = Field(False, description="measure every cell twice under two names: prints the noise floor")
    profile: YesNo = Field(True, description="perf record the receiver's CPU, in windows of their own")
    profile_s: Number = Field(0.5, ge=0.1, le=60, description="length of such a window, seconds")
    profile_repeats: Whole = Field(
        3, ge=1, le=1000, description="such windows for each cell, in blocks as the others"
    )
    heads: YesNo = Field(
        False, description="count where skb heads come from, slab or NAPI cache, in windows of their own"
    )
    call_graph: YesNo = Field(False, description="record call chains too, which costs the receiver time")
    functions: _axis(str, least=0) = Field(
        [], description="functions that the tables show, also as patterns; default: the largest"
    )
    families: Annotated[dict[str, list[str]], BeforeValidator(_as_families)] = Field(
        {}, description="sums of functions, beside those built in, by patterns; an empty list takes one out"
    )
    debug: _axis(str, least=0) = Field(
        [], description="a vmlinux or other files with DWARF: inlined functions get rows of their own"
    )
    top: Whole = Field(20, ge=1, le=1000, description="so many functions are shown, the others are one row")
    pressure_limit: Number = Field(
        0.2,
        gt=0,
        le=1,
        description="share of a window in which some task waited for a CPU; above it is flagged",
    )

    # the place
    variant: Variant | None = Field(
        None,
        description="label of the kernel under test; default: its release; papermill's -r keeps 6.10 a text",
    )
    variants: _axis(Variant, least=0) = Field(
        [],
        description="kernels to boot as guests and compare, as rxbook kernels list names them, or LABEL=NAME",
    )
    count: Literal["auto", "time", "instructions"] = Field(
        "auto",
        description="what is counted in guests; auto: time where KVM works, else instructions per packet, exact",
    )
    boots: Whole | None = Field(
        None, ge=1, le=1000, description="boots of each guest; default: 2 for instructions, 5 for time"
    )
    hosts: str = Field(
        "",
        description="YAML file of one or two other machines to measure by SSH, and their CPUs (docs/two-machines.md)",
    )
    sender_cpu: Whole = Field(0, ge=0, description="CPU that sends, and runs veth's NAPI for cpumap")
    receiver_cpu: Whole = Field(1, ge=0, description="CPU whose rate is measured")
    queue_size: Whole = Field(2048, ge=64, le=16384, description="frames that the cpumap queue holds")

    def cells(self, kernel_release: str) -> list[Cell]:
        """The product of all axes, in the order of the tables.

        Raises RxbookError where a combination cannot be sent, with the reason.
        """
        variant = self.variant or kernel_release
        variants = [f"{variant} (A)", f"{variant} (A again)"] if self.aa else [variant]
        variants = list(self.kernels) or variants
        axes = itertools.product(
            self._traffic(), self.receiver, self.flows, self.burst, self.frame_sizes, self.udp_csum, variants,
            self.gro,
        )  # fmt: skip
        cells = [self._cell(*values) for values in axes]
        for cell in cells:
            frames.check(cell.frame_spec)
            generators.check(cell.generator, cell.frame_spec, veth=not self.hosts)
        return list(dict.fromkeys(cells))

    @property
    def kernels(self) -> dict[str, str]:
        """The kernels that are booted as guests, by label; none where the running kernel is measured."""
        named = [
            name.rpartition("=") for name in self.variants or ["running"] * (self.count == "instructions")
        ]
        return {label or name: name for label, _, name in named}

    def _traffic(self) -> list[dict[str, str]]:
        """encap, protocol and rx_gro_list: all products, or the named shapes."""
        if not self.shapes:
            return [
                {"encap": encap, "protocol": protocol, "rx_gro_list": self.rx_gro_list}
                for encap, protocol in itertools.product(self.encap, self.protocol)
            ]
        told = [
            name
            for name in ("protocol", "encap", "rx_gro_list")
            if getattr(self, name) != Plan.model_fields[name].default
        ]
        if told:
            raise RxbookError(f"shapes={','.join(self.shapes)} says {told[0]} itself: leave one of them out")
        return [SHAPES[name] for name in self.shapes]

    def _cell(
        self, traffic: dict[str, str], receiver: str, flows: int, burst: int, size: int, csum: str,
        variant: str, gro: str,
    ) -> Cell:  # fmt: skip
        return Cell(
            variant=variant,
            receiver=receiver,
            gro=gro,
            ip_version=self._ip_version(traffic["encap"]),
            frame_size=size,
            udp_csum=csum,
            flows=flows,
            burst=burst if flows > 1 else 1,
            rx_udp_gro_forwarding=self.rx_udp_gro_forwarding,
            drop_tcp=self.drop_tcp,
            generator=self.generator,
            **traffic,
        )

    def _ip_version(self, encap: str) -> int:
        inner = {"none": self.ip_version or 4, "4in4": 4, "4in6": 4, "6in6": 6}[encap]
        if self.ip_version not in (None, inner):
            raise RxbookError(
                f"encap={encap} carries IPv{inner} inside, but ip_version={self.ip_version}: leave one of them out"
            )
        return inner

    def fingerprint(self) -> str:
        """Twelve hex digits that change with every parameter that changes what is measured."""
        text = json.dumps(self.model_dump(exclude=NOT_MEASURED), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def make_plan(parameters: dict[str, Any]) -> Plan:
    """Check parameters given by name and make a plan of them.

    Raises RxbookError that names each wrong parameter, its value, and what is allowed.
    """
    known = Plan.model_fields
    for name in parameters:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
            raise RxbookError(f"unknown parameter {name}={_shown(parameters[name])}; {hint}")
    try:
        plan = Plan(**parameters)
    except ValidationError as error:
        first = {item["loc"][0]: item for item in reversed(error.errors())}
        raise RxbookError("\n".join(_explain(item) for item in reversed(first.values()))) from None
    if plan.sender_cpu == plan.receiver_cpu:
        raise RxbookError(
            f"sender_cpu and receiver_cpu are both {plan.sender_cpu}: the sender would take the receiver's time; "
            "choose two CPUs"
        )
    if plan.generator == "xdp_trafficgen" and plan.sender_cpu != 0 and not plan.kernels:
        raise RxbookError(
            f"generator=xdp_trafficgen sends from CPU 0 and from no other: say sender_cpu=0, not {plan.sender_cpu}"
        )
    if plan.kernels and (plan.aa or plan.variant or plan.hosts):
        raise RxbookError(
            "aa, variant and hosts are of kernels that run: leave them out where guests are compared"
        )
    defaults = [Plan.model_fields[name].default for name in ("sender_cpu", "receiver_cpu")]
    if plan.hosts and [plan.sender_cpu, plan.receiver_cpu] != defaults:
        raise RxbookError(f"hosts={plan.hosts} names the CPUs: leave sender_cpu and receiver_cpu out")
    if len(plan.kernels) < len(plan.variants):
        raise RxbookError(f"variants={','.join(plan.variants)}: two have one label, write LABEL=NAME")
    plan.cells("x")  # refuses here what no cell can send, before anything is set up
    return plan


def allowed(name: str) -> str:
    """What a parameter may be, in words: "off or on", "a whole number, 1 to 10000"."""
    return _in_words(Plan.model_json_schema()["properties"][name])


def _in_words(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:  # a type, or null for the default
        return _in_words(schema["anyOf"][0])
    if "enum" in schema:
        *others, last = map(str, schema["enum"])
        return f"{', '.join(others)} or {last}"
    if schema["type"] == "array":
        return _in_words(schema["items"]) + ", or a list of these"
    if schema["type"] == "object":
        return "NAME=PATTERN PATTERN; NAME=..."
    kinds = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
    if schema["type"] in kinds:
        return kinds[schema["type"]] + _range_in_words(schema)
    return f"text of at most {schema['maxLength']} ASCII characters" if "maxLength" in schema else "text"


def _range_in_words(schema: dict[str, Any]) -> str:
    # the names of JSON Schema, and those that pydantic uses where a validator stands before the bound
    low, high = schema.get("minimum", schema.get("ge")), schema.get("maximum", schema.get("le"))
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']}, at most {high}"
    if high is None:
        return "" if low is None else f", {low} or more"
    return f", {low} to {high}"


def _explain(item: dict[str, Any]) -> str:
    name = item["loc"][0]
    about = Plan.model_fields[name].description
    return f"{name}={_shown(item['input'])}: say {allowed(name)} ({about})"


def _shown(value: Any) -> str:
    words = value if isinstance(value, str) and value.isprintable() and value else repr(value)
    return words if len(words) <= 60 else words[:57] + "..."
