"""The edge of an SR domain (RFC 8754 5.1) drops packets from outside to its SIDs."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, drop, forward, kernel, skip
from .node import ETH0, ETH1, HEADEND, HOST4_0, HOST4_1, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import HOP_BY_HOP, NO_NEXT_HEADER, ROUTING, SRH, UDP_PROTOCOL, ipv4, udp4, udp6

END = "fc0f::1"
LINUX = skip("Linux has such a filter only in its firewall")
RFC = "8754 5.1"


def steered(hop_limit, destination, segments_left, source=HEADEND):
    """A packet that End forwards to a host behind eth1."""
    header = SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=[SEGMENT_1, END])
    return IPv6(src=source, dst=destination, hlim=hop_limit, nh=ROUTING) / header / udp6(source, SEGMENT_1)


def plain(source, destination, hop_limit=64):
    """A packet without SRv6."""
    return IPv6(src=source, dst=destination, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(source, destination)


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "domain", "A node at the edge of an SR domain: eth0 is outside, eth1 and eth2 are inside.",
        node(
            routes=[f"{END}/128 encap seg6local action End dev eth0", f"{HEADEND}/128 via fc01::1 dev eth1",
                    "2001:db8:1::/48 via fc00::1 dev eth0"],
            domain=["sid-block fc0f::/16", "sid-block fc00:aaaa::/32", "inside eth1", "inside eth2"],
        ),
    )

    def add(name, port, packet, expect, about=""):
        group.add(f"domain_{name}", RFC, port, received(port, packet), expect, LINUX, about)

    kept_out = drop("sid_block")
    add("sid_from_outside", ETH0, steered(64, END, 1, HOST_0), kept_out)
    add("sid_from_inside", ETH1, steered(64, END, 1), forward(ETH1, sent(ETH1, steered(63, SEGMENT_1, 0))))
    add("source_in_a_block_from_outside", ETH0, plain(HEADEND, HOST_1), kept_out, "No source outside the domain has such an address.")
    add("source_in_a_block_from_inside", ETH1, plain(HEADEND, HOST_0), forward(ETH0, sent(ETH0, plain(HEADEND, HOST_0, 63))))
    add("address_in_a_block_that_is_no_sid_from_outside", ETH0, plain(HOST_0, "fc0f:ffff::1"), kept_out)
    add("next_address_behind_a_block_from_outside", ETH0, plain(HOST_0, "fc10::1"), kernel("route_miss"))
    add("other_packets_from_outside", ETH0, plain(HOST_0, HOST_1), forward(ETH1, sent(ETH1, plain(HOST_0, HOST_1, 63))))
    add("ipv4_from_outside", ETH0, ipv4(src=HOST4_0, dst=HOST4_1, ttl=64) / udp4(),
        forward(ETH1, sent(ETH1, ipv4(src=HOST4_0, dst=HOST4_1, ttl=63) / udp4())))
    add("link_local_source_to_a_sid_from_outside", ETH0, plain("fe80::1", END), kept_out,
        "The kernel would accept any packet with a link-local source address.")
    add("sid_behind_hop_by_hop_options_from_outside", ETH0,
        IPv6(src=HOST_0, dst=END, nh=HOP_BY_HOP) / Raw(bytes([NO_NEXT_HEADER, 0, 5, 2, 0, 0, 1, 0])), kept_out)
    add("hop_limit_1_to_a_sid_from_outside", ETH0, plain(HOST_0, END, 1), kept_out)
    group.add(
        "domain_sid_from_outside_to_another_host", RFC, ETH0,
        bytes.fromhex("020000000099") + bytes(received(ETH0, steered(64, END, 1, HOST_0)))[6:], kept_out, LINUX,
        "The filter ignores the destination MAC address.",
    )
    return [group]
