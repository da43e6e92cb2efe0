"""End.AM with flavor NAT (draft-ietf-spring-srv6-service-programming 6.4.2): a service that changes the destination.

The service is at eth2, as fc02::1. The destination that it sets becomes the last segment.
"""

from scapy.layers.inet6 import IPv6

from .case import Group, drop, forward, skip
from .decap import inner6
from .node import ETH0, ETH1, ETH2, HEADEND, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import IPV6, ROUTING, SRH, UDP_PROTOCOL, padn, udp6

DRAFT = "service-programming 6.4.2"
NO_LINUX = skip("Linux has no SR proxies")
SID, AGAIN, SID_END, SID_PSP, SID_AD = "fc0f::a", "fc0f::b", "fc0f::1", "fc0f::2", "fc0f::d"
PUSHED, SOURCE = "fc0b::9", "fc00:bbbb::1"
# Further segments of this node read the changed list.
NODE = node(
    routes=[
        f"{SID}/128 encap seg6local action End.AM oif eth2 nh6 fc02::1 flavors nat dev eth2",
        f"{AGAIN}/128 encap seg6local action End.AM oif eth0 nh6 fc00::1 iif eth2 flavors nat dev eth0",
        f"{SID_END}/128 encap seg6local action End dev eth0",
        f"{SID_PSP}/128 encap seg6local action End flavors psp dev eth0",
        f"{SID_AD}/128 encap seg6local action End.AD oif eth0 nh6 fc00::1 iif eth1 dev eth0",
        f"fc0a::b6/128 encap seg6 mode encap segs {PUSHED} dev eth1",
    ],
    tunsrc=SOURCE,
)
LAST, OTHER = "2001:db8:b::9", "2001:db8:a::77"


def packet(destination, hop_limit, segments_left, segments, final, **fields):
    """SRH and UDP, whose checksum includes the final destination."""
    return (
        IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING, tc=0x41, fl=0x00123)
        / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=segments, **fields)
        / udp6(HEADEND, final)
    )


def shown(segments_left, *further, hop_limit=62, **fields):
    """The packet from the service: another destination, the same segment list."""
    return received(ETH2, packet(OTHER, hop_limit, segments_left, [LAST, *further], OTHER, **fields))


def goes_on(port, destination, segments_left, *further, hop_limit=61, **fields):
    """The packet after the proxy: the new destination is in the list."""
    return forward(port, sent(port, packet(destination, hop_limit, segments_left, [OTHER, *further], OTHER, **fields)))


def add_cases(group):
    """Packets to the service, as without the flavor, and from it."""
    group.add(
        "end_am_nat_shows_the_service_the_last_segment", [DRAFT], ETH0,
        received(ETH0, packet(SID, 64, 2, [LAST, SEGMENT_1, SID], LAST)),
        forward(ETH2, sent(ETH2, packet(LAST, 63, 1, [LAST, SEGMENT_1, SID], LAST))), NO_LINUX,
    )
    group.add(
        "end_am_nat_back_with_another_destination", [DRAFT], ETH2, shown(1, SEGMENT_1, SID),
        goes_on(ETH1, SEGMENT_1, 1, SEGMENT_1, SID), NO_LINUX,
    )
    group.add(
        "end_am_nat_back_with_tlvs_and_tag", [DRAFT], ETH2, shown(1, SEGMENT_1, SID, tlvs=padn(6), tag=7),
        goes_on(ETH1, SEGMENT_1, 1, SEGMENT_1, SID, tlvs=padn(6), tag=7), NO_LINUX,
    )
    group.add(
        "end_am_nat_back_with_the_destination_that_it_had", [DRAFT], ETH2,
        received(ETH2, packet(LAST, 62, 1, [LAST, SEGMENT_1, SID], LAST)),
        forward(ETH1, sent(ETH1, packet(SEGMENT_1, 61, 1, [LAST, SEGMENT_1, SID], LAST))), NO_LINUX,
    )
    group.add(
        "end_am_nat_back_at_the_last_segment", [DRAFT], ETH2, received(ETH2, packet(OTHER, 62, 0, [SEGMENT_1, SID], OTHER)),
        forward(ETH1, sent(ETH1, packet(OTHER, 61, 0, [SEGMENT_1, SID], OTHER))), NO_LINUX,
        about="Segments Left is 0, so the node forwards the packet to its destination.",
    )
    group.add(
        "end_am_nat_back_with_segments_left_beyond_last_entry", [DRAFT], ETH2, shown(3, SEGMENT_1, SID),
        drop("srh_segments_left"), NO_LINUX,
    )
    group.add(
        "end_am_nat_back_to_a_sid_of_the_node", [DRAFT, "8986 4.1"], ETH2, shown(2, SEGMENT_1, SID_END, SID),
        goes_on(ETH1, SEGMENT_1, 1, SEGMENT_1, SID_END, SID), NO_LINUX,
    )
    group.add(
        "end_am_nat_back_to_the_last_but_one_segment_of_the_node", [DRAFT, "8986 4.1"], ETH2, shown(1, SID_END, SID),
        goes_on(ETH1, OTHER, 0, SID_END, SID), NO_LINUX, about="End forwards to the segment that the service chose.",
    )
    group.add(
        "end_am_nat_back_to_the_last_but_one_segment_with_psp", [DRAFT, "8986 4.16.1"], ETH2, shown(1, SID_PSP, SID),
        forward(
            ETH1,
            sent(ETH1, IPv6(src=HEADEND, dst=OTHER, hlim=61, nh=UDP_PROTOCOL, tc=0x41, fl=0x00123) / udp6(HEADEND, OTHER)),
        ),
        NO_LINUX,
    )
    group.add(
        "end_am_nat_back_to_the_next_service_of_the_node", [DRAFT], ETH2, shown(2, SEGMENT_1, AGAIN, SID),
        goes_on(ETH0, OTHER, 1, SEGMENT_1, AGAIN, SID), NO_LINUX, about="The second service receives the packet with the changes of the first one.",
    )
    outer = IPv6(src=SOURCE, dst=PUSHED, hlim=64, nh=ROUTING, tc=0x41, fl=0x00123) / SRH(
        next_header=IPV6, segments_left=0, segment_list=[PUSHED],
    )
    group.add(
        "end_am_nat_back_to_a_segment_behind_a_policy", [DRAFT, "8986 5.1"], ETH2, shown(1, "fc0a::b6", SID),
        forward(ETH2, sent(ETH2, outer / packet("fc0a::b6", 61, 1, [OTHER, "fc0a::b6", SID], OTHER))), NO_LINUX,
    )


def add_learned(group):
    """A dynamic proxy after it learns the changed list."""
    def carrier(destination, hop_limit, segments_left, last, **fields):
        srh = SRH(next_header=IPV6, segments_left=segments_left, segment_list=[last, SEGMENT_2, SID_AD, SID])
        return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING, **fields) / srh

    group.add(
        "end_am_nat_back_to_a_dynamic_proxy", [DRAFT, "service-programming 6.2.1 S17.1"], ETH1, received(ETH1, inner6(62)),
        forward(ETH2, sent(ETH2, carrier(SEGMENT_2, 61, 1, OTHER, tc=0x28, fl=0x0BEEF) / inner6(61))), NO_LINUX,
        earlier=[(ETH2, received(ETH2, carrier(OTHER, 62, 2, LAST) / inner6(64)))],
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("end_am_nat", "End.AM with flavor NAT.", NODE)
    add_cases(group)
    add_learned(group)
    return [group]
