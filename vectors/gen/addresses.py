"""Addresses that are never forwarded: as the source, within a decapsulated packet, and as the next segment.

Linux checks the source of an IPv6 packet in ip6_forward, after its headends and SIDs. End.DX4 and
End.DX6 look up their next hop instead of the inner destination.
"""

from scapy.layers.inet6 import IPv6

from .case import SAME, SILENCE, Group, differs, drop, forward, kernel, skip
from .h_encaps import headers
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST4_1, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import IPV4, IPV6, ROUTING, SRH, UDP_PROTOCOL, ipv4, udp4, udp6

END, END_X, END_T, END_PSP, CSID = "fc0f::1", "fc0f::a", "fc0f::74", "fc0f::b", "fc0e:0:1::"
END_DT6, END_DX6, END_DX4, END_B6 = "fc0f::d6", "fc0f::d2", "fc0f::d4", "fc0f::b6"
REPLACE, END_AM = "fc0d:0:0:0:1::", "fc0f::a1"
ENCAPS, INSERT, ENCAPS4, BACK = "2001:db8:c1::1", "2001:db8:c2::1", "10.9.0.1", "2001:db8:1::2"
NODE = node(
    routes=[
        f"{END}/128 encap seg6local action End dev eth0",
        f"{END_X}/128 encap seg6local action End.X nh6 fc01::1 dev eth0",
        f"{END_T}/128 encap seg6local action End.T table main dev eth0",
        f"{END_PSP}/128 encap seg6local action End flavors psp dev eth0",
        f"{CSID}/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev eth0",
        f"{END_B6}/128 encap seg6local action End.B6.Encaps srh segs fc0a::9 dev eth0",
        f"{END_DT6}/128 encap seg6local action End.DT6 table main dev eth0",
        f"{END_DX6}/128 encap seg6local action End.DX6 nh6 fc02::1 dev eth0",
        f"{END_DX4}/128 encap seg6local action End.DX4 nh4 203.0.113.1 dev eth0",
        "2001:db8:c1::/48 encap seg6 mode encap segs fc0a::1 dev eth1",
        "2001:db8:c2::/48 encap seg6 mode inline segs fc0a::1 dev eth1",
        "10.9.0.0/24 encap seg6 mode encap segs fc0a::1 dev eth1",
        "2001:db8:1::/48 via fc00::1 dev eth0",
        "default via fc01::1 dev eth1",
        # Errors of the kernel do not leave the node.
        "blackhole fc00:aaaa::/48",
    ],
    tunsrc="fc00::2",
)
OWN = node(
    routes=[
        f"{REPLACE}/80 encap seg6local action End flavors replace-csid lblen 64 nflen 16 dev eth0",
        f"{END_AM}/128 encap seg6local action End.AM nh6 fc02::1 oif eth2 dev eth0",
        "default via fc01::1 dev eth1",
    ],
)
SOURCE, INNER, SEGMENT = ["4291 2.5.2", "4291 2.5.6"], ["4291 2.5", "4291 2.7"], ["4291 2.5", "4291 2.7", "8986 4.1"]
WHY_SOURCE = "seg6 and seg6local routes apply before ip6_forward would check the source"
WHY_BACK = "ip6_forward does not check the source of a packet that leaves by its ingress interface"
WHY_INNER = "nothing checks the inner destination: End.DX4 and End.DX6 look up their next hop, and End.DT6 has a default route"
WHY_ZERO = "ipv4_is_zeronet takes 0.0.0.0 alone; RFC 1812 5.3.7 excludes all of network 0"
WHY_SEGMENT = "seg6local.c makes any segment the destination"
UNUSABLE = (
    ("a_multicast_address", "ff0e::5"), ("a_link_local_multicast_address", "ff02::5"), ("a_link_local_address", "fe80::5"),
    ("the_loopback_address", "::1"), ("the_unspecified_address", "::"),
)


def udp(source, destination, hop_limit=64):
    """A plain packet with a flow label, so that Linux and the RFC agree on the outer flow label."""
    return IPv6(src=source, dst=destination, hlim=hop_limit, nh=UDP_PROTOCOL, fl=0x777) / udp6(source, destination)


def routed(destination, hop_limit, segments_left, segments, source=HEADEND):
    """IPv6, SRH, UDP."""
    return (
        IPv6(src=source, dst=destination, hlim=hop_limit, nh=ROUTING)
        / SRH(next_header=UDP_PROTOCOL, segments_left=segments_left, segment_list=segments) / udp6(source, segments[0])
    )


def refuse(group, name, rfc, packet, reason, linux=SAME, route=None):
    """A drop without a message. `route`: the route whose error counter counts it."""
    counters = {"route": route, "packets": 0, "errors": 1} if route else None
    group.add(name, rfc, ETH0, received(ETH0, packet), drop(reason), linux, counters=counters, answer=SILENCE)


def add_sources(group):
    """Source addresses of the outer packet."""
    for kind, source in (
        ("unspecified", "::"), ("link_local", "fe80::9"), ("loopback", "::1"), ("multicast", "ff0e::9"),
    ):
        # ip6_rcv_core drops loopback and multicast sources.
        arrives = kind in ("unspecified", "link_local")
        name = f"an_{kind}_source" if kind == "unspecified" else f"a_{kind}_source"
        encapsulated = headers([SEGMENT_1], IPV6, hop_limit=63, label=0x777) / udp(source, ENCAPS)
        refuse(group, f"{name}_at_h_encaps", SOURCE, udp(source, ENCAPS), "bad_address",
               differs(forward(ETH1, sent(ETH1, encapsulated)), WHY_SOURCE) if arrives else SAME, "2001:db8:c1::/48")
        refuse(group, f"{name}_at_h_insert", SOURCE, udp(source, INSERT), "bad_address", route="2001:db8:c2::/48")
        path = [SEGMENT_1, END]
        refuse(group, f"{name}_at_end", SOURCE, routed(END, 64, 1, path, source), "bad_address", route=f"{END}/128")
        outer = IPv6(src=source, dst=END_DX6, nh=IPV6) / udp(HOST_0, HOST_1)
        refuse(group, f"{name}_at_end_dx6", SOURCE, outer, "bad_address",
               differs(forward(ETH2, sent(ETH2, udp(HOST_0, HOST_1, 63))), WHY_SOURCE) if arrives else SAME, f"{END_DX6}/128")
        link = kind == "link_local"
        group.add(f"{name}_to_the_node", "4291 2.5", ETH0, received(ETH0, udp(source, "fc01::2")),
                  kernel("link_local" if link else "bad_source"))
        if link:
            group.add(f"{name}_to_a_plain_route", SOURCE, ETH0, received(ETH0, udp(source, HOST_1)), kernel("link_local"),
                      about="The kernel drops the packet and sends Destination Unreachable code 2.")
        else:
            refuse(group, f"{name}_to_a_plain_route", SOURCE, udp(source, HOST_1), "bad_address", route="2001:db8:a::/48")
            refuse(group, f"{name}_back_to_its_link", SOURCE, udp(source, BACK), "bad_address",
                   SAME if kind != "unspecified" else differs(forward(ETH0, sent(ETH0, udp(source, BACK, 63))), WHY_BACK))
    for kind, source in (("loopback", "127.0.0.1"), ("multicast", "224.0.0.5"), ("network_zero", "0.1.2.3")):
        packet = ipv4(src=source, dst=ENCAPS4, ttl=64) / udp4()
        refuse(group, f"an_ipv4_{kind}_source_at_h_encaps", "1812 5.3.7", packet, "bad_address",
               differs(forward(ETH1, sent(ETH1, headers([SEGMENT_1], IPV4, hop_limit=63) / packet)), WHY_ZERO)
               if kind == "network_zero" else SAME, "10.9.0.0/24")


def add_inner(group):
    """Source and destination addresses of a decapsulated packet."""
    def inside(sid, protocol, packet):
        return IPv6(src=HEADEND, dst=sid, nh=protocol) / packet

    for kind, address in UNUSABLE:
        for behavior, sid, egress in (("end_dx6", END_DX6, ETH2), ("end_dt6", END_DT6, ETH1)):
            refuse(group, f"{behavior}_to_{kind}", INNER, inside(sid, IPV6, udp(HOST_0, address)), "bad_address",
                   differs(forward(egress, sent(egress, udp(HOST_0, address, 63))), WHY_INNER), f"{sid}/128")
            refuse(group, f"{behavior}_from_{kind}", INNER, inside(sid, IPV6, udp(address, HOST_1)), "bad_address",
                   SAME, f"{sid}/128")
    for kind, address in (
        ("a_multicast_address", "224.0.0.5"), ("the_limited_broadcast_address", "255.255.255.255"),
        ("the_loopback_address", "127.0.0.1"), ("network_zero", "0.1.2.3"),
    ):
        def inner(source, destination, ttl=64):
            return ipv4(src=source, dst=destination, ttl=ttl) / udp4()

        refuse(group, f"end_dx4_to_{kind}", "1812 5.3.7", inside(END_DX4, IPV4, inner(HOST4_0, address)), "bad_address",
               differs(forward(ETH2, sent(ETH2, inner(HOST4_0, address, 63))), WHY_INNER), f"{END_DX4}/128")
        moved = differs(forward(ETH2, sent(ETH2, inner(address, HOST4_1, 63))), WHY_ZERO)
        refuse(group, f"end_dx4_from_{kind}", "1812 5.3.7", inside(END_DX4, IPV4, inner(address, HOST4_1)), "bad_address",
               moved if kind == "network_zero" else SAME, f"{END_DX4}/128")


def add_segments(group):
    """Unusable addresses as the next segment."""
    for kind, address in UNUSABLE:
        for behavior, sid in (
            ("end", END), ("end_x", END_X), ("end_t", END_T), ("end_psp", END_PSP), ("next_csid", CSID), ("end_b6_encaps", END_B6),
        ):
            path = [SEGMENT_1, address, sid]
            linux = SAME
            if behavior == "end_b6_encaps":
                outer = headers(["fc0a::9"], IPV6, hop_limit=63)
                linux = differs(forward(ETH1, sent(ETH1, outer / routed(address, 64, 1, path))), WHY_SEGMENT)
            elif behavior in ("end_x", "end_t") or address == "::":
                # Table local, which End searches, has routes for the other addresses.
                linux = differs(forward(ETH1, sent(ETH1, routed(address, 63, 1, path))), WHY_SEGMENT)
            refuse(group, f"{behavior}_before_{kind}", SEGMENT, routed(sid, 64, 2, path), "segment_address", linux,
                   f"{sid}/48" if sid == CSID else f"{sid}/128")


def own_group():
    """Unusable next segments at SIDs that Linux lacks."""
    group = Group("addresses_own", "Unusable next segments at Sidestep-only SIDs.", OWN)
    linux = skip("Linux does not have the SID")
    for kind, address in UNUSABLE:
        for behavior, sid in (("replace_csid", f"{REPLACE}7"), ("end_am", END_AM)):
            # RFC 9800 4.2.1 R06 to R10: a container whose C-SID to the left of index 7 is 0 precedes a whole segment.
            path = [SEGMENT_1, address, "::1" if behavior == "replace_csid" else sid]
            refuse(group, f"{behavior}_before_{kind}", SEGMENT, routed(sid, 64, 2, path), "segment_address", linux)
        path = [address, SEGMENT_1, END_AM]
        refuse(group, f"end_am_whose_last_segment_is_{kind}", SEGMENT, routed(END_AM, 64, 2, path), "segment_address", linux)
    return group


def groups():
    """Returns the vector files of this module."""
    group = Group("addresses", "Addresses that are never forwarded, at headends and SIDs of Linux.", NODE)
    add_sources(group)
    add_inner(group)
    add_segments(group)
    return [group, own_group()]
