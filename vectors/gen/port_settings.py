"""Settings of a port that restrict its packets: rp_filter and seg6_require_hmac."""

from scapy.layers.inet6 import IPv6

from .case import Group, differs, drop, forward, kernel
from .h_encaps import WHY4
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST4_1, HOST4_2, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import IPV4, IPV6, ROUTING, SRH, UDP_PROTOCOL, ipv4, udp4, udp6

DX4 = "fc0f::4"
DX4_LOOKUP = "fc0f::40"
END = "fc0f::1"
DX6 = "fc0f::6"
# An address with a route to eth0, and a segment of a headend.
STEERED = "198.18.0.1"
RFC = "3704 2.2"


def packet4(source, destination, ttl=64):
    """An IPv4 packet."""
    return ipv4(src=source, dst=destination, ttl=ttl) / udp4()


def rp_filter():
    """Strict on eth0, loose on eth1, off on eth2."""
    group = Group(
        "rp_filter",
        "The reverse path filter of IPv4: packets that pass are forwarded, and others are punted.",
        node(
            routes=[
                "192.0.2.0/24 via 10.0.0.1 dev eth0",
                f"{DX4}/128 encap seg6local action End.DX4 nh4 198.51.100.99 dev eth0",
                f"{DX4_LOOKUP}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0",
                f"198.18.0.0/16 encap seg6 mode encap segs {SEGMENT_1} dev eth1",
                "192.88.99.0/24 via 10.0.0.77 dev eth0",
                "blackhole 198.19.0.0/16",
            ],
            settings={"eth0": {"rp_filter": 1}, "eth1": {"rp_filter": 2}, "eth2": {"rp_filter": 0}},
            tunsrc=HEADEND,
            seg6_flowlabel=-1,
        ),
    )

    def passes(name, ingress, source, egress, destination, about=""):
        group.add(
            f"rp_filter_{name}", RFC, ingress, received(ingress, packet4(source, destination)),
            forward(egress, sent(egress, packet4(source, destination, 63))), about=about,
        )

    def fails(name, ingress, source, destination, about=""):
        group.add(
            f"rp_filter_{name}", RFC, ingress, received(ingress, packet4(source, destination)),
            kernel("reverse_path"), about=about,
        )

    passes("strict_and_the_way_back_is_the_same_port", ETH0, HOST4_0, ETH1, HOST4_1)
    passes("strict_and_the_source_is_the_neighbor_itself", ETH0, "10.0.0.1", ETH1, HOST4_1)
    passes("strict_and_back_out_of_the_same_port", ETH0, HOST4_0, ETH0, "192.0.2.9")
    fails("strict_and_the_way_back_is_another_port", ETH0, HOST4_2, HOST4_1)
    fails("strict_and_no_way_back", ETH0, "172.16.0.1", HOST4_1)
    fails("strict_and_a_blackhole_back", ETH0, "198.19.0.1", HOST4_1)
    fails("strict_and_an_own_address_as_source", ETH0, "10.1.0.2", HOST4_1)
    passes(
        "strict_and_the_next_hop_back_is_not_resolved", ETH0, "192.88.99.1", ETH1, HOST4_1,
        about="The filter tests the route, not whether its next hop is resolved.",
    )
    passes("loose_and_the_way_back_is_another_port", ETH1, HOST4_2, ETH0, HOST4_0)
    fails("loose_and_no_way_back", ETH1, "172.16.0.1", HOST4_0)
    passes("off_and_no_way_back", ETH2, "172.16.0.1", ETH0, HOST4_0)
    passes("loose_and_the_way_back_is_a_headend", ETH1, STEERED, ETH0, HOST4_0)

    def encapsulated(hop_limit, ttl):
        return sent(
            ETH1,
            IPv6(src=HEADEND, dst=SEGMENT_1, hlim=hop_limit, nh=ROUTING)
            / SRH(next_header=IPV4, segment_list=[SEGMENT_1], segments_left=0) / packet4(HOST4_0, STEERED, ttl),
        )

    group.add(
        "rp_filter_strict_before_a_headend", RFC, ETH0, received(ETH0, packet4(HOST4_0, STEERED)),
        forward(ETH1, encapsulated(64, 63)), linux=differs(forward(ETH1, encapsulated(63, 64)), WHY4),
    )
    fails("strict_before_a_headend_and_no_way_back", ETH0, "172.16.0.1", STEERED)
    for name, sid in (("end_dx4", DX4), ("end_dx4_with_nh4_unspecified", DX4_LOOKUP)):

        def carried(source):
            return received(ETH0, IPv6(src=HEADEND, dst=sid, hlim=64, nh=IPV4) / packet4(source, HOST4_1))

        group.add(
            f"rp_filter_strict_at_{name}", RFC, ETH0, carried(HOST4_0),
            forward(ETH1, sent(ETH1, packet4(HOST4_0, HOST4_1, 63))),
            about="Linux applies the filter of the ingress port of the outer packet to the inner packet.",
        )
        for way_back, source in (("another_port", HOST4_2), ("none", "172.16.0.1")):
            group.add(
                f"rp_filter_strict_at_{name}_and_the_way_back_is_{way_back}", RFC, ETH0, carried(source),
                kernel("reverse_path"),
            )
    return group


def require_hmac():
    """seg6_require_hmac on eth0."""
    group = Group(
        "require_hmac",
        "A port that requires an HMAC of every SRH: SIDs drop packets without one. Other packets pass.",
        node(
            routes=[
                f"{END}/128 encap seg6local action End dev eth0",
                f"{DX6}/128 encap seg6local action End.DX6 nh6 fc01::1 dev eth0",
            ],
            settings={"eth0": {"seg6_require_hmac": 1}},
        ),
    )

    def segments(port, hop_limit, destination, left):
        return (
            IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=ROUTING)
            / SRH(next_header=UDP_PROTOCOL, segment_list=[SEGMENT_1, END], segments_left=left)
            / udp6(HOST_0, SEGMENT_1)
        )

    rfc = "8754 2.1.2.1"
    group.add("end_where_an_hmac_is_required", rfc, ETH0, received(ETH0, segments(ETH0, 64, END, 1)), drop("hmac_missing"))
    group.add(
        "end_dx6_without_an_srh_where_an_hmac_is_required", rfc, ETH0,
        received(ETH0, IPv6(src=HEADEND, dst=DX6, hlim=64, nh=IPV6) / IPv6(src=HOST_0, dst=HOST_1, hlim=64, nh=UDP_PROTOCOL)
                 / udp6(HOST_0, HOST_1)),
        forward(ETH1, sent(ETH1, IPv6(src=HOST_0, dst=HOST_1, hlim=63, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1))),
    )
    group.add(
        "end_on_a_port_that_does_not_require_it", rfc, ETH1, received(ETH1, segments(ETH1, 64, END, 1)),
        forward(ETH1, sent(ETH1, segments(ETH1, 63, SEGMENT_1, 0))),
    )
    group.add(
        "an_srh_in_transit_where_an_hmac_is_required", rfc, ETH0, received(ETH0, segments(ETH0, 64, SEGMENT_1, 0)),
        forward(ETH1, sent(ETH1, segments(ETH0, 63, SEGMENT_1, 0))),
    )
    return group


def groups():
    """Returns the vector files of this module."""
    return [rp_filter(), require_hmac()]
