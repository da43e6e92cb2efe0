"""End.AM (draft-ietf-spring-srv6-service-programming 6.4): the last segment as destination.

The service is at eth2, as fc02::1. A second service returns packets by eth1.
"""

from scapy.layers.inet6 import ICMPv6ND_NA, IPv6

from .case import Group, drop, forward, kernel, skip
from .decap import inner4
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, ETH2, HEADEND, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, HOP_BY_HOP, IPV4, IPV6, OPTION_EXPERIMENT, OPTION_ROUTER_ALERT, ROUTING, SRH, TCP_PROTOCOL, UDP_PROTOCOL,
    options_header, padn, tcp6, udp6,
)

# draft-ietf-spring-srv6-service-programming-00
DRAFT = "service-programming 6.4.1"
NO_LINUX = skip("Linux has no SR proxies")
SID, TWO_WAYS, SID_END, SID_DT6, SID_AD = "fc0f::a", "fc0f::b", "fc0f::1", "fc0f::d6", "fc0f::ad"
STEERED = "fc0e::1"
NODE = node(
    routes=[
        f"{SID}/128 encap seg6local action End.AM oif eth2 nh6 fc02::1 dev eth2",
        f"{TWO_WAYS}/128 encap seg6local action End.AM oif eth0 nh6 fc00::1 iif eth2 dev eth0",
        "fc0f::a2/128 encap seg6local action End.AM oif eth2 nh6 fc02::66 dev eth2",
        f"{SID_END}/128 encap seg6local action End dev eth0",
        f"{SID_DT6}/128 encap seg6local action End.DT6 table 254 dev eth0",
        f"{SID_AD}/128 encap seg6local action End.AD oif eth1 nh4 10.1.0.1 dev eth1",
        f"{STEERED}/128 encap seg6 mode encap segs {SEGMENT_1} dev eth1",
    ],
    tunsrc=TUNSRC,
)
LAST = "2001:db8:b::9"
ONE = {"route": f"{SID}/128", "packets": 1, "errors": 0}
ERROR = {"route": f"{SID}/128", "packets": 0, "errors": 1}


def packet(destination, hop_limit, segments_left, segments, **fields):
    """SRH and UDP."""
    return (
        IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING, tc=0x41, fl=0x00123)
        / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=segments, **fields)
        / udp6(HEADEND, segments[0])
    )


def add_way_in(group):
    """Packets to the service."""
    three = [LAST, SEGMENT_1, SID]
    group.add(
        "end_am_shows_the_service_the_last_segment", [f"{DRAFT} S12-S15"], ETH0,
        received(ETH0, packet(SID, 64, 2, three)), forward(ETH2, sent(ETH2, packet(LAST, 63, 1, three))), NO_LINUX,
        counters=ONE,
    )
    two = [LAST, SID]
    group.add(
        "end_am_before_the_last_segment", [f"{DRAFT} S12-S15"], ETH0,
        received(ETH0, packet(SID, 64, 1, two)), forward(ETH2, sent(ETH2, packet(LAST, 63, 0, two))), NO_LINUX, counters=ONE,
    )
    group.add(
        "end_am_of_a_reduced_srh", [f"{DRAFT} S13"], ETH0,
        received(ETH0, packet(SID, 64, 2, [LAST, SEGMENT_1])),
        forward(ETH2, sent(ETH2, packet(LAST, 63, 1, [LAST, SEGMENT_1]))), NO_LINUX,
    )
    group.add(
        "end_am_keeps_tlvs_and_tag", [DRAFT], ETH0,
        received(ETH0, packet(SID, 64, 2, three, tlvs=padn(6), tag=7)),
        forward(ETH2, sent(ETH2, packet(LAST, 63, 1, three, tlvs=padn(6), tag=7))), NO_LINUX,
    )
    group.add(
        "end_am_behind_another_sid_of_the_node", [DRAFT, "8754 4.3.1"], ETH0,
        received(ETH0, packet(SID_END, 64, 3, [LAST, SEGMENT_1, SID, SID_END])),
        forward(ETH2, sent(ETH2, packet(LAST, 62, 1, [LAST, SEGMENT_1, SID, SID_END]))), NO_LINUX, counters=ONE,
    )
    group.add(
        "end_am_by_one_interface_and_back_by_another", [f"{DRAFT} S15"], ETH1,
        received(ETH1, packet(TWO_WAYS, 64, 2, [LAST, SEGMENT_1, TWO_WAYS])),
        forward(ETH0, sent(ETH0, packet(LAST, 63, 1, [LAST, SEGMENT_1, TWO_WAYS]))), NO_LINUX,
    )
    group.add(
        "end_am_with_segments_left_zero", [f"{DRAFT} S02-S03", "8986 4.1.1"], ETH0,
        received(ETH0, packet(SID, 64, 0, [SID, SEGMENT_1])), drop("segments_left_zero"), NO_LINUX, counters=ERROR,
    )
    group.add(
        "end_am_without_an_srh", [DRAFT, "8986 4.1.1"], ETH0,
        received(ETH0, IPv6(src=HEADEND, dst=SID, hlim=64, nh=UDP_PROTOCOL) / udp6(HEADEND, SID)), drop("no_srh"), NO_LINUX,
        counters=ERROR,
    )
    group.add(
        "end_am_with_segments_left_beyond_last_entry", [f"{DRAFT} S09-S10"], ETH0,
        received(ETH0, packet(SID, 64, 3, two)), drop("srh_segments_left"), NO_LINUX, counters=ERROR,
    )
    group.add(
        "end_am_with_hop_limit_1", [f"{DRAFT} S05-S06"], ETH0,
        received(ETH0, packet(SID, 1, 1, two)), drop("hop_limit"), NO_LINUX, counters=ERROR,
    )
    group.add(
        "end_am_whose_service_is_not_resolved", ["4861 7.2"], ETH0,
        received(ETH0, packet("fc0f::a2", 64, 1, [LAST, "fc0f::a2"])), drop("no_neighbor"), NO_LINUX,
    )


def add_way_back(group):
    """Packets from the service."""
    three = [LAST, SEGMENT_1, SID]
    back = f"{DRAFT} de-masquerading"
    group.add(
        "end_am_back_restores_the_active_segment", [f"{back} S10-S13"], ETH2,
        received(ETH2, packet(LAST, 62, 1, three)), forward(ETH1, sent(ETH1, packet(SEGMENT_1, 61, 1, three))), NO_LINUX,
    )
    group.add(
        "end_am_back_at_the_last_segment", [f"{back} S05, S12-S13"], ETH2,
        received(ETH2, packet(SEGMENT_1, 62, 0, [SEGMENT_1, SID])),
        forward(ETH1, sent(ETH1, packet(SEGMENT_1, 61, 0, [SEGMENT_1, SID]))), NO_LINUX,
    )
    group.add(
        "end_am_back_to_the_link_that_it_came_from", [f"{back} S10-S13"], ETH2,
        received(ETH2, packet(LAST, 62, 1, [LAST, SEGMENT_2, SID])),
        forward(ETH2, sent(ETH2, packet(SEGMENT_2, 61, 1, [LAST, SEGMENT_2, SID]))), NO_LINUX,
    )
    group.add(
        "end_am_back_to_a_sid_of_the_node", [f"{back} S13", "8986 4.1"], ETH2,
        received(ETH2, packet(LAST, 62, 2, [LAST, SEGMENT_1, SID_END, SID])),
        forward(ETH1, sent(ETH1, packet(SEGMENT_1, 61, 1, [LAST, SEGMENT_1, SID_END, SID]))), NO_LINUX,
        counters={"route": f"{SID_END}/128", "packets": 1, "errors": 0},
    )
    group.add(
        "end_am_back_to_the_next_service_of_the_node", [f"{back} S13", DRAFT], ETH2,
        received(ETH2, packet(LAST, 62, 2, [LAST, SEGMENT_1, TWO_WAYS, SID])),
        forward(ETH0, sent(ETH0, packet(LAST, 61, 1, [LAST, SEGMENT_1, TWO_WAYS, SID]))), NO_LINUX,
        counters={"route": f"{TWO_WAYS}/128", "packets": 1, "errors": 0},
    )
    by_ad = [LAST, SEGMENT_1, SID_AD, SID]

    def carrying(destination, hop_limit, segments_left, segments):
        return (
            IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING)
            / SRH(next_header=IPV4, segments_left=segments_left, segment_list=segments) / inner4(64)
        )

    group.add(
        "end_am_back_to_an_end_ad_of_the_node", [f"{back} S13", "service-programming 6.2.1 S12-S17"], ETH2,
        received(ETH2, carrying(LAST, 62, 2, by_ad)), forward(ETH1, sent(ETH1, inner4(63))), NO_LINUX,
        counters={"route": f"{SID_AD}/128", "packets": 1, "errors": 0},
    )
    steered = [LAST, STEERED, SID]
    group.add(
        "end_am_back_into_a_policy", [f"{back} S13", "8986 5.1"], ETH2, received(ETH2, packet(LAST, 62, 1, steered)),
        forward(ETH1, sent(
            ETH1,
            headers([SEGMENT_1], IPV6, hop_limit=64, traffic_class=0x41, label=0x00123) / packet(STEERED, 61, 1, steered),
        )), NO_LINUX,
    )
    group.add(
        "end_am_back_whose_last_segment_is_of_the_node", [f"{back} S10"], ETH2,
        received(ETH2, packet(SID_DT6, 62, 1, [SID_DT6, SEGMENT_1, SID])),
        forward(ETH1, sent(ETH1, packet(SEGMENT_1, 61, 1, [SID_DT6, SEGMENT_1, SID]))), NO_LINUX,
        about="The destination that the service received is a SID of this node, but another segment comes first.",
    )

    def behind_options(destination, hop_limit, segments_left, kind=DESTINATION_OPTIONS, option=OPTION_EXPERIMENT):
        return (
            IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=kind)
            / options_header(ROUTING, option)
            / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=three)
            / udp6(HEADEND, LAST)
        )

    group.add(
        "end_am_back_behind_destination_options", [f"{back} S01", "8200 4.1"], ETH2,
        received(ETH2, behind_options(LAST, 62, 1)), forward(ETH1, sent(ETH1, behind_options(SEGMENT_1, 61, 1))), NO_LINUX,
    )
    group.add(
        "end_am_back_behind_a_router_alert", [f"{back} S01", "8200 4.2"], ETH2,
        received(ETH2, behind_options(LAST, 62, 1, HOP_BY_HOP, OPTION_ROUTER_ALERT)),
        forward(ETH1, sent(ETH1, behind_options(SEGMENT_1, 61, 1, HOP_BY_HOP, OPTION_ROUTER_ALERT))), NO_LINUX,
        about="The kernel would forward it to the last segment, so Sidestep skips the option as its type says.",
    )
    group.add(
        "end_am_back_with_segments_left_beyond_last_entry", [f"{back} S07-S08"], ETH2,
        received(ETH2, packet(LAST, 62, 3, three)), drop("srh_segments_left"), NO_LINUX,
        about="End.AM sends no packet with Segments Left above Last Entry.",
    )
    group.add(
        "end_am_back_with_a_broken_srh", [f"{back} S07-S08"], ETH2,
        received(ETH2, packet(LAST, 62, 1, three, last_entry=9)), drop("srh_length"), NO_LINUX,
    )
    group.add(
        "end_am_back_with_hop_limit_1", [f"{back} S02-S03"], ETH2,
        received(ETH2, packet(LAST, 1, 1, three)), drop("hop_limit"), NO_LINUX,
    )
    group.add(
        "end_am_back_with_hop_limit_1_for_an_address_of_the_node", [f"{back} S02-S03"], ETH2,
        received(ETH2, packet(LAST, 1, 1, [LAST, "fc01::2", SID])), drop("hop_limit"), NO_LINUX,
    )
    group.add(
        "end_am_back_without_an_srh_is_the_services_own", [DRAFT], ETH2,
        received(ETH2, IPv6(src="fc02::1", dst=SEGMENT_1, hlim=64, nh=TCP_PROTOCOL) / tcp6("fc02::1", SEGMENT_1)),
        forward(ETH1, sent(ETH1, IPv6(src="fc02::1", dst=SEGMENT_1, hlim=63, nh=TCP_PROTOCOL) / tcp6("fc02::1", SEGMENT_1))),
        NO_LINUX,
    )
    group.add(
        "end_am_back_to_an_address_of_the_interface", ["8754 4.3.2", DRAFT], ETH2,
        received(ETH2, packet("fc02::2", 62, 1, ["fc02::2", SEGMENT_1, SID])), drop("not_a_sid"), NO_LINUX,
        "The destination is an address of this node, but Segments Left is not 0.",
    )
    group.add(
        "end_am_back_to_an_address_of_the_interface_without_a_segment_left", [DRAFT], ETH2,
        received(ETH2, packet("fc02::2", 62, 0, ["fc02::2", SEGMENT_1, SID])), kernel("local"), NO_LINUX,
    )
    group.add(
        "end_am_back_neighbor_discovery_is_the_kernels", ["4861 7.2", DRAFT], ETH2,
        received(ETH2, IPv6(src="fc02::1", dst="fc02::2", hlim=255) / ICMPv6ND_NA(tgt="fc02::1", R=0, S=1)),
        kernel("local"), NO_LINUX,
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("end_am", "End.AM: the masquerading proxy, in both directions.", NODE)
    add_way_in(group)
    add_way_back(group)
    return [group]
