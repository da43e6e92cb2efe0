//! Neighbors of the packet path: which ones the kernel is asked for, and when.

use std::net::IpAddr;
use std::time::Duration;

use super::SECOND;
use crate::daemon::simulated::{STAR, Simulation};

const NEXT: &str = "fc00:b::9";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Requests of an address since the last call.
fn requests(node: &mut Simulation, of: &str) -> usize {
    let all = std::mem::take(&mut node.instance.mirror.requested);
    all.iter()
        .filter(|(_, asked)| *asked == address(of))
        .count()
}

/// A packet uses all next hops to this address.
fn is_used(node: &Simulation, via: &str) {
    let tables = &node.instance.tables;
    let all = tables.compiled.index.adjacencies.iter();
    let used = all.filter(|(_, info)| info.via == Some(address(via)));
    tables
        .kernel
        .used
        .borrow_mut()
        .extend(used.map(|(index, _)| *index));
}

fn with_route() -> Simulation {
    let mut node = Simulation::new();
    node.ip("route add fd00::/16 via fc00:b::9 dev eth1");
    node
}

#[test]
fn an_unresolved_next_hop_is_requested_at_once_and_then_ever_more_rarely() {
    let mut node = with_route();
    assert_eq!(node.verdict("fd00::1"), "punt neighbor");
    node.run(Duration::from_millis(200));
    assert_eq!(requests(&mut node, NEXT), 1);
    node.run(SECOND * 10);
    let first = requests(&mut node, NEXT);
    node.run(SECOND * 100);
    let later = requests(&mut node, NEXT);
    assert!((2..=4).contains(&first) && later <= 5, "{first}, {later}");
    node.ip("neigh add fc00:b::9 lladdr 02:00:00:00:00:19 dev eth1 nud reachable");
    assert_eq!(node.verdict("fd00::1"), "forward eth1");
    node.run(SECOND * 200);
    assert_eq!(
        requests(&mut node, NEXT),
        0,
        "it is resolved, and no packet uses it"
    );
}

#[test]
fn a_neighbor_in_use_is_refreshed_and_one_without_traffic_ages() {
    let mut node = with_route();
    node.ip("neigh add fc00:b::9 lladdr 02:00:00:00:00:19 dev eth1 nud reachable");
    node.run(SECOND);
    requests(&mut node, NEXT);
    for _ in 0..600 {
        is_used(&node, NEXT);
        node.run(SECOND / 10);
    }
    let found = requests(&mut node, NEXT);
    assert!((3..=4).contains(&found), "{found} requests in a minute");
    let key = (node.dev("eth1"), address(NEXT));
    node.instance.mirror.stale.insert(key);
    node.run(SECOND * 60);
    assert_eq!(requests(&mut node, NEXT), 0, "no packet needs it");
    is_used(&node, NEXT);
    node.run(SECOND / 2);
    assert_eq!(requests(&mut node, NEXT), 1, "the first packet");
}

#[test]
fn a_neighbor_that_moves_is_followed() {
    let mut node = with_route();
    for last in [0x19, 0x29] {
        node.ip(&format!(
            "neigh add fc00:b::9 lladdr 02:00:00:00:00:{last:x} dev eth1"
        ));
        let (_, frame) = node.packet("eth0", "fd00::1");
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, last]);
    }
    node.ip("neigh del fc00:b::9");
    assert_eq!(node.verdict("fd00::1"), "punt neighbor");
}

#[test]
fn a_permanent_neighbor_and_one_of_sidestep_are_never_requested() {
    let text =
        "ports: [eth0, eth1]\nneighbors: [\"fc00:b::9 lladdr 02:00:00:00:00:19 dev eth1\"]\n";
    let mut node = Simulation::with(STAR, &[], text);
    node.ip("route add fd00::/16 via fc00:b::9 dev eth1");
    assert_eq!(node.verdict("fd00::1"), "forward eth1");
    node.ip("route add fd01::/16 via fc00:b::8 dev eth1");
    node.ip("neigh add fc00:b::8 lladdr 02:00:00:00:00:18 dev eth1");
    for _ in 0..100 {
        is_used(&node, NEXT);
        is_used(&node, "fc00:b::8");
        node.run(SECOND);
    }
    assert_eq!(node.instance.mirror.requested, []);
}

#[test]
fn an_on_link_address_that_packets_wait_for_is_requested() {
    let mut node = Simulation::new();
    node.all(["route add fd01::/64 dev eth1"]);
    let view = node.instance.tables.compiled.index.views.iter();
    let mut view = view.filter(|(_, view)| view.family == sidestep_model::route::Family::V6);
    let view = *view.next().expect("a view").0;
    let IpAddr::V6(wanted) = address("fd01::7") else {
        panic!("IPv6")
    };
    let want = |node: &Simulation| {
        let wanted = (view, wanted.octets());
        node.instance.tables.kernel.wanted.borrow_mut().push(wanted);
    };
    want(&node);
    node.run(SECOND / 4);
    assert_eq!(requests(&mut node, "fd01::7"), 1);
    // As long as packets wait, every second.
    for _ in 0..50 {
        want(&node);
        node.run(SECOND / 10);
    }
    let found = requests(&mut node, "fd01::7");
    assert!((4..=5).contains(&found), "{found}");
}

#[test]
fn a_next_hop_on_a_link_that_is_down_is_not_requested_until_it_is_up() {
    let mut node = with_route();
    node.ip("link down eth1");
    node.run(SECOND * 30);
    requests(&mut node, NEXT);
    node.run(SECOND * 300);
    assert_eq!(requests(&mut node, NEXT), 0);
    node.ip("link up eth1");
    node.run(SECOND * 65);
    assert!(requests(&mut node, NEXT) > 0);
}

#[test]
fn the_next_hop_of_a_segment_list_is_resolved_before_its_first_packet() {
    let mut node = Simulation::new();
    node.all([
        "policy add gold color 1 endpoint fc00:c::2 segs fc00:b::9",
        "route add fd00::/16 policy gold",
    ]);
    node.run(Duration::from_millis(300));
    assert!(requests(&mut node, NEXT) > 0);
    assert_eq!(
        node.verdict("fd00::1"),
        "punt route_miss",
        "the list is not valid"
    );
    node.ip("neigh add fc00:b::9 lladdr 02:00:00:00:00:19 dev eth1 nud reachable");
    assert_eq!(node.verdict("fd00::1"), "forward eth1");
}

#[test]
fn a_clock_that_jumps_does_not_flood_the_kernel_with_requests() {
    let mut node = Simulation::new();
    for number in 0..100 {
        node.ip(&format!(
            "route add fd00:{number:x}::/32 via fc00:b::1{number:02} dev eth1"
        ));
    }
    node.run(SECOND * 60);
    node.instance.mirror.requested.clear();
    node.jump(SECOND * 100_000);
    node.turn();
    let found = node.instance.mirror.requested.len();
    assert!(found <= 16, "{found} at once");
}
