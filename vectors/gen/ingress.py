"""Verdicts before any lookup: frames that are not for the fast path, and damaged headers."""

from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from .case import Group, drop, kernel
from .node import ETH0, ETH2, HOST4_0, HOST4_1, HOST_0, HOST_1, node, received
from .wire import HOP_BY_HOP, NO_NEXT_HEADER, OPTION_PADN_6, OPTION_ROUTER_ALERT, UDP_PROTOCOL, ipv4, options_header
from .wire import pattern, udp4, udp6

NODE = node(forwarding_off=(ETH2,))
PACKET6 = IPv6(src=HOST_0, dst=HOST_1, hlim=64, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1)
PACKET4 = ipv4(src=HOST4_0, dst=HOST4_1, ttl=64) / udp4()


def frame_to(mac, packet, kind=0x86DD):
    """A frame on eth0 to any MAC address."""
    return Ether(src=ETH0.neighbor_mac, dst=mac, type=kind) / Raw(bytes(packet))


def changed(packet, at, value):
    """The packet with the octets at `at` replaced by `value`."""
    octets = bytearray(bytes(packet))
    octets[at : at + len(value)] = value
    return bytes(octets)


def add_ethernet(group):
    """Verdicts by the Ethernet header."""
    group.add(
        "a_frame_for_another_host", "1812 5.3.4", ETH0, frame_to("02:00:00:00:00:77", PACKET6), kernel("other_host"),
    )
    arp = ARP(op=1, hwsrc=ETH0.neighbor_mac, psrc="10.0.0.1", hwdst="00:00:00:00:00:00", pdst="10.0.0.2")
    group.add("arp_is_the_kernels", "826", ETH0, frame_to(ETH0.mac, arp, 0x0806), kernel("not_ip"))
    group.add(
        "an_unknown_ethertype_is_the_kernels", "7042", ETH0, frame_to(ETH0.mac, pattern(46), 0x88B5), kernel("not_ip"),
    )
    for name, tags in (("vlan", Dot1Q(vlan=7, type=0x86DD)), ("qinq", Dot1Q(vlan=7, type=0x8100) / Dot1Q(vlan=8, type=0x86DD))):
        outer = 0x88A8 if name == "qinq" else 0x8100
        group.add(
            f"a_{name}_frame_without_a_port_for_it", "-", ETH0,
            Ether(src=ETH0.neighbor_mac, dst=ETH0.mac, type=outer) / tags / Raw(bytes(PACKET6)),
            kernel("vlan"),
        )
    group.add(
        "ipv6_multicast_mac", "2464 7", ETH0,
        frame_to("33:33:00:00:00:01", IPv6(src=HOST_0, dst="ff0e::1", hlim=64, nh=NO_NEXT_HEADER)),
        kernel("multicast"),
    )
    group.add(
        "ipv6_unicast_packet_in_a_multicast_frame", "2464 7", ETH0, frame_to("33:33:00:00:00:01", PACKET6), kernel("multicast"),
    )
    group.add(
        "ipv4_unicast_packet_in_a_broadcast_frame", "1812 5.3.4", ETH0, frame_to("ff:ff:ff:ff:ff:ff", PACKET4, 0x0800),
        kernel("multicast"),
    )


def add_addresses(group):
    """Verdicts by source and destination address."""

    def six(source, destination):
        return received(ETH0, IPv6(src=source, dst=destination, hlim=64, nh=NO_NEXT_HEADER))

    def four(source, destination):
        return received(ETH0, ipv4(src=source, dst=destination, ttl=64) / udp4())

    for name, source, destination, reason in (
        ("ipv6_multicast_destination_in_a_unicast_frame", HOST_0, "ff0e::1", "multicast"),
        ("ipv6_link_local_source", "fe80::1", HOST_1, "link_local"),
        ("ipv6_link_local_destination", HOST_0, "fe80::1", "link_local"),
        ("ipv6_unspecified_source_without_a_route", "::", "2001:db8:dead::1", "bad_source"),
        ("ipv6_loopback_destination", HOST_0, "::1", "bad_source"),
        ("ipv6_own_address_of_the_ingress_port", HOST_0, "fc00::2", "local"),
        ("ipv6_own_address_of_another_port", HOST_0, "fc01::2", "local"),
    ):
        group.add(name, "4291 2.5", ETH0, six(source, destination), kernel(reason))
    for name, source, destination, reason in (
        ("ipv4_multicast_destination_in_a_unicast_frame", HOST4_0, "239.1.2.3", "multicast"),
        ("ipv4_limited_broadcast", HOST4_0, "255.255.255.255", "multicast"),
        ("ipv4_unspecified_source", "0.0.0.0", HOST4_1, "bad_source"),
        ("ipv4_loopback_source", "127.0.0.1", HOST4_1, "bad_source"),
        ("ipv4_multicast_source", "224.0.0.5", HOST4_1, "bad_source"),
        ("ipv4_own_address_of_the_ingress_port", HOST4_0, "10.0.0.2", "local"),
        ("ipv4_own_address_of_another_port", HOST4_0, "10.1.0.2", "local"),
    ):
        group.add(name, "1812 5.3.7", ETH0, four(source, destination), kernel(reason))


def add_ipv6_header(group):
    """RFC 8200 3."""
    group.add(
        "ipv6_version_5", "8200 3", ETH0, received(ETH0, changed(PACKET6, 0, b"\x50"), 0x86DD), drop("ipv6_header"),
    )
    group.add(
        "ipv6_header_cut_short", "8200 3", ETH0, received(ETH0, bytes(PACKET6)[:39], 0x86DD), drop("ipv6_header"),
    )
    group.add(
        "ipv6_payload_length_beyond_the_frame", "8200 3", ETH0,
        received(ETH0, bytes(PACKET6)[:-1]), drop("ipv6_length"),
    )
    group.add(
        "ipv6_payload_cut_off_entirely", "8200 3", ETH0, received(ETH0, bytes(PACKET6)[:40]), drop("ipv6_length"),
    )
    padding = options_header(UDP_PROTOCOL, OPTION_PADN_6)
    group.add(
        "ipv6_hop_by_hop_header_beyond_the_packet", "8200 4", ETH0,
        received(ETH0, IPv6(src=HOST_0, dst=HOST_1, hlim=64, nh=HOP_BY_HOP) / Raw(changed(padding, 1, b"\x04"))),
        drop("ext_header"),
    )
    group.add(
        "ipv6_router_alert_is_the_kernels", ["8200 4.3", "2711 2"], ETH0,
        received(ETH0, IPv6(src=HOST_0, dst=HOST_1, hlim=64, nh=HOP_BY_HOP)
                 / options_header(UDP_PROTOCOL, OPTION_ROUTER_ALERT) / udp6(HOST_0, HOST_1)),
        kernel("hop_by_hop"),
    )
    jumbo = options_header(UDP_PROTOCOL, b"\xc2\x04\x00\x01\x00\x08")
    group.add(
        "ipv6_payload_length_zero_with_a_jumbo_payload_option", "2675 3", ETH0,
        received(ETH0, IPv6(src=HOST_0, dst=HOST_1, hlim=64, nh=HOP_BY_HOP, plen=0) / jumbo / udp6(HOST_0, HOST_1)),
        kernel("jumbogram"),
    )
    group.add(
        "ipv6_on_a_port_that_does_not_forward", "8200 2", ETH2, received(ETH2, PACKET6), kernel("forwarding_off"),
    )


def add_ipv4_header(group):
    """RFC 791 3.1."""

    def with_header(**fields):
        return received(ETH0, ipv4(src=HOST4_0, dst=HOST4_1, ttl=64, **fields) / udp4(), 0x0800)

    group.add("ipv4_version_5", "791 3.1", ETH0, with_header(version=5), drop("ipv4_header"))
    group.add(
        "ipv4_header_cut_short", "791 3.1", ETH0, received(ETH0, bytes(PACKET4)[:19], 0x0800), drop("ipv4_header"),
    )
    group.add("ipv4_header_length_of_four_words", "791 3.1", ETH0, with_header(ihl=4), drop("ipv4_header"))
    group.add(
        "ipv4_header_length_beyond_the_packet", "791 3.1", ETH0, with_header(ihl=15, len=36), drop("ipv4_header"),
    )
    group.add("ipv4_total_length_below_the_header", "791 3.1", ETH0, with_header(len=19), drop("ipv4_header"))
    group.add("ipv4_total_length_beyond_the_frame", "791 3.1", ETH0, with_header(len=37), drop("ipv4_header"))
    group.add("ipv4_wrong_header_checksum", "1812 5.2.2", ETH0, with_header(chksum=0x1234), drop("ipv4_checksum"))
    # RFC 791 3.1: No Operation three times, End of Options List.
    options = bytes([1, 1, 1, 0])
    group.add(
        "ipv4_options_are_the_kernels", "791 3.1", ETH0,
        received(ETH0, ipv4(src=HOST4_0, dst=HOST4_1, ttl=64, options=[Raw(options)]) / udp4()),
        kernel("ipv4_options"),
    )
    group.add(
        "ipv4_on_a_port_that_does_not_forward", "1812 2.2.8", ETH2, received(ETH2, PACKET4), kernel("forwarding_off"),
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("ingress", "Frames with a verdict before any lookup.", NODE)
    add_ethernet(group)
    add_addresses(group)
    add_ipv6_header(group)
    add_ipv4_header(group)
    return [group]
