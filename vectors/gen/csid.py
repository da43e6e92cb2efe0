"""NEXT-C-SID (RFC 9800 4.1) on End and End.X: containers of C-SIDs in the destination address.

This file writes a container as a Locator-Block and a list of C-SIDs. The sent packet has the same
block, the list without its first C-SID, and zeros behind it.
"""

import ipaddress
from dataclasses import dataclass

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import ONE_DECREMENT, Group, differs, drop, forward, kernel, skip
from .decap import inner4, inner6
from .local_chain import decremented
from .node import ETH0, ETH1, ETH2, HEADEND, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, IPV4, IPV6, NO_NEXT_HEADER, OPTION_EXPERIMENT, OPTION_PADN_6,
    OPTION_ROUTER_ALERT, ROUTING, SRH, TCP_PROTOCOL, UDP_PROTOCOL, fragment_header, hmac_tlv, options_header, padn, pattern, tcp6, tlv,
    udp6,
)

RFC = "9800 4.1.1"
RFC_X = "9800 4.1.2"


@dataclass(frozen=True)
class Lengths:
    """A Locator-Block and the length of its C-SIDs, both in bits."""

    block: str
    block_bits: int
    csid_bits: int

    @property
    def name(self):
        """Part of a case's name."""
        return f"{self.block_bits}_{self.csid_bits}"

    @property
    def words(self):
        """The lengths in iproute2's syntax."""
        return f"lblen {self.block_bits} nflen {self.csid_bits}"

    def address(self, *csids, rest=""):
        """Block, C-SIDs, the bits behind them, and zeros."""
        bits = format(int(ipaddress.IPv6Address(self.block)), "0128b")[: self.block_bits]
        bits = (bits + "".join(format(csid, f"0{self.csid_bits}b") for csid in csids) + rest).ljust(128, "0")
        assert len(bits) == 128
        return str(ipaddress.IPv6Address(int(bits, 2)))

    def prefix(self, csid):
        """The route of a C-SID: block and C-SID."""
        return f"{self.address(csid)}/{self.block_bits + self.csid_bits}"


class Container(Lengths):
    """Lengths of NEXT-C-SID, with the C-SIDs in the destination address."""

    @property
    def room(self):
        """C-SIDs in a container."""
        return (128 - self.block_bits) // self.csid_bits

    def container(self, *csids, tail=0):
        """The address. `tail`: the bits that remain behind the last possible C-SID."""
        empty = [0] * (self.room - len(csids))
        rest = 128 - self.block_bits - self.room * self.csid_bits
        return self.address(*csids, *empty, rest=format(tail, f"0{rest}b") if rest else "")


USUAL = Container("fcbb:bb00::", 32, 16)
ALL = [
    USUAL,
    Container("fcbc:0:1::", 48, 16),
    Container("fcbd:bb00::", 32, 32),
    Container("fcbe::", 16, 8),
    Container("fcbf:0:0:1::", 64, 16),
    Container("fcc0:0:cc00::", 40, 24),
]

# C-SIDs of this node, and of nodes behind eth1 and eth2.
LOCAL, LOCAL_2, LOCAL_3, LOCAL_4, LOCAL_5 = 0x11, 0x12, 0x13, 0x14, 0x15
ADJACENT, ADJACENT_2 = 0x21, 0x22
DT6, DX4 = 0xD6, 0xD4
BEHIND_1, BEHIND_2 = 0xA1, 0xB1
UNRESOLVED, BLACKHOLE, NOWHERE = 0xE1, 0xE2, 0xE3


def packet(destination, hop_limit=64, payload=None, next_header=UDP_PROTOCOL, **fields):
    """A packet without an SRH."""
    payload = udp6(HEADEND, SEGMENT_1) if payload is None else payload
    return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=next_header, **fields) / payload


def with_srh(destination, hop_limit, segments_left, segments, next_header=UDP_PROTOCOL, payload=None, **fields):
    """A packet with an SRH."""
    header = SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)
    return packet(destination, hop_limit, header / (udp6(HEADEND, segments[0]) if payload is None else payload), ROUTING)


def neighbors_of(lengths):
    """Routes to the C-SIDs behind eth1 and eth2."""
    return [f"{lengths.prefix(BEHIND_1)} via fc01::1 dev eth1", f"{lengths.prefix(BEHIND_2)} via fc02::1 dev eth2"]


def add_lengths(group):
    """Every pair of lengths, with every possible number of C-SIDs."""
    for lengths in ALL:
        one = {"route": lengths.prefix(LOCAL), "packets": 1, "errors": 0}
        for count in range(2, lengths.room + 1):
            # The C-SIDs after the next one belong to other nodes: any distinct numbers.
            csids = [LOCAL, BEHIND_1 if count % 2 else BEHIND_2] + [0x31 + index for index in range(count - 2)]
            egress = ETH1 if count % 2 else ETH2
            group.add(
                f"csid_{lengths.name}_container_of_{count}", f"{RFC} S05-S08", ETH0,
                received(ETH0, packet(lengths.container(*csids))),
                forward(egress, sent(egress, packet(lengths.container(*csids[1:]), 63))),
                about="The Argument moves up to the block; no SRH." if count == 2 else "",
                counters=one if count == 2 else None,
            )
        group.add(
            f"csid_{lengths.name}_container_of_1_goes_on_in_the_srh", [RFC, "8986 4.1 S12-S15"], ETH0,
            received(ETH0, with_srh(lengths.container(LOCAL), 64, 1, [SEGMENT_1, lengths.container(LOCAL)])),
            forward(ETH1, sent(ETH1, with_srh(SEGMENT_1, 63, 0, [SEGMENT_1, lengths.container(LOCAL)]))),
            about="The Argument is 0, so End processes the SRH.",
        )
        group.add(
            f"csid_{lengths.name}_container_of_1_without_an_srh", "8986 4.1.1", ETH0,
            received(ETH0, packet(lengths.container(LOCAL))), drop("no_srh"),
            counters={"route": lengths.prefix(LOCAL), "packets": 0, "errors": 1},
        )
        far = [LOCAL] + [BEHIND_1] * (lengths.room - 1)
        group.add(
            f"csid_{lengths.name}_container_of_the_same_csid_again_and_again", RFC, ETH0,
            received(ETH0, packet(lengths.container(*far))), forward(ETH1, sent(ETH1, packet(lengths.container(*far[1:]), 63))),
        )
        group.add(
            f"csid_{lengths.name}_container_of_all_ones", RFC, ETH0,
            received(ETH0, packet(lengths.container(LOCAL, BEHIND_1, *[2**lengths.csid_bits - 1] * (lengths.room - 2)))),
            forward(ETH1, sent(ETH1, packet(
                lengths.container(BEHIND_1, *[2**lengths.csid_bits - 1] * (lengths.room - 2)), 63))),
        )
    odd = ALL[-1]
    # 40 + 3 * 24 = 112: the last 16 bits of the Argument are not a C-SID. They move up by 24 with
    # the rest, to bits 88 to 103, where they are the upper 16 bits of the third C-SID.
    group.add(
        "csid_40_24_moves_the_bits_that_are_no_csid_as_well", RFC, ETH0,
        received(ETH0, packet(odd.container(LOCAL, BEHIND_1, 0x31, tail=0xCAFE))),
        forward(ETH1, sent(ETH1, packet(odd.container(BEHIND_1, 0x31, 0xCAFE00), 63))),
        about="64 bits of Argument are two C-SIDs and 16 bits; RFC 9800 copies the whole Argument.",
    )
    group.add(
        "csid_40_24_whose_only_bit_is_behind_the_last_csid", RFC, ETH0,
        received(ETH0, packet(odd.container(LOCAL, tail=1))),
        forward(ETH2, sent(ETH2, packet(odd.container(0, 0, 0x000100), 63))),
        about="The Argument is not 0, but the next C-SID is 0. A route leads to it.",
    )
    group.add(
        "csid_32_16_whose_only_csid_is_the_last", RFC, ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, 0, 0, 0, 0, 1))),
        forward(ETH2, sent(ETH2, packet(USUAL.container(0, 0, 0, 0, 1), 63))),
        about="The test for 0 covers the whole Argument, not only its first C-SID.",
    )


def add_kept(group):
    """Fields that the shift does not change."""
    here, there = USUAL.container(LOCAL, BEHIND_1, 0x31), USUAL.container(BEHIND_1, 0x31)

    def kept(name, rfc, build, about="", trailer=b""):
        group.add(
            f"csid_{name}", rfc, ETH0, received(ETH0, bytes(build(here, 64)) + trailer),
            forward(ETH1, sent(ETH1, build(there, 63))), about=about,
        )

    kept("keeps_traffic_class_and_flow_label", RFC, lambda to, limit: packet(to, limit, tc=0xBB, fl=0xABCDE))
    large = tcp6(HEADEND, SEGMENT_1, pattern(1400))
    kept("carries_tcp", RFC, lambda to, limit: packet(to, limit, large, TCP_PROTOCOL))
    kept("carries_ipv6", RFC, lambda to, limit: packet(to, limit, inner6(9), IPV6), "End does not change the inner hop limit.")
    kept("carries_ipv4", RFC, lambda to, limit: packet(to, limit, inner4(9), IPV4))
    kept("with_no_next_header", RFC, lambda to, limit: packet(to, limit, Raw(b""), NO_NEXT_HEADER))
    for name, offset, more in (("first", 0, True), ("last", 2, False)):
        fragment = fragment_header(UDP_PROTOCOL, offset, more) / Raw(pattern(16))
        kept(f"of_the_{name}_fragment", "8200 4.5", lambda to, limit, fragment=fragment: packet(to, limit, fragment, FRAGMENT))
    options = options_header(UDP_PROTOCOL, OPTION_EXPERIMENT) / udp6(HEADEND, SEGMENT_1)
    kept("in_front_of_destination_options", "8200 4.1", lambda to, limit: packet(to, limit, options, DESTINATION_OPTIONS))
    padding = options_header(UDP_PROTOCOL, OPTION_PADN_6) / udp6(HEADEND, SEGMENT_1)
    kept("in_front_of_a_hop_by_hop_header_of_padding", "8200 4.3", lambda to, limit: packet(to, limit, padding, HOP_BY_HOP))
    kept("trims_octets_behind_the_packet", "8200 3", lambda to, limit: packet(to, limit), trailer=b"padding")
    path = [SEGMENT_1, "fc0b::2", here]
    kept("leaves_segments_left_alone", RFC, lambda to, limit: with_srh(to, limit, 2, path),
         "End processes the SRH only at the end of the container.")
    kept("leaves_an_srh_that_is_used_up", RFC, lambda to, limit: with_srh(to, limit, 0, [here]))
    kept("leaves_a_reduced_srh", RFC, lambda to, limit: with_srh(to, limit, 2, path[:2]))
    kept("leaves_tlvs_and_tag", RFC, lambda to, limit: with_srh(to, limit, 1, path[:2], tlvs=tlv(0x7C, b"abc") + padn(9), tag=7))
    kept("leaves_an_impossible_srh", RFC, lambda to, limit: with_srh(to, limit, 9, path),
         "RFC 9800 inserts the shift after line S01 of RFC 8986 4.1, before the checks of the SRH.")
    kept("leaves_the_hmac_flag", RFC, lambda to, limit: with_srh(to, limit, 2, path, flags=8))
    kept("leaves_another_routing_header", "8200 4.4", lambda to, limit: packet(
        to, limit, Raw(bytes([UDP_PROTOCOL, 2, 2, 1]) + bytes(20)) / udp6(HEADEND, SEGMENT_1), ROUTING))
    kept("behind_destination_options", "8200 4.1", lambda to, limit: packet(
        to, limit, options_header(ROUTING, OPTION_EXPERIMENT)
        / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=path[:2]) / udp6(HEADEND, SEGMENT_1), DESTINATION_OPTIONS))
    group.add(
        "csid_with_hop_limit_2", f"{RFC} S02", ETH0,
        received(ETH0, packet(here, 2)), forward(ETH1, sent(ETH1, packet(there, 1))),
    )
    group.add(
        "csid_from_another_port", RFC, ETH1,
        received(ETH1, packet(USUAL.container(LOCAL, BEHIND_2))),
        forward(ETH2, sent(ETH2, packet(USUAL.container(BEHIND_2), 63))),
    )


def add_refused(group):
    """Drops and punts."""
    here = USUAL.container(LOCAL, BEHIND_1)
    last = USUAL.container(LOCAL)
    group.add("csid_with_hop_limit_1", f"{RFC} S02", ETH0, received(ETH0, packet(here, 1)), drop("hop_limit"))
    group.add(
        "csid_last_of_its_container_with_hop_limit_1", "8986 4.1 S05", ETH0,
        received(ETH0, with_srh(last, 1, 1, [SEGMENT_1, last])), drop("hop_limit"),
    )
    for name, csid, outcome in (
        ("without_a_route", NOWHERE, kernel("route_miss")),
        ("that_is_blackholed", BLACKHOLE, drop("blackhole")),
        ("whose_gateway_is_not_resolved", UNRESOLVED, kernel("neighbor")),
    ):
        group.add(f"csid_to_a_next_one_{name}", f"{RFC} S08", ETH0, received(ETH0, packet(USUAL.container(LOCAL, csid))), outcome)
    group.add(
        "csid_on_a_port_with_seg6_disabled", "8754 4.3.1", ETH2, received(ETH2, packet(here)), kernel("seg6_disabled"),
        linux=skip("punted; seg6local ignores seg6_enabled"),
    )
    alert = options_header(UDP_PROTOCOL, OPTION_ROUTER_ALERT) / udp6(HEADEND, SEGMENT_1)
    for name, sid in (("csid", LOCAL), ("csid_end_x", ADJACENT)):
        group.add(
            f"{name}_with_hop_by_hop_options", "8200 4.3", ETH0,
            received(ETH0, packet(USUAL.container(sid, BEHIND_1), 64, alert, HOP_BY_HOP)),
            forward(ETH1 if sid == LOCAL else ETH2, sent(
                ETH1 if sid == LOCAL else ETH2, packet(USUAL.container(BEHIND_1), 63, alert, HOP_BY_HOP))),
        )
    for name, sid in (("csid", LOCAL), ("csid_end_x", ADJACENT)):
        last, error = USUAL.container(sid), {"route": USUAL.prefix(sid), "packets": 0, "errors": 1}
        for what, rfc, arrived, reason in (
            ("with_segments_left_zero", "8986 4.1 S02", with_srh(last, 64, 0, [last]), "segments_left_zero"),
            ("with_segments_left_beyond_last_entry", "8986 4.1 S09", with_srh(last, 64, 3, [SEGMENT_1, last]), "srh_segments_left"),
            ("with_last_entry_beyond_hdr_ext_len", "8986 4.1 S09",
             with_srh(last, 64, 1, [SEGMENT_1, last], last_entry=2), "srh_length"),
            ("of_ipv6_without_an_srh", "8986 4.1.1", packet(last, 64, inner6(9), IPV6), "no_srh"),
        ):
            group.add(f"{name}_last_of_its_container_{what}", rfc, ETH0, received(ETH0, arrived), drop(reason), counters=error)
    last = USUAL.container(LOCAL)
    group.add(
        "csid_last_of_its_container_with_an_hmac", "8754 2.1.2", ETH0,
        received(ETH0, with_srh(last, 64, 1, [SEGMENT_1, last], flags=8, tlvs=hmac_tlv(7))), drop("hmac_key"),
    )


def add_srh(group):
    """Containers as segments of an SRH."""
    first, second = USUAL.container(LOCAL), USUAL.container(BEHIND_2, 0x31, 0x32)
    path = [SEGMENT_1, second, first]
    group.add(
        "csid_last_of_its_container_then_a_container_of_another_node", [RFC, "8986 4.1 S14"], ETH0,
        received(ETH0, with_srh(first, 64, 2, path)), forward(ETH2, sent(ETH2, with_srh(second, 63, 1, path))),
    )
    mine = USUAL.container(LOCAL_2, BEHIND_2, 0x31)
    path = [SEGMENT_1, mine, first]
    group.add(
        "csid_last_of_its_container_then_a_container_of_this_node", [RFC, "8754 4.3.1"], ETH0,
        received(ETH0, with_srh(first, 64, 2, path)),
        **decremented(ETH2, lambda limit: with_srh(USUAL.container(BEHIND_2, 0x31), limit, 1, [SEGMENT_1, mine, first]), 64, 2),
        about="The Argument is 0, so End advances the SRH. The new container is this node's again, and End shifts it.",
    )
    reduced = [SEGMENT_1, second]
    group.add(
        "csid_last_of_its_container_then_a_reduced_srh", [RFC, "8754 4.1.1"], ETH0,
        received(ETH0, with_srh(first, 64, 2, reduced)), forward(ETH2, sent(ETH2, with_srh(second, 63, 1, reduced))),
    )
    path = [SEGMENT_1, first]
    group.add(
        "csid_last_of_its_container_behind_destination_options", "8200 4.1", ETH0,
        received(ETH0, packet(first, 64, options_header(ROUTING, OPTION_EXPERIMENT) / SRH(
            next_header=UDP_PROTOCOL, segments_left=1, segment_list=path) / udp6(HEADEND, SEGMENT_1), DESTINATION_OPTIONS)),
        forward(ETH1, sent(ETH1, packet(SEGMENT_1, 63, options_header(ROUTING, OPTION_EXPERIMENT) / SRH(
            next_header=UDP_PROTOCOL, segments_left=0, segment_list=path) / udp6(HEADEND, SEGMENT_1), DESTINATION_OPTIONS))),
    )


def add_chains(group):
    """The next C-SID is also a SID of this node."""
    locals_ = [LOCAL, LOCAL_2, LOCAL_3, LOCAL_4]
    for count in (2, 3, 4):
        csids = locals_[:count] + [BEHIND_1, 0x31]
        group.add(
            f"csid_chain_of_{count}", ["8754 4.3.1", RFC], ETH0, received(ETH0, packet(USUAL.container(*csids))),
            **decremented(ETH1, lambda limit: packet(USUAL.container(BEHIND_1, 0x31), limit), 64, count),
            about="Each SID decrements the hop limit.",
            counters={"route": USUAL.prefix(csids[count - 1]), "packets": 1, "errors": 0},
        )
    group.add(
        "csid_chain_of_5_is_too_long", "8754 4.3.1", ETH0,
        received(ETH0, packet(USUAL.container(*locals_, LOCAL_5, BEHIND_1))), drop("sid_loop"),
        linux=differs(forward(ETH1, sent(ETH1, packet(USUAL.container(BEHIND_1), 63))),
                      "Linux follows up to its recursion limit (lwtunnel_input)"),
    )
    group.add(
        "csid_chain_of_the_same_one_three_times", "8754 4.3.1", ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, LOCAL, LOCAL, BEHIND_2))),
        **decremented(ETH2, lambda limit: packet(USUAL.container(BEHIND_2), limit), 64, 3),
    )
    two = USUAL.container(LOCAL, LOCAL_2, BEHIND_2)
    group.add(
        "csid_chain_with_hop_limit_3", RFC, ETH0, received(ETH0, packet(two, 3)),
        **decremented(ETH2, lambda limit: packet(USUAL.container(BEHIND_2), limit), 3, 2),
    )
    group.add(
        "csid_chain_with_hop_limit_2", f"{RFC} S02", ETH0, received(ETH0, packet(two, 2)), drop("hop_limit"),
        linux=differs(forward(ETH2, sent(ETH2, packet(USUAL.container(BEHIND_2), 1))), ONE_DECREMENT),
        about="The second SID drops the packet.",
    )
    group.add(
        "csid_chain_to_the_end_of_the_container_without_an_srh", "8986 4.1.1", ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, LOCAL_2))), drop("no_srh"),
    )
    path = [SEGMENT_1, USUAL.container(LOCAL, LOCAL_2)]
    group.add(
        "csid_chain_to_the_end_of_the_container_then_the_srh", [RFC, "8986 4.1 S12-S15"], ETH0,
        received(ETH0, with_srh(path[1], 64, 1, path)),
        **decremented(ETH1, lambda limit: with_srh(SEGMENT_1, limit, 0, path), 64, 2),
        about="The first C-SID shifts the container. The second one finds Argument 0 and advances the SRH.",
    )
    group.add(
        "csid_then_end_x", [RFC, RFC_X], ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, ADJACENT, BEHIND_1))),
        **decremented(ETH2, lambda limit: packet(USUAL.container(BEHIND_1), limit), 64, 2),
    )
    group.add(
        "csid_then_end_x_last_of_its_container_then_the_srh", [RFC, RFC_X], ETH0,
        received(ETH0, with_srh(USUAL.container(LOCAL, ADJACENT), 64, 1, [SEGMENT_1, "fc0a::7"])),
        **decremented(ETH2, lambda limit: with_srh(SEGMENT_1, limit, 0, [SEGMENT_1, "fc0a::7"]), 64, 2),
    )
    to_csid = [USUAL.container(LOCAL, BEHIND_1), "fc0f::1"]
    group.add(
        "end_then_csid", ["8986 4.1", RFC], ETH0, received(ETH0, with_srh("fc0f::1", 64, 1, to_csid)),
        **decremented(ETH1, lambda limit: with_srh(USUAL.container(BEHIND_1), limit, 0, to_csid), 64, 2),
    )
    to_end = [SEGMENT_1, "fc0f::1", USUAL.container(LOCAL)]
    group.add(
        "csid_last_of_its_container_then_end", [RFC, "8986 4.1"], ETH0, received(ETH0, with_srh(to_end[2], 64, 2, to_end)),
        **decremented(ETH1, lambda limit: with_srh(SEGMENT_1, limit, 0, to_end), 64, 2),
    )


def add_decapsulation(group):
    """A decapsulating SID as the last C-SID."""
    for name, csid, protocol, inner in (("end_dt6", DT6, IPV6, inner6), ("end_dx4", DX4, IPV4, inner4)):
        route = {"route": USUAL.prefix(csid), "packets": 1, "errors": 0}
        for what, destination, hop_limit in (
            ("csid_then", USUAL.container(LOCAL, csid), 64),
            ("csid_chain_then", USUAL.container(LOCAL, LOCAL_2, LOCAL_3, csid), 64),
            ("csid_alone", USUAL.container(csid), 64),
        ):
            group.add(
                f"{what}_{name}", [RFC, "8986 4.6" if csid == DT6 else "8986 4.5"], ETH0,
                received(ETH0, packet(destination, hop_limit, inner(33), protocol)),
                forward(ETH1, sent(ETH1, inner(32))), counters=route,
            )
        here = USUAL.container(LOCAL, csid)
        group.add(
            f"csid_then_{name}_with_an_srh", RFC, ETH0,
            received(ETH0, with_srh(here, 64, 0, [here], protocol, inner(33))), forward(ETH1, sent(ETH1, inner(32))),
        )
        group.add(
            f"csid_then_{name}_with_segments_left_1", RFC, ETH0,
            received(ETH0, with_srh(here, 64, 1, ["fc0a::5", here], protocol, inner(33))), drop("segments_left_not_zero"),
        )
        group.add(
            f"csid_then_{name}_of_udp", "8986 4.1.1", ETH0, received(ETH0, packet(here)), drop("upper_layer"),
        )
        path = [USUAL.container(csid), USUAL.container(LOCAL)]
        group.add(
            f"csid_last_of_its_container_then_{name}", [RFC, "8986 4.1 S14"], ETH0,
            received(ETH0, with_srh(path[1], 64, 1, path, protocol, inner(33))), forward(ETH1, sent(ETH1, inner(32))),
        )
    group.add(
        "csid_then_end_dt6_with_outer_hop_limit_1", f"{RFC} S02", ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, DT6), 1, inner6(33), IPV6)), drop("hop_limit"),
        linux=differs(forward(ETH1, sent(ETH1, inner6(32))), ONE_DECREMENT),
        about="End drops the packet. Linux checks the hop limit only before it sends the packet.",
    )
    inside = USUAL.container(LOCAL, BEHIND_2)
    group.add(
        "csid_then_end_dt6_then_csid_of_the_inner_packet", RFC, ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, DT6), 64, packet(inside, 33), IPV6)),
        forward(ETH2, sent(ETH2, packet(USUAL.container(BEHIND_2), 32))),
    )
    group.add(
        "csid_of_a_longer_prefix_is_taken_at_once", "9800 4.1", ETH0,
        received(ETH0, packet(USUAL.container(LOCAL_5, DT6), 64, inner6(33), IPV6)), forward(ETH2, sent(ETH2, inner6(32))),
        about="fcbb:bb00:15:d6::/64 is a separate End.DX6; fcbb:bb00:15::/48 does not apply.",
    )


def add_end_x(group):
    """End.X with NEXT-C-SID."""
    for count in range(2, 7):
        csids = [ADJACENT, BEHIND_1] + [0x31 + index for index in range(count - 2)]
        group.add(
            f"csid_end_x_container_of_{count}", RFC_X, ETH0,
            received(ETH0, packet(USUAL.container(*csids))), forward(ETH2, sent(ETH2, packet(USUAL.container(*csids[1:]), 63))),
            about="The route of the next C-SID points to eth1, the adjacency to eth2." if count == 2 else "",
            counters={"route": USUAL.prefix(ADJACENT), "packets": 1, "errors": 0} if count == 2 else None,
        )
    # Each sent packet is the next received one: each C-SID is an adjacency of this node.
    csids = [ADJACENT, ADJACENT_2] * 3
    path = [SEGMENT_1, USUAL.container(*csids)]
    for step in range(6):
        egress = ETH1 if step % 2 else ETH2
        last = step == 5
        left = SEGMENT_1 if last else USUAL.container(*csids[step + 1:])
        group.add(
            f"csid_end_x_walk_step_{step + 1}", [RFC_X] + (["8986 4.1 S12-S15"] if last else []), ETH0,
            received(ETH0, with_srh(USUAL.container(*csids[step:]), 64 - step, 1, path)),
            forward(egress, sent(egress, with_srh(left, 63 - step, 0 if last else 1, path))),
            about="The container is at its end, so End continues with the next segment of the SRH." if last else "",
        )
    for lengths in ALL[1:]:
        group.add(
            f"csid_end_x_{lengths.name}", RFC_X, ETH0,
            received(ETH0, packet(lengths.container(ADJACENT, BEHIND_1))),
            forward(ETH2, sent(ETH2, packet(lengths.container(BEHIND_1), 63))),
        )
    group.add(
        "csid_end_x_sends_a_local_next_one_out_as_well", RFC_X, ETH0,
        received(ETH0, packet(USUAL.container(ADJACENT, LOCAL, BEHIND_1))),
        forward(ETH2, sent(ETH2, packet(USUAL.container(LOCAL, BEHIND_1), 63))),
    )
    group.add(
        "csid_end_x_needs_no_route_to_the_next_one", RFC_X, ETH0,
        received(ETH0, packet(USUAL.container(ADJACENT, NOWHERE))),
        forward(ETH2, sent(ETH2, packet(USUAL.container(NOWHERE), 63))),
    )
    group.add(
        "csid_end_x_leaves_the_srh_alone", RFC_X, ETH0,
        received(ETH0, with_srh(USUAL.container(ADJACENT, BEHIND_1), 64, 1, [SEGMENT_1, "fc0a::7"])),
        forward(ETH2, sent(ETH2, with_srh(USUAL.container(BEHIND_1), 63, 1, [SEGMENT_1, "fc0a::7"]))),
    )
    group.add(
        "csid_end_x_with_hop_limit_1", RFC_X, ETH0,
        received(ETH0, packet(USUAL.container(ADJACENT, BEHIND_1), 1)), drop("hop_limit"),
    )
    group.add(
        "csid_end_x_without_an_srh", "8986 4.1.1", ETH0, received(ETH0, packet(USUAL.container(ADJACENT))), drop("no_srh"),
    )


def sid_route(lengths, csid, words):
    """The SID of a C-SID."""
    return f"{lengths.prefix(csid)} encap seg6local action {words} dev eth0"


def end_routes(lengths):
    """End and End.X of one pair of lengths."""
    flavor = f"flavors next-csid {lengths.words}"
    return [
        sid_route(lengths, LOCAL, f"End {flavor}"), sid_route(lengths, ADJACENT, f"End.X nh6 fc02::1 {flavor}"),
    ] + neighbors_of(lengths)


def groups():
    """Returns the vector files of this module."""
    flavor = f"flavors next-csid {USUAL.words}"
    routes = [route for lengths in ALL for route in end_routes(lengths)]
    routes += [sid_route(USUAL, csid, f"End {flavor}") for csid in (LOCAL_2, LOCAL_3, LOCAL_4, LOCAL_5)]
    routes += [
        sid_route(USUAL, ADJACENT_2, f"End.X nh6 fc01::1 {flavor}"),
        sid_route(USUAL, DT6, "End.DT6 table main"),
        sid_route(USUAL, DX4, "End.DX4 nh4 0.0.0.0"),
        f"{USUAL.container(LOCAL_5, DT6)}/64 encap seg6local action End.DX6 nh6 fc02::1 dev eth0",
        "fc0f::1/128 encap seg6local action End dev eth0",
        f"{USUAL.prefix(UNRESOLVED)} via fc01::66 dev eth1",
        f"blackhole {USUAL.prefix(BLACKHOLE)}",
        # The C-SID 0: a container whose next C-SID is 0 and whose rest is not.
        f"{USUAL.prefix(0)} via fc02::1 dev eth2",
        f"{ALL[-1].prefix(0)} via fc02::1 dev eth2",
    ]
    here = Group("csid", "NEXT-C-SID on End and End.X.", node(routes=routes, seg6_disabled=(ETH2,)))
    for add in (add_lengths, add_kept, add_refused, add_srh, add_chains, add_decapsulation, add_end_x):
        add(here)
    return [here]
