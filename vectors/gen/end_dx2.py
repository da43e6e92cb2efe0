"""End.DX2 (RFC 8986 4.9)."""

from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, LLC, Dot1Q, Dot3, Ether
from scapy.packet import Raw

from .case import Group, differs, drop, forward, kernel
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_1, node, received
from .wire import DESTINATION_OPTIONS, ETHERNET, IPV6, OPTION_EXPERIMENT, ROUTING, SRH, UDP_PROTOCOL
from .wire import ipv4, options_header, pattern, udp4, udp6

SID = "fc0f::d2"
CUSTOMER = {"src": "02:00:00:00:aa:01", "dst": "02:00:00:00:aa:02"}
ONE_ERROR = {"route": f"{SID}/128", "packets": 0, "errors": 1}


def outer(next_header=ROUTING, hop_limit=64):
    """The outer IPv6 header."""
    return IPv6(src=HEADEND, dst=SID, hlim=hop_limit, nh=next_header)


def srh(segments_left=0, segments=(SID, "fc0a::5"), next_header=ETHERNET):
    """An SRH whose path ends here."""
    return SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments))


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "end_dx2", "End.DX2: decapsulates an Ethernet frame and sends it by a given port.",
        node(routes=[f"{SID}/128 encap seg6local action End.DX2 oif eth1 dev eth0"], seg6_disabled=(ETH2,)),
    )
    plain = Ether(type=0x86DD, **CUSTOMER) / IPv6(src=HOST_0, dst=HOST_1, hlim=1, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1)

    def forwarded(name, headers, frame, about="", linux=None, counters=None, trailer=b""):
        group.add(
            name, "8986 4.9", ETH0, received(ETH0, bytes(headers / Raw(bytes(frame))) + trailer),
            forward(ETH1, frame), linux=linux, about=about, counters=counters,
        )

    forwarded("end_dx2_with_an_srh", outer() / srh(), plain,
              about="The inner frame leaves unchanged, with its MAC addresses and its hop limit of 1.",
              counters={"route": f"{SID}/128", "packets": 1, "errors": 0})
    forwarded("end_dx2_without_an_srh", outer(ETHERNET), plain)
    forwarded("end_dx2_with_a_reduced_srh_of_one_entry", outer() / srh(segments=[SID]), plain)
    forwarded("end_dx2_with_outer_hop_limit_1", outer(hop_limit=1) / srh(), plain)
    forwarded("end_dx2_behind_destination_options",
              outer(DESTINATION_OPTIONS) / options_header(ETHERNET, OPTION_EXPERIMENT), plain)
    forwarded("end_dx2_of_ipv4", outer() / srh(),
              Ether(type=0x0800, **CUSTOMER) / ipv4(src="192.0.2.1", dst="198.51.100.1", ttl=1) / udp4())
    forwarded("end_dx2_of_arp", outer() / srh(),
              Ether(type=0x0806, src=CUSTOMER["src"], dst="ff:ff:ff:ff:ff:ff")
              / ARP(op=1, hwsrc=CUSTOMER["src"], psrc="10.9.0.1", hwdst="00:00:00:00:00:00", pdst="10.9.0.2"))
    forwarded("end_dx2_of_a_vlan_frame", outer() / srh(),
              Ether(type=0x8100, **CUSTOMER) / Dot1Q(vlan=42, prio=3, type=0x0800)
              / ipv4(src="192.0.2.1", dst="198.51.100.1", ttl=9) / udp4(pattern(100)))
    forwarded("end_dx2_of_a_qinq_frame", outer() / srh(),
              Ether(type=0x88A8, **CUSTOMER) / Dot1Q(vlan=42, type=0x8100) / Dot1Q(vlan=43, type=0x88B5) / Raw(pattern(60)))
    forwarded("end_dx2_of_an_unknown_ethertype", outer() / srh(), Ether(type=0x88B5, **CUSTOMER) / Raw(pattern(100)))
    forwarded("end_dx2_of_an_llc_frame", outer() / srh(),
              Dot3(**CUSTOMER) / LLC(dsap=0x42, ssap=0x42, ctrl=3) / Raw(pattern(35)),
              linux=differs("drop", "input_action_end_dx2 takes frames with an EtherType only (eth_proto_is_802_3)"))
    forwarded("end_dx2_of_a_header_alone", outer() / srh(), Ether(type=0x88B5, **CUSTOMER), about="The frame has 14 octets.")
    forwarded("end_dx2_trims_octets_behind_the_outer_packet", outer() / srh(), plain, trailer=b"padding")

    for name, packet, reason in (
        ("end_dx2_with_segments_left_1", outer() / srh(1), "segments_left_not_zero"),
        ("end_dx2_with_segments_left_of_a_reduced_srh", outer() / srh(1, ["fc0a::5"]), "segments_left_not_zero"),
        ("end_dx2_of_ipv6_without_an_ethernet_header", outer() / srh(next_header=IPV6), "upper_layer"),
        ("end_dx2_of_udp", outer(UDP_PROTOCOL), "upper_layer"),
    ):
        group.add(name, "8986 4.9", ETH0, received(ETH0, packet / Raw(bytes(plain))), drop(reason), counters=ONE_ERROR)
    group.add(
        "end_dx2_of_an_inner_header_cut_short", "8986 4.9", ETH0,
        received(ETH0, outer() / srh() / Raw(bytes(plain)[:13])), drop("inner_header"), counters=ONE_ERROR,
    )
    group.add(
        "end_dx2_on_a_port_with_seg6_disabled", "8754 4.3.1", ETH2,
        received(ETH2, outer() / srh() / Raw(bytes(plain))), kernel("seg6_disabled"),
    )
    return [group]
