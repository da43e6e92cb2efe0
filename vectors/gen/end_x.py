"""End.X (RFC 8986 4.2)."""

from scapy.layers.inet6 import IPv6

from .case import Group, differs, drop, forward, kernel
from .node import ETH0, ETH1, ETH2, HEADEND, PORTS, SEGMENT_1, node, received, sent
from .wire import DESTINATION_OPTIONS, OPTION_EXPERIMENT, ROUTING, SRH, UDP_PROTOCOL, options_header, padn, udp6

SID = "fc0f::a"
NODE = node(
    routes=[
        f"{SID}/128 encap seg6local action End.X nh6 fc02::1 dev eth0",
        "fc0f::a1/128 encap seg6local action End.X nh6 fc01::1 dev eth0",
        "fc0f::a2/128 encap seg6local action End.X nh6 fc01::66 dev eth0",
        "fc0f::a3/128 encap seg6local action End.X nh6 fc0b::99 dev eth0",
        "fc0f::a4/128 encap seg6local action End.X nh6 2001:db8:dead::1 dev eth0",
        # Linux adds this route with the link-local address, which the ports of the vectors do not have.
        "fe80::/64 dev eth0",
        "fc0f::a5/128 encap seg6local action End.X nh6 fe80::2 dev eth1",
        "fc0f::a6/128 encap seg6local action End.X nh6 fe80::2 dev eth2",
        "fc0f::1/128 encap seg6local action End dev eth0",
    ],
    neighbors=[f"fe80::2 lladdr {port.neighbor_mac} dev {port.name}" for port in PORTS],
    seg6_disabled=(ETH2,),
)
ONE_ERROR = {"route": f"{SID}/128", "packets": 0, "errors": 1}


def packet(sid, destination, hop_limit, segments_left, segments=None, **fields):
    """SRH and UDP; the segment list ends at `SEGMENT_1` behind eth1."""
    segments = segments or [SEGMENT_1, sid]
    return (
        IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING, tc=0x40, fl=0x00123)
        / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=segments, **fields)
        / udp6(HEADEND, segments[0])
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("end_x", "End.X: forwards to the next segment by a given adjacency.", NODE)
    group.add(
        "end_x_leaves_by_its_adjacency", "8986 4.2", ETH0,
        received(ETH0, packet(SID, SID, 64, 1)),
        forward(ETH2, sent(ETH2, packet(SID, SEGMENT_1, 63, 0))),
        about="The next segment's route points to eth1; the adjacency is on eth2.",
        counters={"route": f"{SID}/128", "packets": 1, "errors": 0},
    )
    group.add(
        "end_x_of_another_sid_and_adjacency", "8986 4.2", ETH0,
        received(ETH0, packet("fc0f::a1", "fc0f::a1", 64, 1)),
        forward(ETH1, sent(ETH1, packet("fc0f::a1", SEGMENT_1, 63, 0))),
    )
    three = [SEGMENT_1, "2001:db8:dead::7", SID]
    group.add(
        "end_x_needs_no_route_to_the_next_segment", "8986 4.2", ETH0,
        received(ETH0, packet(SID, SID, 64, 2, three)),
        forward(ETH2, sent(ETH2, packet(SID, "2001:db8:dead::7", 63, 1, three))),
    )
    local = [SEGMENT_1, "fc0f::1", SID]
    group.add(
        "end_x_sends_a_local_next_segment_out_as_well", "8986 4.2", ETH0,
        received(ETH0, packet(SID, SID, 64, 2, local)),
        forward(ETH2, sent(ETH2, packet(SID, "fc0f::1", 63, 1, local))),
    )
    group.add(
        "end_x_whose_next_hop_has_a_gateway", "8986 4.2", ETH0,
        received(ETH0, packet("fc0f::a3", "fc0f::a3", 64, 1)),
        forward(ETH2, sent(ETH2, packet("fc0f::a3", SEGMENT_1, 63, 0))),
        about="fc0b::99 is not on a link. The route fc0b::/16 via fc02::1 leads to it.",
    )
    for sid, port in (("fc0f::a5", ETH1), ("fc0f::a6", ETH2)):
        group.add(
            f"end_x_of_a_link_local_next_hop_on_{port.name}", "8986 4.2", ETH0,
            received(ETH0, packet(sid, sid, 64, 1)),
            forward(port, sent(port, packet(sid, SEGMENT_1, 63, 0))),
            differs(
                forward(ETH0, sent(ETH0, packet(sid, SEGMENT_1, 63, 0))),
                "seg6_lookup_any_nexthop looks a link-local nh6 up on the ingress link, not on the device of the SID's route",
            ),
            about="All three neighbors have the address fe80::2. The device of the SID's route selects the link.",
        )
    group.add(
        "end_x_of_a_reduced_srh", "8986 4.2", ETH0,
        received(ETH0, packet(SID, SID, 64, 2, [SEGMENT_1, "fc0a::2"])),
        forward(ETH2, sent(ETH2, packet(SID, "fc0a::2", 63, 1, [SEGMENT_1, "fc0a::2"]))),
    )
    group.add(
        "end_x_keeps_tlvs_and_tag", "8754 2.1", ETH0,
        received(ETH0, packet(SID, SID, 64, 1, tlvs=padn(6), tag=7)),
        forward(ETH2, sent(ETH2, packet(SID, SEGMENT_1, 63, 0, tlvs=padn(6), tag=7))),
    )

    def behind_options(destination, hop_limit, segments_left):
        return (
            IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=DESTINATION_OPTIONS)
            / options_header(ROUTING, OPTION_EXPERIMENT)
            / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=[SEGMENT_1, SID])
            / udp6(HEADEND, SEGMENT_1)
        )

    group.add(
        "end_x_behind_destination_options", "8200 4.1", ETH0,
        received(ETH0, behind_options(SID, 64, 1)), forward(ETH2, sent(ETH2, behind_options(SEGMENT_1, 63, 0))),
    )
    group.add(
        "end_x_whose_next_hop_is_not_resolved", "4861 7.2", ETH0,
        received(ETH0, packet("fc0f::a2", "fc0f::a2", 64, 1)), kernel("neighbor"),
    )
    group.add(
        "end_x_whose_next_hop_has_no_route", "8986 4.2", ETH0,
        received(ETH0, packet("fc0f::a4", "fc0f::a4", 64, 1)), kernel("route_miss"),
    )
    group.add(
        "end_x_with_segments_left_zero", "8986 4.2", ETH0,
        received(ETH0, packet(SID, SID, 64, 0, [SID])), drop("segments_left_zero"), counters=ONE_ERROR,
    )
    group.add(
        "end_x_without_an_srh", "8986 4.2", ETH0,
        received(ETH0, IPv6(src=HEADEND, dst=SID, hlim=64, nh=UDP_PROTOCOL) / udp6(HEADEND, SID)),
        drop("no_srh"), counters=ONE_ERROR,
    )
    group.add(
        "end_x_with_segments_left_beyond_last_entry", "8986 4.1 S09", ETH0,
        received(ETH0, packet(SID, SID, 64, 3)), drop("srh_segments_left"), counters=ONE_ERROR,
    )
    group.add(
        "end_x_with_hop_limit_1", "8986 4.1 S05", ETH0,
        received(ETH0, packet(SID, SID, 1, 1)), drop("hop_limit"), counters=ONE_ERROR,
    )
    group.add(
        "end_x_on_a_port_with_seg6_disabled", "8754 4.3.1", ETH2,
        received(ETH2, packet(SID, SID, 64, 1)), kernel("seg6_disabled"),
    )
    return [group]
