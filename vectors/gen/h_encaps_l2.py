"""H.Encaps.L2 (RFC 8986 5.3) and H.Encaps.L2.Red (5.4).

The payload is the received frame, from its destination MAC address to the end of the IP packet, unchanged. Linux copies
the inner IPv6 header's whole traffic class and hop limit (less 1) to the outer one; with IPv4, 0 and 64 less 1.
"""

from scapy.layers.inet6 import IPv6

from .case import SAME, Group, differs, forward
from .flow_label import label4, label6
from .h_encaps import PATHS, PORTS, TUNSRC, WHY4, egress_of, headers, prefix4, prefix6, routes
from .node import ETH0, HOST4_0, HOST_0, node, received, sent
from .wire import ETHERNET, TCP_PROTOCOL, UDP_PROTOCOL, ipv4, pattern, tcp6, udp4, udp6

WHY6 = "Linux copies the inner traffic class with its ECN bits, the flow label and the hop limit less 1"


class Headend:
    """Adds cases of one mode."""

    def __init__(self, group, prefix, rfc, reduced):
        self.group, self.prefix, self.rfc, self.reduced = group, prefix, rfc, reduced

    def add(self, name, count, packet, ours, linux, trailer=b"", why=WHY6, about="", counters=None):
        """`ours` and `linux`: the fields of the outer header."""
        path = PATHS[count]
        egress = egress_of(path)
        frame = received(ETH0, packet)
        expect = forward(egress, sent(egress, headers(path, ETHERNET, self.reduced, **ours) / frame))
        if isinstance(linux, dict):
            outcome = forward(egress, sent(egress, headers(path, ETHERNET, self.reduced, **linux) / frame))
            linux = SAME if outcome == expect else differs(outcome, why)
        elif linux == "drop":
            linux = differs("drop", why)
        self.group.add(
            f"{self.prefix}_{name}", self.rfc, ETH0, bytes(frame) + trailer, expect, linux, about, counters,
        )

    def ipv6(self, name, count, hop_limit=64, traffic_class=0, label=0, payload=None, protocol=UDP_PROTOCOL, linux=None, **more):
        """A frame with an IPv6 packet."""
        destination = f"{prefix6(count)}1"
        payload = udp6(HOST_0, destination) if payload is None else payload
        packet = IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=protocol, tc=traffic_class, fl=label) / payload
        computed = label or label6(HOST_0, destination, protocol, bytes(payload)[:4])
        self.add(
            name, count, packet,
            {"hop_limit": 64, "traffic_class": traffic_class & 0xFC, "label": computed},
            linux or {"hop_limit": hop_limit - 1, "traffic_class": traffic_class, "label": label}, **more,
        )

    def ipv4(self, name, count, ttl=64, tos=0, **more):
        """A frame with an IPv4 packet."""
        destination = f"{prefix4(count)}1"
        self.add(
            name, count, ipv4(src=HOST4_0, dst=destination, ttl=ttl, tos=tos) / udp4(),
            {"hop_limit": 64, "traffic_class": tos & 0xFC, "label": label4(HOST4_0, destination, UDP_PROTOCOL, PORTS)},
            {"hop_limit": 63}, why=WHY4, **more,
        )


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "h_encaps_l2", "H.Encaps.L2: an outer IPv6 header with an SRH around the received Ethernet frame.",
        node(routes=routes("l2encap", PATHS), tunsrc=TUNSRC),
    )
    headend = Headend(group, "h_encaps_l2", "8986 5.3", False)
    for count in PATHS:
        name = f"{count}_segment{'s' * (count > 1)}"
        headend.ipv6(f"of_ipv6_with_{name}", count, counters={"route": f"{prefix6(count)}/48", "packets": 1, "errors": 0})
        headend.ipv4(f"of_ipv4_with_{name}", count)
    headend.ipv6("of_ipv6_where_linux_does_the_same", 2, hop_limit=65, traffic_class=0x28, label=0x4D2)
    headend.ipv6("of_ipv6_copies_the_flow_label", 2, label=0x98765)
    for name, bits in (("ect0", 2), ("ect1", 1), ("ce", 3)):
        headend.ipv6(f"of_ipv6_{name}_is_not_ect_outside", 2, traffic_class=46 << 2 | bits)
    headend.ipv4("of_ipv4_copies_dscp_without_ecn", 2, tos=46 << 2 | 2)
    headend.ipv6("of_ipv6_tcp", 2, payload=tcp6(HOST_0, f"{prefix6(2)}1", pattern(900)), protocol=TCP_PROTOCOL)
    headend.ipv6("of_ipv6_with_hop_limit_1", 2, hop_limit=1, linux="drop",
                 why="Linux takes the outer hop limit from the inner packet, where it has expired",
                 about="The node does not route the inner packet, so its hop limit does not matter.")
    headend.ipv4("of_ipv4_with_ttl_1", 2, ttl=1)
    headend.ipv6("trims_ethernet_padding", 2, trailer=b"padding")

    red = Group(
        "h_encaps_l2_red", "H.Encaps.L2.Red: as H.Encaps.L2, but only the destination address has the first segment.",
        node(routes=routes("l2encap.red", {1: PATHS[1], 3: PATHS[3]}), tunsrc=TUNSRC),
    )
    headend = Headend(red, "h_encaps_l2_red", "8986 5.4", True)
    headend.ipv6("of_ipv6_with_1_segment", 1)
    headend.ipv6("of_ipv6_with_3_segments", 3)
    headend.ipv4("of_ipv4_with_1_segment", 1)
    headend.ipv4("of_ipv4_with_3_segments", 3)
    return [group, red]
