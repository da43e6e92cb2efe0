//! Liveness of the services of SR proxies: probes, states and what packets do.

use std::net::IpAddr;
use std::time::Duration;

use super::{SECOND, refused};
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(400);
/// Port to the service, and the address of the service.
const SERVICE: &str = "fc00:b::2";
const SID: &str = "fc00:5::f";
const MASQUERADING: &str = "route add fc00:5::f encap seg6local action End.AM oif eth1 iif eth2 nh6 \
                            fc00:b::2 liveness icmp interval 400 dev eth1";

fn all_ports() -> Simulation {
    Simulation::with(STAR, &["eth0", "eth1", "eth2"], "")
}

fn answers(node: &Simulation, address: &str, after: Duration) {
    let address: IpAddr = address.parse().expect("an address");
    node.world.answering.borrow_mut().insert(address, after);
}

fn is_silent(node: &Simulation, address: &str) {
    let address: IpAddr = address.parse().expect("an address");
    node.world.answering.borrow_mut().remove(&address);
}

fn services(node: &mut Simulation) -> Vec<report::Service> {
    let routes: report::Routes = node.report(Request::ShowRoutes { all: false });
    let all = routes.into_iter().filter_map(|route| route.service);
    all.collect()
}

fn states(node: &mut Simulation) -> Vec<String> {
    services(node).into_iter().map(|it| it.state).collect()
}

fn until(node: &mut Simulation, expected: &str) -> Duration {
    node.until(expected, |node| {
        states(node).iter().all(|state| state == expected)
    })
}

fn was_always_up(node: &mut Simulation) {
    let service = services(node).remove(0);
    let found = (&service.state[..], service.downs);
    assert_eq!(found, ("up", 0), "{service:?}");
}

/// A node whose service is up.
fn up() -> Simulation {
    let mut node = all_ports();
    answers(&node, SERVICE, MS);
    node.all([MASQUERADING]);
    until(&mut node, "up");
    node
}

#[test]
fn a_service_that_dies_is_down_within_two_intervals_and_up_within_one_when_it_is_back() {
    for offset in 0..40 {
        let mut node = up();
        node.run(INTERVAL * 5 + MS * 10 * offset);
        is_silent(&node, SERVICE);
        let took = until(&mut node, "down");
        assert!(took <= INTERVAL * 2, "{offset}: {took:?}");
        let service = services(&mut node).remove(0);
        assert_eq!(service.downs, 1);
        assert!(
            service.answers > 0 && service.probes > service.answers,
            "{service:?}"
        );
        answers(&node, SERVICE, MS);
        let took = until(&mut node, "up");
        assert!(took <= INTERVAL + MS * 2, "{offset}: {took:?}");
    }
}

#[test]
fn packets_are_dropped_or_pass_by_while_their_service_is_down() {
    for (on_down, expected) in [
        ("", "drop service_down"),
        ("on-down bypass ", "drop no_srh"),
    ] {
        let mut node = all_ports();
        answers(&node, SERVICE, MS);
        let words = MASQUERADING.replace("dev eth1", &format!("{on_down}dev eth1"));
        node.all([&words[..]]);
        until(&mut node, "up");
        let before = node.verdict(SID);
        is_silent(&node, SERVICE);
        until(&mut node, "down");
        // A packet without an SRH shows that End takes the place of the proxy.
        assert_eq!(node.verdict(SID), expected, "{on_down}");
        answers(&node, SERVICE, MS);
        until(&mut node, "up");
        assert_eq!(node.verdict(SID), before, "{on_down}");
    }
}

#[test]
fn a_service_that_never_answered_is_unknown_and_then_down() {
    let mut node = all_ports();
    node.all([MASQUERADING]);
    assert_eq!(states(&mut node), ["unknown"]);
    let took = until(&mut node, "down");
    assert!(took <= INTERVAL + MS, "{took:?}");
    assert_eq!(services(&mut node)[0].answers, 0);
}

#[test]
fn an_answer_that_comes_late_counts() {
    let mut node = all_ports();
    // Later than the repetition of the probe.
    answers(&node, SERVICE, INTERVAL * 3 / 4);
    node.all([MASQUERADING]);
    node.run(SECOND * 20);
    was_always_up(&mut node);
}

#[test]
fn a_daemon_that_sleeps_for_an_hour_takes_no_service_down() {
    let mut node = up();
    for _ in 0..5 {
        node.run(INTERVAL * 3);
        node.jump(SECOND * 3600);
        node.turn();
    }
    node.run(SECOND * 2);
    was_always_up(&mut node);
}

#[test]
fn services_without_a_socket_keep_their_state_until_there_is_one() {
    let mut node = up();
    // The interface was recreated, so that a new socket is needed.
    node.world.no_sockets.set(true);
    node.ip("link del eth1");
    node.add_link("eth0", "eth1", 60);
    node.run(SECOND * 10);
    assert_eq!(states(&mut node), ["up"]);
    assert!(
        node.problems().contains("services_not_probed"),
        "{:?}",
        node.problems()
    );
    node.world.no_sockets.set(false);
    is_silent(&node, SERVICE);
    until(&mut node, "down");
    assert!(!node.problems().contains("services_not_probed"));
}

#[test]
fn a_service_whose_interface_is_deleted_is_down_and_carries_traffic_when_it_is_made_again() {
    let mut node = up();
    let shown = node.shown();
    let before = node.verdict(SID);
    for round in 0..2 {
        is_silent(&node, SERVICE);
        node.ip("link del eth1");
        let took = until(&mut node, "down");
        assert!(took <= INTERVAL * 2, "{took:?}");
        assert_eq!(services(&mut node)[0].downs, round + 1);
        assert_eq!(node.shown(), shown, "it is shown as it was typed");
        node.add_link("eth0", "eth1", 50 + round as u32);
        node.ip("neigh add fc00:b::2 lladdr 02:00:00:00:00:12 dev eth1");
        answers(&node, SERVICE, MS);
        until(&mut node, "up");
        assert_eq!(node.verdict(SID), before);
        assert_eq!(node.shown(), shown);
    }
}

#[test]
fn of_two_services_at_one_port_only_the_one_that_dies_is_down() {
    let mut node = all_ports();
    answers(&node, SERVICE, MS);
    answers(&node, "fc00:b::3", MS);
    let second = MASQUERADING
        .replace("fc00:5::f", "fc00:5::1f")
        .replace("b::2", "b::3");
    node.all([MASQUERADING, &second]);
    until(&mut node, "up");
    is_silent(&node, "fc00:b::3");
    node.run(INTERVAL * 3);
    let routes: report::Routes = node.report(Request::ShowRoutes { all: false });
    let state = |sid: &str| {
        let route = routes.iter().find(|route| route.prefix == sid);
        let service = route.and_then(|route| route.service.as_ref());
        service.expect("a service").state.clone()
    };
    assert_eq!(
        (state("fc00:5::f/128"), state("fc00:5::1f/128")),
        ("up".into(), "down".into())
    );
}

#[test]
fn a_link_that_goes_down_takes_its_service_down_at_once_and_without_probes() {
    let mut node = all_ports();
    let words = MASQUERADING.replace("icmp interval 400", "link interval 60000");
    node.all([&words[..]]);
    until(&mut node, "up");
    node.ip("link down eth1");
    assert_eq!(until(&mut node, "down"), Duration::ZERO);
    node.ip("link up eth1");
    assert_eq!(until(&mut node, "up"), Duration::ZERO);
    assert_eq!(
        (services(&mut node)[0].probes, node.world.probes.get()),
        (0, 0)
    );
}

#[test]
fn a_route_that_is_refused_changes_nothing_of_whom_is_probed() {
    let mut node = up();
    node.run(INTERVAL * 10);
    let answers = services(&mut node)[0].answers;
    node.instance.tables.kernel.fail_always(true);
    let other = MASQUERADING
        .replace("route add", "route replace")
        .replace("400", "50");
    refused(&mut node, &other);
    node.instance.tables.kernel.fail_always(false);
    let all = services(&mut node);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].state == "up" && all[0].answers >= answers, "{all:?}");
    let probes = node.world.probes.get();
    node.run(INTERVAL * 10);
    assert_eq!(
        node.world.probes.get() - probes,
        10,
        "the interval is the one before"
    );
}

#[test]
fn a_service_of_a_removed_route_is_probed_no_more() {
    let mut node = up();
    node.all(["route del fc00:5::f"]);
    let probes = node.world.probes.get();
    node.run(SECOND * 10);
    assert_eq!(node.world.probes.get(), probes);
    assert_eq!(node.instance.watchers.liveness.due(), None);
}

#[test]
fn two_routes_of_one_service_share_its_probes() {
    let mut node = up();
    let second = MASQUERADING.replace("fc00:5::f", "fc00:5::1f");
    node.all([&second[..]]);
    let probes = node.world.probes.get();
    node.run(INTERVAL * 10);
    assert_eq!(node.world.probes.get() - probes, 10);
    is_silent(&node, SERVICE);
    until(&mut node, "down");
    assert_eq!(states(&mut node).len(), 2);
}

#[test]
fn a_write_that_fails_when_a_service_dies_is_tried_again() {
    let mut node = up();
    is_silent(&node, SERVICE);
    node.instance.tables.kernel.fail_always(true);
    node.run(INTERVAL * 3);
    assert_ne!(node.verdict(SID), "drop service_down");
    assert!(
        node.problems().contains("change_failed"),
        "{:?}",
        node.problems()
    );
    node.instance.tables.kernel.fail_always(false);
    node.run(SECOND * 2);
    assert_eq!(node.verdict(SID), "drop service_down");
    assert!(!node.problems().contains("change_failed"));
}
