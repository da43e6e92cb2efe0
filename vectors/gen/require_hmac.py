"""SIDs that require an HMAC (`require-hmac`), which RFC 8754 2.1.2.1 leaves to local policy: "based on the active segment"."""

from scapy.layers.inet6 import IPv6

from .case import Group, drop, forward, skip
from .decap import inner6
from .hmac import FLAG, SEGMENTS_MAX, Verify, flipped, header, keys, path, signed, wrong
from .node import ETH0, ETH1, ETH2, HEADEND, SEGMENT_1, node, received, sent
from .wire import IPV6, ROUTING, SRH, UDP_PROTOCOL, hmac_tlv, padn, udp6

RFC = "8754 2.1.2.1"
NO_LINUX = skip("Linux requires an HMAC by port only")
END, END_X, END_T, END_DT6, END_B6_ENCAPS = "fc0f::1", "fc0f::2", "fc0f::3", "fc0f::d6", "fc0f::b6e"
FREE_END, FREE_PSP, FREE_DT6, PROXY = "fc0f:1::1", "fc0f:1::11", "fc0f:1::d6", "fc0f::ad"
ROUTES = [
    f"{END}/128 encap seg6local action End require-hmac dev eth0",
    f"{END_X}/128 encap seg6local action End.X nh6 fc01::1 require-hmac dev eth0",
    f"{END_T}/128 encap seg6local action End.T table main require-hmac dev eth0",
    f"{END_DT6}/128 encap seg6local action End.DT6 table main require-hmac dev eth0",
    f"{END_B6_ENCAPS}/128 encap seg6local action End.B6.Encaps srh segs fc0b::5 require-hmac dev eth0",
    f"{FREE_END}/128 encap seg6local action End dev eth0",
    f"{FREE_PSP}/128 encap seg6local action End flavors psp dev eth0",
    f"{FREE_DT6}/128 encap seg6local action End.DT6 table main dev eth0",
]


class Required(Verify):
    """Cases that do not run on Linux."""

    def case(self, name, sid, head, outcome, **more):
        """A packet to a SID."""
        self.at(f"hmac_required_by_the_sid_{name}", sid, head, outcome, linux=NO_LINUX, **more)

    def add(self, name, arrived, outcome, port=ETH0, **more):
        """Any packet."""
        self.group.add(f"hmac_required_by_the_sid_{name}", RFC, port, received(port, arrived), outcome, NO_LINUX, **more)


def plain(segments, segments_left=1, next_header=UDP_PROTOCOL, **fields):
    """An SRH without an HMAC."""
    return SRH(segment_list=segments, segments_left=segments_left, next_header=next_header, **fields)


def add_ports(required):
    """Ports with every value of seg6_require_hmac: 0 on eth0, 1 on eth1, -1 on eth2."""
    good, none = header(7, path(3, END)), plain(path(3, END))
    for port, says in ((ETH0, "verifies"), (ETH1, "requires"), (ETH2, "ignores")):
        where = f"on_a_port_that_{says}"
        required.case(f"and_right_{where}", END, good, (ETH1, required.advanced(good)), port=port)
        required.case(f"and_wrong_{where}", END, wrong(good, flipped(0)), drop("hmac_wrong"), port=port)
        required.case(f"and_missing_{where}", END, none, drop("hmac_missing"), port=port)
    for name, port, head in (("missing", ETH0, plain(path(3, FREE_END))), ("wrong_and_ignored", ETH2, wrong(header(7, path(3, FREE_END)), flipped(0)))):
        required.add(
            f"next_to_it_and_{name}", IPv6(src=HEADEND, dst=FREE_END, hlim=64, nh=ROUTING) / head / udp6(HEADEND, SEGMENT_1),
            forward(ETH1, sent(ETH1, required.advanced(head))), port=port, about="The requirement of one SID does not apply to other SIDs of the node.",
        )
    passing = IPv6(src=HEADEND, dst=SEGMENT_1, hlim=64, nh=ROUTING) / plain(path(2, END)) / udp6(HEADEND, SEGMENT_1)
    left = passing.copy()
    left.hlim = 63
    required.add("further_on", passing, forward(ETH1, sent(ETH1, left)), about="The SID that requires an HMAC is not the active segment.")


def add_what_counts_as_one(required):
    """Forms of the HMAC, as at a port that requires one."""
    segments = path(3, END)
    good = header(7, segments)
    for name, head, reason in (
        ("and_the_flag_has_no_tlv", plain(segments, flags=FLAG), "hmac_missing"),
        ("and_the_tlv_has_no_flag", plain(segments, tlvs=bytes(good.tlvs)), "hmac_missing"),
        ("and_the_tlv_is_not_at_the_end", plain(segments, flags=FLAG, tlvs=bytes(good.tlvs) + padn(6)), "hmac_missing"),
        ("and_of_an_unknown_key", plain(segments, flags=FLAG, tlvs=hmac_tlv(6)), "hmac_key"),
        ("and_over_15_segments", header(7, path(SEGMENTS_MAX + 1, END)), "hmac_segments"),
    ):
        required.case(name, END, head, drop(reason))
    reduced = header(8, [SEGMENT_1])
    required.case("and_right_in_a_reduced_srh", END, reduced, (ETH1, required.advanced(reduced)))
    required.add(
        "and_no_srh_at_end", IPv6(src=HEADEND, dst=END, hlim=64, nh=UDP_PROTOCOL) / udp6(HEADEND, END), drop("no_srh"),
        counters={"route": f"{END}/128", "packets": 0, "errors": 1},
    )


def add_behaviors(required):
    """Other behaviors."""
    for name, sid in (("end_x", END_X), ("end_t", END_T)):
        good = header(7, path(2, sid))
        required.case(f"{name}_and_right", sid, good, (ETH1, required.advanced(good)))
        required.case(f"{name}_and_missing", sid, plain(path(2, sid)), drop("hmac_missing"))
    good = header(7, path(2, END_B6_ENCAPS))
    required.case("end_b6_encaps_and_missing", END_B6_ENCAPS, plain(path(2, END_B6_ENCAPS)), drop("hmac_missing"))
    required.case("end_b6_encaps_and_wrong", END_B6_ENCAPS, wrong(good, flipped(9)), drop("hmac_wrong"))
    segments = [END_DT6, "fc0a::5"]
    good = signed(7, HEADEND, segments, next_header=IPV6, segments_left=0)
    required.case("end_dt6_and_right", END_DT6, good, (ETH1, inner6(63)), payload=inner6(64))
    required.case("end_dt6_and_wrong", END_DT6, wrong(good, flipped(31)), drop("hmac_wrong"), payload=inner6(64))
    required.case("end_dt6_and_missing", END_DT6, plain(segments, 0, IPV6), drop("hmac_missing"), payload=inner6(64))
    required.add(
        "end_dt6_and_no_srh", IPv6(src=HEADEND, dst=END_DT6, hlim=64, nh=IPV6) / inner6(64), drop("hmac_missing"),
        about="A packet without an SRH has no HMAC. A port that requires one accepts such a packet, as Linux does.",
        counters={"route": f"{END_DT6}/128", "packets": 0, "errors": 1},
    )


def add_proxy(required):
    """A proxy does not learn from packets without a valid HMAC."""
    bad = IPv6(src=HEADEND, dst=PROXY, hlim=64, nh=ROUTING) / plain(["2001:db8:b::9", SEGMENT_1, PROXY], 2, IPV6) / inner6(64)
    required.add("end_ad_and_missing", bad, drop("hmac_missing"))
    required.add(
        "end_ad_and_missing_teaches_nothing", inner6(62), drop("not_learned"), port=ETH2, earlier=[(ETH0, received(ETH0, bad))],
    )


def add_several(required):
    """More than one SID of this node in one packet."""
    three = [SEGMENT_1, END, FREE_END]
    good, none = header(7, three, segments_left=2), plain(three, 2)
    after = header(7, three, segments_left=0)
    left = IPv6(src=HEADEND, dst=SEGMENT_1, hlim=62, nh=ROUTING) / after / udp6(HEADEND, SEGMENT_1)
    required.case("behind_one_that_does_not_and_right", FREE_END, good, (ETH1, left),
                  about="The first SID verifies the HMAC; the second one need not verify it again.")
    required.case("behind_one_that_does_not_and_right_on_a_port_that_ignores", FREE_END, good, (ETH1, left), port=ETH2)
    required.case("behind_one_that_does_not_and_wrong_on_a_port_that_ignores", FREE_END, wrong(good, flipped(0)), drop("hmac_wrong"), port=ETH2)
    required.case("behind_one_that_does_not_and_missing", FREE_END, none, drop("hmac_missing"))
    for name, first in (("end", FREE_END), ("end_psp", FREE_PSP)):
        two = [END_DT6, first]
        good = signed(7, HEADEND, two, next_header=IPV6, segments_left=1)
        required.case(f"end_dt6_behind_{name}_and_right", first, good, (ETH1, inner6(62)), payload=inner6(63))
        required.case(f"end_dt6_behind_{name}_and_missing", first, plain(two, 1, IPV6), drop("hmac_missing"), payload=inner6(63))


def add_inside(required):
    """The HMAC of an outer SRH does not count for the inner packet."""
    around = signed(7, HEADEND, [FREE_DT6], next_header=IPV6, segments_left=0)

    def case(name, next_header, inside, outcome, destination, **more):
        packet = IPv6(src=HEADEND, dst=destination, hlim=60, nh=next_header) / inside
        required.case(f"inside_{name}", FREE_DT6, around, outcome, payload=packet, **more)

    case("and_no_srh", IPV6, inner6(59), drop("hmac_missing"), END_DT6)
    case("and_no_srh_on_a_port_that_ignores", IPV6, inner6(59), drop("hmac_missing"), END_DT6, port=ETH2)
    case("and_missing", ROUTING, plain(path(2, END)) / udp6(HEADEND, SEGMENT_1), drop("hmac_missing"), END)
    good = header(8, path(2, END))
    left = IPv6(src=HEADEND, dst=SEGMENT_1, hlim=59, nh=ROUTING) / header(8, path(2, END), segments_left=0) / udp6(HEADEND, SEGMENT_1)
    case("and_right", ROUTING, good / udp6(HEADEND, SEGMENT_1), (ETH1, left), END)
    case("and_wrong", ROUTING, wrong(good, flipped(5)) / udp6(HEADEND, SEGMENT_1), drop("hmac_wrong"), END)


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "hmac_required_by_the_sid", "SIDs that require an HMAC: eth0 verifies present ones, eth1 requires one, eth2 ignores them.",
        node(
            routes=ROUTES, hmac=keys((7, 8)),
            settings={"eth1": {"seg6_require_hmac": 1}, "eth2": {"seg6_require_hmac": -1}},
        ),
    )
    required = Required(group)
    add_ports(required)
    add_what_counts_as_one(required)
    add_behaviors(required)
    add_several(required)
    add_inside(required)
    proxy = Group(
        "hmac_required_by_a_proxy", "An SR proxy that requires an HMAC.",
        node(routes=[f"{PROXY}/128 encap seg6local action End.AD oif eth2 nh6 fc02::1 require-hmac dev eth2"], hmac=keys((7,))),
    )
    add_proxy(Required(proxy))
    return [group, proxy]
