"""Packets with the O-flag (RFC 9259 2.1.1), and the SIDs that copy them.

The flag does not change how a node processes the packet.
"""

from scapy.layers.inet6 import IPv6

from .case import Group, copied, drop, forward, kernel
from .local_chain import decremented
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, IPV6, OPTION_PADN_6, PAD1, ROUTING, SRH, UDP_PROTOCOL, options_header, tlv, udp6,
)

END, END_2, END_X, END_PSP, END_DT6 = "fc0f::1", "fc0f::2", "fc0f::3", "fc0f::4", "fc0f::d6"
O_FLAG = 0x20
ROUTES = [
    f"{END}/128 encap seg6local action End dev eth0",
    f"{END_2}/128 encap seg6local action End dev eth0",
    f"{END_X}/128 encap seg6local action End.X nh6 fc02::1 dev eth0",
    f"{END_PSP}/128 encap seg6local action End flavors psp dev eth0",
    f"{END_DT6}/128 encap seg6local action End.DT6 table 254 dev eth0",
]
RFC = "9259 2.1.1 S01.1"


def outer(destination, hop_limit=64, next_header=ROUTING):
    """The outer IPv6 header."""
    return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=next_header)


def inner(hop_limit):
    """The packet that a headend has encapsulated."""
    return IPv6(src=HOST_0, dst=HOST_1, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1)


def srh(segments_left, segments, flags=O_FLAG, next_header=IPV6, tlvs=b""):
    """An SRH. `segments` has the order of the wire, with the last segment first."""
    return SRH(next_header=next_header, segments_left=segments_left, segment_list=segments, flags=flags, tlvs=tlvs)


class Marked:
    """Packets for two nodes: one permits copies, and one does not."""

    def __init__(self, name, about, oam_rate, word):
        self.permitted = oam_rate > 0
        self.word = word
        self.group = Group(name, about, node(routes=ROUTES, seg6_disabled=(ETH2,), oam_rate=oam_rate))

    def add(self, name, packet, expect, *sids, port=ETH0, trailer=b"", rfc=RFC, about="", linux=None):
        """Adds a vector.

        `sids` lists the SIDs that copy the packet if copies are permitted, each with the Segments
        Left that it finds.
        """
        copies = [copied(sid, segments_left, packet) for sid, segments_left in sids] if self.permitted else []
        frame = bytes(received(port, packet)) + trailer
        self.group.add(f"o_flag_{self.word}_{name}", rfc, port, frame, expect, linux, about, copies=copies)


def add_with_the_flag(marked):
    """Packets that one SID of this node copies."""
    two = [SEGMENT_1, END]
    onward = forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, two) / inner(9)))
    marked.add("at_end", outer(END) / srh(1, two) / inner(9), onward, (END, 1),
               about="The forwarded packet keeps the flag for the next SID.")
    marked.add("at_end_with_all_other_flags", outer(END) / srh(1, two, 0xFF & ~0x08) / inner(9),
               forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, two, 0xFF & ~0x08) / inner(9))), (END, 1))
    marked.add("at_end_and_padding_of_the_link", outer(END) / srh(1, two) / inner(9), onward, (END, 1), trailer=b"\xee" * 6,
               about="The copy has no octets behind the end of the packet.")
    options = options_header(ROUTING, OPTION_PADN_6)
    marked.add(
        "at_end_behind_destination_options", outer(END, next_header=DESTINATION_OPTIONS) / options / srh(1, two) / inner(9),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63, DESTINATION_OPTIONS) / options / srh(0, two) / inner(9))), (END, 1),
    )
    tlvs = tlv(0x7C, b"sixoct") + PAD1 * 8
    marked.add(
        "at_end_with_tlvs", outer(END) / srh(1, two, tlvs=tlvs) / inner(9),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, two, tlvs=tlvs) / inner(9))), (END, 1),
    )
    reduced = [SEGMENT_1]
    marked.add(
        "at_end_with_a_reduced_srh", outer(END) / srh(1, reduced) / inner(9),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, reduced) / inner(9))), (END, 1),
    )
    two = [SEGMENT_1, END_X]
    marked.add(
        "at_end_x", outer(END_X) / srh(1, two) / inner(9),
        forward(ETH2, sent(ETH2, outer(SEGMENT_1, 63) / srh(0, two) / inner(9))), (END_X, 1),
    )
    marked.add(
        "at_end_dt6", outer(END_DT6) / srh(0, [END_DT6, SEGMENT_1]) / inner(9), forward(ETH1, sent(ETH1, inner(8))), (END_DT6, 0),
    )


def add_several(marked):
    """Packets with more than one SID of this node."""
    three = [SEGMENT_1, END_2, END]
    leaves = decremented(ETH1, lambda limit: outer(SEGMENT_1, limit) / srh(0, three) / inner(9), 64, 2)
    marked.add(
        "at_two_sids", outer(END) / srh(2, three) / inner(9), leaves["expect"], (END, 2), (END_2, 1), linux=leaves["linux"],
        about="Each SID copies the packet as received, with the Segments Left at this SID.",
    )
    two = [END_DT6, END]
    marked.add(
        "at_end_and_the_last_sid", outer(END) / srh(1, two) / inner(9), forward(ETH1, sent(ETH1, inner(8))), (END, 1), (END_DT6, 0),
    )
    two = [END_DT6, END_PSP]
    marked.add(
        "at_end_psp_and_the_last_sid", outer(END_PSP) / srh(1, two) / inner(9), forward(ETH1, sent(ETH1, inner(8))), (END_PSP, 1),
        about="PSP removes the SRH and thus the flag (RFC 9259 2.1.1).",
    )


def add_ends_here(marked):
    """Packets that a SID copies and that the node then drops or punts."""
    marked.add("at_end_that_drops_it", outer(END) / srh(0, [END, SEGMENT_1]) / inner(9), drop("segments_left_zero"), (END, 0))
    marked.add(
        "at_end_with_hop_limit_1", outer(END, 1) / srh(1, [SEGMENT_1, END]) / inner(9), drop("hop_limit"), (END, 1),
        rfc=[RFC, "8986 4.1 S05"],
    )


def add_without(marked):
    """Packets that no SID copies."""
    two = [SEGMENT_1, END]
    for name, flags in (("no_flag", 0), ("every_flag_but_it", 0xFF & ~O_FLAG & ~0x08)):
        marked.add(
            name, outer(END) / srh(1, two, flags) / inner(9),
            forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(0, two, flags) / inner(9))),
        )
    passing = ["fc0b::1", SEGMENT_1]
    marked.add(
        "not_for_this_node", outer(SEGMENT_1) / srh(1, passing) / inner(9),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 63) / srh(1, passing) / inner(9))), rfc="9259 2.1.1",
        about="The flag concerns only the nodes whose SIDs process the packet.",
    )
    marked.add("where_seg6_is_disabled", outer(END) / srh(1, two) / inner(9), kernel("seg6_disabled"), port=ETH2)
    hidden = IPv6(src=HOST_0, dst=SEGMENT_1, hlim=9, nh=ROUTING) / srh(0, [SEGMENT_1], next_header=UDP_PROTOCOL) / udp6(HOST_0, SEGMENT_1)
    left = hidden.copy()
    left.hlim = 8
    marked.add(
        "in_the_packet_inside", outer(END_DT6) / srh(0, [END_DT6], flags=0) / hidden, forward(ETH1, sent(ETH1, left)),
        about="The SID processes the outer SRH, which lacks the flag.",
    )


def groups():
    """Returns the vector files of this module."""
    all_marked = [
        Marked("o_flag", "Packets with the O-flag at SIDs of a node that copies them.", 100, "copied"),
        Marked("o_flag_not_permitted", "Packets with the O-flag where no rate is permitted: the node ignores the flag.", 0, "ignored"),
    ]
    for marked in all_marked:
        add_with_the_flag(marked)
        add_several(marked)
        add_ends_here(marked)
        add_without(marked)
    return [marked.group for marked in all_marked]
