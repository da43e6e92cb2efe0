"""Extension headers at a SID: whole packets with a Fragment header, fragments, options, their order, AH and ESP (RFC 8200 4)."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import SAME, SILENCE, Group, answer, differs, drop, forward, kernel, skip
from .decap import inner6
from .ecn import WHY as ECN
from .icmp import error, outer
from .node import ETH0, ETH1, HEADEND, HOST_0, SEGMENT_1, node, received, sent
from .wire import (
    AUTHENTICATION, DESTINATION_OPTIONS, ESP, FRAGMENT, HOP_BY_HOP, ICMPV6, IPV6, ROUTING, SRH, UDP_PROTOCOL,
    OPTION_ROUTER_ALERT, authentication_header, echo6, fragment_header, options_header, pattern, udp6,
)

END, END_PSP, END_X, END_DT6 = "fc0f::1", "fc0f::11", "fc0f::2", "fc0f::d6"
USD, END_DT46 = "fc0f::3", "fc0f::46"
STEERED = "2001:db8:c1::1"
NO_LINUX = skip("Linux does not have the SID")
FIRST_FRAGMENT = "ipv6_find_hdr skips the Fragment header of a first fragment, and seg6local processes the SRH behind it"
OPTIONS = "seg6_local.c does not process Destination Options in front of the SRH"
ORDER = "ipv6_find_hdr follows Hop-by-Hop Options anywhere in the chain"
SECURITY = "ipv6_find_hdr skips an Authentication Header, and seg6local processes what follows it"


def option(kind, length=4):
    """An option of this type with the length that fills eight octets of a header."""
    return bytes([kind, length]) + b"\xca\xfe\xf0\x0d"


def advanced(sid, header, first, segments_left, next_header=UDP_PROTOCOL):
    """The packet with `header` in front of the SRH: as it arrives with Segments Left 1, and as it leaves."""
    destination, hop_limit = (sid, 64) if segments_left else (SEGMENT_1, 63)
    return (
        outer(destination, first, hop_limit=hop_limit) / header
        / SRH(next_header=next_header, segments_left=segments_left, segment_list=[SEGMENT_1, sid]) / udp6(HEADEND, SEGMENT_1)
    )


class Cases:
    """Cases of one group. `linux`: the expectation for Linux if the cases do not run there."""

    def __init__(self, group, linux=None):
        self.group, self.linux = group, linux

    def advances(self, name, rfc, sid, header, first, about=""):
        """The SID skips the header and advances the SRH."""
        self.group.add(
            name, rfc, ETH0, received(ETH0, advanced(sid, header, first, 1)),
            forward(ETH1, sent(ETH1, advanced(sid, header, first, 0))), self.linux or SAME, about,
        )

    def dropped(self, name, rfc, packet, reason, expected, linux=SAME, about=""):
        """The SID drops the packet. `linux`: the frame that Linux sends, if any, and the reason."""
        if linux != SAME:
            linux = differs(forward(ETH1, sent(ETH1, linux[0])), linux[1])
        self.group.add(name, rfc, ETH0, received(ETH0, packet), drop(reason), self.linux or linux, about, answer=expected)

    def refuses(self, name, rfc, sid, header, first, reason, message, why, about=""):
        """The SID drops the packet with this header in front of the SRH, which Linux advances. `message`: type, code, pointer."""
        packet = advanced(sid, header, first, 1)
        expected = answer(HEADEND, error(*message, packet)) if message else SILENCE
        self.dropped(name, rfc, packet, reason, expected, (advanced(sid, header, first, 0), why), about)


def add_fragments(cases):
    """RFC 8200 4.5."""
    whole, first, last = (fragment_header(ROUTING, *place) for place in ((0, False), (0, True), (185, False)))
    for name, sid in (("end", END), ("end_x", END_X)):
        cases.advances(f"{name}_behind_the_fragment_header_of_a_whole_packet", "8200 4.5", sid, whole, FRAGMENT,
                       "Offset 0 and M 0: the packet is complete, and the header stays in it.")
        cases.refuses(f"{name}_behind_the_header_of_a_first_fragment", "8200 4.5", sid, first, FRAGMENT, "reassembly", (3, 1, 0),
                      FIRST_FRAGMENT, "The SRH is in the fragmented part, and a SID does not reassemble packets.")
        cases.dropped(f"{name}_of_a_last_fragment", "8200 4.5", outer(sid, FRAGMENT) / last / Raw(pattern(40)), "reassembly", SILENCE,
                      about="The node sends a message about the first fragment only.")
    reserved = Raw(b"\x2b\xff" + bytes(whole)[2:])
    cases.advances("end_behind_a_fragment_header_with_its_reserved_octet_set", "8200 4.5", END, reserved, FRAGMENT,
                   "A Fragment header has no length field.")
    reserved = Raw(bytes(whole)[:3] + b"\x06" + bytes(whole)[4:])
    cases.advances("end_behind_a_fragment_header_with_its_reserved_bits_set", "8200 4.5", END, reserved, FRAGMENT)
    cases.advances("end_behind_options_and_the_fragment_header_of_a_whole_packet", "8200 4.5", END,
                   options_header(FRAGMENT, option(0x07)) / whole, DESTINATION_OPTIONS)
    leaves = outer(SEGMENT_1, FRAGMENT, hop_limit=63) / fragment_header(UDP_PROTOCOL, 0, False) / udp6(HEADEND, SEGMENT_1)
    cases.group.add(
        "end_psp_behind_the_fragment_header_of_a_whole_packet", ["8200 4.5", "8986 4.16.1"], ETH0,
        received(ETH0, advanced(END_PSP, whole, FRAGMENT, 1)), forward(ETH1, sent(ETH1, leaves)),
    )
    cases.group.add(
        "end_dt6_of_a_whole_packet_with_a_fragment_header", "8200 4.5", ETH0,
        received(ETH0, outer(END_DT6, FRAGMENT) / fragment_header(IPV6, 0, False) / inner6(64)), forward(ETH1, sent(ETH1, inner6(63))),
    )
    cut = outer(END, FRAGMENT) / Raw(bytes(whole)[:7])
    cases.dropped("end_with_a_fragment_header_cut_short", "8200 4", cut, "ext_header", None)
    cut = outer(END, FRAGMENT) / Raw(bytes(whole)[:2])
    cases.group.add(
        "end_with_a_fragment_header_cut_short_and_octets_behind_it", "8200 4", ETH0,
        received(ETH0, bytes(cut) + bytes([0xFF] * 6)), drop("ext_header"), SAME,
        "The octets behind the packet do not belong to the header.",
    )
    for name, sid, reason in (("end", END, "no_srh"), ("end_dt6", END_DT6, "upper_layer")):
        request = echo6(HEADEND, sid)
        cases.dropped(
            f"ping_to_{name}_with_a_fragment_header", ["8200 4.5", "9259 3.1.1"],
            outer(sid, FRAGMENT) / fragment_header(ICMPV6, 0, False) / request, reason,
            answer(HEADEND, b"\x81\x00\x00\x00" + bytes(request)[4:], sid),
        )


def add_options(cases):
    """RFC 8200 4.2, in Destination Options headers of a SID."""
    def header(kind, *more):
        return options_header(ROUTING, b"".join([option(kind), *more]))

    for name, sid in (("end", END), ("end_x", END_X), ("end_psp", END_PSP)):
        for bits, kind, message in (("01", 0x47, None), ("10", 0x87, (4, 2, 42)), ("11", 0xC7, (4, 2, 42))):
            if name == "end_psp" and bits != "11":
                continue
            packet, expected = advanced(sid, header(kind), DESTINATION_OPTIONS, 1), SILENCE
            if message:
                expected = answer(HEADEND, error(*message, packet))
            leaves = advanced(sid, header(kind), DESTINATION_OPTIONS, 0)
            if name == "end_psp":
                leaves = outer(SEGMENT_1, DESTINATION_OPTIONS, hop_limit=63) / options_header(
                    UDP_PROTOCOL, option(kind)) / udp6(HEADEND, SEGMENT_1)
            cases.dropped(f"{name}_behind_an_unknown_option_with_action_{bits}", ["8200 4.2", "8200 4.1"], packet, "unknown_option",
                          expected, (leaves, OPTIONS))
    cases.advances("end_behind_an_unknown_option_with_action_00", "8200 4.2", END, header(0x07), DESTINATION_OPTIONS)
    cases.refuses("end_behind_an_unknown_option_after_others", "8200 4.2", END,
                  options_header(ROUTING, b"\x00\x01\x01\x00" + option(0x07) + b"\xd7\x02\x00\x00"), DESTINATION_OPTIONS, "unknown_option",
                  (4, 2, 52), OPTIONS, "The pointer locates the option, not its header.")
    cases.refuses("end_behind_an_option_beyond_its_header", "8200 4.2", END, options_header(ROUTING, option(0x07, 5)),
                  DESTINATION_OPTIONS, "ext_header", None, OPTIONS)
    cases.refuses("end_behind_an_option_without_its_length", "8200 4.2", END, options_header(ROUTING, b"\x01\x03\x00\x00\x00\x07"),
                  DESTINATION_OPTIONS, "ext_header", None, OPTIONS)
    cases.advances("end_behind_sixteen_options", "8200 4.2", END, options_header(ROUTING, bytes(14) + b"\x01\x06" + bytes(6)),
                   DESTINATION_OPTIONS)
    cases.refuses("end_behind_more_options_than_are_checked", ["8200 4.2", "8883 3.5"], END, options_header(ROUTING, bytes(22)),
                  DESTINATION_OPTIONS, "too_many_options", (4, 9, 40 + 2 + 16), OPTIONS, "The pointer locates the first option beyond the limit.")
    packet = outer(END_DT6, DESTINATION_OPTIONS) / options_header(IPV6, option(0x87)) / inner6(64)
    cases.dropped("end_dt6_behind_an_unknown_option_with_action_10", "8200 4.2", packet, "unknown_option",
                  answer(HEADEND, error(4, 2, 42, packet)), (inner6(63), OPTIONS))
    cases.advances("end_behind_a_hop_by_hop_option_of_type_1e", ["8200 4.2", "8200 4.3"], END, header(0x1E), HOP_BY_HOP)
    for kind in (0x47, 0xC7):
        packet = advanced(END, header(kind), HOP_BY_HOP, 1)
        cases.dropped(f"end_behind_a_hop_by_hop_option_of_type_{kind:02x}", ["8200 4.2", "8200 4.3"], packet, "unknown_option",
                      SILENCE if kind == 0x47 else answer(HEADEND, error(4, 2, 42, packet)))
    alert = options_header(IPV6, OPTION_ROUTER_ALERT)
    packet = IPv6(src=HEADEND, dst=END_DT6, hlim=64, nh=HOP_BY_HOP, tc=3) / alert / inner6(64)
    cases.dropped("end_dt6_of_ce_around_not_ect_behind_router_alert", ["6040 4.2", "2711 2"], packet, "ecn", SILENCE,
                  (inner6(63), ECN),
                  about="The option asks routers to examine the packet. It does not change what the SID does.")


def add_order(cases):
    """RFC 8200 4: Next Header 0 in another header than the IPv6 header."""
    padding = b"\x01\x04\x00\x00\x00\x00"
    chain = options_header(HOP_BY_HOP, padding) / options_header(ROUTING, padding)
    for name, sid in (("end", END), ("end_x", END_X)):
        cases.refuses(f"{name}_with_hop_by_hop_options_behind_destination_options", "8200 4", sid, chain, DESTINATION_OPTIONS,
                      "hop_by_hop_order", (4, 1, 40), ORDER, "The pointer locates the Next Header field with the value 0.")
    cases.refuses("end_with_two_hop_by_hop_headers", "8200 4", END, chain, HOP_BY_HOP, "hop_by_hop_order", (4, 1, 40), ORDER)
    used = SRH(next_header=HOP_BY_HOP, segments_left=0, segment_list=[END_DT6])
    packet = outer(END_DT6, DESTINATION_OPTIONS) / options_header(ROUTING, padding) / used / options_header(IPV6, padding) / inner6(64)
    cases.dropped("end_dt6_with_hop_by_hop_options_behind_an_srh", "8200 4", packet, "hop_by_hop_order",
                  answer(HEADEND, error(4, 1, 48, packet)), (inner6(63), ORDER))
    behind = options_header(UDP_PROTOCOL, padding) / udp6(HEADEND, SEGMENT_1)
    packet = outer(END_PSP, ROUTING) / SRH(next_header=HOP_BY_HOP, segments_left=1, segment_list=[SEGMENT_1, END_PSP]) / behind
    cases.dropped("end_psp_with_hop_by_hop_options_behind_the_srh", ["8200 4", "8986 4.16.1"], packet, "hop_by_hop_order",
                  answer(HEADEND, error(4, 1, 40, packet)),
                  (outer(SEGMENT_1, HOP_BY_HOP, hop_limit=63) / behind, "PSP does not look at the next header"),
                  "Without the SRH, it would be a Hop-by-Hop header that no router has processed.")


def add_security(cases):
    """RFC 4302 3.4.2, RFC 4303 3.4.2: no security association."""
    rfc = "4302 3.4.2"
    about = "The node drops and counts the packet. RFC 4302 requires no message."
    cases.refuses("end_behind_an_authentication_header", rfc, END, authentication_header(ROUTING), AUTHENTICATION,
                  "security_association", None, SECURITY, about)
    cases.refuses("end_x_behind_options_and_an_authentication_header", rfc, END_X,
                  options_header(AUTHENTICATION, option(0x07)) / authentication_header(ROUTING), DESTINATION_OPTIONS,
                  "security_association", None, SECURITY)
    packet = outer(END_DT6, AUTHENTICATION) / authentication_header(IPV6) / inner6(64)
    cases.dropped("end_dt6_behind_an_authentication_header", rfc, packet, "security_association", SILENCE, (inner6(63), SECURITY))
    for name, sid in (("end", END), ("end_dt6", END_DT6)):
        cases.dropped(f"{name}_with_an_encrypted_payload", "4303 3.4.2", outer(sid, ESP) / Raw(pattern(48)), "security_association", SILENCE)
    used = SRH(next_header=ESP, segments_left=0, segment_list=[END])
    cases.dropped("end_with_an_encrypted_payload_behind_an_srh", "4303 3.4.2", outer(END) / used / Raw(pattern(48)),
                  "security_association", SILENCE)


def add_own(cases):
    """At SIDs and routes that Linux does not have."""
    group, whole = cases.group, fragment_header(ROUTING, 0, False)

    def forwarded(name, rfc, packet, leaves, about=""):
        group.add(name, rfc, ETH0, received(ETH0, packet), forward(ETH1, sent(ETH1, leaves)), NO_LINUX, about)

    cases.advances("end_x_usd_behind_the_fragment_header_of_a_whole_packet", "8200 4.5", USD, whole, FRAGMENT)
    for name, sid in (("end_x_usd", USD), ("end_dt46", END_DT46)):
        forwarded(f"{name}_of_a_whole_packet_with_a_fragment_header", "8200 4.5",
                  outer(sid, FRAGMENT) / fragment_header(IPV6, 0, False) / inner6(64), inner6(63))
        packet = outer(sid, FRAGMENT) / fragment_header(IPV6, 0, True) / inner6(64)
        cases.dropped(f"{name}_of_a_first_fragment", "8200 4.5", packet, "reassembly", answer(HEADEND, error(3, 1, 0, packet)))
        packet = outer(sid, FRAGMENT) / fragment_header(IPV6, 5, False) / Raw(pattern(40))
        cases.dropped(f"{name}_of_a_later_fragment", "8200 4.5", packet, "reassembly", SILENCE)
        for first, header in (("hop_by_hop", HOP_BY_HOP), ("destination", DESTINATION_OPTIONS)):
            forwarded(f"{name}_behind_a_{first}_option_with_action_00", "8200 4.2",
                      outer(sid, header) / options_header(IPV6, option(0x07)) / inner6(64), inner6(63))
            for bits, kind in (("01", 0x47), ("10", 0x87), ("11", 0xC7)):
                packet = outer(sid, header) / options_header(IPV6, option(kind)) / inner6(64)
                expected = SILENCE if bits == "01" else answer(HEADEND, error(4, 2, 42, packet))
                cases.dropped(f"{name}_behind_a_{first}_option_with_action_{bits}", "8200 4.2", packet, "unknown_option", expected)
    def steered(destination, limit, options, *headers):
        packet = IPv6(src=HOST_0, dst=destination, hlim=limit, nh=HOP_BY_HOP) / options
        for header in headers:
            packet = packet / header
        return packet / udp6(HOST_0, STEERED)

    added = SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=[STEERED])
    forwarded("h_insert_red_behind_a_hop_by_hop_option_with_action_00", ["8200 4.1", "8200 4.2"],
              steered(STEERED, 64, options_header(UDP_PROTOCOL, option(0x07))),
              steered(SEGMENT_1, 63, options_header(ROUTING, option(0x07)), added),
              "The kernel lacks the route, so Sidestep skips the option as its type says.")
    packet = steered(STEERED, 64, options_header(UDP_PROTOCOL, option(0xC7)))
    cases.dropped("h_insert_red_behind_a_hop_by_hop_option_with_action_11", "8200 4.2", packet, "unknown_option",
                  answer(HOST_0, error(4, 2, 42, packet)))


def groups():
    """Returns the vector files of this module."""
    linux = Group("extension_headers", "Extension headers at SIDs that Linux has.", node(routes=[
        f"{END}/128 encap seg6local action End dev eth0",
        f"{END_PSP}/128 encap seg6local action End flavors psp dev eth0",
        f"{END_X}/128 encap seg6local action End.X nh6 fc01::1 dev eth0",
        f"{END_DT6}/128 encap seg6local action End.DT6 table main dev eth0",
    ]))
    cases = Cases(linux)
    add_fragments(cases)
    add_options(cases)
    add_order(cases)
    add_security(cases)
    own = Group("extension_headers_own", "Extension headers at Sidestep-only SIDs and headends.", node(routes=[
        f"{USD}/128 encap seg6local action End.X nh6 fc01::1 flavors usd dev eth0",
        f"{END_DT46}/128 encap seg6local action End.DT46 table main dev eth0",
        f"2001:db8:c1::/48 encap seg6 mode inline.red segs {SEGMENT_1} dev eth1",
    ]))
    add_own(Cases(own, NO_LINUX))
    return [linux, own]
