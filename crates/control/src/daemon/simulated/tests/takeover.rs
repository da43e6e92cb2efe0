//! A daemon that dies, and its successor.

use super::refused;
use crate::api::Request;
use crate::daemon::Options;
use crate::daemon::simulated::{STAR, Simulation, config_text};
use crate::report;

const FILE: &str =
    "ports: [eth0, eth1]\nroutes:\n- fc00:2::e encap seg6local action End dev eth0\n";
const TYPED: &str = "route add fc0f::/64 encap seg6 mode encap segs fc00:bb::e dev eth1";

fn start() -> Simulation {
    Simulation::with(STAR, &[], FILE)
}

/// Options of a start with this node file.
fn with_file(node: &Simulation, text: &str) -> Options {
    let config = sidestep_model::config::File::parse(text).expect("a node file");
    Options {
        ports: config.port_names().map(str::to_owned).collect(),
        config,
        ..node.options()
    }
}

fn taken_over(node: &Simulation) -> (usize, Vec<String>) {
    let taken_over = node.instance.configured.taken_over.clone();
    taken_over.map_or((0, Vec::new()), |it| (it.entries, it.left_out))
}

#[test]
fn changes_by_commands_are_taken_over_again_and_again() {
    let mut node = start();
    node.all([TYPED, "port add eth2", "route del fc00:2::e metric 1024"]);
    let with = node.shown();
    for _ in 0..3 {
        let options = with_file(&node, FILE);
        node = node.crash(options).expect("a start");
        assert_eq!(taken_over(&node), (3, Vec::new()));
        assert_eq!(node.shown(), with);
        assert_eq!(node.verdict("fc0f::1"), "forward eth1");
        assert_eq!(node.attached().len(), 3);
    }
    // The file contains one of them now.
    let more = format!("{FILE}- {}\n", &TYPED["route add ".len()..]);
    let options = with_file(&node, &more);
    node = node.crash(options).expect("a start");
    assert_eq!(node.shown(), with);
    // A reload of the file ends them.
    node.console.file = Some((Vec::new(), FILE.into()));
    node.all(["config reload"]);
    let options = with_file(&node, FILE);
    node = node.crash(options).expect("a start");
    assert_eq!(taken_over(&node), (0, Vec::new()));
    assert_eq!(node.verdict("fc0f::1"), "punt route_miss");
}

#[test]
fn changes_that_contradict_the_new_file_are_left_out_with_their_reason() {
    let mut node = start();
    node.all([
        "oam rate 7",
        "route add fc01::/16 via fc00:b::2 dev eth1",
        "route add fc02::/16 via fc00:b::2 dev eth1",
    ]);
    let other = "fc01::/16 via fc00:c::2 dev eth2 metric 1024 owner sidestep";
    let options = with_file(&node, &format!("{FILE}- {other}\noam_rate: 5\n"));
    let mut node = node.crash(options).expect("a start");
    let (entries, left_out) = taken_over(&node);
    assert_eq!((entries, left_out.len()), (1, 2), "{left_out:?}");
    assert!(
        left_out
            .iter()
            .any(|it| it.starts_with("+ routes: fc01::/16 via fc00:b::2"))
    );
    assert!(
        left_out.iter().any(|it| it.starts_with("+ oam_rate: 7")),
        "{left_out:?}"
    );
    let running = node.shown();
    assert!(
        running.contains("fc02::/16") && running.contains(other),
        "{running}"
    );
    assert!(running.contains("oam_rate: 5"), "{running}");
}

#[test]
fn a_start_that_fails_leaves_tables_ports_and_changes_to_the_next_one() {
    let mut node = start();
    node.all([TYPED, "port add eth2"]);
    let (with, ports) = (node.shown(), node.attached());
    let saved = node.saved();
    let image = node.instance.tables.kernel.image.clone();
    let options = with_file(&node, FILE);
    // The tables refuse every write of the next start.
    node.instance.tables.kernel.fail_always(true);
    let (why, left) = node.crash_and_fail(options.clone());
    assert!(why.contains("try again"), "{why}");
    assert!(left.image() == &image);
    let mut left = left;
    left.repair();
    let mut again = left.start(options).expect("a start");
    assert_eq!(
        (again.shown(), again.attached(), again.saved()),
        (with, ports, saved)
    );
    assert_eq!(again.verdict("fc0f::1"), "forward eth1");
}

#[test]
fn an_unconfirmed_configuration_ends_with_its_daemon_and_a_confirmed_one_does_not() {
    let mut node = start();
    node.all(["oam rate 7"]);
    let running = node.shown();
    for confirms in [false, true] {
        let request = Request::ApplyConfig {
            config: config_text("ports: [eth0]\n"),
            confirm: Some(600),
        };
        node.ask(request).expect("applied");
        if confirms {
            node.all(["config confirm"]);
        }
        let options = with_file(&node, FILE);
        node = node.crash(options).expect("a start");
        let expected = if confirms {
            "ports:\n- eth0\n"
        } else {
            &running
        };
        assert_eq!(node.shown(), expected);
    }
}

#[test]
fn the_next_instance_lets_go_of_ports_that_it_was_not_given() {
    let node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    assert_eq!(node.attached().len(), 3);
    let options = Options {
        ports: vec!["eth0".into(), "eth1".into()],
        ..node.options()
    };
    let node = node.crash(options).expect("a start");
    assert_eq!(
        node.attached().into_keys().collect::<Vec<_>>(),
        ["eth0", "eth1"]
    );
}

#[test]
fn a_successor_finds_the_changes_of_the_kernel_that_happened_between_them() {
    let mut node = start();
    node.all([TYPED]);
    node.ip_unread("route add fd00:1::/32 via fc00:b::2 dev eth1");
    node.ip_unread("neigh add fc00:b::2 lladdr 02:00:00:00:00:22 dev eth1 nud reachable");
    let options = with_file(&node, FILE);
    let mut node = node.crash(options).expect("a start");
    node.assert_compiled(["fd00:1::1", "fc0f::1", "fc00:bb::1"], "after the start");
    assert_eq!(
        node.packet("eth0", "fd00:1::1").1[..6],
        [2, 0, 0, 0, 0, 0x22]
    );
}

#[test]
fn a_change_that_is_refused_is_not_among_the_saved_ones() {
    let mut node = start();
    node.instance.tables.kernel.fail_always(true);
    refused(&mut node, TYPED);
    node.instance.tables.kernel.fail_always(false);
    let options = with_file(&node, FILE);
    let mut node = node.crash(options).expect("a start");
    assert_eq!(taken_over(&node), (0, Vec::new()));
    let status: report::Status = node.report(Request::ShowStatus);
    assert_eq!(status.origin, "adopted");
}
