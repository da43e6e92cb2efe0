"""An SRH at an address of the node that is not a SID (RFC 8754 4.3.2)."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import SILENCE, Group, answer, differs, drop, forward, kernel, skip
from .icmp import error
from .node import ETH0, ETH1, HEADEND, HOST_0, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, IPV6, OPTION_PADN_6, ROUTING, SRH, UDP_PROTOCOL, fragment_header,
    options_header, udp6,
)

RFC = "8754 4.3.2"
LOCAL = "fc00::2"
END, END_DT6, USD, END_AS = "fc0f::1", "fc0f::d6", "fc0f::3", "fc0f::a5"
ROUTES = [
    f"{END}/128 encap seg6local action End dev eth0",
    f"{END_DT6}/128 encap seg6local action End.DT6 table main dev eth0",
]
WHY = "ipv6_srh_rcv advances the SRH at every local address and forwards the packet"
ROUTER_ALERT = bytes([5, 2, 0, 0, 1, 0])


def srh(segments_left=1, next_header=UDP_PROTOCOL, segments=(SEGMENT_1, LOCAL), **fields):
    """An SRH to a host behind eth1."""
    return SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)


def ipv6(destination=LOCAL, next_header=ROUTING, source=HEADEND, hop_limit=64):
    """The IPv6 header."""
    return IPv6(src=source, dst=destination, hlim=hop_limit, nh=next_header)


UDP = udp6(HEADEND, SEGMENT_1)
DAMAGED = skip("Linux forwards damaged bytes: ipv6_srh_rcv does not restore the headers in front of the SRH")
RELAYED = differs(forward(ETH1, sent(ETH1, ipv6(SEGMENT_1, hop_limit=63) / srh(0) / UDP)), WHY)


def add_to_the_node(group):
    """Packets that arrive with a local address as destination."""
    def dropped(name, packet, pointer, linux, about="", quoted=None):
        expected = answer(HEADEND, error(4, 0, pointer, packet if quoted is None else quoted))
        group.add(f"local_{name}", RFC, ETH0, received(ETH0, packet), drop("not_a_sid"), linux, about, answer=expected)

    dropped("srh_with_a_segment_left", ipv6() / srh() / UDP, 43, RELAYED)
    dropped("srh_at_the_address_of_another_port", ipv6("fc01::2") / srh() / UDP, 43, RELAYED)
    relayed = ipv6(SEGMENT_1, DESTINATION_OPTIONS, hop_limit=63) / options_header(ROUTING, OPTION_PADN_6) / srh(0) / UDP
    dropped(
        "srh_behind_destination_options", ipv6(next_header=DESTINATION_OPTIONS) / options_header(ROUTING, OPTION_PADN_6) / srh() / UDP,
        51, DAMAGED,
    )
    relayed = ipv6(SEGMENT_1, hop_limit=63) / srh(0, ROUTING, [LOCAL]) / srh(0) / UDP
    dropped(
        "second_srh_with_a_segment_left", ipv6() / srh(0, ROUTING, [LOCAL]) / srh() / UDP, 40 + 24 + 3,
        DAMAGED, "The first SRH has Segments Left 0.",
    )
    alert = options_header(ROUTING, ROUTER_ALERT)
    dropped(
        "srh_behind_a_router_alert", ipv6(next_header=HOP_BY_HOP) / alert / srh() / UDP, 51,
        DAMAGED,
        "Linux processes this option, and then the SRH.",
    )
    dropped(
        "srh_with_an_impossible_last_entry", ipv6() / srh(last_entry=9) / UDP, 43,
        differs(forward(ETH1, sent(ETH1, ipv6(SEGMENT_1, hop_limit=63) / srh(0, last_entry=9) / UDP)), WHY),
        "Linux does not check Last Entry.",
    )
    first = fragment_header(ROUTING, 0, True)
    dropped(
        "srh_in_a_first_fragment", ipv6(next_header=FRAGMENT) / first / srh() / UDP, 40 + 8 + 3,
        skip("the rest of the packet does not follow"), "Linux would reassemble the packet and then advance the SRH.",
    )
    packet = ipv6(next_header=FRAGMENT) / fragment_header(ROUTING, 0, False) / srh() / UDP
    dropped("srh_in_an_atomic_fragment", packet, 40 + 8 + 3, skip("the kernel forwards what it has reassembled"))
    many = ipv6(next_header=DESTINATION_OPTIONS)
    for _ in range(8):
        many = many / options_header(DESTINATION_OPTIONS, OPTION_PADN_6)
    group.add(
        "local_packet_with_nine_extension_headers", RFC, ETH0,
        received(ETH0, many / options_header(ROUTING, OPTION_PADN_6) / srh() / UDP), drop("ext_header"),
        skip("Linux follows any number of extension headers"), "An SRH may follow beyond the headers that the node reads.", answer=SILENCE,
    )
    group.add(
        "local_link_local_address_with_a_segment_left", RFC, ETH0,
        received(ETH0, ipv6("fe80::ff:fe00:1") / srh() / UDP), drop("not_a_sid"),
        skip("the kernel's link-local address is another one"), answer=answer(HEADEND, error(4, 0, 43, ipv6("fe80::ff:fe00:1") / srh() / UDP)),
    )


def add_kept(group):
    """Packets that the kernel receives unchanged."""
    def kept(name, packet, about=""):
        group.add(f"local_{name}", RFC, ETH0, received(ETH0, packet), kernel("local"), about=about, answer=SILENCE)

    kept("udp", ipv6(next_header=UDP_PROTOCOL) / UDP)
    kept("srh_without_a_segment_left", ipv6() / srh(0) / UDP)
    kept("destination_options", ipv6(next_header=DESTINATION_OPTIONS) / options_header(UDP_PROTOCOL, OPTION_PADN_6) / UDP)
    kept("later_fragment", ipv6(next_header=FRAGMENT) / fragment_header(ROUTING, 3, False) / Raw(bytes(UDP)),
         "The packet is never reassembled, because its first fragment does not arrive.")
    kept("routing_header_of_type_0", ipv6() / Raw(bytes([UDP_PROTOCOL, 2, 0, 1, 0, 0, 0, 0]) + bytes(16)) / UDP,
         "Linux answers the packet.")


def add_behind_sids(group):
    """Packets whose local address follows a SID."""
    def add(name, packet, pointer, quoted=None, to=HEADEND, about=""):
        expected = answer(to, error(4, 0, pointer, quoted or packet))
        linux = skip("Linux advances the SRH")
        group.add(f"local_{name}", RFC, ETH0, received(ETH0, packet), drop("not_a_sid"), linux, about, answer=expected)

    inner = ipv6(source=HOST_0) / srh() / UDP
    add("srh_behind_end_dt6", ipv6(END_DT6, IPV6) / inner, 43, inner, HOST_0, "The message quotes the inner packet.")
    add("address_as_the_segment_after_end", ipv6(END) / srh(2, segments=[SEGMENT_1, LOCAL, END]) / UDP, 43)
    group.add(
        "local_address_as_the_last_segment", RFC, ETH0, received(ETH0, ipv6(END) / srh(1, segments=[LOCAL, END]) / UDP),
        kernel("local"), about="Segments Left is 0 at the local address.", answer=SILENCE,
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("local_srh", "An SRH at a local address that is not a SID.", node(routes=ROUTES))
    add_to_the_node(group)
    add_kept(group)
    add_behind_sids(group)
    own = Group("local_srh_own", "An SRH at a local address behind a Sidestep-only SID.", node(
        routes=[f"{USD}/128 encap seg6local action End.X nh6 fc01::1 flavors usd dev eth0",
                "fc0f::b6/128 encap seg6local action End.T table main flavors usd dev eth0",
                f"{END_AS}/128 encap seg6local action End.AS oif eth2 nh6 fc02::1 segs {SEGMENT_1} src {LOCAL} dev eth2"],
    ))
    inner = ipv6(source=HOST_0) / srh() / UDP
    own.add(
        "local_srh_behind_a_sidestep_only_sid", RFC, ETH0, received(ETH0, ipv6("fc0f::b6", IPV6) / inner), drop("not_a_sid"),
        skip("Linux does not have the SID"), answer=answer(HOST_0, error(4, 0, 43, inner)),
    )
    packet = ipv6(END_AS) / srh(2, segments=[SEGMENT_1, LOCAL, END_AS]) / UDP
    own.add(
        "local_address_as_the_segment_after_end_as", RFC, ETH0, received(ETH0, packet), drop("not_a_sid"),
        skip("Linux does not have the SID"), "The payload is not for the service, so the node looks up the next segment.",
        answer=answer(HEADEND, error(4, 0, 43, packet)),
    )
    linux = Group("local_srh_linux", "`local_srh: linux` restores what Linux does.", node(routes=ROUTES, local_srh="linux"))
    linux.add(
        "local_srh_left_to_linux", RFC, ETH0, received(ETH0, ipv6() / srh() / UDP), kernel("local"),
        answer=SILENCE,
    )
    edge = Group(
        "local_srh_domain", "`local_srh: linux` at the edge of an SR domain: eth0 is outside, eth1 is inside.",
        node(routes=ROUTES, local_srh="linux", domain=["sid-block fc0f::/16", "inside eth1", "inside eth2"]),
    )
    packet = ipv6(source=HOST_0) / srh() / UDP
    filtered = skip("Linux has such a filter only in its firewall")
    edge.add("local_srh_from_outside_the_domain", "8754 5.1", ETH0, received(ETH0, packet), drop("not_a_sid"), filtered,
             "The setting applies to ports inside the domain.", answer=answer(HOST_0, error(4, 0, 43, packet)))
    edge.add("local_srh_from_inside_the_domain", "8754 5.1", ETH1, received(ETH1, packet), kernel("local"), answer=SILENCE)
    return [group, own, linux, edge]
