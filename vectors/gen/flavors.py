"""Flavors USP and USD (RFC 8986 4.16.2, 4.16.3) on End, End.X and End.T, alone, together and with PSP."""

from dataclasses import dataclass

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, drop, forward, kernel, skip
from .decap import inner4, inner6
from .ecn import CE, ECT0, ECT1, NOT_ECT
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_1, HOST4_2, HOST_0, HOST_1, HOST_2, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, ETHERNET, FRAGMENT, HOP_BY_HOP, IPV4, IPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6,
    OPTION_ROUTER_ALERT,
    ROUTING, SRH, TCP_PROTOCOL, UDP_PROTOCOL, fragment_header, hmac_tlv, options_header, padn, pattern, tcp4, tcp6, tlv, udp6,
)

USP = "8986 4.16.2"
USD = "8986 4.16.3"
NO_LINUX = skip("Linux has neither USP nor USD (SEG6_LOCAL_FLV8986_SUPP_OPS)")
MTU = 1400

# Table 100 sends the hosts of eth1 to eth2; End.X goes to eth2 as well.
TABLE_100 = [
    "fc0a::/16 via fc02::1 dev eth2 table 100",
    "2001:db8:a::/48 via fc02::1 dev eth2 table 100",
    "198.51.100.0/24 via 10.2.0.1 dev eth2 table 100",
    "2001:db8:d3::/48 via fc02::66 dev eth2 table 100",
    "blackhole 10.203.0.0/16 table 100",
]


@dataclass
class Endpoint:
    """One behavior, with the prefix of its case names, the words of its route, and its egress."""

    prefix: str
    words: str
    digit: str
    egress: object

    def sid(self, number):
        """SID `number` of the behavior."""
        return f"fc0f::{self.digit}{number:x}"

    def route(self, number, flavors):
        """The SID with these flavors."""
        return f"{self.sid(number)}/128 encap seg6local action {self.words} flavors {flavors} dev eth0"


END = Endpoint("end", "End", "e0", ETH1)
END_X = Endpoint("end_x", "End.X nh6 fc02::1", "a0", ETH2)
END_T = Endpoint("end_t", "End.T table 100", "74", ETH2)
# End.X with USD whose next hop has no link-layer address.
NOT_RESOLVED = "fc0f::af"
ONLY_USD, PSP_USD, PSP_USP_USD, ONLY_USP, PSP_USP, USP_USD = range(1, 7)
FLAVORS = {
    ONLY_USD: "usd", PSP_USD: "psp,usd", PSP_USP_USD: "psp,usp,usd", ONLY_USP: "usp", PSP_USP: "psp,usp", USP_USD: "usp,usd",
}
PARTS = {
    ONLY_USD: "usd", PSP_USD: "psp_usd", PSP_USP_USD: "psp_usp_usd", ONLY_USP: "usp", PSP_USP: "psp_usp", USP_USD: "usp_usd",
}


def outer(sid, next_header=ROUTING, hop_limit=64, **fields):
    """The outer IPv6 header."""
    return IPv6(src=HEADEND, dst=sid, hlim=hop_limit, nh=next_header, **fields)


def srh(next_header, segments, segments_left=0, **fields):
    """The SRH."""
    return SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)


def add_decapsulation(group, endpoint):
    """USD: Segments Left is 0, and the payload is an IP packet."""
    sid = endpoint.sid(ONLY_USD)

    def forwarded(name, headers, before, after, about="", counters=None, trailer=b"", rfc=USD):
        group.add(
            f"{endpoint.prefix}_{name}", rfc, ETH0, received(ETH0, bytes(headers / before) + trailer),
            forward(endpoint.egress, sent(endpoint.egress, after)), NO_LINUX, about, counters,
        )

    for family, protocol, inner in (("ipv6", IPV6, inner6), ("ipv4", IPV4, inner4)):
        forwarded(f"usd_of_{family}_with_an_srh", outer(sid) / srh(protocol, [sid, "fc0a::5"]), inner(64), inner(63),
                  about="Segments Left is 0. The packet leaves without outer header and SRH, and its hop limit falls by one.",
                  counters={"route": f"{sid}/128", "packets": 1, "errors": 0})
        forwarded(f"usd_of_{family}_without_an_srh", outer(sid, protocol), inner(64), inner(63))
        forwarded(f"usd_of_{family}_with_outer_hop_limit_1", outer(sid, hop_limit=1) / srh(protocol, [sid]), inner(64), inner(63),
                  about="The outer packet ends here, so its hop limit does not matter.")
        forwarded(f"usd_of_{family}_with_inner_hop_limit_2", outer(sid, protocol), inner(2), inner(1))
        forwarded(f"usd_of_{family}_behind_extension_headers",
                  outer(sid, HOP_BY_HOP) / options_header(ROUTING, OPTION_PADN_6) / srh(DESTINATION_OPTIONS, [sid])
                  / options_header(protocol, OPTION_EXPERIMENT), inner(64), inner(63))
        for number in (PSP_USD, PSP_USP_USD, USP_USD):
            other = endpoint.sid(number)
            forwarded(f"{PARTS[number]}_of_{family}_with_segments_left_zero", outer(other) / srh(protocol, [other]),
                      inner(64), inner(63), rfc=[USD, USP] if number != PSP_USD else USD,
                      about="USD decapsulates the packet. PSP does not apply at the last segment.")
    forwarded("usd_with_tlvs", outer(sid) / srh(IPV6, [sid], tlvs=tlv(0x7C, b"abc") + padn(9)), inner6(64), inner6(63))
    forwarded("usd_trims_octets_behind_the_outer_packet", outer(sid, IPV4), inner4(64), inner4(63), trailer=b"padding")
    large6 = tcp6(HOST_0, HOST_1, pattern(900))
    forwarded("usd_of_a_large_ipv6_packet", outer(sid) / srh(IPV6, [sid]),
              inner6(64, large6, TCP_PROTOCOL), inner6(63, large6, TCP_PROTOCOL))
    forwarded("usd_of_a_large_ipv4_packet", outer(sid) / srh(IPV4, [sid]), inner4(64, tcp4(pattern(900))), inner4(63, tcp4(pattern(900))))
    # RFC 6040 4.2, as for End.DT6; every cell is in ecn_decapsulation.yaml.
    for name, outer_ecn, inner_ecn, outgoing in (
        ("ce_over_ect0", CE, ECT0, CE), ("ect1_over_ect0", ECT1, ECT0, ECT1), ("ect0_over_not_ect", ECT0, NOT_ECT, NOT_ECT),
    ):
        header = outer(sid, tc=0xB8 | outer_ecn)
        forwarded(f"usd_of_ipv6_with_ecn_{name}", header / srh(IPV6, [sid]), inner6(64, tc=0x28 | inner_ecn),
                  inner6(63, tc=0x28 | outgoing), rfc="6040 4.2")
        forwarded(f"usd_of_ipv4_with_ecn_{name}", header / srh(IPV4, [sid]), inner4(64, tos=0x28 | inner_ecn),
                  inner4(63, tos=0x28 | outgoing), rfc="6040 4.2")


def add_advance(group, endpoint):
    """Segments Left not 0: as without USP and USD."""
    udp = udp6(HEADEND, SEGMENT_1)
    for number, flavors in FLAVORS.items():
        sid, name, pops = endpoint.sid(number), PARTS[number], flavors.startswith("psp")
        three = [SEGMENT_1, "fc0a::2", sid]
        group.add(
            f"{endpoint.prefix}_{name}_with_segments_left_2", "8986 4.1 S12-S15", ETH0,
            received(ETH0, outer(sid) / srh(UDP_PROTOCOL, three, 2) / udp),
            forward(endpoint.egress, sent(endpoint.egress, outer("fc0a::2", hop_limit=63) / srh(UDP_PROTOCOL, three, 1) / udp)),
            NO_LINUX,
        )
        last = outer(SEGMENT_1, UDP_PROTOCOL, 63) / udp if pops else (
            outer(SEGMENT_1, hop_limit=63) / srh(UDP_PROTOCOL, three) / udp)
        group.add(
            f"{endpoint.prefix}_{name}_with_segments_left_1", "8986 4.16.1" if pops else "8986 4.1 S12-S15", ETH0,
            received(ETH0, outer(sid) / srh(UDP_PROTOCOL, three, 1) / udp),
            forward(endpoint.egress, sent(endpoint.egress, last)), NO_LINUX,
        )
    sid = endpoint.sid(ONLY_USD)
    two = [SEGMENT_1, sid]
    group.add(
        f"{endpoint.prefix}_usd_with_segments_left_1_does_not_look_inside", "8986 4.1 S12-S15", ETH0,
        received(ETH0, outer(sid) / srh(IPV6, two, 1) / inner6(7)),
        forward(endpoint.egress, sent(endpoint.egress, outer(SEGMENT_1, hop_limit=63) / srh(IPV6, two) / inner6(7))), NO_LINUX,
    )


def add_refused(group, endpoint):
    """Drops and punts."""

    def refused(name, rfc, packet, outcome, about="", counters=None):
        group.add(f"{endpoint.prefix}_{name}", rfc, ETH0, received(ETH0, packet), outcome, NO_LINUX, about, counters)

    sid = endpoint.sid(ONLY_USD)
    for number in FLAVORS:
        this = endpoint.sid(number)
        refused(f"{PARTS[number]}_of_udp_with_segments_left_zero", "8986 4.1.1",
                outer(this) / srh(UDP_PROTOCOL, [this]) / udp6(HEADEND, this), drop("upper_layer"),
                "The payload behind the SRH is for this node, and the SID does not accept this upper layer.",
                {"route": f"{this}/128", "packets": 0, "errors": 1})
    for number in (ONLY_USP, PSP_USP):
        this = endpoint.sid(number)
        refused(f"{PARTS[number]}_of_ipv6_with_segments_left_zero", ["8986 4.1.1", USP],
                outer(this) / srh(IPV6, [this]) / inner6(64), drop("upper_layer"),
                "USP would remove the SRH. Without USD, IPv6 is an ordinary upper layer.")
        refused(f"{PARTS[number]}_without_an_srh", "8986 4.1.1", outer(this, UDP_PROTOCOL) / udp6(HEADEND, this), drop("no_srh"),
                "USP has no effect on a packet without an SRH.")
    refused("usd_of_udp_without_an_srh", "8986 4.1.1", outer(sid, UDP_PROTOCOL) / udp6(HEADEND, sid), drop("upper_layer"))
    refused("usd_of_nothing", "8986 4.1.1", outer(sid) / srh(NO_NEXT_HEADER, [sid]), drop("upper_layer"))
    refused("usd_of_an_ethernet_frame", "8986 4.1.1", outer(sid, ETHERNET) / Raw(received(ETH1, inner6(64))), drop("upper_layer"))
    refused("usd_of_a_fragment", "8200 4.5", outer(sid, FRAGMENT) / fragment_header(IPV6, 0, True) / inner6(64), drop("reassembly"))
    refused("usd_of_an_inner_ipv6_header_cut_short", USD, outer(sid, IPV6) / Raw(bytes(inner6(64))[:39]), drop("inner_header"))
    refused("usd_of_an_inner_ipv4_header_cut_short", USD, outer(sid, IPV4) / Raw(bytes(inner4(64))[:19]), drop("inner_header"))
    refused("usd_of_a_wrong_inner_checksum", USD, outer(sid, IPV4) / inner4(64, chksum=0x1111), drop("inner_header"))
    refused("usd_with_ecn_ce_over_not_ect", "6040 4.2", outer(sid, IPV6, tc=CE) / inner6(64, tc=NOT_ECT), drop("ecn"))
    refused("usd_of_ipv4_with_ecn_ce_over_not_ect", "6040 4.2", outer(sid, IPV4, tc=CE) / inner4(64, tos=NOT_ECT), drop("ecn"))
    # Linux lacks the SID, so Sidestep drops packets that need an ICMP error.
    refused("usd_with_inner_hop_limit_1", USD, outer(sid, IPV6) / inner6(1), drop("hop_limit"))
    refused("usd_of_ipv4_with_inner_ttl_1", USD, outer(sid, IPV4) / inner4(1), drop("hop_limit"))
    two = [SEGMENT_1, sid]
    refused("usd_with_segments_left_1_and_hop_limit_1", "8986 4.1 S05",
            outer(sid, hop_limit=1) / srh(UDP_PROTOCOL, two, 1) / udp6(HEADEND, SEGMENT_1), drop("hop_limit"))
    refused("usd_with_segments_left_beyond_last_entry", "8986 4.1 S09",
            outer(sid) / srh(IPV6, two, 3) / inner6(64), drop("srh_segments_left"))
    refused("usd_with_an_hmac", "8754 2.1.2",
            outer(sid) / srh(IPV6, [sid], flags=8, tlvs=hmac_tlv(7)) / inner6(64), drop("hmac_key"))
    group.add(
        f"{endpoint.prefix}_usd_on_hop_by_hop_options", "8200 4.2", ETH0,
        received(ETH0, outer(sid, HOP_BY_HOP) / options_header(IPV6, OPTION_ROUTER_ALERT) / inner6(64)),
        forward(endpoint.egress, sent(endpoint.egress, inner6(63))), NO_LINUX,
        about="The kernel lacks the SID, so Sidestep skips the option as its type says.",
    )


def add_lookups(group, endpoint):
    """Lookups of End and End.T, with and without a match."""
    sid = endpoint.sid(ONLY_USD)
    rows = (
        ("usd_to_another_host", inner6, HOST_2, IPV6, ETH2), ("usd_of_ipv4_to_another_host", inner4, HOST4_2, IPV4, ETH2),
    ) if endpoint is END else ()
    for name, inner, destination, protocol, egress in rows:
        group.add(
            f"{endpoint.prefix}_{name}", USD, ETH0, received(ETH0, outer(sid, protocol) / inner(64, destination=destination)),
            forward(egress, sent(egress, inner(63, destination=destination))), NO_LINUX,
        )
    refusals = {
        "end": (
            ("usd_without_a_route", inner6, "2001:db8:dead::1", IPV6, drop("no_route")),
            ("usd_of_ipv4_without_a_route", inner4, "10.250.0.1", IPV4, drop("no_route")),
            ("usd_to_an_address_of_this_node", inner6, "fc00::2", IPV6, kernel("rewritten")),
            ("usd_of_ipv4_to_an_address_of_this_node", inner4, "10.0.0.2", IPV4, kernel("rewritten")),
        ),
        "end_x": (),
        "end_t": (
            ("usd_without_a_route_in_its_table", inner6, HOST_2, IPV6, drop("no_route")),
            ("usd_of_ipv4_without_a_route_in_its_table", inner4, HOST4_2, IPV4, drop("no_route")),
            ("usd_whose_gateway_is_not_resolved", inner6, "2001:db8:d3::1", IPV6, drop("no_neighbor")),
            ("usd_of_ipv4_to_a_blackhole_of_its_table", inner4, "10.203.0.1", IPV4, drop("blackhole")),
        ),
    }[endpoint.prefix]
    for name, inner, destination, protocol, outcome in refusals:
        group.add(
            f"{endpoint.prefix}_{name}", USD, ETH0,
            received(ETH0, outer(sid, protocol) / inner(64, destination=destination)), outcome, NO_LINUX,
        )
    if endpoint is END_X:
        for name, inner, destination, protocol in (
            ("usd_needs_no_route_to_the_inner_destination", inner6, "2001:db8:dead::1", IPV6),
            ("usd_of_ipv4_needs_no_route_to_the_inner_destination", inner4, "10.250.0.1", IPV4),
        ):
            group.add(
                f"end_x_{name}", USD, ETH0, received(ETH0, outer(sid, protocol) / inner(64, destination=destination)),
                forward(ETH2, sent(ETH2, inner(63, destination=destination))), NO_LINUX,
                about="The adjacency has an IPv6 next hop, but End.X uses only its link-layer address.",
            )
        udp = udp6(HEADEND, SEGMENT_1)
        two = [SEGMENT_1, NOT_RESOLVED]
        for name, packet in (
            ("usd_whose_next_hop_is_not_resolved", outer(NOT_RESOLVED, IPV6) / inner6(64)),
            ("usd_of_ipv4_whose_next_hop_is_not_resolved", outer(NOT_RESOLVED, IPV4) / inner4(64)),
            ("usd_with_segments_left_1_whose_next_hop_is_not_resolved", outer(NOT_RESOLVED) / srh(UDP_PROTOCOL, two, 1) / udp),
        ):
            group.add(
                f"end_x_{name}", USD, ETH0, received(ETH0, packet), drop("no_neighbor"), NO_LINUX,
                about="Tables have a route to the destination. End.X ignores them, so the kernel must not forward the packet either.",
            )


def add_used_srhs(group, endpoint):
    """USP removes SRHs with Segments Left 0 and processes the next (RFC 8986 4.16.2 S02-S05)."""
    udp = udp6(HEADEND, SEGMENT_1)

    def forwarded(name, number, before, after, about="", rfc=USP):
        sid = endpoint.sid(number)
        first, headers = before(sid)
        then, left = after(sid)
        group.add(
            f"{endpoint.prefix}_{PARTS[number]}_{name}", rfc, ETH0, received(ETH0, outer(sid, first) / headers / udp),
            forward(endpoint.egress, sent(endpoint.egress, outer(SEGMENT_1, then, 63) / left / udp if left else
                                          outer(SEGMENT_1, then, 63) / udp)), NO_LINUX, about,
        )

    def used(next_header, sid, **fields):
        return srh(next_header, [sid], **fields)

    def following(sid, segments_left, next_header=UDP_PROTOCOL):
        return srh(next_header, [SEGMENT_1, sid], segments_left)

    options = options_header(ROUTING, OPTION_EXPERIMENT)
    for number in (ONLY_USP, USP_USD):
        forwarded("with_a_further_srh", number,
                  lambda sid: (ROUTING, used(ROUTING, sid) / following(sid, 1)),
                  lambda sid: (ROUTING, following(sid, 0)),
                  about="USP removes the first SRH, whose Segments Left is 0, and End advances the next one.")
        forwarded("with_two_used_srhs", number,
                  lambda sid: (ROUTING, used(ROUTING, sid) / used(ROUTING, "fc0a::9", tlvs=padn(6)) / following(sid, 1)),
                  lambda sid: (ROUTING, following(sid, 0)))
        forwarded("with_destination_options_between_srhs", number,
                  lambda sid: (ROUTING, used(DESTINATION_OPTIONS, sid) / options / following(sid, 1)),
                  lambda sid: (DESTINATION_OPTIONS, options / following(sid, 0)))
        forwarded("behind_a_hop_by_hop_header", number,
                  lambda sid: (HOP_BY_HOP, options_header(ROUTING, OPTION_PADN_6) / used(ROUTING, sid) / following(sid, 1)),
                  lambda sid: (HOP_BY_HOP, options_header(ROUTING, OPTION_PADN_6) / following(sid, 0)))
        forwarded("behind_another_routing_header", number,
                  lambda sid: (ROUTING, Raw(bytes([ROUTING, 0, 253, 0, 0, 0, 0, 0])) / used(ROUTING, sid) / following(sid, 1)),
                  lambda sid: (ROUTING, Raw(bytes([ROUTING, 0, 253, 0, 0, 0, 0, 0])) / following(sid, 0)),
                  about="USP removes SRHs, not other routing headers.", rfc=[USP, "8200 4.4"])
    for number in (PSP_USP, PSP_USP_USD):
        forwarded("with_a_further_srh", number,
                  lambda sid: (ROUTING, used(ROUTING, sid) / following(sid, 1)),
                  lambda sid: (UDP_PROTOCOL, None),
                  about="USP removes the first SRH and PSP the second.", rfc=[USP, "8986 4.16.1"])
        forwarded("behind_options_with_a_further_srh", number,
                  lambda sid: (DESTINATION_OPTIONS, options / used(ROUTING, sid) / used(ROUTING, sid) / following(sid, 1)),
                  lambda sid: (DESTINATION_OPTIONS, options_header(UDP_PROTOCOL, OPTION_EXPERIMENT)),
                  rfc=[USP, "8986 4.16.1"])
        sid = endpoint.sid(number)
        group.add(
            f"{endpoint.prefix}_{PARTS[number]}_with_destination_options_between_srhs_to_remove", [USP, "8986 4.16.1"], ETH0,
            received(ETH0, outer(sid) / used(DESTINATION_OPTIONS, sid) / options / following(sid, 1) / udp),
            drop("kernel_only"), NO_LINUX, about="The fast path can remove only one range of octets.",
        )
    for number in (ONLY_USD, PSP_USD):
        sid = endpoint.sid(number)
        left = following(sid, 0) if number == ONLY_USD else None
        after = outer(SEGMENT_1, ROUTING, 63) / used(ROUTING if left else UDP_PROTOCOL, sid)
        group.add(
            f"{endpoint.prefix}_{PARTS[number]}_keeps_a_used_srh", "8754 4.3.1.1 S02", ETH0,
            received(ETH0, outer(sid) / used(ROUTING, sid) / following(sid, 1) / udp),
            forward(endpoint.egress, sent(endpoint.egress, after / left / udp if left else after / udp)), NO_LINUX,
            about="Without USP, the SRH with Segments Left 0 stays in the packet.",
        )


def add_mtu(group, endpoint):
    """The packet inside against the egress MTU."""
    sid = endpoint.sid(ONLY_USD)

    def inner(hop_limit, length):
        return inner6(hop_limit, tcp6(HOST_0, HOST_1, pattern(length - 60)), TCP_PROTOCOL)

    group.add(
        f"{endpoint.prefix}_usd_of_exactly_the_mtu", "8200 5", ETH0, received(ETH0, outer(sid, IPV6) / inner(64, MTU)),
        forward(endpoint.egress, sent(endpoint.egress, inner(63, MTU))), NO_LINUX,
    )
    group.add(
        f"{endpoint.prefix}_usd_of_one_octet_more_than_the_mtu", "8200 5", ETH0,
        received(ETH0, outer(sid, IPV6) / inner(64, MTU + 1)), drop("too_big"), NO_LINUX,
    )


def add_chains(group):
    """Into and out of End with USD."""
    sid = END.sid(ONLY_USD)
    path = [sid, "fc0f::1"]
    for family, protocol, inner in (("ipv6", IPV6, inner6), ("ipv4", IPV4, inner4)):
        group.add(
            f"end_then_end_usd_of_{family}", ["8754 4.3.1", USD], ETH0,
            received(ETH0, outer("fc0f::1") / srh(protocol, path, 1) / inner(64)),
            forward(ETH1, sent(ETH1, inner(63))), NO_LINUX,
            about="End sets Segments Left to 0, and the next SID decapsulates the packet.",
        )
    psp = END.sid(PSP_USD)
    group.add(
        "end_psp_usd_then_end_usd", ["8754 4.3.1", "8986 4.16.1", USD], ETH0,
        received(ETH0, outer(psp) / srh(IPV6, [sid, psp], 1) / inner6(64)), forward(ETH1, sent(ETH1, inner6(63))), NO_LINUX,
        about="PSP removes the SRH at the first SID. The second SID decapsulates the packet without it.",
    )
    last, usp = udp6(HEADEND, SEGMENT_1), END.sid(ONLY_USP)
    two = srh(UDP_PROTOCOL, [SEGMENT_1, usp], 1)
    group.add(
        "end_then_end_usp_with_a_further_srh", ["8754 4.3.1", USP], ETH0,
        received(ETH0, outer("fc0f::1") / srh(ROUTING, [usp, "fc0f::1"], 1) / two / last),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, hop_limit=62) / srh(UDP_PROTOCOL, [SEGMENT_1, usp]) / last)), NO_LINUX,
        about="End sets Segments Left of the first SRH to 0, and USP removes this SRH at the second SID. Each SID decrements the hop limit (8986 4.1 S12).",
    )
    group.add(
        "end_psp_usd_then_end_usp_with_a_further_srh", ["8754 4.3.1", "8986 4.16.1"], ETH0,
        received(ETH0, outer(psp) / srh(ROUTING, [usp, psp], 1) / two / last),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, hop_limit=62) / srh(UDP_PROTOCOL, [SEGMENT_1, usp]) / last)), NO_LINUX,
        about="PSP removes the first SRH, and the second SID advances the next one.",
    )
    udp = udp6(HOST_0, SEGMENT_1)

    def inside(destination, hop_limit, segments_left):
        header = srh(UDP_PROTOCOL, [SEGMENT_1, "fc0f::1"], segments_left)
        return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=ROUTING) / header / udp

    group.add(
        "end_usd_then_end_of_the_inner_packet", ["8754 4.3.1", USD], ETH0,
        received(ETH0, outer(sid, IPV6) / inside("fc0f::1", 33, 1)),
        forward(ETH1, sent(ETH1, inside(SEGMENT_1, 32, 0))), NO_LINUX,
    )
    group.add(
        "end_usd_then_end_usd_of_the_inner_packet", ["8754 4.3.1", USD], ETH0,
        received(ETH0, outer(sid, IPV6) / IPv6(src=HOST_0, dst=sid, hlim=9, nh=IPV4) / inner4(64, destination=HOST4_1)),
        forward(ETH1, sent(ETH1, inner4(63, destination=HOST4_1))), NO_LINUX,
    )


def groups():
    """Returns the vector files of this module."""
    found = []
    for endpoint, name in ((END, "End"), (END_X, "End.X"), (END_T, "End.T")):
        routes = [endpoint.route(number, flavors) for number, flavors in FLAVORS.items()]
        more = {
            "end": ["fc0f::1/128 encap seg6local action End dev eth0"],
            "end_x": [f"{NOT_RESOLVED}/128 encap seg6local action End.X nh6 fc02::66 flavors usd dev eth0"],
            "end_t": TABLE_100,
        }[endpoint.prefix]
        group = Group(
            f"{endpoint.prefix}_usp_usd", f"{name} with the flavors USP and USD, which Linux does not have.",
            node(routes=routes + more, mtu={endpoint.egress.name: MTU}),
        )
        add_decapsulation(group, endpoint)
        add_advance(group, endpoint)
        add_refused(group, endpoint)
        add_lookups(group, endpoint)
        add_mtu(group, endpoint)
        add_used_srhs(group, endpoint)
        if endpoint is END:
            add_chains(group)
        found.append(group)
    return found
