"""SR policies (RFC 9256): weighted segment lists, preference, validity, binding SID, drop-upon-invalid, steering by DSCP.

The list of a flow follows from the description of the hash, as in `multipath.py`, over the received
packet.
"""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, drop, forward, kernel, skip
from .flow_label import label4, label6, ports
from .multipath import addresses4, addresses6, chosen, four, ports as flow_ports, srh
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST_0, node, received, sent
from .wire import IPV4, IPV6 as IPV6_HEADER, ROUTING, SRH, UDP_PROTOCOL, ipv4, udp4, udp6

LINUX = skip("Linux has no SR policies")
TUNSRC = "fc00::2"
SEED = 0x5EED

# Lists behind eth1 and eth2.
LEFT, RIGHT, THIRD = ["fc0a::1", "fc0a::2"], ["fc0b::1"], ["fc0a::3"]
VALID = (
    "weighted color 100 endpoint fc0a::ff bsid fc0f::b1 segs fc0a::1,fc0a::2 weight 3 segs fc0b::1 weight 1",
    "reduced color 101 endpoint fc0a::ff bsid fc0f::b2 mode encap.red tunsrc fc00::9 segs fc0a::1,fc0a::2",
    # 1: the candidate path with the highest preference is invalid.
    "backup color 102 endpoint fc0a::ff preference 300 segs 2001:db8:dead::1 segs fc0e::1 preference 200 segs fc0b::1 "
    "preference 50 segs fc0a::1",
    # The only valid list gets all packets.
    "partial color 103 endpoint fc0a::ff bsid fc0f::b3 segs fc0e::1 weight 200 segs fc0b::1 weight 1",
    "low color 104 endpoint fc0a::ff segs fc0a::3",
    # One of the two next hops of its route is not resolved.
    "half color 105 endpoint fc0a::ff segs fc0c::1",
    # The route to its first segment also encapsulates.
    "nested color 106 endpoint fc0a::ff segs fc0c:9::e",
)
INVALID = (
    "gone color 110 endpoint fc0a::ff bsid fc0f::c0 segs 2001:db8:dead::1",
    "drops color 111 endpoint fc0a::ff bsid fc0f::c1 drop-upon-invalid segs fc0e::1 segs fc0d::1",
    # A policy also steers the first segment.
    "circular color 112 endpoint fc0a::ff segs 2001:db8:cc::1",
    "itself color 113 endpoint fc0a::ff segs fc0f::b1",
    "unsigned color 114 endpoint fc0a::ff hmac 7 segs fc0a::1",
)
NODE = node(
    routes=[
        "fc0e::/16 via fc01::66 dev eth1",
        "unreachable fc0d::/16",
        "fc0c::/16 nexthop via fc01::1 dev eth1 nexthop via fc02::66 dev eth2",
        "fc0c:9::/48 encap seg6 mode encap segs fc0b::9 dev eth1",
        "2001:db8:e0::/44 via fc02::1 dev eth2",
        "2001:db8:e1::/48 via fc02::1 dev eth2",
        "10.240.0.0/16 via 10.2.0.1 dev eth2",
        "2001:db8:e1::/48 policy weighted",
        "2001:db8:e2::/48 policy reduced",
        "2001:db8:e3::/48 policy backup",
        "2001:db8:e4::/48 policy partial",
        "2001:db8:e5::/48 policy gone",
        "2001:db8:e6::/48 policy drops",
        "2001:db8:cc::/48 policy circular",
        "2001:db8:e7::/48 policy itself",
        "10.240.0.0/16 policy weighted",
        "10.241.0.0/16 policy drops",
        "2001:db8:e8::/48 dscp 46 policy low dscp 10,12-14 policy weighted",
        "2001:db8:e9::/48 policy backup dscp 0 policy gone dscp 46 policy low dscp 8 policy drops",
        "2001:db8:ea::/48 dscp 46 policy low dscp 10 policy weighted",
        "2001:db8:ea:1::/64 dscp 8 policy backup dscp 9 policy gone",
        "2001:db8:eb::/48 policy unsigned",
        "10.2.0.0/24 dscp 46 policy low",
        "2001:db8:ee::/48 from 2001:db8:77::/48 via fc01::1 dev eth1",
        "2001:db8:ee::/48 dscp 46 policy low",
        "2001:db8:ec::/48 policy half",
        "2001:db8:ed::/48 policy nested",
        "2001:db8:dc::/48 dscp 46 policy low",
        "10.240.7.0/24 dscp 46 policy low",
    ],
    policies=VALID + INVALID,
    tunsrc=TUNSRC,
    multipath_hash_seed=SEED,
)


def encapsulated(path, inner, label, proto=IPV6_HEADER, traffic_class=0, reduced=False, source=TUNSRC):
    """The inner packet behind the headers of a list."""
    outer = IPv6(src=source, dst=path[0], hlim=64, fl=label, tc=traffic_class, nh=ROUTING)
    if not reduced:
        return outer / srh(path, len(path) - 1, proto) / Raw(bytes(inner))
    header = SRH(next_header=proto, segments_left=len(path) - 1, last_entry=len(path) - 2, segment_list=path[:0:-1])
    return outer / header / Raw(bytes(inner))


def plain(destination, label=7, hop_limit=64, dscp=0):
    """A packet from the host."""
    return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, fl=label, tc=dscp << 2, nh=UDP_PROTOCOL) / udp6(HOST_0, destination)


def groups():
    """Returns the vector files of this module."""
    group = Group("policy", "SR policies at a headend, with and without a valid segment list.", NODE)

    def add(name, rfc, packet, expect, about="", counters=None, port=ETH0):
        group.add(f"policy_{name}", rfc, port, received(port, packet), expect, LINUX, about, counters)

    def steers(name, rfc, destination, path, egress, label=7, dscp=0, counters=None, about="", **how):
        inner = plain(destination, label, 63, dscp)
        add(name, rfc, plain(destination, label, 64, dscp),
            forward(egress, sent(egress, encapsulated(path, inner, label, traffic_class=dscp << 2, **how))), about, counters)

    both = ((LEFT, ETH1), (RIGHT, ETH2))
    for label in (1, 2, 3, 5, 0x12345, 0xFFFFF):
        destination = "2001:db8:e1::1"
        path, egress = both[chosen(addresses6(HOST_0, destination) + [label], (3, 1))]
        steers(f"flow_label_{label:05x}_chooses_a_list_by_weight", "9256 2.11", destination, path, egress, label,
               counters={"route": "2001:db8:e1::/48", "packets": 1, "errors": 0})
    for sport in (1000, 1001, 1002, 1003):
        destination, dport = "10.240.0.1", 4789
        packet = ipv4(src=HOST4_0, dst=destination, ttl=64) / udp4(source_port=sport, destination_port=dport)
        inner = ipv4(src=HOST4_0, dst=destination, ttl=63) / udp4(source_port=sport, destination_port=dport)
        words = addresses4(HOST4_0, destination) + [flow_ports(17, four(sport, dport))]
        path, egress = both[chosen(words, (3, 1))]
        label = label4(HOST4_0, destination, 17, ports(sport, dport))
        add(f"of_ipv4_port_{sport}_chooses_a_list_by_weight", "9256 2.11", packet,
            forward(egress, sent(egress, encapsulated(path, inner, label, IPV4))))
    steers("with_encap_red_and_a_source_of_its_own", ["9256 2.2", "8986 5.2"], "2001:db8:e2::1", LEFT, ETH1, reduced=True,
           source="fc00::9", counters={"route": "2001:db8:e2::/48", "packets": 1, "errors": 0})
    steers("whose_best_candidate_path_is_invalid_takes_the_next", ["9256 2.9", "9256 5.1"], "2001:db8:e3::1", RIGHT, ETH2)
    for label in (1, 2, 3, 4):
        steers(f"sends_flow_{label}_by_its_only_valid_list", ["9256 2.11", "9256 5.1"], "2001:db8:e4::1", RIGHT, ETH2, label)
    for label in (1, 2, 3, 4):
        steers(f"sends_flow_{label}_by_the_next_hop_that_is_resolved", "9256 5.1", "2001:db8:ec::1", ["fc0c::1"], ETH1, label)
    destination = "2001:db8:ed::1"
    within = encapsulated(["fc0c:9::e"], plain(destination, hop_limit=63), 7)
    within.hlim = 63
    add("whose_first_segment_has_a_route_that_encapsulates", ["9256 5.1", "8986 5.1"], plain(destination),
        forward(ETH2, sent(ETH2, encapsulated(["fc0b::9"], within, 7))))

    for number, name, why in (
        (5, "without_a_route", ""), (7, "whose_first_segment_is_its_own_nodes_binding_sid", ""),
        (0xB, "that_signs_with_a_key_that_is_not_there", ""),
    ):
        destination = f"2001:db8:e{number:x}::1"
        add(f"{name}_leaves_packets_to_the_ip_route", "9256 8.1", plain(destination),
            forward(ETH2, sent(ETH2, plain(destination, hop_limit=63))), why)
    add("whose_first_segment_is_steered_into_it_is_invalid", "9256 5.1", plain("2001:db8:cc::1"), kernel("route_miss"))
    dropped = {"route": "2001:db8:e6::/48", "packets": 0, "errors": 1}
    add("drops_upon_invalid", "9256 8.2", plain("2001:db8:e6::1"), drop("policy_invalid"), counters=dropped)
    add("drops_ipv4_upon_invalid", "9256 8.2", ipv4(src=HOST4_0, dst="10.241.0.1", ttl=64) / udp4(), drop("policy_invalid"))

    # Binding SIDs.
    def bound(destination, segments_left, hop_limit, label=9):
        header = SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=["fc0b::7", sid])
        return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, fl=label, nh=ROUTING) / header / udp6(HEADEND, "fc0b::7")

    for label in (1, 2, 3, 4):
        sid = "fc0f::b1"
        path, egress = both[chosen(addresses6(HEADEND, sid) + [label], (3, 1))]
        add(f"binding_sid_takes_flow_{label}_by_weight", ["9256 8.3", "8986 4.13"], bound(sid, 1, 64, label),
            forward(egress, sent(egress, encapsulated(path, bound("fc0b::7", 0, 63, label), label))),
            counters={"route": "fc0f::b1/128", "packets": 1, "errors": 0})
    sid = "fc0f::b2"
    add("binding_sid_with_encap_red", ["9256 8.3", "8986 4.14"], bound(sid, 1, 64),
        forward(ETH1, sent(ETH1, encapsulated(LEFT, bound("fc0b::7", 0, 63), 9, reduced=True, source="fc00::9"))))
    sid = "fc0f::b3"
    add("binding_sid_uses_valid_lists_alone", ["9256 8.3", "9256 2.11"], bound(sid, 1, 64),
        forward(ETH2, sent(ETH2, encapsulated(RIGHT, bound("fc0b::7", 0, 63), 9))))
    sid = "fc0f::b1"
    add("binding_sid_with_segments_left_0_is_no_last_segment", "8986 4.13", bound(sid, 0, 64), drop("segments_left_zero"))
    sid = "fc0f::c1"
    add("binding_sid_drops_upon_invalid", "9256 8.2", bound(sid, 1, 64), drop("policy_invalid"))
    sid = "fc0f::c0"
    add("binding_sid_of_an_invalid_policy_is_none", "9256 6.2", bound(sid, 1, 64), kernel("route_miss"))

    # By DSCP.
    low = ("low", THIRD, ETH1)
    for dscp in (10, 12, 14):
        destination = "2001:db8:e8::1"
        path, egress = both[chosen(addresses6(HOST_0, destination) + [7], (3, 1))]
        steers(f"for_dscp_{dscp}_with_two_lists", "9256 8.6", destination, path, egress, dscp=dscp)
    steers("for_dscp_46", "9256 8.6", "2001:db8:e8::1", low[1], low[2], dscp=46,
           counters={"route": "2001:db8:e8::/48", "packets": 1, "errors": 0})
    for dscp in (0, 11, 47, 63):
        destination = "2001:db8:e8::1"
        add(f"not_for_dscp_{dscp}_leaves_it_to_the_ip_route", "9256 8.6", plain(destination, dscp=dscp),
            forward(ETH2, sent(ETH2, plain(destination, hop_limit=63, dscp=dscp))),
            "The packet takes the route of the shorter prefix 2001:db8:e0::/44.")
    steers("for_other_dscps", "9256 8.6", "2001:db8:e9::1", RIGHT, ETH2, dscp=20)
    steers("for_other_dscps_takes_those_of_an_invalid_one", "9256 8.6", "2001:db8:e9::1", RIGHT, ETH2)
    steers("for_dscp_46_before_the_one_for_all", "9256 8.6", "2001:db8:e9::1", low[1], low[2], dscp=46)
    add("for_dscp_8_drops_upon_invalid", ["9256 8.2", "9256 8.6"], plain("2001:db8:e9::1", dscp=8), drop("policy_invalid"))
    add("for_no_dscp_of_the_packet_and_no_ip_route", "9256 8.6", plain("2001:db8:dc::1"), kernel("route_miss"),
        "The kernel may have a route.")
    # By DSCP, around a prefix that is steered by DSCP.
    destination, around = "2001:db8:ea:1::1", {"route": "2001:db8:ea::/48", "packets": 1, "errors": 0}
    steers("for_dscp_8_inside_a_prefix_that_is_steered_by_dscp", "9256 8.6", destination, RIGHT, ETH2, dscp=8,
           counters={"route": "2001:db8:ea:1::/64", "packets": 1, "errors": 0})
    steers("for_dscp_46_around_a_prefix_that_is_steered_by_dscp", "9256 8.6", destination, low[1], low[2], dscp=46, counters=around)
    path, egress = both[chosen(addresses6(HOST_0, destination) + [7], (3, 1))]
    steers("for_dscp_10_around_a_prefix_that_is_steered_by_dscp", "9256 8.6", destination, path, egress, dscp=10, counters=around)
    for dscp in (0, 9, 63):
        add(f"for_dscp_{dscp}_of_neither_of_two_prefixes_that_are_steered_by_dscp", "9256 8.6", plain(destination, dscp=dscp),
            forward(ETH2, sent(ETH2, plain(destination, hop_limit=63, dscp=dscp))), "The packet takes the route of the shorter prefix 2001:db8:e0::/44.")
    inner = ipv4(src=HOST4_0, dst="10.240.7.1", ttl=63, tos=46 << 2) / udp4()
    packet = ipv4(src=HOST4_0, dst="10.240.7.1", ttl=64, tos=46 << 2) / udp4()
    add("for_dscp_46_of_ipv4", "9256 8.6", packet, forward(ETH1, sent(ETH1, encapsulated(
        THIRD, inner, label4(HOST4_0, "10.240.7.1", 17, bytes(udp4())[:4]), IPV4, 46 << 2))))

    destination = "2001:db8:ee::1"
    add("not_for_dscp_0_leaves_it_to_no_route_for_another_source", "9256 8.6", plain(destination),
        forward(ETH2, sent(ETH2, plain(destination, hop_limit=63))), "The packet takes the route of the shorter prefix 2001:db8:e0::/44.")

    # By DSCP, on a connected prefix.
    def to_neighbor(ttl, dscp):
        return ipv4(src=HOST4_0, dst="10.2.0.1", ttl=ttl, tos=dscp << 2) / udp4()

    add("for_dscp_46_to_a_neighbor", "9256 8.6", to_neighbor(64, 46), forward(ETH1, sent(
        ETH1, encapsulated(THIRD, to_neighbor(63, 46), label4(HOST4_0, "10.2.0.1", 17, bytes(udp4())[:4]), IPV4, 46 << 2))))
    add("not_for_dscp_0_leaves_it_to_the_neighbor", "9256 8.6", to_neighbor(64, 0), forward(ETH2, sent(ETH2, to_neighbor(63, 0))))
    return [group]
