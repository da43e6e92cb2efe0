"""NEXT-C-SID (RFC 9800 4.1) with PSP, USP and USD, with End.T and End.B6.Encaps, and before End.DT4
and End.DT46.
"""

from .case import SAME, Group, differs, drop, forward, skip
from .csid import ADJACENT, ALL, BEHIND_1, LOCAL, NOWHERE, RFC, USUAL, neighbors_of, packet, sid_route, with_srh
from .decap import FALLS_THROUGH, inner4, inner6
from .flow_label import label6, ports
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, ETH2, HEADEND, SEGMENT_1, node, received, sent
from .wire import IPV4, IPV6, ROUTING, UDP_PROTOCOL, udp6

FLAVOR = f"next-csid {USUAL.words}"


def add_psp(group):
    """PSP with NEXT-C-SID removes the SRH when Segments Left becomes 0, not within a container."""
    why = "end_next_csid_core calls input_action_end_core, which does not implement PSP"
    sid = USUAL.container(LOCAL)
    udp = udp6(HEADEND, SEGMENT_1)
    path = [SEGMENT_1, sid]
    group.add(
        "csid_psp_removes_the_srh_when_segments_left_becomes_0", [RFC, "8986 4.16.1"], ETH0,
        received(ETH0, with_srh(sid, 64, 1, path)), forward(ETH1, sent(ETH1, packet(SEGMENT_1, 63, udp))),
        linux=differs(forward(ETH1, sent(ETH1, with_srh(SEGMENT_1, 63, 0, path))), why),
    )
    three = [SEGMENT_1, "fc0b::2", sid]
    group.add(
        "csid_psp_keeps_the_srh_before_that", [RFC, "8986 4.16.1"], ETH0,
        received(ETH0, with_srh(sid, 64, 2, three)), forward(ETH2, sent(ETH2, with_srh("fc0b::2", 63, 1, three))),
    )
    for segments_left in (0, 1, 2):
        group.add(
            f"csid_psp_keeps_an_srh_with_segments_left_{segments_left}_while_the_container_goes_on", [RFC, "8986 4.16.1"], ETH0,
            received(ETH0, with_srh(USUAL.container(LOCAL, BEHIND_1), 64, segments_left, three)),
            forward(ETH1, sent(ETH1, with_srh(USUAL.container(BEHIND_1), 63, segments_left, three))),
        )
    group.add(
        "csid_psp_without_an_srh", RFC, ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, BEHIND_1))), forward(ETH1, sent(ETH1, packet(USUAL.container(BEHIND_1), 63))),
    )
    path = [SEGMENT_1, USUAL.container(LOCAL, LOCAL)]
    group.add(
        "csid_psp_chain_removes_the_srh_at_the_end_of_the_container", [RFC, "8986 4.16.1"], ETH0,
        received(ETH0, with_srh(path[1], 64, 1, path)), forward(ETH1, sent(ETH1, packet(SEGMENT_1, 62, udp))),
        linux=differs(forward(ETH1, sent(ETH1, with_srh(SEGMENT_1, 63, 0, path))), why),
    )
    path = [USUAL.container(LOCAL, BEHIND_1), sid]
    payload = udp6(HEADEND, USUAL.container(BEHIND_1))
    group.add(
        "csid_psp_removes_the_srh_and_the_last_segment_is_a_container_of_this_node", [RFC, "8986 4.16.1"], ETH0,
        received(ETH0, with_srh(sid, 64, 1, path, payload=payload)),
        forward(ETH1, sent(ETH1, packet(USUAL.container(BEHIND_1), 62, payload))),
        linux=differs(forward(ETH1, sent(ETH1, with_srh(USUAL.container(BEHIND_1), 63, 0, path, payload=payload))), why),
    )
    group.add(
        "csid_psp_with_segments_left_zero", "8986 4.1 S02", ETH0,
        received(ETH0, with_srh(sid, 64, 0, [sid])), drop("segments_left_zero"),
    )


def add_usd(group):
    """USD and USP with NEXT-C-SID, and PSP with End.X, which only Sidestep supports."""
    linux = skip("Linux has neither USP nor USD, and PSP for End only (seg6_flv_supp_ops_by_action)")
    for name, csid, egress in (("csid_usd", LOCAL, ETH1), ("csid_end_x_usd", ADJACENT, ETH2)):
        sid = USUAL.container(csid)
        for family, protocol, inner in (("ipv6", IPV6, inner6), ("ipv4", IPV4, inner4)):
            group.add(
                f"{name}_of_{family}_at_the_end_of_the_container", [RFC, "8986 4.16.3"], ETH0,
                received(ETH0, packet(sid, 64, inner(33), protocol)), forward(egress, sent(egress, inner(32))), linux,
            )
            group.add(
                f"{name}_of_{family}_with_segments_left_zero", [RFC, "8986 4.16.3"], ETH0,
                received(ETH0, with_srh(sid, 64, 0, [sid], protocol, inner(33))), forward(egress, sent(egress, inner(32))), linux,
            )
            container = USUAL.container(csid, BEHIND_1)
            group.add(
                f"{name}_of_{family}_while_the_container_goes_on", RFC, ETH0,
                received(ETH0, packet(container, 64, inner(33), protocol)),
                forward(egress, sent(egress, packet(USUAL.container(BEHIND_1), 63, inner(33), protocol))), linux,
            )
        path = [SEGMENT_1, sid]
        group.add(
            f"{name}_with_psp_removes_the_srh", [RFC, "8986 4.16.1"], ETH0,
            received(ETH0, with_srh(sid, 64, 1, path)),
            forward(egress, sent(egress, packet(SEGMENT_1, 63))), linux,
        )
        group.add(
            f"{name}_of_udp_at_the_end_of_the_container", "8986 4.1.1", ETH0, received(ETH0, packet(sid)), drop("upper_layer"), linux,
        )
        group.add(
            f"{name}_with_hop_limit_1", f"{RFC} S02", ETH0,
            received(ETH0, packet(USUAL.container(csid, BEHIND_1), 1)), drop("hop_limit"), linux,
        )
    group.add(
        "csid_usd_chain_then_usd", [RFC, "8986 4.16.3"], ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, LOCAL), 64, inner6(33), IPV6)), forward(ETH1, sent(ETH1, inner6(32))), linux,
    )
    group.add(
        "csid_usd_to_a_next_one_without_a_route", f"{RFC} S08", ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, NOWHERE))), drop("no_route"), linux,
    )


FLAVORS = {
    1: "psp", 2: "usp", 3: "psp,usp", 4: "usd", 5: "psp,usd", 6: "usp,usd", 7: "psp,usp,usd",
}
RFC_FLAVORS = "9800 4.1.7"
BEHAVIORS = (("end", "End", 0x100, ETH1), ("end_x", "End.X nh6 fc02::1", 0x200, ETH2), ("end_t", "End.T table 100", 0x300, ETH2))


def add_every_flavor(group):
    """PSP, USP and USD in every combination take effect at the end of a container, not within it."""
    linux = skip("Linux has PSP with NEXT-C-SID on End only, and neither USP nor USD (seg6_flv_supp_ops_by_action)")
    for name, _, base, egress in BEHAVIORS:
        for bits, flavors in FLAVORS.items():
            csid, pops, usp, usd = base | bits, bits & 1, bits & 2, bits & 4
            prefix = f"csid_{name}_{flavors.replace(',', '_')}"
            here, sid = USUAL.container(csid, BEHIND_1), USUAL.container(csid)
            three = [SEGMENT_1, "fc0a::2", sid]

            def goes_on(what, before, after, prefix=prefix, egress=egress):
                group.add(f"{prefix}_{what}", RFC_FLAVORS, ETH0, received(ETH0, before), forward(egress, sent(egress, after)), linux)

            for left in (0, 1, 2):
                goes_on(f"in_a_container_with_segments_left_{left}", with_srh(here, 64, left, three),
                        with_srh(USUAL.container(BEHIND_1), 63, left, three))
            goes_on("in_a_container_over_ipv6", packet(here, 64, inner6(33), IPV6),
                    packet(USUAL.container(BEHIND_1), 63, inner6(33), IPV6))
            goes_on("at_the_end_with_segments_left_2", with_srh(sid, 64, 2, three), with_srh("fc0a::2", 63, 1, three))
            goes_on("at_the_end_with_segments_left_1", with_srh(sid, 64, 1, three),
                    packet(SEGMENT_1, 63) if pops else with_srh(SEGMENT_1, 63, 0, three))
            for family, protocol, inner in (("ipv6", IPV6, inner6), ("ipv4", IPV4, inner4)):
                for what, before, without in (
                    ("with_segments_left_0", with_srh(sid, 64, 0, [sid], protocol, inner(33)), "upper_layer" if usp else "segments_left_zero"),
                    ("without_an_srh", packet(sid, 64, inner(33), protocol), "no_srh"),
                ):
                    if usd:
                        goes_on(f"of_{family}_at_the_end_{what}", before, inner(32))
                    else:
                        group.add(f"{prefix}_of_{family}_at_the_end_{what}", RFC_FLAVORS, ETH0, received(ETH0, before), drop(without), linux)
            group.add(f"{prefix}_of_udp_at_the_end_with_segments_left_0", RFC_FLAVORS, ETH0, received(ETH0, with_srh(sid, 64, 0, [sid])),
                      drop("upper_layer" if usp or usd else "segments_left_zero"), linux)


def add_table(group):
    """uDT4 and uDT46 (End.DT4 and End.DT46 reached as the last C-SID)."""
    linux = SAME
    for name, csid, families in (("end_dt46", 0x46, (IPV6, IPV4)), ("end_dt4", 0xD4, (IPV4,))):
        rfc = "8986 4.8" if csid == 0x46 else "8986 4.7"
        for family in families:
            inner, word = (inner6, "ipv6") if family == IPV6 else (inner4, "ipv4")
            for what, destination in (
                ("csid_then", USUAL.container(LOCAL, csid)), ("csid_chain_then", USUAL.container(LOCAL, LOCAL, csid)),
            ):
                group.add(
                    f"{what}_{name}_of_{word}", [RFC, rfc], ETH0,
                    received(ETH0, packet(destination, 64, inner(33), family)), forward(ETH2, sent(ETH2, inner(32))), linux,
                )
            path = [USUAL.container(csid), USUAL.container(LOCAL)]
            group.add(
                f"csid_last_of_its_container_then_{name}_of_{word}", [RFC, rfc], ETH0,
                received(ETH0, with_srh(path[1], 64, 1, path, family, inner(33))), forward(ETH2, sent(ETH2, inner(32))), linux,
            )
        group.add(
            f"csid_then_{name}_of_udp", "8986 4.1.1", ETH0,
            received(ETH0, packet(USUAL.container(LOCAL, csid))), drop("upper_layer"), linux,
        )
    group.add(
        "csid_then_end_dt4_of_ipv6", "8986 4.1.1", ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, 0xD4), 64, inner6(33), IPV6)), drop("upper_layer"), linux,
    )
    group.add(
        "csid_then_end_dt46_without_a_route_in_its_table", "8986 4.8", ETH0,
        received(ETH0, packet(USUAL.container(LOCAL, 0x46), 64, inner6(33, destination="2001:db8:b::1"), IPV6)),
        drop("no_route"), differs(forward(ETH2, sent(ETH2, inner6(32, destination="2001:db8:b::1"))), FALLS_THROUGH),
    )


RFC_T, RFC_B6, RFC_B6_RED = "9800 4.1.3", "9800 4.1.4", "9800 4.1.5"


def add_end_t(group):
    """End.T looks up the next C-SID in the SID's table, whose routes lead to eth2."""
    linux = skip("Linux has NEXT-C-SID on End and End.X only (seg6_flv_supp_ops_by_action)")
    for lengths in ALL:
        for count in range(2, lengths.room + 1):
            csids = [LOCAL, BEHIND_1] + [0x31 + index for index in range(count - 2)]
            group.add(
                f"csid_end_t_{lengths.name}_container_of_{count}", RFC_T, ETH0,
                received(ETH0, packet(lengths.container(*csids))),
                forward(ETH2, sent(ETH2, packet(lengths.container(*csids[1:]), 63))), linux,
                counters={"route": lengths.prefix(LOCAL), "packets": 1, "errors": 0} if count == 2 else None,
            )
    sid = USUAL.container(LOCAL)
    three = [SEGMENT_1, "fc0a::2", sid]
    group.add(
        "csid_end_t_last_of_its_container_goes_on_in_the_srh", [RFC_T, "8986 4.3"], ETH0,
        received(ETH0, with_srh(sid, 64, 2, three)), forward(ETH2, sent(ETH2, with_srh("fc0a::2", 63, 1, three))), linux,
    )
    group.add(
        "csid_end_t_with_psp_removes_the_srh", [RFC_T, "8986 4.16.1"], ETH0,
        received(ETH0, with_srh(sid, 64, 1, three)), forward(ETH2, sent(ETH2, packet(SEGMENT_1, 63))), linux,
    )
    group.add(
        "csid_end_t_leaves_the_srh_alone_while_the_container_goes_on", RFC_T, ETH0,
        received(ETH0, with_srh(USUAL.container(LOCAL, BEHIND_1), 64, 1, three)),
        forward(ETH2, sent(ETH2, with_srh(USUAL.container(BEHIND_1), 63, 1, three))), linux,
    )
    for family, protocol, inner in (("ipv6", IPV6, inner6), ("ipv4", IPV4, inner4)):
        group.add(
            f"csid_end_t_with_usd_of_{family}_at_the_end_of_the_container", [RFC_T, "8986 4.16.3"], ETH0,
            received(ETH0, packet(sid, 64, inner(33), protocol)), forward(ETH2, sent(ETH2, inner(32))), linux,
        )
    for name, rfc, arrived, reason in (
        ("to_a_next_one_that_only_main_has", RFC_T, packet(USUAL.container(LOCAL, NOWHERE)), "no_route"),
        ("of_udp_at_the_end_of_the_container", "8986 4.1.1", packet(sid), "upper_layer"),
        ("with_hop_limit_1", f"{RFC} S02", packet(USUAL.container(LOCAL, BEHIND_1), 1), "hop_limit"),
        ("with_segments_left_beyond_last_entry", "8986 4.1 S09", with_srh(sid, 64, 4, three), "srh_segments_left"),
    ):
        group.add(f"csid_end_t_{name}", rfc, ETH0, received(ETH0, arrived), drop(reason), linux)


def add_end_b6(group):
    """End.B6.Encaps and End.B6.Encaps.Red: the policy encapsulates the shifted packet."""
    linux = skip("Linux has NEXT-C-SID on End and End.X only (seg6_flv_supp_ops_by_action)")
    path = ["fc0a::1", "fc0b::2"]
    for name, csid, reduced, rfc in (("csid_end_b6_encaps", 0xB6, False, RFC_B6), ("csid_end_b6_encaps_red", 0xB7, True, RFC_B6_RED)):

        def outer(destination, first=UDP_PROTOCOL, first_four=ports(4096, 53), reduced=reduced):
            return headers(path, IPV6, reduced, hop_limit=64, label=label6(HEADEND, destination, first, first_four))

        for count in (2, 6):
            rest = [BEHIND_1] + [0x31 + index for index in range(count - 2)]
            there = USUAL.container(*rest)
            group.add(
                f"{name}_container_of_{count}", rfc, ETH0, received(ETH0, packet(USUAL.container(csid, *rest))),
                forward(ETH1, sent(ETH1, outer(there) / packet(there, 63))), linux,
            )
        here, there = USUAL.container(csid, BEHIND_1), USUAL.container(BEHIND_1)
        segments = [SEGMENT_1, here]
        group.add(
            f"{name}_leaves_the_srh_alone_while_the_container_goes_on", rfc, ETH0, received(ETH0, with_srh(here, 64, 1, segments)),
            forward(ETH1, sent(ETH1, outer(there, ROUTING, bytes(4)) / with_srh(there, 63, 1, segments))), linux,
        )
        sid = USUAL.container(csid)
        segments = [SEGMENT_1, sid]
        group.add(
            f"{name}_last_of_its_container_goes_on_in_the_srh", [rfc, "8986 4.13"], ETH0,
            received(ETH0, with_srh(sid, 64, 1, segments)),
            forward(ETH1, sent(ETH1, outer(SEGMENT_1, ROUTING, bytes(4)) / with_srh(SEGMENT_1, 63, 0, segments))), linux,
        )
        group.add(f"{name}_last_of_its_container_without_an_srh", "8986 4.1.1", ETH0, received(ETH0, packet(sid)), drop("no_srh"), linux)
        group.add(
            f"{name}_with_hop_limit_1", f"{RFC} S02", ETH0, received(ETH0, packet(here, 1)), drop("hop_limit"), linux,
        )


def groups():
    """Returns the vector files of this module."""
    psp = Group(
        "csid_psp", "NEXT-C-SID and PSP on End.",
        node(routes=[sid_route(USUAL, LOCAL, f"End flavors psp,{FLAVOR}")] + neighbors_of(USUAL)),
    )
    add_psp(psp)
    usd = Group(
        "csid_usd", "NEXT-C-SID with flavors that Linux does not have.",
        node(routes=[
            sid_route(USUAL, LOCAL, f"End flavors psp,usp,usd,{FLAVOR}"),
            sid_route(USUAL, ADJACENT, f"End.X nh6 fc02::1 flavors psp,usp,usd,{FLAVOR}"),
        ] + neighbors_of(USUAL)),
    )
    add_usd(usd)
    table = Group(
        "csid_dt", "End.DT4 and End.DT46 as the last C-SID of a container.",
        node(routes=[
            sid_route(USUAL, LOCAL, f"End flavors {FLAVOR}"),
            sid_route(USUAL, 0x46, "End.DT46 table 100"),
            sid_route(USUAL, 0xD4, "End.DT4 table 100"),
            "2001:db8:a::/48 via fc02::1 dev eth2 table 100",
            "198.51.100.0/24 via 10.2.0.1 dev eth2 table 100",
        ]),
    )
    add_table(table)
    all_lengths = Group(
        "csid_end_t", "NEXT-C-SID on End.T.",
        node(routes=[
            line
            for lengths in ALL
            for line in (
                sid_route(lengths, LOCAL, f"End.T table 100 flavors psp,usd,next-csid {lengths.words}"),
                f"{lengths.prefix(BEHIND_1)} via fc01::1 dev eth1",
                f"{lengths.prefix(BEHIND_1)} via fc02::1 dev eth2 table 100",
            )
        ] + [
            f"{USUAL.prefix(NOWHERE)} via fc01::1 dev eth1",
            "fc0a::/16 via fc02::1 dev eth2 table 100",
            "2001:db8:a::/48 via fc02::1 dev eth2 table 100",
            "198.51.100.0/24 via 10.2.0.1 dev eth2 table 100",
        ]),
    )
    add_end_t(all_lengths)
    binding = Group(
        "csid_end_b6", "NEXT-C-SID on End.B6.Encaps and End.B6.Encaps.Red.",
        node(routes=[
            sid_route(USUAL, csid, f"{action} srh segs fc0a::1,fc0b::2 flavors {FLAVOR}")
            for csid, action in ((0xB6, "End.B6.Encaps"), (0xB7, "End.B6.Encaps.Red"))
        ], tunsrc=TUNSRC),
    )
    add_end_b6(binding)
    every = Group(
        "csid_every_flavor", "NEXT-C-SID with PSP, USP and USD, in every combination.",
        node(routes=[
            sid_route(USUAL, base | bits, f"{words} flavors {flavors},{FLAVOR}")
            for _, words, base, _ in BEHAVIORS for bits, flavors in FLAVORS.items()
        ] + neighbors_of(USUAL) + [
            f"{USUAL.prefix(BEHIND_1)} via fc02::1 dev eth2 table 100",
            "fc0a::/16 via fc02::1 dev eth2 table 100",
            "2001:db8:a::/48 via fc02::1 dev eth2 table 100",
            "198.51.100.0/24 via 10.2.0.1 dev eth2 table 100",
        ]),
    )
    add_every_flavor(every)
    return [psp, usd, table, all_lengths, binding, every]
