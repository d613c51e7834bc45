# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""pktgen and xdp-trafficgen: what they refuse, what they print, and xdp-trafficgen on the wire where it is installed.

pktgen sends for real in a guest, in test_guests.py.
"""

from __future__ import annotations

import os
import re

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from live import cell, open_testbed
from rxbook import RxbookError, generators, runs, words
from rxbook.generators import pktgen, xdp_trafficgen
from rxbook.measure import window_row
from rxbook.plan import make_plan

# --- what they print; the texts are recorded

PKTGEN_6_12 = """\
Params: count 1000  min_pkt_size: 60  max_pkt_size: 60
     frags: 0  delay: 0  clone_skb: 0  ifname: a
     flows: 0 flowlen: 0
     queue_map_min: 0  queue_map_max: 0
     dst_min: 198.18.0.2  dst_max: 
     src_min: 198.18.0.1  src_max: 198.18.0.1
     src_mac: 3e:46:08:04:6c:ea dst_mac: 02:72:78:62:00:02
     udp_src_min: 10000  udp_src_max: 10004  udp_dst_min: 9  udp_dst_max: 9
     src_mac_count: 0  dst_mac_count: 0
     Flags: UDPCSUM  NO_TIMESTAMP  SHARED  
Current:
     pkts-sofar: 1000  errors: 0
     started: 3460008us  stopped: 3463716us idle: 0us
     seq_num: 1001  cur_dst_mac_offset: 0  cur_src_mac_offset: 0
     cur_saddr: 198.18.0.1  cur_daddr: 198.18.0.2
     cur_udp_dst: 9  cur_udp_src: 10000
     cur_queue_map: 0
     flows: 0
Result: OK: 3707(c3707+d0) usec, 1000 (60byte,0frags)
  269695pps 129Mb/sec (129453600bps) errors: 0
"""  # noqa: W291 - as it came

SHORT = """\
Couldn't query XDP features for interface a (95).
Continuing anyway, but running may fail!
Transmitting on a (ifindex 3)

lo->a                           0 err/s            714304 xmit/s       

"""  # noqa: W291

LONG = """\
Transmitting on a (ifindex 3)
lo->a                           0 err/s           2205952 xmit/s       
lo->a                           0 err/s           2241954 xmit/s       

lo->a                           0 err/s           2082770 xmit/s       

"""  # noqa: W291


def test_pktgens_result():
    assert pktgen.result(PKTGEN_6_12) == pktgen.Result(0.003707, 1000, 60, 269695, 0)
    assert pktgen.result(PKTGEN_6_12.replace("errors: 0\n", "errors: 24\n")).errors == 24


@pytest.mark.parametrize("told", ["Idle", "Starting", "No memory"])
def test_no_result_is_none(told):
    assert pktgen.result(re.sub("Result: OK.*", f"Result: {told}\n", PKTGEN_6_12, flags=re.DOTALL)) is None


def test_trafficgens_rate():
    """Its only line counts all frames since the start; of several the last is of no whole second."""
    assert xdp_trafficgen.rate(SHORT, 0.35) == pytest.approx(714304 / 0.35)
    assert xdp_trafficgen.rate(LONG, 2.5) == (2205952 + 2241954) / 2
    assert xdp_trafficgen.rate("Transmitting on a (ifindex 3)\n", 0.1) is None


# --- what they refuse


@pytest.mark.parametrize(
    ("generator", "given", "said"),
    [
        ("pktgen", {"protocol": "tcp"}, "makes UDP only, not tcp"),
        ("pktgen", {"encap": "4in4", "frame_sizes": 128}, "no IP in IP, encap=4in4"),
        ("pktgen", {"ip_version": 6, "frame_sizes": 81}, "choose 82 or more for IPv6"),
        ("pktgen", {"flows": 64, "burst": 16}, "burst=16: .* veth does not"),
        ("xdp_trafficgen", {}, "IPv6 without a tunnel only: say ip_version=6"),
        ("xdp_trafficgen", {"udp_csum": "zero"}, "udp_csum=zero: .* always computes it"),
        ("xdp_trafficgen", {"protocol": "tcp", "ip_version": 6, "frame_sizes": 128}, "one connection"),
        ("xdp_trafficgen", {"encap": "6in6", "frame_sizes": 128}, "without a tunnel"),
        ("xdp_trafficgen", {"ip_version": 6, "frame_sizes": 66, "flows": 8}, "flows=8: .* checksum of most"),
        ("xdp_trafficgen", {"ip_version": 6, "frame_sizes": 66, "sender_cpu": 2}, "say sender_cpu=0, not 2"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_reason(generator, given, said):
    with pytest.raises(RxbookError, match=said):
        make_plan({"generator": generator, **given})
    make_plan({"ip_version": None, **given})  # but live frames can


@pytest.mark.parametrize(
    ("generator", "given"),
    [
        ("pktgen", {"frame_sizes": "64,1518", "udp_csum": "computed,zero", "flows": "1,64"}),
        ("pktgen", {"frame_sizes": 82, "ip_version": 6}),
        ("pktgen", {"flows": 64, "burst": 16, "hosts": "hosts.yaml"}),
        ("xdp_trafficgen", {"ip_version": 6, "frame_sizes": "66,1518"}),
    ],
)
def test_what_can_be_sent_is_not(generator, given):
    assert make_plan({"generator": generator, **given}).cells("x")[0].generator == generator


def test_the_shortest_frame_of_trafficgen_is_refused_by_its_own_name():
    """IPv6 has no shorter frames, which the plan says first; the generator does not rely on it."""
    spec = cell(ip_version=6, frame_sizes=66).frame_spec
    generators.check("xdp_trafficgen", spec, veth=True)
    with pytest.raises(
        RxbookError, match=r"frame_sizes=64: .* 66 bytes or more; with 66 the UDP payload is empty"
    ):
        generators.check("xdp_trafficgen", type(spec)(64, ip_version=6), veth=True)


# --- machines that lack them


def test_without_pktgen_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(pktgen, "PLACE", tmp_path / "pktgen")
    with pytest.raises(
        RxbookError, match=r"generator=pktgen: .*not loaded.*modprobe pktgen.*CONFIG_NET_PKTGEN"
    ):
        generators.require("pktgen")


def test_pktgen_that_holds_anothers_device_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(pktgen, "PLACE", tmp_path)
    for name in ("pgctrl", "kpktgend_0", "eth7"):
        (tmp_path / name).touch()
    with pytest.raises(RxbookError, match="holds eth7 for somebody else"):
        pktgen.Pktgen("ours", 0)


OLD_PROBE = """\
  libbpf: prog 'tp_xdp_redirect_map_err': failed to find kernel BTF type ID of 'xdp_redirect_map_err': -3
  libbpf: failed to load object 'xdp_trafficgen'
Error probing kernel support: No such process
"""  # xdp-tools 1.5.4 on Linux 6.18


@pytest.mark.skipif(os.geteuid() != 0, reason="only root tries the program")
@pytest.mark.parametrize(
    ("help_text", "probe", "status", "wrong", "remedy"),
    [
        (" -n, --num-packets <port>", "", 0, "too old", "Debian 13"),  # 1.3.1
        (" -s, --pkt-size <bytes>", OLD_PROBE, 3, "tracepoint", "xdp-tools 1.6"),
        (" -s, --pkt-size <bytes>", "Kernel doesn't support live packet mode for XDP BPF_PROG_RUN.\n", 161,
         "it says: Kernel doesn't support live packet mode", "newer"),
        (" -s, --pkt-size <bytes>", "Kernel supports live packet mode for XDP BPF_PROG_RUN.\n", 0, "", ""),
    ],
)  # fmt: skip
def test_an_xdp_trafficgen_that_cannot_be_used(
    tmp_path, monkeypatch, help_text, probe, status, wrong, remedy
):
    script = tmp_path / xdp_trafficgen.PROGRAM
    script.write_text(
        f'#!/bin/sh\n[ "$1" = udp ] && echo "{help_text}" && exit 0\ncat <<END\n{probe}END\nexit {status}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = xdp_trafficgen.trouble()
    assert wrong in found[0] and remedy in found[1] and bool(found[0]) == bool(wrong)


def test_without_xdp_trafficgen_its_packages_are_named(monkeypatch):
    monkeypatch.setattr(xdp_trafficgen, "_path", lambda: None)
    assert xdp_trafficgen.trouble() == ("not installed", xdp_trafficgen.PACKAGES)
    with pytest.raises(RxbookError, match="apt install xdp-tools"):
        xdp_trafficgen.program()


# --- rows and tables


def test_a_row_has_the_rate_that_the_generator_printed():
    plan = make_plan({"generator": "pktgen", "gro": "on"})
    (only,) = plan.cells("x")
    counted = {
        "clock_ns": 1e8, "frames": 1e5, "cpu_ns": 9e7, "cycles": None, "skbs": 1e4, "offered_frames": 2e5,
        "run_delay_ns": 0, "pressure_us": 0, "steal_s": 0,
    }  # fmt: skip
    assert window_row(only, counted | {"sender_pps": 2_100_000.0}, plan)["sender_mpps"] == 2.1
    assert window_row(only, counted | {"sender_pps": None}, plan)["sender_mpps"] is None


def test_tables_name_the_generator():
    samples = runs.recorded("gro_on_off").samples  # of a time when there was one
    assert set(samples["generator"]) == {"live_frames"} and "BPF_PROG_RUN" in words.senders(samples)
    first = samples.iloc[0].to_dict()
    assert "sent by" not in words.traffic(first)
    assert words.traffic(first | {"generator": "pktgen"}).endswith("sent by pktgen")


# --- xdp-trafficgen for real


@pytest.mark.needs_root
@pytest.mark.skipif(
    bool(xdp_trafficgen.trouble()[0]), reason=f"xdp-trafficgen: {xdp_trafficgen.trouble()[0]}"
)
def test_xdp_trafficgen_sends_what_was_asked():
    asked = cell(generator="xdp_trafficgen", ip_version=6, frame_sizes=128)
    with open_testbed(generator="xdp_trafficgen") as veth:
        packets = veth.capture(asked, 100)
        row = window_row(asked, veth.measure(asked, 0.05, 0.2), make_plan({}))
    assert len(packets) == 100 and {len(packet) for packet in packets} == {124}
    packet = Ether(packets[0])
    assert (packet[IPv6].src, packet[IPv6].dst) == ("2001:2:0:1::1", "2001:2:0:1::2")
    sent = packet[UDP].chksum
    del packet[UDP].chksum
    assert Ether(bytes(packet))[UDP].chksum == sent != 0
    assert row["frames"] > 1000 and row["segs_per_skb"] > 4
    assert row["offered_mpps"] / 2 < row["sender_mpps"] < row["offered_mpps"] * 2
