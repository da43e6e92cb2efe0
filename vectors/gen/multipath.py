"""Routes with several next hops: the packet's flow selects one.

This file implements the description of Sidestep's rule (datapath/flow.h). A multiplicative hash
starts with the seed and covers source address, destination address and flow label of the sent
packet. If the flow label is 0, it also covers inner headers until one has a flow label or ports.
The upper 32 bits, as a fraction, select a slot. The next hops, in the order of their addresses,
have slots in proportion to their weights: the largest multiple of the weights that fits into 256.
"""

import socket

from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from .case import Group, forward, one_of, skip
from .flow_label import MASK64, MULTIPLIER, label4
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST_0, node, received, sent
from .wire import ETHERNET, IPV4, IPV6 as IPV6_HEADER, NO_NEXT_HEADER, ROUTING, SRH, UDP_PROTOCOL, ipv4

SEED = 0x5EED
SLOTS = 256


def flow_hash(words, seed=SEED):
    """64 bits of 8-octet words and numbers."""
    state = seed
    for word in words:
        value = word if isinstance(word, int) else int.from_bytes(word, "little")
        state = ((state ^ value) * MULTIPLIER) & MASK64
        state ^= state >> 32
    return state


def chosen(words, weights, seed=SEED):
    """The number of the selected next hop."""
    times = SLOTS // sum(weights)
    slot = (flow_hash(words, seed) >> 32) * (sum(weights) * times) >> 32
    for number, weight in enumerate(weights):
        slot -= weight * times
        if slot < 0:
            return number
    raise AssertionError("a slot beyond the last")


def addresses6(source, destination):
    """Four words."""
    source, destination = (socket.inet_pton(socket.AF_INET6, address) for address in (source, destination))
    return [source[:8], source[8:], destination[:8], destination[8:]]


def addresses4(source, destination):
    """One word."""
    return [socket.inet_aton(source) + socket.inet_aton(destination)]


def ports(protocol, first_four=bytes(4)):
    """The word of a transport header; without ports, of its protocol alone."""
    return first_four + bytes([protocol]) + bytes(3)


def four(sport, dport):
    """The first four octets of TCP and UDP."""
    return sport.to_bytes(2, "big") + dport.to_bytes(2, "big")


def srh(segments, segments_left, next_header):
    """An SRH; `segments` in the order of travel."""
    return SRH(next_header=next_header, segments_left=segments_left, segment_list=segments[::-1])


WAYS = (ETH1, ETH2)
BOTH6 = "nexthop via fc01::1 dev eth1 nexthop via fc02::1 dev eth2"
BOTH4 = "nexthop via 10.1.0.1 dev eth1 nexthop via 10.2.0.1 dev eth2"

NODE = node(
    routes=[
        f"2001:db8:e0::/48 {BOTH6}",
        "2001:db8:e3::/48 nexthop via fc01::1 dev eth1 weight 3 nexthop via fc02::1 dev eth2 weight 1",
        f"10.240.0.0/16 {BOTH4}",
        "10.243.0.0/16 nexthop via 10.1.0.1 dev eth1 weight 1 nexthop via 10.2.0.1 dev eth2 weight 7",
        f"fc0c::/16 {BOTH6}",
        "2001:db8:e5::/48 encap seg6 mode encap segs fc0c::5 dev eth1",
        "10.245.0.0/16 encap seg6 mode encap segs fc0c::5 dev eth1",
        "2001:db8:e6::/48 encap seg6 mode inline segs fc0c::6 dev eth1",
        "2001:db8:e7::/48 nexthop encap seg6 mode encap segs fc0a::7 via fc01::1 dev eth1 "
        "nexthop encap seg6 mode encap segs fc0b::7 via fc02::1 dev eth2",
        "fc0f::1/128 encap seg6local action End dev eth0",
        "fc0f::2/128 encap seg6local action End.X nh6 fc0c::99 dev eth0",
        "fc0f::6/128 encap seg6local action End.DX6 nh6 fc0c::99 dev eth0",
        "fc0f::46/128 encap seg6local action End.DT6 table main dev eth0",
    ],
    tunsrc="fc00::2",
    multipath_hash_seed=SEED,
)


NOT_ASKED = skip("hop limits differ as in h_encaps, and Linux selects a path by its own hash")


def add(group, name, rfc, arrives, leaves, words, weights=(1, 1), linux=None):
    """`leaves(port)`: the frame on that port. Linux selects one of the two by its own hash."""
    way = WAYS[chosen(words, weights)]
    ways = [forward(port, leaves(port)) for port in WAYS]
    group.add(name, rfc, ETH0, received(ETH0, arrives), forward(way, leaves(way)), linux or one_of(*ways))


def plain6(destination, label, upper, hop_limit=64):
    """A packet from the host."""
    return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, fl=label) / upper


def plain4(destination, upper, ttl=64, **more):
    """The same in IPv4."""
    return ipv4(src=HOST4_0, dst=destination, ttl=ttl, **more) / upper


def udp(sport):
    """A datagram."""
    return UDP(sport=sport, dport=4789) / Raw(b"sidestep")


def add_plain(group):
    """Flow label, ports, weights, fragments."""
    for destination, weights, name in (
        ("2001:db8:e0::1", (1, 1), "equal"), ("2001:db8:e3::1", (3, 1), "weighted"),
    ):
        for label in (1, 2, 3, 0xFFFFF):
            add(group, f"ipv6_{name}_next_hops_by_flow_label_{label:05x}", ["6438 4", "6437 3"],
                plain6(destination, label, udp(1000)),
                lambda port, d=destination, l=label: sent(port, plain6(d, l, udp(1000), 63)),
                addresses6(HOST_0, destination) + [label], weights)
        for sport in (1000, 1001, 1002, 1003):
            add(group, f"ipv6_{name}_next_hops_without_a_flow_label_by_udp_port_{sport}", "6437 3",
                plain6(destination, 0, udp(sport)),
                lambda port, d=destination, s=sport: sent(port, plain6(d, 0, udp(s), 63)),
                addresses6(HOST_0, destination) + [ports(17, four(sport, 4789))], weights)
    for destination, weights, name in (("10.240.0.1", (1, 1), "equal"), ("10.243.0.1", (1, 7), "weighted")):
        for sport in (1000, 1001, 1002, 1003):
            add(group, f"ipv4_{name}_next_hops_by_tcp_port_{sport}", "-",
                plain4(destination, TCP(sport=sport, dport=80)),
                lambda port, d=destination, s=sport: sent(port, plain4(d, TCP(sport=s, dport=80), 63)),
                addresses4(HOST4_0, destination) + [ports(6, four(sport, 80))], weights)
    for offset, more in ((0, "MF"), (185, 0)):
        fragment = {"flags": more, "frag": offset}
        add(group, f"ipv4_a_fragment_at_{offset}_is_chosen_by_addresses_and_protocol", "-",
            plain4("10.240.0.1", udp(1000), **fragment),
            lambda port, f=fragment: sent(port, plain4("10.240.0.1", udp(1000), 63, **f)),
            addresses4(HOST4_0, "10.240.0.1") + [ports(17)])


def add_inside(group):
    """Without an outer flow label, inner headers distinguish the flows."""
    outer = {"src": HEADEND, "dst": "fc0c::1"}
    host = "2001:db8:77::1"
    inner = addresses6(HOST_0, host)
    for label, sport in ((9, 1000), (10, 1000), (0, 1000), (0, 1001)):
        last = [label] if label else [ports(17, four(sport, 4789))]
        packet = IPv6(src=HOST_0, dst=host, fl=label) / udp(sport)
        add(group, f"ipv6_in_ipv6_by_the_inner_flow_label_{label}_or_port_{sport}", "6438 4",
            IPv6(**outer, hlim=64) / packet,
            lambda port, p=packet: sent(port, IPv6(**outer, hlim=63) / p),
            addresses6(HEADEND, "fc0c::1") + inner + last)
        frame = Ether(src="02:00:00:00:00:77", dst="02:00:00:00:00:78") / packet
        add(group, f"a_frame_in_ipv6_by_its_inner_flow_label_{label}_or_port_{sport}", "6438 4",
            IPv6(**outer, hlim=64, nh=ETHERNET) / Raw(bytes(frame)),
            lambda port, f=frame: sent(port, IPv6(**outer, hlim=63, nh=ETHERNET) / Raw(bytes(f))),
            addresses6(HEADEND, "fc0c::1") + inner + last)
    for sport in (2000, 2001, 2002):
        packet = plain4("10.9.9.9", udp(sport))
        add(group, f"ipv4_behind_an_srh_by_its_port_{sport}", "6438 4",
            IPv6(**outer, hlim=64, nh=ROUTING) / srh(["fc0c::1", "fc0c::2"], 1, IPV4) / Raw(bytes(packet)),
            lambda port, p=packet: sent(port, IPv6(**outer, hlim=63, nh=ROUTING) / srh(["fc0c::1", "fc0c::2"], 1, IPV4) / Raw(bytes(p))),
            addresses6(HEADEND, "fc0c::1") + addresses4(HOST4_0, "10.9.9.9") + [ports(17, four(sport, 4789))])
    add(group, "an_upper_layer_without_ports_is_chosen_by_its_protocol", "-",
        IPv6(**outer, hlim=64, nh=NO_NEXT_HEADER), lambda port: sent(port, IPv6(**outer, hlim=63, nh=NO_NEXT_HEADER)),
        addresses6(HEADEND, "fc0c::1") + [ports(59)])


def add_headends(group):
    """Path of an encapsulated packet: by the outer header with its flow label."""
    for label in (5, 6, 7):
        packet = plain6("2001:db8:e5::1", label, udp(1000), 64)
        inner = plain6("2001:db8:e5::1", label, udp(1000), 63)
        add(group, f"h_encaps_toward_two_next_hops_by_the_outer_flow_label_{label}", ["6438 4", "8986 5.1"],
            packet,
            lambda port, i=inner, l=label: sent(
                port, IPv6(src="fc00::2", dst="fc0c::5", hlim=64, fl=l, nh=ROUTING) / srh(["fc0c::5"], 0, IPV6_HEADER) / i),
            addresses6("fc00::2", "fc0c::5") + [label], linux=NOT_ASKED)
        segments = ["fc0c::6", "2001:db8:e6::1"]
        packet = plain6("2001:db8:e6::1", label, udp(1000), 64)
        add(group, f"h_insert_toward_two_next_hops_by_the_flow_label_{label}", "6438 4",
            packet,
            lambda port, l=label: sent(
                port, IPv6(src=HOST_0, dst="fc0c::6", hlim=63, fl=l, nh=ROUTING) / srh(segments, 1, UDP_PROTOCOL)
                / Raw(bytes(plain6("2001:db8:e6::1", l, udp(1000)))[40:])),
            addresses6(HOST_0, "fc0c::6") + [label])
        number = chosen(addresses6(HOST_0, "2001:db8:e7::1") + [label], (1, 1))
        first = ("fc0a::7", "fc0b::7")
        packet = plain6("2001:db8:e7::1", label, udp(1000), 64)
        inner = plain6("2001:db8:e7::1", label, udp(1000), 63)
        outs = [
            forward(port, sent(port, IPv6(src="fc00::2", dst=segment, hlim=64, fl=label, nh=ROUTING) / srh([segment], 0, IPV6_HEADER) / inner))
            for port, segment in zip(WAYS, first)
        ]
        group.add(f"two_segment_lists_in_one_route_by_the_flow_label_{label}", "9256 2.11", ETH0,
                  received(ETH0, packet), outs[number], NOT_ASKED)
    for sport in (3000, 3001):
        packet = plain4("10.245.0.1", udp(sport))
        inner = plain4("10.245.0.1", udp(sport), 63)
        label = label4(HOST4_0, "10.245.0.1", 17, four(sport, 4789))
        add(group, f"h_encaps_of_ipv4_toward_two_next_hops_by_the_computed_flow_label_of_port_{sport}",
            ["6438 4", "8986 5.1"], packet,
            lambda port, i=inner, l=label: sent(
                port, IPv6(src="fc00::2", dst="fc0c::5", hlim=64, fl=l, nh=ROUTING) / srh(["fc0c::5"], 0, IPV4) / Raw(bytes(i))),
            addresses6("fc00::2", "fc0c::5") + [label],
            linux=NOT_ASKED)


def add_endpoints(group):
    """Path of a packet that an endpoint behavior forwards."""
    for label in (1, 2, 3):
        for sid, name in (("fc0f::1", "end"), ("fc0f::2", "end_x")):
            segments = [sid, "fc0c::3"]
            upper = udp(1000)

            def packet(destination, left, limit, label=label, segments=segments, upper=upper):
                return IPv6(src=HEADEND, dst=destination, hlim=limit, fl=label, nh=ROUTING) / srh(segments, left, UDP_PROTOCOL) / Raw(bytes(
                    plain6("fc0c::3", 0, upper))[40:])

            add(group, f"{name}_toward_two_next_hops_by_the_flow_label_{label}", ["6438 4", "8986 4.2"],
                packet(sid, 1, 64), lambda port, p=packet: sent(port, p("fc0c::3", 0, 63)),
                addresses6(HEADEND, "fc0c::3") + [label])
        for sid, name, inner_to in (
            ("fc0f::6", "end_dx6", "2001:db8:77::1"), ("fc0f::46", "end_dt6", "2001:db8:e0::5"),
        ):
            inner = plain6(inner_to, label, udp(1000), 64)
            add(group, f"{name}_toward_two_next_hops_by_the_inner_flow_label_{label}", "6438 4",
                IPv6(src=HEADEND, dst=sid, hlim=64) / inner,
                lambda port, t=inner_to, l=label: sent(port, plain6(t, l, udp(1000), 63)),
                addresses6(HOST_0, inner_to) + [label])


def groups():
    """Returns the vector files of this module."""
    group = Group("multipath", "Routes with several next hops: the packet's flow selects one.", NODE)
    add_plain(group)
    add_inside(group)
    add_headends(group)
    add_endpoints(group)
    return [group]
