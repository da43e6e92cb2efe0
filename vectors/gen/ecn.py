"""ECN at decapsulation: RFC 6040 4.2, figure 4, one case for each cell."""

from scapy.layers.inet6 import IPv6

from .case import SAME, Group, differs, drop, forward
from .node import ETH0, ETH1, HEADEND, HOST4_0, HOST4_1, HOST_0, HOST_1, node, received, sent
from .wire import IPV4, IPV6, ROUTING, SRH, UDP_PROTOCOL, ipv4, udp4, udp6

NOT_ECT, ECT1, ECT0, CE = range(4)
NAMES = {NOT_ECT: "not_ect", ECT1: "ect1", ECT0: "ect0", CE: "ce"}

# RFC 6040 figure 4: rows are the arriving inner header, columns the arriving outer header; None is "drop".
OUTGOING = {
    NOT_ECT: {NOT_ECT: NOT_ECT, ECT0: NOT_ECT, ECT1: NOT_ECT, CE: None},
    ECT0: {NOT_ECT: ECT0, ECT0: ECT0, ECT1: ECT1, CE: CE},
    ECT1: {NOT_ECT: ECT1, ECT0: ECT1, ECT1: ECT1, CE: CE},
    CE: {NOT_ECT: CE, ECT0: CE, ECT1: CE, CE: CE},
}
DSCP_OUTER = 46
DSCP_INNER = 10
WHY = "seg6_local.c ignores the outer ECN field (no RFC 6040 decapsulation)"


def inner6(hop_limit, ecn):
    """Inner IPv6 packet with its own DSCP."""
    return IPv6(src=HOST_0, dst=HOST_1, hlim=hop_limit, nh=UDP_PROTOCOL, tc=DSCP_INNER << 2 | ecn) / udp6(HOST_0, HOST_1)


def inner4(ttl, ecn):
    """Inner IPv4 packet with its own DSCP."""
    return ipv4(src=HOST4_0, dst=HOST4_1, ttl=ttl, tos=DSCP_INNER << 2 | ecn) / udp4()


def groups():
    """Returns the vector files of this module."""
    group = Group(
        "ecn_decapsulation", "ECN at decapsulation (RFC 6040). The node discards the outer DSCP.",
        node(routes=[
            "fc0f::d6/128 encap seg6local action End.DT6 table main dev eth0",
            "fc0f::d4/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0",
        ]),
    )
    for family, sid, protocol, inner in (("ipv6", "fc0f::d6", IPV6, inner6), ("ipv4", "fc0f::d4", IPV4, inner4)):
        for inner_ecn, row in OUTGOING.items():
            for outer_ecn, outgoing in row.items():
                header = IPv6(src=HEADEND, dst=sid, hlim=64, nh=ROUTING, tc=DSCP_OUTER << 2 | outer_ecn)
                unchanged = forward(ETH1, sent(ETH1, inner(63, inner_ecn)))
                group.add(
                    f"ecn_{family}_outer_{NAMES[outer_ecn]}_inner_{NAMES[inner_ecn]}", "6040 4.2", ETH0,
                    received(ETH0, header / SRH(next_header=protocol, segment_list=[sid]) / inner(64, inner_ecn)),
                    drop("ecn") if outgoing is None else forward(ETH1, sent(ETH1, inner(63, outgoing))),
                    linux=SAME if outgoing == inner_ecn else differs(unchanged, WHY),
                )
    return [group]
