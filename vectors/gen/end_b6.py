"""End.B6.Encaps (RFC 8986 4.13), End.B6.Encaps.Red (4.14) and Linux's End.B6: binding SIDs.

End.B6.Encaps advances the SRH like End and encapsulates the packet with the policy's segments.
Linux differs on each of these packets, as for H.Encaps: it copies the hop limit and the flow label
to the outer header and does not change the inner hop limit. End.B6.Encaps.Red does the same with a
reduced SRH. Linux lacks it, so Sidestep drops packets that the kernel would answer.

End.B6 inserts an SRH with the policy's segments and, as the last one, this SID. It does not change
the packet's own SRH.
"""

from scapy.layers.inet6 import IPv6

from .case import SAME, Group, answer, differs, drop, forward, kernel, skip
from .flow_label import label6
from .h_insert import HOP_BY_HOP_FIRST, inserted
from .icmp import error
from .h_encaps import PATHS, TUNSRC, egress_of, headers
from .local_chain import decremented
from .node import ETH0, ETH1, ETH2, HEADEND, HOST_0, HOST_1, SEGMENT_1, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, IPV6, OPTION_EXPERIMENT, OPTION_PADN_6, OPTION_ROUTER_ALERT, ROUTING, SRH,
    TCP_PROTOCOL, UDP_PROTOCOL, fragment_header, hmac_tlv, options_header, padn, pattern, tcp6, tlv, udp6,
)

ENCAPS = "8986 4.13"
ENCAPS_RED = "8986 4.14"
INSERT = "-"
WHY = "seg6_do_srh_encap copies hop limit and flow label to the outer header and does not change the inner hop limit"
NO_LINUX = skip("Linux has no End.B6.Encaps.Red (SEG6_LOCAL_ACTION_*)")
# The next segment is behind eth2. All policies but one start behind eth1.
NEXT = "fc0b::7"
MTU = 1400
NOT_LINUX = "Linux reports its own MTU, to this node or to the source"

BAD_POLICIES = {
    0xE1: ("is_an_own_address", "fc01::2"),
    0xE2: ("has_no_route", "2001:db8:dead::1"),
    0xE3: ("is_not_resolved", "fc0e::1"),
    0xE4: ("is_unreachable", "fc0d::1"),
}
MORE = ["fc0e::/16 via fc01::66 dev eth1", "unreachable fc0d::/16", "fc0f::1/128 encap seg6local action End dev eth0"]


def sid(number):
    """The binding SID of the policy with that many segments."""
    return f"fc0f::b6:{number:x}"


def routes(action):
    """The binding SIDs."""
    lines = [
        f"{sid(count)}/128 encap seg6local action {action} srh segs {','.join(path)} dev eth0" for count, path in PATHS.items()
    ]
    lines += [
        f"{sid(number)}/128 encap seg6local action {action} srh segs {first} dev eth0"
        for number, (_, first) in BAD_POLICIES.items()
    ]
    return lines + MORE


def packet(destination, hop_limit, segments_left, segments, before=None, payload=None, next_header=UDP_PROTOCOL, ipv6=None,
           **fields):
    """IPv6, the headers in front of the SRH (with their protocol), SRH, payload."""
    header = SRH(next_header=next_header, segments_left=segments_left, segment_list=list(segments), **fields)
    header = header / (udp6(HEADEND, segments[0]) if payload is None else payload)
    first = ROUTING
    if before:
        first, header = before[0], before[1] / header
    return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=first, **(ipv6 or {})) / header


def encapsulated(path, inner, destination, first=ROUTING, hop_limit=64, label=0, traffic_class=0, reduced=False):
    """The inner packet behind the policy's headers. A computed outer flow label replaces 0."""
    computed = label or label6(HEADEND, destination, first)
    return headers(path, IPV6, reduced, hop_limit=hop_limit, label=computed, traffic_class=traffic_class) / inner


def as_linux(path, inner, hop_limit, label=0, traffic_class=0):
    """The same on Linux. `hop_limit` is that of the outer header."""
    return headers(path, IPV6, hop_limit=hop_limit, label=label, traffic_class=traffic_class) / inner


def insertion(path, here, hop_limit, segments_left, segments, build, ipv6, before=None, **fields):
    """End.B6: the frames that Sidestep and Linux send. `build` makes the received packet."""
    def outer(next_header):
        return IPv6(src=HEADEND, dst=path[0], hlim=hop_limit - 1, nh=next_header, **ipv6)

    def new(next_header):
        return SRH(next_header=next_header, segments_left=len(path), segment_list=[here] + path[::-1])

    if before and before[0] == HOP_BY_HOP:
        behind = build(here, hop_limit, segments_left, segments, **fields).payload
        return inserted(outer, bytes(before[1])[2:], ROUTING, new, behind)
    arrived = build(here, hop_limit, segments_left, segments, before=before, **fields)
    return outer(ROUTING) / new(arrived.nh) / arrived.payload, None


class Binding:
    """Adds the cases that the behaviors share."""

    linux = True
    why = WHY

    def __init__(self, group, prefix, rfc):
        self.group, self.prefix, self.rfc = group, prefix, rfc

    def out(self, path, here, hop_limit, segments_left, segments, label=0, traffic_class=0, **fields):
        """The frames that Sidestep and Linux send."""
        raise NotImplementedError

    def forwarded(self, name, count=2, hop_limit=64, segments_left=1, segments=None, label=0, traffic_class=0, about="",
                  counters=None, trailer=b"", rfc=None, **fields):
        """One packet onto the policy of `count` segments."""
        path, here = PATHS[count], sid(count)
        segments = [NEXT, here] if segments is None else segments
        ipv6 = {"fl": label, "tc": traffic_class}
        arrived = packet(here, hop_limit, segments_left, segments, ipv6=ipv6, **fields)
        ours, linux = self.out(path, here, hop_limit, segments_left, segments, label, traffic_class, **fields)
        egress = egress_of(path)
        self.group.add(
            f"{self.prefix}_{name}", rfc or self.rfc, ETH0, received(ETH0, bytes(arrived) + trailer),
            forward(egress, sent(egress, ours)),
            NO_LINUX if not self.linux else SAME if linux is None else differs(forward(egress, sent(egress, linux)), self.why),
            about, counters,
        )

    def refused(self, name, rfc, arrived, outcome, port=ETH0, linux=None, counters=None, about="", told=None):
        """One packet that is not forwarded."""
        if not self.linux:
            linux = NO_LINUX
            if outcome == kernel("seg6_disabled"):
                outcome = drop("kernel_only")
            elif name == "whose_first_segment_is_not_resolved":
                outcome, about = drop("no_neighbor"), "The daemon resolves the next hop."
        self.group.add(f"{self.prefix}_{name}", rfc, port, received(port, arrived), outcome, linux, about, counters, answer=told)

    def shared(self):
        """The cases."""
        for count in PATHS:
            self.forwarded(f"of_{count}_segment{'s' * (count > 1)}", count,
                           counters={"route": f"{sid(count)}/128", "packets": 1, "errors": 0})
        here = sid(2)
        self.forwarded("before_a_segment_in_the_middle", segments_left=2, segments=[SEGMENT_1, NEXT, here])
        self.forwarded("before_a_next_segment_without_a_route", segments=["2001:db8:dead::1", here],
                       about="The node looks up the policy's first segment.")
        self.forwarded("before_a_next_segment_of_this_node", segments=["fc0f::1", here])
        self.forwarded("of_a_reduced_srh", segments_left=2, segments=[SEGMENT_1, NEXT])
        self.forwarded("keeps_tlvs_tag_and_flags", tlvs=tlv(0x7C, b"abc") + padn(9), tag=0xBEEF, flags=0x20)
        for name, traffic_class in (("dscp_ef", 46 << 2), ("ecn_ect0", 2), ("ecn_ce", 3), ("all_bits_of_the_traffic_class", 0xFF)):
            self.forwarded(f"with_{name}", traffic_class=traffic_class, label=0x12345)
        self.forwarded("with_a_flow_label", label=0xFFFFF)
        self.forwarded("with_hop_limit_2", hop_limit=2)
        self.forwarded("with_hop_limit_255", hop_limit=255)
        self.forwarded("of_tcp", payload=tcp6(HEADEND, NEXT, pattern(900)), next_header=TCP_PROTOCOL)
        inner = IPv6(src=HOST_0, dst=HOST_1, hlim=7, nh=UDP_PROTOCOL) / udp6(HOST_0, HOST_1)
        self.forwarded("of_ipv6", payload=inner, next_header=IPV6)
        self.forwarded("of_a_fragment", payload=fragment_header(UDP_PROTOCOL, 2, False) / pattern(16), next_header=FRAGMENT)
        self.forwarded("behind_a_hop_by_hop_header_of_padding", before=(HOP_BY_HOP, options_header(ROUTING, OPTION_PADN_6)))
        self.forwarded("behind_destination_options",
                       before=(DESTINATION_OPTIONS, options_header(ROUTING, OPTION_EXPERIMENT)))
        self.forwarded("trims_octets_behind_the_packet", trailer=b"padding")

        one_error = {"route": f"{here}/128", "packets": 0, "errors": 1}
        two = [NEXT, here]
        for name, rfc, arrived, reason in (
            ("with_segments_left_zero", "8986 4.13 S02", packet(here, 64, 0, [here, NEXT]), "segments_left_zero"),
            ("with_segments_left_zero_of_ipv6", "8986 4.1.1",
             packet(here, 64, 0, [here], payload=inner, next_header=IPV6), "segments_left_zero"),
            ("without_an_srh", "8986 4.1.1",
             IPv6(src=HEADEND, dst=here, hlim=64, nh=UDP_PROTOCOL) / udp6(HEADEND, here), "no_srh"),
            ("with_segments_left_beyond_last_entry", "8986 4.13 S09", packet(here, 64, 3, two), "srh_segments_left"),
            ("with_last_entry_beyond_hdr_ext_len", "8986 4.13 S09", packet(here, 64, 1, two, last_entry=2), "srh_length"),
            ("with_a_tlv_beyond_the_srh", "8754 2.1", packet(here, 64, 1, two, tlvs=bytes([0x7C, 7]) + b"sixoct"), "srh_tlv"),
        ):
            self.refused(name, rfc, arrived, drop(reason), counters=one_error)
        self.refused("with_hop_limit_1", "8986 4.13 S05", packet(here, 1, 1, two), drop("hop_limit"), counters=one_error)
        self.refused("with_an_hmac", "8754 2.1.2", packet(here, 64, 1, two, flags=8, tlvs=hmac_tlv(7)), drop("hmac_key"))
        alert = (HOP_BY_HOP, options_header(ROUTING, OPTION_ROUTER_ALERT))
        self.forwarded("with_hop_by_hop_options", before=alert, rfc="8200 4.2", about="The SID skips Router Alert, as its type says.")
        self.refused("on_a_port_with_seg6_disabled", "8754 4.3.1", packet(here, 64, 1, two), kernel("seg6_disabled"), port=ETH2,
                     linux=skip("punted; seg6local ignores seg6_enabled"))
        for number, (name, _) in BAD_POLICIES.items():
            bad = sid(number)
            arrived = packet(bad, 64, 1, [NEXT, bad])
            name = f"whose_first_segment_{name}"
            if number == 0xE1 and isinstance(self, Insert):
                self.refused(name, "8754 4.3.2", arrived, drop("not_a_sid"), linux=skip("Linux takes each of its addresses for a SID"),
                             about="The new headers are checked like received ones.")
            elif number in (0xE1, 0xE3):
                self.refused(name, self.rfc, arrived, kernel("rewritten"), about="The kernel gets the packet with the new headers.")
            else:
                self.refused(name, [self.rfc, "4443 3.1"], arrived, drop("no_route"), counters=None if number == 0xE4 else {"route": f"{bad}/128", "packets": 0, "errors": 1},
                             told=answer(HEADEND, error(1, 0, 0, arrived)))

    def mtu(self, overhead):
        """A policy of one segment against the egress MTU."""
        payload = udp6(HEADEND, NEXT, pattern(MTU - overhead - 40 - 40 - 8))
        self.forwarded("of_exactly_the_mtu", 1, payload=payload, rfc="8200 5")
        here, payload = sid(1), udp6(HEADEND, NEXT, pattern(MTU - overhead - 40 - 40 - 8 + 1))
        arrived = packet(here, 64, 1, [NEXT, here], payload=payload)
        self.refused("of_one_octet_more_than_the_mtu", "8200 5", arrived, drop("too_big"), linux=skip(NOT_LINUX),
                     told=answer(HEADEND, error(2, 0, MTU - overhead, arrived)))


class Encaps(Binding):
    """End.B6.Encaps."""

    reduced = False

    def out(self, path, here, hop_limit, segments_left, segments, label=0, traffic_class=0, **fields):
        """End, then the outer header."""
        following = segments[segments_left - 1]
        ipv6 = {"fl": label, "tc": traffic_class}

        def inner(limit):
            return packet(following, limit, segments_left - 1, segments, ipv6=ipv6, **fields)

        first = fields["before"][0] if "before" in fields else ROUTING
        return (
            encapsulated(path, inner(hop_limit - 1), following, first, 64, label, traffic_class, self.reduced),
            as_linux(path, inner(hop_limit), hop_limit - 1, label, traffic_class),
        )


class EncapsRed(Encaps):
    """End.B6.Encaps.Red."""

    reduced = True
    linux = False


class Insert(Binding):
    """End.B6."""

    why = HOP_BY_HOP_FIRST

    def out(self, path, here, hop_limit, segments_left, segments, label=0, traffic_class=0, **fields):
        """The new SRH precedes all headers but Hop-by-Hop Options, and ends in this SID."""
        return insertion(path, here, hop_limit, segments_left, segments, packet, {"fl": label, "tc": traffic_class}, **fields)


def add_encaps_chain(encaps):
    """End, then End.B6.Encaps, at the same node."""
    here = sid(2)
    path = [NEXT, here, "fc0f::1"]
    inner = packet(NEXT, 62, 0, path)
    encaps.group.add(
        f"end_then_{encaps.prefix}", ["8754 4.3.1", encaps.rfc], ETH0,
        received(ETH0, packet("fc0f::1", 64, 2, path)),
        forward(ETH1, sent(ETH1, encapsulated(PATHS[2], inner, NEXT, reduced=encaps.reduced))),
        differs(forward(ETH1, sent(ETH1, as_linux(PATHS[2], packet(NEXT, 64, 0, path), 63))), WHY) if encaps.linux else NO_LINUX,
        about="Both SIDs decrement Segments Left and the inner hop limit.",
    )


def add_insert_chain(insert):
    """End, then End.B6, at the same node."""
    here = sid(2)
    path = [NEXT, here, "fc0f::1"]
    new = SRH(next_header=ROUTING, segments_left=2, segment_list=[here] + PATHS[2][::-1])
    own = SRH(next_header=UDP_PROTOCOL, segments_left=1, segment_list=path) / udp6(HEADEND, NEXT)
    insert.group.add(
        "end_then_end_b6", "8754 4.3.1", ETH0, received(ETH0, packet("fc0f::1", 64, 2, path)),
        **decremented(ETH1, lambda limit: IPv6(src=HEADEND, dst=PATHS[2][0], hlim=limit, nh=ROUTING) / new / own, 64, 2),
        about="The packet's own SRH leaves with the changes that End made.",
    )


def groups():
    """Returns the vector files of this module."""
    found = []
    for kind, action, name, rfc, overhead, about in (
        (Encaps, "End.B6.Encaps", "end_b6_encaps", ENCAPS, 40 + 24,
         "End.B6.Encaps: advances the SRH and encapsulates the packet with a policy."),
        (EncapsRed, "End.B6.Encaps.Red", "end_b6_encaps_red", ENCAPS_RED, 40,
         "End.B6.Encaps.Red: as End.B6.Encaps, but only the destination address has the policy's first segment."),
        (Insert, "End.B6", "end_b6", INSERT, 8 + 2 * 16,
         "End.B6 as in Linux: inserts the policy's SRH in front of the packet's own."),
    ):
        group = Group(
            name, about,
            node(routes=routes(action), tunsrc=TUNSRC, seg6_disabled=(ETH2,)),
        )
        binding = kind(group, name, rfc)
        binding.shared()
        (add_insert_chain if kind is Insert else add_encaps_chain)(binding)
        found.append(group)
        group = Group(
            f"{name}_mtu", f"{action} against an egress MTU of {MTU}.",
            node(routes=routes(action), tunsrc=TUNSRC, mtu={"eth1": MTU}),
        )
        kind(group, name, rfc).mtu(overhead)
        found.append(group)
    return found
