"""An invalid SRH at a SID that processes it (End) and at a SID that decapsulates (End.DT6)."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import Group, differs, drop, forward
from .node import ETH0, ETH1, HEADEND, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import IPV6, PAD1, ROUTING, SRH, UDP_PROTOCOL, padn, tlv, udp6

END = "fc0f::1"
END_DT6 = "fc0f::d6"
NODE = node(
    routes=[
        f"{END}/128 encap seg6local action End dev eth0",
        f"{END_DT6}/128 encap seg6local action End.DT6 table main dev eth0",
    ],
)
ONE_ERROR = {"route": f"{END}/128", "packets": 0, "errors": 1}
LENGTH = "8986 4.1 S09"
TLV = "8754 2.1"


def outer(destination, hop_limit=64, **fields):
    """The outer IPv6 header."""
    return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING, **fields)


def add_end(group):
    """Invalid SRHs at End."""
    udp = udp6(HEADEND, SEGMENT_1)

    def refused(name, rfc, reason, about="", segments_left=1, segments=(SEGMENT_1, END), linux=None, **fields):
        header = SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=list(segments), **fields)
        group.add(name, rfc, ETH0, received(ETH0, outer(END) / header / udp), drop(reason), linux, about, ONE_ERROR)

    refused("srh_last_entry_beyond_hdr_ext_len", LENGTH, "srh_length", last_entry=2, segments_left=1,
            about="Hdr Ext Len 4 has room for two segments, and Last Entry counts three.")
    refused("srh_last_entry_255", LENGTH, "srh_length", last_entry=255)
    refused("srh_hdr_ext_len_zero", LENGTH, "srh_length", hdr_ext_len=0, last_entry=0)
    refused("srh_hdr_ext_len_of_one_and_a_half_segments", LENGTH, "srh_length", hdr_ext_len=3, last_entry=1)
    refused("srh_beyond_the_packet", "8754 2", "srh_length", hdr_ext_len=40)
    refused("srh_beyond_the_packet_by_eight_octets", "8754 2", "srh_length", hdr_ext_len=4 + (8 + len(udp)) // 8)
    group.add(
        "srh_ends_in_the_middle_of_the_segment_list", "8754 2", ETH0,
        received(ETH0, outer(END) / Raw(bytes(SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=[SEGMENT_1, END]))[:24])),
        drop("srh_length"), counters=ONE_ERROR,
    )
    for octets in (0, 1, 7):
        group.add(
            f"srh_of_{octets}_octets", "8754 2", ETH0,
            received(ETH0, outer(END) / Raw(bytes(SRH(segments_left=1, segment_list=[SEGMENT_1, END]))[:octets])),
            drop("ext_header"),
            about="The packet ends before the routing header's fixed part does.",
        )
    refused("srh_segments_left_beyond_last_entry_plus_one", LENGTH, "srh_segments_left", segments_left=3,
            about="Last Entry is 1. Segments Left 2 would be a reduced SRH, and 3 is impossible.")
    refused("srh_segments_left_255", LENGTH, "srh_segments_left", segments_left=255)
    refused("srh_segments_left_beyond_with_room_in_the_list", LENGTH, "srh_segments_left", segments_left=2, last_entry=0,
            about="Hdr Ext Len has room for two segments, and Last Entry counts one. The rest would be TLVs.",
            segments=(SEGMENT_1, "::"))
    refused("srh_tlv_beyond_the_srh", TLV, "srh_tlv", tlvs=bytes([0x7C, 7]) + b"sixoct")
    refused("srh_tlv_of_255_octets_in_8", TLV, "srh_tlv", tlvs=bytes([0x7C, 255]) + b"sixoct")
    refused("srh_padn_beyond_the_srh", "8754 2.1.1.2", "srh_tlv", tlvs=bytes([4, 7]) + bytes(6))
    refused("srh_tlv_without_its_length_octet", TLV, "srh_tlv", tlvs=padn(5) + b"\x7c")
    refused("srh_second_tlv_beyond_the_srh", TLV, "srh_tlv", tlvs=tlv(0x7C, b"ab") + bytes([0x7D, 3]) + b"xy")


def add_decapsulation(group):
    """Invalid SRHs at End.DT6."""
    why = "decap_and_validate treats an SRH that seg6_get_srh refuses as absent and decapsulates"

    def inner(hop_limit):
        return IPv6(src=HOST_0, dst=HOST_1, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1)

    def packet(segments_left=0, **fields):
        header = SRH(next_header=IPV6, segments_left=segments_left, segment_list=[END_DT6, "fc0a::5"], **fields)
        return received(ETH0, outer(END_DT6) / header / inner(64))

    for what, fields in (
        ("last_entry_beyond_hdr_ext_len", {"last_entry": 2}),
        ("tlv_beyond_the_srh", {"tlvs": bytes([0x7C, 7]) + b"sixoct"}),
    ):
        group.add(
            f"srh_{what}_is_not_looked_at_when_segments_left_is_0", "8986 4.1 S02", ETH0,
            packet(**fields), forward(ETH1, sent(ETH1, inner(63))),
            about="With Segments Left 0, End processes the next header and does not check the SRH first.",
        )
    group.add(
        "srh_segments_left_beyond_last_entry_at_a_decapsulating_sid", LENGTH, ETH0,
        packet(segments_left=3), drop("srh_segments_left"),
        differs(forward(ETH1, sent(ETH1, inner(63))), why),
        counters={"route": f"{END_DT6}/128", "packets": 0, "errors": 1},
    )
    header = SRH(next_header=IPV6, hdr_ext_len=40, segment_list=[END_DT6])
    group.add(
        "srh_beyond_the_packet_at_a_decapsulating_sid", "8754 2", ETH0,
        received(ETH0, outer(END_DT6) / header / inner(64)), drop("srh_length"),
    )
    header = SRH(next_header=IPV6, segment_list=[END_DT6], tlvs=PAD1 + tlv(0x7C, b"abcde"))
    group.add(
        "srh_with_pad1_at_a_decapsulating_sid", "8754 2.1.1.1", ETH0,
        received(ETH0, outer(END_DT6) / header / inner(64)), forward(ETH1, sent(ETH1, inner(63))),
        about="Linux misreads the TLVs and continues without the SRH, but sends the same packet.",
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("srh_checks", "Invalid Segment Routing Headers.", NODE)
    add_end(group)
    add_decapsulation(group)
    return [group]
