"""Frames between stations that a bridge of the kernel knows: they pass beside it, and leave as from the bridge of Linux.

eth3 and eth4 are ports of the bridge br0, eth5 is an isolated one. The ether devices lan0 and lan1 are isolated ports of br0,
too. eth6 is a port of another bridge.
"""

from dataclasses import replace

from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, LLC, Dot1AD, Dot1Q, Dot3, Ether
from scapy.packet import Raw

from .case import Group, forward, kernel, skip
from .decap import inner4, inner6
from .end_ad import counted
from .flow_label import label_of_frame
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, PORTS, SEGMENT_1, SEGMENT_2, node, received, sent
from .proxy_frames import LABEL4, carrying
from .wire import ETHERNET, pattern

NO_LINUX = skip("Linux has no ether devices")
BRIDGE = skip("the ports of this test are in no bridge of Linux; a live test compares with it")
L2 = "8986 5.3"
PATH = [SEGMENT_1, "fc0b::9"]
DX2, DT2U, DT2M = "fc0f::d2", "fc0f::da", "fc0f::db"


def _port(name, number):
    return replace(ETH0, name=name, mac=f"02:00:00:00:03:{number:02x}", neighbor_mac=f"02:00:00:00:04:{number:02x}", addresses=())


BR0, BR1, LAN0, LAN1, S_LAN0, S_LAN1, ETH3, ETH4, ETH5, ETH6 = (
    _port(name, number) for number, name in enumerate(("br0", "br1", "lan0", "lan1", "s-lan0", "s-lan1", "eth3", "eth4", "eth5", "eth6"))
)
# Stations.
HERE, BESIDE, APART, ALONE, FAR, FARTHER = (f"02:00:00:00:05:{number:02x}" for number in range(6))
UNKNOWN = "02:00:00:00:05:ff"


def _behind(*stations, bridge="br0", isolated=False):
    return {"bridge_port": {"bridge": bridge, "isolated": isolated, "stations": list(stations)}}


NODE = node(
    ports=(*PORTS, BR0, BR1, LAN0, LAN1, S_LAN0, S_LAN1, ETH3, ETH4, ETH5, ETH6),
    mtu={"eth1": 9500, "s-lan0": 9300, "eth3": 9000},
    settings={
        "eth3": _behind(HERE),
        "eth4": _behind(BESIDE),
        "eth5": _behind(APART, isolated=True),
        "eth6": _behind(ALONE, bridge="br1"),
        "lan0": _behind(FAR, isolated=True),
        "lan1": _behind(FARTHER, isolated=True),
    },
    tunsrc=TUNSRC,
    routes=[
        f"{DX2}/128 encap seg6local action End.DX2 oif lan0 dev eth0",
        f"{DT2U}/128 encap seg6local action End.DT2U l2dev lan0 dev eth0",
        f"{DT2M}/128 encap seg6local action End.DT2M l2dev lan0 dev eth0",
    ],
    ethers=[f"lan0 segs {','.join(PATH)}", f"lan1 segs {SEGMENT_2} red"],
)


def _frames(source, destination):
    """Frames that a bridge never answers itself."""
    addresses = {"src": source, "dst": destination}
    return {
        "ipv6": Ether(type=0x86DD, **addresses) / Raw(bytes(inner6(1))),
        "ipv4": Ether(type=0x0800, **addresses) / Raw(bytes(inner4(1))),
        "a_vlan_frame": Ether(type=0x8100, **addresses) / Dot1Q(vlan=42, prio=3, type=0x0800) / Raw(bytes(inner4(9))),
        "two_tags": Ether(type=0x88A8, **addresses) / Dot1AD(vlan=7, type=0x8100) / Dot1Q(vlan=8, type=0x86DD) / Raw(bytes(inner6(9))),
        "an_llc_frame": Dot3(**addresses) / LLC(dsap=0x42, ssap=0x42, ctrl=3) / Raw(pattern(35)),
        "a_header_alone": Ether(type=0x88B5, **addresses),
    }


def _answered(source, destination):
    """Frames that a bridge may answer for the station."""
    addresses = {"src": source, "dst": destination}
    arp = ARP(op=1, hwsrc=source, psrc="10.9.0.1", hwdst="00:00:00:00:00:00", pdst="10.9.0.2")
    solicitation = IPv6(src="2001:db8::1", dst="2001:db8::2", nh=58, hlim=255) / Raw(pattern(24))
    return {
        "arp": Ether(type=0x0806, **addresses) / arp,
        "neighbor_discovery": Ether(type=0x86DD, **addresses) / solicitation,
        "arp_in_a_vlan": Ether(type=0x8100, **addresses) / Dot1Q(vlan=42, type=0x0806) / arp,
        "neighbor_discovery_in_a_vlan": Ether(type=0x8100, **addresses) / Dot1Q(vlan=42, type=0x86DD) / solicitation,
    }


def _to_lan0(frame, traffic_class=0, label=None):
    around = headers(
        PATH, ETHERNET, hop_limit=64, traffic_class=traffic_class, label=label_of_frame(frame) if label is None else label, source=TUNSRC,
    )
    return forward(ETH1, sent(ETH1, around / Raw(bytes(frame))))


def add_local(group):
    """Frames of stations at this node."""
    labels = {"ipv6": (0x28, 0x0BEEF), "ipv4": (0x28, LABEL4)}
    for kind, frame in _frames(HERE, FAR).items():
        group.add(f"bridged_{kind}_to_a_far_station", L2, ETH3, frame, _to_lan0(frame, *labels.get(kind, ())), NO_LINUX)
    for kind, frame in _frames(HERE, BESIDE).items():
        group.add(f"bridged_{kind}_to_another_port", "802.1Q 8.6", ETH3, frame, forward(ETH4, frame), BRIDGE)
    longest = Ether(type=0x88B5, src=HERE, dst=BESIDE) / Raw(pattern(1500))
    group.add("bridged_of_exactly_the_mtu", "802.1Q 8.6", ETH3, longest, forward(ETH4, longest), BRIDGE)
    frame = _frames(HERE, APART)["ipv4"]
    group.add("bridged_from_a_port_to_an_isolated_one", "802.1Q 8.6", ETH3, frame, forward(ETH5, frame), BRIDGE)
    for name, source, destination, port in (
        ("an_unknown_destination", HERE, UNKNOWN, ETH3),
        ("an_unknown_source", UNKNOWN, FAR, ETH3),
        ("a_source_that_has_moved", BESIDE, FAR, ETH3),
        ("a_source_of_zeros", "00:00:00:00:00:00", FAR, ETH3),
        ("a_source_that_is_a_group", "01:00:5e:00:00:01", FAR, ETH3),
        ("a_destination_at_the_same_port", HERE, HERE, ETH3),
        ("both_ports_isolated", APART, FAR, ETH5),
        ("a_station_of_another_bridge", HERE, ALONE, ETH3),
        ("a_station_of_this_bridge_from_another", ALONE, HERE, ETH6),
    ):
        frame = _frames(source, destination)["ipv4"]
        group.add(f"bridge_gets_a_frame_with_{name}", "802.1Q 8.6", port, frame, kernel("bridge"))
    for kind, frame in _answered(HERE, FAR).items():
        group.add(f"bridge_gets_{kind}", "802.1Q 8.6", ETH3, frame, kernel("bridge"))
    group.add("bridge_gets_a_packet_to_the_port", "802.1Q 8.6", ETH3, received(ETH3, inner6(64)), kernel("bridge"))
    frame = Ether(type=0x88B5, src=HERE, dst="ff:ff:ff:ff:ff:ff") / Raw(pattern(46))
    group.add("bridge_gets_a_broadcast_frame", "802.1Q 8.6", ETH3, frame, kernel("bridge"))


def add_far(group):
    """Frames of stations behind an ether device."""
    for sid, name, rfc in ((DT2U, "end_dt2u", "8986 4.11"), (DT2M, "end_dt2m", "8986 4.12")):
        def add(case, frame, port):
            group.add(
                f"{name}_{case}", rfc, ETH0, received(ETH0, carrying(sid, 0, [sid], frame)), forward(port, frame), NO_LINUX,
                counters=counted(sid),
            )

        for kind, frame in _frames(FAR, HERE).items():
            add(f"of_{kind}_to_a_station", frame, ETH3)
        for case, source, destination in (
            ("to_an_unknown_station", FAR, UNKNOWN),
            ("from_an_unknown_station", UNKNOWN, HERE),
            ("from_a_station_elsewhere", BESIDE, HERE),
            ("from_a_station_behind_another_device", FARTHER, HERE),
            ("to_a_station_behind_another_device", FAR, FARTHER),
            ("to_a_station_behind_the_same_device", FAR, FAR),
            ("to_an_isolated_station", FAR, APART),
            ("to_a_station_of_another_bridge", FAR, ALONE),
        ):
            add(case, _frames(source, destination)["ipv4"], S_LAN0)
        for kind, frame in _answered(FAR, HERE).items():
            add(f"of_{kind}_for_the_bridge", frame, S_LAN0)
    frame = _frames(FAR, HERE)["ipv4"]
    group.add(
        "end_dx2_ignores_stations", "8986 4.9", ETH0, received(ETH0, carrying(DX2, 0, [DX2], frame)), forward(S_LAN0, frame), NO_LINUX,
        counters=counted(DX2),
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("bridge", "Frames between stations that a bridge of the kernel knows, which pass beside it.", NODE)
    add_local(group)
    add_far(group)
    return [group]
