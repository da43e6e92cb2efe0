"""Ether devices: H.Encaps.L2 (RFC 8986 5.3, 5.4) of every frame, and the SIDs that send frames into them (4.9 to 4.12).

The frames of a device arrive at its port, which has the prefix `s-`. Linux has no such device.
"""

from dataclasses import replace

from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

from .case import Group, drop, forward, skip
from .csid import LOCAL, USUAL, packet, sid_route, with_srh
from .decap import inner4, inner6
from .end_ad import counted, outer
from .flow_label import label_of_frame
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, ETH2, HEADEND, PORTS, SEGMENT_1, SEGMENT_2, node, received, sent
from .proxy_frames import CUSTOMER, KINDS, carrying
from .wire import ETHERNET, IPV6, UDP_PROTOCOL, pattern

NO_LINUX = skip("Linux has no ether devices")
L2, L2_RED = "8986 5.3", "8986 5.4"
PATH = [SEGMENT_1, "fc0b::9"]


def _port(device, number):
    return replace(ETH0, name=f"s-{device}", mac=f"02:00:00:00:01:{number:02x}", neighbor_mac=f"02:00:00:00:02:{number:02x}", addresses=())


LAN, RED, LOST, ABSENT, GOLD, BROKEN = (_port(name, n) for n, name in enumerate(("lan0", "red0", "lost0", "absent0", "gold0", "broken0")))
DEVICE = replace(LAN, name="lan0", mac="02:00:00:00:02:00")
DX2, DT2U, DT2M, DX2V = "fc0f::d2", "fc0f::da", "fc0f::db", "fc0f::dc"
# uDX2, uDX2V, uDT2U and uDT2M: the behaviors as the last C-SID of a container.
CSIDS = (
    (0xD2, "End.DX2 oif lan0", "8986 4.9"),
    (0xD3, "End.DX2V vlantable 10", "8986 4.10"),
    (0xDA, "End.DT2U l2dev lan0", "8986 4.11"),
    (0xDB, "End.DT2M l2dev lan0", "8986 4.12"),
)
NODE = node(
    ports=(*PORTS, DEVICE, LAN, RED, LOST, ABSENT, GOLD, BROKEN),
    mtu={"eth1": 9500, "s-lan0": 9300},
    tunsrc=TUNSRC,
    routes=[
        "fc0c::/16 via fc01::99 dev eth1",
        f"{DX2}/128 encap seg6local action End.DX2 oif lan0 dev eth0",
        f"{DT2U}/128 encap seg6local action End.DT2U l2dev lan0 dev eth0",
        f"{DT2M}/128 encap seg6local action End.DT2M l2dev lan0 dev eth0",
        f"{DX2V}/128 encap seg6local action End.DX2V vlantable 10 dev eth0",
        sid_route(USUAL, LOCAL, f"End flavors next-csid {USUAL.words}"),
        *(sid_route(USUAL, csid, words) for csid, words, _ in CSIDS),
    ],
    vlans=["table 10 vid 42 dev lan0"],
    policies=[
        f"gold color 1 endpoint fc0a::1 segs {SEGMENT_1},fc0b::9",
        "broken color 2 endpoint fc0a::1 segs fd99::1",
    ],
    ethers=[
        f"lan0 segs {','.join(PATH)}",
        f"red0 segs {SEGMENT_2} red",
        "lost0 segs fc0c::1",
        "absent0 segs fd99::1",
        "gold0 policy gold red tunsrc fc00:beef::1",
        "broken0 policy broken",
    ],
)
TO_PORT = Ether(type=0x86DD, src=CUSTOMER["src"], dst=LAN.mac) / Raw(bytes(inner6(1)))


def addressed(destination, kind, length=46, source=CUSTOMER["src"]):
    """A frame with this destination and type."""
    return Ether(type=kind, src=source, dst=destination) / Raw(pattern(length))


def tagged(*tags, kind=0x0800, payload=None):
    """A frame with these tags, from the outermost one on: type and tag control information."""
    frame = Ether(**CUSTOMER, type=tags[0][0])
    for number, (tag, control) in enumerate(tags):
        following = tags[number + 1][0] if number + 1 < len(tags) else kind
        layer = Dot1AD if tag == 0x88A8 else Dot1Q
        frame /= layer(prio=control >> 13, vlan=control & 0xFFF, type=following)
    return frame / Raw(bytes(inner4(9)) if payload is None else payload)


def bare(sid, next_header):
    """An outer header without an SRH."""
    return IPv6(src=HEADEND, dst=sid, hlim=64, nh=next_header)


# Frames without an IP packet behind the Ethernet header: the label is that of the addresses.
OTHERS = {
    "lldp": addressed("01:80:c2:00:00:0e", 0x88CC),
    "a_bridge_protocol_data_unit": addressed("01:80:c2:00:00:00", 0x88B5),
    "lacp": addressed("01:80:c2:00:00:02", 0x8809),
    "a_priority_tag": tagged((0x8100, 5 << 13)),
    "two_tags": tagged((0x88A8, 100), (0x8100, 200)),
    "three_tags": tagged((0x88A8, 100), (0x8100, 200), (0x8100, 4094)),
    "a_source_of_zeros": addressed("02:00:00:00:aa:02", 0x88B5, source="00:00:00:00:00:00"),
    "a_source_that_is_a_group": addressed("02:00:00:00:aa:02", 0x88B5, source="01:00:5e:00:00:01"),
    "a_header_alone": addressed("02:00:00:00:aa:02", 0x88B5, length=0),
    "a_jumbo_frame": addressed("02:00:00:00:aa:02", 0x88B5, length=9216 - 14),
}


def add_headends(group):
    """Frames that enter a device."""
    kinds = dict(KINDS)
    kinds["ipv6_to_the_address_of_the_port"] = (TO_PORT, *KINDS["ipv6"][1:])
    kinds |= {name: (frame, 0, label_of_frame(frame)) for name, frame in OTHERS.items()}
    for kind, (frame, traffic_class, label) in kinds.items():
        around = headers(PATH, ETHERNET, hop_limit=64, traffic_class=traffic_class, label=label, source=TUNSRC)
        group.add(f"ether_takes_{kind}", L2, LAN, frame, forward(ETH1, sent(ETH1, around / Raw(bytes(frame)))), NO_LINUX)
    frame, traffic_class, label = KINDS["an_arp_request"]
    fields = {"hop_limit": 64, "traffic_class": traffic_class, "label": label}
    around = headers([SEGMENT_2], ETHERNET, True, source=TUNSRC, **fields)
    group.add("ether_with_a_reduced_list", L2_RED, RED, frame, forward(ETH2, sent(ETH2, around / Raw(bytes(frame)))), NO_LINUX)
    around = headers(PATH, ETHERNET, True, source="fc00:beef::1", **fields)
    group.add(
        "ether_into_a_policy", [L2_RED, "9256 8.4"], GOLD, frame, forward(ETH1, sent(ETH1, around / Raw(bytes(frame)))), NO_LINUX,
        about="The policy is of mode encap; the device says red.",
    )


def add_drops(group):
    """Frames that enter a device and do not leave. The kernel gets none: it would process the frame as its own."""
    frame = KINDS["an_arp_request"][0]
    group.add("ether_into_an_invalid_policy", "9256 8.2", BROKEN, frame, drop("no_route"), NO_LINUX)
    group.add("ether_without_a_route_to_its_first_segment", L2, ABSENT, frame, drop("no_route"), NO_LINUX)
    group.add("ether_with_an_unresolved_next_hop", [L2, "4861 7.2"], LOST, frame, drop("no_neighbor"), NO_LINUX)
    group.add("ether_takes_no_pause_frame", "802.3 31B.3.2", LAN, addressed("01:80:c2:00:00:01", 0x8808), drop("link_control"), NO_LINUX)
    fits = addressed("02:00:00:00:aa:02", 0x88B5, length=1500 - 40 - 14)
    around = headers([SEGMENT_2], ETHERNET, True, source=TUNSRC, hop_limit=64, traffic_class=0, label=label_of_frame(fits))
    group.add("ether_of_exactly_the_mtu", L2_RED, RED, fits, forward(ETH2, sent(ETH2, around / Raw(bytes(fits)))), NO_LINUX)
    group.add("ether_of_one_octet_more_than_the_mtu", "8200 5", RED, bytes(fits) + b"x", drop("too_big"), NO_LINUX)


def add_sids(group):
    """Frames that SIDs send into a device: they leave by its port."""
    for sid, name, rfc in ((DX2, "end_dx2", "8986 4.9"), (DT2U, "end_dt2u", "8986 4.11"), (DT2M, "end_dt2m", "8986 4.12")):
        frames = {kind: frame for kind, (frame, _, _) in KINDS.items()} | OTHERS
        for kind, frame in frames.items():
            if kind == "a_jumbo_frame":
                continue
            group.add(
                f"{name}_into_ether_of_{kind}", rfc, ETH0, received(ETH0, carrying(sid, 0, [sid], frame)), forward(LAN, frame), NO_LINUX,
                counters=counted(sid),
            )
        jumbo = OTHERS["a_jumbo_frame"]
        group.add(
            f"{name}_into_ether_of_a_jumbo_frame_without_an_srh", rfc, ETH1, received(ETH1, bare(sid, ETHERNET) / Raw(bytes(jumbo))),
            forward(LAN, jumbo), NO_LINUX,
        )
        for kind, packet, reason in (
            ("segments_left_1", carrying(sid, 1, [SEGMENT_1, sid], OTHERS["lldp"]), "segments_left_not_zero"),
            ("ipv6_without_an_ethernet_header", outer(sid, 0, [sid], next_header=IPV6) / inner6(64), "upper_layer"),
            ("udp", bare(sid, UDP_PROTOCOL) / Raw(pattern(40)), "upper_layer"),
            ("a_frame_of_13_octets", bare(sid, ETHERNET) / Raw(pattern(13)), "inner_header"),
            ("a_fragment", bare(sid, 44) / IPv6ExtHdrFragment(nh=ETHERNET, m=1, id=7) / Raw(pattern(64)), "reassembly"),
        ):
            group.add(
                f"{name}_into_ether_with_{kind}", rfc, ETH0, received(ETH0, packet), drop(reason), NO_LINUX,
                counters=counted(sid, error=True),
                about="Linux would send the reassembled frame out of the device, and so back onto its list." if kind == "a_fragment" else "",
            )
    frame = KINDS["a_vlan_frame"][0]
    group.add(
        "end_dx2v_into_ether", "8986 4.10", ETH0, received(ETH0, carrying(DX2V, 0, [DX2V], frame)), forward(LAN, frame), NO_LINUX,
        counters=counted(DX2V),
    )


def add_csids(group):
    """The same SIDs as C-SIDs: alone, behind one of this node, and in the next container."""
    frame = KINDS["a_vlan_frame"][0]
    for csid, words, rfc in CSIDS:
        name = words.split()[0].lower().replace(".", "_")
        for what, destination in (("csid", USUAL.container(csid)), ("csid_then", USUAL.container(LOCAL, csid))):
            group.add(
                f"{what}_{name}_into_ether", ["9800 4.1.1", rfc], ETH0,
                received(ETH0, packet(destination, 64, Raw(bytes(frame)), ETHERNET)), forward(LAN, frame), NO_LINUX,
            )
        path = [USUAL.container(csid), USUAL.container(LOCAL)]
        group.add(
            f"csid_last_of_its_container_then_{name}_into_ether", ["9800 4.1.1", rfc], ETH0,
            received(ETH0, with_srh(path[1], 64, 1, path, ETHERNET, Raw(bytes(frame)))), forward(LAN, frame), NO_LINUX,
        )


WIRES = tuple(_port(f"wire{n}", 16 + n) for n in range(7))
# A customer whose frames are all attached.
ETH3 = replace(ETH0, name="eth3", mac="02:00:00:00:00:04", neighbor_mac="02:00:00:00:00:14", addresses=())
# A customer whose tags are changed.
ETH4 = replace(ETH3, name="eth4", mac="02:00:00:00:00:05", neighbor_mac="02:00:00:00:00:15")
WIRE_SIDS = {f"wire{n}": f"fc0f::a{n}" for n in range(7)}
BY_VLAN = "fc0f::af"
ATTACHED = node(
    ports=(*PORTS, ETH3, ETH4, *WIRES, *(replace(wire, name=wire.name[2:], mac=wire.neighbor_mac) for wire in WIRES)),
    tunsrc=TUNSRC,
    mtu={"eth1": 9500},
    routes=[
        *(f"{sid}/128 encap seg6local action End.DX2 oif {name} dev eth1" for name, sid in WIRE_SIDS.items()),
        f"{BY_VLAN}/128 encap seg6local action End.DX2V vlantable 10 dev eth1",
    ],
    vlans=["table 10 vid 1043 dev wire4"],
    ethers=[
        f"wire0 segs {','.join(PATH)} attach eth0 vlan 42",
        f"wire1 segs {SEGMENT_2} red attach eth0 vlan 100 inner 200",
        f"wire2 segs {','.join(PATH)} attach eth3 all",
        f"wire3 segs {','.join(PATH)} attach eth4 vlan 42 rewrite pop",
        f"wire4 segs {','.join(PATH)} attach eth4 vlan 43 rewrite translate 1043",
        f"wire5 segs {','.join(PATH)} attach eth4 untagged rewrite push 7",
        f"wire6 segs {','.join(PATH)} attach eth4 vlan 100 inner 200 rewrite pop",
    ],
)


def add_attached(group):
    """Frames of attached interfaces, in both directions."""
    def sent_by(port, frame, label, traffic_class=0):
        if port is ETH2:
            around = headers([SEGMENT_2], ETHERNET, True, hop_limit=64, traffic_class=0, label=label, source=TUNSRC)
        else:
            around = headers(PATH, ETHERNET, hop_limit=64, traffic_class=traffic_class, label=label, source=TUNSRC)
        return forward(port, sent(port, around / Raw(bytes(frame))))

    of_42, stacked = tagged((0x8100, 0xA000 | 42)), tagged((0x88A8, 100), (0x8100, 200))
    group.add("attached_vlan", L2, ETH0, of_42, sent_by(ETH1, of_42, label_of_frame(of_42)), NO_LINUX)
    group.add("attached_vlan_in_a_vlan", L2_RED, ETH0, stacked, sent_by(ETH2, stacked, label_of_frame(stacked)), NO_LINUX)
    with_more = tagged((0x88A8, 42), (0x8100, 7))
    group.add(
        "attached_vlan_with_another_tag_inside", L2, ETH0, with_more, sent_by(ETH1, with_more, label_of_frame(with_more)), NO_LINUX,
    )
    group.add(
        "attached_vlans_leave_a_packet_to_route", "8986 5.3", ETH0, received(ETH0, inner6(64)), forward(ETH1, sent(ETH1, inner6(63))),
        NO_LINUX,
    )
    for kind in ("an_arp_request", "a_vlan_frame", "ipv6", "an_llc_frame"):
        frame, traffic_class, label = KINDS[kind]
        group.add(f"attached_interface_{kind}", L2, ETH3, frame, sent_by(ETH1, frame, label, traffic_class), NO_LINUX)
    for name, port in (("wire0", ETH0), ("wire1", ETH0), ("wire2", ETH3)):
        sid = WIRE_SIDS[name]
        group.add(
            f"end_dx2_out_of_the_attached_interface_of_{name}", "8986 4.9", ETH1, received(ETH1, carrying(sid, 0, [sid], of_42)),
            forward(port, of_42), NO_LINUX, counters=counted(sid),
        )


# VLANs of a frame of a customer, and of the same frame at the far end: type and tag control information of each tag.
PRIORITY = 0xA000
REWRITTEN = (
    ("pop", "wire3", "ipv4", [(0x8100, 42)], []),
    ("pop_at_an_arp_request", "wire3", "an_arp_request", [(0x8100, 42)], []),
    ("pop_before_another_tag", "wire3", "ipv4", [(0x8100, 42), (0x8100, 9)], [(0x8100, 9)]),
    ("translate", "wire4", "ipv6", [(0x8100, PRIORITY | 43)], [(0x8100, PRIORITY | 1043)]),
    ("translate_before_another_tag", "wire4", "ipv4", [(0x88A8, 43), (0x8100, 9)], [(0x88A8, 1043), (0x8100, 9)]),
    ("push", "wire5", "ipv4", [], [(0x8100, 7)]),
    ("push_at_an_arp_request", "wire5", "an_arp_request", [], [(0x8100, 7)]),
    ("push_at_an_llc_frame", "wire5", "an_llc_frame", [], [(0x8100, 7)]),
    ("push_before_a_priority_tag", "wire5", "ipv4", [(0x8100, PRIORITY)], [(0x8100, 7), (0x8100, PRIORITY)]),
    ("pop_of_the_outer_of_two_tags", "wire6", "ipv4", [(0x8100, 100), (0x8100, 200)], [(0x8100, 200)]),
)


def with_tags(frame, tags):
    """The frame with these tags, from the outermost one on."""
    frame = bytes(frame)
    return Raw(frame[:12] + b"".join(number.to_bytes(2) for tag in tags for number in tag) + frame[12:])


def add_rewritten(group):
    """Changes of the outermost tag, in both directions."""
    for name, wire, kind, tags, far_tags in REWRITTEN:
        plain, traffic_class, label = KINDS[kind]
        frame, far = with_tags(plain, tags), with_tags(plain, far_tags)
        if tags or far_tags:
            traffic_class, label = 0, label_of_frame(frame)
        around = headers(PATH, ETHERNET, hop_limit=64, traffic_class=traffic_class, label=label, source=TUNSRC)
        group.add(f"attached_frames_with_{name}", L2, ETH4, frame, forward(ETH1, sent(ETH1, around / Raw(bytes(far)))), NO_LINUX)
        sid = WIRE_SIDS[wire]
        group.add(
            f"end_dx2_with_the_opposite_of_{name}", "8986 4.9", ETH1, received(ETH1, carrying(sid, 0, [sid], far)), forward(ETH4, frame),
            NO_LINUX, counters=counted(sid),
        )
    alone = OTHERS["a_header_alone"]
    for frame, far in ((alone, with_tags(alone, [(0x8100, 7)])), (with_tags(alone, [(0x8100, 42)]), alone)):
        name = "push_at_a_header_alone" if frame is alone else "pop_before_nothing"
        around = headers(PATH, ETHERNET, hop_limit=64, traffic_class=0, label=label_of_frame(frame), source=TUNSRC)
        group.add(f"attached_frames_with_{name}", L2, ETH4, frame, forward(ETH1, sent(ETH1, around / Raw(bytes(far)))), NO_LINUX)
    plain = KINDS["ipv4"][0]
    for name, wire in (("remove", "wire5"), ("translate", "wire4")):
        sid = WIRE_SIDS[wire]
        group.add(
            f"end_dx2_of_a_frame_without_the_tag_to_{name}", "8986 4.9", ETH1, received(ETH1, carrying(sid, 0, [sid], plain)),
            drop("not_attached"), NO_LINUX, counters=counted(sid, error=True),
        )
    far = with_tags(plain, [(0x8100, 1043)])
    group.add(
        "end_dx2v_with_the_opposite_of_translate", "8986 4.10", ETH1, received(ETH1, carrying(BY_VLAN, 0, [BY_VLAN], far)),
        forward(ETH4, with_tags(plain, [(0x8100, 43)])), NO_LINUX, counters=counted(BY_VLAN),
    )
    of_42 = [(0x8100, 42)]
    for name, wire, port, tags, sent_tags in (
        ("without_a_tag", "wire2", ETH3, [], []),
        ("with_a_tag", "wire0", ETH0, of_42, of_42),
        ("with_a_tag_that_is_added", "wire3", ETH4, [], of_42),
    ):
        sid = WIRE_SIDS[wire]
        largest, more = (addressed(CUSTOMER["dst"], 0x88B5, length) for length in (1500, 1501))
        group.add(
            f"end_dx2_of_the_mtu_{name}", "8986 4.9", ETH1, received(ETH1, carrying(sid, 0, [sid], with_tags(largest, tags))),
            forward(port, with_tags(largest, sent_tags)), NO_LINUX, counters=counted(sid),
        )
        group.add(
            f"end_dx2_of_one_octet_more_than_the_mtu_{name}", "8200 5", ETH1, received(ETH1, carrying(sid, 0, [sid], with_tags(more, tags))),
            drop("too_big"), NO_LINUX, counters=counted(sid, error=True),
        )


def groups():
    """Returns the vector files of this module."""
    group = Group("ether", "Ether devices, whose frames all take a segment list, and the SIDs that send frames into them.", NODE)
    add_headends(group)
    add_drops(group)
    add_sids(group)
    add_csids(group)
    attached = Group("ether_attached", "Interfaces whose frames, all or of some VLANs, take the path of an ether device.", ATTACHED)
    add_attached(attached)
    add_rewritten(attached)
    return [group, attached]
