"""Flavor PSP (RFC 8986 4.16.1) on End, End.X and End.T."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, drop, forward, kernel, skip
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, IPV4, IPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6, ROUTING, SRH,
    TCP_PROTOCOL, UDP_PROTOCOL, fragment_header, ipv4, options_header, padn, pattern, tcp6, udp4, udp6,
)

SID = "fc0f::1"
RFC = "8986 4.16.1"
END_NODE = node(routes=[f"{SID}/128 encap seg6local action End flavors psp dev eth0"])
MTU = 1400
OTHER_NODE = node(
    mtu={"eth2": MTU},
    routes=[
        "fc0f::a/128 encap seg6local action End.X nh6 fc02::1 flavors psp dev eth0",
        "fc0f::74/128 encap seg6local action End.T table 100 flavors psp dev eth0",
        "fc0a::/16 via fc02::1 dev eth2 table 100",
        "fc0e::/16 via fc02::66 dev eth2 table 100",
    ],
)
NO_LINUX = "Linux has PSP for End only (seg6_flv_supp_ops_by_action)"


def outer(destination, hop_limit, next_header, **fields):
    """The IPv6 header of this group."""
    return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=next_header, **fields)


def add_end(group):
    """End with PSP."""
    udp = udp6(HEADEND, SEGMENT_1)
    two = [SEGMENT_1, SID]

    def popped(name, payload, next_header, about="", segments_left=1, segments=two, ipv6=None, counters=None, **fields):
        ipv6 = ipv6 or {}
        header = SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)
        group.add(
            name, RFC, ETH0,
            received(ETH0, outer(SID, 64, ROUTING, **ipv6) / header / payload),
            forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63, next_header, **ipv6) / payload)),
            about=about, counters=counters,
        )

    popped("end_psp_removes_the_srh", udp, UDP_PROTOCOL,
           about="Segments Left becomes 0, so PSP removes the SRH. The IPv6 header gets its Next Header, and Payload Length falls by 40.",
           counters={"route": f"{SID}/128", "packets": 1, "errors": 0})
    popped("end_psp_in_front_of_tcp", tcp6(HEADEND, SEGMENT_1, pattern(700)), TCP_PROTOCOL)
    inner6 = IPv6(src=HOST_0, dst=HOST_1, hlim=9, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1)
    popped("end_psp_in_front_of_ipv6", inner6, IPV6)
    popped("end_psp_in_front_of_ipv4", ipv4(src="192.0.2.1", dst="198.51.100.1", ttl=9) / udp4(), IPV4)
    popped("end_psp_in_front_of_nothing", Raw(b""), NO_NEXT_HEADER)
    popped("end_psp_in_front_of_a_fragment", fragment_header(UDP_PROTOCOL, 2, False) / Raw(pattern(16)), FRAGMENT)
    popped("end_psp_in_front_of_destination_options", options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp, DESTINATION_OPTIONS)
    popped("end_psp_removes_tlvs_as_well", udp, UDP_PROTOCOL, tlvs=padn(14), tag=3)
    popped("end_psp_of_a_reduced_srh", udp, UDP_PROTOCOL, segments=[SEGMENT_1])
    popped("end_psp_removes_sixteen_segments", udp, UDP_PROTOCOL,
           segments=two + [f"fc0a::{index:x}" for index in range(0x10, 0x1E)])
    popped("end_psp_keeps_traffic_class_and_flow_label", udp, UDP_PROTOCOL, ipv6={"tc": 0x2E, "fl": 0xFFFFF})
    popped("end_psp_of_1500_octets", udp6(HEADEND, SEGMENT_1, pattern(1500 - 40 - 40 - 8)), UDP_PROTOCOL)

    three = [SEGMENT_1, "fc0a::2", SID]

    def not_last(destination, hop_limit, segments_left):
        header = SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=three)
        return outer(destination, hop_limit, ROUTING) / header / udp

    group.add(
        "end_psp_keeps_the_srh_before_the_penultimate_segment", RFC, ETH0,
        received(ETH0, not_last(SID, 64, 2)), forward(ETH1, sent(ETH1, not_last("fc0a::2", 63, 1))),
    )
    group.add(
        "end_psp_behind_a_hop_by_hop_header", RFC, ETH0,
        received(ETH0, outer(SID, 64, HOP_BY_HOP) / options_header(ROUTING, OPTION_PADN_6)
                 / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=two) / udp),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63, HOP_BY_HOP) / options_header(UDP_PROTOCOL, OPTION_PADN_6) / udp)),
        about="PSP replaces the Next Header of the header in front of the SRH, not the one of the IPv6 header.",
    )
    chain = options_header(DESTINATION_OPTIONS, OPTION_PADN_6)
    group.add(
        "end_psp_behind_two_extension_headers", RFC, ETH0,
        received(ETH0, outer(SID, 64, HOP_BY_HOP) / chain / options_header(ROUTING, OPTION_EXPERIMENT)
                 / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=two) / udp),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63, HOP_BY_HOP) / chain
                           / options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp)),
    )
    group.add(
        "end_psp_with_segments_left_zero", "8986 4.1 S02", ETH0,
        received(ETH0, outer(SID, 64, ROUTING) / SRH(next_header=UDP_PROTOCOL, segment_list=[SID]) / udp6(HEADEND, SID)),
        drop("segments_left_zero"),
    )
    group.add(
        "end_psp_without_an_srh", "8986 4.1.1", ETH0,
        received(ETH0, outer(SID, 64, UDP_PROTOCOL) / udp6(HEADEND, SID)), drop("no_srh"),
    )
    group.add(
        "end_psp_with_hop_limit_1", "8986 4.1 S05", ETH0,
        received(ETH0, outer(SID, 1, ROUTING) / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=two) / udp),
        drop("hop_limit"),
    )


def add_others(group):
    """End.X and End.T with PSP."""
    udp = udp6(HEADEND, SEGMENT_1)
    for name, sid, egress in (("end_x_psp", "fc0f::a", ETH2), ("end_t_psp", "fc0f::74", ETH2)):
        group.add(
            f"{name}_removes_the_srh", RFC, ETH0,
            received(ETH0, outer(sid, 64, ROUTING)
                     / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=[SEGMENT_1, sid]) / udp),
            forward(egress, sent(egress, outer(SEGMENT_1, 63, UDP_PROTOCOL) / udp)),
            linux=skip(NO_LINUX),
        )
        three = [SEGMENT_1, "fc0a::2", sid]

        def not_last(destination, hop_limit, segments_left):
            header = SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=three)
            return outer(destination, hop_limit, ROUTING) / header / udp

        group.add(
            f"{name}_keeps_the_srh_before_the_penultimate_segment", RFC, ETH0,
            received(ETH0, not_last(sid, 64, 2)), forward(egress, sent(egress, not_last("fc0a::2", 63, 1))),
            linux=skip(NO_LINUX),
        )
        group.add(
            f"{name}_behind_destination_options", RFC, ETH0,
            received(ETH0, outer(sid, 64, DESTINATION_OPTIONS) / options_header(ROUTING, OPTION_EXPERIMENT)
                     / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=[SEGMENT_1, sid]) / udp),
            forward(egress, sent(egress, outer(SEGMENT_1, 63, DESTINATION_OPTIONS)
                                 / options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp)),
            linux=skip(NO_LINUX),
        )
        group.add(
            f"{name}_with_segments_left_zero", "8986 4.1 S02", ETH0,
            received(ETH0, outer(sid, 64, ROUTING) / SRH(next_header=UDP_PROTOCOL, segment_list=[sid]) / udp6(HEADEND, sid)),
            drop("segments_left_zero"), linux=skip(NO_LINUX),
        )


def add_without_kernel(group):
    """The kernel lacks End.T with PSP, so Sidestep drops packets that need an ICMP error."""
    sid = "fc0f::74"

    def packet(length, segment, hop_limit=64):
        payload = udp6(HEADEND, segment, pattern(length - 88))
        header = SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=[segment, sid])
        return outer(sid, hop_limit, ROUTING) / header / payload

    exact = udp6(HEADEND, SEGMENT_1, pattern(MTU + 40 - 88))
    group.add(
        "end_t_psp_of_exactly_the_mtu_after_the_pop", RFC, ETH0, received(ETH0, packet(MTU + 40, SEGMENT_1)),
        forward(ETH2, sent(ETH2, outer(SEGMENT_1, 63, UDP_PROTOCOL) / exact)), linux=skip(NO_LINUX),
    )
    for name, received_packet, reason in (
        ("end_t_psp_of_one_octet_more_than_the_mtu", packet(MTU + 41, SEGMENT_1), "too_big"),
        ("end_t_psp_with_hop_limit_1", packet(200, SEGMENT_1, 1), "hop_limit"),
        ("end_t_psp_without_a_route_in_its_table", packet(200, "fc0b::1"), "no_route"),
        ("end_t_psp_whose_gateway_is_not_resolved", packet(200, "fc0e::1"), "no_neighbor"),
    ):
        group.add(name, RFC, ETH0, received(ETH0, received_packet), drop(reason), linux=skip(NO_LINUX))


def groups():
    """Returns the vector files of this module."""
    end = Group("end_psp", "End with the flavor PSP.", END_NODE)
    add_end(end)
    others = Group("end_x_end_t_psp", "End.X and End.T with the flavor PSP, which Linux does not have.", OTHER_NODE)
    add_others(others)
    add_without_kernel(others)
    return [end, others]
