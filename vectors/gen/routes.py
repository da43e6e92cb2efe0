"""Route types, metrics, tables, and routes that only the kernel can apply."""

from scapy.layers.inet6 import IPv6

from .case import Group, drop, forward, kernel
from .node import ETH0, ETH1, HOST4_0, HOST_0, node, received, sent
from .wire import NO_NEXT_HEADER, ipv4, udp4

NODE = node(
    routes=[
        "unreachable 2001:db8:d1::/48",
        "prohibit 2001:db8:d2::/48",
        "blackhole 2001:db8:d3::/48",
        "2001:db8:d4::/48 via fc01::66 dev eth1",
        "unreachable 10.201.0.0/16",
        "prohibit 10.202.0.0/16",
        "blackhole 10.203.0.0/16",
        "10.204.0.0/16 via 10.1.0.66 dev eth1",
        "2001:db8:e1::/48 via fc02::1 dev eth2 metric 2048",
        "2001:db8:e1::/48 via fc01::1 dev eth1 metric 512",
        "2001:db8:e2::/48 via fc01::1 dev eth1",
        "2001:db8:e2::/48 via fc02::1 dev eth2 table 100",
        "10.210.0.0/16 via 10.1.0.1 dev eth1",
        "10.210.0.0/16 via 10.2.0.1 dev eth2 table 100",
        "10.211.0.0/16 via 10.2.0.1 dev eth2 metric 20",
        "10.211.0.0/16 via 10.1.0.1 dev eth1 metric 10",
    ],
)


def six(destination, hop_limit, source=HOST_0):
    """A packet of this group."""
    return IPv6(src=source, dst=destination, hlim=hop_limit, nh=NO_NEXT_HEADER)


def four(destination, ttl, source=HOST4_0):
    """A packet of this group."""
    return ipv4(src=source, dst=destination, ttl=ttl) / udp4()


def add_types(group):
    """Route types and unresolved next hops."""
    for name, rfc, packet, outcome in (
        ("ipv6_no_route", "4443 3.1", six("2001:db8:dead::1", 64), kernel("route_miss")),
        ("ipv6_unreachable_route", "4443 3.1", six("2001:db8:d1::1", 64), kernel("route_type")),
        ("ipv6_prohibit_route", "4443 3.1", six("2001:db8:d2::1", 64), kernel("route_type")),
        ("ipv6_blackhole_route", "-", six("2001:db8:d3::1", 64), drop("blackhole")),
        ("ipv6_gateway_not_resolved", "4861 7.2", six("2001:db8:d4::1", 64), kernel("neighbor")),
        ("ipv6_neighbor_on_the_link_not_resolved", "4861 7.2", six("fc01::67", 64), kernel("neighbor")),
        ("ipv4_no_route", "1812 5.2.7.1", four("10.250.0.1", 64), kernel("route_miss")),
        ("ipv4_unreachable_route", "1812 5.2.7.1", four("10.201.0.1", 64), kernel("route_type")),
        ("ipv4_prohibit_route", "1812 5.2.7.1", four("10.202.0.1", 64), kernel("route_type")),
        ("ipv4_blackhole_route", "-", four("10.203.0.1", 64), drop("blackhole")),
        ("ipv4_gateway_not_resolved", "826", four("10.204.0.1", 64), kernel("neighbor")),
        ("ipv4_neighbor_on_the_link_not_resolved", "826", four("10.1.0.67", 64), kernel("neighbor")),
        ("ipv4_directed_broadcast", "2644 2", four("10.1.0.255", 64), kernel("multicast")),
    ):
        group.add(name, rfc, ETH0, received(ETH0, packet), outcome)


def add_tables(group):
    """Metrics, and tables that no rule names."""
    for name, packet in (
        ("ipv6_the_lowest_metric_wins", lambda limit: six("2001:db8:e1::1", limit)),
        ("ipv6_without_a_rule_table_100_is_not_asked", lambda limit: six("2001:db8:e2::1", limit)),
        ("ipv4_the_lowest_metric_wins", lambda limit: four("10.211.0.1", limit)),
        ("ipv4_without_a_rule_table_100_is_not_asked", lambda limit: four("10.210.0.1", limit)),
    ):
        group.add(name, "-", ETH0, received(ETH0, packet(64)), forward(ETH1, sent(ETH1, packet(63))))


def groups():
    """Returns the vector files of this module."""
    group = Group("routes", "Route types, metrics and tables.", NODE)
    add_types(group)
    add_tables(group)

    unsupported = Group(
        "kernel_routes", "Routes that only the kernel can apply.",
        node(
            routes=[
                "2001:db8:c1::/48 encap seg6 mode encap segs fc0a::1 hmac 7 dev eth1",
            ],
            tunsrc="fc00::2",
        ),
    )
    unsupported.add(
        "a_headend_that_signs_is_the_kernels", "8754 2.1.2", ETH0,
        received(ETH0, six("2001:db8:c1::1", 64)), kernel("hmac"),
    )
    return [group, unsupported]
