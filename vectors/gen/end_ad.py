"""End.AD (draft-ietf-spring-srv6-service-programming 6.2) learns outer headers and restores them.

The service is at eth2, as fc02::1 and 10.2.0.1. The proxy learns from the frames of `earlier`.
"""

from scapy.layers.inet6 import IPv6

from .case import Group, drop, forward, kernel, skip
from .decap import inner4, inner6
from .flow_label import label4, ports
from .node import ETH0, ETH1, ETH2, HEADEND, HOST4_0, HOST4_1, SEGMENT_1, SEGMENT_2, node, received, sent
from .wire import (
    DESTINATION_OPTIONS, IPV4, IPV6, OPTION_EXPERIMENT, ROUTING, SRH, UDP_PROTOCOL, options_header, padn, udp6,
)

# draft-ietf-spring-srv6-service-programming-00
DRAFT = "service-programming 6.2.1"
BACK = f"{DRAFT} inbound"
NO_LINUX = skip("Linux has no SR proxies")
SID6, SID4, OLD = "fc0f::d6", "fc0f::d4", "fc0f::d7"
NODE = node(
    routes=[
        f"{SID6}/128 encap seg6local action End.AD oif eth2 nh6 fc02::1 dev eth2",
        f"{SID4}/128 encap seg6local action End.AD oif eth2 nh4 10.2.0.1 age 0 dev eth2",
        f"{OLD}/128 encap seg6local action End.AD oif eth0 nh6 fc00::1 iif eth1 age 3600 dev eth0",
        "fc0f::1/128 encap seg6local action End dev eth0",
    ],
)
LAST = "2001:db8:b::9"
LABEL4 = label4(HOST4_0, HOST4_1, UDP_PROTOCOL, ports(4096, 53))


def outer(destination, segments_left, segments, next_header=IPV6, hop_limit=64, tc=0xA0, fl=0x00777, options=b"", **fields):
    """Outer headers of the payload."""
    srh = SRH(next_header=next_header, segments_left=segments_left, segment_list=segments, **fields)
    return IPv6(src=HEADEND, dst=destination, hlim=hop_limit, nh=DESTINATION_OPTIONS if options else ROUTING, tc=tc, fl=fl) / options / srh


def restored(destination, segments_left, segments, label=0x0BEEF, hop_limit=63, **fields):
    """The outer headers after the proxy: traffic class and flow label as a headend sets them."""
    return outer(destination, segments_left, segments, hop_limit=hop_limit, tc=0x28, fl=label, **fields)


def chain(sid):
    """The segment list of most cases."""
    return [LAST, SEGMENT_1, sid]


def counted(sid, error=False):
    """The counters of a SID after one packet."""
    return {"route": f"{sid}/128", "packets": 0 if error else 1, "errors": 1 if error else 0}


def add_way_back(group):
    """Packets from the service. In the first case, the proxy has not learned headers."""
    for sid, inner, family in ((SID6, inner6, "ipv6"), (SID4, inner4, "ipv4")):
        group.add(
            f"end_ad_back_of_{family}_before_anything_was_learned", [f"{BACK} S02"], ETH2,
            received(ETH2, inner(62)), drop("not_learned"), NO_LINUX,
        )
    taught = received(ETH0, outer(SID6, 2, chain(SID6)) / inner6(64))
    group.add(
        "end_ad_back_of_ipv6", [f"{BACK} S01-S05"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, chain(SID6)) / inner6(61))), NO_LINUX, earlier=[(ETH0, taught)],
    )
    group.add(
        "end_ad_back_of_ipv4", [f"{BACK} S01-S05"], ETH2, received(ETH2, inner4(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, chain(SID4), label=LABEL4, next_header=IPV4) / inner4(61))), NO_LINUX,
        earlier=[(ETH0, received(ETH0, outer(SID4, 2, chain(SID4), next_header=IPV4) / inner4(64)))],
    )
    group.add(
        "end_ad_back_of_the_last_but_one_segment", [f"{BACK} S01-S05"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 0, [SEGMENT_1, SID6]) / inner6(61))), NO_LINUX,
        earlier=[(ETH0, received(ETH0, outer(SID6, 1, [SEGMENT_1, SID6]) / inner6(64)))],
    )

    def own(hop_limit):
        return IPv6(src="fc02::1", dst=LAST, hlim=hop_limit, nh=UDP_PROTOCOL, tc=0x28, fl=0x0BEEF) / udp6("fc02::1", LAST)

    group.add(
        "end_ad_back_of_a_packet_that_the_service_made", [BACK], ETH2, received(ETH2, own(64)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, chain(SID6)) / own(63))), NO_LINUX, earlier=[(ETH0, taught)],
    )
    more = {"tlvs": padn(6), "tag": 7}
    options = options_header(ROUTING, OPTION_EXPERIMENT)
    group.add(
        "end_ad_back_with_options_tlvs_and_tag", [f"{DRAFT} S17.1"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, chain(SID6), options=options, **more) / inner6(61))), NO_LINUX,
        earlier=[(ETH0, received(ETH0, outer(SID6, 2, chain(SID6), options=options, **more) / inner6(64)))],
    )
    other = [LAST, SEGMENT_2, "fc0a::77", SID6]
    group.add(
        "end_ad_back_by_a_chain_that_has_changed", [f"{DRAFT} S17.1"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored("fc0a::77", 2, other) / inner6(61))), NO_LINUX,
        earlier=[(ETH0, taught), (ETH0, received(ETH0, outer(SID6, 3, other) / inner6(64)))],
    )
    group.add(
        "end_ad_back_by_a_chain_that_has_changed_to_a_shorter_one", [f"{DRAFT} S17.1"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 0, [SEGMENT_1, SID6]) / inner6(61))), NO_LINUX,
        earlier=[(ETH0, taught), (ETH0, received(ETH0, outer(SID6, 1, [SEGMENT_1, SID6]) / inner6(64)))],
    )
    many = [(ETH0, received(ETH0, outer(SID6, 2, [LAST, f"fc0a::{index:x}", SID6]) / inner6(64))) for index in range(1, 12)]
    group.add(
        "end_ad_back_by_the_last_of_many_chains", [f"{DRAFT} S17.1"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored("fc0a::b", 1, [LAST, "fc0a::b", SID6]) / inner6(61))), NO_LINUX, earlier=many,
    )
    first = received(ETH0, outer(OLD, 2, [LAST, SEGMENT_2, OLD]) / inner6(64))
    second = received(ETH0, outer(OLD, 2, [LAST, SEGMENT_1, OLD]) / inner6(64))
    group.add(
        "end_ad_back_by_the_chain_of_before_until_its_age_has_passed", [f"{DRAFT} S17.1"], ETH1, received(ETH1, inner6(62)),
        forward(ETH2, sent(ETH2, restored(SEGMENT_2, 1, [LAST, SEGMENT_2, OLD]) / inner6(61))), NO_LINUX,
        earlier=[(ETH0, first), (ETH0, second)],
    )
    group.add(
        "end_ad_back_of_what_was_learned_behind_another_sid", [f"{DRAFT} S12-S17", "8754 4.3.1"], ETH2, received(ETH2, inner6(62)),
        forward(ETH1, sent(ETH1, restored(SEGMENT_1, 1, [LAST, SEGMENT_1, SID6, "fc0f::1"], hop_limit=62) / inner6(61))), NO_LINUX,
        earlier=[(ETH0, received(ETH0, outer("fc0f::1", 3, [LAST, SEGMENT_1, SID6, "fc0f::1"]) / inner6(64)))],
    )
    group.add(
        "end_ad_back_with_hop_limit_1", [f"{BACK} S03"], ETH2, received(ETH2, inner6(1)), drop("hop_limit"), NO_LINUX,
        earlier=[(ETH0, taught)],
    )
    group.add(
        "end_ad_back_whose_next_segment_has_no_route", [f"{BACK} S05"], ETH2, received(ETH2, inner6(62)), drop("no_route"),
        NO_LINUX, earlier=[(ETH0, received(ETH0, outer(SID6, 2, [LAST, "2001:db8:dead::1", SID6]) / inner6(64)))],
    )
    group.add(
        "end_ad_back_to_an_address_of_the_interface", [BACK], ETH2, received(ETH2, inner6(62, destination="fc02::2")),
        kernel("local"), NO_LINUX,
    )


def add_way_in(group):
    """Packets to the service."""
    group.add(
        "end_ad_of_ipv6", [f"{DRAFT} S12-S17", f"{DRAFT} S17.1"], ETH0,
        received(ETH0, outer(SID6, 2, chain(SID6)) / inner6(64)), forward(ETH2, sent(ETH2, inner6(63))), NO_LINUX,
        counters=counted(SID6),
    )
    group.add(
        "end_ad_of_ipv4", [f"{DRAFT} S12-S17"], ETH0,
        received(ETH0, outer(SID4, 2, chain(SID4), next_header=IPV4) / inner4(64)), forward(ETH2, sent(ETH2, inner4(63))),
        NO_LINUX, counters=counted(SID4),
    )
    passed = chain(SID4)
    group.add(
        "end_ad_of_ipv4_lets_ipv6_pass_the_service_by", [f"{DRAFT} S12-S17"], ETH0,
        received(ETH0, outer(SID4, 2, passed) / inner6(64)),
        forward(ETH1, sent(ETH1, outer(SEGMENT_1, 1, passed, hop_limit=63) / inner6(64))), NO_LINUX,
    )
    group.add(
        "end_ad_as_the_last_segment", [f"{DRAFT} upper-layer", "8986 4.1.1"], ETH0,
        received(ETH0, outer(SID6, 0, chain(SID6)) / inner6(64)), drop("segments_left_zero"), NO_LINUX,
        counters=counted(SID6, error=True),
    )
    group.add(
        "end_ad_without_an_srh", [f"{DRAFT} upper-layer", "8986 4.1.1"], ETH0,
        received(ETH0, IPv6(src=HEADEND, dst=SID6, hlim=64, nh=IPV6) / inner6(64)), drop("no_srh"), NO_LINUX,
        counters=counted(SID6, error=True),
    )
    group.add(
        "end_ad_with_hop_limit_1", [f"{DRAFT} S05-S10"], ETH0,
        received(ETH0, outer(SID6, 2, chain(SID6), hop_limit=1) / inner6(64)), drop("hop_limit"), NO_LINUX,
    )
    longest = [f"fc0a::{index:x}" for index in range(1, 17)] + [SID6]
    group.add(
        "end_ad_of_headers_of_384_bytes", [f"{DRAFT} S17.1"], ETH0,
        received(ETH0, outer(SID6, 16, longest, tlvs=padn(62)) / inner6(64)), forward(ETH2, sent(ETH2, inner6(63))), NO_LINUX,
        about="The proxy learns at most 40 + 8 + 17 * 16 + 64 bytes.",
    )
    group.add(
        "end_ad_of_headers_of_392_bytes", [f"{DRAFT} S17.1"], ETH0,
        received(ETH0, outer(SID6, 16, longest, tlvs=padn(70)) / inner6(64)), drop("learned_length"), NO_LINUX,
        counters=counted(SID6, error=True),
    )


def groups():
    """Returns the vector files of this module."""
    group = Group("end_ad", "End.AD: the dynamic proxy, in both directions.", NODE)
    add_way_back(group)
    add_way_in(group)
    return [group]
