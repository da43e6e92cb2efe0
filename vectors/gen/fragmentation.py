"""Packets that exceed the egress MTU and leave in fragments (RFC 2473 7, RFC 8200 4.5, RFC 791 3.2)."""

from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from .case import SILENCE, Group, answer, differs, drop, kernel, skip
from .flow_label import label4, label6, ports
from .h_encaps import headers
from .icmp import error, error4
from .node import ETH0, ETH1, HEADEND, HOST4_0, HOST4_1, HOST_0, node, received, sent
from .wire import FRAGMENT, IPV4, IPV6, UDP_PROTOCOL, fragment_header, ipv4, pattern, udp4, udp6

MTU = 1400
TUNSRC = "fc00::2"
PORTS = ports(4096, 53)
SILENT = "ip6_forward sends Packet Too Big to the outer source, which is this node, and the inner source gets no message"
# Destination, mode, segments in the order of travel.
PATHS = {
    "h_encaps": ("10.201.0.1", "encap", ["fc0a::1"]),
    "h_encaps_of_two_segments": ("10.202.0.1", "encap", ["fc0a::1", "fc0b::2"]),
    "h_encaps_red": ("10.203.0.1", "encap.red", ["fc0a::1", "fc0b::2"]),
    "h_encaps_red_without_an_srh": ("10.204.0.1", "encap.red", ["fc0a::1"]),
}
TARGET6 = "2001:db8:c01::1"
USD_X, USD_T = "fc0f::3", "fc0f::7"


def routes():
    """The headend's routes."""
    lines = [
        f"{destination.rsplit('.', 1)[0]}.0/24 encap seg6 mode {mode} segs {','.join(path)} dev eth1"
        for destination, mode, path in PATHS.values()
    ]
    return lines + ["2001:db8:c01::/48 encap seg6 mode encap segs fc0a::1 dev eth1"]


def inner4(destination, length, ttl=64, **fields):
    """An IPv4 packet of `length` octets."""
    return ipv4(src=HOST4_0, dst=destination, ttl=ttl, **fields) / udp4(pattern(length - 28))


def cut(payload, room):
    """RFC 8200 4.5: parts, their offsets in units of 8 octets, and the M flag."""
    payload, step = bytes(payload), room // 8 * 8
    starts = range(0, len(payload), step)
    return [(payload[at:at + step], at // 8, at + step < len(payload)) for at in starts]


def tunnel_fragments(path, protocol, inner, mtu=MTU, reduced=False, **fields):
    """The fragments of the tunnel packet: the per-fragment headers include the SRH."""
    fields = {"hop_limit": 64, **fields}
    room = mtu - len(headers(path, FRAGMENT, reduced, **fields)) - 8
    return [
        (ETH1, sent(ETH1, headers(path, FRAGMENT, reduced, **fields) / fragment_header(protocol, offset, more) / Raw(part)))
        for part, offset, more in cut(inner, room)
    ]


def add_headends(group):
    """IPv4 without DF at a headend."""
    linux = differs("drop", SILENT)

    def add(name, kind, length, about="", **fields):
        destination, mode, path = PATHS[kind]
        first_four = bytes(4) if fields.get("flags") == "MF" else PORTS
        label = label4(HOST4_0, destination, UDP_PROTOCOL, first_four)
        out = tunnel_fragments(
            path, IPV4, inner4(destination, length, 63, **fields), reduced=mode == "encap.red", label=label,
            traffic_class=fields.get("tos", 0),
        )
        group.add(
            f"fragmentation_{name}", "2473 7.2", ETH0, received(ETH0, inner4(destination, length, **fields)), kernel("fragmented"),
            linux if length <= 1500 else skip("the frame exceeds the MTU of the link"), about, answer=SILENCE, fragments=out,
        )

    for kind, (_, mode, path) in PATHS.items():
        overhead = len(headers(path, IPV4, mode == "encap.red", hop_limit=64))
        add(f"{kind}_of_one_octet_more_than_the_mtu", kind, MTU - overhead + 1)
        add(f"{kind}_of_1490_octets", kind, 1490)
    add("h_encaps_in_three_fragments", "h_encaps", 2900)
    add("h_encaps_of_a_first_fragment", "h_encaps", 1484, "The inner packet keeps its own flag and Identification.", flags="MF", id=77)
    add("h_encaps_with_dscp_and_ecn", "h_encaps", 1490, "Every fragment has the traffic class of the packet.", tos=0xB9)
    destination, _, _ = PATHS["h_encaps"]
    group.add(
        "fragmentation_never_with_dont_fragment", "2473 7.2", ETH0, received(ETH0, inner4(destination, 1490, flags="DF")),
        drop("too_big"), skip("Linux reports its own MTU to this node"),
        answer=answer(HOST4_0, error4(3, 4, MTU - len(headers(PATHS["h_encaps"][2], IPV4, hop_limit=64)), inner4(destination, 1490, flags="DF"))),
    )


def add_ipv6():
    """RFC 2473 7.1: IPv6 packets of up to 1280 octets are encapsulated and fragmented."""
    mtu = 1300
    group = Group("fragmentation_ipv6", f"A headend whose egress MTU is {mtu}.", node(mtu={"eth1": mtu}, routes=routes(), tunsrc=TUNSRC))

    def inner(length, hop_limit):
        return IPv6(src=HOST_0, dst=TARGET6, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(HOST_0, TARGET6, pattern(length - 48))

    label = label6(HOST_0, TARGET6, UDP_PROTOCOL, PORTS)
    for length in (1237, 1280):
        group.add(
            f"fragmentation_ipv6_of_{length}_octets", "2473 7.1", ETH0, received(ETH0, inner(length, 64)), kernel("fragmented"),
            skip("Linux drops it, and reports an MTU below 1280 to its source"), answer=SILENCE,
            fragments=tunnel_fragments(["fc0a::1"], IPV6, inner(length, 63), mtu, label=label),
        )
    group.add(
        "fragmentation_never_of_ipv6_of_1281_octets", "2473 7.1", ETH0, received(ETH0, inner(1281, 64)), drop("too_big"),
        skip("Linux reports an MTU below 1280 to the source"), "The source can send smaller packets.",
        answer=answer(HOST_0, error(2, 0, 1280, inner(1281, 64))),
    )
    return group


def add_own(group):
    """Behind a Sidestep-only SID."""
    def outer(sid):
        return IPv6(src=HEADEND, dst=sid, hlim=64, nh=IPV4)

    destination, _, path = PATHS["h_encaps"]
    label = label4(HOST4_0, destination, UDP_PROTOCOL, PORTS)
    packet = inner4(destination, 1430)
    group.add(
        "fragmentation_decapsulated_and_encapsulated_again", "2473 7.2", ETH0, received(ETH0, outer(USD_T) / packet),
        kernel("fragmented"), skip("Linux does not have the SID"), answer=SILENCE,
        fragments=tunnel_fragments(path, IPV4, inner4(destination, 1430, 63), label=label),
    )

    destination = "10.205.0.1"
    label = label4(HOST4_0, destination, UDP_PROTOCOL, PORTS)
    group.add(
        "fragmentation_by_an_sr_policy", "2473 7.2", ETH0, received(ETH0, inner4(destination, 1490)), kernel("fragmented"),
        skip("Linux has no SR policies"), answer=SILENCE,
        fragments=tunnel_fragments(["fc0a::3"], IPV4, inner4(destination, 1490, 63), label=label),
    )

    def arriving4(length, **fields):
        header = ipv4(src=HOST4_0, dst=HOST4_1, ttl=64, proto=UDP_PROTOCOL, **fields)
        return header / Raw(bytes(inner4(HOST4_1, length))[20:])

    def fragments4(length, **fields):
        flags = {True: "MF", False: 0}
        payload = bytes(inner4(HOST4_1, length))[20:]
        offset = fields.pop("frag", 0)
        return [
            (ETH1, sent(ETH1, ipv4(src=HOST4_0, dst=HOST4_1, ttl=63, proto=UDP_PROTOCOL, frag=offset + at, flags=flags[more], **fields) / Raw(part)))
            for part, at, more in cut(payload, MTU - 20)
        ]

    for name, fields in (("decapsulated_ipv4", {"id": 7}), ("decapsulated_last_fragment_of_ipv4", {"id": 7, "frag": 100})):
        group.add(
            f"fragmentation_of_{name}", "1812 5.2.6", ETH0, received(ETH0, outer(USD_X) / arriving4(1430, **fields)),
            kernel("fragmented"), skip("Linux does not have the SID"), answer=SILENCE, fragments=fragments4(1430, **fields),
        )


def groups():
    """Returns the vector files of this module."""
    group = Group("fragmentation", f"Headends whose egress MTU is {MTU}.", node(mtu={"eth1": MTU}, routes=routes(), tunsrc=TUNSRC))
    add_headends(group)
    own = Group("fragmentation_own", f"Sidestep-only SIDs and a policy; egress MTU {MTU}.", node(mtu={"eth1": MTU}, tunsrc=TUNSRC, policies=[
        "low color 104 endpoint fc0a::ff segs fc0a::3",
    ], routes=[
        *routes(),
        "10.205.0.0/24 policy low",
        f"{USD_X}/128 encap seg6local action End.X nh6 fc01::1 flavors usd dev eth0",
        f"{USD_T}/128 encap seg6local action End.T table main flavors usd dev eth0",
    ]))
    add_own(own)
    icmp = Group(
        "fragmentation_icmp", f"`ipv4_too_big: icmp`; egress MTU {MTU}.",
        node(mtu={"eth1": MTU}, routes=routes(), tunsrc=TUNSRC, ipv4_too_big="icmp"),
    )
    packet = inner4("10.201.0.1", 1490)
    icmp.add(
        "fragmentation_replaced_by_an_icmp_error", "2473 7.2", ETH0, received(ETH0, packet), drop("too_big"),
        answer=answer(HOST4_0, error4(3, 4, MTU - 64, packet)),
    )
    return [group, add_ipv6(), own, icmp]
