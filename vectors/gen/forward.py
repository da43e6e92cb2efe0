"""Plain IPv6 and IPv4 forwarding between ports."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, differs, forward, kernel, skip
from .node import ETH0, ETH1, ETH2, HOST4_0, HOST4_1, HOST_0, HOST_1, HOST_2, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ICMPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6, ROUTING, SRH,
    TCP_PROTOCOL, UDP_PROTOCOL, echo6, fragment_header, ipv4, options_header, pattern, tcp4, tcp6, udp4, udp6,
)

RFC8200 = "8200 3"
RFC1812 = "1812 5.2.2"

NODE = node(
    routes=[
        "2001:db8:a:99::/64 via fc02::1 dev eth2",
        "2001:db8:a:99::7/128 via fc01::1 dev eth1",
        "2001:db8:1::/48 via fc00::1 dev eth0",
        "198.51.100.128/25 via 10.2.0.1 dev eth2",
    ],
    neighbors=[
        "fc01::99 lladdr 02:00:00:00:00:99 dev eth1",
        "10.1.0.99 lladdr 02:00:00:00:00:99 dev eth1",
    ],
)


def ip6(hop_limit, next_header, destination=HOST_1, **fields):
    """The IPv6 header of this group."""
    return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=next_header, **fields)


def add_ipv6(group):
    """IPv6: changed and unchanged fields."""
    udp = udp6(HOST_0, HOST_1)
    group.add(
        "ipv6_udp_is_forwarded", [RFC8200], ETH0,
        received(ETH0, ip6(64, UDP_PROTOCOL) / udp),
        forward(ETH1, sent(ETH1, ip6(63, UDP_PROTOCOL) / udp)),
        about="The hop limit falls by one, and the MAC addresses are those of egress port and gateway. Nothing else changes.",
        counters={"route": "2001:db8:a::/48", "packets": 1, "errors": 0},
    )
    tcp = tcp6(HOST_0, HOST_1, pattern(200))
    group.add(
        "ipv6_tcp_is_forwarded", [RFC8200], ETH0,
        received(ETH0, ip6(255, TCP_PROTOCOL) / tcp),
        forward(ETH1, sent(ETH1, ip6(254, TCP_PROTOCOL) / tcp)),
    )
    echo = echo6(HOST_0, "fc01::99")
    group.add(
        "ipv6_to_a_neighbor_on_the_link", [RFC8200], ETH0,
        received(ETH0, ip6(64, ICMPV6, "fc01::99") / echo),
        forward(ETH1, sent(ETH1, ip6(63, ICMPV6, "fc01::99") / echo, to="02:00:00:00:00:99")),
        about="The prefix is connected, so the next hop is the destination itself.",
    )
    group.add(
        "ipv6_hop_limit_2_becomes_1", [RFC8200], ETH0,
        received(ETH0, ip6(2, UDP_PROTOCOL) / udp),
        forward(ETH1, sent(ETH1, ip6(1, UDP_PROTOCOL) / udp)),
    )
    for hop_limit in (1, 0):
        group.add(
            f"ipv6_hop_limit_{hop_limit}_is_left_to_the_kernel", [RFC8200], ETH0,
            received(ETH0, ip6(hop_limit, UDP_PROTOCOL) / udp),
            kernel("hop_limit_exceeded"),
        )
    group.add(
        "ipv6_traffic_class_and_flow_label_stay", [RFC8200, "2474 3"], ETH0,
        received(ETH0, ip6(64, UDP_PROTOCOL, tc=0xBB, fl=0xABCDE) / udp),
        forward(ETH1, sent(ETH1, ip6(63, UDP_PROTOCOL, tc=0xBB, fl=0xABCDE) / udp)),
    )
    group.add(
        "ipv6_header_alone_is_forwarded", [RFC8200], ETH0,
        received(ETH0, ip6(64, NO_NEXT_HEADER)),
        forward(ETH1, sent(ETH1, ip6(63, NO_NEXT_HEADER))),
        about="The smallest IPv6 packet has Payload Length 0 and No Next Header.",
    )
    group.add(
        "ipv6_ethernet_padding_is_trimmed", [RFC8200], ETH0,
        received(ETH0, bytes(ip6(64, NO_NEXT_HEADER)) + bytes(6)),
        forward(ETH1, sent(ETH1, ip6(63, NO_NEXT_HEADER))),
        about="The node receives 60 octets and sends 54. Octets behind the end of the IPv6 packet do not belong to it.",
    )
    large = udp6(HOST_0, HOST_1, pattern(1500 - 40 - 8))
    group.add(
        "ipv6_of_1500_octets", [RFC8200], ETH0,
        received(ETH0, ip6(64, UDP_PROTOCOL) / large),
        forward(ETH1, sent(ETH1, ip6(63, UDP_PROTOCOL) / large)),
    )
    group.add(
        "ipv6_the_longest_prefix_wins", [RFC8200], ETH0,
        received(ETH0, ip6(64, NO_NEXT_HEADER, "2001:db8:a:99::8")),
        forward(ETH2, sent(ETH2, ip6(63, NO_NEXT_HEADER, "2001:db8:a:99::8"))),
        counters={"route": "2001:db8:a:99::/64", "packets": 1, "errors": 0},
    )
    group.add(
        "ipv6_a_host_route_wins_over_its_prefix", [RFC8200], ETH0,
        received(ETH0, ip6(64, NO_NEXT_HEADER, "2001:db8:a:99::7")),
        forward(ETH1, sent(ETH1, ip6(63, NO_NEXT_HEADER, "2001:db8:a:99::7"))),
    )
    group.add(
        "ipv6_back_out_of_the_ingress_port", [RFC8200], ETH0,
        received(ETH0, IPv6(src=HOST_0, dst="2001:db8:1::2", hlim=64, nh=NO_NEXT_HEADER)),
        forward(ETH0, sent(ETH0, IPv6(src=HOST_0, dst="2001:db8:1::2", hlim=63, nh=NO_NEXT_HEADER))),
        linux=skip("Linux forwards it and may send an ICMPv6 Redirect as well"),
    )
    group.add(
        "ipv6_between_two_other_ports", [RFC8200], ETH1,
        received(ETH1, IPv6(src=HOST_1, dst=HOST_2, hlim=64, nh=NO_NEXT_HEADER)),
        forward(ETH2, sent(ETH2, IPv6(src=HOST_1, dst=HOST_2, hlim=63, nh=NO_NEXT_HEADER))),
    )


def add_extension_headers(group):
    """A router processes only the Hop-by-Hop header."""
    udp = udp6(HOST_0, HOST_1)
    padded = options_header(UDP_PROTOCOL, OPTION_PADN_6) / udp
    group.add(
        "ipv6_hop_by_hop_padding_is_walked_through", ["8200 4.3"], ETH0,
        received(ETH0, ip6(64, HOP_BY_HOP) / padded),
        forward(ETH1, sent(ETH1, ip6(63, HOP_BY_HOP) / padded)),
    )
    pad1 = options_header(UDP_PROTOCOL, bytes(6)) / udp
    group.add(
        "ipv6_hop_by_hop_six_pad1", ["8200 4.2"], ETH0,
        received(ETH0, ip6(64, HOP_BY_HOP) / pad1),
        forward(ETH1, sent(ETH1, ip6(63, HOP_BY_HOP) / pad1)),
    )
    wide = options_header(UDP_PROTOCOL, bytes([1, 12]) + bytes(12)) / udp
    group.add(
        "ipv6_hop_by_hop_padding_of_14_octets", ["8200 4.2"], ETH0,
        received(ETH0, ip6(64, HOP_BY_HOP) / wide),
        forward(ETH1, sent(ETH1, ip6(63, HOP_BY_HOP) / wide)),
        linux=differs("drop", "ip6_parse_tlv drops more than 7 octets of padding in a row; RFC 8200 4.2 allows them"),
    )
    filled = options_header(UDP_PROTOCOL, bytes([1, 4, 0, 1, 0, 0])) / udp
    group.add(
        "ipv6_hop_by_hop_padding_that_is_not_zero", ["8200 4.2"], ETH0,
        received(ETH0, ip6(64, HOP_BY_HOP) / filled),
        forward(ETH1, sent(ETH1, ip6(63, HOP_BY_HOP) / filled)),
        linux=differs("drop", "ip6_parse_tlv drops PadN whose octets are not 0; RFC 8200 4.2 asks that of the sender only"),
    )
    options = options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp
    group.add(
        "ipv6_destination_options_are_not_the_routers", ["8200 4.6"], ETH0,
        received(ETH0, ip6(64, DESTINATION_OPTIONS) / options),
        forward(ETH1, sent(ETH1, ip6(63, DESTINATION_OPTIONS) / options)),
    )
    for name, offset, more in (("first", 0, True), ("last", 2, False)):
        piece = fragment_header(UDP_PROTOCOL, offset, more) / Raw(pattern(16))
        group.add(
            f"ipv6_{name}_fragment_is_forwarded", ["8200 4.5"], ETH0,
            received(ETH0, ip6(64, FRAGMENT) / piece),
            forward(ETH1, sent(ETH1, ip6(63, FRAGMENT) / piece)),
        )
    segments = ["fc0b::9", "fc0a::9"]
    srh = SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=segments) / udp6(HOST_0, "fc0b::9")
    group.add(
        "ipv6_srh_for_another_node_is_not_touched", ["8754 4.2"], ETH0,
        received(ETH0, ip6(64, ROUTING, "fc0a::9") / srh),
        forward(ETH1, sent(ETH1, ip6(63, ROUTING, "fc0a::9") / srh)),
        about="A transit node forwards by the destination address.",
    )
    broken = SRH(next_header=UDP_PROTOCOL, segments_left=9, last_entry=77, segment_list=segments) / udp6(HOST_0, "fc0b::9")
    group.add(
        "ipv6_impossible_srh_for_another_node_is_not_judged", ["8754 4.2"], ETH0,
        received(ETH0, ip6(64, ROUTING, "fc0a::9") / broken),
        forward(ETH1, sent(ETH1, ip6(63, ROUTING, "fc0a::9") / broken)),
    )


def add_ipv4(group):
    """IPv4: TTL, header checksum, unchanged fields."""

    def ip4(ttl, destination=HOST4_1, **fields):
        return ipv4(src=HOST4_0, dst=destination, ttl=ttl, **fields)

    group.add(
        "ipv4_udp_is_forwarded", [RFC1812, "1624 3"], ETH0,
        received(ETH0, ip4(64) / udp4()),
        forward(ETH1, sent(ETH1, ip4(63) / udp4())),
        about="The TTL falls by one, the header checksum is right, and the MAC addresses are those of egress port and gateway.",
        counters={"route": "198.51.100.0/24", "packets": 1, "errors": 0},
    )
    group.add(
        "ipv4_tcp_is_forwarded", [RFC1812], ETH0,
        received(ETH0, ip4(255) / tcp4(pattern(200))),
        forward(ETH1, sent(ETH1, ip4(254) / tcp4(pattern(200)))),
    )
    group.add(
        "ipv4_ttl_2_becomes_1", ["1812 5.3.1"], ETH0,
        received(ETH0, ip4(2) / udp4()),
        forward(ETH1, sent(ETH1, ip4(1) / udp4())),
    )
    for ttl in (1, 0):
        group.add(
            f"ipv4_ttl_{ttl}_is_left_to_the_kernel", ["1812 5.3.1"], ETH0,
            received(ETH0, ip4(ttl) / udp4()),
            kernel("hop_limit_exceeded"),
        )
    group.add(
        "ipv4_tos_and_dont_fragment_stay", [RFC1812], ETH0,
        received(ETH0, ip4(64, tos=0xB9, flags="DF") / udp4()),
        forward(ETH1, sent(ETH1, ip4(63, tos=0xB9, flags="DF") / udp4())),
    )
    def from_itself(ttl):
        return ipv4(src="10.0.0.2", dst=HOST4_1, ttl=ttl) / udp4()

    group.add(
        "ipv4_from_an_address_of_the_node_itself", ["-"], ETH0,
        received(ETH0, from_itself(64)),
        forward(ETH1, sent(ETH1, from_itself(63))),
        linux=differs("drop", "fib_validate_source refuses a source that is an address of the node (accept_local 0)"),
    )
    for name, identification in checksum_edges(ip4):
        group.add(
            name, ["1624 3"], ETH0,
            received(ETH0, ip4(64, id=identification) / udp4()),
            forward(ETH1, sent(ETH1, ip4(63, id=identification) / udp4())),
            about="An edge case of one's complement arithmetic: the updated checksum equals a full sum.",
        )
    group.add(
        "ipv4_header_alone_is_forwarded", [RFC1812], ETH0,
        received(ETH0, ip4(64, proto=253)),
        forward(ETH1, sent(ETH1, ip4(63, proto=253))),
        about="The smallest IPv4 packet has 20 octets.",
    )
    group.add(
        "ipv4_ethernet_padding_is_trimmed", [RFC1812], ETH0,
        received(ETH0, bytes(ip4(64) / udp4(b"")) + bytes(18)),
        forward(ETH1, sent(ETH1, ip4(63) / udp4(b""))),
    )
    group.add(
        "ipv4_of_1500_octets", [RFC1812], ETH0,
        received(ETH0, ip4(64) / udp4(pattern(1500 - 28))),
        forward(ETH1, sent(ETH1, ip4(63) / udp4(pattern(1500 - 28)))),
    )
    for name, fields in (("first", {"flags": "MF", "frag": 0}), ("last", {"frag": 2})):
        group.add(
            f"ipv4_{name}_fragment_is_forwarded", [RFC1812], ETH0,
            received(ETH0, ip4(64, proto=17, **fields) / Raw(pattern(16))),
            forward(ETH1, sent(ETH1, ip4(63, proto=17, **fields) / Raw(pattern(16)))),
        )
    group.add(
        "ipv4_the_longest_prefix_wins", [RFC1812], ETH0,
        received(ETH0, ip4(64, "198.51.100.200") / udp4()),
        forward(ETH2, sent(ETH2, ip4(63, "198.51.100.200") / udp4())),
        counters={"route": "198.51.100.128/25", "packets": 1, "errors": 0},
    )
    group.add(
        "ipv4_to_a_neighbor_on_the_link", [RFC1812], ETH0,
        received(ETH0, ip4(64, "10.1.0.99") / udp4()),
        forward(ETH1, sent(ETH1, ip4(63, "10.1.0.99") / udp4(), to="02:00:00:00:00:99")),
    )


def checksum_edges(ip4):
    """Identifications for which the checksum sent is 0x0000, and the one received is 0xff00."""
    for name, ttl, wanted in (("ipv4_checksum_becomes_zero", 63, 0x0000), ("ipv4_checksum_update_carries", 64, 0xFF00)):
        without = int.from_bytes(bytes(ip4(ttl, id=0) / udp4())[10:12], "big")
        # RFC 1071: the checksum is the complement of the sum, so the Identification adds the difference.
        identification = (without - wanted) % 0xFFFF
        assert int.from_bytes(bytes(ip4(ttl, id=identification) / udp4())[10:12], "big") == wanted
        yield name, identification


def groups():
    """Returns the vector files of this module."""
    ipv6 = Group("forward_ipv6", "Plain IPv6 forwarding.", NODE)
    add_ipv6(ipv6)
    add_extension_headers(ipv6)
    ipv4_group = Group("forward_ipv4", "Plain IPv4 forwarding.", NODE)
    add_ipv4(ipv4_group)
    return [ipv6, ipv4_group]
