//! Notifications of the kernel: in order, lost, and beside writes that fail; suspended next hops.

use std::collections::BTreeSet;
use std::time::Duration;

use super::SECOND;
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::report;

const TO: [&str; 8] = [
    "fd00:1::1",
    "fd00:2::1",
    "fd00:3::1",
    "fd00:4::1",
    "fc00:bb::1",
    "fc00:1::e",
    "fc0f::1",
    "fc00:c::2",
];

/// Changes of the kernel's configuration, whose effects depend on their order.
const SCRIPT: [&str; 14] = [
    "route add fd00:1::/32 via fc00:b::2 dev eth1",
    "route add fd00:2::/32 encap seg6 mode encap segs fc00:bb::e dev eth1",
    "route add fc00:1::e/128 encap seg6local action End dev eth0",
    "neigh del fc00:b::2",
    "route replace fd00:1::/32 via fc00:c::2 dev eth2",
    "neigh add fc00:b::2 lladdr 02:00:00:00:00:22 dev eth1 nud reachable",
    "route add fd00:3::/32 via fc00:b::2 dev eth1",
    "link down eth2",
    "route del fd00:2::/32",
    "link up eth2",
    "route add fd00:4::/32 encap seg6 mode encap.red segs fc00:bb::1,fc00:bb::2 dev eth1",
    "route replace fd00:3::/32 encap seg6 mode inline segs fc00:bb::3 dev eth1",
    "route del fc00:1::e/128",
    "neigh del fc00:c::2",
];

/// A node with routes of its own beside those of the kernel.
fn start() -> Simulation {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    node.all([
        "policy add gold color 1 endpoint fc00:c::2 segs fc00:c::2",
        "route add fc0f::/64 policy gold",
    ]);
    node
}

#[test]
fn each_change_of_the_kernel_leads_to_the_tables_of_a_fresh_start() {
    let mut node = start();
    for words in SCRIPT {
        node.ip(words);
        node.assert_compiled(TO, words);
    }
}

#[test]
fn changes_that_are_read_at_once_lead_to_the_same_tables() {
    for at_once in 2..=SCRIPT.len() {
        let mut node = start();
        for batch in SCRIPT.chunks(at_once) {
            for words in batch {
                node.ip_unread(words);
            }
            node.turn();
            node.assert_compiled(TO, batch[0]);
        }
    }
}

#[test]
fn a_notification_that_is_lost_at_any_point_is_made_up_for() {
    for lost in 0..SCRIPT.len() {
        let mut node = start();
        for (number, words) in SCRIPT.iter().enumerate() {
            if number == lost {
                node.ip_unread(words);
                let resync = node.world.now() + Duration::from_millis(20);
                node.instance.mirror.lose(resync);
                node.turn();
                node.run(Duration::from_millis(30));
            } else {
                node.ip(words);
            }
            node.assert_compiled(TO, &format!("{words}, the one before {lost} was lost"));
        }
        let status: report::Status = node.report(Request::ShowStatus);
        assert_eq!(status.resyncs, 1);
    }
}

#[test]
fn a_write_that_fails_at_any_change_is_tried_again_within_a_second() {
    for failing in 0..SCRIPT.len() {
        let mut node = start();
        for (number, words) in SCRIPT.iter().enumerate() {
            let fails = number == failing;
            node.instance.tables.kernel.fail_always(fails);
            let image = node.instance.tables.kernel.image.clone();
            node.ip(words);
            if fails {
                assert!(node.instance.tables.kernel.image == image, "{words}");
                node.run(SECOND * 3);
                node.instance.tables.kernel.fail_always(false);
                node.run(SECOND);
            }
            node.assert_compiled(TO, words);
        }
        assert!(!node.problems().contains("change_failed"));
    }
}

#[test]
fn a_failed_change_is_a_problem_while_later_changes_wait() {
    let mut node = start();
    node.instance.tables.kernel.fail_always(true);
    node.ip(SCRIPT[0]);
    node.ip(SCRIPT[1]);
    assert!(node.problems().contains("change_failed"));
    assert_eq!(node.verdict("fd00:1::1"), "punt route_miss");
    node.instance.tables.kernel.fail_always(false);
    let took = node.until("the repair", |node| {
        !node.problems().contains("change_failed")
    });
    assert!(took <= SECOND, "{took:?}");
    node.assert_compiled(TO, "both changes");
}

#[test]
fn settings_without_a_notification_are_polled_ten_times_a_second() {
    let mut node = Simulation::new();
    node.all(["route add fc0f::/64 encap seg6 mode encap segs fc00:bb::e dev eth1"]);
    let source = |node: &Simulation| node.packet("eth0", "fc0f::1").1[22..38].to_vec();
    let before = source(&node);
    node.instance
        .mirror
        .set(|node| node.tunsrc = "fc00:9::9".parse().ok());
    let took = node.until("the tunnel source", |node| source(node) != before);
    assert!(took <= SECOND / 10, "{took:?}");
}

#[test]
fn a_sid_is_processed_only_while_its_port_permits_it() {
    let mut node = Simulation::with(
        STAR,
        &[],
        "ports: [eth0, eth1]\nrequire_seg6_enabled: true\n",
    );
    node.ip("route add fc00:1::e/128 encap seg6local action End dev eth0");
    assert_eq!(node.verdict("fc00:1::e"), "drop no_srh");
    let eth0 = node.dev("eth0");
    let enable = |on: bool| {
        move |node: &mut sidestep_model::node::Node| {
            node.links.get_mut(&eth0).expect("a link").seg6_enabled = on;
        }
    };
    node.instance.mirror.set(enable(false));
    node.run(SECOND / 5);
    assert_eq!(node.verdict("fc00:1::e"), "punt seg6_disabled");
    node.instance.mirror.set(enable(true));
    node.run(SECOND / 5);
    assert_eq!(node.verdict("fc00:1::e"), "drop no_srh");
}

/// Verdicts of a route of the kernel and of one that the kernel lacks, by one next hop.
fn verdicts(node: &Simulation) -> [String; 2] {
    ["fd00:1::1", "fd00:2::1"].map(|to| node.verdict(to))
}

/// A node with these two routes.
fn with_two_routes() -> Simulation {
    let mut node = start();
    node.ip("route add fd00:1::/32 via fc00:b::2 dev eth1");
    node.all(["route add fd00:2::/32 encap seg6 mode encap segs fc00:c::2 dev eth2"]);
    node
}

#[test]
fn next_hops_of_a_link_that_went_down_are_suspended_until_the_tables_have_changed() {
    let mut node = with_two_routes();
    assert_eq!(verdicts(&node), ["forward eth1", "forward eth2"]);
    node.instance.tables.kernel.fail_always(true);
    node.ip("link down eth1");
    assert_eq!(
        verdicts(&node),
        ["punt neighbor", "forward eth2"],
        "suspended"
    );
    node.run(SECOND * 5);
    assert_eq!(
        verdicts(&node)[0],
        "punt neighbor",
        "the tables still refuse"
    );
    node.instance.tables.kernel.fail_always(false);
    node.run(SECOND);
    assert!(node.instance.tables.kernel.suspended.borrow().is_empty());
    node.ip("link up eth1");
    assert_eq!(verdicts(&node), ["forward eth1", "forward eth2"]);
}

#[test]
fn a_link_that_stops_is_suspended_before_its_notification_and_changed_by_it() {
    let mut node = with_two_routes();
    let eth1 = node.dev("eth1");
    node.instance.mirror.stop_running(eth1);
    node.turn();
    assert_eq!(verdicts(&node), ["punt neighbor", "forward eth2"]);
    node.run(SECOND);
    let is_suspended = |node: &Simulation| {
        let suspended = node.instance.tables.kernel.suspended.borrow();
        !suspended.is_empty()
    };
    assert!(is_suspended(&node), "the notification has not come");
    node.ip("link down eth1");
    assert!(!is_suspended(&node));
    node.assert_compiled(TO, "after the notification");
    node.ip("link up eth1");
    assert_eq!(verdicts(&node), ["forward eth1", "forward eth2"]);
}

#[test]
fn a_suspension_lasts_until_a_stale_mirror_has_read_everything_again() {
    let mut node = with_two_routes();
    let eth1 = node.dev("eth1");
    let resync = node.world.now() + SECOND;
    node.instance.mirror.stop_running(eth1);
    node.turn();
    node.ip_unread("link down eth1");
    node.ip_unread("link up eth1");
    node.instance.mirror.lose(resync);
    node.run(SECOND / 2);
    assert_eq!(verdicts(&node), ["punt neighbor", "forward eth2"]);
    node.run(SECOND);
    assert_eq!(verdicts(&node), ["forward eth1", "forward eth2"]);
    node.assert_compiled(TO, "afterwards");
}

#[test]
fn a_port_that_is_removed_and_made_again_is_attached_again_with_its_routes() {
    let mut node = start();
    node.all(["route add fd00:2::/32 via fc00:b::2 dev eth1"]);
    assert_eq!(node.verdict("fd00:2::1"), "forward eth1");
    for round in 0..3 {
        node.ip("link del eth1");
        assert_eq!(
            node.attached().into_keys().collect::<Vec<_>>(),
            ["eth0", "eth2"]
        );
        node.add_link("eth0", "eth1", 50 + round);
        node.ip("neigh add fc00:b::2 lladdr 02:00:00:00:00:12 dev eth1 nud reachable");
        assert_eq!(node.attached().len(), 3);
        assert_eq!(node.verdict("fd00:2::1"), "forward eth1");
    }
}

#[test]
fn two_ports_with_equal_slots_do_not_displace_each_other() {
    let mut node = start();
    let slots = sidestep_datapath::abi::SIDESTEP_PORTS;
    let eth0 = node.dev("eth0").0;
    node.add_link("eth1", "eth9", eth0 + slots);
    let why = node
        .sidestep("port add eth9")
        .expect_err("its slot is used");
    assert!(why.contains("are equal modulo"), "{why}");
    let ports: BTreeSet<String> = node.attached().into_keys().collect();
    assert_eq!(ports.len(), 3, "{ports:?}");
    assert_eq!(node.verdict("fc00:bb::1"), "forward eth1");
}
