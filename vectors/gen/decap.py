"""End.DX6, End.DX4, End.DT6, End.DT4 and End.DT46: shared and separate cases."""

from dataclasses import dataclass

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import SAME, Group, answer, differs, drop, forward, kernel, skip
from .icmp import error
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST4_1, HOST4_2, HOST_0, HOST_1, HOST_2, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, ETHERNET, FRAGMENT, HOP_BY_HOP, IPV4, IPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6,
    ROUTING, SRH, TCP_PROTOCOL, UDP_PROTOCOL, fragment_header, hmac_tlv, ipv4, options_header, padn, pattern, tcp4, tcp6,
    tlv, udp4, udp6, OPTIONS4,
)

UNCHECKED = "seg6_local.c hands the inner packet to the forwarding path without the checks of ip6_rcv and ip_rcv"
FALLS_THROUGH = "if the table of a VRF device has no route, Linux continues with the following rules (l3mdev)"


def outer(sid, next_header=ROUTING, hop_limit=64, **fields):
    """The outer IPv6 header."""
    return IPv6(src=HEADEND, dst=sid, hlim=hop_limit, nh=next_header, **fields)


def inner6(hop_limit, payload=None, next_header=UDP_PROTOCOL, destination=HOST_1, **fields):
    """The inner IPv6 packet."""
    payload = udp6(HOST_0, destination) if payload is None else payload
    return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=next_header, **{"tc": 0x28, "fl": 0x0BEEF, **fields}) / payload


def inner4(ttl, payload=None, destination=HOST4_1, **fields):
    """The inner IPv4 packet."""
    payload = udp4() if payload is None else payload
    return ipv4(src=HOST4_0, dst=destination, ttl=ttl, **{"tos": 0x28, **fields}) / payload


@dataclass
class Decap:
    """One behavior on one inner family, with the prefix of its case names and its egress."""

    prefix: str
    rfc: str
    sid: str
    family: int
    egress: object
    linux: object = SAME
    # Whether the kernel has the same SID. Otherwise Sidestep drops packets that need an ICMP error.
    in_kernel: bool = True

    def inner(self, hop_limit, **fields):
        """An inner packet of the family."""
        return inner6(hop_limit, **fields) if self.family == IPV6 else inner4(hop_limit, **fields)

    def refusal(self, left_to_the_kernel, drop_reason):
        """The verdict on a packet that the kernel answers if it has the SID."""
        return kernel(left_to_the_kernel) if self.in_kernel else drop(drop_reason)

    def large(self, hop_limit, length):
        """An inner TCP packet of `length` octets."""
        if self.family == IPV6:
            return inner6(hop_limit, tcp6(HOST_0, HOST_1, pattern(length - 60)), TCP_PROTOCOL)
        return inner4(hop_limit, tcp4(pattern(length - 40)))


def add_shared(group, decap):
    """Cases of every decapsulation of an IP packet."""

    def forwarded(name, headers, in_inner, out_inner, about="", counters=None, trailer=b"", linux=None):
        group.add(
            f"{decap.prefix}_{name}", decap.rfc, ETH0,
            received(ETH0, bytes(headers / in_inner) + trailer),
            forward(decap.egress, sent(decap.egress, out_inner)),
            linux=linux or decap.linux, about=about, counters=counters,
        )

    def refused(name, rfc, packet, outcome, about="", linux=None):
        if linux is None:
            linux = decap.linux if "drop" in outcome else skip("punted")
        group.add(f"{decap.prefix}_{name}", rfc, ETH0, received(ETH0, packet), outcome, linux, about)

    def srh(next_header=decap.family, segments_left=0, segments=(decap.sid, "fc0a::5"), **fields):
        return SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)

    forwarded("with_an_srh", outer(decap.sid) / srh(), decap.inner(64), decap.inner(63),
              about="The packet leaves without outer header and SRH, and its hop limit falls by one.",
              counters={"route": f"{decap.sid}/128", "packets": 1, "errors": 0})
    forwarded("without_an_srh", outer(decap.sid, decap.family), decap.inner(64), decap.inner(63))
    forwarded("with_a_reduced_srh_of_one_entry", outer(decap.sid) / srh(segments=[decap.sid]), decap.inner(64), decap.inner(63))
    sixteen = [decap.sid] + [f"fc0a::{index:x}" for index in range(1, 16)]
    forwarded("with_an_srh_of_sixteen_segments", outer(decap.sid) / srh(segments=sixteen), decap.inner(64), decap.inner(63))
    forwarded("with_tlvs", outer(decap.sid) / srh(tlvs=tlv(0x7C, b"abc") + padn(9)), decap.inner(64), decap.inner(63))
    forwarded("with_outer_hop_limit_1", outer(decap.sid, hop_limit=1) / srh(), decap.inner(64), decap.inner(63),
              about="The outer packet ends here, so its hop limit does not matter.")
    forwarded("with_inner_hop_limit_2", outer(decap.sid) / srh(), decap.inner(2), decap.inner(1))
    forwarded("behind_destination_options",
              outer(decap.sid, DESTINATION_OPTIONS) / options_header(decap.family, OPTION_EXPERIMENT),
              decap.inner(64), decap.inner(63))
    forwarded("behind_hop_by_hop_srh_and_destination_options",
              outer(decap.sid, HOP_BY_HOP) / options_header(ROUTING, OPTION_PADN_6)
              / srh(DESTINATION_OPTIONS) / options_header(decap.family, OPTION_PADN_6),
              decap.inner(64), decap.inner(63))
    forwarded("behind_destination_options_and_an_srh",
              outer(decap.sid, DESTINATION_OPTIONS) / options_header(ROUTING, OPTION_EXPERIMENT) / srh(),
              decap.inner(64), decap.inner(63))
    forwarded("of_a_large_tcp_packet", outer(decap.sid) / srh(), decap.large(64, 1500 - 80), decap.large(63, 1500 - 80))
    forwarded("trims_octets_behind_the_outer_packet", outer(decap.sid) / srh(), decap.inner(64), decap.inner(63),
              trailer=b"padding")
    behind = b"behind"
    if decap.family == IPV4:
        for name, options in OPTIONS4.items():
            options = {"options": [Raw(options)]}
            group.add(
                f"{decap.prefix}_of_ipv4_with_{name}", [decap.rfc, "1812 5.2.4"], ETH0,
                received(ETH0, outer(decap.sid) / srh() / decap.inner(64, **options)),
                forward(decap.egress, sent(decap.egress, decap.inner(63, **options))), decap.linux,
            )
    forwarded("trims_octets_behind_the_inner_packet", outer(decap.sid) / srh(),
              Raw(bytes(decap.inner(64)) + behind), decap.inner(63),
              linux=decap.linux if decap.linux != SAME else differs(
                  forward(decap.egress, sent(decap.egress, Raw(bytes(decap.inner(63)) + behind))), UNCHECKED))

    refused("with_segments_left_1", decap.rfc, outer(decap.sid) / srh(segments_left=1) / decap.inner(64),
            drop("segments_left_not_zero"))
    refused("with_segments_left_of_a_reduced_srh", decap.rfc,
            outer(decap.sid) / srh(segments_left=1, segments=["fc0a::5"]) / decap.inner(64),
            drop("segments_left_not_zero"), about="Segments Left is Last Entry plus one, so a segment is left.")
    refused("of_udp", "8986 4.1.1", outer(decap.sid, UDP_PROTOCOL) / udp6(HEADEND, decap.sid), drop("upper_layer"))
    refused("of_nothing", "8986 4.1.1", outer(decap.sid) / srh(NO_NEXT_HEADER), drop("upper_layer"))
    refused("of_an_ethernet_frame", "8986 4.1.1", outer(decap.sid, ETHERNET) / Raw(received(ETH1, decap.inner(64))),
            drop("upper_layer"))
    refused("with_inner_hop_limit_1", decap.rfc, outer(decap.sid) / srh() / decap.inner(1),
            decap.refusal("hop_limit_exceeded", "hop_limit"))
    passed_over = None if decap.in_kernel else differs(
        forward(decap.egress, sent(decap.egress, decap.inner(63))),
        "decap_and_validate skips a Fragment header (ipv6_find_hdr) and decapsulates the first fragment",
    )
    refused("of_the_first_fragment_of_the_outer_packet", "8200 4.5",
            outer(decap.sid, FRAGMENT) / fragment_header(decap.family, 0, True) / decap.inner(64), decap.refusal("fragment", "reassembly"),
            linux=passed_over)
    cut = 39 if decap.family == IPV6 else 19
    refused("of_an_inner_header_cut_short", decap.rfc, outer(decap.sid) / srh() / Raw(bytes(decap.inner(64))[:cut]),
            drop("inner_header"))
    refused("of_an_empty_inner_packet", decap.rfc, outer(decap.sid) / srh(), drop("inner_header"))


def add_other_family(group, decap):
    """A behavior of one family refuses the other."""
    other = inner4(64) if decap.family == IPV6 else inner6(64)
    protocol = IPV4 if decap.family == IPV6 else IPV6
    group.add(
        f"{decap.prefix}_of_ipv{4 if protocol == IPV4 else 6}", "8986 4.1.1", ETH0,
        received(ETH0, outer(decap.sid) / SRH(next_header=protocol, segment_list=[decap.sid]) / other),
        drop("upper_layer"), decap.linux,
    )


def add_inner_headers(group, decap, unchecked):
    """Invalid inner headers, which Linux does not check (`unchecked`: egress on Linux)."""
    why = UNCHECKED

    def refused(name, packet, linux_packet):
        linux = decap.linux
        if linux == SAME:
            linux = differs(forward(unchecked, sent(unchecked, linux_packet, kind=0x86DD if decap.family == IPV6 else 0x0800)), why)
        group.add(
            f"{decap.prefix}_{name}", decap.rfc, ETH0,
            received(ETH0, outer(decap.sid, decap.family) / packet), drop("inner_header"), linux,
        )

    if decap.family == IPV6:
        refused("of_inner_version_5", inner6(64, version=5), inner6(63, version=5))
        longer = {"plen": 17}
        refused("of_an_inner_payload_length_beyond_the_packet", inner6(64, **longer), inner6(63, **longer))
    else:
        refused("of_inner_version_5", inner4(64, version=5), decremented(inner4(64, version=5)))
        refused("of_an_inner_total_length_beyond_the_packet", inner4(64, len=37), inner4(63, len=37))
        wrong = inner4(64, chksum=0x1111)
        refused("of_a_wrong_inner_checksum", wrong, inner4(63, chksum=0x1211))


def decremented(packet):
    """The IPv4 packet with its TTL one less: RFC 1624 adds 0x0100 to the checksum."""
    octets = bytearray(bytes(packet))
    octets[8] -= 1
    checksum = int.from_bytes(octets[10:12], "big") + 0x0100
    octets[10:12] = ((checksum & 0xFFFF) + (checksum >> 16)).to_bytes(2, "big")
    return Raw(bytes(octets))


def end_dx6():
    """End.DX6 (RFC 8986 4.4)."""
    group = Group(
        "end_dx6", "End.DX6: decapsulates and forwards to a given IPv6 next hop.",
        node(routes=[
            "fc0f::d6/128 encap seg6local action End.DX6 nh6 fc02::1 dev eth0",
            "fc0f::d60/128 encap seg6local action End.DX6 nh6 :: dev eth0",
            "fc0f::d61/128 encap seg6local action End.DX6 nh6 fc01::66 dev eth0",
            "fc0f::d62/128 encap seg6local action End.DX6 nh6 fc0b::99 dev eth0",
            "blackhole fc0c::/16",
        ], seg6_disabled=(ETH1,)),
    )
    decap = Decap("end_dx6", "8986 4.4", "fc0f::d6", IPV6, ETH2)
    add_shared(group, decap)
    add_other_family(group, decap)
    add_inner_headers(group, decap, ETH2)
    for name, sid, egress, destination in (
        ("end_dx6_with_nh6_unspecified_looks_up", "fc0f::d60", ETH1, HOST_1),
        ("end_dx6_with_nh6_unspecified_looks_up_another", "fc0f::d60", ETH2, HOST_2),
        ("end_dx6_whose_next_hop_has_a_gateway", "fc0f::d62", ETH2, HOST_1),
        ("end_dx6_needs_no_route_to_the_inner_destination", "fc0f::d6", ETH2, "2001:db8:dead::1"),
    ):
        group.add(
            name, "8986 4.4", ETH0,
            received(ETH0, outer(sid, IPV6) / inner6(64, destination=destination)),
            forward(egress, sent(egress, inner6(63, destination=destination))),
        )
    for name, sid, destination, outcome in (
        ("end_dx6_whose_next_hop_is_not_resolved", "fc0f::d61", HOST_1, kernel("neighbor")),
        ("end_dx6_with_nh6_unspecified_and_no_route", "fc0f::d60", "2001:db8:dead::1", kernel("route_miss")),
        ("end_dx6_with_nh6_unspecified_and_a_blackhole", "fc0f::d60", "fc0c::1", drop("blackhole")),
    ):
        group.add(name, "8986 4.4", ETH0, received(ETH0, outer(sid, IPV6) / inner6(64, destination=destination)), outcome)
    group.add(
        "end_dx6_on_a_port_with_seg6_disabled", "8754 4.3.1", ETH1,
        received(ETH1, outer("fc0f::d6", IPV6) / inner6(64)), kernel("seg6_disabled"),
    )
    def behind(count):
        return (
            outer("fc0f::d6", DESTINATION_OPTIONS) / Raw(bytes(options_header(DESTINATION_OPTIONS, OPTION_EXPERIMENT)) * (count - 1))
            / options_header(IPV6, OPTION_EXPERIMENT) / inner6(64)
        )

    group.add(
        "end_dx6_behind_eight_extension_headers", "8504 5.3", ETH0, received(ETH0, behind(8)), forward(ETH2, sent(ETH2, inner6(63))),
    )
    group.add(
        "end_dx6_behind_nine_extension_headers", ["8504 5.3", "8883 3.4"], ETH0, received(ETH0, behind(9)), drop("too_many_headers"),
        differs(forward(ETH2, sent(ETH2, inner6(63))), "ipv6_find_hdr follows any number of headers, and nothing obeys their options"),
        answer=answer(HEADEND, error(4, 8, 40 + 8 * 8, behind(9))),
        about="The pointer locates the ninth header.",
    )
    group.add(
        "end_dx6_behind_destination_options_beyond_the_packet", "8200 4", ETH0,
        received(ETH0, outer("fc0f::d6", DESTINATION_OPTIONS) / Raw(bytes([IPV6, 99]) + OPTION_EXPERIMENT) / inner6(64)),
        drop("ext_header"),
    )
    group.add(
        "end_dx6_with_a_routing_header_of_type_0", "8200 4.4", ETH0,
        received(ETH0, outer("fc0f::d6") / Raw(bytes([IPV6, 2, 0, 1]) + bytes(20)) / inner6(64)),
        kernel("routing_header"),
    )
    group.add(
        "end_dx6_with_an_hmac", "8754 2.1.2", ETH0,
        received(ETH0, outer("fc0f::d6") / SRH(next_header=IPV6, flags=8, segment_list=["fc0f::d6"], tlvs=hmac_tlv(7)) / inner6(64)),
        drop("hmac_key"),
    )
    return group


def end_dx4():
    """End.DX4 (RFC 8986 4.5)."""
    group = Group(
        "end_dx4", "End.DX4: decapsulates and forwards to a given IPv4 next hop.",
        node(routes=[
            "fc0f::d4/128 encap seg6local action End.DX4 nh4 203.0.113.99 dev eth0",
            "fc0f::d40/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0",
            "fc0f::d41/128 encap seg6local action End.DX4 nh4 10.1.0.66 dev eth0",
            "fc0f::d42/128 encap seg6local action End.DX4 nh4 10.2.0.1 dev eth0",
            "blackhole 10.203.0.0/16",
        ]),
    )
    decap = Decap("end_dx4", "8986 4.5", "fc0f::d4", IPV4, ETH2)
    add_shared(group, decap)
    add_other_family(group, decap)
    add_inner_headers(group, decap, ETH2)
    group.add(
        "end_dx4_to_a_next_hop_on_the_link", "8986 4.5", ETH0,
        received(ETH0, outer("fc0f::d42", IPV4) / inner4(64)),
        forward(ETH2, sent(ETH2, inner4(63))),
        linux=differs("drop", "Linux resolves the inner destination by ARP instead of nh4 if nh4 is on the link (rt_nexthop)"),
    )
    for name, egress, destination in (
        ("end_dx4_with_nh4_unspecified_looks_up", ETH1, HOST4_1),
        ("end_dx4_with_nh4_unspecified_looks_up_another", ETH2, HOST4_2),
    ):
        group.add(
            name, "8986 4.5", ETH0,
            received(ETH0, outer("fc0f::d40", IPV4) / inner4(64, destination=destination)),
            forward(egress, sent(egress, inner4(63, destination=destination))),
        )
    for name, sid, destination, outcome in (
        ("end_dx4_whose_next_hop_is_not_resolved", "fc0f::d41", HOST4_1, kernel("neighbor")),
        ("end_dx4_with_nh4_unspecified_and_no_route", "fc0f::d40", "10.250.0.1", kernel("route_miss")),
        ("end_dx4_with_nh4_unspecified_and_a_blackhole", "fc0f::d40", "10.203.0.1", drop("blackhole")),
    ):
        group.add(name, "8986 4.5", ETH0, received(ETH0, outer(sid, IPV4) / inner4(64, destination=destination)), outcome)
    return group


# Table 100 of the End.DT groups: its egress ports differ from those of table main.
TABLE_100 = [
    "2001:db8:a::/48 via fc02::1 dev eth2 table 100",
    "blackhole 2001:db8:d3::/48 table 100",
    "unreachable 2001:db8:d1::/48 table 100",
    "2001:db8:d4::/48 via fc01::66 dev eth1 table 100",
]
TABLE_100_IPV4 = [
    "198.51.100.0/24 via 10.2.0.1 dev eth2 table 100",
    "blackhole 10.203.0.0/16 table 100",
    "unreachable 10.201.0.0/16 table 100",
]


def add_table(group, decap):
    """Lookups in the table of the SID."""
    rows = (
        (
            ("without_a_route_in_its_table", HOST_2, decap.refusal("route_miss", "no_route")),
            ("to_a_blackhole_of_its_table", "2001:db8:d3::1", drop("blackhole")),
            ("to_an_unreachable_route_of_its_table", "2001:db8:d1::1", decap.refusal("route_type", "no_route")),
        ) if decap.family == IPV6 else (
            ("without_a_route_in_its_table", HOST4_2, decap.refusal("route_miss", "no_route")),
            ("to_a_blackhole_of_its_table", "10.203.0.1", drop("blackhole")),
            ("to_an_unreachable_route_of_its_table", "10.201.0.1", decap.refusal("route_type", "no_route")),
        )
    )
    for name, destination, outcome in rows:
        linux = decap.linux if "drop" in outcome else None
        if outcome == drop("no_route") and name.startswith("without"):
            linux = differs(forward(ETH2, sent(ETH2, decap.inner(63, destination=destination))), FALLS_THROUGH)
        group.add(
            f"{decap.prefix}_{name}", decap.rfc, ETH0,
            received(ETH0, outer(decap.sid, decap.family) / decap.inner(64, destination=destination)),
            outcome, linux,
        )


def end_dt6():
    """End.DT6 (RFC 8986 4.6), `table`."""
    group = Group(
        "end_dt6", "End.DT6: decapsulates and looks up the destination in a given IPv6 table.",
        node(routes=[
            "fc0f::d6/128 encap seg6local action End.DT6 table 100 dev eth0",
            "fc0f::d61/128 encap seg6local action End.DT6 table main dev eth0",
            "fc0f::d62/128 encap seg6local action End.DT6 table local dev eth0",
        ] + TABLE_100),
    )
    decap = Decap("end_dt6", "8986 4.6", "fc0f::d6", IPV6, ETH2)
    add_shared(group, decap)
    add_other_family(group, decap)
    add_inner_headers(group, decap, ETH2)
    add_table(group, decap)
    group.add(
        "end_dt6_with_table_main", "8986 4.6", ETH0,
        received(ETH0, outer("fc0f::d61", IPV6) / inner6(64)), forward(ETH1, sent(ETH1, inner6(63))),
    )
    group.add(
        "end_dt6_whose_next_hop_is_not_resolved", "4861 7.2", ETH0,
        received(ETH0, outer("fc0f::d6", IPV6) / inner6(64, destination="2001:db8:d4::1")), kernel("neighbor"),
    )
    group.add(
        "end_dt6_to_an_address_of_this_node", "8986 4.6", ETH0,
        received(ETH0, outer("fc0f::d62", IPV6) / inner6(64, destination="fc00::2")), kernel("rewritten"),
        about="Linux has the same SID, but would ignore the outer ECN field.",
    )
    return group


def end_dt_vrf():
    """The End.DT behaviors that Linux has only with a VRF device, by `table` and by `vrftable`."""
    found = []
    for form, word in (("table", "table"), ("vrftable", "vrftable")):
        group = Group(
            f"end_dt_{form}", f"End.DT4, End.DT46 (and End.DT6) by {word}.",
            node(routes=[
                f"fc0f::d4/128 encap seg6local action End.DT4 {word} 100 dev eth0",
                f"fc0f::46/128 encap seg6local action End.DT46 {word} 100 dev eth0",
            ] + (["fc0f::44/128 encap seg6local action End.DT4 table local dev eth0"] if form == "table" else
                   ["fc0f::d6/128 encap seg6local action End.DT6 vrftable 100 dev eth0"])
                + TABLE_100 + TABLE_100_IPV4),
        )
        linux = SAME
        # Linux does not support `table` for these behaviors, so only Sidestep has the SID.
        in_kernel = form == "vrftable"
        decaps = [
            Decap(f"end_dt4_{form}", "8986 4.7", "fc0f::d4", IPV4, ETH2, linux, in_kernel),
            Decap(f"end_dt46_{form}_ipv4", "8986 4.8", "fc0f::46", IPV4, ETH2, linux, in_kernel),
            Decap(f"end_dt46_{form}_ipv6", "8986 4.8", "fc0f::46", IPV6, ETH2, linux, in_kernel),
        ]
        if form == "table":
            add_shared(group, decaps[0])
            add_inner_headers(group, decaps[0], ETH2)
            add_other_family(group, decaps[0])
            add_inner_headers(group, decaps[1], ETH2)
            add_inner_headers(group, decaps[2], ETH2)
            for decap in decaps:
                add_table(group, decap)
            for decap in decaps[1:]:
                add_few(group, decap)
            group.add(
                "end_dt4_table_to_an_address_of_this_node", "8986 4.7", ETH0,
                received(ETH0, outer("fc0f::44", IPV4) / inner4(64, destination="10.0.0.2")), kernel("rewritten"),
                about="Linux does not have this SID, so it receives the inner packet.",
            )
            group.add(
                "end_dt46_table_whose_next_hop_is_not_resolved", "8986 4.8", ETH0,
                received(ETH0, outer("fc0f::46", IPV6) / inner6(64, destination="2001:db8:d4::1")), drop("no_neighbor"), linux,
            )
        else:
            decaps.append(Decap(f"end_dt6_{form}", "8986 4.6", "fc0f::d6", IPV6, ETH2, linux))
            for decap in decaps:
                add_few(group, decap)
                add_table(group, decap)
        group.add(
            f"end_dt46_{form}_of_udp", "8986 4.1.1", ETH0,
            received(ETH0, outer("fc0f::46", UDP_PROTOCOL) / udp6(HEADEND, "fc0f::46")), drop("upper_layer"), linux,
        )
        found.append(group)
    return found


def add_few(group, decap):
    """The main cases of `add_shared`, for an earlier behavior with another table attribute."""
    for name, headers in (
        ("with_an_srh", outer(decap.sid) / SRH(next_header=decap.family, segment_list=[decap.sid, "fc0a::5"])),
        ("without_an_srh", outer(decap.sid, decap.family)),
    ):
        group.add(
            f"{decap.prefix}_{name}", decap.rfc, ETH0,
            received(ETH0, headers / decap.inner(64)), forward(ETH2, sent(ETH2, decap.inner(63))), decap.linux,
        )
    group.add(
        f"{decap.prefix}_with_segments_left_1", decap.rfc, ETH0,
        received(ETH0, outer(decap.sid)
                 / SRH(next_header=decap.family, segments_left=1, segment_list=["fc0a::5", decap.sid]) / decap.inner(64)),
        drop("segments_left_not_zero"), decap.linux,
    )


def groups():
    """Returns the vector files of this module."""
    return [end_dx6(), end_dx4(), end_dt6()] + end_dt_vrf()
