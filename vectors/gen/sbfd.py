"""The reflector of Seamless BFD (RFC 7880, RFC 7881): a probe becomes its own answer."""

from scapy.fields import BitField, ByteField, IntField, ShortField, XShortField
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw
from scapy.utils import checksum

from .case import Group, drop, forward, kernel, skip
from .node import ETH0, ETH1, HEADEND, HOST_0, SEGMENT_1, node, received, sent
from .wire import IPV6, ROUTING, SRH, UDP_PROTOCOL, pattern

LINUX = skip("Linux has no reflector")
RFC = "7880 7.2"
PORT = 7784
UP, DOWN, ADMIN_DOWN = 3, 1, 0
DISCRIMINATOR, ADMIN_DOWN_DISCRIMINATOR = 0xC0A80101, 1002
OURS, THEIRS = "fc01::2", HEADEND
# RFC 5880 4.1: the shortest interval that the reflector serves, in microseconds.
MIN_RX = 1000


class BFD(Packet):
    """RFC 5880 4.1."""

    name = "BFD"
    fields_desc = [
        BitField("version", 1, 3), BitField("diag", 0, 5),
        BitField("state", DOWN, 2), BitField("poll", 0, 1), BitField("final", 0, 1), BitField("independent", 0, 1),
        BitField("authentication", 0, 1), BitField("demand", 1, 1), BitField("multipoint", 0, 1),
        ByteField("multiplier", 3), ByteField("length", 24),
        IntField("mine", 0xABCD0001), IntField("yours", DISCRIMINATOR),
        IntField("min_tx", 10000), IntField("min_rx", 0), IntField("min_echo_rx", 0),
    ]


class UDP(Packet):
    """RFC 768, with a checksum that the vector gives."""

    name = "UDP"
    fields_desc = [ShortField("source", 0), ShortField("destination", 0), ShortField("length", 0), XShortField("checksum", 0)]


def udp(source, destination, payload, ports, length=None, wrong_checksum=None):
    """A datagram of these addresses. RFC 8200 8.1: the sum covers a pseudo-header; 0xffff stands for 0."""
    payload = bytes(payload)
    size = 8 + len(payload)
    header = UDP(source=ports[0], destination=ports[1], length=size if length is None else length)
    pseudo = bytes(IPv6(src=source, dst=destination))[8:40] + size.to_bytes(4, "big") + bytes([0, 0, 0, UDP_PROTOCOL])
    header.checksum = (checksum(pseudo + bytes(header) + payload) or 0xFFFF) if wrong_checksum is None else wrong_checksum
    return bytes(header) + payload


def probe(bfd=None, padding=b"", hop_limit=255, source=THEIRS, ports=(49152, PORT), to=OURS, **more):
    """A probe of the initiator."""
    payload = bytes(bfd or BFD()) + padding
    return IPv6(src=source, dst=to, hlim=hop_limit, nh=UDP_PROTOCOL, tc=more.pop("tc", 0xC0), fl=0x12345) / Raw(
        udp(source, to, payload, ports, **more))


def answer(padding=b"", to=THEIRS, port=49152, tc=0xC0, source=OURS, **bfd):
    """RFC 7880 7.2.3: discriminators, addresses and ports change places; Demand is clear."""
    fields = {"state": UP, "demand": 0, "mine": DISCRIMINATOR, "yours": 0xABCD0001, "min_rx": MIN_RX, **bfd}
    return IPv6(src=source, dst=to, hlim=255, nh=UDP_PROTOCOL, tc=tc, fl=0x12345) / Raw(
        udp(source, to, bytes(BFD(**fields)) + padding, (PORT, port)))


def through(segment_list, packet, tc=0xC0, last_sid="fc0f::6"):
    """The packet in the tunnel of the initiator, at the last segment."""
    header = SRH(next_header=IPV6, segments_left=0, segment_list=[last_sid, *segment_list])
    return IPv6(src=THEIRS, dst=last_sid, hlim=61, nh=ROUTING, tc=tc) / header / packet


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "sbfd", "Reflectors of S-BFD on a node at the edge of an SR domain: eth0 is outside, eth1 and eth2 are inside.",
        node(
            routes=[
                "fc0f::6/128 encap seg6local action End.DT6 table main dev eth0", f"{THEIRS}/128 via fc01::1 dev eth1",
                "2001:db8:c::/48 encap seg6 mode encap segs fc0a::1,fc0b::1 dev eth1",
                "2001:db8:d::/48 encap seg6 mode inline segs fc0a::1 dev eth1",
            ],
            tunsrc=OURS,
            domain=["sid-block fc0f::/16", "inside eth1", "inside eth2"],
            reflectors=[f"{DISCRIMINATOR}", f"{ADMIN_DOWN_DISCRIMINATOR} admin-down"],
        ),
    )

    def add(name, packet, expect, about="", port=ETH1, rfc=RFC):
        group.add(f"sbfd_{name}", rfc, port, received(port, packet), expect, LINUX, about)

    def answered(name, packet, reply, about="", rfc=RFC):
        add(name, packet, forward(ETH1, sent(ETH1, reply)), about, rfc=rfc)

    def refused(name, packet, rfc="5880 6.8.6", about=""):
        add(name, packet, drop("bfd"), about, rfc=rfc)

    answered("probe_without_a_tunnel", probe(), answer())
    answered("probe_in_a_tunnel", through([SEGMENT_1], probe()), answer(), "End.DT6 of this node decapsulates it.")
    answered("probe_in_a_tunnel_without_srh", IPv6(src=THEIRS, dst="fc0f::6", hlim=61, nh=IPV6, tc=0xC0) / probe(), answer(),
             "As FRR sends it by one segment.")
    answered("probe_with_hop_limit_1", probe(hop_limit=1), answer(), "It ends here, and the answer begins here.")
    answered("probe_with_poll", probe(BFD(poll=1)), answer(final=1))
    answered("probe_in_state_up", probe(BFD(state=UP)), answer())
    answered("probe_with_other_intervals", probe(BFD(multiplier=5, min_tx=3000, min_rx=77, min_echo_rx=88)),
             answer(multiplier=5, min_tx=3000, min_echo_rx=88))
    answered("probe_with_diagnosis_and_control_plane_independent", probe(BFD(diag=1, independent=1)), answer())
    answered("probe_with_padding", probe(padding=pattern(1000)), answer(padding=pattern(1000)),
             "The answer is as long as the probe, never longer.")
    answered("probe_of_odd_length", probe(padding=pattern(77)), answer(padding=pattern(77)))
    answered("probe_with_ce_on_its_tunnel", through([SEGMENT_1], probe(tc=0xC2), 0xC3), answer(tc=0xC3), rfc="6040 4.2")
    answered("probe_for_a_reflector_that_is_down", probe(BFD(yours=ADMIN_DOWN_DISCRIMINATOR)),
             answer(mine=ADMIN_DOWN_DISCRIMINATOR, state=ADMIN_DOWN, diag=7))
    answered("probe_from_the_lowest_port", probe(ports=(1, PORT)), answer(port=1))
    group.add("sbfd_probe_with_link_padding", RFC, ETH1, bytes(received(ETH1, probe())) + bytes(10), forward(ETH1, sent(ETH1, answer())), LINUX)
    outer = IPv6(src=OURS, dst=SEGMENT_1, hlim=64, nh=ROUTING, tc=0xC0, fl=0x12345) / SRH(
        next_header=IPV6, segments_left=1, segment_list=["fc0b::1", SEGMENT_1])
    steered = "2001:db8:c::1"
    answered("answer_into_a_tunnel", probe(source=steered), outer / answer(to=steered),
             "The route to the initiator encapsulates.")
    answered("answer_from_tunnel_to_tunnel", through([SEGMENT_1], probe(source=steered)), outer / answer(to=steered))

    refused("probe_of_version_0", probe(BFD(version=0)))
    refused("probe_with_multiplier_0", probe(BFD(multiplier=0)))
    refused("probe_with_length_23", probe(BFD(length=23)))
    refused("probe_with_length_beyond_its_payload", probe(BFD(length=25)))
    refused("probe_with_authentication", probe(BFD(authentication=1)), about="The reflector has no key.")
    refused("probe_with_multipoint", probe(BFD(multipoint=1)))
    refused("probe_without_discriminator_of_its_sender", probe(BFD(mine=0)))
    refused("probe_without_demand", probe(BFD(demand=0)), RFC, "An answer is never answered.")
    refused("probe_from_the_port_of_a_reflector", probe(ports=(PORT, PORT)), "7881 3", "Two reflectors would answer each other.")
    refused("probe_without_checksum", probe(wrong_checksum=0), "8200 8.1")
    refused("probe_with_length_of_udp_beyond_the_packet", probe(length=33))
    refused("probe_with_length_of_udp_too_small", probe(length=31))
    refused("probe_from_a_sid_of_this_node", probe(source="fc0f::6"), "8754 5.1")
    add("probe_from_an_unreachable_source", probe(source="2001:db8:ffff::1"), drop("no_route"))
    add("answer_by_h_insert", probe(source="2001:db8:d::1"), drop("kernel_only"), "The header would part addresses and ports.")

    local = kernel("local")
    add("probe_of_an_unknown_discriminator", probe(BFD(yours=DISCRIMINATOR + 1)), local, "It may be of another process of this node.")
    add("probe_from_outside_the_domain", probe(source=HOST_0, to="fc00::2"), local, port=ETH0, rfc="8754 5.1")
    add("probe_to_another_port", probe(ports=(49152, PORT + 1)), local)
    add("probe_too_short", IPv6(src=THEIRS, dst=OURS, hlim=255, nh=UDP_PROTOCOL) / Raw(
        udp(THEIRS, OURS, bytes(BFD())[:23], (49152, PORT))), local)
    return [group]
