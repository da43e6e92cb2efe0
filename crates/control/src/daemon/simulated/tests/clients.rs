//! Clients of the control socket: slow, silent and gone.

use std::io::Read as _;

use super::SECOND;
use crate::api::Request;
use crate::daemon::simulated::{Simulation, request};
use crate::report;

/// A node whose report on all routes is longer than a socket buffer.
fn with_long_reports() -> Simulation {
    let mut node = Simulation::new();
    let lines: Vec<String> = (0..3000)
        .map(|number| {
            format!("route add fd00:{number:x}::/32 encap seg6 mode encap segs fc00:bb::e dev eth1")
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    node.batch(&lines).expect("room");
    node
}

#[test]
fn a_client_that_dies_in_the_middle_of_an_answer_leaves_no_trace() {
    let mut node = with_long_reports();
    let before = node.shown();
    for bytes in [0, 1, 1000, 100_000] {
        let mut client = node.serve(Request::ShowRoutes { all: true });
        assert_eq!(node.instance.clients.replies.poll_events().count(), 1);
        let mut piece = vec![0; bytes];
        client.read_exact(&mut piece).expect("the beginning");
        drop(client);
        node.turn();
        assert_eq!(
            node.instance.clients.replies.poll_events().count(),
            0,
            "{bytes}"
        );
        assert_eq!(node.shown(), before);
    }
}

#[test]
fn a_client_that_dies_before_its_answer_has_changed_the_configuration_all_the_same() {
    let mut node = Simulation::new();
    drop(node.serve(request(
        "route add fc0f::/64 encap seg6 mode encap segs fc00:bb::e dev eth1",
    )));
    assert_eq!(node.verdict("fc0f::1"), "forward eth1");
}

#[test]
fn a_client_that_does_not_read_is_given_up_after_its_time_and_delays_nobody() {
    let mut node = with_long_reports();
    let mut silent = node.serve(Request::ShowRoutes { all: true });
    node.run(SECOND * 19);
    let status: report::Status = node.report(Request::ShowStatus);
    assert_eq!(status.uptime, 19);
    assert_eq!(node.instance.clients.replies.poll_events().count(), 1);
    node.run(SECOND * 2);
    assert_eq!(node.instance.clients.replies.poll_events().count(), 0);
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).expect("the beginning");
    assert!(!rest.ends_with(b"\n"), "the answer is incomplete");
}

#[test]
fn a_slow_client_gets_its_answer_while_others_change_the_configuration() {
    let mut node = with_long_reports();
    let mut slow = node.serve(Request::ShowRoutes { all: true });
    let mut text = Vec::new();
    let mut piece = vec![0; 50_000];
    while !text.ends_with(b"\n") {
        let bytes = slow.read(&mut piece).expect("it goes on");
        text.extend_from_slice(&piece[..bytes]);
        let number = text.len() / 1000;
        node.all([&format!("route add fd01:{number:x}::/32 via fc00:b::2 dev eth1")[..]]);
    }
    let reply: serde_json::Value = serde_json::from_slice(&text).expect("one whole answer");
    assert!(reply["ok"].as_array().expect("routes").len() >= 3000);
}

#[test]
fn a_clock_that_jumps_ends_unread_answers_and_nothing_else() {
    let mut node = with_long_reports();
    let shown = node.shown();
    let _silent = node.serve(Request::ShowRoutes { all: true });
    node.jump(SECOND * 1_000_000);
    node.turn();
    assert_eq!(node.instance.clients.replies.poll_events().count(), 0);
    assert_eq!(node.shown(), shown);
}

#[test]
fn a_batch_is_applied_as_a_whole_or_not_at_all() {
    let mut node = Simulation::new();
    let compilations = node.instance.tables.compilations;
    node.batch(&[
        "policy add gold color 1 endpoint fc00:b::2 segs fc00:bb::e",
        "route add fc0f::/64 policy gold",
        "domain add sid-block fc00:2::/32",
    ])
    .expect("three changes");
    assert_eq!(node.instance.tables.compilations, compilations + 1);
    let shown = node.shown();
    for (line, why) in [
        (
            "route add fc0f::/64 policy gold",
            "line 2: a route with this prefix",
        ),
        ("route add fc0d::/64 policy silver", "line 2: "),
        ("policy del gold", "line 2: a route leads into policy gold"),
    ] {
        let good = "route add fd00::/32 via fc00:b::2 dev eth1";
        let found = node.batch(&[good, line]).expect_err(line);
        assert!(found.starts_with(why), "{found}");
        assert_eq!(node.shown(), shown);
        assert_eq!(node.verdict("fd00::1"), "punt route_miss");
    }
    node.instance.tables.kernel.fail_after(0);
    let good = "route add fd00::/32 via fc00:b::2 dev eth1";
    node.batch(&[good]).expect_err("a write that fails");
    assert_eq!(node.shown(), shown);
    node.batch(&[good]).expect("the next one");
    assert_eq!(node.verdict("fd00::1"), "forward eth1");
}
