"""The node that most groups share, and the frames on its ports.

      hosts 2001:db8:1::/48, 192.0.2.0/24
         |
       fc00::1 ---- eth0 [node] eth1 ---- fc01::1 : fc0a::/16, 2001:db8:a::/48, 198.51.100.0/24
                              eth2 ---- fc02::1 : fc0b::/16, 2001:db8:b::/48, 203.0.113.0/24

The node's own SIDs are in fc0f::/16.
"""

from dataclasses import dataclass

from scapy.layers.l2 import Ether
from scapy.packet import Raw

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD


@dataclass(frozen=True)
class Port:
    """A port and the only neighbor on its link."""

    name: str
    mac: str
    neighbor_mac: str
    addresses: tuple


ETH0 = Port("eth0", "02:00:00:00:00:01", "02:00:00:00:00:11", ("fc00::2/64", "10.0.0.2/24"))
ETH1 = Port("eth1", "02:00:00:00:00:02", "02:00:00:00:00:12", ("fc01::2/64", "10.1.0.2/24"))
ETH2 = Port("eth2", "02:00:00:00:00:03", "02:00:00:00:00:13", ("fc02::2/64", "10.2.0.2/24"))
PORTS = (ETH0, ETH1, ETH2)

NEIGHBORS = [
    f"{address} lladdr {port.neighbor_mac} dev {port.name}"
    for port, addresses in (
        (ETH0, ("fc00::1", "10.0.0.1")),
        (ETH1, ("fc01::1", "10.1.0.1")),
        (ETH2, ("fc02::1", "10.2.0.1")),
    )
    for address in addresses
]

ROUTES = [
    "fc0a::/16 via fc01::1 dev eth1",
    "fc0b::/16 via fc02::1 dev eth2",
    "2001:db8:a::/48 via fc01::1 dev eth1",
    "2001:db8:b::/48 via fc02::1 dev eth2",
    "198.51.100.0/24 via 10.1.0.1 dev eth1",
    "203.0.113.0/24 via 10.2.0.1 dev eth2",
]

# Hosts behind the ports.
HOST_0 = "2001:db8:1::1"
HOST_1 = "2001:db8:a::1"
HOST_2 = "2001:db8:b::1"
HOST4_0 = "192.0.2.1"
HOST4_1 = "198.51.100.1"
HOST4_2 = "203.0.113.1"

# A headend upstream, as outer source.
HEADEND = "fc00:aaaa::1"
# Segments behind eth1 and eth2.
SEGMENT_1 = "fc0a::1"
SEGMENT_2 = "fc0b::1"


def node(
    routes=(), neighbors=(), rules=(), ports=PORTS, mtu=None, seg6_disabled=(), forwarding_off=(), settings=None, **more,
):
    """A node file: the shared part and the additions of a group. `settings`: more keys of a port, by its name."""
    mtu = mtu or {}
    records = {}
    for port in ports:
        record = {
            "mac": port.mac,
            "addresses": list(port.addresses),
            "mtu": mtu.get(port.name, 1500),
            "seg6_enabled": port not in seg6_disabled,
        }
        if port in forwarding_off:
            record["forwarding"] = False
        record |= (settings or {}).get(port.name, {})
        records[port.name] = record
    if seg6_disabled:
        more["require_seg6_enabled"] = True
    return {
        "ports": records,
        "neighbors": NEIGHBORS + list(neighbors),
        "routes": ROUTES + list(routes),
        "rules": list(rules),
        **more,
    }


def _ethernet(source, destination, packet, kind):
    if kind is None:
        kind = ETHERTYPE_IPV4 if bytes(packet)[:1] and bytes(packet)[0] >> 4 == 4 else ETHERTYPE_IPV6
    return Ether(src=source, dst=destination, type=kind) / Raw(bytes(packet))


def received(port, packet, kind=None):
    """The frame as the port receives it from its neighbor."""
    return _ethernet(port.neighbor_mac, port.mac, packet, kind)


def sent(port, packet, kind=None, to=None):
    """The frame as the port sends it to its neighbor (or to the MAC `to`)."""
    return _ethernet(port.mac, to or port.neighbor_mac, packet, kind)
