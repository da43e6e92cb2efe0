"""End (RFC 8986 4.1), and packets that every SID must drop."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, differs, drop, forward, kernel, skip
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, IPV4, IPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6,
    OPTION_ROUTER_ALERT, PAD1, ROUTING, SRH, TCP_PROTOCOL, UDP_PROTOCOL, fragment_header, hmac_tlv, ipv4, options_header, padn, pattern, tcp6, tlv, udp4, udp6,
)

SID = "fc0f::1"
NODE = node(
    routes=[
        f"{SID}/128 encap seg6local action End dev eth0",
        "fc0f:64::/64 encap seg6local action End dev eth0",
        "blackhole fc0c::/16",
        "unreachable fc0d::/16",
        "fc0e::/16 via fc01::66 dev eth1",
    ],
    neighbors=["fc01::99 lladdr 02:00:00:00:00:99 dev eth1"],
    seg6_disabled=(ETH2,),
)
SAME_COUNT = {"route": f"{SID}/128", "packets": 1, "errors": 0}
ONE_ERROR = {"route": f"{SID}/128", "packets": 0, "errors": 1}


def outer(destination, hop_limit, next_header=ROUTING, source=HEADEND, **fields):
    """The IPv6 header of this group."""
    return IPv6(src=source, dst=destination, hlim=hop_limit, nh=next_header, **fields)


def add_segments(group):
    """The segment list."""
    udp = udp6(HEADEND, SEGMENT_1)

    def srh(segments_left, segments, payload=udp, next_header=UDP_PROTOCOL, **fields):
        return SRH(next_header=next_header, segments_left=segments_left, segment_list=segments, **fields) / payload

    two = [SEGMENT_1, SID]
    group.add(
        "end_advances_to_the_last_segment", ["8986 4.1 S12-S15"], ETH0,
        received(ETH0, outer(SID, 64) / srh(1, two)),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, two))),
        about="Segments Left falls from 1 to 0, the destination becomes Segment List[0], and the hop limit falls by one.",
        counters=SAME_COUNT,
    )
    three = ["fc0b::3", "fc0a::2", SID]
    last = udp6(HEADEND, "fc0b::3")
    group.add(
        "end_advances_to_a_segment_in_the_middle", ["8986 4.1 S12-S15"], ETH0,
        received(ETH0, outer(SID, 64) / srh(2, three, last)),
        forward(ETH1, sent(ETH1, outer("fc0a::2", 63) / srh(1, three, last))),
    )
    sixteen = [f"fc0a::{index:x}" for index in range(0x10, 0x1F)] + [SID]
    last = udp6(HEADEND, "fc0a::10")
    group.add(
        "end_of_sixteen_segments", ["8986 4.1"], ETH0,
        received(ETH0, outer(SID, 64) / srh(15, sixteen, last)),
        forward(ETH1, sent(ETH1, outer("fc0a::1e", 63) / srh(14, sixteen, last))),
    )
    reduced = [SEGMENT_1, "fc0b::7"]
    group.add(
        "end_of_a_reduced_srh", ["8754 4.1.1", "8986 4.1 S09"], ETH0,
        received(ETH0, outer(SID, 64) / srh(2, reduced)),
        forward(ETH2, sent(ETH2, outer("fc0b::7", 63) / srh(1, reduced))),
        about="A reduced SRH lacks the first segment: Segments Left is Last Entry plus one.",
    )
    one = [SEGMENT_1]
    group.add(
        "end_of_a_reduced_srh_with_one_entry", ["8754 4.1.1", "8986 4.1 S09"], ETH0,
        received(ETH0, outer(SID, 64) / srh(1, one)),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, one))),
    )
    onlink = ["fc01::99", SID]
    last = udp6(HEADEND, "fc01::99")
    group.add(
        "end_to_a_next_segment_on_the_link", ["8986 4.1 S15"], ETH0,
        received(ETH0, outer(SID, 64) / srh(1, onlink, last)),
        forward(ETH1, sent(ETH1, outer("fc01::99", 63) / srh(0, onlink, last), to="02:00:00:00:00:99")),
    )
    inside = "fc0f:64::a:b:c:d"
    prefix = [SEGMENT_1, inside]
    group.add(
        "end_by_a_prefix_of_64_bits", ["8986 3.1"], ETH0,
        received(ETH0, outer(inside, 64) / srh(1, prefix)),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, prefix))),
        about="A SID is a route: function and argument bits after the prefix are ignored.",
        counters={"route": "fc0f:64::/64", "packets": 1, "errors": 0},
    )
    spare = [SEGMENT_1, SID, "fc0b::9"]
    group.add(
        "end_does_not_need_the_highest_segments_left", ["8986 4.1"], ETH0,
        received(ETH0, outer(SID, 64) / srh(1, spare)),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, spare))),
    )
    group.add(
        "end_from_another_port", ["8986 4.1"], ETH1,
        received(ETH1, outer(SID, 64) / srh(1, ["fc0b::3", SID], udp6(HEADEND, "fc0b::3"))),
        forward(ETH2, sent(ETH2, outer("fc0b::3", 63) / srh(0, ["fc0b::3", SID], udp6(HEADEND, "fc0b::3")))),
    )


def add_fields(group):
    """Fields that End does not change: tag, flags, TLVs, traffic class, flow label, payload."""
    udp = udp6(HEADEND, SEGMENT_1)
    two = [SEGMENT_1, SID]

    def kept(name, rfc, payload=udp, next_header=UDP_PROTOCOL, ipv6=None, linux=None, about="", **fields):
        ipv6 = ipv6 or {}

        def packet(destination, hop_limit, segments_left):
            header = SRH(next_header=next_header, segments_left=segments_left, segment_list=two, **fields)
            return outer(destination, hop_limit, **ipv6) / header / payload

        group.add(
            name, rfc, ETH0,
            received(ETH0, packet(SID, 64, 1)),
            forward(ETH1, sent(ETH1, packet(SEGMENT_1, 63, 0))),
            linux=linux, about=about,
        )

    kept("end_keeps_tag_and_unused_flags", "8754 2", tag=0xBEEF, flags=0x57)
    kept("end_keeps_the_o_flag", "9259 2.1", flags=0x20)
    kept("end_keeps_traffic_class_and_flow_label", "8986 4.1", ipv6={"tc": 0xBA, "fl": 0x54321})
    kept("end_keeps_a_padn_tlv", "8754 2.1.1.2", tlvs=padn(6))
    kept("end_keeps_a_padn_tlv_with_octets_that_are_not_zero", "8754 2.1.1.2", tlvs=tlv(4, b"\x01\x02\x03\x04\x05\x06"))
    kept("end_keeps_eight_pad1_tlvs", "8754 2.1.1.1", tlvs=PAD1 * 8)
    kept("end_keeps_an_unknown_tlv", "8754 2.1", tlvs=tlv(0x7C, b"sixoct"))
    kept("end_keeps_an_unknown_tlv_that_may_change_en_route", "8754 2.1", tlvs=tlv(0xFC, b"sixoct"))
    kept("end_keeps_several_tlvs", "8754 2.1", tlvs=tlv(0x7C, b"abc") + tlv(0x7D, b"") + padn(7))
    kept("end_keeps_a_tlv_of_250_octets", "8754 2.1", tlvs=tlv(0x7C, pattern(246)))
    why = "seg6_validate_srh reads a Length octet after Pad1; RFC 8754 2.1.1.1: Pad1 has none"
    kept("end_keeps_pad1_before_an_unknown_tlv", "8754 2.1.1.1", tlvs=PAD1 + tlv(0x7C, b"abcde"), linux=differs("drop", why))
    kept("end_keeps_pad1_at_the_end", "8754 2.1.1.1", tlvs=padn(5) + PAD1, linux=differs("drop", why))
    kept("end_keeps_a_ninth_tlv_that_runs_past_the_end", "8754 2.1", tlvs=8 * tlv(0x7C, b"") + tlv(0x7D, b"sixoct")[:1] + b"\xff" + bytes(6),
         linux=differs("drop", "seg6_validate_srh follows every TLV; Sidestep checks the first eight"))
    kept("end_with_the_hmac_flag", "8754 2.1.2", flags=0x08)
    kept("end_with_an_hmac_tlv_without_the_flag", "8754 2.1.2", tlvs=hmac_tlv(7))
    kept("end_carries_tcp", "8986 4.1", tcp6(HEADEND, SEGMENT_1, pattern(300)), TCP_PROTOCOL)
    inner6 = IPv6(src=HOST_0, dst=HOST_1, hlim=7, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1)
    kept("end_carries_ipv6", "8986 4.1", inner6, IPV6, about="End does not change the inner hop limit.")
    inner4 = ipv4(src="192.0.2.1", dst="198.51.100.1", ttl=7) / udp4()
    kept("end_carries_ipv4", "8986 4.1", inner4, IPV4)
    kept("end_with_no_next_header", "8986 4.1", Raw(b""), NO_NEXT_HEADER)
    kept("end_of_1500_octets", "8986 4.1", udp6(HEADEND, SEGMENT_1, pattern(1500 - 40 - 40 - 8)))
    kept("end_with_destination_options_behind_the_srh", "8200 4.1",
         options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp, DESTINATION_OPTIONS)
    kept("end_with_hop_by_hop_options_behind_the_srh", "8200 4.1",
         options_header(UDP_PROTOCOL, OPTION_ROUTER_ALERT) / udp, HOP_BY_HOP,
         about="The options do not directly follow the IPv6 header, so a router on the path ignores them.")
    cut = Raw(bytes([UDP_PROTOCOL, 200]) + OPTION_PADN_6)
    kept("end_with_hop_by_hop_options_behind_the_srh_cut_short", "8200 4.1", cut, HOP_BY_HOP)
    for name, offset, more in (("first", 0, True), ("last", 2, False)):
        kept(f"end_of_the_{name}_fragment", "8200 4.5",
             fragment_header(UDP_PROTOCOL, offset, more) / Raw(pattern(16)), FRAGMENT,
             about="Every fragment has the SRH, and End reads nothing behind it.")


def add_position(group):
    """Extension headers in front of the SRH; Ethernet padding."""
    udp = udp6(HEADEND, SEGMENT_1)
    two = [SEGMENT_1, SID]

    def behind(header, first, destination, hop_limit, segments_left):
        return (
            outer(destination, hop_limit, first) / header
            / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=two) / udp
        )

    hop_by_hop = options_header(ROUTING, OPTION_PADN_6)
    group.add(
        "end_behind_a_hop_by_hop_header_of_padding", "8200 4.1", ETH0,
        received(ETH0, behind(hop_by_hop, HOP_BY_HOP, SID, 64, 1)),
        forward(ETH1, sent(ETH1, behind(hop_by_hop, HOP_BY_HOP, SEGMENT_1, 63, 0))),
    )
    options = options_header(ROUTING, OPTION_EXPERIMENT)
    group.add(
        "end_behind_destination_options", "8200 4.1", ETH0,
        received(ETH0, behind(options, DESTINATION_OPTIONS, SID, 64, 1)),
        forward(ETH1, sent(ETH1, behind(options, DESTINATION_OPTIONS, SEGMENT_1, 63, 0))),
    )
    both = options_header(DESTINATION_OPTIONS, OPTION_PADN_6) / options
    group.add(
        "end_behind_hop_by_hop_and_destination_options", "8200 4.1", ETH0,
        received(ETH0, behind(both, HOP_BY_HOP, SID, 64, 1)),
        forward(ETH1, sent(ETH1, behind(both, HOP_BY_HOP, SEGMENT_1, 63, 0))),
    )
    cut = Raw(bytes([ROUTING, 200]) + OPTION_EXPERIMENT)
    group.add(
        "end_behind_destination_options_beyond_the_packet", "8200 4", ETH0,
        received(ETH0, behind(cut, DESTINATION_OPTIONS, SID, 64, 1)), drop("ext_header"), counters=ONE_ERROR,
    )
    packet = outer(SID, 64) / SRH(segments_left=1, segment_list=two)
    group.add(
        "end_trims_octets_behind_the_packet", "8200 3", ETH0,
        received(ETH0, bytes(packet) + b"junk"),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / SRH(segments_left=0, segment_list=two))),
    )


def add_refused(group):
    """Drops and punts."""
    udp = udp6(HEADEND, SEGMENT_1)

    def packet(segments_left=1, segments=(SEGMENT_1, SID), hop_limit=64, **fields):
        header = SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=list(segments), **fields)
        return outer(SID, hop_limit) / header / udp

    group.add(
        "end_with_segments_left_zero", "8986 4.1 S02", ETH0,
        received(ETH0, packet(0, (SID, "fc0a::2"))), drop("segments_left_zero"), counters=ONE_ERROR,
    )
    group.add(
        "end_without_an_srh", "8986 4.1.1", ETH0,
        received(ETH0, outer(SID, 64, UDP_PROTOCOL) / udp6(HEADEND, SID)), drop("no_srh"), counters=ONE_ERROR,
    )
    group.add(
        "end_with_hop_limit_2", "8986 4.1 S05", ETH0,
        received(ETH0, packet(hop_limit=2)),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 1) / SRH(
            next_header=UDP_PROTOCOL, segments_left=0, segment_list=[SEGMENT_1, SID]) / udp)),
    )
    group.add(
        "end_with_hop_limit_1", "8986 4.1 S05", ETH0, received(ETH0, packet(hop_limit=1)), drop("hop_limit"),
    )
    for name, segment, outcome in (
        ("end_to_a_next_segment_without_a_route", "fc0a:dead::1", None),
        ("end_to_a_next_segment_that_is_blackholed", "fc0c::1", drop("blackhole")),
        ("end_to_a_next_segment_that_is_unreachable", "fc0d::1", kernel("route_type")),
        ("end_to_a_next_segment_whose_gateway_is_not_resolved", "fc0e::1", kernel("neighbor")),
        ("end_to_a_next_segment_that_is_an_own_address", "fc01::2", kernel("local")),
    ):
        if outcome is None:
            segment, outcome = "2001:db8:dead::1", kernel("route_miss")
        group.add(name, "8986 4.1 S15", ETH0, received(ETH0, packet(segments=(segment, SID))), outcome)
    group.add(
        "end_on_a_port_with_seg6_disabled", "8754 4.3.1", ETH2, received(ETH2, packet()), kernel("seg6_disabled"),
        linux=skip("punted; seg6local ignores seg6_enabled"),
    )
    for name, fields in (
        ("and_flag", {"flags": 0x08, "tlvs": hmac_tlv(7)}),
        ("behind_another", {"flags": 0x08, "tlvs": padn(6) + hmac_tlv(7)}),
    ):
        group.add(
            f"end_with_an_hmac_tlv_{name}", "8754 2.1.2", ETH0, received(ETH0, packet(**fields)), drop("hmac_key"),
            about="The node has no HMAC key.",
        )
    for kind, length in ((0, 4), (2, 2), (3, 2)):
        group.add(
            f"end_with_a_routing_header_of_type_{kind}", "8200 4.4", ETH0,
            received(ETH0, outer(SID, 64) / Raw(bytes([UDP_PROTOCOL, length, kind, 1]) + bytes(4 + 8 * length)) / udp),
            kernel("routing_header"),
        )


def groups():
    """Returns the vector files of this module."""
    group = Group("end", "End forwards to the next segment.", NODE)
    add_segments(group)
    add_fields(group)
    add_position(group)
    add_refused(group)
    return [group]
