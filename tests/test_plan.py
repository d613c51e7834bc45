# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Parameters: every spelling of a right one, and the words for a wrong one."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rxbook import RxbookError
from rxbook.plan import NOT_MEASURED, Plan, allowed, make_plan


def refusal(**parameters):
    """The words by which parameters are refused."""
    with pytest.raises(RxbookError) as caught:
        make_plan(parameters)
    return str(caught.value)


def cells(**parameters):
    return make_plan(parameters).cells("6.18.0")


# --- one meaning, many spellings


@pytest.mark.parametrize(
    "value", ["64,512", " 64 , 512 ", [64, 512], (64, 512), ["64", "512"], [64.0, 512.0]]
)
def test_a_list_is_spelt_as_one_likes(value):
    assert make_plan({"frame_sizes": value}).frame_sizes == [64, 512]


@pytest.mark.parametrize("value", [64, "64", [64], "64,"])
def test_one_value_is_a_list_of_one(value):
    assert make_plan({"frame_sizes": value}).frame_sizes == [64]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("on,off", ["on", "off"]),
        ("off", ["off"]),
        (False, ["off"]),  # YAML reads a bare `off` so
        ([True, False], ["on", "off"]),
        ("True", ["on"]),
        ("ON", ["on"]),
    ],
)
def test_gro_may_be_said_in_yaml(value, meant):
    assert make_plan({"gro": value}).gro == meant


@pytest.mark.parametrize("name", ["aa", "drop_tcp"])
def test_the_word_false_is_not_true(name):
    for value in ("false", "False", "no", "off", False):
        assert getattr(make_plan({name: value}), name) is False
    for value in ("true", "yes", "on", True):
        assert getattr(make_plan({name: value}), name) is True
    for value in ("maybe", "", 0, 1, 0.0, None, [], ["false"]):
        assert refusal(**{name: value}).startswith(f"{name}=") and "say true or false" in refusal(
            **{name: value}
        )


def test_an_ip_version_may_come_as_a_word():
    assert make_plan({"ip_version": "6", "frame_sizes": 128}).ip_version == 6
    assert "say 4 or 6" in refusal(ip_version="5")


def test_numbers_may_come_as_words():
    plan = make_plan({"window_s": "0.05", "blocks": "5", "seed": "7", "receiver_cpu": "3"})
    assert (plan.window_s, plan.blocks, plan.seed, plan.receiver_cpu) == (0.05, 5, 7, 3)


# --- what is refused, and how that reads

REFUSED = [
    ({"gro": "maybe"}, "gro=maybe: say off or on, or a list of these (generic-receive-offload"),
    ({"receiver": "cpumap,stak"}, "receiver=stak: say cpumap or stack, or a list of these"),
    ({"encap": ""}, "encap='': say none, 4in4, 4in6 or 6in6, or a list of these"),
    ({"udp_csum": False}, "udp_csum=False: say computed or zero"),
    ({"frame_sizes": 20}, "frame_sizes=20: choose 64 to 1518 bytes (FCS included) for IPv4 UDP"),
    ({"frame_sizes": [64, 90000]}, "frame_sizes=90000: choose 64 to 1518 bytes"),
    ({"frame_sizes": -64}, "frame_sizes=-64: choose 64 to 1518 bytes"),
    ({"frame_sizes": 64, "encap": "6in6"}, "frame_sizes=64: choose 106 to 1518 bytes"),
    ({"frame_sizes": []}, "frame_sizes=[]: say a whole number, or a list of these (bytes on the wire"),
    ({"frame_sizes": "64;512"}, "frame_sizes=64;512: say a whole number"),
    ({"frame_sizes": 64.5}, "frame_sizes=64.5: say a whole number"),
    ({"frame_sizes": math.inf}, "frame_sizes=inf: say a whole number"),
    ({"frame_sizes": True}, "frame_sizes=True: say a whole number"),
    ({"frame_sizes": "9" * 5000}, "frame_sizes=999"),
    ({"window_s": "0.2s"}, "window_s=0.2s: say a number, 0.02 to 60 (length of one window, seconds)"),
    ({"window_s": math.nan}, "window_s=nan: say a number, 0.02 to 60"),
    ({"window_s": "nan"}, "window_s=nan: say a number, 0.02 to 60"),
    ({"window_s": -1}, "window_s=-1: say a number, 0.02 to 60"),
    ({"window_s": True}, "window_s=True: say a number, 0.02 to 60"),
    ({"warmup_s": -1}, "warmup_s=-1: say a number, 0 to 10"),
    ({"pressure_limit": 0}, "pressure_limit=0: say a number above 0, at most 1"),
    ({"blocks": 2.5}, "blocks=2.5: say a whole number, 1 to 10000"),
    ({"blocks": 0}, "blocks=0: say a whole number, 1 to 10000"),
    ({"blocks": None}, "blocks=None: say a whole number, 1 to 10000"),
    ({"seed": -1}, "seed=-1: say a whole number, 0 or more"),
    ({"flows": 0}, "flows=0: say a whole number, 1 to 4096"),
    ({"burst": 0}, "burst=0: say a whole number, 1 to 256"),
    ({"flows": 4096, "burst": 256}, "lower flows or burst"),
    ({"variant": ""}, "variant='': say text of at most 30 ASCII characters"),
    ({"variant": "x" * 31}, "say text of at most 30"),
    ({"variant": "patch\n3"}, "say text of at most 30"),
    ({"variant": 6.10}, "papermill's -r keeps 6.10 a text"),
    ({"sender_cpu": 1}, "sender_cpu and receiver_cpu are both 1"),
    ({"sender_cpu": 3, "receiver_cpu": 3}, "choose two CPUs"),
    ({"queue_size": 1}, "queue_size=1: say a whole number, 64 to 16384"),
    ({"protocol": "tcp", "udp_csum": "zero"}, "udp_csum=zero has no meaning with protocol=tcp"),
    ({"ip_version": 6, "udp_csum": "zero", "frame_sizes": 128}, "RFC 8200"),
    (
        {"encap": "6in6", "udp_csum": "computed,zero", "frame_sizes": 128},
        "say udp_csum=computed, or use IPv4",
    ),
    ({"ip_version": 4, "encap": "6in6"}, "encap=6in6 carries IPv6 inside, but ip_version=4: leave one"),
    ({"ip_version": 6, "encap": "4in6"}, "encap=4in6 carries IPv4 inside, but ip_version=6: leave one"),
]


@pytest.mark.parametrize(("parameters", "words"), REFUSED)
def test_a_wrong_parameter_is_refused_with_what_is_allowed(parameters, words):
    said = refusal(**parameters)
    assert words in said
    assert "\n" not in said and len(said) < 260 and said.isascii()
    assert not any(jargon in said for jargon in ("Input should", "Value error", "validation", "pydantic"))


def test_two_wrong_parameters_get_a_line_each():
    said = refusal(blocks=-5, window_s=0, frame_sizes=["a", "b"]).splitlines()
    assert sorted(line.split("=")[0] for line in said) == ["blocks", "frame_sizes", "window_s"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("frame_size", "frame_sizes"),
        ("udpcsum", "udp_csum"),
        ("flow", "flows"),
        ("window", "window_s"),
        ("recevier", "receiver"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, near):
    assert refusal(**{name: 64}) == f"unknown parameter {name}=64; did you mean {near}?"


def test_a_name_like_no_other_is_refused_with_all():
    said = refusal(nonsense="x" * 100)
    assert said.startswith("unknown parameter nonsense=xxx") and all(
        name in said for name in Plan.model_fields
    )
    assert "..." in said.split(";")[0]


def test_what_is_allowed_can_be_said_of_each():
    assert all(allowed(name) for name in Plan.model_fields)
    assert all(field.description for field in Plan.model_fields.values())


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
    st.from_regex(r"[-+]?\d*\.?\d*([eE]\d+)?(,\d+)*", fullmatch=True),
    st.sampled_from(["on", "tcp", "stack", "zero", "6in6", "off,on", "64,1518"]),
)  # fmt: skip
ANYTHING = st.one_of(JUNK, st.lists(JUNK, max_size=3), st.dictionaries(st.text(max_size=3), JUNK, max_size=2))


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.one_of(st.sampled_from(sorted(Plan.model_fields)), st.text(max_size=8)), ANYTHING))
def test_junk_makes_a_sound_plan_or_a_clear_refusal(parameters):
    try:
        plan = make_plan(parameters)
    except RxbookError as error:
        assert str(error)
        return
    assert make_plan(plan.model_dump()) == plan
    assert plan.cells("x")


# --- the cells


def test_cells_are_the_product_of_the_axes():
    found = cells(frame_sizes="64,512,1518", udp_csum="computed,zero", flows="1,64", receiver="cpumap,stack")
    assert len(found) == len(set(found)) == 2 * 3 * 2 * 2 * 2
    assert {cell.variant for cell in found} == {"6.18.0"}


def test_a_plan_measured_against_itself_has_every_cell_twice():
    once, twice = (
        cells(udp_csum="computed,zero", variant="v"),
        cells(udp_csum="computed,zero", variant="v", aa=True),
    )
    assert len(twice) == 2 * len(once)
    assert {cell.variant for cell in twice} == {"v (A)", "v (A again)"}
    assert [cell.model_dump(exclude={"variant"}) for cell in twice if cell.variant == "v (A)"] == [
        cell.model_dump(exclude={"variant"}) for cell in once
    ]


def test_bursts_mean_nothing_with_one_flow():
    assert len(cells(gro="on", flows=1, burst="1,16")) == 1
    found = cells(gro="on", flows="1,64", burst="1,16")
    assert [(cell.flows, cell.burst) for cell in found] == [(1, 1), (64, 1), (64, 16)]


def test_a_value_named_twice_is_measured_once():
    assert len(cells(frame_sizes="64,64", gro="on,on")) == 1


def test_encap_says_which_ip_version_is_inside():
    found = cells(gro="on", encap="none,4in4,4in6,6in6", frame_sizes=128)
    assert [(cell.encap, cell.ip_version) for cell in found] == [
        ("none", 4), ("4in4", 4), ("4in6", 4), ("6in6", 6),
    ]  # fmt: skip


def test_labels_of_cells_differ():
    found = cells(
        frame_sizes="128,512", flows="1,64", burst="1,16", receiver="cpumap,stack", encap="none,6in6", aa=True
    )
    assert len({cell.label() for cell in found}) == len(found)


# --- named shapes, and what tables show


def test_the_shapes_of_the_thread_are_its_four_kinds_of_traffic():
    found = cells(shapes="ip-udp,ipip-udp,ip-tcp,ipip-tcp", flows=64, burst=16, frame_sizes=1518, gro="on")
    assert [(cell.encap, cell.protocol, cell.rx_gro_list, cell.flows) for cell in found] == [
        ("none", "udp", "off", 64), ("4in4", "udp", "on", 64), ("none", "tcp", "off", 64), ("4in4", "tcp", "off", 64),
    ]  # fmt: skip
    assert all(cell.drop_tcp for cell in found)


@pytest.mark.parametrize("other", [{"protocol": "tcp"}, {"encap": "4in4"}, {"rx_gro_list": "on"}])
def test_a_shape_and_what_it_says_itself_are_refused_together(other):
    (name,) = other
    with pytest.raises(RxbookError, match=f"shapes=ip-udp says {name} itself"):
        make_plan({"shapes": "ip-udp", **other})


def test_families_are_named_on_a_command_line_too():
    plan = make_plan({"families": "flush=inet_gro_flush gro_network_flush; copy=memcpy*"})
    assert plan.families == {"flush": ["inet_gro_flush", "gro_network_flush"], "copy": ["memcpy*"]}
    with pytest.raises(RxbookError, match="families=flush: say NAME=PATTERN"):
        make_plan({"families": "flush"})


# --- the fingerprint


def test_the_fingerprint_is_of_the_parameters_however_spelt():
    assert (
        make_plan({"frame_sizes": "64,512"}).fingerprint()
        == make_plan({"frame_sizes": [64, 512]}).fingerprint()
    )
    assert make_plan({"gro": [False, True]}).fingerprint() == make_plan({}).fingerprint()


def test_the_fingerprint_does_not_know_the_seed_nor_what_tables_show():
    other = {
        "seed": 2,
        "functions": "dev_gro_receive",
        "families": "copy=memcpy*",
        "debug": "vmlinux",
        "top": 5,
    }
    assert set(other) == NOT_MEASURED
    assert make_plan(other).fingerprint() == make_plan({"seed": 1}).fingerprint()


OTHER = {
    "receiver": "stack", "gro": "on", "frame_sizes": 512, "udp_csum": "zero", "flows": 64, "burst": 16,
    "protocol": "tcp", "ip_version": 4, "encap": "4in4", "rx_udp_gro_forwarding": "off", "rx_gro_list": "on",
    "drop_tcp": False, "window_s": 0.3, "warmup_s": 0.1, "blocks": 5, "aa": True, "pressure_limit": 0.5,
    "shapes": "ip-udp,ipip-udp", "profile": False, "profile_s": 2, "profile_repeats": 4, "heads": True,
    "call_graph": True, "variant": "v", "variants": "debian:6.12", "count": "instructions", "boots": 3,
    "sender_cpu": 2, "receiver_cpu": 3, "queue_size": 1024, "hosts": "hosts.yaml",
    "generator": "pktgen",
}  # fmt: skip


def test_the_fingerprint_changes_with_every_other_parameter():
    assert set(OTHER) == set(Plan.model_fields) - NOT_MEASURED
    wide = {"frame_sizes": 128}  # for which each encapsulation has room
    prints = [make_plan(wide | {name: value}).fingerprint() for name, value in OTHER.items()]
    assert len({*prints, make_plan(wide).fingerprint()}) == len(OTHER) + 1
