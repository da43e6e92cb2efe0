"""Settings of the node for all headends: tunnel source and flow label."""

from scapy.layers.inet6 import IPv6

from .case import Group, differs, forward, skip
from .flow_label import label4, label6
from .h_encaps import PORTS, WHY4, WHY6, headers
from .node import ETH0, ETH1, ETH2, HOST4_0, HOST_0, node, received, sent
from .wire import IPV4, IPV6, UDP_PROTOCOL, ipv4, udp4, udp6

DESTINATION = "2001:db8:c00::1"
DESTINATION4 = "10.100.0.1"
PATH = ["fc0a::1", "fc0b::2"]
WORDS = f"encap seg6 mode encap segs {','.join(PATH)}"
ROUTES = [f"2001:db8:c00::/48 {WORDS} dev eth1", f"10.100.0.0/24 {WORDS} dev eth1"]


def inner6(hop_limit, label, destination=DESTINATION):
    """The IPv6 packet."""
    return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=UDP_PROTOCOL, fl=label) / udp6(HOST_0, destination)


def inner4(ttl):
    """The IPv4 packet."""
    return ipv4(src=HOST4_0, dst=DESTINATION4, ttl=ttl) / udp4()


def add6(group, name, rfc, inner_label, ours, theirs, source, destination=DESTINATION, about="", linux=None,
         path=None, egress=ETH1):
    """IPv6: flow labels of the outer header here and on Linux."""
    path = path or PATH
    expect = headers(path, IPV6, hop_limit=64, label=ours, source=source) / inner6(63, inner_label, destination)
    other = headers(path, IPV6, hop_limit=63, label=theirs, source=source) / inner6(64, inner_label, destination)
    group.add(
        name, rfc, ETH0, received(ETH0, inner6(64, inner_label, destination)), forward(egress, sent(egress, expect)),
        linux or differs(forward(egress, sent(egress, other)), WHY6), about,
    )


def add4(group, name, rfc, ours, source, linux=None):
    """IPv4: the flow label of the outer header here; on Linux it is 0."""
    expect = headers(PATH, IPV4, hop_limit=64, label=ours, source=source) / inner4(63)
    other = headers(PATH, IPV4, hop_limit=63, label=0, source=source) / inner4(64)
    group.add(
        name, rfc, ETH0, received(ETH0, inner4(64)), forward(ETH1, sent(ETH1, expect)),
        linux or differs(forward(ETH1, sent(ETH1, other)), WHY4),
    )


def flow_labels():
    """`seg6_flowlabel` -1 and 1; all other files have 0."""
    computed6, computed4 = label6(HOST_0, DESTINATION, UDP_PROTOCOL, PORTS), label4(HOST4_0, DESTINATION4, UDP_PROTOCOL, PORTS)
    zero = Group(
        "flow_label_zero", "seg6_flowlabel -1: the outer flow label is 0.",
        node(routes=ROUTES, tunsrc="fc00::2", seg6_flowlabel=-1),
    )
    add6(zero, "flow_label_zero_of_ipv6_with_a_label", "6437 3", 0x12345, 0, 0, "fc00::2")
    add6(zero, "flow_label_zero_of_ipv6_without_a_label", "6437 3", 0, 0, 0, "fc00::2")
    add4(zero, "flow_label_zero_of_ipv4", "6437 3", 0, "fc00::2")

    hashed = Group(
        "flow_label_computed", "seg6_flowlabel 1: the headend always computes the outer flow label.",
        node(routes=ROUTES, tunsrc="fc00::2", seg6_flowlabel=1),
    )
    random = skip("Linux computes it from a hash with a random key (skb_get_hash)")
    add6(hashed, "flow_label_computed_of_ipv6_with_a_label", "6437 3", 0x12345, computed6, None, "fc00::2", linux=random)
    add6(hashed, "flow_label_computed_of_ipv6_without_a_label", "6437 3", 0, computed6, None, "fc00::2", linux=random)
    add4(hashed, "flow_label_computed_of_ipv4", "6437 3", computed4, "fc00::2", linux=random)
    return [zero, hashed]


def tunnel_sources():
    """The origin of the outer source address."""
    node_wide = Group(
        "tunsrc", "The outer source is the node's tunsrc, even if no port has that address.",
        node(routes=ROUTES, tunsrc="fc0f:0:0:5::5"),
    )
    add6(node_wide, "tunsrc_of_the_node_ipv6", "8986 5.1 S02", 9, 9, 9, "fc0f:0:0:5::5")
    add4(node_wide, "tunsrc_of_the_node_ipv4", "8986 5.1 S02", label4(HOST4_0, DESTINATION4, UDP_PROTOCOL, PORTS), "fc0f:0:0:5::5")

    unset = Group(
        "tunsrc_unset", "Without tunsrc the outer source is the address of the route's interface.",
        node(routes=ROUTES + [
            "2001:db8:c01::/48 encap seg6 mode encap segs fc0b::1,fc0a::2 dev eth2",
            "2001:db8:c02::/48 encap seg6 mode encap segs fc0b::1,fc0a::2 dev eth1",
        ]),
    )
    add6(unset, "tunsrc_unset_ipv6", "8986 5.1 S02", 9, 9, 9, "fc01::2")
    add4(unset, "tunsrc_unset_ipv4", "8986 5.1 S02", label4(HOST4_0, DESTINATION4, UDP_PROTOCOL, PORTS), "fc01::2")
    path = ["fc0b::1", "fc0a::2"]
    add6(unset, "tunsrc_unset_another_port", "8986 5.1 S02", 9, 9, 9, "fc02::2", "2001:db8:c01::1", path=path, egress=ETH2)
    add6(unset, "tunsrc_unset_route_of_one_port_first_segment_behind_another", "8986 5.1 S02", 9, 9, 9, "fc01::2",
         "2001:db8:c02::1", path=path, egress=ETH2,
         about="The route names eth1, and the first segment is behind eth2. The source is an address of eth1, as on Linux (set_tun_src).")

    per_route = Group(
        "tunsrc_of_the_route", "The tunsrc of the route takes precedence over the node's.",
        node(routes=[f"2001:db8:c00::/48 {WORDS} tunsrc fc0f:0:0:7::7 dev eth1"], tunsrc="fc0f:0:0:5::5"),
    )
    add6(per_route, "tunsrc_of_the_route_ipv6", "8986 5.1 S02", 9, 9, 9, "fc0f:0:0:7::7",
         linux=skip("tunsrc of a route is newer than this kernel and iproute2"))
    return [node_wide, unset, per_route]


def groups():
    """Returns the vector files of this module."""
    return flow_labels() + tunnel_sources()
