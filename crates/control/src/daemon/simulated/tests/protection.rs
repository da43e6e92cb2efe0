//! Protected next hops: what takes over, states, refusals and takeovers.

use std::time::Duration;

use serde_json::{Value, json};
use sidestep_model::liveness::discriminators;

use super::{SECOND, refused};
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

const FAR: &str = "2001:db8:e::1";
const MS: Duration = Duration::from_millis(1);

/// A route of the kernel by b, one of two neighbors on a link that is protected by a list over c.
fn start() -> Simulation {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    node.ip("route add 2001:db8:e::/48 via fc00:b::2 dev eth1");
    node.ip("route add fc00:cc::/32 via fc00:c::2 dev eth2");
    node.all(["protect add eth1 by segs fc00:cc::9"]);
    node
}

/// State, reason and number of next hops of the only protection.
fn state(node: &mut Simulation) -> (String, Option<String>, usize) {
    let mut all: report::Protections = node.report(Request::ShowProtections);
    let it = all.pop().expect("a protection");
    assert!(all.is_empty());
    (it.state, it.why, it.next_hops)
}

fn is(state: &str, next_hops: usize) -> (String, Option<String>, usize) {
    (state.into(), None, next_hops)
}

#[test]
fn routes_of_a_link_that_stops_take_its_backup_before_anything_is_compiled() {
    let mut node = start();
    node.run(SECOND);
    assert_eq!(state(&mut node), is("ready", 2));
    assert_eq!(node.outer_destination(FAR), FAR);
    let eth1 = node.dev("eth1");
    node.instance.mirror.stop_running(eth1);
    node.turn();
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    node.ip("link down eth1");
    node.run(SECOND);
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    assert_eq!(state(&mut node), is("in use", 2));
    node.ip("link up eth1");
    node.run(SECOND);
    assert_eq!(node.outer_destination(FAR), FAR);
    assert_eq!(state(&mut node), is("ready", 2));
}

#[test]
fn routes_that_vanish_with_their_link_stay_until_others_come() {
    let mut node = start();
    node.run(SECOND);
    // The kernel removes routes of nexthop objects together with their link.
    node.ip_unread("link down eth1");
    node.ip("route del 2001:db8:e::/48");
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    node.run(4 * SECOND);
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    node.run(2 * SECOND);
    assert!(!node.verdict(FAR).contains("eth"), "{}", node.verdict(FAR));

    // The routing daemon finds another way in time, with another metric.
    node.ip("link up eth1");
    node.ip("route add 2001:db8:e::/48 via fc00:b::2 dev eth1");
    node.ip_unread("link down eth1");
    node.ip("route del 2001:db8:e::/48");
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    node.ip("route add 2001:db8:e::/48 via fc00:a::2 dev eth0 metric 20");
    assert!(node.verdict(FAR).contains("eth0"), "{}", node.verdict(FAR));
    node.ip("route del 2001:db8:e::/48");
    assert!(!node.verdict(FAR).contains("eth"), "{}", node.verdict(FAR));

    // A full compilation keeps them, too, and routes of other links do not stay.
    node.ip("link up eth1");
    node.ip("route add 2001:db8:e::/48 via fc00:b::2 dev eth1");
    node.ip("route add 2001:db8:d::/48 via fc00:c::2 dev eth2");
    node.ip_unread("link down eth1");
    node.ip_unread("link down eth2");
    node.ip_unread("route del 2001:db8:d::/48");
    node.ip("route del 2001:db8:e::/48");
    node.all(["oam rate 7"]);
    assert_ne!(node.verdict(FAR), node.verdict("2001:db8:d::1"));
    node.ip("link up eth2");
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    node.all(["protect del eth1"]);
    node.run(6 * SECOND);
    assert_eq!(node.verdict(FAR), node.verdict("2001:db8:d::1"));
}

#[test]
fn a_next_hop_gives_way_while_its_path_is_down() {
    let mut node = start();
    node.all([
        "path add b segs fc00:b::2 loopback interval 10 multiplier 3 source fc00:a::1",
        "protect replace eth1 by via fc00:c::2 dev eth2 path b",
    ]);
    node.run(SECOND);
    assert_eq!(state(&mut node), is("ready", 2));
    assert!(node.verdict(FAR).contains("eth1"), "{}", node.verdict(FAR));
    let own = &node.instance.configured.own;
    let all = discriminators(&own.watched_paths, &own.reflectors).expect("no conflict");
    node.world.dead.borrow_mut().extend(&all["b"]);
    let taken = node.until("the switch", |node| node.verdict(FAR).contains("eth2"));
    assert!(taken <= 50 * MS, "{taken:?}");
    // Another change of the next hop does not put it in use again.
    node.ip("neigh replace fc00:b::2 lladdr 02:00:00:00:00:77 dev eth1");
    node.run(SECOND);
    assert!(node.verdict(FAR).contains("eth2"), "{}", node.verdict(FAR));
    assert_eq!(state(&mut node), is("in use", 2));
    node.world.dead.borrow_mut().clear();
    let taken = node.until("the return", |node| node.verdict(FAR).contains("eth1"));
    assert!(taken <= 2 * SECOND, "{taken:?}");
}

#[test]
fn a_protection_that_does_not_help_says_why() {
    let mut node = start();
    for (words, state_of, why) in [
        (
            "eth1 by segs fc00:bb::9",
            "failed",
            "the backup takes the next hop that it protects",
        ),
        (
            "eth1 by via fc00:c::3 dev eth2",
            "failed",
            "the next hop of the backup is not reachable",
        ),
        (
            "eth1 by segs fc00:cc::9 path west",
            "ready",
            "there is no path west",
        ),
    ] {
        node.all([&format!("protect replace {words}")[..]]);
        node.run(SECOND);
        assert_eq!(
            state(&mut node),
            (state_of.into(), Some(why.into()), 2),
            "{words}"
        );
    }
    node.all([
        "protect replace eth1 via fc00:b::9 by segs fc00:cc::9",
        "protect del eth1",
    ]);
    node.run(SECOND);
    assert_eq!(state(&mut node), is("unused", 0));
}

#[test]
fn wrong_protections_change_nothing() {
    let mut node = start();
    let before = node.shown();
    for (words, why) in [
        (
            "protect add eth1 by segs fc00:cc::8",
            "it is protected already: eth1 by segs",
        ),
        (
            "protect del eth2",
            "nothing protects eth2 (see `sidestep protect show`)",
        ),
        ("protect del eth1 fast", "unknown keyword \"fast\""),
        ("protect add eth9 by segs fc00:cc::9", "no such interface"),
        (
            "protect add eth2 by via fc00:c::2 dev eth2",
            "a next hop cannot protect itself",
        ),
    ] {
        let found = refused(&mut node, words);
        assert!(found.contains(why), "{words}: {found}");
    }
    assert_eq!(node.shown(), before);
}

#[test]
fn the_protection_of_an_interface_that_is_gone_can_be_removed() {
    let mut node = start();
    node.ip("link del eth1");
    node.run(SECOND);
    assert_eq!(state(&mut node), is("unused", 0));
    node.all(["protect del eth1"]);
    let shown: report::Protections = node.report(Request::ShowProtections);
    assert!(shown.is_empty(), "{shown:?}");
}

#[test]
fn the_next_daemon_finds_a_next_hop_on_its_backup() {
    let mut node = start();
    node.ip("link down eth1");
    node.run(SECOND);
    let options = node.options();
    let mut node = node.crash(options).expect("a start");
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    node.run(SECOND);
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    assert_eq!(state(&mut node), is("in use", 2));
    node.all(["protect del eth1"]);
    node.run(5 * SECOND);
    let image = &node.instance.tables.compiled.image;
    assert!(image.policies.is_empty(), "nothing is left of the backup");
    assert!(image.adjacencies.values().all(|it| it.backup.is_none()));
}

/// Applies a batch of a controller.
fn apply(node: &mut Simulation, asn: u32, complete: bool, next_hops: &Value) -> Result<(), String> {
    let batch = json!({
        "owner": {"protocol_origin": "bgp", "originator": {"asn": asn, "address": "192.0.2.1"}},
        "complete": complete,
        "operations": [],
        "next_hops": next_hops,
    });
    let batch = serde_json::from_value(batch).expect("a batch");
    node.ask(Request::PolicyBatch { batch }).map(drop)
}

#[test]
fn configured_protections_and_those_of_controllers_share_a_limit() {
    let mut node = start();
    let backups = |number: usize| -> Value {
        let one = |n| json!({"dev": "eth1", "via": format!("fc00:b::{n:x}"), "backup": {"segments": ["fc00:cc::9"]}});
        (1..=number).map(one).collect()
    };
    let refused = apply(&mut node, 1, false, &backups(4096)).expect_err("one too many");
    let why = "4097 protected next hops; expected up to 4096, those of controllers included";
    assert_eq!(refused, format!("next_hops: {why}"));
    apply(&mut node, 1, false, &backups(4095)).expect("all that are possible");
    let found = super::refused(&mut node, "protect add eth2 by segs fc00:cc::9");
    assert!(found.contains(why), "{found}");
    let shown: report::Protections = node.report(Request::ShowProtections);
    assert_eq!(shown.len(), 4096);
}

#[test]
fn a_controller_installs_and_withdraws_backups() {
    let mut node = start();
    node.all(["protect del eth1"]);
    let backup = json!([{"dev": "eth1", "backup": {"segments": ["fc00:cc::9"]}}]);
    apply(&mut node, 1, false, &backup).expect("a backup");
    node.run(SECOND);
    assert_eq!(state(&mut node), is("ready", 2));
    let shown: report::Protections = node.report(Request::ShowProtections);
    assert_eq!(shown[0].owner.map(|owner| owner.originator.asn), Some(1));
    assert!(!node.shown().contains("protections"), "not configured");

    let refused = apply(&mut node, 2, false, &backup).expect_err("of another one");
    assert_eq!(refused, "next_hops[0].dev: another owner has its backup");
    let unknown = json!([{"dev": "eth9", "backup": {"segments": ["fc00:cc::9"]}}]);
    let refused = apply(&mut node, 1, true, &unknown).expect_err("no interface");
    assert_eq!(refused, "next_hops[0].dev: there is no interface eth9");

    // A configured backup precedes.
    node.all(["protect add eth1 by segs fc00:cc::8"]);
    node.ip("link down eth1");
    assert_eq!(node.outer_destination(FAR), "fc00:cc::8");
    node.all(["protect del eth1"]);
    assert_eq!(node.outer_destination(FAR), "fc00:cc::9");
    let shown: report::Protections = node.report(Request::ShowProtections);
    assert!(shown[0].owner.is_some());

    apply(&mut node, 2, true, &json!([])).expect("nothing of this owner");
    assert_eq!(state(&mut node), is("in use", 2));
    let other = json!([{"dev": "eth1", "backup": null}]);
    apply(&mut node, 2, false, &other).expect("nothing of this owner");
    assert_eq!(state(&mut node), is("in use", 2));
    apply(&mut node, 1, false, &other).expect("withdrawn");
    let shown: report::Protections = node.report(Request::ShowProtections);
    assert!(shown.is_empty(), "{shown:?}");
}
