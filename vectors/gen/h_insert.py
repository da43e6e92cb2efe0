"""H.Insert: an SRH between the IPv6 header and what follows it (`inline`; draft-filsfils-spring-srv6-net-pgm-insertion).

H.Insert.Red (`inline.red`) omits the first segment from the SRH (RFC 8754 4.1.1). Linux lacks it.
"""
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import SAME, Group, differs, drop, forward, kernel, skip, answer
from .h_encaps import PATHS, egress_of, prefix6
from .icmp import error
from .node import ETH0, HOST_0, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ICMPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6, ROUTING, SRH,
    TCP_PROTOCOL, UDP_PROTOCOL, echo6, fragment_header, options_header, pattern, tcp6, udp6,
)

# With 16 segments the SRH has 17 entries: the original destination is added.
RFC = "8754 4.1"
REDUCED = "8754 4.1.1"
NO_LINUX = skip("Linux has no H.Insert.Red (SEG6_IPTUN_MODE_*)")
MTU = 1400
HOP_BY_HOP_FIRST = "seg6_do_srh_inline inserts the SRH directly behind the IPv6 header; RFC 8200 4.1: Hop-by-Hop Options come first"


def inserted(outer, options, first, srh, behind):
    """The frames of Sidestep and Linux for a packet with Hop-by-Hop options. `first` is the type of the header behind them."""
    ours = outer(HOP_BY_HOP) / options_header(ROUTING, options) / srh(first) / behind
    linux = outer(ROUTING) / srh(HOP_BY_HOP) / options_header(first, options) / behind
    return ours, linux


def add_behind_hop_by_hop(group, name, first, behind, reduced=False, options=OPTION_PADN_6, count=2):
    """A Hop-by-Hop header stays in front of the SRH. `behind` is a function of the destination."""
    path, to = PATHS[count], f"{prefix6(count)}1"
    before = IPv6(src=HOST_0, dst=to, hlim=64, nh=HOP_BY_HOP) / options_header(first, options) / behind(to)

    def outer(next_header):
        return IPv6(src=HOST_0, dst=path[0], hlim=63, nh=next_header)

    def srh(next_header):
        return SRH(next_header=next_header, segments_left=count, segment_list=[to] + path[:0 if reduced else None:-1])

    ours, linux = inserted(outer, options, first, srh, behind(to))
    egress = egress_of(path)
    group.add(
        f"h_insert_red_{name}" if reduced else f"h_insert_{name}", ["8200 4.1", "8200 4.3"], ETH0, received(ETH0, before),
        forward(egress, sent(egress, ours)),
        NO_LINUX if reduced else differs(forward(egress, sent(egress, linux)), HOP_BY_HOP_FIRST),
    )


def add_all_behind_hop_by_hop(group, reduced):
    """H.Insert with a Hop-by-Hop header of padding, alone and in front of other headers."""
    def udp_behind(to):
        return udp6(HOST_0, to)

    def options_behind(to):
        return options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp6(HOST_0, to)

    def srh_behind(to):
        return SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=["fc0b::9", to]) / udp6(HOST_0, "fc0b::9")

    for name, first, behind, more in (
        ("behind_a_hop_by_hop_header", UDP_PROTOCOL, udp_behind, {}),
        ("of_1_segment_behind_a_hop_by_hop_header", UDP_PROTOCOL, udp_behind, {"count": 1}),
        ("of_16_segments_behind_a_hop_by_hop_header", UDP_PROTOCOL, udp_behind, {"count": 16}),
        ("between_a_hop_by_hop_header_and_destination_options", DESTINATION_OPTIONS, options_behind, {}),
        ("between_a_hop_by_hop_header_and_an_srh", ROUTING, srh_behind, {}),
    ):
        add_behind_hop_by_hop(group, name, first, behind, reduced, **more)


def add(group, name, count, payload, protocol=UDP_PROTOCOL, hop_limit=64, about="", trailer=b"", counters=None, reduced=False,
        **fields):
    """One packet; `payload` is a function of the destination."""
    path, destination = PATHS[count], f"{prefix6(count)}1"
    behind = payload(destination)
    before = IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=protocol, **fields) / behind
    after = (
        IPv6(src=HOST_0, dst=path[0], hlim=hop_limit - 1, nh=ROUTING, **fields)
        / SRH(next_header=protocol, segments_left=count, segment_list=[destination] + path[:0 if reduced else None:-1])
        / behind
    )
    egress = egress_of(path)
    group.add(
        f"h_insert_red_{name}" if reduced else f"h_insert_{name}", REDUCED if reduced else RFC, ETH0,
        received(ETH0, bytes(before) + trailer), forward(egress, sent(egress, after)),
        NO_LINUX if reduced else SAME, about, counters,
    )


def routes(mode):
    """The headend's routes."""
    return [
        f"{prefix6(count)}/48 encap seg6 mode {mode} segs {','.join(path)} dev {egress_of(path).name}"
        for count, path in PATHS.items()
    ]


def udp(destination):
    """The usual payload."""
    return udp6(HOST_0, destination)


def reduced_group():
    """H.Insert.Red, which Linux lacks: Sidestep drops packets that the kernel would answer."""
    group = Group(
        "h_insert_red", "H.Insert.Red: as H.Insert, but only the destination address has the first segment.",
        node(routes=routes("inline.red") + ["2001:db8:e3::/48 encap seg6 mode inline.red segs fc01::66 dev eth1"],
             mtu={"eth1": MTU}),
    )
    for count in PATHS:
        add(group, f"of_{count}_segment{'s' * (count > 1)}", count, udp, reduced=True,
            about="The SRH has only the original destination, and Segments Left is Last Entry + 1." if count == 1 else "",
            counters={"route": f"{prefix6(count)}/48", "packets": 1, "errors": 0})
    add(group, "of_tcp", 2, lambda to: tcp6(HOST_0, to, pattern(1000)), TCP_PROTOCOL, reduced=True)
    add(group, "of_icmp", 3, lambda to: echo6(HOST_0, to), ICMPV6, reduced=True)
    add(group, "of_a_header_alone", 1, lambda to: Raw(b""), NO_NEXT_HEADER, reduced=True)
    add(group, "keeps_traffic_class_and_flow_label", 2, udp, tc=0xBB, fl=0xABCDE, reduced=True)
    add(group, "with_hop_limit_2", 1, udp, hop_limit=2, reduced=True)
    add(group, "with_hop_limit_255", 3, udp, hop_limit=255, reduced=True)
    add_all_behind_hop_by_hop(group, True)
    add(group, "in_front_of_destination_options", 2,
        lambda to: options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp(to), DESTINATION_OPTIONS, reduced=True)
    add(group, "in_front_of_an_srh", 2,
        lambda to: SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=["fc0b::9", to]) / udp6(HOST_0, "fc0b::9"),
        ROUTING, reduced=True)
    add(group, "of_a_fragment", 2, lambda to: fragment_header(UDP_PROTOCOL, 2, False) / Raw(pattern(16)), FRAGMENT, reduced=True)
    add(group, "trims_ethernet_padding", 2, udp, trailer=b"padding", reduced=True)
    # 40 IPv6, 8 + 16 SRH of one entry, 20 TCP.
    room = MTU - 40 - 24 - 20
    add(group, "of_exactly_the_mtu", 1, lambda to: tcp6(HOST_0, to, pattern(room)), TCP_PROTOCOL, reduced=True)

    def refused(name, rfc, destination, reason, hop_limit=64, payload=None, protocol=UDP_PROTOCOL):
        packet = IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=protocol) / (payload or udp(destination))
        group.add(f"h_insert_red_{name}", rfc, ETH0, received(ETH0, packet), drop(reason), NO_LINUX)

    one = f"{prefix6(1)}1"
    refused("of_one_octet_more_than_the_mtu", "8200 5", one, "too_big",
            payload=tcp6(HOST_0, one, pattern(room + 1)), protocol=TCP_PROTOCOL)
    refused("with_hop_limit_1", "8200 3", one, "hop_limit", hop_limit=1)
    refused("whose_first_segment_is_not_resolved", REDUCED, "2001:db8:e3::1", "no_neighbor")
    return group


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "h_insert", "H.Insert: an SRH in the packet itself.",
        node(routes=routes("inline")),
    )

    for count in PATHS:
        add(group, f"of_{count}_segment{'s' * (count > 1)}", count, udp,
            about="Segment List[0] is the original destination, so the UDP checksum stays right.",
            counters={"route": f"{prefix6(count)}/48", "packets": 1, "errors": 0})
    add(group, "of_tcp", 2, lambda to: tcp6(HOST_0, to, pattern(1000)), TCP_PROTOCOL)
    add(group, "of_icmp", 2, lambda to: echo6(HOST_0, to), ICMPV6)
    add(group, "of_a_header_alone", 2, lambda to: Raw(b""), NO_NEXT_HEADER)
    add(group, "keeps_traffic_class_and_flow_label", 2, udp, tc=0xBB, fl=0xABCDE)
    add(group, "leaves_a_flow_label_of_zero", 1, udp, fl=0)
    add(group, "with_hop_limit_2", 2, udp, hop_limit=2)
    add(group, "with_hop_limit_255", 2, udp, hop_limit=255)
    add_all_behind_hop_by_hop(group, False)
    add(group, "in_front_of_destination_options", 2,
        lambda to: options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp(to), DESTINATION_OPTIONS)
    add(group, "in_front_of_an_srh", 2,
        lambda to: SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=["fc0b::9", to]) / udp6(HOST_0, "fc0b::9"), ROUTING)
    add(group, "of_the_first_fragment", 2, lambda to: fragment_header(UDP_PROTOCOL, 0, True) / Raw(pattern(16)), FRAGMENT)
    add(group, "of_the_last_fragment", 2, lambda to: fragment_header(UDP_PROTOCOL, 2, False) / Raw(pattern(16)), FRAGMENT)
    add(group, "trims_ethernet_padding", 2, udp, trailer=b"padding")
    group.add(
        "h_insert_with_hop_limit_1", "8200 3", ETH0,
        received(ETH0, IPv6(src=HOST_0, dst=f"{prefix6(2)}1", hlim=1, nh=UDP_PROTOCOL) / udp(f"{prefix6(2)}1")),
        drop("hop_limit"), about="Time Exceeded quotes the packet without the SRH that the headend would insert.",
    )
    long = (
        IPv6(src=HOST_0, dst=f"{prefix6(2)}1", hlim=64, nh=HOP_BY_HOP)
        / options_header(UDP_PROTOCOL, bytes([1, 220]) + bytes(220)) / udp(f"{prefix6(2)}1")
    )
    group.add(
        "h_insert_behind_a_hop_by_hop_header_of_224_octets", "8883 3.3", ETH0, received(ETH0, long), drop("chain_too_long"),
        skip("Linux inserts in front of the header"), "At most 256 octets move to the front of the SRH.",
        answer=answer(HOST_0, error(4, 7, 256, long)),
    )
    return [group, reduced_group()]
