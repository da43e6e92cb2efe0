"""End.T (RFC 8986 4.3)."""

from scapy.layers.inet6 import IPv6

from .case import Group, drop, forward, kernel
from .node import ETH0, ETH1, ETH2, HEADEND, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import ROUTING, SRH, TCP_PROTOCOL, UDP_PROTOCOL, pattern, tcp6, udp6

SID = "fc0f::74"
NODE = node(
    routes=[
        f"{SID}/128 encap seg6local action End.T table 100 dev eth0",
        "fc0f::75/128 encap seg6local action End.T table 200 dev eth0",
        "fc0f::1/128 encap seg6local action End dev eth0",
        "fc0a::/16 via fc02::1 dev eth2 table 100",
        "2001:db8:77::/48 via fc01::1 dev eth1 table 100",
        "blackhole fc0c::/16 table 100",
        "unreachable fc0d::/16 table 100",
        "fc0f::/16 via fc02::1 dev eth2 table 100",
        "::/0 via fc01::1 dev eth1 table 200",
    ],
)
ONE_ERROR = {"route": f"{SID}/128", "packets": 0, "errors": 1}


def packet(destination, hop_limit, segments_left, segments, sid_payload=None):
    """SRH and UDP."""
    payload = sid_payload or udp6(HEADEND, segments[0])
    next_header = TCP_PROTOCOL if sid_payload else UDP_PROTOCOL
    return (
        IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING)
        / SRH(next_header=next_header, segments_left=segments_left, segment_list=segments)
        / payload
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("end_t", "End.T: looks up the next segment in a given table.", NODE)
    two = [SEGMENT_1, SID]
    group.add(
        "end_t_looks_up_in_its_table", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 1, two)), forward(ETH2, sent(ETH2, packet(SEGMENT_1, 63, 0, two))),
        about="fc0a::/16 is behind eth1 in table main and behind eth2 in table 100.",
        counters={"route": f"{SID}/128", "packets": 1, "errors": 0},
    )
    only = ["2001:db8:77::1", SID]
    group.add(
        "end_t_finds_what_only_its_table_has", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 1, only)), forward(ETH1, sent(ETH1, packet(only[0], 63, 0, only))),
    )
    default = ["2001:db8:88::1", "fc0f::75"]
    group.add(
        "end_t_follows_a_default_route_of_its_table", "8986 4.3", ETH0,
        received(ETH0, packet("fc0f::75", 64, 1, default)), forward(ETH1, sent(ETH1, packet(default[0], 63, 0, default))),
    )
    segment = tcp6(HEADEND, SEGMENT_1, pattern(500))
    group.add(
        "end_t_carries_tcp", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 1, two, segment)), forward(ETH2, sent(ETH2, packet(SEGMENT_1, 63, 0, two, segment))),
    )
    reduced = [SEGMENT_2, SEGMENT_1]
    group.add(
        "end_t_of_a_reduced_srh", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 2, reduced)), forward(ETH2, sent(ETH2, packet(SEGMENT_1, 63, 1, reduced))),
    )
    local = [SEGMENT_1, "fc0f::1", SID]
    group.add(
        "end_t_does_not_see_a_sid_of_another_table", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 2, local)), forward(ETH2, sent(ETH2, packet("fc0f::1", 63, 1, local))),
        about="fc0f::1 is a SID in table main, but table 100 has a route to it by eth2.",
    )
    group.add(
        "end_t_without_a_route_in_its_table", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 1, [SEGMENT_2, SID])), kernel("route_miss"),
        about="Table main has a route, but End.T searches only table 100.",
    )
    group.add(
        "end_t_to_a_blackhole_of_its_table", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 1, ["fc0c::1", SID])), drop("blackhole"),
    )
    group.add(
        "end_t_to_an_unreachable_route_of_its_table", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 1, ["fc0d::1", SID])), kernel("route_type"),
    )
    group.add(
        "end_t_with_segments_left_zero", "8986 4.3", ETH0,
        received(ETH0, packet(SID, 64, 0, [SID])), drop("segments_left_zero"), counters=ONE_ERROR,
    )
    group.add(
        "end_t_without_an_srh", "8986 4.3", ETH0,
        received(ETH0, IPv6(src=HEADEND, dst=SID, hlim=64, nh=UDP_PROTOCOL) / udp6(HEADEND, SID)),
        drop("no_srh"), counters=ONE_ERROR,
    )
    group.add(
        "end_t_with_hop_limit_1", "8986 4.1 S05", ETH0,
        received(ETH0, packet(SID, 1, 1, two)), drop("hop_limit"), counters=ONE_ERROR,
    )
    return [group]
