"""End.AD with `flows` (draft-ietf-spring-srv6-service-programming 6.2, for each flow): many chains through one service.

The service is at eth2, as fc02::1 and 10.2.0.1, and two SIDs lead to it. The proxy learns from the
frames of `earlier`.
"""

from scapy.layers.inet import ICMP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoRequest, ICMPv6TimeExceeded, IPv6
from scapy.packet import Raw

from .case import Group, drop, forward, skip
from .decap import inner4, inner6
from .end_ad import BACK, DRAFT, counted, outer, restored
from .flow_label import label4, ports
from .node import ETH0, ETH1, ETH2, HOST4_0, HOST4_1, HOST_0, HOST_1, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, ICMP_PROTOCOL, ICMPV6, IPV4, OPTION_EXPERIMENT, TCP_PROTOCOL, UDP_PROTOCOL, fragment_header, ipv4,
    options_header, pattern, tcp6, udp4, udp6,
)

NO_LINUX = skip("Linux has no SR proxies")
ONE, OTHER, ONE4, FEW, OLD = "fc0f::f1", "fc0f::f2", "fc0f::f4", "fc0f::f8", "fc0f::fa"
NODE = node(
    routes=[
        f"{ONE}/128 encap seg6local action End.AD oif eth2 nh6 fc02::1 flows dev eth2",
        f"{OTHER}/128 encap seg6local action End.AD oif eth2 nh6 fc02::1 age 0 flows dev eth2",
        f"{ONE4}/128 encap seg6local action End.AD oif eth2 nh4 10.2.0.1 flows dev eth2",
    ],
)
AGED = node(
    routes=[f"{OLD}/128 encap seg6local action End.AD oif eth0 nh6 fc00::1 iif eth1 age 3600 flows dev eth0"],
)
EIGHT = node(routes=[f"{FEW}/128 encap seg6local action End.AD oif eth0 nh6 fc00::1 iif eth1 flows 8 dev eth0"])
LAST = "2001:db8:b::9"


def flow(hop_limit, port=4096):
    """An inner packet of the flow from that port."""
    return inner6(hop_limit, udp6(HOST_0, HOST_1, source_port=port))


def tcp(hop_limit, back=False):
    """A packet of one TCP connection, in either direction."""
    if back:
        segment = tcp6(HOST_1, HOST_0, source_port=80, destination_port=4096)
        return IPv6(src=HOST_1, dst=HOST_0, hlim=hop_limit, nh=TCP_PROTOCOL, tc=0x28, fl=0x0BEEF) / segment
    return inner6(hop_limit, tcp6(HOST_0, HOST_1), TCP_PROTOCOL)


def by(sid, segment):
    """A segment list."""
    return [LAST, segment, sid]


def came(sid, segment, inner, **fields):
    """A frame for `earlier`: the proxy learns its headers."""
    return (ETH0, received(ETH0, outer(sid, 2, by(sid, segment), **fields) / inner))


def goes(sid, segment, inner, **fields):
    """The packet with the headers of that chain."""
    return restored(segment, 1, by(sid, segment), **fields) / inner


def add_two_chains(group):
    """A returned packet gets the headers of its flow."""
    two = [came(ONE, SEGMENT_1, flow(64)), came(ONE, SEGMENT_2, flow(64, 4097))]
    rule = [f"{DRAFT} S17.1", f"{BACK} S01-S05"]
    for name, port, segment, egress in (("one", 4096, SEGMENT_1, ETH1), ("another", 4097, SEGMENT_2, ETH2)):
        group.add(
            f"end_ad_flows_back_by_the_chain_of_{name}_flow", rule, ETH2, received(ETH2, flow(62, port)),
            forward(egress, sent(egress, goes(ONE, segment, flow(61, port)))), NO_LINUX, earlier=two,
        )
    sids = [came(ONE, SEGMENT_1, flow(64)), came(OTHER, SEGMENT_2, flow(64, 4097))]
    for name, sid, port, segment, egress in (
        ("one", ONE, 4096, SEGMENT_1, ETH1), ("another", OTHER, 4097, SEGMENT_2, ETH2),
    ):
        group.add(
            f"end_ad_flows_back_by_the_chain_of_{name}_sid_of_the_port", rule, ETH2, received(ETH2, flow(62, port)),
            forward(egress, sent(egress, goes(sid, segment, flow(61, port)))), NO_LINUX, earlier=sids,
        )

    def other4(ttl):
        return inner4(ttl, udp4(source_port=4097))

    four = [
        came(ONE4, SEGMENT_1, inner4(64), next_header=IPV4), came(ONE4, SEGMENT_2, other4(64), next_header=IPV4),
    ]
    for name, make, port, segment, egress in (
        ("one", inner4, 4096, SEGMENT_1, ETH1), ("another", other4, 4097, SEGMENT_2, ETH2),
    ):
        label = label4(HOST4_0, HOST4_1, UDP_PROTOCOL, ports(port, 53))
        group.add(
            f"end_ad_flows_back_by_the_chain_of_{name}_ipv4_flow", rule, ETH2, received(ETH2, make(62)),
            forward(egress, sent(egress, goes(ONE4, segment, make(61), label=label, next_header=IPV4))), NO_LINUX,
            earlier=four,
        )


def add_connection(group):
    """Each direction of a TCP connection is a flow."""
    both = [came(ONE, SEGMENT_1, tcp(64)), came(OTHER, SEGMENT_2, tcp(64, back=True))]
    # This case is the first one, because consecutive cases share the learned headers.
    group.add(
        "end_ad_flows_answer_of_the_service_before_that_direction_was_learned", [f"{BACK} S02"], ETH2,
        received(ETH2, tcp(62, back=True)), drop("not_learned"), NO_LINUX, earlier=both[:1],
        about="The headers of the other direction would lead to the wrong end of the chain.",
    )
    group.add(
        "end_ad_flows_there_of_a_tcp_connection", [f"{BACK} S01-S05"], ETH2, received(ETH2, tcp(62)),
        forward(ETH1, sent(ETH1, goes(ONE, SEGMENT_1, tcp(61)))), NO_LINUX, earlier=both,
    )
    group.add(
        "end_ad_flows_back_of_a_tcp_connection", [f"{BACK} S01-S05"], ETH2, received(ETH2, tcp(62, back=True)),
        forward(ETH2, sent(ETH2, goes(OTHER, SEGMENT_2, tcp(61, back=True)))), NO_LINUX, earlier=both,
        about="If the service itself answers, the packet also takes the chain of its own direction.",
    )
    group.add(
        "end_ad_flows_back_of_a_flow_that_never_came_in", [f"{BACK} S02"], ETH2, received(ETH2, flow(62, 4098)),
        drop("not_learned"), NO_LINUX, earlier=both,
    )


def add_errors(group):
    """An ICMP error of the service takes the chain opposite to the chain of the quoted packet."""

    def error(hop_limit, quoted, kind=ICMPv6TimeExceeded, to=HOST_0):
        message = IPv6(src="fc02::1", dst=to, hlim=hop_limit, nh=ICMPV6, tc=0x28, fl=0x0BEEF) / kind() / Raw(bytes(quoted))
        return IPv6(bytes(message))

    both = [came(ONE, SEGMENT_1, tcp(64)), came(OTHER, SEGMENT_2, tcp(64, back=True))]
    rule = [f"{BACK} S01-S05"]
    for name, kind in (("time_exceeded", ICMPv6TimeExceeded), ("unreachable", ICMPv6DestUnreach)):
        group.add(
            f"end_ad_flows_back_of_{name}_by_the_service", rule, ETH2, received(ETH2, error(64, tcp(1), kind)),
            forward(ETH2, sent(ETH2, goes(OTHER, SEGMENT_2, error(63, tcp(1), kind)))), NO_LINUX, earlier=both,
            about="The error takes the chain of the other direction to the source of the quoted packet.",
        )
    group.add(
        "end_ad_flows_back_of_an_error_about_an_answer", rule, ETH2, received(ETH2, error(64, tcp(1, back=True), to=HOST_1)),
        forward(ETH1, sent(ETH1, goes(ONE, SEGMENT_1, error(63, tcp(1, back=True), to=HOST_1)))), NO_LINUX, earlier=both,
    )
    one_way = [came(ONE, SEGMENT_1, flow(64, 4099))]
    group.add(
        "end_ad_flows_back_of_an_error_about_a_flow_without_answers", [f"{BACK} S02"], ETH2,
        received(ETH2, error(64, flow(1, 4099))), drop("not_learned"), NO_LINUX, earlier=one_way,
        about="The learned headers lead to the wrong end of the chain.",
    )
    group.add(
        "end_ad_flows_back_of_an_error_cut_short", [f"{BACK} S02"], ETH2,
        received(ETH2, error(64, bytes(tcp(1))[:30])), drop("not_learned"), NO_LINUX, earlier=both,
    )
    group.add(
        "end_ad_flows_back_of_an_echo_that_quotes", [f"{BACK} S02"], ETH2,
        received(ETH2, error(64, tcp(1), ICMPv6EchoRequest)), drop("not_learned"), NO_LINUX, earlier=both,
        about="Only ICMP errors belong to the flow of the packet that they quote.",
    )

    for name, first in (("4", 0x45), ("0", 0x00), ("7", 0x70)):
        group.add(
            f"end_ad_flows_back_of_an_error_that_quotes_version_{name}", [f"{BACK} S02"], ETH2,
            received(ETH2, error(64, bytes([first]) + bytes(tcp(1))[1:])), drop("not_learned"), NO_LINUX, earlier=both,
            about="The quoted packet is not IPv6, so its octets are not addresses.",
        )

    def answer4(ttl):
        return ipv4(src=HOST4_1, dst=HOST4_0, ttl=ttl, tos=0x28, proto=UDP_PROTOCOL) / udp4(source_port=53, destination_port=4096)

    def error4(ttl, quoted=bytes(inner4(1))):
        return ipv4(src="10.2.0.1", dst=HOST4_0, ttl=ttl, tos=0x28, proto=ICMP_PROTOCOL) / ICMP(type=11) / Raw(quoted)

    four = [
        came(ONE4, SEGMENT_1, inner4(64), next_header=IPV4), came(ONE4, SEGMENT_2, answer4(64), next_header=IPV4),
    ]
    label = label4("10.2.0.1", HOST4_0, ICMP_PROTOCOL)
    group.add(
        "end_ad_flows_back_of_ipv4_time_exceeded_by_the_service", [f"{BACK} S01-S05"], ETH2, received(ETH2, error4(64)),
        forward(ETH2, sent(ETH2, goes(ONE4, SEGMENT_2, error4(63), label=label, next_header=IPV4))), NO_LINUX, earlier=four,
    )
    for name, first in (("of_ipv4_that_quotes_version_6", 0x65), ("of_ipv4_that_quotes_ihl_4", 0x44)):
        group.add(
            f"end_ad_flows_back_of_an_error_{name}", [f"{BACK} S02"], ETH2,
            received(ETH2, error4(64, bytes([first]) + bytes(inner4(1))[1:])), drop("not_learned"), NO_LINUX, earlier=four,
        )


def add_keys(group):
    """The keys of flows."""
    fragments = {"first": (0, 1, pattern(32)), "last": (4, 0, pattern(8))}

    def fragment(hop_limit, which, identification=0x5EED):
        offset, more, data = fragments[which]
        return inner6(hop_limit, fragment_header(UDP_PROTOCOL, offset, more, identification) / data, FRAGMENT)

    earlier = [came(ONE, SEGMENT_1, fragment(64, "first")), came(ONE, SEGMENT_2, fragment(64, "first", 0x5EEE))]
    group.add(
        "end_ad_flows_back_of_a_further_fragment", [f"{BACK} S01-S05", "8200 4.5"], ETH2, received(ETH2, fragment(62, "last")),
        forward(ETH1, sent(ETH1, goes(ONE, SEGMENT_1, fragment(61, "last")))), NO_LINUX, earlier=earlier,
        about="A later fragment has no ports. Its Identification leads to the flow of its packet.",
    )
    group.add(
        "end_ad_flows_back_of_a_fragment_of_another_packet", [f"{BACK} S02", "8200 4.5"], ETH2,
        received(ETH2, fragment(62, "last", 0x5EEF)), drop("not_learned"), NO_LINUX, earlier=earlier,
    )

    def fragment4(ttl, offset, more, identification=7):
        return ipv4(
            src=HOST4_0, dst=HOST4_1, ttl=ttl, tos=0x28, proto=UDP_PROTOCOL, id=identification, flags=more, frag=offset,
        ) / pattern(24 if more else 8)

    four = [
        came(ONE4, SEGMENT_1, fragment4(64, 0, 1), next_header=IPV4),
        came(ONE4, SEGMENT_2, fragment4(64, 0, 1, 8), next_header=IPV4),
    ]
    label = label4(HOST4_0, HOST4_1, UDP_PROTOCOL)
    group.add(
        "end_ad_flows_back_of_a_further_ipv4_fragment", [f"{BACK} S01-S05"], ETH2, received(ETH2, fragment4(62, 3, 0)),
        forward(ETH1, sent(ETH1, goes(ONE4, SEGMENT_1, fragment4(61, 3, 0), label=label, next_header=IPV4))), NO_LINUX,
        earlier=four,
    )

    def behind_options(hop_limit, port):
        options = options_header(UDP_PROTOCOL, OPTION_EXPERIMENT)
        return inner6(hop_limit, options / udp6(HOST_0, HOST_1, source_port=port), DESTINATION_OPTIONS)

    group.add(
        "end_ad_flows_with_ports_behind_options", [f"{BACK} S01-S05", "8200 4.6"], ETH2, received(ETH2, behind_options(62, 9)),
        forward(ETH1, sent(ETH1, goes(ONE, SEGMENT_1, behind_options(61, 9)))), NO_LINUX,
        earlier=[came(ONE, SEGMENT_1, behind_options(64, 9)), came(ONE, SEGMENT_2, behind_options(64, 10))],
    )

    def echo(hop_limit, number):
        return inner6(hop_limit, ICMPv6EchoRequest(id=7, seq=number, data=b"sidestep"), ICMPV6)

    group.add(
        "end_ad_flows_of_icmp_are_two_addresses", [f"{BACK} S01-S05"], ETH2, received(ETH2, echo(62, 2)),
        forward(ETH1, sent(ETH1, goes(ONE, SEGMENT_1, echo(61, 2)))), NO_LINUX, earlier=[came(ONE, SEGMENT_1, echo(64, 1))],
    )


def add_changes(group):
    """Headers of a flow change, age, and expire."""
    group.add(
        "end_ad_flows_back_by_a_chain_that_has_changed", [f"{DRAFT} S17.1"], ETH2, received(ETH2, flow(62)),
        forward(ETH2, sent(ETH2, goes(OTHER, SEGMENT_2, flow(61)))), NO_LINUX,
        earlier=[came(ONE, SEGMENT_1, flow(64)), came(OTHER, SEGMENT_2, flow(64))],
    )
    shorter = [SEGMENT_1, ONE]
    group.add(
        "end_ad_flows_back_by_a_shorter_chain_than_before", [f"{DRAFT} S17.1"], ETH2, received(ETH2, flow(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 0, shorter) / flow(61))), NO_LINUX,
        earlier=[came(ONE, SEGMENT_2, flow(64)), (ETH0, received(ETH0, outer(ONE, 1, shorter) / flow(64)))],
    )
    many = [came(ONE, f"fc0a::{number:x}", flow(64, number)) for number in range(1, 13)]
    group.add(
        "end_ad_flows_back_by_one_of_many_chains", [f"{DRAFT} S17.1"], ETH2, received(ETH2, flow(62, 3)),
        forward(ETH1, sent(ETH1, goes(ONE, "fc0a::3", flow(61, 3)))), NO_LINUX, earlier=many,
    )


def add_age(group):
    """`age` applies per flow."""
    aged = [came(OLD, SEGMENT_2, flow(64)), came(OLD, SEGMENT_1, flow(64)), came(OLD, SEGMENT_1, flow(64, 4097))]
    group.add(
        "end_ad_flows_back_by_the_chain_of_before_until_the_age_of_the_flow_has_passed", [f"{DRAFT} S17.1"], ETH1,
        received(ETH1, flow(62)), forward(ETH2, sent(ETH2, goes(OLD, SEGMENT_2, flow(61)))), NO_LINUX, earlier=aged,
    )
    group.add(
        "end_ad_flows_of_a_new_flow_are_learned_whatever_the_age_of_others", [f"{DRAFT} S17.1"], ETH1,
        received(ETH1, flow(62, 4097)), forward(ETH1, sent(ETH1, goes(OLD, SEGMENT_1, flow(61, 4097)))), NO_LINUX,
        earlier=aged,
    )


def add_number(group):
    """A new flow replaces the one that has been idle longest."""
    nine = [came(FEW, SEGMENT_1, flow(64, port)) for port in range(1, 10)]
    group.add(
        "end_ad_flows_beyond_the_number_make_room", [f"{BACK} S02"], ETH1, received(ETH1, flow(62, 1)), drop("not_learned"),
        NO_LINUX, earlier=nine, about="The proxy keeps eight flows. The ninth flow replaced the first one.",
    )
    for name, port in (("oldest_that_is_left", 2), ("newest", 9)):
        group.add(
            f"end_ad_flows_beyond_the_number_keep_the_{name}", [f"{BACK} S01-S05"], ETH1, received(ETH1, flow(62, port)),
            forward(ETH1, sent(ETH1, goes(FEW, SEGMENT_1, flow(61, port)))), NO_LINUX, earlier=nine,
        )


def groups():
    """Returns the vector files of this module."""
    group = Group("end_ad_flows", "End.AD with `flows`: many chains through one service.", NODE)
    group.add(
        "end_ad_flows_of_ipv6", [f"{DRAFT} S12-S17", f"{DRAFT} S17.1"], ETH0,
        came(ONE, SEGMENT_1, inner6(64))[1], forward(ETH2, sent(ETH2, inner6(63))), NO_LINUX, counters=counted(ONE),
    )
    add_two_chains(group)
    add_connection(group)
    add_errors(group)
    add_keys(group)
    add_changes(group)
    age = Group("end_ad_flows_age", "End.AD with `flows` and an age.", AGED)
    add_age(age)
    number = Group("end_ad_flows_number", "End.AD with a small number of flows.", EIGHT)
    add_number(number)
    return [group, age, number]
