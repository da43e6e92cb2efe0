//! Packets without an SRH from a service behind End.AM: whether they may be the service's own.

use std::net::Ipv6Addr;

use sidestep_control::compile::Counted;
use sidestep_datapath::{Native, Verdict};
use sidestep_model::behavior::proxy::InnerType;
use sidestep_model::node::IfIndex;
use sidestep_testkit::differential::headers::{ETHERTYPE_IPV6, Ipv6, ethernet, ipv6, proto};

use super::bench::with;

/// Packets from these sources to the network return. Returns the number counted as foreign.
fn counted(sources: &[&str]) -> u64 {
    let (_, node, compiled) = with(&[
        "fc0f::a3/128 encap seg6local action End.AM oif eth2 iif eth3 nh6 fc02::1 dev eth2".into(),
        "2001:db8:5::/48 via fc02::1 dev eth2".into(),
        "2001:db8:6::/48 encap seg6 mode encap segs fc0a::9 dev eth1".into(),
    ]);
    let back = node.link_by_name("eth3").expect("a port").ifindex.0;
    let mut native = Native::new(&compiled.image);
    for source in sources {
        let fields = Ipv6 {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            source: source.parse().expect("an address"),
            destination: Ipv6Addr::new(0xfc0a, 0, 0, 0, 0, 0, 0, 1),
        };
        let packet = ipv6(&fields, proto::NO_NEXT_HEADER, &[]);
        let frame = ethernet(
            [2, 0, 0, 0, 0, 3],
            [2, 0, 0, 0, 0, 0x13],
            ETHERTYPE_IPV6,
            &packet,
        );
        let verdict = native.run(back, &frame);
        assert!(
            matches!(verdict, Verdict::Forward { .. }),
            "{source}: {verdict:?}"
        );
    }
    let slot = compiled.index.counters[&Counted::ReturnPath(IfIndex(back), InnerType::Ipv6)];
    let counters = native.route_counters(slot);
    assert_eq!(
        (counters.packets, counters.errors),
        (sources.len() as u64, 0)
    );
    counters.no_srh
}

#[test]
fn the_services_own_packets_do_not_count_as_stripped() {
    // Its addresses at either port, resolved or not, and prefixes routed to it.
    let own = [
        "fc02::1",
        "fc03::1",
        "fc02::77",
        "fc03::77",
        "2001:db8:5::1",
    ];
    for own in own {
        assert_eq!(counted(&[own]), 0, "{own}");
    }
    // It has no route.
    assert_eq!(counted(&["2001:db8:99::1"]), 0);
}

#[test]
fn network_packets_without_an_srh_are_counted_and_forwarded() {
    // A neighbor elsewhere, prefixes routed there, prefixes steered into a policy, and this node as
    // a headend.
    let others = ["fc00::1", "2001:db8:a::1", "2001:db8:6::1", "fc01::2"];
    assert_eq!(counted(&others), others.len() as u64);
}
