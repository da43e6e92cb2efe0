"""Returned packets that this node processes again, by the next service, another SID, or a policy.

One service is at eth2, the next one at eth1. SIDs in headers that the node itself adds do not need
seg6_enabled.
"""

from scapy.layers.inet6 import IPv6

from .case import Group, drop, forward, skip
from .decap import inner4, inner6
from .end_ad import counted, outer, restored
from .flow_label import label4, ports
from .h_encaps import TUNSRC, headers
from .node import ETH0, ETH1, ETH2, HOST4_0, HOST4_1, SEGMENT_1, node, received, sent
from .wire import IPV4, IPV6, ROUTING, SRH, UDP_PROTOCOL

# draft-ietf-spring-srv6-service-programming-00
STATIC, DYNAMIC, LOCAL = "service-programming 6.1.1.2", "service-programming 6.2.1", "8754 4.3.1"
NO_LINUX = skip("Linux has no SR proxies")
FIRST, SECOND, FIRST4, SECOND4 = "fc0f::d1", "fc0f::d2", "fc0f::a4", "fc0f::d4"
END, END_DT6, STEERED = "fc0f::1", "fc0f::46", "fc0e::1"
BY_SERVICE = "2001:db8:c1::/48"
SOURCE = "fc00:beef::1"
NODE = node(
    seg6_disabled=(ETH1, ETH2),
    routes=[
        f"{FIRST}/128 encap seg6local action End.AD oif eth2 nh6 fc02::1 dev eth2",
        f"{SECOND}/128 encap seg6local action End.AD oif eth1 nh6 fc01::1 dev eth1",
        f"{FIRST4}/128 encap seg6local action End.AS oif eth2 nh4 10.2.0.1 segs {SECOND4},{SEGMENT_1} src {SOURCE} dev eth2",
        f"{SECOND4}/128 encap seg6local action End.AD oif eth1 nh4 10.1.0.1 dev eth1",
        f"{END}/128 encap seg6local action End dev eth0",
        f"{END_DT6}/128 encap seg6local action End.DT6 table main dev eth0",
        f"{STEERED}/128 encap seg6 mode encap segs {SEGMENT_1} dev eth1",
        f"{BY_SERVICE} encap seg6 mode encap segs {SECOND},{SEGMENT_1} dev eth1",
    ],
    tunsrc=TUNSRC,
)
LAST = "2001:db8:b::9"
LABEL4 = label4(HOST4_0, HOST4_1, UDP_PROTOCOL, ports(4096, 53))


def taught(segments, hop_limit=64):
    """A packet to the first service with that segment list, from which its proxy learns."""
    return (ETH0, received(ETH0, outer(FIRST, len(segments) - 1, segments, hop_limit=hop_limit) / inner6(64)))


def add_services(group):
    """From one service to the next."""
    two = [LAST, SEGMENT_1, SECOND, FIRST]
    group.add(
        "end_ad_back_to_the_next_end_ad", [f"{DYNAMIC} inbound S01-S05", LOCAL], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, inner6(60))), NO_LINUX, earlier=[taught(two)], counters=counted(SECOND),
        about="The node decrements the hop limit when it encapsulates the packet and when it forwards it to the next service.",
    )
    group.add(
        "end_ad_back_of_the_second_service_in_a_row", [f"{DYNAMIC} inbound S01-S05", LOCAL], ETH1, received(ETH1, inner6(59)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, two, hop_limit=62) / inner6(58))), NO_LINUX,
        earlier=[taught(two), (ETH2, received(ETH2, inner6(62)))],
        about="Each SID decrements the outer hop limit.",
    )
    group.add(
        "end_as_back_to_an_end_ad", [f"{STATIC} inbound S01-S05", LOCAL], ETH2, received(ETH2, inner4(62)),
        forward(ETH1, sent(ETH1, inner4(60))), NO_LINUX, counters=counted(SECOND4),
    )
    group.add(
        "end_ad_back_behind_an_end_as", [f"{STATIC} inbound S01-S05", LOCAL], ETH1, received(ETH1, inner4(59)),
        forward(ETH1, sent(
            ETH1,
            IPv6(src=SOURCE, dst=SEGMENT_1, hlim=63, nh=ROUTING, tc=0x28, fl=LABEL4)
            / SRH(next_header=IPV4, segments_left=0, segment_list=[SEGMENT_1, SECOND4]) / inner4(58),
        )), NO_LINUX, earlier=[(ETH2, received(ETH2, inner4(62)))],
    )
    group.add(
        "end_ad_back_to_the_next_end_ad_with_hop_limit_1", [f"{DYNAMIC} inbound S03"], ETH2, received(ETH2, inner6(1)),
        drop("hop_limit"), NO_LINUX, earlier=[taught(two)],
    )
    group.add(
        "end_ad_back_to_the_next_end_ad_with_hop_limit_2", [f"{DYNAMIC} inbound S03"], ETH2, received(ETH2, inner6(2)),
        drop("hop_limit"), NO_LINUX, earlier=[taught(two)],
    )
    group.add(
        "end_ad_back_to_the_next_end_ad_with_outer_hop_limit_1", [f"{DYNAMIC} S05-S10"], ETH2, received(ETH2, inner6(62)),
        drop("hop_limit"), NO_LINUX, earlier=[taught(two, hop_limit=2)],
    )


def add_others(group):
    """From a service to a plain destination."""
    path = [LAST, SEGMENT_1, END, FIRST]
    group.add(
        "end_ad_back_to_end", [f"{DYNAMIC} inbound S01-S05", LOCAL], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, path, hop_limit=62) / inner6(61))), NO_LINUX, earlier=[taught(path)],
        counters=counted(END),
    )
    group.add(
        "end_ad_back_to_end_dt6", [f"{DYNAMIC} inbound S01-S05", LOCAL], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, inner6(60))), NO_LINUX, earlier=[taught([END_DT6, FIRST])], counters=counted(END_DT6),
    )
    three = [LAST, SEGMENT_1, END, END, END, FIRST]
    group.add(
        "end_ad_back_to_three_end_sids", [f"{DYNAMIC} inbound S01-S05", LOCAL], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, three, hop_limit=60) / inner6(61))), NO_LINUX, earlier=[taught(three)],
    )
    group.add(
        "end_ad_back_to_four_end_sids_is_too_long", [LOCAL], ETH2, received(ETH2, inner6(62)), drop("sid_loop"), NO_LINUX,
        earlier=[taught([LAST, SEGMENT_1, END, END, END, END, FIRST])],
    )
    group.add(
        "end_ad_back_to_end_without_a_route", [f"{DYNAMIC} inbound S05", LOCAL], ETH2, received(ETH2, inner6(62)),
        drop("no_route"), NO_LINUX, earlier=[taught([LAST, "2001:db8:dead::1", END, FIRST])],
    )
    steered = [LAST, STEERED, FIRST]
    group.add(
        "end_ad_back_into_a_policy", [f"{DYNAMIC} inbound S05", "8986 5.1"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(
            ETH1,
            headers([SEGMENT_1], IPV6, hop_limit=64, traffic_class=0x28, label=0x0BEEF, source=TUNSRC)
            / restored(STEERED, 1, steered, hop_limit=62) / inner6(61),
        )), NO_LINUX, earlier=[taught(steered)],
        about="The policy steers the packet like any forwarded packet.",
    )
    destination = "2001:db8:c1::1"
    group.add(
        "a_policy_whose_first_segment_is_an_end_ad_of_the_node", ["8986 5.1", LOCAL], ETH0,
        received(ETH0, inner6(64, destination=destination)), forward(ETH1, sent(ETH1, inner6(62, destination=destination))),
        NO_LINUX, counters=counted(SECOND),
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("proxies_in_a_row", "Packets that a service returns and that this node processes again.", NODE)
    add_services(group)
    add_others(group)
    return [group]
