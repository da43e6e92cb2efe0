"""ICMP messages about dropped packets (RFC 4443, RFC 8754, RFC 8986 4.1.1, RFC 9259)."""

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import SILENCE, Group, answer, drop, kernel, skip
from .node import ETH0, ETH1, HEADEND, HOST4_0, HOST4_1, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, ICMPV6, IPV4, IPV6, NO_NEXT_HEADER, OPTION_PADN_6, ROUTING, SRH, TCP_PROTOCOL,
    UDP_PROTOCOL, _sum16, echo6, fragment_header, icmp6, ipv4, options_header, pattern, tcp6, udp4, udp6,
)

END, END_X, END_DT6, END_DX4 = "fc0f::1", "fc0f::2", "fc0f::d6", "fc0f::d4"
USD, USD_T = "fc0f::3", "fc0f::7"
MTU = 1400
# RFC 4443 2.4(c): 1280 octets with the IPv6 header and the eight octets in front of the quoted packet.
QUOTE = 1280 - 40 - 8
# RFC 1812 4.3.2.3: 576 octets with the IPv4 header.
QUOTE4 = 576 - 20 - 8
# RFC 2460 4.4, deprecated by RFC 5095: one address, Segments Left 1.
ROUTING_TYPE_0 = Raw(bytes([UDP_PROTOCOL, 2, 0, 1, 0, 0, 0, 0]) + bytes(16))


def error(kind, code, word, packet):
    """RFC 4443 2.1 and 3: type, code, checksum, MTU or pointer, and the received packet."""
    return bytes([kind, code, 0, 0]) + word.to_bytes(4, "big") + bytes(packet)[:QUOTE]


def error4(kind, code, word, packet):
    """RFC 792, RFC 1191 4."""
    quote = bytes(packet)[:QUOTE4]
    checksum = _sum16(bytes([kind, code, 0, 0]) + word.to_bytes(4, "big") + quote)
    return bytes([kind, code]) + checksum.to_bytes(2, "big") + word.to_bytes(4, "big") + quote


def outer(destination, next_header=ROUTING, source=HEADEND, hop_limit=64):
    """The outer IPv6 header."""
    return IPv6(src=source, dst=destination, hlim=hop_limit, nh=next_header)


def inner(hop_limit=64, data=b"sidestep", destination=HOST_1):
    """IPv6 inside."""
    return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(HOST_0, destination, data)


def fragments4(packet):
    """RFC 791 3.2: the two fragments of an IPv4 packet that exceeds the MTU, which arrives with TTL 64."""
    at = (MTU - 20) // 8 * 8
    parts = ((packet[20:20 + at], 0, "MF"), (packet[20 + at:], at // 8, 0))
    return [
        (ETH1, sent(ETH1, ipv4(src=HOST4_0, dst=HOST4_1, ttl=63, proto=UDP_PROTOCOL, frag=offset, flags=flags) / Raw(part)))
        for part, offset, flags in parts
    ]


class Cases:
    """Cases of one group."""

    def __init__(self, group, linux=None):
        self.group, self.linux = group, linux

    def add(self, name, rfc, packet, reason, expected, about="", trailer=b""):
        """The packet is dropped with a message to its source."""
        self.group.add(
            f"icmp_{name}", rfc, ETH0, received(ETH0, Raw(bytes(packet) + trailer)), drop(reason), self.linux, about, answer=expected,
        )

    def header_field(self, name, rfc, packet, reason, pointer, to=HEADEND, **more):
        """Parameter Problem code 0."""
        self.add(name, rfc, packet, reason, answer(to, error(4, 0, pointer, packet)), **more)

    def upper_layer(self, name, packet, reason, pointer, rfc="8986 4.1.1", **more):
        """Parameter Problem code 4."""
        self.add(name, rfc, packet, reason, answer(HEADEND, error(4, 4, pointer, packet)), **more)

    def silence(self, name, packet, reason, rfc="4443 2.4", **more):
        """No message is sent."""
        self.add(name, rfc, packet, reason, SILENCE, **more)


def add_header_fields(cases):
    """An invalid SRH."""
    udp = udp6(HEADEND, SEGMENT_1)
    list_of_2 = [SEGMENT_1, END]

    def srh(next_header=UDP_PROTOCOL, segments_left=1, **fields):
        return SRH(next_header=next_header, segments_left=segments_left, segment_list=list_of_2, **fields)

    rfc = "8986 4.1 S09"
    cases.header_field("segments_left_beyond_last_entry", rfc, outer(END) / srh(segments_left=3) / udp, "srh_segments_left", 43)
    cases.header_field("last_entry_beyond_hdr_ext_len", rfc, outer(END) / srh(last_entry=2) / udp, "srh_length", 43)
    cases.header_field("srh_beyond_the_packet", "8754 2", outer(END) / srh(hdr_ext_len=40) / udp, "srh_length", 41)
    cases.header_field(
        "segments_left_behind_destination_options", rfc,
        outer(END, DESTINATION_OPTIONS) / options_header(ROUTING, OPTION_PADN_6) / srh(segments_left=9) / udp,
        "srh_segments_left", 51, about="The SRH begins eight octets later, so the pointer is greater by eight.",
    )
    cases.header_field(
        "segments_left_of_a_second_srh", rfc,
        outer(END) / SRH(next_header=ROUTING, segments_left=0, segment_list=[END]) / srh(segments_left=4) / udp,
        "srh_segments_left", 40 + 24 + 3, about="The first SRH has Segments Left 0, so the node skips it.",
    )
    cases.header_field("tlv_beyond_the_srh", "8754 2.1", outer(END) / srh(tlvs=bytes([0x7C, 7]) + b"sixoct") / udp, "srh_tlv", 41)
    cases.header_field("segments_left_at_end_x", rfc, outer(END_X) / srh(segments_left=3) / udp, "srh_segments_left", 43)
    cases.header_field(
        "segments_left_not_zero_at_end_dt6", "8986 4.4-4.9 S02",
        outer(END_DT6) / SRH(next_header=IPV6, segments_left=1, segment_list=list_of_2) / inner(), "segments_left_not_zero", 43,
    )
    cases.header_field(
        "quoted_to_1280_octets", "4443 2.4", outer(END) / srh(segments_left=3) / udp6(HEADEND, SEGMENT_1, pattern(1300)),
        "srh_segments_left", 43,
    )
    cases.header_field(
        "padding_of_the_link_is_not_quoted", "4443 2.4", outer(END) / srh(segments_left=3) / udp, "srh_segments_left", 43,
        trailer=b"\xee" * 6,
    )
    cases.header_field(
        "an_error_inside_an_encapsulation_is_no_error", "4443 2.4",
        outer(END) / srh(IPV6, segments_left=3)
        / IPv6(src=HOST_0, dst=HOST_1, nh=ICMPV6) / icmp6(HOST_0, HOST_1, error(1, 0, 0, b"")),
        "srh_segments_left", 43, about="The packet is IPv6 in IPv6, and its sender is not the sender of the inner error.",
    )
    cases.silence(
        "never_about_an_error_behind_an_srh",
        outer(END) / srh(ICMPV6, segments_left=3) / icmp6(HEADEND, SEGMENT_1, error(3, 0, 0, b"what was sent")),
        "srh_segments_left",
    )
    cases.silence(
        "never_about_a_redirect",
        outer(END) / srh(ICMPV6, segments_left=3) / icmp6(HEADEND, SEGMENT_1, bytes([137, 0, 0, 0]) + bytes(36)),
        "srh_segments_left",
    )
    cases.silence(
        "never_about_icmp_without_a_type", outer(END) / srh(ICMPV6, segments_left=3), "srh_segments_left",
        about="The packet may be an ICMP error.",
    )
    packet = outer(END) / ROUTING_TYPE_0 / udp
    cases.group.add(
        "icmp_routing_header_of_type_0", "8200 4.4", ETH0, received(ETH0, packet), kernel("routing_header"),
        skip("the kernel's SID drops it without a message"), answer=answer(HEADEND, error(4, 0, 42, packet)),
        about="Segments Left is 1, and the pointer locates the routing type.",
    )


def add_upper_layers(cases):
    """Packets to a SID with an upper layer that it does not accept."""
    ended = SRH(next_header=TCP_PROTOCOL, segments_left=0, segment_list=[END])
    tcp = tcp6(HEADEND, END)
    cases.upper_layer("tcp_at_end", outer(END, TCP_PROTOCOL) / tcp, "no_srh", 40)
    cases.upper_layer("tcp_at_end_behind_an_srh", outer(END) / ended / tcp, "segments_left_zero", 64)
    cases.upper_layer("no_next_header_at_end", outer(END, NO_NEXT_HEADER), "no_srh", 40)
    cases.upper_layer("ipv6_at_end", outer(END, IPV6) / inner(), "no_srh", 40)
    cases.upper_layer("tcp_at_end_x", outer(END_X, TCP_PROTOCOL) / tcp6(HEADEND, END_X), "no_srh", 40)
    cases.upper_layer("ipv4_at_end_dt6", outer(END_DT6, IPV4) / ipv4(src=HOST4_0, dst=HOST4_1) / udp4(), "upper_layer", 40)
    cases.upper_layer("ipv6_at_end_dx4", outer(END_DX4, IPV6) / inner(), "upper_layer", 40)
    cases.upper_layer(
        "tcp_at_end_dt6_behind_options",
        outer(END_DT6, DESTINATION_OPTIONS) / options_header(TCP_PROTOCOL, OPTION_PADN_6) / tcp6(HEADEND, END_DT6), "upper_layer", 48,
    )
    reply = icmp6(HEADEND, END, bytes([129, 0, 0, 0, 1, 2, 0, 1]))
    cases.upper_layer("echo_reply_at_end", outer(END, ICMPV6) / reply, "no_srh", 40, about="This node sent no request.")
    cases.silence("never_about_an_error_at_end", outer(END, ICMPV6) / icmp6(HEADEND, END, error(4, 4, 40, b"quoted")), "no_srh")
    packet = outer(END, FRAGMENT) / fragment_header(UDP_PROTOCOL, 0, True) / udp6(HEADEND, END)
    cases.add("a_fragment_at_end", "8200 4.5", packet, "reassembly", answer(HEADEND, error(3, 1, 0, packet)),
             about="The packet is a first fragment, and a SID does not reassemble packets.")
    udp = outer(END, UDP_PROTOCOL) / udp6(HEADEND, END, destination_port=33434)
    cases.add("traceroute_to_end", "9259 3.2.1", udp, "no_srh", answer(HEADEND, error(1, 4, 0, udp), END))
    udp = outer(END_DT6) / SRH(next_header=UDP_PROTOCOL, segments_left=0, segment_list=[END_DT6]) / udp6(HEADEND, END_DT6)
    cases.add("traceroute_to_end_dt6_behind_an_srh", "9259 3.2.2", udp, "upper_layer", answer(HEADEND, error(1, 4, 0, udp), END_DT6))


def add_echo(cases):
    """RFC 9259 3.1: ping."""
    def ping(name, sid, reason, header=None, data=b"sidestep", rfc="9259 3.1.1", linux=None):
        request = echo6(HEADEND, sid, data)
        packet = outer(sid, ICMPV6) / request if header is None else outer(sid) / header / request
        reply = b"\x81\x00\x00\x00" + bytes(request)[4:]
        Cases(cases.group, linux or cases.linux).add(name, rfc, packet, reason, answer(HEADEND, reply, sid))

    ping("ping_to_end", END, "no_srh")
    ping("ping_to_end_x", END_X, "no_srh")
    ping("ping_to_end_dt6", END_DT6, "upper_layer")
    ping("ping_of_1400_octets_to_end", END, "no_srh", data=pattern(1400))
    ping("ping_of_3000_octets_to_end", END, "no_srh", data=pattern(3000), linux=skip("the frame exceeds the MTU of the link"))
    ping("ping_to_end_by_an_srh", END, "segments_left_zero",
         SRH(next_header=ICMPV6, segments_left=0, segment_list=[END, SEGMENT_1]), rfc="9259 3.1.2")
    request = bytearray(bytes(echo6(HEADEND, END)))
    request[-1] ^= 1
    cases.silence("ping_with_a_wrong_checksum", outer(END, ICMPV6) / Raw(bytes(request)), "no_srh", "4443 2.3")
    cases.silence("ping_cut_short", outer(END, ICMPV6) / Raw(bytes(request)[:6]), "no_srh", "4443 4.1")


def add_own(cases):
    """Messages at SIDs that Linux lacks and therefore cannot answer."""
    def reported(name, rfc, packet, reason, to, message, about=""):
        cases.add(name, rfc, packet, reason, answer(to, message), about=about)

    packet = inner(1)
    reported("inner_hop_limit_1", "8986 4.16.3", outer(USD, IPV6) / packet, "hop_limit", HOST_0, error(3, 0, 0, packet),
             "The message goes to the source of the inner packet and quotes the inner packet.")
    packet = ipv4(src=HOST4_0, dst=HOST4_1, ttl=1) / udp4()
    reported("inner_ttl_1", "1812 5.3.1", outer(USD, IPV4) / packet, "hop_limit", HOST4_0, error4(11, 0, 0, packet))
    packet = outer(USD, hop_limit=1) / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=[SEGMENT_1, USD]) / udp6(HEADEND, SEGMENT_1)
    reported("hop_limit_1_at_a_sid", "8986 4.1 S05", packet, "hop_limit", HEADEND, error(3, 0, 0, packet))
    packet = outer(USD) / ROUTING_TYPE_0 / udp6(HEADEND, SEGMENT_1)
    reported("routing_header_of_type_0_at_a_sid_of_ours", "8200 4.4", packet, "kernel_only", HEADEND, error(4, 0, 42, packet),
             "The pointer locates the routing type, as at a SID that Linux has.")
    packet = inner(64, pattern(MTU + 1 - 48))
    reported("inner_too_big", "4443 3.2", outer(USD, IPV6) / packet, "too_big", HOST_0, error(2, 0, MTU, packet))
    packet = ipv4(src=HOST4_0, dst=HOST4_1, flags="DF") / udp4(pattern(MTU + 1 - 28))
    reported("inner_ipv4_too_big", "1191 4", outer(USD, IPV4) / packet, "too_big", HOST4_0, error4(3, 4, MTU, packet))
    packet = ipv4(src=HOST4_0, dst=HOST4_1) / udp4(pattern(MTU + 1 - 28))
    cases.group.add(
        "icmp_inner_ipv4_too_big_without_df", "1191 4", ETH0, received(ETH0, outer(USD, IPV4) / packet), kernel("fragmented"),
        cases.linux, "The packet leaves in fragments.", answer=SILENCE, fragments=fragments4(bytes(packet)),
    )
    packet = inner(destination="2001:db8:dead::1")
    reported("inner_without_a_route", "4443 3.1", outer(USD_T, IPV6) / packet, "no_route", HOST_0, error(1, 0, 0, packet))
    packet = IP(src=HOST4_0, dst=HOST4_1, ttl=1, proto=1) / Raw(error4(3, 0, 0, pattern(28)))
    cases.silence("never_about_an_icmpv4_error_inside", outer(USD, IPV4) / packet, "hop_limit", "1812 4.3.2.7")
    packet = ipv4(src=HOST4_0, dst=HOST4_1, ttl=1, frag=1) / Raw(pattern(8))
    cases.silence("never_about_a_later_fragment_inside", outer(USD, IPV4) / packet, "hop_limit", "1812 4.3.2.7")


def groups():
    """Returns the vector files of this module."""
    linux = Group("icmp", "ICMP messages to senders of packets to SIDs.", node(routes=[
        f"{END}/128 encap seg6local action End dev eth0",
        f"{END_X}/128 encap seg6local action End.X nh6 fc01::1 dev eth0",
        f"{END_DT6}/128 encap seg6local action End.DT6 table main dev eth0",
        f"{END_DX4}/128 encap seg6local action End.DX4 nh4 10.1.0.1 dev eth0",
    ]))
    cases = Cases(linux)
    add_header_fields(cases)
    add_upper_layers(cases)
    add_echo(cases)
    own = Group("icmp_own", "ICMP messages to senders of packets to Sidestep-only SIDs.", node(routes=[
        f"{USD}/128 encap seg6local action End.X nh6 fc01::1 flavors usd dev eth0",
        f"{USD_T}/128 encap seg6local action End.T table 100 flavors usd dev eth0",
        "fc0a::/16 via fc01::1 dev eth1 table 100",
    ], mtu={"eth1": MTU}))
    add_own(Cases(own, skip("Linux does not have the SID")))
    return [linux, own]
