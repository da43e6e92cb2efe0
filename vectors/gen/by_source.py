"""Source addresses: rules with `from` and `to`, and IPv6 routes for some sources only."""

from scapy.layers.inet6 import IPv6

from .case import Group, differs, drop, forward, kernel
from .h_encaps import headers
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST_0, HOST_1, HOST_2, SEGMENT_1, node, received, sent
from .routes import four, six
from .wire import IPV6, ROUTING, SRH, UDP_PROTOCOL, udp6

NONE = "-"
TUNSRC = "fc00::2"

RULES = node(
    routes=[
        "::/0 via fc02::1 dev eth2 table 100",
        "throw 2001:db8:b::/48 table 100",
        "2001:db8:b::/48 via fc01::1 dev eth1 table 101",
        "2001:db8:d::/48 via fc02::1 dev eth2",
        "2001:db8:d::/48 via fc01::1 dev eth1 table 102",
        "::/0 via fc01::1 dev eth1 table 103",
        "0.0.0.0/0 via 10.2.0.1 dev eth2 table 100",
        "throw 203.0.113.0/24 table 100",
        "203.0.113.0/24 via 10.1.0.1 dev eth1 table 101",
        "10.220.0.0/16 via 10.2.0.1 dev eth2",
        "10.220.0.0/16 via 10.1.0.1 dev eth1 table 102",
        "fc0f::1/128 encap seg6local action End dev eth0",
        "fc0f::d6/128 encap seg6local action End.DX6 nh6 :: dev eth0",
        "2001:db8:c1::/48 encap seg6 mode encap segs fc0a::1 dev eth2",
        "fc0a::/16 via fc02::1 dev eth2 table 104",
    ],
    rules=[
        "priority 90 from 2001:db8:5:1::/64 to 2001:db8:b::/48 lookup 101",
        "priority 100 from 2001:db8:5::/48 lookup 100",
        "priority 110 to 2001:db8:d:1::/64 lookup 102",
        "priority 120 from 2001:db8:6::/48 to 2001:db8:a::/48 blackhole",
        "priority 140 from 2001:db8:8::/48 lookup main suppress_prefixlength 32",
        "priority 150 from 2001:db8:8::/48 lookup 103",
        "priority 160 from fc00:bbbb::/32 fwmark 7 lookup 103",
        f"priority 170 from {TUNSRC} lookup 104",
        "priority 90 from 10.5.1.0/24 to 203.0.113.0/24 lookup 101",
        "priority 100 from 10.5.0.0/16 lookup 100",
        "priority 110 to 10.220.1.0/24 lookup 102",
        "priority 120 from 10.6.0.0/16 to 198.51.100.0/24 blackhole",
    ],
    tunsrc=TUNSRC,
)


def add_rules(group):
    """Lookups by rules with source and destination."""

    def forwarded(name, packet, egress, about=""):
        group.add(name, NONE, ETH0, received(ETH0, packet(64)), forward(egress, sent(egress, packet(63))), about=about)

    def ipv6(name, source, destination, egress, about=""):
        forwarded(f"ipv6_{name}", lambda limit: six(destination, limit, source), egress, about)

    def ipv4(name, source, destination, egress, about=""):
        forwarded(f"ipv4_{name}", lambda ttl: four(destination, ttl, source), egress, about)

    ipv6("a_from_rule_of_another_source", "2001:db8:4:ffff:ffff:ffff:ffff:ffff", HOST_1, ETH1)
    ipv6("a_from_rule_of_the_first_source", "2001:db8:5::", HOST_1, ETH2)
    ipv6("a_from_rule_of_the_last_source", "2001:db8:5:ffff:ffff:ffff:ffff:ffff", HOST_1, ETH2)
    ipv6("a_throw_route_in_the_table_of_a_from_rule", "2001:db8:5::1", HOST_2, ETH2,
         "A throw route matches in table 100. The lookup continues in the tables for all packets.")
    ipv6("a_rule_with_from_and_to", "2001:db8:5:1::1", HOST_2, ETH1)
    ipv6("a_rule_with_from_and_to_of_another_destination", "2001:db8:5:1::1", HOST_1, ETH2)
    ipv6("a_rule_with_to", HOST_0, "2001:db8:d:1::1", ETH1)
    ipv6("a_rule_with_to_of_another_destination", HOST_0, "2001:db8:d::1", ETH2)
    ipv6("suppress_prefixlength_lets_longer_prefixes_count", "2001:db8:8::1", HOST_2, ETH2)
    ipv6("suppress_prefixlength_goes_on_where_there_are_none", "2001:db8:8::1", "fc0b::1", ETH1)
    ipv4("a_from_rule_of_another_source", "10.4.255.255", "198.51.100.1", ETH1)
    ipv4("a_from_rule_of_the_first_source", "10.5.0.0", "198.51.100.1", ETH2)
    ipv4("a_from_rule_of_the_last_source", "10.5.255.255", "198.51.100.1", ETH2)
    ipv4("a_throw_route_in_the_table_of_a_from_rule", "10.5.0.1", "203.0.113.1", ETH2)
    ipv4("a_rule_with_from_and_to", "10.5.1.1", "203.0.113.1", ETH1)
    ipv4("a_rule_with_to", HOST4_0, "10.220.1.1", ETH1)
    ipv4("a_rule_with_to_of_another_destination", HOST4_0, "10.220.0.1", ETH2)
    for name, packet, outcome in (
        ("ipv6_a_blackhole_rule_with_from_and_to", six(HOST_1, 64, "2001:db8:6::1"), drop("blackhole")),
        ("ipv4_a_blackhole_rule_with_from_and_to", four("198.51.100.1", 64, "10.6.0.1"), drop("blackhole")),
        ("ipv6_a_fwmark_rule_of_this_source_is_the_kernels", six(HOST_1, 64, "fc00:bbbb::1"), kernel("rule")),
    ):
        group.add(name, NONE, ETH0, received(ETH0, packet), outcome)


def add_srv6_rules(group):
    """Lookups of SRv6 behaviors use the source address of the header that they look up."""

    def end(source, hop_limit, segments_left):
        return (
            IPv6(src=source, dst="fc0f::1" if segments_left else SEGMENT_1, hlim=hop_limit, nh=ROUTING)
            / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=[SEGMENT_1, "fc0f::1"])
            / udp6(source, SEGMENT_1)
        )

    source = "2001:db8:8::5"
    group.add("end_by_a_from_rule", "8986 4.1 S15", ETH0,
              received(ETH0, end(source, 64, 1)), forward(ETH1, sent(ETH1, end(source, 63, 0))))

    def inner(hop_limit):
        return six(HOST_1, hop_limit, "2001:db8:5::1")

    group.add(
        "end_dx6_unspecified_by_a_from_rule_of_the_inner_source", "8986 4.4", ETH0,
        received(ETH0, IPv6(src=HEADEND, dst="fc0f::d6", hlim=64, nh=IPV6) / inner(64)), forward(ETH2, sent(ETH2, inner(63))),
    )

    def steered(hop_limit):
        return IPv6(src=HOST_0, dst="2001:db8:c1::1", hlim=hop_limit, nh=UDP_PROTOCOL, fl=7) / udp6(HOST_0, "2001:db8:c1::1")

    group.add(
        "h_encaps_by_a_from_rule_of_the_outer_source", "8986 5.1 S06", ETH0,
        received(ETH0, steered(64)),
        forward(ETH2, sent(ETH2, headers(["fc0a::1"], IPV6, hop_limit=64, label=7) / steered(63))),
        linux=differs(
            forward(ETH2, sent(ETH2, headers(["fc0a::1"], IPV6, hop_limit=63, label=7) / steered(64))),
            "seg6_do_srh_encap copies hop limit and flow label to the outer header and does not change the inner hop limit",
        ),
    )


ROUTES = node(
    routes=[
        "2001:db8::/32 via fc02::1 dev eth2",
        "2001:db8:f0::/48 via fc01::1 dev eth1",
        "2001:db8:f0::/48 from 2001:db8:5::/48 via fc02::1 dev eth2",
        "2001:db8:f0::/48 from 2001:db8:5:1::/64 via fc01::1 dev eth1",
        "2001:db8:f0:1::/64 via fc01::1 dev eth1",
        "blackhole 2001:db8:f1::/48 from 2001:db8:5::/48",
        "unreachable 2001:db8:f1::/48 from 2001:db8:6::/48",
        "fc05::/64 from 2001:db8:5::/48 dev eth1",
        "::/0 from 2001:db8:6::/48 via fc02::1 dev eth2",
        "::/0 via fc01::1 dev eth1",
        "2001:db8:f2::/48 from 2001:db8:5::/48 via fc02::1 dev eth2 metric 20",
        "2001:db8:f2::/48 from 2001:db8:5::/48 via fc01::1 dev eth1 metric 10",
        "fc0f::74/128 encap seg6local action End.T table 100 dev eth0",
        "fc0a::/16 from fc00:aaaa::/32 via fc02::1 dev eth2 table 100",
        "::/0 via fc01::1 dev eth1 table 100",
        "fc0f::1/128 from fc00:aaaa::/32 encap seg6local action End dev eth0",
    ],
    neighbors=["fc05::9 lladdr 02:00:00:00:00:19 dev eth1"],
)


def add_routes(group):
    """Lookups in routes for some sources."""

    def forwarded(name, source, destination, egress, about="", to=None):
        group.add(
            f"source_specific_{name}", NONE, ETH0,
            received(ETH0, six(destination, 64, source)), forward(egress, sent(egress, six(destination, 63, source), to=to)),
            about=about,
        )

    forwarded("route_of_the_source", "2001:db8:5::1", "2001:db8:f0::1", ETH2)
    forwarded("route_of_the_longest_source_prefix", "2001:db8:5:1::1", "2001:db8:f0::1", ETH1)
    forwarded("route_of_the_source_under_a_longer_destination", "2001:db8:5::1", "2001:db8:f0:1::1", ETH1)
    forwarded("routes_hide_the_other_route_of_their_destination", HOST_0, "2001:db8:f0::1", ETH2,
              "2001:db8:f0::/48 via fc01::1 is for all sources. fib6_node_lookup_1 skips it if the same prefix has routes "
              "with `from` and none of them matches. The next match is 2001:db8::/32.")
    forwarded("default_route", "2001:db8:6::1", "2002::1", ETH2)
    forwarded("default_route_of_another_source", HOST_0, "2002::1", ETH1,
              "fib6_node_lookup does not skip the default route.")
    forwarded("routes_of_a_link", "2001:db8:5::1", "fc05::9", ETH1, to="02:00:00:00:00:19")
    forwarded("routes_of_a_link_from_another_source", HOST_0, "fc05::9", ETH1)
    forwarded("route_of_the_lowest_metric", "2001:db8:5::1", "2001:db8:f2::1", ETH1)
    group.add("source_specific_blackhole", NONE, ETH0, received(ETH0, six("2001:db8:f1::1", 64, "2001:db8:5::1")), drop("blackhole"))
    group.add("source_specific_unreachable", NONE, ETH0, received(ETH0, six("2001:db8:f1::1", 64, "2001:db8:6::1")),
              kernel("route_type"))

    def end(sid, source, destination, hop_limit, segments_left):
        return (
            IPv6(src=source, dst=destination, hlim=hop_limit, nh=ROUTING)
            / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=[SEGMENT_1, sid])
            / udp6(source, SEGMENT_1)
        )

    for name, sid, source, egress in (
        ("end_t_finds_a_route_of_the_source", "fc0f::74", HEADEND, ETH2),
        ("end_t_finds_the_route_of_other_sources", "fc0f::74", "fc00:cccc::1", ETH1),
        ("a_sid_of_some_sources", "fc0f::1", HEADEND, ETH1),
    ):
        group.add(name, "8986 4.3", ETH0, received(ETH0, end(sid, source, sid, 64, 1)),
                  forward(egress, sent(egress, end(sid, source, SEGMENT_1, 63, 0))))


def inverted():
    """Rules with `not`."""
    group = Group(
        "rules_not", "Rules with inverted selectors (`not`).",
        node(
            routes=[
                "2001:db8:d::/48 via fc02::1 dev eth2",
                "::/0 via fc01::1 dev eth1 table 103",
                "10.220.0.0/16 via 10.2.0.1 dev eth2",
                "0.0.0.0/0 via 10.1.0.1 dev eth1 table 103",
            ],
            rules=[
                "priority 100 not from 2001:db8:7::/48 to 2001:db8:d:2::/64 lookup 103",
                "priority 100 not from 10.7.0.0/16 lookup 103",
            ],
        ),
    )

    def add(name, packet, egress):
        group.add(name, NONE, ETH0, received(ETH0, packet(64)), forward(egress, sent(egress, packet(63))))

    for name, source, destination, egress in (
        ("neither", "2001:db8:7::1", "2001:db8:d:2::1", ETH2),
        ("another_source", "2001:db8:8::1", "2001:db8:d:2::1", ETH1),
        ("another_destination", "2001:db8:7::1", "2001:db8:d:3::1", ETH1),
    ):
        add(f"ipv6_not_from_and_to_matches_{name}", lambda limit, s=source, d=destination: six(d, limit, s), egress)
    add("ipv4_not_from_matches_another_source", lambda ttl: four("10.220.0.1", ttl, "10.8.0.1"), ETH1)
    add("ipv4_not_from_does_not_match_the_source", lambda ttl: four("10.220.0.1", ttl, "10.7.0.1"), ETH2)
    return group


def way_back():
    """The reverse path lookup exchanges source and destination."""
    record = node(
        routes=["192.0.2.0/24 via 10.2.0.1 dev eth2", "192.0.2.0/24 via 10.0.0.1 dev eth0 table 100"],
        rules=["priority 100 from 198.51.100.0/24 lookup 100"],
    )
    record["ports"]["eth0"]["rp_filter"] = 1
    group = Group("reverse_path_by_source", "rp_filter, and a rule for the sources behind eth1.", record)

    def packet(destination, ttl):
        return four(destination, ttl)

    group.add("reverse_path_by_a_from_rule", "3704 2.2", ETH0, received(ETH0, packet("198.51.100.1", 64)),
              forward(ETH1, sent(ETH1, packet("198.51.100.1", 63))))
    group.add("reverse_path_by_a_from_rule_of_another_source", "3704 2.2", ETH0,
              received(ETH0, packet("203.0.113.1", 64)), kernel("reverse_path"))
    return group


def groups():
    """Returns the vector files of this module."""
    rules = Group("rules_by_source", "Rules that select by source and destination.", RULES)
    add_rules(rules)
    add_srv6_rules(rules)
    routes = Group("routes_by_source", "IPv6 routes for some sources only.", ROUTES)
    add_routes(routes)
    return [rules, inverted(), routes, way_back()]
