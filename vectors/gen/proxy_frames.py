"""SR proxies for Ethernet frames (draft-ietf-spring-srv6-service-programming 6.1.1.1, 6.2.1), and services by Ethernet address.

The service of a dynamic proxy is at eth2 in both directions, that of a static proxy at eth1.
"""

from scapy.layers.l2 import ARP, LLC, Dot1Q, Dot3, Ether
from scapy.packet import Raw

from .case import Group, drop, forward, kernel, skip
from .decap import inner4, inner6
from .end_ad import counted, outer, restored
from .flow_label import label4, label_of_frame, ports
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, ETH2, HOST4_0, HOST4_1, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import ETHERNET, IPV4, UDP_PROTOCOL, pattern, udp6

# draft-ietf-spring-srv6-service-programming-00
STATIC, DYNAMIC, LOCAL = "service-programming 6.1.1.1", "service-programming 6.2.1", "8754 4.3.1"
NO_LINUX = skip("Linux has no SR proxies")
DYNAMIC_SID, STATIC_SID, SOURCE = "fc0f::2d", "fc0f::2a", "fc00:beef::1"
PATH = [SEGMENT_2, "fc0b::9"]
FRAMES = node(
    seg6_disabled=(ETH1, ETH2),
    routes=[
        f"{DYNAMIC_SID}/128 encap seg6local action End.AD oif eth2 dev eth2",
        f"{STATIC_SID}/128 encap seg6local action End.AS oif eth1 inner l2 segs {','.join(PATH)} src {SOURCE} dev eth1",
    ],
)
LAST = "2001:db8:b::9"
CUSTOMER = {"src": "02:00:00:00:aa:01", "dst": "02:00:00:00:aa:02"}
LABEL4 = label4(HOST4_0, HOST4_1, UDP_PROTOCOL, ports(4096, 53))
OF_IPV6 = Ether(type=0x86DD, **CUSTOMER) / Raw(bytes(inner6(1)))
OF_IPV4 = Ether(type=0x0800, **CUSTOMER) / Raw(bytes(inner4(1)))
ARP_REQUEST = Ether(type=0x0806, src=CUSTOMER["src"], dst="ff:ff:ff:ff:ff:ff") / ARP(
    op=1, hwsrc=CUSTOMER["src"], psrc="10.9.0.1", hwdst="00:00:00:00:00:00", pdst="10.9.0.2",
)
TAGGED = Ether(type=0x8100, **CUSTOMER) / Dot1Q(vlan=42, prio=3, type=0x0800) / Raw(bytes(inner4(9)))
LLC_FRAME = Dot3(**CUSTOMER) / LLC(dsap=0x42, ssap=0x42, ctrl=3) / Raw(pattern(35))
# Frames with the traffic class and flow label of their outer header.
KINDS = {
    "ipv6": (OF_IPV6, 0x28, 0x0BEEF),
    "ipv4": (OF_IPV4, 0x28, LABEL4),
    "an_arp_request": (ARP_REQUEST, 0, label_of_frame(ARP_REQUEST)),
    "a_vlan_frame": (TAGGED, 0, label_of_frame(TAGGED)),
    "an_llc_frame": (LLC_FRAME, 0, label_of_frame(LLC_FRAME)),
    "a_frame_that_says_ipv6_and_is_not": (
        Ether(type=0x86DD, **CUSTOMER) / Raw(pattern(50)), 0, label_of_frame(Ether(type=0x86DD, **CUSTOMER)),
    ),
}


def carrying(sid, segments_left, segments, frame, **fields):
    """SRv6 around a frame."""
    return outer(sid, segments_left, segments, next_header=ETHERNET, **fields) / Raw(bytes(frame))


def add_nothing_learned(group):
    """Frames from the service, before any case from which the proxy learns."""
    group.add(
        "end_ad_back_of_a_frame_before_anything_was_learned", [f"{DYNAMIC} inbound S02"], ETH2, OF_IPV6, drop("not_learned"),
        NO_LINUX,
    )


def add_way_in(group):
    """Packets to the service."""
    for kind, (frame, _, _) in KINDS.items():
        group.add(
            f"end_ad_of_{kind}_in_a_frame" if kind.startswith("ipv") else f"end_ad_of_{kind}", [f"{DYNAMIC} S12-S17"], ETH0,
            received(ETH0, carrying(DYNAMIC_SID, 2, [LAST, SEGMENT_1, DYNAMIC_SID], frame)), forward(ETH2, frame), NO_LINUX,
            counters=counted(DYNAMIC_SID), about="The service receives the frame unchanged, with its addresses and its hop limit.",
        )
    group.add(
        "end_as_of_a_frame", [f"{STATIC} S12-S19"], ETH0,
        received(ETH0, carrying(STATIC_SID, 1, [LAST, STATIC_SID], OF_IPV6)), forward(ETH1, OF_IPV6), NO_LINUX,
        counters=counted(STATIC_SID),
    )
    group.add(
        "end_as_of_a_frame_as_the_last_segment", [f"{STATIC} upper-layer S04-S05"], ETH0,
        received(ETH0, carrying(STATIC_SID, 0, [STATIC_SID], OF_IPV6)), forward(ETH1, OF_IPV6), NO_LINUX,
    )
    passed = [LAST, SEGMENT_1, STATIC_SID]
    group.add(
        "end_as_of_frames_lets_ipv6_pass_the_service_by", [f"{STATIC} S15-S17"], ETH0,
        received(ETH0, outer(STATIC_SID, 2, passed) / inner6(64)),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 1, passed, hop_limit=63) / inner6(64))), NO_LINUX,
    )
    group.add(
        "end_as_of_frames_takes_no_ipv6_as_the_last_segment", [f"{STATIC} upper-layer S01-S03", "8986 4.1.1"], ETH0,
        received(ETH0, outer(STATIC_SID, 0, [STATIC_SID]) / inner6(64)), drop("upper_layer"), NO_LINUX,
        counters=counted(STATIC_SID, error=True),
    )


def add_way_back(group):
    """Packets from the service."""
    segments = [LAST, SEGMENT_1, DYNAMIC_SID]
    taught = [(ETH0, received(ETH0, carrying(DYNAMIC_SID, 2, segments, OF_IPV6)))]
    for kind, (frame, traffic_class, label) in KINDS.items():
        of_kind = f"{kind}_in_a_frame" if kind.startswith("ipv") else kind
        around = restored(SEGMENT_1, 1, segments, label=label, next_header=ETHERNET)
        around.tc = traffic_class
        group.add(
            f"end_ad_back_of_{of_kind}", [f"{DYNAMIC} inbound S01-S05"], ETH2, frame,
            forward(ETH1, sent(ETH1, around / Raw(bytes(frame)))), NO_LINUX, earlier=taught,
        )
        group.add(
            f"end_as_back_of_{of_kind}", [f"{STATIC} inbound S01-S06"], ETH1, frame,
            forward(ETH2, sent(
                ETH2,
                headers(PATH, ETHERNET, hop_limit=64, traffic_class=traffic_class, label=label, source=SOURCE) / Raw(bytes(frame)),
            )), NO_LINUX,
        )
    group.add(
        "end_as_back_of_a_frame_for_the_interface", [f"{STATIC} inbound"], ETH1, received(ETH1, inner6(62)),
        forward(ETH1, sent(ETH1, inner6(61))), NO_LINUX, about="The frame is for this node, which routes it like any packet.",
    )
    group.add(
        "end_as_back_of_lldp", [f"{STATIC} inbound"], ETH1,
        Ether(type=0x88CC, src=CUSTOMER["src"], dst="01:80:c2:00:00:0e") / Raw(pattern(60)), kernel("multicast"), NO_LINUX,
    )
    two = [LAST, SEGMENT_1, STATIC_SID, DYNAMIC_SID]
    for kind in ("ipv6", "an_arp_request"):
        frame = KINDS[kind][0]
        group.add(
            f"end_ad_back_of_{kind}_in_a_frame_to_the_next_service" if kind == "ipv6" else f"end_ad_back_of_{kind}_to_the_next_service",
            [f"{DYNAMIC} inbound S01-S05", LOCAL], ETH2, frame, forward(ETH1, frame), NO_LINUX,
            earlier=[(ETH0, received(ETH0, carrying(DYNAMIC_SID, 3, two, frame)))], counters=counted(STATIC_SID),
        )


def add_by_ethernet_address(group):
    """`nheth`: the service needs no neighbor discovery."""
    chain = [LAST, SEGMENT_1, "fc0f::e6"]
    group.add(
        "end_ad_by_ethernet_address", [f"{DYNAMIC} S12-S17"], ETH0, received(ETH0, outer("fc0f::e6", 2, chain) / inner6(64)),
        forward(ETH2, sent(ETH2, inner6(63), to="02:00:00:00:00:77")), NO_LINUX,
    )
    group.add(
        "end_ad_back_of_a_service_by_ethernet_address", [f"{DYNAMIC} inbound S01-S05"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, chain) / inner6(61))), NO_LINUX,
        earlier=[(ETH0, received(ETH0, outer("fc0f::e6", 2, chain) / inner6(64)))],
    )
    group.add(
        "end_as_by_the_broadcast_address", ["service-programming 6.1.1.2 S12-S19"], ETH0,
        received(ETH0, outer("fc0f::e4", 1, [SEGMENT_1, "fc0f::e4"], next_header=IPV4) / inner4(64)),
        forward(ETH2, sent(ETH2, inner4(63), to="ff:ff:ff:ff:ff:ff")), NO_LINUX,
        about="The draft permits any address for a service that does not check it (6.1).",
    )
    group.add(
        "end_as_back_of_a_service_by_ethernet_address", ["service-programming 6.1.1.2 inbound S01-S05"], ETH2,
        received(ETH2, inner4(62)),
        forward(ETH1, sent(
            ETH1, headers([SEGMENT_1], IPV4, hop_limit=64, traffic_class=0x28, label=LABEL4, source=TUNSRC) / inner4(61),
        )), NO_LINUX,
    )
    masqueraded = [LAST, SEGMENT_1, "fc0f::ea"]
    group.add(
        "end_am_by_ethernet_address", ["service-programming 6.4.1 S15"], ETH0,
        received(ETH0, outer("fc0f::ea", 2, masqueraded, next_header=UDP_PROTOCOL) / udp6("fc00:aaaa::1", LAST)),
        forward(ETH1, sent(
            ETH1, outer(LAST, 1, masqueraded, hop_limit=63, next_header=UDP_PROTOCOL) / udp6("fc00:aaaa::1", LAST),
            to="02:00:00:00:00:78",
        )), NO_LINUX,
    )


def groups():
    """Returns the vector files of this module."""
    frames = Group("proxy_frames", "SR proxies for Ethernet frames, in both directions.", FRAMES)
    add_nothing_learned(frames)
    add_way_in(frames)
    add_way_back(frames)
    by_address = Group(
        "proxy_by_ethernet_address", "Services with a configured Ethernet address.",
        node(routes=[
            "fc0f::e6/128 encap seg6local action End.AD oif eth2 nheth 02:00:00:00:00:77 dev eth2",
            f"fc0f::e4/128 encap seg6local action End.AS oif eth2 nheth ff:ff:ff:ff:ff:ff inner ipv4 segs {SEGMENT_1} "
            f"src {TUNSRC} dev eth2",
            "fc0f::ea/128 encap seg6local action End.AM oif eth1 nheth 02:00:00:00:00:78 dev eth1",
        ]),
    )
    add_by_ethernet_address(by_address)
    return [frames, by_address]
