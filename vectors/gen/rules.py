"""Policy rules: the tables of a port, and rules that the fast path leaves to the kernel."""

from scapy.layers.inet6 import IPv6

from .case import Group, differs, drop, forward, kernel
from .h_encaps import headers
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_2, SEGMENT_1, node, received, sent
from .routes import four, six
from .wire import IPV4, IPV6, ROUTING, SRH, UDP_PROTOCOL, udp6

NODE = node(
    routes=[
        "2001:db8:e2::/48 via fc01::1 dev eth1",
        "2001:db8:e2::/48 via fc02::1 dev eth2 table 100",
        "throw 2001:db8:e3::/48 table 100",
        "2001:db8:e3::/48 via fc02::1 dev eth2",
        "::/0 via fc00::1 dev eth0 table 100",
        "2001:db8:e4::/48 via fc02::1 dev eth2",
        "10.210.0.0/16 via 10.1.0.1 dev eth1",
        "10.210.0.0/16 via 10.2.0.1 dev eth2 table 100",
        "10.211.0.0/16 via 10.2.0.1 dev eth2",
        "fc0f::1/128 encap seg6local action End dev eth0",
        "throw 2001:db8:e4:1::/64",
        "throw 10.211.1.0/24",
        "throw fc0f::/16 table 100",
        "fc0f::d6/128 encap seg6local action End.DX6 nh6 :: dev eth0",
        "fc0f::a1/128 encap seg6local action End.X nh6 fc0b::9 dev eth0",
        "fc0f::d9/128 encap seg6local action End.DX6 nh6 fc0b::9 dev eth0",
        "fc0f::d4/128 encap seg6local action End.DX4 nh4 10.210.0.9 dev eth0",
        "fc0b::/16 via fc00::1 dev eth0 table 100",
        "throw 2001:db8:c1::/48 table 100",
        "2001:db8:c1::/48 encap seg6 mode encap segs fc0b::1 dev eth2",
    ],
    rules=[
        "priority 100 iif eth1 lookup 100",
        "priority 110 iif eth2 blackhole",
    ],
    tunsrc="fc00::2",
)
RULE = "-"


def add_iif(group):
    """The rules of eth1 and eth2 do not concern eth0."""

    def forwarded(name, port, packet, egress, about="", linux=None):
        group.add(name, RULE, port, received(port, packet(64)), forward(egress, sent(egress, packet(63))), linux, about)

    forwarded("ipv6_an_iif_rule_of_another_port", ETH0, lambda limit: six("2001:db8:e2::1", limit), ETH1)
    forwarded("ipv6_an_iif_rule_of_the_ingress_port", ETH1, lambda limit: six("2001:db8:e2::1", limit), ETH2)
    forwarded("ipv6_a_throw_route_goes_on_with_the_next_rule", ETH1, lambda limit: six("2001:db8:e3::1", limit), ETH2,
              about="A throw route matches in table 100, which has a default route. The lookup continues in table main.")
    forwarded("ipv6_a_default_route_of_an_earlier_table_wins", ETH1, lambda limit: six("2001:db8:e4::1", limit), ETH0,
              about="A match in table 100 takes precedence over a longer prefix in table main.")
    forwarded("ipv4_an_iif_rule_of_another_port", ETH0, lambda ttl: four("10.210.0.1", ttl), ETH1)
    forwarded("ipv4_an_iif_rule_of_the_ingress_port", ETH1, lambda ttl: four("10.210.0.1", ttl), ETH2)
    forwarded("ipv4_a_table_without_a_match_goes_on_with_the_next_rule", ETH1, lambda ttl: four("10.211.0.1", ttl), ETH2)
    for name, packet in (
        ("ipv6_a_throw_route_hides_shorter_prefixes_of_its_table", six("2001:db8:e4:1::1", 64)),
        ("ipv4_a_throw_route_hides_shorter_prefixes_of_its_table", four("10.211.1.1", 64)),
    ):
        group.add(name, RULE, ETH0, received(ETH0, packet), kernel("route_miss"),
                  about="A throw route matches in table main, which has a shorter prefix. No further table is left.")
    group.add("ipv6_a_blackhole_rule", RULE, ETH2, received(ETH2, six("2001:db8:e2::1", 64)), drop("blackhole"))
    group.add("ipv4_a_blackhole_rule", RULE, ETH2, received(ETH2, four("10.210.0.1", 64)), drop("blackhole"))
    group.add(
        "ipv6_table_local_comes_before_a_blackhole_rule", RULE, ETH2, received(ETH2, six("fc00::2", 64)), kernel("local"),
    )


def add_srv6(group):
    """A behavior's lookups use the tables of the ingress port."""

    def end(destination, hop_limit, segments_left):
        return (
            IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING)
            / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=["fc0b::7", "fc0f::1"])
            / udp6(HEADEND, "fc0b::7")
        )

    group.add(
        "end_with_the_tables_of_the_ingress_port", "8986 4.1 S15", ETH1,
        received(ETH1, end("fc0f::1", 64, 1)), forward(ETH0, sent(ETH0, end("fc0b::7", 63, 0))),
        about="fc0b::/16 is behind eth2 in table main and behind eth0 in table 100. The rule of eth1 selects table 100 first.",
    )
    group.add(
        "end_with_the_tables_of_another_ingress_port", "8986 4.1 S15", ETH0,
        received(ETH0, end("fc0f::1", 64, 1)), forward(ETH2, sent(ETH2, end("fc0b::7", 63, 0))),
    )

    def inner(hop_limit):
        return six("2001:db8:e2::1", hop_limit, HOST_2)

    group.add(
        "end_dx6_unspecified_with_the_tables_of_the_ingress_port", "8986 4.4", ETH1,
        received(ETH1, IPv6(src=HEADEND, dst="fc0f::d6", hlim=64, nh=IPV6) / inner(64)), forward(ETH2, sent(ETH2, inner(63))),
    )

    add_next_hops(group, end)

    def steered(hop_limit):
        return IPv6(src=HOST_0, dst="2001:db8:c1::1", hlim=hop_limit, nh=UDP_PROTOCOL, fl=7) / udp6(HOST_0, "2001:db8:c1::1")

    group.add(
        "h_encaps_resolves_its_first_segment_by_the_rules_of_the_ingress_port", "8986 5.1 S06", ETH1,
        received(ETH1, steered(64)),
        forward(ETH0, sent(ETH0, headers(["fc0b::1"], IPV6, hop_limit=64, label=7) / steered(63))),
        linux=differs(
            forward(ETH0, sent(ETH0, headers(["fc0b::1"], IPV6, hop_limit=63, label=7) / steered(64))),
            "hop limits as in h_encaps (and seg6_input_core caches one route for the packets of all ports)",
        ),
        about="The node looks up the first segment by the rules of the ingress port, as Linux does.",
    )


def add_next_hops(group, end):
    """Cross-connects whose next hop differs between ports."""
    inner4, inner6 = (lambda ttl: four("198.51.100.1", ttl)), (lambda limit: six("2001:db8:a::1", limit))
    cases = (
        ("end_x", "8986 4.2", lambda sent_on: end("fc0b::7", 63, 0) if sent_on else end("fc0f::a1", 64, 1), ETH0, ETH2),
        ("end_dx6", "8986 4.4", lambda sent_on: inner6(63) if sent_on else outer("fc0f::d9", IPV6) / inner6(64), ETH0, ETH2),
        ("end_dx4", "8986 4.5", lambda sent_on: inner4(63) if sent_on else outer("fc0f::d4", IPV4) / inner4(64), ETH2, ETH1),
    )
    for behavior, clause, packet, by_rule, other in cases:
        for name, port, egress in (("the_ingress_port", ETH1, by_rule), ("another_port", ETH0, other)):
            group.add(
                f"{behavior}_with_the_next_hop_of_the_tables_of_{name}", clause, port,
                received(port, packet(False)), forward(egress, sent(egress, packet(True))),
                about="The rule of eth1 selects table 100, which has another route to the next hop than table main.",
            )


def outer(destination, next_header):
    """Returns an outer IPv6 header to a SID."""
    return IPv6(src=HEADEND, dst=destination, hlim=64, nh=next_header)


def add_refusing(group):
    """Rules of type unreachable and prohibit."""
    group.add("ipv6_an_unreachable_rule", RULE, ETH1, received(ETH1, six("2001:db8:b::1", 64)), kernel("route_type"))
    group.add("ipv4_an_unreachable_rule", RULE, ETH1, received(ETH1, four("203.0.113.1", 64)), kernel("route_type"))
    group.add("ipv6_a_prohibit_rule", RULE, ETH2, received(ETH2, six("2001:db8:a::1", 64)), kernel("route_type"))
    group.add(
        "ipv6_no_refusing_rule_for_this_port", RULE, ETH0,
        received(ETH0, six("2001:db8:a::1", 64)), forward(ETH1, sent(ETH1, six("2001:db8:a::1", 63))),
    )


def groups():
    """Returns the vector files of this module."""
    iif = Group("rules", "Rules that select by ingress port.", NODE)
    add_iif(iif)
    add_srv6(iif)
    refusing = Group(
        "rules_refuse", "Rules that refuse received packets.",
        node(rules=["priority 100 iif eth1 unreachable", "priority 110 iif eth2 prohibit"]),
    )
    add_refusing(refusing)
    source = Group(
        "rules_kernel", "Rules that the fast path cannot express: their packets are punted.",
        node(
            routes=[f"{SEGMENT_1}/128 via fc02::1 dev eth2 table 100"],
            rules=[
                "priority 100 from 2001:db8:100::/48 fwmark 7 lookup 100",
                "priority 110 from 10.100.0.0/16 ipproto tcp lookup 100",
            ],
        ),
    )
    for name, packet in (
        ("ipv6_a_fwmark_rule_is_the_kernels", six(SEGMENT_1, 64, "2001:db8:100::1")),
        ("ipv4_an_ipproto_rule_is_the_kernels", four("198.51.100.1", 64, "10.100.0.1")),
    ):
        source.add(name, RULE, ETH0, received(ETH0, packet), kernel("rule"),
                   about="All other selectors of the rule match the packet.")
    return [iif, refusing, source]
