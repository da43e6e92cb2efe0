"""H.Encaps (RFC 8986 5.1) and H.Encaps.Red (5.2) of IPv6 and IPv4 packets.

Where Linux and the RFCs differ, on each of these packets:

                     here (RFC)                                Linux (seg6_do_srh_encap)
  outer hop limit    64 (RFC 2473 6.3)                         IPv6: the inner one, less 1; IPv4: 64, less 1
  inner hop limit    less 1 (RFC 8986 5.1 S05)                 unchanged
  traffic class      the inner one (RFC 2473 6.4, RFC 6040)    IPv6: the inner one; IPv4: 0
  flow label         the inner one if not 0, else computed     IPv6: the inner one; IPv4: 0
"""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, answer, differs, drop, forward, kernel, skip
from .flow_label import label4, label6, ports
from .icmp import error, error4
from .node import ETH0, ETH1, ETH2, HOST4_0, HOST_0, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ICMPV6, IPV4, IPV6, OPTIONS4, OPTION_EXPERIMENT, OPTION_PADN_6, ROUTING, SCTP,
    SRH, TCP_PROTOCOL, UDP_PROTOCOL, echo6, fragment_header, ipv4, options_header, pattern, tcp4, tcp6, udp4, udp6,
)

TUNSRC = "fc00::2"
WHY6 = "Linux copies the inner hop limit and flow label to the outer header and does not change the inner hop limit"
WHY4 = "Linux: traffic class 0, flow label 0, hop limit 64 less 1, inner TTL unchanged"
SIXTEEN = [f"fc0a::{index:x}" for index in range(1, 17)]
# Segments in the order of travel; the customer prefixes are named after their number.
PATHS = {1: ["fc0a::1"], 2: ["fc0a::1", "fc0b::2"], 3: ["fc0b::1", "fc0a::2", "fc0b::3"], 16: SIXTEEN}
PORTS = ports(4096, 53)
NOT_CHECKED = "seg6_input encapsulates an IPv4 packet before ip_forward would check its TTL"


def prefix6(count):
    """The IPv6 customer prefix that is steered into `count` segments."""
    return f"2001:db8:{0xC00 + count:x}::"


def prefix4(count):
    """The IPv4 customer prefix."""
    return f"10.{100 + count}.0."


def routes(mode, paths):
    """The headend's routes."""
    lines = []
    for count, path in paths.items():
        words = f"encap seg6 mode {mode} segs {','.join(path)} dev {egress_of(path).name}"
        lines += [f"{prefix6(count)}/48 {words}", f"{prefix4(count)}0/24 {words}"]
    return lines


def egress_of(path):
    """fc0a::/16 is behind eth1, fc0b::/16 behind eth2."""
    return ETH1 if path[0].startswith("fc0a") else ETH2


def outer(destination, next_header, hop_limit, traffic_class=0, label=0, source=TUNSRC):
    """The outer header."""
    return IPv6(src=source, dst=destination, nh=next_header, hlim=hop_limit, tc=traffic_class, fl=label)


def headers(path, protocol, reduced=False, **fields):
    """Outer header and SRH, RFC 8754 4.1 and 4.1.1 (reduced)."""
    if reduced and len(path) == 1:
        return outer(path[0], protocol, **fields)
    listed = path[1:] if reduced else path
    return outer(path[0], ROUTING, **fields) / SRH(
        next_header=protocol, segments_left=len(path) - 1, last_entry=len(listed) - 1, segment_list=listed[::-1],
    )


class Headend:
    """Adds cases of one mode."""

    def __init__(self, group, prefix, rfc, reduced):
        self.group, self.prefix, self.rfc, self.reduced = group, prefix, rfc, reduced

    def ipv6(self, name, count, payload, protocol=UDP_PROTOCOL, hop_limit=64, traffic_class=0, label=0, first_four=PORTS,
             about="", counters=None, trailer=b""):
        """An IPv6 packet; `payload` is a function of the destination."""
        path, destination = PATHS[count], f"{prefix6(count)}1"

        def inner(limit):
            header = IPv6(src=HOST_0, dst=destination, hlim=limit, nh=protocol, tc=traffic_class, fl=label)
            return header / payload(destination)

        computed = label or label6(HOST_0, destination, protocol, first_four)
        egress = egress_of(path)
        ours = headers(path, IPV6, self.reduced, hop_limit=64, traffic_class=traffic_class, label=computed)
        linux = headers(path, IPV6, self.reduced, hop_limit=hop_limit - 1, traffic_class=traffic_class, label=label)
        self.group.add(
            f"{self.prefix}_{name}", self.rfc, ETH0,
            received(ETH0, bytes(inner(hop_limit)) + trailer),
            forward(egress, sent(egress, ours / inner(hop_limit - 1))),
            linux=differs(forward(egress, sent(egress, linux / inner(hop_limit))), WHY6),
            about=about, counters=counters,
        )

    def ipv4(self, name, count, payload, protocol=UDP_PROTOCOL, ttl=64, tos=0, first_four=PORTS, about="", trailer=b"", **fields):
        """An IPv4 packet."""
        path, destination = PATHS[count], f"{prefix4(count)}1"

        def inner(limit):
            return ipv4(src=HOST4_0, dst=destination, ttl=limit, tos=tos, proto=protocol, **fields) / payload

        computed = label4(HOST4_0, destination, protocol, first_four)
        egress = egress_of(path)
        ours = headers(path, IPV4, self.reduced, hop_limit=64, traffic_class=tos, label=computed)
        linux = headers(path, IPV4, self.reduced, hop_limit=63)
        self.group.add(
            f"{self.prefix}_{name}", self.rfc, ETH0,
            received(ETH0, bytes(inner(ttl)) + trailer),
            forward(egress, sent(egress, ours / inner(ttl - 1))),
            linux=differs(forward(egress, sent(egress, linux / inner(ttl))), WHY4),
            about=about,
        )

    def expired(self):
        """RFC 2473 3.1: a packet whose hop limit ends here is not encapsulated."""
        rfc, count = ["8986 5.1 S05", "2473 3.1"], 2
        path, to4, to6 = PATHS[count], f"{prefix4(count)}1", f"{prefix6(count)}1"
        egress = egress_of(path)
        for limit in (1, 0):
            packet = IPv6(src=HOST_0, dst=to6, hlim=limit, nh=UDP_PROTOCOL) / udp6(HOST_0, to6)
            self.group.add(
                f"{self.prefix}_of_ipv6_with_hop_limit_{limit}", rfc, ETH0, received(ETH0, packet), drop("hop_limit"),
                answer=answer(HOST_0, error(3, 0, 0, packet)),
                counters={"route": f"{prefix6(count)}/48", "packets": 0, "errors": 1},
            )
            packet = ipv4(src=HOST4_0, dst=to4, ttl=limit) / udp4()
            linux = headers(path, IPV4, self.reduced, hop_limit=63) / packet
            self.group.add(
                f"{self.prefix}_of_ipv4_with_ttl_{limit}", [*rfc, "1812 5.3.1"], ETH0, received(ETH0, packet),
                drop("hop_limit"), linux=differs(forward(egress, sent(egress, linux)), NOT_CHECKED),
                answer=answer(HOST4_0, error4(11, 0, 0, packet)),
                counters={"route": f"{prefix4(count)}0/24", "packets": 0, "errors": 1},
            )

    def counts(self):
        """IPv6 and IPv4 for every number of segments."""
        for count in PATHS:
            name = f"{count}_segment{'s' * (count > 1)}"
            self.ipv6(f"of_ipv6_with_{name}", count, lambda to: udp6(HOST_0, to),
                      counters={"route": f"{prefix6(count)}/48", "packets": 1, "errors": 0})
            self.ipv4(f"of_ipv4_with_{name}", count, udp4())


def udp_to(destination):
    """The usual payload."""
    return udp6(HOST_0, destination)


def add_h_encaps(group):
    """H.Encaps."""
    headend = Headend(group, "h_encaps", "8986 5.1", False)
    headend.counts()
    for name, traffic_class in (
        ("dscp_ef", 46 << 2), ("ecn_ect0", 2), ("ecn_ect1", 1), ("ecn_ce", 3), ("all_bits_of_the_traffic_class", 0xFF),
    ):
        headend.ipv6(f"of_ipv6_copies_{name}", 2, udp_to, traffic_class=traffic_class, label=0x12345)
        headend.ipv4(f"of_ipv4_copies_{name}", 2, udp4(), tos=traffic_class)
    headend.ipv6("of_ipv6_copies_the_flow_label", 2, udp_to, label=0xFFFFF)
    headend.ipv6("of_ipv6_copies_a_flow_label_of_1", 2, udp_to, label=1)
    headend.ipv6("of_ipv6_tcp", 2, lambda to: tcp6(HOST_0, to, pattern(1000)), TCP_PROTOCOL, first_four=ports(4096, 80))
    headend.ipv6("of_ipv6_sctp", 2, lambda to: Raw(ports(7, 9) + bytes(8)), SCTP, first_four=ports(7, 9))
    nothing = bytes(4)
    headend.ipv6("of_ipv6_icmp", 2, lambda to: echo6(HOST_0, to), ICMPV6, first_four=nothing,
                 about="The flow label depends on addresses and protocol, because ICMPv6 has no ports.")
    headend.ipv6("of_ipv6_udp_without_room_for_ports", 2, lambda to: Raw(b"\x10\x00\x00"), first_four=nothing)
    headend.ipv6("of_an_ipv6_fragment", 2, lambda to: fragment_header(UDP_PROTOCOL, 0, True) / Raw(pattern(16)), FRAGMENT,
                 first_four=nothing)
    headend.ipv6("of_ipv6_with_a_hop_by_hop_header", 2, lambda to: options_header(UDP_PROTOCOL, OPTION_PADN_6) / udp_to(to),
                 HOP_BY_HOP, first_four=nothing, about="The flow label depends on the Next Header of the fixed header.")
    headend.ipv6("of_ipv6_with_destination_options", 2,
                 lambda to: options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp_to(to), DESTINATION_OPTIONS, first_four=nothing)
    headend.ipv6("of_ipv6_with_an_srh_of_its_own", 2,
                 lambda to: SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=["fc0b::9", to]) / udp6(HOST_0, "fc0b::9"),
                 ROUTING, first_four=nothing)
    headend.ipv6("of_ipv6_with_hop_limit_2", 2, udp_to, hop_limit=2)
    headend.ipv6("of_ipv6_with_hop_limit_255", 2, udp_to, hop_limit=255)
    headend.ipv6("of_ipv6_trims_ethernet_padding", 2, udp_to, trailer=b"padding")
    headend.ipv4("of_ipv4_tcp", 2, tcp4(pattern(1000)), TCP_PROTOCOL, first_four=ports(4096, 80))
    headend.ipv4("of_ipv4_icmp", 2, Raw(bytes.fromhex("0800f7ff00000000")), 1, first_four=nothing)
    headend.ipv4("of_the_first_ipv4_fragment", 2, Raw(pattern(16)), flags="MF", first_four=nothing,
                 about="The flow label does not depend on ports, because later fragments have none.")
    headend.ipv4("of_the_last_ipv4_fragment", 2, Raw(pattern(16)), frag=2, first_four=nothing)
    headend.ipv4("of_ipv4_with_dont_fragment", 2, udp4(), flags="DF")
    headend.ipv4("of_ipv4_with_ttl_2", 2, udp4(), ttl=2)
    headend.ipv4("of_ipv4_with_ttl_255", 2, udp4(), ttl=255)
    headend.ipv4("of_ipv4_trims_ethernet_padding", 2, udp4(b""), trailer=bytes(18))

    path_onlink = ["fc01::99", "fc0b::2"]
    destination = "2001:db8:cff::1"
    for ours in (True, False):
        inner = IPv6(src=HOST_0, dst=destination, hlim=63 if ours else 64, nh=UDP_PROTOCOL, fl=5) / udp6(HOST_0, destination)
        frame = sent(ETH1, headers(path_onlink, IPV6, hop_limit=64 if ours else 63, label=5) / inner, to="02:00:00:00:00:99")
        if ours:
            expect = forward(ETH1, frame)
    group.add(
        "h_encaps_to_a_first_segment_on_the_link", "8986 5.1 S06", ETH0,
        received(ETH0, IPv6(src=HOST_0, dst=destination, hlim=64, nh=UDP_PROTOCOL, fl=5) / udp6(HOST_0, destination)),
        expect, linux=differs(forward(ETH1, frame), WHY6),
    )
    add_first_segments(group)
    headend.expired()
    for name, options in OPTIONS4.items():
        headend.ipv4(f"of_ipv4_with_{name}", 2, udp4(), options=[Raw(options)],
                     about="The packet is forwarded onto the tunnel, which is not the node that obeys its options.")


def add_first_segments(group):
    """First segments that do not lead to a neighbor."""
    def steered(number, hop_limit=64):
        destination = f"2001:db8:{number:x}::1"
        return destination, IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(HOST_0, "2001:db8::")

    rfc = "8986 5.1 S06"
    destination, packet = steered(0xE0)
    label = label6(HOST_0, destination, UDP_PROTOCOL, ports(4096, 53))

    def behind_end(hop_limit, label, inner):
        return outer("fc0a::1", ROUTING, hop_limit, label=label) / SRH(
            next_header=IPV6, segments_left=0, segment_list=["fc0a::1", "fc0f::1"]) / inner

    group.add(
        "h_encaps_whose_first_segment_is_local", [rfc, "8754 4.3.1"], ETH0, received(ETH0, packet),
        forward(ETH1, sent(ETH1, behind_end(63, label, steered(0xE0, 63)[1]))),
        linux=differs(forward(ETH1, sent(ETH1, behind_end(63, 0, packet))), WHY6),
        about="The SID processes the outer header that the headend has made.",
    )
    group.add(
        "h_encaps_whose_first_segment_is_an_own_address", "8754 4.3.2", ETH0, received(ETH0, steered(0xE1)[1]), drop("not_a_sid"),
        linux=skip("Linux takes each of its addresses for a SID"), about="The new headers are checked like received ones.",
    )
    group.add(
        "h_encaps_whose_first_segment_is_not_resolved", rfc, ETH0, received(ETH0, steered(0xE3)[1]), kernel("rewritten"),
        about="The kernel gets the encapsulated packet.",
    )
    for name, number in (
        ("h_encaps_whose_first_segment_has_no_route", 0xE2),
        ("h_encaps_whose_first_segment_is_unreachable", 0xE4),
    ):
        packet = steered(number)[1]
        group.add(name, [rfc, "2473 8.1", "4443 3.1"], ETH0, received(ETH0, packet), drop("no_route"),
                  answer=answer(HOST_0, error(1, 0, 0, packet)),
                  about="Linux sends no message to the source of the packet.")
        packet = ipv4(src=HOST4_0, dst=f"10.{number}.0.1", ttl=64, options=[Raw(OPTIONS4["no_operations"])]) / udp4()
        group.add(f"{name}_of_ipv4", [rfc, "2473 8.3", "1812 5.2.7.1"], ETH0, received(ETH0, packet), drop("no_route"),
                  answer=answer(HOST4_0, error4(3, 0, 0, packet)))


def add_h_encaps_red(group):
    """H.Encaps.Red."""
    headend = Headend(group, "h_encaps_red", "8986 5.2", True)
    headend.counts()
    headend.ipv6("of_ipv6_copies_the_traffic_class", 2, udp_to, traffic_class=0xBB)
    headend.ipv4("of_ipv4_copies_tos", 2, udp4(), tos=0xBB)
    headend.ipv6("of_ipv6_copies_the_flow_label", 1, udp_to, label=0xABCDE)
    headend.ipv6("of_ipv6_tcp", 3, lambda to: tcp6(HOST_0, to, pattern(1000)), TCP_PROTOCOL, first_four=ports(4096, 80))
    headend.ipv4("of_ipv4_tcp", 1, tcp4(pattern(1000)), TCP_PROTOCOL, first_four=ports(4096, 80))
    headend.expired()


def groups():
    """Returns the vector files of this module."""
    encaps = Group(
        "h_encaps", "H.Encaps: an outer IPv6 header with an SRH around IPv6 and IPv4 packets.",
        node(
            routes=routes("encap", PATHS) + [
                "2001:db8:cff::/48 encap seg6 mode encap segs fc01::99,fc0b::2 dev eth1",
                "fc0f::1/128 encap seg6local action End dev eth0",
                "2001:db8:e0::/48 encap seg6 mode encap segs fc0f::1,fc0a::1 dev eth1",
                "2001:db8:e1::/48 encap seg6 mode encap segs fc01::2,fc0a::1 dev eth1",
                "2001:db8:e2::/48 encap seg6 mode encap segs 2001:db8:dead::1 dev eth1",
                "2001:db8:e3::/48 encap seg6 mode encap segs fc01::66 dev eth1",
                "unreachable fc0d::/16",
                "2001:db8:e4::/48 encap seg6 mode encap segs fc0d::1 dev eth1",
                "10.226.0.0/24 encap seg6 mode encap segs 2001:db8:dead::1 dev eth1",
                "10.228.0.0/24 encap seg6 mode encap segs fc0d::1 dev eth1",
            ],
            neighbors=["fc01::99 lladdr 02:00:00:00:00:99 dev eth1"],
            tunsrc=TUNSRC,
        ),
    )
    add_h_encaps(encaps)
    red = Group(
        "h_encaps_red", "H.Encaps.Red: as H.Encaps, but only the destination address has the first segment.",
        node(routes=routes("encap.red", PATHS), tunsrc=TUNSRC),
    )
    add_h_encaps_red(red)
    return [encaps, red]
