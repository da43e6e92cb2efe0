//! Two customers joined by `SRv6` over three routers, with the program on both ports of each.
//! Packets of real hosts must arrive unmodified, with correct checksums, and the packet path must
//! forward them.

use std::time::Instant;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;
use sidestep_testkit::offload::Offload;

use crate::support::hosts::{
    Chain, ROUTERS, began_at_tc, cross, print_duration, transfer, were_left_uncut,
};
use crate::support::{begin, report};

/// Returns a chain with End in the middle.
fn chain() -> Chain {
    Chain::new("livechain", &MIDDLE, [["fc00:2::e"; 2]; 2])
}

const MIDDLE: [&str; 5] = [
    "address add fc00:12::2/64 dev eth0",
    "address add fc00:23::2/64 dev eth1",
    "route add fc00:1::/48 via fc00:12::1 dev eth0",
    "route add fc00:3::/48 via fc00:23::3 dev eth1",
    "route add fc00:2::e/128 encap seg6local action End dev eth0",
];

/// Checks that the packet path forwarded the packets, except for neighbor resolution.
fn check_carried(chain: &Chain, mode: &str) {
    let tally = chain.tally();
    let why = ROUTERS.map(|router| crate::support::reasons(chain.node(router)));
    let place = format!("{mode}: {tally:?}\n{why:#?}");
    assert_eq!(
        tally.received_packets,
        tally.forwarded + tally.punted + tally.dropped,
        "{place}"
    );
    assert_eq!(tally.dropped, 0, "{place}");
    assert!(tally.forwarded > 3 * 200, "{place}");
    assert!(
        tally.punted < 200 && tally.punted * 10 < tally.forwarded,
        "{place}"
    );
    // Every encapsulation and every SID processed packets in both directions.
    for (router, count) in [("pe1", 4), ("p", 1), ("pe2", 4)] {
        let routes: report::Routes = report(chain.node(router), Request::ShowRoutes { all: false });
        assert_eq!(routes.len(), count, "{router}: {routes:?}");
        for route in routes {
            assert!(route.packets > 20, "{mode}, {router}: {route:?}");
            assert_eq!(route.errors, 0, "{mode}, {router}: {route:?}");
            assert_eq!(route.punt_reason, None, "{mode}, {router}");
        }
    }
}

#[test]
fn ping_and_tcp_cross_three_routers_with_tc_and_all_offloads_on() {
    let Some(_turn) = begin() else {
        return;
    };
    let chain = chain();
    let daemons = chain.start("auto", &[]);
    began_at_tc(&daemons);
    let started = Instant::now();
    let judged = cross(&chain);
    print_duration("tc, offloads on", started, judged);
    check_carried(&chain, "auto");
    were_left_uncut(&judged);
}

#[test]
fn the_receivers_tcp_joins_segments_that_crossed_with_offloads() {
    let Some(_turn) = begin() else {
        return;
    };
    let chain = chain();
    let _daemons = chain.start("tc", &[]);
    let (a, b) = (chain.node("a"), chain.node("b"));
    let joined = || b.counters().expect("counters")["TcpExtTCPRcvCoalesce"];
    for to in ["2001:db8:b::2", "10.0.2.2"] {
        let before = joined();
        transfer(a, b, to.parse().expect("an address"));
        assert!(joined() > before, "{to}");
    }
}

#[test]
fn what_is_left_to_the_last_device_is_completed_there_after_decapsulation() {
    let Some(_turn) = begin() else {
        return;
    };
    // The egress of a decapsulated packet offloads neither: the kernel segments and computes
    // checksums from the state that the packet path preserved. First there only, then on every
    // cable of the core.
    let chain = chain();
    let _daemons = chain.start("tc", &[]);
    let off = Offload {
        rx_checksum: None,
        gro: None,
        ..Offload::OFF
    };
    for core_too in [false, true] {
        let place = if core_too {
            "every router's ports"
        } else {
            "the last port"
        };
        chain.offload(&["pe1"], &["eth0"], off);
        chain.offload(&["pe2"], &["eth1"], off);
        if core_too {
            chain.offload(&ROUTERS, &["eth0", "eth1"], off);
        }
        let started = Instant::now();
        let judged = cross(&chain);
        print_duration(&format!("tc, offloads off at {place}"), started, judged);
        for at_host in judged {
            assert!(at_host.right > 1000, "{place}: {judged:?}");
            assert_eq!(at_host.left_to_device, 0, "{place}: {judged:?}");
            assert!(at_host.longest <= 1514, "{place}: {judged:?}");
        }
    }
    check_carried(&chain, "tc");
}

#[test]
fn ping_and_tcp_cross_three_routers_with_xdp_and_complete_frames() {
    let Some(_turn) = begin() else {
        return;
    };
    if crate::support::modes(&["xdp-always"]).is_empty() {
        return;
    }
    let chain = chain();
    // As with network cards: checksums complete, segments of MTU size, and no GRO at the receiver.
    chain.offload(&["a", "b"], &["eth0"], Offload::OFF);
    let _napi = ["a", "b"].map(|host| Napi::attach(chain.node(host), "eth0").expect("NAPI"));
    let daemons = chain.start("xdp-always", &[]);
    for daemon in &daemons {
        assert!(daemon.began.contains("eth0 (xdp)"), "{}", daemon.began);
    }
    let started = Instant::now();
    let judged = cross(&chain);
    print_duration("xdp-always", started, judged);
    check_carried(&chain, "xdp-always");
    for at_host in judged {
        assert!(at_host.right > 1000, "{judged:?}");
        assert_eq!(at_host.left_to_device, 0, "{judged:?}");
    }
}
