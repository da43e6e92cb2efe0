"""REPLACE-C-SID (RFC 9800 4.2): containers of C-SIDs in the segment list, and an index in the destination address.

This file writes a container as C-SIDs in the order of travel. The first one is at the right end of
the entry (index K-1), and the next one is to its left. In the sent packet, the next C-SID and its
index replace the current ones.
"""

import ipaddress

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, drop, forward, kernel, skip
from .csid import Lengths, packet, with_srh
from .decap import inner4, inner6
from .flow_label import label6
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, HOP_BY_HOP, IPV4, IPV6, OPTION_EXPERIMENT, OPTION_PADN_6, OPTION_ROUTER_ALERT, ROUTING, SRH,
    TCP_PROTOCOL, UDP_PROTOCOL, hmac_tlv, options_header, padn, pattern, tcp6, tlv, udp6,
)

RFC = "9800 4.2.1"
RFC_X, RFC_T, RFC_B6, RFC_B6_RED, RFC_D, RFC_FLAVORS = (f"9800 4.2.{number}" for number in (2, 3, 4, 5, 7, 8))
NO_LINUX = skip("Linux has no REPLACE-C-SID (SEG6_LOCAL_FLV_OP_*)")


class Entry(Lengths):
    """Lengths of REPLACE-C-SID, with the C-SIDs in an entry of the segment list."""

    @property
    def words(self):
        """The flavor in the words of a route."""
        return f"replace-csid {super().words}"

    @property
    def room(self):
        """C-SIDs in a container: K."""
        return 128 // self.csid_bits

    def sid(self, csid, index=0, argument=0):
        """The address: block, C-SID, Argument. `argument`: its bits in front of the index."""
        index_bits = {4: 2, 8: 3}[self.room]
        rest = 128 - self.block_bits - self.csid_bits - index_bits
        return self.address(csid, rest=format(argument, f"0{rest}b") + format(index, f"0{index_bits}b"))

    def entry(self, *csids):
        """An entry of the segment list with these C-SIDs, in the order of travel."""
        assert len(csids) <= self.room
        bits = "".join(format(csid, f"0{self.csid_bits}b") for csid in reversed(csids))
        return str(ipaddress.IPv6Address(int(bits or "0", 2)))

    def at(self, csid, index, *following):
        """An entry with this C-SID at that index and the following ones."""
        before = [0xF1 + number for number in range(self.room - 1 - index)]
        return self.entry(*before, csid, *following)


USUAL = Entry("fcbb:bb00:1::", 48, 32)
SHORT = Entry("fcbc:bb00::", 32, 16)
ALL = [
    USUAL,
    SHORT,
    Entry("fcbd:0:0:1::", 64, 32),
    Entry("fcbe:0:1::", 48, 16),
    Entry("fcbf:0:0:0:0:100::", 88, 32),
    Entry("fcc0:0:0:0:0:0:100::", 104, 16),
    Entry("fc00::", 8, 32),
]

LOCAL, LOCAL_2, LOCAL_3, LOCAL_4, LOCAL_5 = 0x11, 0x12, 0x13, 0x14, 0x15
ADJACENT, ADJACENT_2, PLAIN = 0x21, 0x22, 0x31
DT6, DX4, DT46 = 0xD6, 0xD4, 0x46
BEHIND_1, BEHIND_2, NOWHERE, BLACKHOLE, UNRESOLVED = 0xA1, 0xB1, 0xE1, 0xE2, 0xE3


class Cases:
    """Adds cases of one behavior in one file."""

    def __init__(self, group, prefix, lengths=USUAL, egress=ETH1, rfc=RFC, local=LOCAL):
        self.group, self.prefix, self.lengths, self.egress, self.rfc, self.local = group, prefix, lengths, egress, rfc, local

    def forwarded(self, name, before, after, rfc=None, about="", egress=None, counters=None, trailer=b"", port=ETH0):
        """One forwarded packet."""
        egress = egress or self.egress
        self.group.add(
            f"{self.prefix}_{name}", rfc or self.rfc, port, received(port, bytes(before) + trailer),
            forward(egress, sent(egress, after)), NO_LINUX, about, counters,
        )

    def dropped(self, name, rfc, before, reason, about="", errors=None, port=ETH0):
        """One dropped packet. `errors`: the C-SID whose route counts it."""
        counters = {"route": self.lengths.prefix(errors), "packets": 0, "errors": 1} if errors else None
        self.group.add(f"{self.prefix}_{name}", rfc, port, received(port, before), drop(reason), NO_LINUX, about, counters)

    def indices(self):
        """Every index, in a container that is not the last and in the last one."""
        lengths, last = self.lengths, self.lengths.room - 1
        whole = SEGMENT_1
        for index in range(last, 0, -1):
            here, there = lengths.sid(self.local, index), lengths.sid(BEHIND_1, index - 1)
            entry = lengths.at(self.local, index, BEHIND_1)
            for segments_left, path in ((0, [entry, lengths.sid(0xF0)]), (1, [whole, entry, lengths.sid(0xF0)])):
                self.forwarded(
                    f"at_index_{index}_of_entry_{segments_left}", with_srh(here, 64, segments_left, path),
                    with_srh(there, 63, segments_left, path), f"{self.rfc} R05" if self.rfc == RFC else None,
                    "The C-SID to the left is next, and Segments Left does not change." if index == last and segments_left == 0 else "",
                    counters={"route": lengths.prefix(self.local), "packets": 1, "errors": 0} if index == last else None,
                )
            path = [whole, lengths.at(self.local, index), lengths.sid(0xF0)]
            self.forwarded(
                f"at_index_{index}_before_padding", with_srh(here, 64, 1, path), with_srh(whole, 63, 0, path),
                f"{self.rfc} R06-R10" if self.rfc == RFC else None,
                "The container ends in padding, and the next entry is a whole segment." if index == last else "",
            )
        for segments_left in (1, 2):
            entry = segments_left - 1
            path = [whole] * entry + [lengths.entry(BEHIND_1, 0xF1), lengths.sid(self.local)]
            self.forwarded(
                f"at_index_0_before_entry_{entry}", with_srh(lengths.sid(self.local), 64, segments_left, path),
                with_srh(lengths.sid(BEHIND_1, last), 63, entry, path), f"{self.rfc} R16-R20" if self.rfc == RFC else None,
                "The first C-SID of the next entry is next." if segments_left == 1 else "",
            )


def add_lengths(group):
    """Every pair of lengths and every index."""
    for lengths in ALL:
        cases = Cases(group, f"replace_csid_{lengths.name}", lengths)
        cases.indices()
        last = lengths.room - 1
        reduced = [lengths.entry(BEHIND_1, 0xF1)]
        cases.forwarded("at_index_0_of_a_reduced_srh", with_srh(lengths.sid(LOCAL), 64, 1, reduced),
                        with_srh(lengths.sid(BEHIND_1, last), 63, 0, reduced), ["8754 4.1.1", f"{RFC} R16-R20"])
        rest = 128 - lengths.block_bits - lengths.csid_bits - (3 if lengths.csid_bits == 16 else 2)
        path = [lengths.at(LOCAL, 1, BEHIND_1), lengths.sid(LOCAL)]
        cases.forwarded("keeps_the_argument_before_the_index", with_srh(lengths.sid(LOCAL, 1, 2**rest - 1), 64, 0, path),
                        with_srh(lengths.sid(BEHIND_1, 0, 2**rest - 1), 63, 0, path), f"{RFC} R20")
        largest = 2**lengths.csid_bits - 1
        path = [lengths.at(LOCAL, 2, largest, BEHIND_1), lengths.sid(LOCAL)]
        cases.forwarded("to_a_csid_of_all_ones", with_srh(lengths.sid(LOCAL, 2), 64, 0, path),
                        with_srh(lengths.sid(largest, 1), 63, 0, path), f"{RFC} R20", egress=ETH2)


def add_walk(group):
    """Each frame sent is the next one received: ten C-SIDs in three entries, each an adjacency of this node."""
    csids = [ADJACENT, ADJACENT_2] * 5 + [ADJACENT]
    for lengths in (USUAL, SHORT):
        room = lengths.room
        groups_ = [csids[1:][at:at + room] for at in range(0, len(csids) - 1, room)]
        path = [SEGMENT_1] + [lengths.entry(*found) for found in reversed(groups_)]
        segments_left = len(path)
        cases = Cases(group, f"replace_csid_walk_{lengths.name}", lengths, rfc=RFC_X)
        # (destination, Segments Left) of each step, from the headend's first segment to the last.
        states = [(lengths.sid(csids[0]), segments_left)]
        for number, found in enumerate(groups_):
            for position, csid in enumerate(found):
                states.append((lengths.sid(csid, room - 1 - position), segments_left - 1 - number))
        states.append((SEGMENT_1, 0))
        for step, (here, there) in enumerate(zip(states, states[1:])):
            cases.forwarded(
                f"step_{step + 1}", with_srh(here[0], 64 - step, here[1], path), with_srh(there[0], 63 - step, there[1], path),
                egress=ETH1 if step % 2 else ETH2,
                about=f"{len(path)} entries hold {len(csids)} C-SIDs and a segment. Only the address has the first C-SID."
                if step == 0 else "",
            )


def add_kept(group):
    """Fields that do not change."""
    cases = Cases(group, "replace_csid")
    here, there = USUAL.sid(LOCAL, 2), USUAL.sid(BEHIND_1, 1)
    path = [USUAL.at(LOCAL, 2, BEHIND_1), USUAL.sid(LOCAL)]

    def kept(name, rfc, build, **more):
        cases.forwarded(name, build(here, 64), build(there, 63), rfc, **more)

    def ipv6(destination, limit, **fields):
        header = SRH(next_header=UDP_PROTOCOL, segments_left=0, segment_list=path)
        return packet(destination, limit, header / udp6(HEADEND, SEGMENT_1), ROUTING, **fields)

    kept("keeps_traffic_class_and_flow_label", RFC, lambda to, limit: ipv6(to, limit, tc=0xBB, fl=0xABCDE))
    large = tcp6(HEADEND, SEGMENT_1, pattern(1300))
    kept("carries_tcp", RFC, lambda to, limit: with_srh(to, limit, 0, path, TCP_PROTOCOL, large))
    kept("carries_ipv6", RFC, lambda to, limit: with_srh(to, limit, 0, path, IPV6, inner6(9)),
         about="Another C-SID follows, so the SID does not read the inner packet, with or without USD.")
    kept("keeps_tlvs_tag_and_flags", "8754 2.1",
         lambda to, limit: with_srh(to, limit, 0, path, tlvs=tlv(0x7C, b"abc") + padn(9), tag=0xBEEF, flags=0x20))
    kept("behind_destination_options", "8200 4.1", lambda to, limit: packet(
        to, limit, options_header(ROUTING, OPTION_EXPERIMENT)
        / SRH(next_header=UDP_PROTOCOL, segments_left=0, segment_list=path) / udp6(HEADEND, SEGMENT_1), DESTINATION_OPTIONS))
    kept("behind_a_hop_by_hop_header_of_padding", "8200 4.3", lambda to, limit: packet(
        to, limit, options_header(ROUTING, OPTION_PADN_6)
        / SRH(next_header=UDP_PROTOCOL, segments_left=0, segment_list=path) / udp6(HEADEND, SEGMENT_1), HOP_BY_HOP))
    kept("with_hop_by_hop_options", "8200 4.2", lambda to, limit: packet(
        to, limit, options_header(ROUTING, OPTION_ROUTER_ALERT)
        / SRH(next_header=UDP_PROTOCOL, segments_left=0, segment_list=path) / udp6(HEADEND, SEGMENT_1), HOP_BY_HOP),
        about="The kernel lacks the SID, so Sidestep skips the option as its type says.")
    kept("behind_an_srh_that_is_used_up", "8754 4.3.1.1 S02", lambda to, limit: packet(
        to, limit, SRH(next_header=ROUTING, segments_left=0, segment_list=[USUAL.at(0xF9, 2)])
        / SRH(next_header=UDP_PROTOCOL, segments_left=0, segment_list=path) / udp6(HEADEND, SEGMENT_1), ROUTING),
        about="The C-SID before index 2 is 0 in the first SRH.")
    kept("behind_another_routing_header_with_segments_left_0", "8200 4.4", lambda to, limit: packet(
        to, limit, Raw(bytes([ROUTING, 2, 2, 0]) + bytes(20))
        / SRH(next_header=UDP_PROTOCOL, segments_left=0, segment_list=path) / udp6(HEADEND, SEGMENT_1), ROUTING))
    kept("trims_octets_behind_the_packet", "8200 3", lambda to, limit: with_srh(to, limit, 0, path), trailer=b"padding")
    cases.forwarded("with_hop_limit_2", with_srh(here, 2, 0, path), with_srh(there, 1, 0, path), f"{RFC} S05")
    sixteen = [USUAL.at(LOCAL, 2, BEHIND_1)] + [USUAL.entry(1, 2, 3, 4)] * 15
    cases.forwarded("in_the_first_of_16_entries", with_srh(here, 64, 0, sixteen), with_srh(there, 63, 0, sixteen))
    sixteen = [SEGMENT_1] + [USUAL.entry(1, 2, 3, 4)] * 14 + [USUAL.at(LOCAL, 2, BEHIND_1)]
    cases.forwarded("in_the_last_of_16_entries", with_srh(here, 64, 15, sixteen), with_srh(there, 63, 15, sixteen))


def add_refused(group):
    """Drops. Linux lacks the SID, so Sidestep drops packets that the kernel would answer."""
    cases = Cases(group, "replace_csid")
    here, zero = USUAL.sid(LOCAL, 2), USUAL.sid(LOCAL)
    entry = USUAL.at(LOCAL, 2, BEHIND_1)
    path = [entry, zero]

    def refused(name, rfc, before, reason, about="", port=ETH0):
        cases.dropped(name, rfc, before, reason, about, LOCAL if port == ETH0 else None, port)

    cases.dropped("with_hop_limit_1", f"{RFC} S05", with_srh(here, 1, 0, path), "hop_limit")
    refused("without_an_srh", "8986 4.1.1", packet(zero), "no_srh")
    refused("with_an_index_and_without_an_srh", "8986 4.1.1", packet(here), "no_srh")
    refused("of_ipv6_without_an_srh", "8986 4.1.1", packet(zero, 64, inner6(9), IPV6), "no_srh")
    refused("at_index_0_of_the_last_entry", f"{RFC} S02", with_srh(zero, 64, 0, path), "segments_left_zero",
            "No segment is left: Segments Left and DA.Arg.Index are 0.")
    for index in (1, 2, 3):
        refused(f"at_index_{index}_of_the_last_entry_before_padding", f"{RFC} S02",
                with_srh(USUAL.sid(LOCAL, index), 64, 0, [USUAL.at(LOCAL, index), zero]), "segments_left_zero")
    three = [SEGMENT_1, entry, zero]
    refused("with_an_index_and_segments_left_beyond_last_entry", f"{RFC} R02", with_srh(here, 64, 3, three), "srh_segments_left",
            "With an index, the SRH must have the entry, so Last Entry + 1 is invalid.")
    refused("with_an_index_and_segments_left_255", f"{RFC} R02", with_srh(here, 64, 255, three), "srh_segments_left")
    refused("at_index_0_with_segments_left_beyond_last_entry_plus_one", f"{RFC} R13",
            with_srh(zero, 64, 4, three), "srh_segments_left")
    for segments_left in (0, 1):
        refused(f"with_last_entry_beyond_hdr_ext_len_and_segments_left_{segments_left}", f"{RFC} R02",
                with_srh(here, 64, segments_left, path, last_entry=2), "srh_length")
    refused("at_index_0_with_last_entry_beyond_hdr_ext_len", f"{RFC} R13", with_srh(zero, 64, 1, path, last_entry=2), "srh_length")
    empty = SRH(next_header=UDP_PROTOCOL, segments_left=0, last_entry=0, hdr_ext_len=0) / udp6(HEADEND, zero)
    refused("with_an_index_and_an_srh_without_entries", f"{RFC} R02", packet(here, 64, empty, ROUTING), "srh_length")
    cut = SRH(next_header=UDP_PROTOCOL, segments_left=0, hdr_ext_len=40, segment_list=path) / udp6(HEADEND, zero)
    refused("with_an_srh_beyond_the_packet", "8754 2", packet(here, 64, cut, ROUTING), "srh_length")
    refused("with_a_tlv_beyond_the_srh", "8754 2.1",
            with_srh(here, 64, 0, path, tlvs=bytes([0x7C, 7]) + b"sixoct"), "srh_tlv")
    refused("with_an_hmac", "8754 2.1.2", with_srh(here, 64, 0, path, flags=8, tlvs=hmac_tlv(7)), "hmac_key")
    refused("on_a_port_with_seg6_disabled", "8754 4.3.1", with_srh(here, 64, 0, path), "kernel_only", port=ETH2)
    for name, csid, reason in (
        ("without_a_route", NOWHERE, "no_route"), ("that_is_blackholed", BLACKHOLE, "blackhole"),
    ):
        cases.dropped(f"to_a_next_one_{name}", f"{RFC} R20", with_srh(here, 64, 0, [USUAL.at(LOCAL, 2, csid), zero]), reason)
    group.add(
        "replace_csid_to_a_next_one_whose_gateway_is_not_resolved", f"{RFC} R20", ETH0,
        received(ETH0, with_srh(here, 64, 0, [USUAL.at(LOCAL, 2, UNRESOLVED), zero])), kernel("rewritten"), NO_LINUX,
        about="The route to the next C-SID is punted: the kernel gets the packet with the new destination and resolves the gateway.",
    )
    cases.dropped("to_an_entry_whose_first_csid_is_0", f"{RFC} R16-R20", with_srh(zero, 64, 1, ["::", zero]), "no_route",
                  "R17 does not test for padding. The node looks up the C-SID 0 and finds no route.")
    cases.dropped("at_the_end_of_a_container_without_padding_to_a_whole_segment", f"{RFC} R20",
                  with_srh(zero, 64, 1, ["2001:db8:dead::", zero]), "no_route",
                  "A whole segment cannot follow a full container. The node reads it as a container.")


def add_chains(group):
    """The next C-SID is also a SID of this node."""
    cases = Cases(group, "replace_csid_chain")
    locals_ = [LOCAL, LOCAL_2, LOCAL_3, LOCAL_4]
    first = USUAL.sid(LOCAL)
    for count in (2, 3, 4):
        path = [USUAL.entry(*locals_[1:count], BEHIND_1), first]
        cases.forwarded(
            f"of_{count}", with_srh(first, 64, 1, path), with_srh(USUAL.sid(BEHIND_1, 4 - count), 64 - count, 0, path), ["8754 4.3.1", RFC],
            "Each SID decrements the hop limit.", counters={"route": USUAL.prefix(locals_[count - 1]), "packets": 1, "errors": 0},
        )
    path = [USUAL.entry(LOCAL_5, BEHIND_1), USUAL.entry(LOCAL_2, LOCAL_3, LOCAL_4, LOCAL), first]
    cases.dropped("of_5_is_too_long", "8754 4.3.1", with_srh(first, 64, 2, path), "sid_loop")
    path = [USUAL.entry(LOCAL_2, BEHIND_1), USUAL.at(LOCAL, 0), first]
    cases.forwarded("across_two_entries", with_srh(first, 64, 1, path), with_srh(USUAL.sid(BEHIND_1, 2), 62, 0, path),
                    ["8754 4.3.1", RFC])
    path = [SEGMENT_1, USUAL.entry(LOCAL_2), first]
    cases.forwarded("to_padding_and_a_whole_segment", with_srh(first, 64, 2, path), with_srh(SEGMENT_1, 62, 0, path),
                    ["8754 4.3.1", f"{RFC} R06-R10"])
    path = [USUAL.entry(LOCAL_2), first]
    cases.dropped("to_the_last_csid", f"{RFC} S02", with_srh(first, 64, 1, path), "segments_left_zero")
    path = [USUAL.entry(PLAIN, BEHIND_1), first]
    cases.dropped("to_an_end_without_the_flavor", "8986 4.1 S02", with_srh(first, 64, 1, path), "segments_left_zero",
                  "End of RFC 8986 ignores the index, so Segments Left 0 is the end of the list.")
    cases.dropped("from_end_to_a_segment_with_an_index_of_its_own", f"{RFC} S02",
                  with_srh("fc0f::1", 64, 1, [USUAL.sid(LOCAL, 2), "fc0f::1"]), "no_route",
                  "Segment List[0] is the SID itself. The node reads it as a container, with 0x00010000 to the left of index 2.")
    path = [USUAL.entry(BEHIND_1), USUAL.sid(LOCAL), "fc0f::1"]
    cases.forwarded("from_end", with_srh("fc0f::1", 64, 2, path), with_srh(USUAL.sid(BEHIND_1, 3), 62, 0, path), ["8986 4.1", RFC])
    path = [SEGMENT_1, "fc0f::1", USUAL.entry(LOCAL), USUAL.sid(0xF0)]
    cases.forwarded("to_end_behind_padding", with_srh(USUAL.sid(LOCAL, 3), 64, 2, path), with_srh(SEGMENT_1, 62, 0, path),
                    [f"{RFC} R06-R10", "8986 4.1"])
    path = [USUAL.entry(ADJACENT, BEHIND_1), USUAL.sid(LOCAL)]
    cases.forwarded("to_end_x", with_srh(USUAL.sid(LOCAL), 64, 1, path), with_srh(USUAL.sid(BEHIND_1, 2), 62, 0, path),
                    [RFC, RFC_X], egress=ETH2)


def add_decapsulation(group):
    """A decapsulating SID as the last C-SID: its Argument does not matter."""
    cases = Cases(group, "replace_csid_then")
    for name, csid, family, inner in (
        ("end_dt6", DT6, IPV6, inner6), ("end_dx4", DX4, IPV4, inner4), ("end_dt46_of_ipv6", DT46, IPV6, inner6),
        ("end_dt46_of_ipv4", DT46, IPV4, inner4),
    ):
        route = {"route": USUAL.prefix(csid), "packets": 1, "errors": 0}
        for index in (3, 2, 1, 0):
            # Arrives with the SID in the address, at each index of the last entry.
            cases.forwarded(f"{name}_at_index_{index}", with_srh(USUAL.sid(csid, index), 64, 0, [USUAL.at(csid, index)], family, inner(33)),
                            inner(32), RFC_D, counters=route)
        path = [USUAL.entry(0xF1, LOCAL, csid), USUAL.sid(0xF0)]
        cases.forwarded(f"{name}_at_this_node", with_srh(USUAL.sid(LOCAL, 2), 64, 0, path, family, inner(33)), inner(32), [RFC, RFC_D])
        path = [USUAL.entry(csid), USUAL.sid(LOCAL)]
        cases.forwarded(f"{name}_in_the_next_entry", with_srh(USUAL.sid(LOCAL), 64, 1, path, family, inner(33)), inner(32), [RFC, RFC_D])
        path = ["fc0a::5", USUAL.entry(csid), USUAL.sid(LOCAL)]
        cases.dropped(f"{name}_with_segments_left_1", "8986 4.4", with_srh(USUAL.sid(LOCAL), 64, 2, path, family, inner(33)),
                      "segments_left_not_zero")
    path = [USUAL.entry(DT6), USUAL.sid(LOCAL)]
    cases.dropped("end_dt6_of_udp", "8986 4.1.1", with_srh(USUAL.sid(LOCAL), 64, 1, path), "upper_layer")
    cases.forwarded("end_dx4_without_an_srh", packet(USUAL.sid(DX4, 1), 64, inner4(33), IPV4), inner4(32), RFC_D)


def add_behaviors(group):
    """End.X, End.T."""
    for prefix, csid, egress, rfc in (("replace_csid_end_x", ADJACENT, ETH2, RFC_X), ("replace_csid_end_t", 0x71, ETH2, RFC_T)):
        cases = Cases(group, prefix, egress=egress, rfc=rfc, local=csid)
        cases.indices()
    cases = Cases(group, "replace_csid_end_x", egress=ETH2, rfc=RFC_X, local=ADJACENT)
    path = [USUAL.at(ADJACENT, 2, LOCAL), USUAL.sid(0xF0)]
    cases.forwarded("sends_a_local_next_one_out_as_well", with_srh(USUAL.sid(ADJACENT, 2), 64, 0, path),
                    with_srh(USUAL.sid(LOCAL, 1), 63, 0, path))
    path = [USUAL.at(ADJACENT, 2, NOWHERE), USUAL.sid(0xF0)]
    cases.forwarded("needs_no_route_to_the_next_one", with_srh(USUAL.sid(ADJACENT, 2), 64, 0, path),
                    with_srh(USUAL.sid(NOWHERE, 1), 63, 0, path))
    cases = Cases(group, "replace_csid_end_t", rfc=RFC_T, local=0x71)
    cases.dropped("to_a_next_one_that_only_main_has", RFC_T,
                  with_srh(USUAL.sid(0x71, 2), 64, 0, [USUAL.at(0x71, 2, BEHIND_2), USUAL.sid(0xF0)]), "no_route")
    for name, csid in (("end_x", ADJACENT), ("end_t", 0x71)):
        cases = Cases(group, f"replace_csid_{name}")
        cases.dropped("with_hop_limit_1", f"{RFC} S05",
                      with_srh(USUAL.sid(csid, 2), 1, 0, [USUAL.at(csid, 2, BEHIND_1), USUAL.sid(0xF0)]), "hop_limit")
        cases.dropped("with_an_index_and_segments_left_beyond_last_entry", f"{RFC} R02",
                      with_srh(USUAL.sid(csid, 2), 64, 2, [USUAL.at(csid, 2, BEHIND_1), USUAL.sid(0xF0)]), "srh_segments_left",
                      errors=csid)
        cases.dropped("without_an_srh", "8986 4.1.1", packet(USUAL.sid(csid)), "no_srh", errors=csid)


def add_end_b6(group):
    """End.B6.Encaps and End.B6.Encaps.Red: the forwarded packet is inside the policy's headers."""
    path = ["fc0a::1", "fc0b::2"]
    for name, csid, reduced, rfc in (("end_b6_encaps", 0xB6, False, RFC_B6), ("end_b6_encaps_red", 0xB7, True, RFC_B6_RED)):
        cases = Cases(group, f"replace_csid_{name}", rfc=rfc)

        def outer(destination, reduced=reduced):
            return headers(path, IPV6, reduced, hop_limit=64, label=label6(HEADEND, destination, ROUTING))

        for what, index, segments_left, there, left, segments in (
            ("at_index_2", 2, 0, USUAL.sid(BEHIND_1, 1), 0, [USUAL.at(csid, 2, BEHIND_1), USUAL.sid(0xF0)]),
            ("at_index_0", 0, 1, USUAL.sid(BEHIND_1, 3), 0, [USUAL.entry(BEHIND_1), USUAL.sid(csid)]),
            ("before_padding", 3, 1, SEGMENT_1, 0, [SEGMENT_1, USUAL.entry(csid), USUAL.sid(0xF0)]),
        ):
            cases.forwarded(what, with_srh(USUAL.sid(csid, index), 64, segments_left, segments),
                            outer(there) / with_srh(there, 63, left, segments))
        cases.dropped("of_the_last_csid", f"{RFC} S02", with_srh(USUAL.sid(csid, 3), 64, 0, [USUAL.entry(csid)]), "segments_left_zero",
                      errors=csid)
        cases.dropped("without_an_srh", "8986 4.1.1", packet(USUAL.sid(csid)), "no_srh", errors=csid)


FLAVORS = {
    0x1: "psp", 0x2: "usp", 0x3: "psp,usp", 0x4: "usd", 0x5: "psp,usd", 0x6: "usp,usd", 0x7: "psp,usp,usd",
}


def add_flavors(group, name, tens, egress):
    """PSP, USP and USD in every combination, on one behavior."""
    for bits, flavors in FLAVORS.items():
        csid = tens | bits
        pops, usp, usd = bits & 1, bits & 2, bits & 4
        cases = Cases(group, f"replace_csid_{name}_{flavors.replace(',', '_')}", egress=egress, rfc=RFC_FLAVORS)
        zero = USUAL.sid(csid)

        def last(destination, segments, pops=pops):
            return packet(destination, 63) if pops else with_srh(destination, 63, 0, segments)

        # R20.1: Segments Left 0 and no further C-SID.
        segments = [USUAL.at(csid, 1, BEHIND_1), USUAL.sid(0xF0)]
        payload = udp6(HEADEND, segments[0])
        popped = packet(USUAL.sid(BEHIND_1, 0), 63, payload) if pops else with_srh(USUAL.sid(BEHIND_1, 0), 63, 0, segments)
        cases.forwarded("to_the_last_csid_at_index_0", with_srh(USUAL.sid(csid, 1), 64, 0, segments), popped,
                        about="DA.Arg.Index and Segments Left are 0, so PSP removes the SRH." if pops else "")
        segments = [USUAL.at(csid, 2, BEHIND_1), USUAL.sid(0xF0)]
        payload = udp6(HEADEND, segments[0])
        popped = packet(USUAL.sid(BEHIND_1, 1), 63, payload) if pops else with_srh(USUAL.sid(BEHIND_1, 1), 63, 0, segments)
        cases.forwarded("to_the_last_csid_before_padding", with_srh(USUAL.sid(csid, 2), 64, 0, segments), popped)
        segments = [USUAL.entry(BEHIND_1), zero]
        payload = udp6(HEADEND, segments[0])
        popped = packet(USUAL.sid(BEHIND_1, 3), 63, payload) if pops else with_srh(USUAL.sid(BEHIND_1, 3), 63, 0, segments)
        cases.forwarded("to_the_only_csid_of_the_last_entry", with_srh(zero, 64, 1, segments), popped)
        segments = [USUAL.at(csid, 2, BEHIND_1, 0xF5), USUAL.sid(0xF0)]
        cases.forwarded("to_a_csid_before_the_last_one", with_srh(USUAL.sid(csid, 2), 64, 0, segments),
                        with_srh(USUAL.sid(BEHIND_1, 1), 63, 0, segments), about="Segments Left is 0, but the container continues.")
        segments = [SEGMENT_1, USUAL.at(csid, 1, BEHIND_1), USUAL.sid(0xF0)]
        cases.forwarded("to_the_end_of_an_entry_that_is_not_the_last", with_srh(USUAL.sid(csid, 1), 64, 1, segments),
                        with_srh(USUAL.sid(BEHIND_1, 0), 63, 1, segments))
        # R09.1: the last segment follows the padding as a whole.
        segments = [SEGMENT_1, USUAL.at(csid, 2), USUAL.sid(0xF0)]
        cases.forwarded("behind_padding_to_the_last_segment", with_srh(USUAL.sid(csid, 2), 64, 1, segments), last(SEGMENT_1, segments))
        segments = [SEGMENT_1, "fc0a::2", USUAL.at(csid, 2), USUAL.sid(0xF0)]
        cases.forwarded("behind_padding_to_a_segment_before_the_last", with_srh(USUAL.sid(csid, 2), 64, 2, segments),
                        with_srh("fc0a::2", 63, 1, segments))
        # S02, S03: no segment is left.
        for what, index in (("at_index_0", 0), ("before_padding", 2)):
            entry = [USUAL.at(csid, index)]
            here = USUAL.sid(csid, index)
            for family, protocol, inner in (("ipv6", IPV6, inner6), ("ipv4", IPV4, inner4)):
                before = with_srh(here, 64, 0, entry, protocol, inner(33))
                if usd:
                    cases.forwarded(f"of_{family}_{what}_of_the_last_entry", before, inner(32))
                else:
                    cases.dropped(f"of_{family}_{what}_of_the_last_entry", RFC_FLAVORS, before,
                                  "upper_layer" if usp else "segments_left_zero", errors=csid)
            cases.dropped(f"of_udp_{what}_of_the_last_entry", RFC_FLAVORS, with_srh(here, 64, 0, entry),
                          "upper_layer" if usp or usd else "segments_left_zero", errors=csid)
        if usd:
            cases.forwarded("of_ipv6_without_an_srh", packet(USUAL.sid(csid, 2), 64, inner6(33), IPV6), inner6(32))
        else:
            cases.dropped("of_ipv6_without_an_srh", "8986 4.1.1", packet(USUAL.sid(csid, 2), 64, inner6(33), IPV6), "no_srh", errors=csid)
        segments = [USUAL.at(csid, 2, BEHIND_1), USUAL.sid(0xF0)]
        cases.forwarded("while_the_container_goes_on_over_ipv6", with_srh(
            USUAL.sid(csid, 2), 64, 0, segments + [USUAL.sid(0xF0)], IPV6, inner6(33)),
            packet(USUAL.sid(BEHIND_1, 1), 63, inner6(33), IPV6) if pops
            else with_srh(USUAL.sid(BEHIND_1, 1), 63, 0, segments + [USUAL.sid(0xF0)], IPV6, inner6(33)))


def add_psp_chains(group):
    """PSP in front of a SID of this node."""
    psp = 0x11
    cases = Cases(group, "replace_csid_psp_chain", rfc=RFC_FLAVORS)
    path = [USUAL.at(psp, 2, 0x14), USUAL.sid(0xF0)]
    cases.forwarded("to_usd", with_srh(USUAL.sid(psp, 2), 64, 0, path, IPV6, inner6(33)), inner6(32),
                    about="PSP removes the SRH at the first SID. The second SID decapsulates the packet without it.")
    cases.dropped("to_a_sid_that_needs_an_srh", f"{RFC} S02", with_srh(USUAL.sid(psp, 2), 64, 0, path), "upper_layer")
    path = [USUAL.at(0x12, 2, psp, BEHIND_1), USUAL.sid(0xF0)]
    payload = udp6(HEADEND, path[0])
    cases.forwarded("of_usp_then_psp", with_srh(USUAL.sid(0x12, 2), 64, 0, path), packet(USUAL.sid(BEHIND_1, 0), 62, payload))
    inside = IPv6(src=HOST_0, dst=USUAL.sid(psp, 1), hlim=9, nh=ROUTING) / SRH(
        next_header=UDP_PROTOCOL, segments_left=0, segment_list=[USUAL.at(psp, 1, BEHIND_1)]) / udp6(HOST_0, HOST_1)
    cases.forwarded("usd_then_psp_of_the_inner_packet", with_srh(USUAL.sid(0x14, 3), 64, 0, [USUAL.entry(0x14)], IPV6, inside),
                    IPv6(src=HOST_0, dst=USUAL.sid(BEHIND_1, 0), hlim=8, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1))


def sid_route(lengths, csid, words):
    """The SID of a C-SID."""
    return f"{lengths.prefix(csid)} encap seg6local action {words} dev eth0"


def neighbors_of(lengths):
    """Routes to the C-SIDs behind eth1 and eth2."""
    return [
        f"{lengths.prefix(BEHIND_1)} via fc01::1 dev eth1", f"{lengths.prefix(BEHIND_2)} via fc02::1 dev eth2",
        f"{lengths.prefix(2**lengths.csid_bits - 1)} via fc02::1 dev eth2",
    ]


def groups():
    """Returns the vector files of this module."""
    routes = [line for lengths in ALL for line in [sid_route(lengths, LOCAL, f"End flavors {lengths.words}")] + neighbors_of(lengths)]
    first = Group("replace_csid", "REPLACE-C-SID on End: every pair of lengths, every index.", node(routes=routes))
    add_lengths(first)

    flavor = f"flavors {USUAL.words}"
    routes = [sid_route(USUAL, csid, f"End {flavor}") for csid in (LOCAL, LOCAL_2, LOCAL_3, LOCAL_4, LOCAL_5)]
    for lengths in (USUAL, SHORT):
        routes += [
            sid_route(lengths, ADJACENT, f"End.X nh6 fc02::1 flavors {lengths.words}"),
            sid_route(lengths, ADJACENT_2, f"End.X nh6 fc01::1 flavors {lengths.words}"),
        ]
    routes += [
        sid_route(USUAL, PLAIN, "End"),
        sid_route(USUAL, DT6, "End.DT6 table main"),
        sid_route(USUAL, DX4, "End.DX4 nh4 0.0.0.0"),
        sid_route(USUAL, DT46, "End.DT46 table main"),
        sid_route(USUAL, 0x71, f"End.T table 100 {flavor}"),
        f"{USUAL.prefix(BEHIND_1)} via fc02::1 dev eth2 table 100",
        "fc0a::/16 via fc02::1 dev eth2 table 100",
        sid_route(USUAL, 0xB6, f"End.B6.Encaps srh segs fc0a::1,fc0b::2 {flavor}"),
        sid_route(USUAL, 0xB7, f"End.B6.Encaps.Red srh segs fc0a::1,fc0b::2 {flavor}"),
        "fc0f::1/128 encap seg6local action End dev eth0",
        f"{USUAL.prefix(UNRESOLVED)} via fc01::66 dev eth1",
        f"blackhole {USUAL.prefix(BLACKHOLE)}",
    ] + neighbors_of(USUAL)
    second = Group(
        "replace_csid_behaviors", "REPLACE-C-SID on End, End.X, End.T, End.B6.Encaps, and decapsulation as the last C-SID.",
        node(routes=routes, seg6_disabled=(ETH2,), tunsrc=TUNSRC),
    )
    for add in (add_walk, add_kept, add_refused, add_chains, add_decapsulation, add_behaviors, add_end_b6):
        add(second)

    behaviors = (("end", "End", 0x10, ETH1), ("end_x", "End.X nh6 fc02::1", 0x20, ETH2), ("end_t", "End.T table 100", 0x30, ETH2))
    routes = [
        sid_route(USUAL, tens | bits, f"{words} flavors {flavors},{USUAL.words}")
        for _, words, tens, _ in behaviors for bits, flavors in FLAVORS.items()
    ] + neighbors_of(USUAL) + [
        f"{USUAL.prefix(BEHIND_1)} via fc02::1 dev eth2 table 100",
        "fc0a::/16 via fc02::1 dev eth2 table 100",
        "2001:db8:a::/48 via fc02::1 dev eth2 table 100",
        "198.51.100.0/24 via 10.2.0.1 dev eth2 table 100",
    ]
    third = Group("replace_csid_flavors", "REPLACE-C-SID with PSP, USP and USD, in every combination.", node(routes=routes))
    for name, _, tens, egress in behaviors:
        add_flavors(third, name, tens, egress)
    add_psp_chains(third)
    return [first, second, third]
