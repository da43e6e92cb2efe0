"""End.AS (draft-ietf-spring-srv6-service-programming 6.1): a service without outer headers.

The service is at eth2, as fc02::1 and 10.2.0.1. Another service returns packets by eth1.
"""

from scapy.layers.inet6 import ICMPv6ND_NA, IPv6
from scapy.layers.l2 import ARP
from scapy.packet import Raw

from .case import Group, drop, forward, kernel, skip
from .decap import inner4, inner6
from .flow_label import label4, ports
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST4_1, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, HOP_BY_HOP, IPV4, IPV6, OPTION_EXPERIMENT, ROUTING, SRH, UDP_PROTOCOL, ipv4, options_header, padn, udp4, udp6,
)

# draft-ietf-spring-srv6-service-programming-00
DRAFT6, DRAFT4 = "service-programming 6.1.1.3", "service-programming 6.1.1.2"
NO_LINUX = skip("Linux has no SR proxies")
SID6, SID4, TWO_WAYS = "fc0f::a6", "fc0f::a4", "fc0f::b"
SOURCE = "fc00:beef::1"
# Segments of returned packets.
PATH = [SEGMENT_1, "fc0b::9"]
NODE = node(
    routes=[
        f"{SID6}/128 encap seg6local action End.AS oif eth2 nh6 fc02::1 segs {','.join(PATH)} src {SOURCE} dev eth2",
        f"{SID4}/128 encap seg6local action End.AS oif eth2 nh4 10.2.0.1 segs {SEGMENT_1} src {TUNSRC} dev eth2",
        f"{TWO_WAYS}/128 encap seg6local action End.AS oif eth0 nh6 fc00::1 iif eth1 srh segs {SEGMENT_2} src {SOURCE} dev eth0",
    ],
)
LAST = "2001:db8:b::9"


def outer(sid, segments_left, hop_limit=64, next_header=IPV6, segments=None, **fields):
    """Outer header and SRH of the payload."""
    segments = segments or [LAST, SEGMENT_1, sid]
    return IPv6(src=HEADEND, dst=sid, hlim=hop_limit, nh=ROUTING, tc=0xA0, fl=0x00777) / SRH(
        next_header=next_header, segments_left=segments_left, segment_list=segments, **fields
    )


def counted(sid, error=False):
    """The counters of a SID after one packet."""
    return {"route": f"{sid}/128", "packets": 0 if error else 1, "errors": 1 if error else 0}


def add_way_in(group):
    """Packets to the service."""
    group.add(
        "end_as_of_ipv6", [f"{DRAFT6} S12-S19"], ETH0,
        received(ETH0, outer(SID6, 2) / inner6(64)), forward(ETH2, sent(ETH2, inner6(63))), NO_LINUX, counters=counted(SID6),
    )
    group.add(
        "end_as_of_ipv4", [f"{DRAFT4} S12-S19"], ETH0,
        received(ETH0, outer(SID4, 2, next_header=IPV4) / inner4(64)), forward(ETH2, sent(ETH2, inner4(63))), NO_LINUX,
        counters=counted(SID4),
    )
    group.add(
        "end_as_before_the_last_segment", [f"{DRAFT6} S12-S19"], ETH0,
        received(ETH0, outer(SID6, 1) / inner6(64)), forward(ETH2, sent(ETH2, inner6(63))), NO_LINUX,
    )
    group.add(
        "end_as_as_the_last_segment", [f"{DRAFT6} S02-S03", f"{DRAFT6} upper-layer S04-S05"], ETH0,
        received(ETH0, outer(SID6, 0) / inner6(64)), forward(ETH2, sent(ETH2, inner6(63))), NO_LINUX,
    )
    group.add(
        "end_as_without_an_srh", [f"{DRAFT4} upper-layer S04-S05"], ETH0,
        received(ETH0, IPv6(src=HEADEND, dst=SID4, hlim=1, nh=IPV4) / inner4(64)), forward(ETH2, sent(ETH2, inner4(63))), NO_LINUX,
    )
    group.add(
        "end_as_takes_tlvs_and_options_off", [f"{DRAFT6} S18"], ETH0,
        received(
            ETH0,
            IPv6(src=HEADEND, dst=SID6, hlim=64, nh=DESTINATION_OPTIONS) / options_header(ROUTING, OPTION_EXPERIMENT)
            / SRH(next_header=IPV6, segments_left=1, segment_list=[SEGMENT_1, SID6], tlvs=padn(6)) / inner6(64),
        ),
        forward(ETH2, sent(ETH2, inner6(63))), NO_LINUX,
    )
    group.add(
        "end_as_by_one_interface_and_back_by_another", [f"{DRAFT6} S19"], ETH0,
        received(ETH0, outer(TWO_WAYS, 1) / inner6(64)), forward(ETH0, sent(ETH0, inner6(63))), NO_LINUX,
    )
    passed = [LAST, SEGMENT_1, SID4]

    def other(destination, hop_limit, segments_left):
        return (
            IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING)
            / SRH(next_header=IPV6, segments_left=segments_left, segment_list=passed) / inner6(64)
        )

    group.add(
        "end_as_of_ipv4_lets_ipv6_pass_the_service_by", [f"{DRAFT4} S15-S17"], ETH0,
        received(ETH0, other(SID4, 64, 2)), forward(ETH1, sent(ETH1, other(SEGMENT_1, 63, 1))), NO_LINUX,
    )
    group.add(
        "end_as_of_an_upper_layer_that_is_not_carried", [f"{DRAFT6} upper-layer S01-S03", "8986 4.1.1"], ETH0,
        received(ETH0, outer(SID6, 0, next_header=UDP_PROTOCOL) / udp6(HEADEND, SID6)), drop("upper_layer"), NO_LINUX,
        counters=counted(SID6, error=True),
    )
    group.add(
        "end_as_with_hop_limit_1", [f"{DRAFT6} S05-S06"], ETH0,
        received(ETH0, outer(SID6, 1, hop_limit=1) / inner6(64)), drop("hop_limit"), NO_LINUX,
    )
    group.add(
        "end_as_with_inner_hop_limit_1", [f"{DRAFT6} S19"], ETH0,
        received(ETH0, outer(SID6, 1) / inner6(1)), drop("hop_limit"), NO_LINUX,
    )
    group.add(
        "end_as_with_segments_left_beyond_last_entry", [f"{DRAFT6} S09-S10"], ETH0,
        received(ETH0, outer(SID6, 4) / inner6(64)), drop("srh_segments_left"), NO_LINUX, counters=counted(SID6, error=True),
    )
    group.add(
        "end_as_with_a_damaged_packet_inside", [f"{DRAFT6} S18", "8986 4.4"], ETH0,
        received(ETH0, outer(SID6, 1) / inner6(64, plen=2000)), drop("inner_header"), NO_LINUX,
    )


def add_way_back(group):
    """Packets from the service."""
    back6, back4 = f"{DRAFT6} inbound", f"{DRAFT4} inbound"
    group.add(
        "end_as_back_of_ipv6", [f"{back6} S01-S05"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(
            ETH1, headers(PATH, IPV6, hop_limit=64, traffic_class=0x28, label=0x0BEEF, source=SOURCE) / inner6(61),
        )), NO_LINUX,
    )
    group.add(
        "end_as_back_of_ipv4", [f"{back4} S01-S05"], ETH2, received(ETH2, inner4(62)),
        forward(ETH1, sent(
            ETH1,
            headers([SEGMENT_1], IPV4, hop_limit=64, traffic_class=0x28,
                    label=label4(HOST4_0, HOST4_1, UDP_PROTOCOL, ports(4096, 53)), source=TUNSRC) / inner4(61),
        )), NO_LINUX,
    )

    def own(hop_limit):
        return IPv6(src="fc02::1", dst=LAST, hlim=hop_limit, nh=UDP_PROTOCOL, tc=0x28, fl=0x0BEEF) / udp6("fc02::1", LAST)

    group.add(
        "end_as_back_of_a_packet_that_the_service_made", [back6], ETH2, received(ETH2, own(64)),
        forward(ETH1, sent(
            ETH1,
            headers(PATH, IPV6, hop_limit=64, traffic_class=0x28, label=0x0BEEF, source=SOURCE)
            / own(63),
        )), NO_LINUX,
    )
    group.add(
        "end_as_back_by_another_interface", [f"{back6} S01-S05"], ETH1, received(ETH1, inner6(62)),
        forward(ETH2, sent(
            ETH2, headers([SEGMENT_2], IPV6, hop_limit=64, traffic_class=0x28, label=0x0BEEF, source=SOURCE) / inner6(61),
        )), NO_LINUX,
    )
    group.add(
        "end_as_back_of_ipv4_by_the_interface_of_an_ipv6_service", [back4], ETH1, received(ETH1, inner4(62, destination="203.0.113.1")),
        forward(ETH2, sent(ETH2, inner4(61, destination="203.0.113.1"))),
        about="No proxy receives returned IPv4 packets on eth1, so eth1 is an ordinary port for them.", linux=NO_LINUX,
    )
    group.add(
        "end_as_back_with_hop_limit_1", [f"{back6} S03"], ETH2, received(ETH2, inner6(1)), drop("hop_limit"), NO_LINUX,
    )
    group.add(
        "end_as_back_to_an_address_of_the_interface", [back6], ETH2, received(ETH2, inner6(62, destination="fc02::2")),
        kernel("local"), NO_LINUX,
    )
    group.add(
        "end_as_back_to_an_ipv4_address_of_the_interface", [back4], ETH2, received(ETH2, inner4(62, destination="10.2.0.2")),
        kernel("local"), NO_LINUX,
    )
    # RFC 791 3.1: No Operation three times, End of Options List.
    options = [Raw(bytes([1, 1, 1, 0]))]
    unread = "The kernel would route the packet by its destination, and the packet would leave the chain."

    def with_options(ttl):
        return ipv4(src=HOST4_0, dst=HOST4_1, ttl=ttl, options=options) / udp4()

    group.add(
        "end_as_of_ipv4_with_options", [f"{DRAFT4} S12-S19", "1812 5.2.4"], ETH0,
        received(ETH0, outer(SID4, 2, next_header=IPV4) / with_options(64)), forward(ETH2, sent(ETH2, with_options(63))), NO_LINUX,
    )
    group.add(
        "end_as_back_of_ipv4_with_options", [f"{back4} S01-S05", "1812 5.2.4"], ETH2, received(ETH2, with_options(62)),
        forward(ETH1, sent(
            ETH1,
            headers([SEGMENT_1], IPV4, hop_limit=64, label=label4(HOST4_0, HOST4_1, UDP_PROTOCOL, ports(4096, 53)), source=TUNSRC)
            / with_options(61),
        )), NO_LINUX,
    )
    group.add(
        "end_as_back_of_ipv4_with_options_to_an_address_of_the_interface", [back4, "791 3.1"], ETH2,
        received(ETH2, ipv4(src="10.2.0.1", dst="10.2.0.2", ttl=62, options=options) / udp4()), kernel("local"), NO_LINUX,
    )
    group.add(
        "end_as_back_igmp_is_the_kernels", [back4], ETH2,
        received(ETH2, ipv4(src="10.2.0.1", dst="224.0.0.22", ttl=1, options=[Raw(bytes([0x94, 4, 0, 0]))]) / udp4()),
        kernel("multicast"), NO_LINUX, about="The packet has Router Alert and a multicast destination, so it concerns the link.",
    )
    group.add(
        "end_as_back_of_ipv4_with_options_by_the_interface_of_an_ipv6_service", [back4, "791 3.1"], ETH1,
        received(ETH1, ipv4(src=HOST4_0, dst=HOST4_1, ttl=62, options=options) / udp4()), kernel("ipv4_options"), NO_LINUX,
    )

    def jumbo(destination):
        """RFC 2675 2: Payload Length 0, and its option."""
        return IPv6(src="fc02::1", dst=destination, hlim=62, nh=HOP_BY_HOP, plen=0) / options_header(
            UDP_PROTOCOL, b"\xc2\x04\x00\x01\x00\x01"
        ) / udp6("fc02::1", destination)

    group.add(
        "end_as_back_of_a_jumbogram", [f"{back6} S01-S05"], ETH2, received(ETH2, jumbo(LAST)), drop("kernel_only"), NO_LINUX,
        about=unread,
    )
    group.add(
        "end_as_back_of_a_jumbogram_to_an_address_of_the_interface", [back6], ETH2, received(ETH2, jumbo("fc02::2")),
        kernel("jumbogram"), NO_LINUX,
    )
    group.add(
        "end_as_back_arp_is_the_kernels", [back4, "826"], ETH2,
        received(ETH2, ARP(op=1, hwsrc=ETH2.neighbor_mac, psrc="10.2.0.1", pdst="10.2.0.2"), kind=0x0806),
        kernel("not_ip"), NO_LINUX,
    )
    group.add(
        "end_as_back_dhcp_is_the_kernels", [back4], ETH2,
        received(ETH2, ipv4(src="0.0.0.0", dst="255.255.255.255", ttl=64) / udp4(b"boot", 68, 67)), kernel("multicast"), NO_LINUX,
    )
    group.add(
        "end_as_back_neighbor_discovery_is_the_kernels", [back6, "4861 7.2"], ETH2,
        received(ETH2, IPv6(src="fc02::1", dst="fc02::2", hlim=255) / ICMPv6ND_NA(tgt="fc02::1", R=0, S=1)),
        kernel("local"), NO_LINUX,
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("end_as", "End.AS: the static proxy, in both directions.", NODE)
    add_way_in(group)
    add_way_back(group)
    return [group]
