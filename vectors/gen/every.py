"""Common rules at every behavior: 1 to 16 segments, TLVs, extension headers, invalid SRHs.

A file is a node, which Linux must support completely. Endpoints therefore have one file for
behaviors of Linux and one for Sidestep-only behaviors. Headends have further files.
"""

from dataclasses import dataclass
from typing import Callable

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import SAME, Group, differs, drop, forward, skip
from .decap import inner4, inner6
from .end_b6 import ENCAPS, ENCAPS_RED, WHY, as_linux, encapsulated, insertion
from .end_dx2v import frame
from .flow_label import label4, label6
from .h_insert import HOP_BY_HOP_FIRST
from .h_encaps import PORTS, TUNSRC, WHY4, WHY6, egress_of, headers, udp_to
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST_0, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, ETHERNET, HOP_BY_HOP, IPV4, IPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6, PAD1, ROUTING, SRH,
    TCP_PROTOCOL, UDP_PROTOCOL, ipv4, options_header, padn, pattern, tcp6, tlv, udp4, udp6,
)

COUNTS = range(1, 17)
NO_LINUX = skip("Linux does not have this behavior")
TLVS = {
    "a_padn_tlv": padn(6), "eight_pad1_tlvs": PAD1 * 8, "an_unknown_tlv": tlv(0x7C, b"sixoct"),
    "several_tlvs": tlv(0x7C, b"abc") + tlv(0xFD, b"") + padn(7), "a_tlv_of_250_octets": tlv(0x7C, pattern(246)),
}
POLICY = ["fc0a::1", "fc0b::2"]
# Linux treats an SRH that it refuses as absent, and decapsulates.
UNSEEN = "decap_and_validate treats an SRH that seg6_get_srh refuses as absent and decapsulates"
DIFFERS_PAD1 = "seg6_validate_srh reads a Length octet after Pad1; RFC 8754 2.1.1.1: Pad1 has none"


def packet(destination, hop_limit, segments_left, segments, before=None, payload=None, next_header=UDP_PROTOCOL, **fields):
    """IPv6, the headers in front of the SRH, SRH, payload."""
    header = SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)
    header = header / (udp6(HEADEND, segments[0]) if payload is None else payload)
    first = ROUTING
    if before:
        first, header = before[0], before[1] / header
    return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=first) / header


@dataclass
class Advance:
    """A behavior that forwards to the next segment."""

    name: str
    words: str
    rfc: str
    egress: object
    in_linux: bool = True
    # Frames of Sidestep and Linux, from (SID, hop limit, Segments Left, segments, fields).
    out: Callable = None

    def leaves(self, sid, hop_limit, segments_left, segments, **fields):
        """(Sidestep's frame, Linux's or None if equal)."""
        if self.out:
            return self.out(sid, hop_limit, segments_left, segments, **fields)
        return packet(segments[segments_left - 1], hop_limit - 1, segments_left - 1, segments, **fields), None


def out_of_encaps(reduced):
    """End.B6.Encaps and End.B6.Encaps.Red."""
    def out(_sid, hop_limit, segments_left, segments, **fields):
        following = segments[segments_left - 1]

        def inner(limit):
            return packet(following, limit, segments_left - 1, segments, **fields)

        first = fields["before"][0] if fields.get("before") else ROUTING
        return (
            encapsulated(POLICY, inner(hop_limit - 1), following, first, reduced=reduced),
            as_linux(POLICY, inner(hop_limit), hop_limit - 1),
        )
    return out


def out_of_insert(sid, hop_limit, segments_left, segments, **fields):
    """End.B6: the new SRH precedes all headers but Hop-by-Hop Options, and ends in the SID."""
    return insertion(POLICY, sid, hop_limit, segments_left, segments, packet, {}, **fields)


def out_with_psp(_sid, hop_limit, segments_left, segments, before=None, payload=None, next_header=UDP_PROTOCOL, **fields):
    """PSP removes the SRH if Segments Left is 1."""
    following = segments[segments_left - 1]
    if segments_left > 1:
        return packet(following, hop_limit - 1, segments_left - 1, segments, before, payload, next_header, **fields), None
    payload = udp6(HEADEND, segments[0]) if payload is None else payload
    if before:
        # Both kinds of options header used here name the next header in their first octet.
        payload = Raw(bytes([next_header]) + bytes(before[1])[1:]) / payload
        next_header = before[0]
    return IPv6(src=HEADEND, dst=following, hlim=hop_limit - 1, nh=next_header) / payload, None


def one_less(inner):
    """(arrives, leaves) of an inner packet that is forwarded."""
    return inner(64), inner(63)


def unchanged(inner):
    """(arrives, leaves) of a frame."""
    return inner, inner


@dataclass
class Decap:
    """A behavior that decapsulates."""

    name: str
    words: str
    rfc: str
    egress: object
    protocol: int
    inner: tuple
    in_linux: bool = True

    def frame(self):
        """The frame that leaves."""
        return self.inner[1] if self.protocol == ETHERNET else sent(self.egress, self.inner[1])


ADVANCES = [
    Advance("end", "End", "8986 4.1", ETH1),
    Advance("end_x", "End.X nh6 fc02::1", "8986 4.2", ETH2),
    Advance("end_t", "End.T table 100", "8986 4.3", ETH2),
    Advance("end_b6", f"End.B6 srh segs {','.join(POLICY)}", "-", ETH1, out=out_of_insert),
    Advance("end_b6_encaps", f"End.B6.Encaps srh segs {','.join(POLICY)}", ENCAPS, ETH1, out=out_of_encaps(False)),
    Advance("end_b6_encaps_red", f"End.B6.Encaps.Red srh segs {','.join(POLICY)}", ENCAPS_RED, ETH1, False, out_of_encaps(True)),
    Advance("end_psp_usp_usd", "End flavors psp,usp,usd", "8986 4.16.1", ETH1, False, out_with_psp),
    Advance("end_x_psp_usp_usd", "End.X nh6 fc02::1 flavors psp,usp,usd", "8986 4.16.1", ETH2, False, out_with_psp),
    Advance("end_t_psp_usp_usd", "End.T table 100 flavors psp,usp,usd", "8986 4.16.1", ETH2, False, out_with_psp),
]
DECAPS = [
    Decap("end_dx6", "End.DX6 nh6 fc02::1", "8986 4.4", ETH2, IPV6, one_less(inner6)),
    Decap("end_dx4", "End.DX4 nh4 203.0.113.99", "8986 4.5", ETH2, IPV4, one_less(inner4)),
    Decap("end_dt6", "End.DT6 table main", "8986 4.6", ETH1, IPV6, one_less(inner6)),
    Decap("end_dx2", "End.DX2 oif eth1", "8986 4.9", ETH1, ETHERNET, unchanged(frame())),
    Decap("end_dt4", "End.DT4 table main", "8986 4.7", ETH1, IPV4, one_less(inner4), False),
    Decap("end_dt46_of_ipv6", "End.DT46 table main", "8986 4.8", ETH1, IPV6, one_less(inner6), False),
    Decap("end_dt46_of_ipv4", "End.DT46 table main", "8986 4.8", ETH1, IPV4, one_less(inner4), False),
    Decap("end_dx2v", "End.DX2V vlantable 10", "8986 4.10", ETH1, ETHERNET, unchanged(frame((0x8100, 100))), False),
    Decap("end_usd_of_ipv6", "End flavors usd", "8986 4.16.3", ETH1, IPV6, one_less(inner6), False),
    Decap("end_usd_of_ipv4", "End flavors usd", "8986 4.16.3", ETH1, IPV4, one_less(inner4), False),
    Decap("end_x_usd_of_ipv6", "End.X nh6 fc02::1 flavors usd", "8986 4.16.3", ETH2, IPV6, one_less(inner6), False),
    Decap("end_t_usd_of_ipv6", "End.T table 100 flavors usd", "8986 4.16.3", ETH2, IPV6, one_less(inner6), False),
]
SIDS = {row.name: f"fc0f::{0xE00 + number:x}" for number, row in enumerate(ADVANCES + DECAPS)}


def add_advance(group, row):
    """One behavior that forwards to the next segment."""
    sid = SIDS[row.name]

    def forwarded(name, rfc, segments_left, segments, linux=None, counters=None, **fields):
        ours, theirs = row.leaves(sid, 64, segments_left, segments, **fields)
        why = HOP_BY_HOP_FIRST if row.out is out_of_insert else WHY
        if not row.in_linux:
            linux = NO_LINUX
        elif linux is None:
            linux = SAME if theirs is None else differs(forward(row.egress, sent(row.egress, theirs)), why)
        group.add(
            f"{row.name}_{name}", rfc, ETH0, received(ETH0, packet(sid, 64, segments_left, segments, **fields)),
            forward(row.egress, sent(row.egress, ours)), linux, counters=counters,
        )

    one = {"route": f"{sid}/128", "packets": 1, "errors": 0}
    for count in COUNTS:
        entries = [f"fc0a::{number:x}" for number in range(1, count + 1)]
        forwarded(f"of_a_reduced_srh_of_{count}", [row.rfc, "8754 4.1.1"], count, entries, counters=one)
        if count > 1:
            forwarded(f"of_an_srh_of_{count}", row.rfc, count - 1, entries[:-1] + [sid], counters=one)
    three = ["fc0a::1", "fc0a::2", sid]
    for name, tlvs in TLVS.items():
        for left in (2, 1):
            forwarded(f"with_{name}_and_segments_left_{left}", "8754 2.1", left, three, tlvs=tlvs, tag=0xBEEF, flags=0x57)
    forwarded("with_pad1_before_an_unknown_tlv", "8754 2.1.1.1", 2, three, differs("drop", DIFFERS_PAD1),
              tlvs=PAD1 + tlv(0x7C, b"abcde"))
    for name, before in (
        ("hop_by_hop_padding", (HOP_BY_HOP, options_header(ROUTING, OPTION_PADN_6))),
        ("destination_options", (DESTINATION_OPTIONS, options_header(ROUTING, OPTION_EXPERIMENT))),
    ):
        for left in (2, 1):
            forwarded(f"behind_{name}_and_segments_left_{left}", "8200 4.1", left, three, before=before)
    for name, protocol, payload in (
        ("tcp", TCP_PROTOCOL, tcp6(HEADEND, "fc0a::1", pattern(400))), ("ipv6", IPV6, inner6(7)), ("ipv4", IPV4, inner4(7)),
        ("an_ethernet_frame", ETHERNET, Raw(bytes(frame()))), ("nothing", NO_NEXT_HEADER, Raw(b"")),
    ):
        for left in (2, 1):
            forwarded(f"over_{name}_and_segments_left_{left}", row.rfc, left, three, payload=payload, next_header=protocol)
    add_advance_checks(group, row, sid, three)


def add_advance_checks(group, row, sid, three):
    """Invalid SRHs and packets."""
    linux = SAME if row.in_linux else NO_LINUX
    errors = {"route": f"{sid}/128", "packets": 0, "errors": 1}
    for name, rfc, reason, arrived in (
        ("last_entry_beyond_hdr_ext_len", "8986 4.1 S09", "srh_length", packet(sid, 64, 2, three, last_entry=3)),
        ("last_entry_255", "8986 4.1 S09", "srh_length", packet(sid, 64, 2, three, last_entry=255)),
        ("hdr_ext_len_zero", "8986 4.1 S09", "srh_length", packet(sid, 64, 2, three, hdr_ext_len=0)),
        ("segments_left_beyond_last_entry_plus_one", "8986 4.1 S09", "srh_segments_left", packet(sid, 64, 4, three)),
        ("segments_left_255", "8986 4.1 S09", "srh_segments_left", packet(sid, 64, 255, three)),
        ("an_srh_beyond_the_packet", "8754 2", "srh_length", packet(sid, 64, 2, three, hdr_ext_len=40)),
        ("a_tlv_beyond_the_srh", "8754 2.1", "srh_tlv", packet(sid, 64, 2, three, tlvs=bytes([0x7C, 7]) + b"sixoct")),
    ):
        group.add(f"{row.name}_refuses_{name}", rfc, ETH0, received(ETH0, arrived), drop(reason), linux, counters=errors)
    usd = "usd" in row.words
    for name, rfc, reason, arrived in (
        ("segments_left_zero", "8986 4.1 S02", "upper_layer" if usd else "segments_left_zero", packet(sid, 64, 0, three)),
        ("a_packet_without_an_srh", "8986 4.1.1", "upper_layer" if usd else "no_srh",
         IPv6(src=HEADEND, dst=sid, hlim=64, nh=UDP_PROTOCOL) / udp6(HEADEND, sid)),
    ):
        group.add(f"{row.name}_refuses_{name}", rfc, ETH0, received(ETH0, arrived), drop(reason), linux, counters=errors)
    group.add(
        f"{row.name}_refuses_hop_limit_1", "8986 4.1 S05", ETH0, received(ETH0, packet(sid, 1, 2, three)),
        drop("hop_limit"), linux, counters=errors,
    )


def add_decap(group, row):
    """One behavior that decapsulates."""
    sid = SIDS[row.name]
    linux = SAME if row.in_linux else NO_LINUX
    one = {"route": f"{sid}/128", "packets": 1, "errors": 0}
    arrives = Raw(bytes(row.inner[0]))
    wide = IPv6(src=HEADEND, dst=sid, hlim=64, nh=ROUTING)

    def srh(segments_left=0, count=2, next_header=row.protocol, **fields):
        entries = [sid] + [f"fc0a::{number:x}" for number in range(1, count)]
        return SRH(next_header=next_header, segments_left=segments_left, segment_list=entries, **fields)

    def forwarded(name, rfc, before, counters=None):
        group.add(
            f"{row.name}_{name}", rfc, ETH0, received(ETH0, before / arrives), forward(row.egress, row.frame()), linux,
            counters=counters,
        )

    for count in COUNTS:
        forwarded(f"after_{count}_segment{'s' * (count > 1)}", row.rfc, wide / srh(count=count), one)
    for name, tlvs in TLVS.items():
        forwarded(f"after_an_srh_with_{name}", row.rfc, wide / srh(tlvs=tlvs, tag=0xBEEF, flags=0x57))
    forwarded("after_two_srhs", row.rfc, wide / srh(next_header=ROUTING) / srh())
    for name, first, header in (
        ("hop_by_hop_padding", HOP_BY_HOP, OPTION_PADN_6), ("destination_options", DESTINATION_OPTIONS, OPTION_EXPERIMENT),
    ):
        outer = IPv6(src=HEADEND, dst=sid, hlim=64, nh=first)
        forwarded(f"after_{name}_without_an_srh", row.rfc, outer / options_header(row.protocol, header))
        forwarded(f"after_{name}_and_an_srh", row.rfc, outer / options_header(ROUTING, header) / srh())

    errors = {"route": f"{sid}/128", "packets": 0, "errors": 1}
    unseen = differs(forward(row.egress, row.frame()), UNSEEN) if row.in_linux else NO_LINUX
    usd = "usd" in row.words
    for name, rfc, reason, header, theirs in (
        ("segments_left_1", row.rfc, "segments_left_not_zero", srh(1), linux),
        ("segments_left_of_a_reduced_srh", row.rfc, "segments_left_not_zero", srh(2), linux),
        ("segments_left_beyond_last_entry_plus_one", "8986 4.1 S09", "srh_segments_left", srh(3), unseen),
        ("segments_left_255", "8986 4.1 S09", "srh_segments_left", srh(255), unseen),
        ("last_entry_beyond_hdr_ext_len", "8986 4.1 S09", "srh_length", srh(1, last_entry=2), unseen),
        ("a_tlv_beyond_the_srh", "8754 2.1", "srh_tlv", srh(1, tlvs=bytes([0x7C, 7]) + b"sixoct"), unseen),
    ):
        if usd and reason == "segments_left_not_zero":
            continue  # With USD, End processes this packet.
        group.add(
            f"{row.name}_refuses_{name}", rfc, ETH0, received(ETH0, wide / header / arrives), drop(reason), theirs, counters=errors,
        )
    for name, protocol in (("udp", UDP_PROTOCOL), ("no_next_header", NO_NEXT_HEADER)):
        group.add(
            f"{row.name}_refuses_{name}_behind_an_srh", "8986 4.1.1", ETH0,
            received(ETH0, wide / srh(next_header=protocol) / udp6(HEADEND, sid)), drop("upper_layer"), linux, counters=errors,
        )


def endpoints(name, about, in_linux):
    """One file of endpoints."""
    rows = [row for row in ADVANCES + DECAPS if row.in_linux == in_linux]
    group = Group(name, about, node(
        routes=[f"{SIDS[row.name]}/128 encap seg6local action {row.words} dev eth0" for row in rows] + [
            "fc0a::/16 via fc02::1 dev eth2 table 100",
            "2001:db8:a::/48 via fc02::1 dev eth2 table 100",
        ],
        tunsrc=TUNSRC, **({} if in_linux else {"vlans": ["table 10 vid 100 dev eth1"]}),
    ))
    for row in rows:
        (add_advance if isinstance(row, Advance) else add_decap)(group, row)
    return group


def path_of(count):
    """Segments in the order of travel; an even number of them leaves by eth1."""
    first = "fc0a::" if count % 2 == 0 else "fc0b::"
    return [f"{first}1"] + [f"fc0a::{number:x}" for number in range(2, count + 1)]


def steered6(mode, count):
    """The IPv6 prefix that is steered into `count` segments."""
    return f"2001:db8:{0x5000 + 0x100 * mode + count:x}::"


def steered4(mode, count):
    """The IPv4 prefix."""
    return f"10.{60 + mode}.{count}."


MODES = (
    ("h_encaps", "encap", "8986 5.1", IPV6, False), ("h_encaps_red", "encap.red", "8986 5.2", IPV6, True),
    ("h_encaps_l2", "l2encap", "8986 5.3", ETHERNET, False), ("h_encaps_l2_red", "l2encap.red", "8986 5.4", ETHERNET, True),
)


def headends():
    """H.Encaps and its variants: each number of segments, each inner family."""
    routes = []
    group = Group("every_headend", "H.Encaps, H.Encaps.L2, reduced or not: 1 to 16 segments around IPv6 and IPv4.", None)
    for mode, (name, word, rfc, kind, reduced) in enumerate(MODES):
        for count in COUNTS:
            path = path_of(count)
            egress = egress_of(path)
            routes += [
                f"{prefix} encap seg6 mode {word} segs {','.join(path)} dev {egress.name}"
                for prefix in (f"{steered6(mode, count)}/48", f"{steered4(mode, count)}0/24")
            ]
            to6, to4 = f"{steered6(mode, count)}1", f"{steered4(mode, count)}1"
            for family, why, build, label in (
                (IPV6, WHY6, lambda limit, to6=to6: IPv6(src=HOST_0, dst=to6, hlim=limit, nh=UDP_PROTOCOL) / udp_to(to6),
                 label6(HOST_0, to6, UDP_PROTOCOL, PORTS)),
                (IPV4, WHY4, lambda limit, to4=to4: ipv4(src=HOST4_0, dst=to4, ttl=limit) / udp4(),
                 label4(HOST4_0, to4, UDP_PROTOCOL, PORTS)),
            ):
                arrived = received(ETH0, build(64))
                # Sidestep encapsulates a frame unchanged, but decrements the hop limit of a packet.
                # Linux changes neither.
                ours = arrived if kind == ETHERNET else build(63)
                theirs = arrived if kind == ETHERNET else build(64)
                protocol = ETHERNET if kind == ETHERNET else family
                if kind == ETHERNET and family == IPV6:
                    why = "Linux copies the inner traffic class with its ECN bits, the flow label and the hop limit less 1"
                group.add(
                    f"{name}_of_ipv{6 if family == IPV6 else 4}_onto_{count}", rfc, ETH0, arrived,
                    forward(egress, sent(egress, headers(path, protocol, reduced, hop_limit=64, label=label) / ours)),
                    differs(forward(egress, sent(egress, headers(path, protocol, reduced, hop_limit=63) / theirs)), why),
                )
    group.node = node(routes=routes, tunsrc=TUNSRC)
    return group


def insertions(name, word, reduced):
    """H.Insert or H.Insert.Red: each number of segments."""
    routes = []
    group = Group(name, f"{'H.Insert.Red' if reduced else 'H.Insert'}: 1 to 16 segments.", None)
    for count in COUNTS:
        path, to = path_of(count), f"{steered6(8, count)}1"
        egress = egress_of(path)
        routes.append(f"{steered6(8, count)}/48 encap seg6 mode {word} segs {','.join(path)} dev {egress.name}")
        listed = [to] + path[:0 if reduced else None:-1]
        after = IPv6(src=HOST_0, dst=path[0], hlim=63, nh=ROUTING) / SRH(
            next_header=UDP_PROTOCOL, segments_left=count, segment_list=listed) / udp_to(to)
        group.add(
            f"{name}_onto_{count}", "8754 4.1.1" if reduced else "8754 4.1", ETH0,
            received(ETH0, IPv6(src=HOST_0, dst=to, hlim=64, nh=UDP_PROTOCOL) / udp_to(to)),
            forward(egress, sent(egress, after)), NO_LINUX if reduced else SAME,
        )
    group.node = node(routes=routes)
    return group


def groups():
    """Returns the vector files of this module."""
    return [
        endpoints("every_endpoint", "Common rules at every behavior that Linux has: segments, TLVs, headers, checks.", True),
        endpoints("every_endpoint_own", "Common rules at every Sidestep-only behavior.", False),
        headends(),
        insertions("every_h_insert", "inline", False),
        insertions("every_h_insert_red", "inline.red", True),
    ]
