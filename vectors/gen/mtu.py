"""Packets of exactly the egress MTU, and of one octet more."""

from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from .case import SILENCE, Group, answer, differs, drop, forward, kernel, skip
from .h_encaps import WHY6, headers
from .icmp import error
from .node import ETH0, ETH1, HEADEND, HOST4_0, HOST4_1, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import ETHERNET, IPV6, ROUTING, SRH, UDP_PROTOCOL, ipv4, pattern, udp4, udp6

MTU = 1400
NOT_LINUX = "Linux reports its own MTU, to this node or to the source"
NODE = node(
    mtu={"eth1": MTU},
    routes=[
        "fc0f::1/128 encap seg6local action End dev eth0",
        "fc0f::b/128 encap seg6local action End flavors psp dev eth0",
        "fc0f::a/128 encap seg6local action End.X nh6 fc01::1 dev eth0",
        "fc0f::d6/128 encap seg6local action End.DT6 table main dev eth0",
        "fc0f::d4/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0",
        "fc0f::d2/128 encap seg6local action End.DX2 oif eth1 dev eth0",
        "2001:db8:c01::/48 encap seg6 mode encap segs fc0a::1 dev eth1",
        "2001:db8:c02::/48 encap seg6 mode inline segs fc0a::1 dev eth1",
        "2001:db8:c03::/48 encap seg6 mode l2encap segs fc0a::1 dev eth1",
        "2001:db8:c04::/48 encap seg6 mode encap.red segs fc0a::1 dev eth1",
    ],
    tunsrc="fc00::2",
)


def inner6(length, hop_limit, destination=HOST_1):
    """An IPv6 packet of `length` octets."""
    header = IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=UDP_PROTOCOL, fl=3)
    return header / udp6(HOST_0, destination, pattern(length - 48))


def inner4(length, ttl, **fields):
    """An IPv4 packet of `length` octets."""
    return ipv4(src=HOST4_0, dst=HOST4_1, ttl=ttl, **fields) / udp4(pattern(length - 28))


def routed(sid, destination, hop_limit, segments_left, length):
    """A packet of `length` octets with an SRH of two segments."""
    return (
        IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING)
        / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=[SEGMENT_1, sid])
        / udp6(HEADEND, SEGMENT_1, pattern(length - 88))
    )


def arrived(sid, protocol, inner):
    """An encapsulated packet whose path ends at `sid`."""
    return IPv6(src=HEADEND, dst=sid, hlim=64, nh=ROUTING) / SRH(next_header=protocol, segment_list=[sid]) / inner


def add_pair(group, name, rfc, build, linux_build=None, why=WHY6, told=None):
    """`build(extra)`: packet in and packet out, `extra` octets above the MTU. `told`: the MTU that a
    headend reports, 0 for none; by default the kernel gets the packet."""
    packet, out = build(0)
    linux = differs(forward(ETH1, sent(ETH1, linux_build(0))), why) if linux_build else None
    group.add(f"{name}_of_exactly_the_mtu", rfc, ETH0, received(ETH0, packet), forward(ETH1, sent(ETH1, out)), linux)
    packet, _ = build(1)
    name = f"{name}_of_one_octet_more_than_the_mtu"
    if told is None:
        group.add(name, rfc, ETH0, received(ETH0, packet), kernel("packet_too_big"))
    else:
        group.add(name, [rfc, "2473 7.1"], ETH0, received(ETH0, packet), drop("too_big"), skip(NOT_LINUX),
                  answer=answer(HOST_0, error(2, 0, told, packet)) if told else SILENCE)


def groups():
    """Returns the vector files of this module."""
    group = Group("mtu", f"Egress MTU {MTU}.", NODE)
    add_pair(group, "ipv6", "8200 5", lambda extra: (inner6(MTU + extra, 64), inner6(MTU + extra, 63)))
    add_pair(group, "ipv4", "1812 5.2.6", lambda extra: (inner4(MTU + extra, 64), inner4(MTU + extra, 63)))
    add_pair(group, "ipv4_with_dont_fragment", "1812 5.2.6",
             lambda extra: (inner4(MTU + extra, 64, flags="DF"), inner4(MTU + extra, 63, flags="DF")))
    for name, sid in (("end", "fc0f::1"), ("end_x", "fc0f::a")):
        add_pair(group, name, "8200 5", lambda extra, sid=sid: (
            routed(sid, sid, 64, 1, MTU + extra), routed(sid, SEGMENT_1, 63, 0, MTU + extra)))
    add_pair(group, "end_psp", "8986 4.16.1", lambda extra: (
        routed("fc0f::b", "fc0f::b", 64, 1, MTU + 40 + extra),
        IPv6(src=HEADEND, dst=SEGMENT_1, hlim=63, nh=UDP_PROTOCOL) / udp6(HEADEND, SEGMENT_1, pattern(MTU - 48 + extra)),
    ))
    add_pair(group, "end_dt6", "8986 4.6", lambda extra: (
        arrived("fc0f::d6", IPV6, inner6(MTU + extra, 64)), inner6(MTU + extra, 63)))
    add_pair(group, "end_dx4", "8986 4.5", lambda extra: (
        arrived("fc0f::d4", 4, inner4(MTU + extra, 64)), inner4(MTU + extra, 63)))

    for name, rfc, number, protocol, overhead, reduced in (
        ("h_encaps", "8986 5.1", 1, IPV6, 64, False), ("h_encaps_red", "8986 5.2", 4, IPV6, 40, True),
    ):
        destination = f"2001:db8:c0{number}::1"
        add_pair(
            group, name, rfc,
            lambda extra, destination=destination, overhead=overhead, reduced=reduced: (
                inner6(MTU - overhead + extra, 64, destination),
                headers(["fc0a::1"], IPV6, reduced, hop_limit=64, label=3) / inner6(MTU - overhead + extra, 63, destination),
            ),
            lambda extra, destination=destination, overhead=overhead, reduced=reduced:
                headers(["fc0a::1"], IPV6, reduced, hop_limit=63, label=3) / inner6(MTU - overhead + extra, 64, destination),
            told=MTU - overhead,
        )
    destination = "2001:db8:c02::1"
    add_pair(group, "h_insert", "8754 4.1", lambda extra: (
        inner6(MTU - 40 + extra, 64, destination),
        IPv6(src=HOST_0, dst="fc0a::1", hlim=63, nh=ROUTING, fl=3)
        / SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=[destination, "fc0a::1"])
        / udp6(HOST_0, destination, pattern(MTU - 40 - 48 + extra)),
    ), told=MTU - 40)
    frame_destination = "2001:db8:c03::1"
    add_pair(
        group, "h_encaps_l2", "8986 5.3",
        lambda extra: (
            inner6(MTU - 78 + extra, 65, frame_destination),
            headers(["fc0a::1"], ETHERNET, hop_limit=64, label=3) / received(ETH0, inner6(MTU - 78 + extra, 65, frame_destination)),
        ),
        told=0,
    )

    def customer(length):
        return Ether(src="02:00:00:00:aa:01", dst="02:00:00:00:aa:02", type=0x88B5) / Raw(pattern(length))

    group.add(
        "end_dx2_of_exactly_the_mtu", "8986 4.9", ETH0,
        received(ETH0, arrived("fc0f::d2", ETHERNET, customer(MTU))), forward(ETH1, customer(MTU)),
    )
    group.add(
        "end_dx2_of_one_octet_more_than_the_mtu", "8986 4.9", ETH0,
        received(ETH0, arrived("fc0f::d2", ETHERNET, customer(MTU + 1))), kernel("packet_too_big"),
        linux=skip("punted; the kernel drops it without a message"),
    )

    def tagged(length):
        frame = bytes(customer(length - 4))
        return Raw(frame[:12] + bytes.fromhex("8100002a") + frame[12:])

    group.add(
        "end_dx2_of_exactly_the_mtu_tag_included", "8986 4.9", ETH0,
        received(ETH0, arrived("fc0f::d2", ETHERNET, tagged(MTU))), forward(ETH1, tagged(MTU)),
        about="The tag counts towards the size, as in input_action_end_dx2.",
    )
    return [group]
