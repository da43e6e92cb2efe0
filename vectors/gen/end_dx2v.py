"""End.DX2V (RFC 8986 4.10) sends an Ethernet frame by the port of its VLANs."""

from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from .case import Group, drop, forward, skip
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_1, node, received
from .wire import (
    DESTINATION_OPTIONS, ETHERNET, FRAGMENT, IPV6, OPTION_EXPERIMENT, ROUTING, SRH, UDP_PROTOCOL, fragment_header, ipv4,
    options_header, padn, pattern, tlv, udp4, udp6,
)

RFC = "8986 4.10"
NO_LINUX = skip("Linux has no End.DX2V (SEG6_LOCAL_ACTION_*)")
SID, OTHER, EMPTY = "fc0f::d20", "fc0f::d21", "fc0f::d22"
CUSTOMER = {"src": "02:00:00:00:aa:01", "dst": "02:00:00:00:aa:02"}
C_TAG, S_TAG = 0x8100, 0x88A8
MTU = 1400
VLANS = [
    "table 10 vid 100 dev eth1",
    "table 10 vid 200 dev eth2",
    "table 10 vid 200 inner 1 dev eth1",
    "table 10 vid 200 inner 4094 dev eth1",
    "table 10 vid 300 inner 7 dev eth2",
    "table 10 vid 1 dev eth2",
    "table 10 vid 4094 dev eth1",
    "table 20 vid 100 dev eth2",
    "table 20 untagged dev eth1",
]


def outer(sid=SID, next_header=ROUTING, hop_limit=64, **fields):
    """The outer IPv6 header."""
    return IPv6(src=HEADEND, dst=sid, hlim=hop_limit, nh=next_header, **fields)


def srh(segments_left=0, segments=(SID, "fc0a::5"), next_header=ETHERNET, **fields):
    """An SRH whose path ends here."""
    return SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)


def frame(*tags, inner=None, kind=0x86DD):
    """A customer's frame. `tags`: (type, VLAN id) or (type, VLAN id, priority, DEI), outermost first."""
    packet = IPv6(src=HOST_0, dst=HOST_1, hlim=1, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1) if inner is None else inner
    types = [tag[0] for tag in tags] + [kind]
    headers = Ether(type=types[0], **CUSTOMER)
    for tag, following in zip(tags, types[1:]):
        headers /= Dot1Q(vlan=tag[1], prio=tag[2] if len(tag) > 2 else 0, id=tag[3] if len(tag) > 3 else 0, type=following)
    return headers / Raw(bytes(packet))


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "end_dx2v", "End.DX2V: decapsulates an Ethernet frame and sends it by the port of its VLANs.",
        node(
            routes=[
                f"{sid}/128 encap seg6local action End.DX2V vlantable {table} dev eth0"
                for sid, table in ((SID, 10), (OTHER, 20), (EMPTY, 30))
            ],
            vlans=VLANS, seg6_disabled=(ETH2,), mtu={"eth1": MTU},
        ),
    )

    def forwarded(name, inner, egress, headers=None, about="", counters=None, trailer=b"", rfc=RFC):
        headers = outer() / srh() if headers is None else headers
        group.add(
            f"end_dx2v_{name}", rfc, ETH0, received(ETH0, bytes(headers / Raw(bytes(inner))) + trailer),
            forward(egress, inner), NO_LINUX, about, counters,
        )

    def dropped(name, inner, reason, headers=None, about="", rfc=RFC, sid=SID, port=ETH0):
        headers = outer(sid) / srh() if headers is None else headers
        # A failed lookup does not count as an error of the SID.
        done = int(reason in ("vlan_miss", "too_big"))
        counters = {"route": f"{sid}/128", "packets": done, "errors": 1 - done} if port == ETH0 else None
        group.add(
            f"end_dx2v_{name}", rfc, port, received(port, headers / Raw(bytes(inner))), drop(reason), NO_LINUX, about, counters,
        )

    usual = frame((C_TAG, 100))
    forwarded("of_vlan_100", usual, ETH1, about="The frame leaves unchanged, with its tag and its hop limit of 1.",
              counters={"route": f"{SID}/128", "packets": 1, "errors": 0})
    forwarded("of_vlan_200", frame((C_TAG, 200)), ETH2)
    forwarded("of_vlan_1", frame((C_TAG, 1)), ETH2)
    forwarded("of_vlan_4094", frame((C_TAG, 4094)), ETH1)
    forwarded("of_vlan_100_with_priority_and_dei", frame((C_TAG, 100, 7, 1)), ETH1, about="The lookup uses only the VLAN id.")
    forwarded("of_vlan_100_in_a_service_tag", frame((S_TAG, 100)), ETH1, about="The lookup ignores the type of the tag.")
    forwarded("of_vlan_100_of_ipv4", frame((C_TAG, 100), inner=ipv4(src="192.0.2.1", dst="198.51.100.1", ttl=1) / udp4(), kind=0x0800), ETH1)
    forwarded("of_vlan_100_of_an_unknown_ethertype", frame((C_TAG, 100), inner=Raw(pattern(60)), kind=0x88B5), ETH1)
    forwarded("of_vlan_100_alone", frame((C_TAG, 100), inner=Raw(b""), kind=0x88B5), ETH1, about="The frame has 18 octets.")
    forwarded("of_qinq_by_its_outer_vlan", frame((S_TAG, 100), (C_TAG, 555)), ETH1, about="No entry names the inner VLAN.")
    forwarded("of_qinq_by_both_vlans", frame((S_TAG, 200), (C_TAG, 1)), ETH1, about="The entry with both VLAN ids takes precedence over the one with the outer id.")
    forwarded("of_qinq_by_both_vlans_with_two_customer_tags", frame((C_TAG, 200), (C_TAG, 4094)), ETH1)
    forwarded("of_qinq_with_another_inner_vlan", frame((S_TAG, 200), (C_TAG, 2)), ETH2)
    forwarded("of_qinq_that_only_both_vlans_have", frame((S_TAG, 300), (C_TAG, 7)), ETH2)
    forwarded("of_qinq_with_an_inner_priority_tag", frame((S_TAG, 200), (C_TAG, 0, 5)), ETH2, about="VLAN id 0 does not name a VLAN.")
    forwarded("of_three_tags", frame((S_TAG, 200), (C_TAG, 1), (C_TAG, 9)), ETH1, about="The third tag is payload.")
    forwarded("of_another_table", usual, ETH2, outer(OTHER) / srh(segments=[OTHER]))
    forwarded("of_an_untagged_frame", frame(), ETH1, outer(OTHER) / srh(segments=[OTHER]))
    forwarded("of_a_priority_tag", frame((C_TAG, 0, 6)), ETH1, outer(OTHER) / srh(segments=[OTHER]),
              about="IEEE 802.1Q: a tag with VLAN id 0 carries only a priority. The frame counts as untagged and keeps the tag.")
    forwarded("without_an_srh", usual, ETH1, outer(next_header=ETHERNET))
    forwarded("with_a_reduced_srh_of_one_entry", usual, ETH1, outer() / srh(segments=[SID]))
    forwarded("with_16_segments", usual, ETH1, outer() / srh(segments=[SID] + [f"fc0a::{number:x}" for number in range(1, 16)]))
    forwarded("with_tlvs", usual, ETH1, outer() / srh(tlvs=tlv(0x7C, b"abc") + padn(9)))
    forwarded("with_outer_hop_limit_1", usual, ETH1, outer(hop_limit=1) / srh())
    forwarded("with_outer_ecn_ce", usual, ETH1, outer(tc=3) / srh(), about="A frame has no ECN field to combine with the outer one.")
    forwarded("behind_destination_options", usual, ETH1,
              outer(next_header=DESTINATION_OPTIONS) / options_header(ETHERNET, OPTION_EXPERIMENT))
    forwarded("trims_octets_behind_the_outer_packet", usual, ETH1, trailer=b"padding")
    forwarded("of_exactly_the_mtu", frame((C_TAG, 100), inner=Raw(pattern(MTU)), kind=0x88B5), ETH1, rfc="8200 5",
              about="The first tag does not count towards the size, as in is_skb_forwardable.")
    dropped("of_one_octet_more_than_the_mtu", frame((C_TAG, 100), inner=Raw(pattern(MTU + 1)), kind=0x88B5), "too_big", rfc="8200 5")

    dropped("of_a_vlan_without_an_entry", frame((C_TAG, 101)), "vlan_miss")
    dropped("of_an_untagged_frame_without_an_entry", frame(), "vlan_miss")
    dropped("of_a_priority_tag_without_an_entry", frame((C_TAG, 0, 6)), "vlan_miss")
    dropped("of_one_vlan_where_only_two_are_known", frame((C_TAG, 300)), "vlan_miss")
    dropped("of_two_vlans_where_only_others_are_known", frame((S_TAG, 300), (C_TAG, 8)), "vlan_miss")
    dropped("of_vlan_4095", frame((C_TAG, 4095)), "vlan_miss")
    dropped("of_an_unknown_tag_type", frame((0x9100, 100)), "vlan_miss", about="The type is neither 802.1Q nor 802.1ad, so the frame has no tag.")
    dropped("of_a_table_without_entries", usual, "vlan_miss", sid=EMPTY)
    dropped("of_a_tag_cut_short", Raw(bytes(usual)[:17]), "inner_header")
    dropped("of_an_inner_tag_cut_short", Raw(bytes(frame((S_TAG, 200), (C_TAG, 1)))[:21]), "inner_header")
    dropped("of_a_header_cut_short", Raw(bytes(usual)[:13]), "inner_header")
    dropped("with_segments_left_1", usual, "segments_left_not_zero", outer() / srh(1))
    dropped("with_segments_left_of_a_reduced_srh", usual, "segments_left_not_zero", outer() / srh(1, ["fc0a::5"]))
    dropped("with_segments_left_beyond_last_entry", usual, "srh_segments_left", outer() / srh(3), rfc="8986 4.1 S09")
    dropped("of_ipv6_without_an_ethernet_header", usual, "upper_layer", outer() / srh(next_header=IPV6))
    dropped("of_udp", usual, "upper_layer", outer(next_header=UDP_PROTOCOL), rfc="8986 4.1.1")
    dropped("of_a_fragment", usual, "reassembly", outer(next_header=FRAGMENT) / fragment_header(ETHERNET, 0, True), rfc="8200 4.5")
    dropped("on_a_port_with_seg6_disabled", usual, "kernel_only", rfc="8754 4.3.1", port=ETH2)
    return [group]
