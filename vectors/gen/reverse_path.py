"""Reverse path filtering (RFC 3704) of IPv4 packets, received or decapsulated by End.DX4."""

from scapy.layers.inet6 import IPv6

from .case import Group, forward, kernel
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST4_1, node, received, sent
from .wire import IPV4, ipv4, udp4

NODE = node(
    routes=[
        "192.0.2.0/24 via 10.0.0.1 dev eth0",
        "fc0f::d4/128 encap seg6local action End.DX4 nh4 203.0.113.99 dev eth0",
        "fc0f::d40/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0",
    ],
)
NODE["ports"]["eth0"]["rp_filter"] = 1
NODE["ports"]["eth1"]["rp_filter"] = 2
NOWHERE = "10.250.0.1"


def rules():
    """The reverse lookup uses the egress port of the packet as ingress port."""
    record = node(routes=["fc0f::d4/128 encap seg6local action End.DX4 nh4 203.0.113.99 dev eth0"],
                  rules=["priority 100 iif eth1 blackhole"])
    record["ports"]["eth0"]["rp_filter"] = 2
    group = Group("reverse_path_rules", "rp_filter on a port, and a rule for another one.", record)

    def packet(ttl):
        return ipv4(src=HOST4_1, dst="203.0.113.1", ttl=ttl) / udp4()

    def decapsulated(port):
        return received(port, IPv6(src=HEADEND, dst="fc0f::d4", nh=IPV4) / packet(64))

    group.add("reverse_path_where_rules_differ", "-", ETH0, received(ETH0, packet(64)), kernel("rule"))
    group.add("reverse_path_of_end_dx4_where_rules_differ", "-", ETH0, decapsulated(ETH0), kernel("reverse_path"),
              about="The next hop is that of the ingress port. The reverse lookup uses the egress port's rules.")
    group.add(
        "reverse_path_off_where_rules_differ", "-", ETH2, received(ETH2, packet(64)), forward(ETH2, sent(ETH2, packet(63))),
    )
    return group


def groups():
    """Returns the vector files of this module."""
    group = Group("reverse_path", "rp_filter: 1 (strict) on eth0, 2 (loose) on eth1, 0 on eth2.", NODE)

    def packet(source, ttl):
        return ipv4(src=source, dst="203.0.113.1", ttl=ttl) / udp4()

    ways = (
        ("ipv4", lambda inner: inner),
        ("end_dx4", lambda inner: IPv6(src=HEADEND, dst="fc0f::d4", nh=IPV4) / inner),
        ("end_dx4_with_nh4_unspecified", lambda inner: IPv6(src=HEADEND, dst="fc0f::d40", nh=IPV4) / inner),
    )
    for way, wrapped in ways:
        for name, port, source, passes in (
            ("strict_with_a_source_behind_the_port", ETH0, HOST4_0, True),
            ("strict_with_a_source_behind_another_port", ETH0, HOST4_1, False),
            ("strict_with_a_source_that_has_no_route", ETH0, NOWHERE, False),
            ("loose_with_a_source_behind_another_port", ETH1, HOST4_0, True),
            ("loose_with_a_source_that_has_no_route", ETH1, NOWHERE, False),
            ("off_with_a_source_that_has_no_route", ETH2, NOWHERE, True),
        ):
            group.add(
                f"reverse_path_of_{way}_{name}", "-", port, received(port, wrapped(packet(source, 64))),
                forward(ETH2, sent(ETH2, packet(source, 63))) if passes else kernel("reverse_path"),
            )
    return [group, rules()]
