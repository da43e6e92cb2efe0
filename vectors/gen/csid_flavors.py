"""NEXT-C-SID (RFC 9800 4.1) beside PSP, USP and USD, and in front of End.DT4 and End.DT46."""

from .case import Group, differs, drop, forward, skip
from .csid import ADJACENT, BEHIND_1, LOCAL, NOWHERE, RFC, USUAL, neighbors_of, packet, sid_route, with_srh
from .decap import NO_VRF, inner4, inner6
from .node import ETH0, ETH1, ETH2, HEADEND, SEGMENT_1, node, received, sent
from .wire import IPV4, IPV6, udp6

FLAVOR = f"next-csid {USUAL.words}"


def add_psp(group):
    """PSP beside NEXT-C-SID: when Segments Left becomes 0, not when a container goes on."""
    why = "end_next_csid_core goes on with input_action_end_core, which knows no PSP"
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
        received(ETH0, with_srh(path[1], 64, 1, path)), forward(ETH1, sent(ETH1, packet(SEGMENT_1, 63, udp))),
        linux=differs(forward(ETH1, sent(ETH1, with_srh(SEGMENT_1, 63, 0, path))), why),
    )
    path = [USUAL.container(LOCAL, BEHIND_1), sid]
    payload = udp6(HEADEND, USUAL.container(BEHIND_1))
    group.add(
        "csid_psp_removes_the_srh_and_the_last_segment_is_a_container_of_this_node", [RFC, "8986 4.16.1"], ETH0,
        received(ETH0, with_srh(sid, 64, 1, path, payload=payload)),
        forward(ETH1, sent(ETH1, packet(USUAL.container(BEHIND_1), 63, payload))),
        linux=differs(forward(ETH1, sent(ETH1, with_srh(USUAL.container(BEHIND_1), 63, 0, path, payload=payload))), why),
    )
    group.add(
        "csid_psp_with_segments_left_zero", "8986 4.1 S02", ETH0,
        received(ETH0, with_srh(sid, 64, 0, [sid])), drop("segments_left_zero"),
    )


def add_usd(group):
    """USD and USP beside NEXT-C-SID, and PSP on End.X: Sidestep's alone."""
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


def add_table(group):
    """uDT4 and uDT46 (End.DT4 and End.DT46 reached as the last C-SID)."""
    linux = skip(NO_VRF)
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
        drop("no_route"), linux,
    )


def groups():
    """The files of this module."""
    psp = Group(
        "csid_psp", "NEXT-C-SID and PSP on End.",
        node(routes=[sid_route(USUAL, LOCAL, f"End flavors psp,{FLAVOR}")] + neighbors_of(USUAL)),
    )
    add_psp(psp)
    usd = Group(
        "csid_usd", "NEXT-C-SID beside the flavors that Linux does not have.",
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
    return [psp, usd, table]
