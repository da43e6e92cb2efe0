"""The next segment or the decapsulated packet is for this node again."""

from scapy.layers.inet6 import IPv6

from .case import ONE_DECREMENT, Group, answer, differs, drop, forward, kernel
from .icmp import error
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST4_1, HOST_0, HOST_1, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import IPV4, IPV6, ROUTING, SRH, UDP_PROTOCOL, ipv4, udp4, udp6

SIXTEEN = [f"fc0b::{index:x}" for index in range(1, 17)]
NODE = node(
    routes=[f"fc0f::{index}/128 encap seg6local action End dev eth0" for index in range(1, 6)] + [
        "fc0f::b/128 encap seg6local action End flavors psp dev eth0",
        "fc0f::a/128 encap seg6local action End.X nh6 fc02::1 dev eth0",
        "fc0f::74/128 encap seg6local action End.T table main dev eth0",
        "fc0f::d6/128 encap seg6local action End.DT6 table main dev eth0",
        "fc0f::d4/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0",
        "fc0f::d2/128 encap seg6local action End.DX6 nh6 fc02::1 dev eth0",
        "2001:db8:c1::/48 encap seg6 mode encap segs fc0b::1 dev eth2",
        "2001:db8:c2::/48 encap seg6 mode inline segs fc0b::1 dev eth2",
        f"2001:db8:c3::/48 encap seg6 mode inline segs {','.join(SIXTEEN)} dev eth2",
    ],
    tunsrc="fc00::2",
)
RFC = "8754 4.3.1"
EACH_SID = [RFC, "8986 4.1 S12"]


def packet(destination, hop_limit, segments_left, segments, next_header=UDP_PROTOCOL, payload=None, **fields):
    """IPv6, SRH, payload."""
    return (
        IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=ROUTING, **fields)
        / SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments))
        / (udp6(HEADEND, segments[0]) if payload is None else payload)
    )


def decremented(egress, packet_of, hop_limit, sids):
    """The results for a packet that passes `sids` SIDs of the node. Each SID decrements the hop
    limit (RFC 8986 4.1 S12). `packet_of` makes the packet with a hop limit.
    """
    def leaves(decrement):
        return forward(egress, sent(egress, packet_of(hop_limit - decrement)))

    return {"expect": leaves(sids), "linux": differs(leaves(1), ONE_DECREMENT)}


def chain(group, name, first, path, sids, egress=ETH1, hop_limit=64, **more):
    """SIDs in one SRH."""
    group.add(
        name, EACH_SID, ETH0, received(ETH0, packet(first, hop_limit, sids, path)),
        **decremented(egress, lambda limit: packet(SEGMENT_1, limit, 0, path), hop_limit, sids), **more,
    )


def add_end_chains(group):
    """SIDs in one SRH, one after another."""
    for count in (2, 3, 4):
        path = [SEGMENT_1] + [f"fc0f::{index}" for index in range(count, 0, -1)]
        chain(group, f"a_chain_of_{count}_end_sids", "fc0f::1", path, count,
              about="Each SID decrements Segments Left and the hop limit.",
              counters={"route": f"fc0f::{count}/128", "packets": 1, "errors": 0})
    five = [SEGMENT_1] + [f"fc0f::{index}" for index in range(5, 0, -1)]
    group.add(
        "a_chain_of_5_end_sids_is_too_long", RFC, ETH0,
        received(ETH0, packet("fc0f::1", 64, 5, five)), drop("sid_loop"),
        linux=differs(forward(ETH1, sent(ETH1, packet(SEGMENT_1, 63, 0, five))),
                      "Linux follows up to its recursion limit (lwtunnel_input)"),
    )
    chain(group, "the_same_end_sid_three_times", "fc0f::1", [SEGMENT_1, "fc0f::1", "fc0f::1", "fc0f::1"], 3)
    two = [SEGMENT_1, "fc0f::2", "fc0f::1"]
    chain(group, "a_chain_with_hop_limit_3", "fc0f::1", two, 2, hop_limit=3)
    for hop_limit in (2, 1):
        expired = packet("fc0f::1", hop_limit, 2, two)
        linux = differs(forward(ETH1, sent(ETH1, packet(SEGMENT_1, 1, 0, two))), ONE_DECREMENT) if hop_limit == 2 else None
        group.add(
            f"a_chain_with_hop_limit_{hop_limit}", [RFC, "8986 4.1 S05"], ETH0, received(ETH0, expired), drop("hop_limit"),
            linux=linux, answer=answer(HEADEND, error(3, 0, 0, expired)),
            about="The second SID drops the packet." if hop_limit == 2 else "",
        )
    group.add(
        "a_chain_that_ends_with_segments_left_zero_at_end", RFC, ETH0,
        received(ETH0, packet("fc0f::1", 64, 1, ["fc0f::2", "fc0f::1"])), drop("segments_left_zero"),
    )
    group.add(
        "a_chain_that_ends_without_a_route", RFC, ETH0,
        received(ETH0, packet("fc0f::1", 64, 2, ["2001:db8:dead::1", "fc0f::2", "fc0f::1"])), kernel("route_miss"),
    )
    for name, sid, egress in (("end_x", "fc0f::a", ETH2), ("end_t", "fc0f::74", ETH1)):
        chain(group, f"end_then_{name}", "fc0f::1", [SEGMENT_1, sid, "fc0f::1"], 2, egress=egress)
    chain(group, "end_t_then_end", "fc0f::74", [SEGMENT_1, "fc0f::1", "fc0f::74"], 2)
    path = [SEGMENT_1, "fc0f::b", "fc0f::1"]

    def popped(hop_limit):
        return IPv6(src=HEADEND, dst=SEGMENT_1, hlim=hop_limit, nh=UDP_PROTOCOL) / udp6(HEADEND, SEGMENT_1)

    group.add(
        "end_then_end_psp", [*EACH_SID, "8986 4.16.1"], ETH0, received(ETH0, packet("fc0f::1", 64, 2, path)),
        forward(ETH1, sent(ETH1, popped(62))), linux=differs(forward(ETH1, sent(ETH1, popped(63))), ONE_DECREMENT),
    )


def add_decapsulation(group):
    """Into and out of a decapsulating SID."""

    def inner6(hop_limit, destination=HOST_1):
        return IPv6(src=HOST_0, dst=destination, hlim=hop_limit, nh=UDP_PROTOCOL, fl=0x777) / udp6(HOST_0, destination)

    def inner4(ttl):
        return ipv4(src=HOST4_0, dst=HOST4_1, ttl=ttl) / udp4()

    for name, sid, protocol, inner, egress in (
        ("end_dt6", "fc0f::d6", IPV6, inner6, ETH1),
        ("end_dx4", "fc0f::d4", IPV4, inner4, ETH1),
        ("end_dx6", "fc0f::d2", IPV6, inner6, ETH2),
    ):
        group.add(
            f"end_then_{name}", RFC, ETH0,
            received(ETH0, packet("fc0f::1", 64, 1, [sid, "fc0f::1"], protocol, inner(64))),
            forward(egress, sent(egress, inner(63))),
        )
    group.add(
        "end_then_end_dt6_with_outer_hop_limit_1", [RFC, "8986 4.1 S05"], ETH0,
        received(ETH0, packet("fc0f::1", 1, 1, ["fc0f::d6", "fc0f::1"], IPV6, inner6(64))), drop("hop_limit"),
        linux=differs(forward(ETH1, sent(ETH1, inner6(63))), ONE_DECREMENT),
        about="End drops the packet. Linux checks the hop limit only before it sends the packet.",
    )
    group.add(
        "end_psp_then_end_dt6", [RFC, "8986 4.16.1"], ETH0,
        received(ETH0, packet("fc0f::b", 64, 1, ["fc0f::d6", "fc0f::b"], IPV6, inner6(64))),
        forward(ETH1, sent(ETH1, inner6(63))),
        about="End removes the SRH, and End.DT6 decapsulates the packet without it.",
    )
    inside = [SEGMENT_1, "fc0f::1"]
    group.add(
        "end_dt6_then_end_of_the_inner_packet", RFC, ETH0,
        received(ETH0, packet("fc0f::d6", 64, 0, ["fc0f::d6"], IPV6, packet("fc0f::1", 33, 1, inside))),
        forward(ETH1, sent(ETH1, packet(SEGMENT_1, 32, 0, inside))),
    )
    group.add(
        "end_dt6_then_end_dt6_of_the_inner_packet", RFC, ETH0,
        received(ETH0, packet("fc0f::d6", 64, 0, ["fc0f::d6"], IPV6, packet("fc0f::d6", 33, 0, ["fc0f::d6"], IPV6, inner6(22)))),
        forward(ETH1, sent(ETH1, inner6(21))),
    )
    destination = "2001:db8:c1::1"

    def encapsulated(outer_hop_limit, inner):
        return (
            IPv6(src="fc00::2", dst=SEGMENT_2, hlim=outer_hop_limit, nh=ROUTING, fl=0x777)
            / SRH(next_header=IPV6, segments_left=0, segment_list=[SEGMENT_2]) / inner
        )

    group.add(
        "end_dt6_then_h_encaps", ["8986 4.6", "8986 5.1"], ETH0,
        received(ETH0, packet("fc0f::d6", 64, 0, ["fc0f::d6"], IPV6, inner6(64, destination))),
        forward(ETH2, sent(ETH2, encapsulated(64, inner6(63, destination)))),
        linux=differs(forward(ETH2, sent(ETH2, encapsulated(63, inner6(64, destination)))),
                      "seg6_do_srh_encap copies the inner hop limit to the outer header and does not change the inner one"),
        about="The node steers the decapsulated packet into another policy and decrements its hop limit once.",
    )
    path = [destination, "fc0f::1"]
    group.add(
        "end_then_h_encaps", ["8986 4.1", "8986 5.1"], ETH0,
        received(ETH0, packet("fc0f::1", 64, 1, path, fl=0x777)),
        forward(ETH2, sent(ETH2, encapsulated(64, packet(destination, 63, 0, path, fl=0x777)))),
        linux=differs(forward(ETH2, sent(ETH2, encapsulated(63, packet(destination, 64, 0, path, fl=0x777)))),
                      "seg6_do_srh_encap copies the inner hop limit to the outer header and does not change the inner one"),
    )
    for name, destination, segments in (
        ("h_insert", "2001:db8:c2::1", ["fc0b::1"]), ("h_insert_of_sixteen_segments", "2001:db8:c3::1", SIXTEEN),
    ):
        inserted = (
            IPv6(src=HEADEND, dst=segments[0], hlim=63, nh=ROUTING)
            / SRH(next_header=UDP_PROTOCOL, segments_left=len(segments), segment_list=[destination] + segments[::-1])
            / udp6(HEADEND, destination)
        )
        group.add(
            f"end_psp_then_{name}", ["8986 4.16.1"], ETH0,
            received(ETH0, packet("fc0f::b", 64, 1, [destination, "fc0f::b"])), forward(ETH2, sent(ETH2, inserted)),
            about="The node removes one SRH and inserts another. If the new one has no room, the packet stays as it arrived.",
        )


def groups():
    """Returns the vector files of this module."""
    group = Group("local_chain", "Local next segments.", NODE)
    add_end_chains(group)
    add_decapsulation(group)
    return [group]
