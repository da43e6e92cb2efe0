//! Paths: states, what policies make of them, waits and damping, refusals and takeovers.

use std::time::Duration;

use sidestep_datapath::SessionId;
use sidestep_model::liveness::discriminators;

use super::{SECOND, refused};
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

const FAR: &str = "2001:db8:e::1";
const MS: Duration = Duration::from_millis(1);

/// A policy with two lists, each with a path, and a protecting list.
fn start() -> Simulation {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    node.all([
        "path add west segs fc00:b::2 loopback interval 10 multiplier 3 source fc00:a::1",
        "path add east segs fc00:c::2 loopback interval 10 multiplier 3 source fc00:a::1",
        "policy add gold color 100 endpoint fc00:c::2 preference 200 segs fc00:b::2 \
         preference 100 segs fc00:c::2",
        "route add 2001:db8:e::/48 policy gold",
    ]);
    node
}

fn paths(node: &mut Simulation) -> report::Paths {
    node.report(Request::ShowPaths)
}

fn path(node: &mut Simulation, name: &str) -> report::WatchedPath {
    let found = paths(node).into_iter().find(|path| path.name == name);
    found.expect("a path")
}

/// Lets the probes of a path get no answers, or get them again.
fn kill(node: &mut Simulation, name: &str, is_dead: bool) {
    let own = &node.instance.configured.own;
    let all = discriminators(&own.watched_paths, &own.reflectors).expect("no conflict");
    for &number in &all[name] {
        let mut dead = node.world.dead.borrow_mut();
        if is_dead {
            dead.insert(number);
        } else {
            dead.remove(&number);
        }
    }
}

#[test]
fn a_policy_leaves_a_path_that_dies_and_returns_after_its_wait() {
    let mut node = start();
    node.run(SECOND);
    assert_eq!(path(&mut node, "west").state, "up");
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");

    kill(&mut node, "west", true);
    let taken = node.until("the switch", |node| {
        node.outer_destination(FAR) == "fc00:c::2"
    });
    assert!(taken <= 50 * MS, "{taken:?}");
    let west = path(&mut node, "west");
    assert_eq!((west.state.as_str(), west.in_use), ("down", false));
    assert_eq!(west.why.as_deref(), Some("no answers"));
    let shown: report::Policies = node.report(Request::ShowPolicies);
    let list = &shown[0].candidates[0].lists[0];
    assert_eq!(list.invalid.as_deref(), Some("path west is down"));

    kill(&mut node, "west", false);
    node.run(500 * MS);
    assert_eq!(path(&mut node, "west").state, "waiting");
    assert_eq!(node.outer_destination(FAR), "fc00:c::2", "it waits");
    let taken = node.until("the return", |node| {
        node.outer_destination(FAR) == "fc00:b::2"
    });
    assert!(taken <= 550 * MS, "{taken:?}");
    assert_eq!(path(&mut node, "west").changes.len(), 2);
}

#[test]
fn a_path_that_fails_again_and_again_waits_longer_each_time() {
    let mut node = start();
    node.all(["path replace west segs fc00:b::2 loopback interval 10 source fc00:a::1 hold 100"]);
    node.run(SECOND);
    let mut waits = vec![];
    for _ in 0..9 {
        kill(&mut node, "west", true);
        node.until("the failure", |node| !path(node, "west").in_use);
        kill(&mut node, "west", false);
        let wait = node.until("the return", |node| path(node, "west").in_use);
        waits.push(wait.as_millis() / 100);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    node.run(70 * SECOND);
    kill(&mut node, "west", true);
    node.until("the failure", |node| !path(node, "west").in_use);
    kill(&mut node, "west", false);
    let wait = node.until("the return", |node| path(node, "west").in_use);
    assert_eq!(wait.as_millis() / 100, 1, "it was quiet for long");
}

#[test]
fn a_clock_that_is_stepped_ends_no_path() {
    let mut node = start();
    node.run(SECOND);
    for day in [0, 4_000_000_000, 1_000_000_000] {
        node.world.day.set(Duration::from_secs(day));
        node.run(SECOND);
        for name in ["west", "east"] {
            let path = path(&mut node, name);
            assert_eq!((path.state.as_str(), path.changes.len()), ("up", 0));
        }
    }
}

#[test]
fn a_policy_without_a_path_alive_is_invalid() {
    let mut node = start();
    node.run(SECOND);
    for name in ["west", "east"] {
        kill(&mut node, name, true);
    }
    node.run(SECOND);
    let shown: report::Policies = node.report(Request::ShowPolicies);
    assert_eq!(shown[0].active, None);
    node.all(["path del west"]);
    assert_eq!(
        node.outer_destination(FAR),
        "fc00:b::2",
        "nobody watches it"
    );
}

#[test]
fn a_path_that_is_down_by_configuration_is_not_probed_nor_used() {
    let mut node = start();
    node.run(SECOND);
    let words = "segs fc00:b::2 loopback interval 10 source fc00:a::1";
    node.all([&format!("path replace west {words} admin-down")[..]]);
    node.run(SECOND);
    assert_eq!(node.outer_destination(FAR), "fc00:c::2");
    let west = path(&mut node, "west");
    assert_eq!(
        (west.state.as_str(), west.flows[0].probes),
        ("admin-down", 0)
    );
    node.all([&format!("path replace west {words}")[..]]);
    node.run(2 * SECOND);
    assert_eq!(path(&mut node, "west").state, "up");
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");
}

#[test]
fn sessions_outlive_a_crash_in_the_state_that_they_had() {
    let mut node = start();
    node.run(SECOND);
    kill(&mut node, "west", true);
    node.run(SECOND);
    assert!(!path(&mut node, "west").in_use);
    let before = node.instance.tables.kernel.sessions.borrow().clone();
    let options = node.options();
    let mut node = node.crash(options).expect("a start");
    let after = node.instance.tables.kernel.sessions.borrow().clone();
    assert_eq!(before, after, "the same sessions");
    node.run(20 * MS);
    assert!(!path(&mut node, "west").in_use);
    assert_eq!(node.outer_destination(FAR), "fc00:c::2", "no flap");
    // The machine slept meanwhile.
    node.jump(3600 * SECOND);
    node.run(SECOND);
    assert!(path(&mut node, "east").in_use);
    assert_eq!(path(&mut node, "east").failures, 0);
    kill(&mut node, "west", false);
    node.run(3 * SECOND);
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");
}

#[test]
fn what_cannot_be_probed_says_why() {
    let mut node = start();
    node.all([
        "path add a segs fc00:9::1 loopback source fc00:a::1",
        "path add b segs fc00:b::2,fc00:b::3 loopback source fc00:77::1",
        "path add c segs fc00:b::2,fc00:b::4 loopback return fc00:77::2 source fc00:a::1",
    ]);
    node.run(3 * SECOND);
    let why = |node: &mut Simulation, name| path(node, name).why.unwrap_or_default();
    assert_eq!(
        why(&mut node, "b"),
        "the source fc00:77::1 is no address of this node"
    );
    let back =
        "the list does not lead back: fc00:77::2 is neither a SID nor an address of this node";
    assert_eq!(why(&mut node, "c"), back);
    assert!(node.verdict("fc00:9::1").starts_with("punt"));
    for (words, expected) in [
        (
            "path add west segs fc00::1 loopback",
            "the path exists already: west segs fc00:b::2",
        ),
        (
            "path add d segs fc00:b::2 loopback",
            "path west has the same segment list",
        ),
        ("path add d segs ::2 loopback discriminator 7 flows 2", ""),
        (
            "path add e segs ::3 loopback discriminator 8",
            "paths e and d have the same discriminator 8",
        ),
        (
            "reflector add 7",
            "discriminator 7 of path d is that of a reflector",
        ),
        ("reflector add 9", ""),
        (
            "path add e segs ::3 loopback discriminator 9",
            "discriminator 9 of path e is that of a reflector",
        ),
        (
            "path del e",
            "there is no path e (see `sidestep path show`)",
        ),
        ("path del d fast", "unknown keyword \"fast\""),
    ] {
        if expected.is_empty() {
            node.all([words]);
        } else {
            let found = refused(&mut node, words);
            assert!(found.contains(expected), "{words}: {found}");
        }
    }
}

/// Lets the packet path see a dead path before the daemon does anything about it.
fn is_seen_dead(node: &mut Simulation, name: &str, is_dead: bool) {
    let lists = &node.instance.node().watched.lists;
    let list = lists.values().find(|list| list.path == name);
    let session = SessionId(list.expect("a list").session);
    let mut sessions = node.instance.tables.kernel.sessions.borrow_mut();
    sessions.get_mut(&session).expect("a session").down = is_dead.into();
}

#[test]
fn one_store_moves_all_routes_of_a_policy_to_the_backup_of_the_dead_list() {
    let mut node = start();
    node.run(SECOND);
    for number in 0..200 {
        node.all([&format!("route add 2001:db8:f:{number:x}::/64 policy gold")[..]]);
    }
    let sent = |node: &Simulation| {
        let far = (0..200).map(|number| format!("2001:db8:f:{number:x}::1"));
        let found = far.map(|far| node.outer_destination(&far));
        found.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(sent(&node), ["fc00:b::2".to_owned()].into());
    is_seen_dead(&mut node, "west", true);
    assert_eq!(
        sent(&node),
        ["fc00:c::2".to_owned()].into(),
        "the protecting path"
    );
    is_seen_dead(&mut node, "west", false);
    assert_eq!(sent(&node), ["fc00:b::2".to_owned()].into());
    let image = &node.instance.tables.compiled.image;
    let guarded = image.policies.values().filter(|it| it.session.is_some());
    assert_eq!(guarded.count(), 1, "the routes share the record");

    // Two lists of one candidate path protect each other.
    node.all(["policy replace gold color 100 endpoint fc00:c::2 segs fc00:b::2 segs fc00:c::2"]);
    assert_eq!(sent(&node).len(), 2);
    for (dead, other) in [("west", "fc00:c::2"), ("east", "fc00:b::2")] {
        is_seen_dead(&mut node, dead, true);
        assert_eq!(sent(&node), [other.to_owned()].into());
        is_seen_dead(&mut node, dead, false);
    }
    // Nothing is left of the records.
    node.all(["route del 2001:db8:e::/48"]);
    for number in 0..200 {
        node.all([&format!("route del 2001:db8:f:{number:x}::/64")[..]]);
    }
    node.run(5 * SECOND);
    let image = &node.instance.tables.compiled.image;
    let of_probes = 2;
    assert_eq!(image.policies.len(), of_probes);
}

#[test]
fn a_dead_path_of_several_flows_moves_the_packets_of_its_policies() {
    let mut node = start();
    for name in ["west", "west2", "west3", "west4"] {
        node.all([
            "path del west",
            &format!("path add {name} segs fc00:b::2 loopback flows 8 source fc00:a::1"),
        ]);
        node.run(SECOND);
        let lists = node.instance.node().watched.lists.values();
        let lead = lists.clone().find(|list| list.path == name);
        let lead = SessionId(lead.expect("a list").session);
        let is_down = |node: &Simulation| {
            let sessions = node.instance.tables.kernel.sessions.borrow();
            sessions[&lead].down != 0
        };
        assert!(!is_down(&node));
        kill(&mut node, name, true);
        node.until("the failure", |node| !path(node, name).in_use);
        assert!(is_down(&node), "{name}");
        // The session is written again for another source, and stays out of use.
        let words = "segs fc00:b::2 loopback flows 8 source fc00:77::1";
        node.all([&format!("path replace {name} {words}")[..]]);
        assert!(is_down(&node), "{name}");
        node.all([
            &format!("path del {name}")[..],
            "path add west segs fc00:b::2 loopback",
        ]);
    }
}

#[test]
fn a_route_that_leads_probes_back_may_come_after_their_path() {
    let mut node = start();
    node.all(["path add c segs fc00:b::4 loopback return fc00:1::e source fc00:a::1"]);
    node.run(3 * SECOND);
    assert!(!path(&mut node, "c").in_use);
    node.ip("route add fc00:1::e/128 encap seg6local action End dev eth0");
    node.run(3 * SECOND);
    assert!(path(&mut node, "c").in_use);
}

#[test]
fn a_list_without_another_one_stays_with_its_dead_path_until_the_tables_follow() {
    let mut node = start();
    node.all(["policy replace gold color 100 endpoint fc00:c::2 segs fc00:b::2"]);
    node.run(SECOND);
    is_seen_dead(&mut node, "west", true);
    assert_eq!(node.outer_destination(FAR), "fc00:b::2");
    is_seen_dead(&mut node, "west", false);
    node.all([
        "policy replace gold color 100 endpoint fc00:c::2 preference 200 segs fc00:b::2 \
               preference 100 segs fc00:c::2",
    ]);
    is_seen_dead(&mut node, "west", true);
    assert_eq!(node.outer_destination(FAR), "fc00:c::2", "there is one now");
}

#[test]
fn a_failure_is_an_event_and_counts_in_the_metrics() {
    let mut node = start();
    node.run(SECOND);
    let client = node.serve(Request::Monitor);
    node.run(2 * SECOND);
    kill(&mut node, "west", true);
    node.run(SECOND);
    kill(&mut node, "west", false);
    node.run(3 * SECOND);
    let lines = Simulation::lines(&client);
    let word = |line: &serde_json::Value, name: &str| {
        line["ok"][name].as_str().unwrap_or_default().to_owned()
    };
    let of_paths = lines.iter().filter(|line| word(line, "kind") == "path");
    let events: Vec<_> = of_paths
        .map(|line| {
            ["event", "subject", "detail"]
                .map(|name| word(line, name))
                .join(" ")
        })
        .collect();
    assert_eq!(events, ["down west no answers", "up west "]);
    let metrics: report::Metrics = node.report(Request::ShowMetrics);
    let west = metrics.paths.iter().find(|path| path.name == "west");
    assert_eq!(west.expect("a path").failures, 1);
}
