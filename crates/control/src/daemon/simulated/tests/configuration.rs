//! The configuration: reloaded, applied, confirmed and rolled back.

use serde_json::Value;

use super::{SECOND, ask_ports, refused};
use crate::api::Request;
use crate::daemon::Phase;
use crate::daemon::simulated::{STAR, Simulation, config_text};
use crate::report;

const PORTS: &str = "ports: [eth0, eth1]\n";
const SID: &str = "fc00:2::e encap seg6local action End dev eth0 metric 1024 owner sidestep";
const TO_E: &str = "fc0f::/64 encap seg6 mode encap segs fc00:bb::e dev eth1";

fn with_file(file: &str) -> Simulation {
    Simulation::with(STAR, &[], file)
}

fn write(node: &mut Simulation, text: &str) {
    let ports = node
        .console
        .file
        .take()
        .map_or_else(Vec::new, |(ports, _)| ports);
    node.console.file = Some((ports, text.to_owned()));
}

fn reload(node: &mut Simulation) -> Result<Vec<String>, String> {
    let difference = node.ask(Request::ReloadConfig)?;
    Ok(lines(difference))
}

fn lines(difference: Value) -> Vec<String> {
    let difference: report::Difference = serde_json::from_value(difference).expect("a difference");
    difference.lines()
}

fn apply(node: &mut Simulation, text: &str, confirm: Option<u32>) -> Result<Vec<String>, String> {
    let config = config_text(text);
    node.ask(Request::ApplyConfig { config, confirm })
        .map(lines)
}

fn problem(node: &mut Simulation, code: &str) -> Option<report::Problem> {
    let status: report::Status = node.report(Request::ShowStatus);
    status.problems.into_iter().find(|it| it.code == code)
}

#[test]
fn a_reload_applies_what_changed_and_nothing_else() {
    let mut node = with_file(PORTS);
    let full = format!(
        "{PORTS}routes:\n- {SID}\n- fc0f::/64 policy p\nlocal_srh: linux\nfragment_rate: 7\n\
         policies: [\"p color 1 endpoint fc00:b::2 segs fc00:bb::e\"]\n"
    );
    for round in 0..4 {
        let is_full = round % 2 == 0;
        write(&mut node, if is_full { &full } else { PORTS });
        let changed = reload(&mut node).expect("a good file");
        let sign = if is_full { "+ " } else { "- " };
        assert_eq!(changed.len(), 5, "{changed:?}");
        assert!(
            changed.iter().all(|line| line.starts_with(sign)),
            "{changed:?}"
        );
        assert_eq!(node.shown().contains("fragment_rate: 7"), is_full);
        let expected = if is_full {
            "forward eth1"
        } else {
            "punt route_miss"
        };
        assert_eq!(node.verdict("fc0f::1"), expected);
        assert_eq!(node.verdict("fc00:bb::1"), "forward eth1", "another route");
    }
    assert_eq!(reload(&mut node), Ok(Vec::new()), "the file is the same");
    let phases = [Phase::Reloading, Phase::Ready];
    assert_eq!(node.console.phases, phases.repeat(5));
}

#[test]
fn a_bad_file_changes_nothing_and_is_a_problem_until_a_good_one_is_read() {
    let good = format!("{PORTS}routes:\n- {SID}\n");
    let mut node = with_file(&good);
    let before = node.shown();
    for (text, why) in [
        ("prots: [eth0]", "line 1, column 1: unknown field `prots`"),
        ("ports: eth0", "line 1, column 8: invalid `ports`"),
        ("ports: [eth0, eth0]", "line 1, column 15: duplicate port"),
        ("oam_rate: 1", "no port: name at least one interface"),
        (
            "ports: [eth0]\noam_rate: -1",
            "line 2, column 11: invalid value; expected a number",
        ),
        (
            "ports: [eth0]\nroutes: [fc00:2::1 encap seg6local action End dev eth9]",
            "line 2, column 51: no such interface \"eth9\"",
        ),
        (
            "ports: [eth0]\nhmac: {7: {algorithm: sha1}}",
            "no secret is known of HMAC key \"7\"",
        ),
    ] {
        write(&mut node, text);
        let found = reload(&mut node).expect_err(text);
        assert!(found.contains(why), "{found}");
        let shown = problem(&mut node, "reload_failed").expect("a problem");
        assert!(shown.sentence.contains(why), "{shown:?}");
        assert_eq!(node.shown(), before, "{text}");
        assert_eq!(node.verdict("fc00:2::e"), "drop no_srh");
    }
    node.console.file = None;
    let found = reload(&mut node).expect_err("no file");
    assert!(found.contains("No such file"), "{found}");
    assert!(problem(&mut node, "reload_failed").is_some());
    write(&mut node, &good);
    reload(&mut node).expect("a good file");
    assert_eq!(problem(&mut node, "reload_failed"), None);
}

#[test]
fn keys_that_need_a_restart_are_refused_at_a_reload() {
    let start = "ports: [eth0, eth1]\nmode: tc\nlimits: {prefixes: 5000, route-counters: 300}\n";
    let mut node = with_file(start);
    node.instance.configured.options.mode = crate::daemon::Mode::Tc;
    let limits = &mut node.instance.configured.options.limits;
    (limits.fib, limits.route_counters) = (5000, 300);
    let before = node.shown();
    assert_eq!(reload(&mut node), Ok(Vec::new()));
    for (from, to, why) in [
        (
            "mode: tc",
            "mode: xdp-always",
            "line 2, column 7: `mode` is tc while the daemon runs, not \"xdp-always\"; expected a restart",
        ),
        (
            "counters: 300",
            "counters: 301",
            "line 3, column 42: `limits`: route-counters is 300 while the daemon runs, not \"301\"",
        ),
        (
            "mode: tc",
            "pin_root: /sys/fs/bpf/other",
            "line 2, column 11: `pin_root` is /sys/fs/bpf/sidestep while the daemon runs, not",
        ),
        (
            "mode: tc",
            "metrics: 127.0.0.1:9",
            "metrics: the endpoint cannot change to 127.0.0.1:9 at run time",
        ),
    ] {
        write(
            &mut node,
            &format!("{}oam_rate: 3\n", start.replace(from, to)),
        );
        let found = reload(&mut node).expect_err(to);
        assert!(found.contains(why), "{found}");
        assert_eq!(node.shown(), before);
    }
}

#[test]
fn rates_of_a_node_file_take_effect_at_once() {
    let mut node = with_file(PORTS);
    let rates = |node: &Simulation| {
        let rates = node.instance.tables.kernel.rates.get();
        rates.map(|rate| rate.expect("a rate").per_second)
    };
    let before = rates(&node);
    write(
        &mut node,
        &format!("{PORTS}icmp_rate: 1\nicmp_burst: 1\nfragment_rate: 7\n"),
    );
    let changed = reload(&mut node).expect("a good file");
    assert_eq!(changed.len(), 3, "{changed:?}");
    assert_eq!(rates(&node), [1, 7]);
    let fragments: report::Fragments = node.report(Request::ShowFragments);
    assert_eq!(fragments.rate, 7);
    write(&mut node, PORTS);
    reload(&mut node).expect("a good file");
    assert_eq!(rates(&node), before);
}

#[test]
fn ports_of_the_command_line_survive_a_reload_and_those_by_command_do_not() {
    let mut node = Simulation::with(STAR, &["eth0"], "ports: [eth1]\n");
    let before = node.shown();
    assert_eq!(before, "ports:\n- eth0\n- eth1\n");
    node.all(["port add eth2"]);
    assert_eq!(ask_ports(&mut node).len(), 3);
    assert_eq!(reload(&mut node), Ok(vec!["- ports: eth2".into()]));
    assert_eq!(node.shown(), before);
}

#[test]
fn without_a_node_file_there_is_nothing_to_read_again() {
    let mut node = Simulation::new();
    node.all(["domain add sid-block fc00::/16"]);
    let before = node.shown();
    let found = reload(&mut node).expect_err("no file");
    assert!(found.contains("without `--config FILE`"), "{found}");
    assert_eq!(node.shown(), before);
}

/// Entries of every kind.
const ENTRIES: [&str; 8] = [
    "route add fc00:2::e encap seg6local action End dev eth0",
    "route add fc00:2::ad encap seg6local action End.AD oif eth1 nh6 fc00:b::2 dev eth1",
    "rule add iif eth0 lookup 100",
    "vlan add table 10 vid 100 dev eth1",
    "domain add sid-block fc00:2::/32",
    "policy add p color 1 endpoint fc00:b::2 segs fc00:bb::e weight 3 segs fc00:bb::f",
    "route add fc0f::/64 policy p",
    "oam rate 10",
];

#[test]
fn what_is_shown_is_applied_again_unchanged_and_starts_a_daemon() {
    let mut node = Simulation::new();
    node.all(ENTRIES);
    let text = node.shown();
    let config = config_text(&text);
    let same = node.ask(Request::DiffConfig { config }).map(lines);
    assert_eq!(same, Ok(Vec::new()));
    let compilations = node.instance.tables.compilations;
    assert_eq!(apply(&mut node, &text, None), Ok(Vec::new()));
    assert_eq!(node.shown(), text);
    assert!(node.instance.tables.compilations <= compilations + 1);
    let config = config_text(&text.replace("oam_rate: 10", "oam_rate: 11"));
    let other = node.ask(Request::DiffConfig { config }).map(lines);
    assert_eq!(
        other,
        Ok(vec!["- oam_rate: 10".into(), "+ oam_rate: 11".into()])
    );
    assert_eq!(node.shown(), text, "a comparison changes nothing");
    let mut started = with_file(&text);
    assert_eq!(started.shown(), text);
    for to in [
        "fc00:2::e",
        "fc00:2::ad",
        "fc0f::1",
        "fc00:bb::1",
        "fc00:b::2",
        "fd00::1",
    ] {
        assert_eq!(started.packet("eth0", to), node.packet("eth0", to), "{to}");
    }
}

#[test]
fn changes_by_commands_outlive_a_crash() {
    let mut node = Simulation::new();
    node.all(ENTRIES);
    let (text, options) = (node.shown(), node.options());
    let options = crate::daemon::Options {
        ports: vec!["eth0".into(), "eth1".into()],
        ..options
    };
    let mut again = node.crash(options).expect("a start");
    assert_eq!(again.shown(), text);
    let taken_over = again
        .instance
        .configured
        .taken_over
        .clone()
        .expect("changes");
    assert_eq!(
        (taken_over.entries, taken_over.left_out),
        (ENTRIES.len() + 1, Vec::new())
    );
    assert_eq!(again.verdict("fc0f::1"), "forward eth1");
}

#[test]
fn an_unconfirmed_configuration_is_rolled_back_in_time() {
    let mut node = Simulation::new();
    node.all([&format!("route add {TO_E}")[..]]);
    let before = node.shown();
    let other = format!("{PORTS}routes:\n- {SID}\n");
    apply(&mut node, &other, Some(10)).expect("applied");
    assert_eq!(node.verdict("fc0f::1"), "punt route_miss");
    let found = problem(&mut node, "unconfirmed").expect("a problem");
    assert_eq!(found.repair.as_deref(), Some("sidestep config confirm"));
    let again = apply(&mut node, &other, None).expect_err("a trial");
    assert!(again.contains("or is rolled back in 10 s"), "{again}");
    node.run(SECOND * 9);
    assert_ne!(node.shown(), before);
    node.run(SECOND);
    assert_eq!(node.shown(), before);
    assert_eq!(node.verdict("fc0f::1"), "forward eth1");
    assert_eq!(problem(&mut node, "unconfirmed"), None);
    let line = "the configuration was not confirmed: the previous one is back";
    assert_eq!(node.console.log, [line]);
}

#[test]
fn a_confirmed_configuration_stays_and_is_confirmed_once() {
    let mut node = Simulation::new();
    let other = format!("{PORTS}routes:\n- {SID}\n");
    apply(&mut node, &other, Some(4)).expect("applied");
    node.run(SECOND * 3);
    node.all(["config confirm"]);
    let shown = node.shown();
    assert!(shown.contains("fc00:2::e"), "{shown}");
    node.run(SECOND * 60);
    assert_eq!(node.shown(), shown);
    assert!(refused(&mut node, "config confirm").contains("no configuration waits"));
    assert_eq!(node.console.log, [""; 0]);
}

#[test]
fn a_trial_that_changes_nothing_needs_no_confirmation() {
    let mut node = Simulation::new();
    let text = node.shown();
    assert_eq!(apply(&mut node, &text, Some(4)), Ok(Vec::new()));
    assert!(refused(&mut node, "config confirm").contains("no configuration waits"));
}

#[test]
fn a_crash_before_the_confirmation_leads_back_to_the_configuration_before() {
    let mut node = Simulation::new();
    node.all([&format!("route add {TO_E}")[..]]);
    let (before, options) = (node.shown(), node.options());
    apply(&mut node, &format!("{PORTS}routes:\n- {SID}\n"), Some(60)).expect("applied");
    assert_ne!(node.shown(), before);
    let mut again = node.crash(options).expect("a start");
    assert_eq!(again.shown(), before);
    assert_eq!(again.verdict("fc0f::1"), "forward eth1");
}

#[test]
fn a_machine_that_sleeps_during_a_trial_rolls_back_when_it_wakes_up() {
    let mut node = Simulation::new();
    let before = node.shown();
    apply(&mut node, &format!("{PORTS}routes:\n- {SID}\n"), Some(10)).expect("applied");
    node.jump(SECOND * 3600);
    node.turn();
    assert_eq!(node.shown(), before);
}

#[test]
fn a_rollback_that_fails_is_tried_again_until_it_succeeds() {
    let mut node = Simulation::new();
    let before = node.shown();
    apply(&mut node, &format!("{PORTS}routes:\n- {SID}\n"), Some(10)).expect("applied");
    node.instance.tables.kernel.fail_always(true);
    node.run(SECOND * 12);
    assert_ne!(node.shown(), before, "the tables refuse");
    assert!(problem(&mut node, "reload_failed").is_some());
    node.instance.tables.kernel.fail_always(false);
    node.run(SECOND * 2);
    assert_eq!(node.shown(), before);
    assert_eq!(problem(&mut node, "reload_failed"), None);
}

#[test]
fn an_interface_that_is_made_again_during_a_trial_is_in_the_configuration_before() {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    node.all(["route add fc0f::/64 encap seg6 mode encap segs fc00:bb::e dev eth2"]);
    let before = node.shown();
    apply(&mut node, "ports: [eth0, eth1, eth2]\n", Some(10)).expect("applied");
    node.ip("link del eth2");
    node.add_link("eth1", "eth2", 77);
    node.run(SECOND * 11);
    assert_eq!(node.shown(), before);
    let own = &node.instance.configured.own.routes;
    let devices = own
        .values()
        .flat_map(|route| route.next_hops.iter().map(|hop| hop.dev));
    let devices: Vec<_> = devices.flatten().map(|dev| dev.0).collect();
    assert_eq!(devices, [77]);
}

#[test]
fn an_apply_that_fails_at_its_last_step_changes_nothing() {
    let mut node = Simulation::new();
    let before = node.shown();
    let (ports, image) = (node.attached(), node.instance.tables.kernel.image.clone());
    let eth2 = node.dev("eth2").0;
    node.instance.tables.kernel.refusing.insert(eth2);
    let text = format!("ports: [eth1, eth2]\nroutes:\n- {SID}\noam_rate: 9\n");
    let found = apply(&mut node, &text, None).expect_err("a port that refuses");
    assert!(found.starts_with("port eth2: "), "{found}");
    for _ in 0..5 {
        assert!(refused(&mut node, "port add eth2").starts_with("port eth2: "));
    }
    assert_eq!((node.shown(), node.attached()), (before, ports));
    assert!(node.instance.tables.kernel.image == image);
}

#[test]
fn a_write_that_fails_at_any_point_of_an_apply_changes_nothing() {
    let text = format!("{PORTS}routes:\n- {SID}\n- {TO_E}\noam_rate: 9\n");
    let writes = {
        let mut node = Simulation::new();
        let before = node.instance.tables.kernel.writes;
        apply(&mut node, &text, None).expect("applied");
        node.instance.tables.kernel.writes - before
    };
    for after in 0..writes {
        let mut node = Simulation::new();
        let (before, image) = (node.shown(), node.instance.tables.kernel.image.clone());
        node.instance.tables.kernel.fail_after(after);
        apply(&mut node, &text, None).expect_err("a write that fails");
        assert_eq!(node.shown(), before);
        assert!(node.instance.tables.kernel.image == image, "write {after}");
        apply(&mut node, &text, None).expect("the next one");
        assert_eq!(node.verdict("fc0f::1"), "forward eth1");
    }
}

#[test]
fn ports_come_and_go_and_wrong_ones_are_refused() {
    let mut node = Simulation::new();
    for _ in 0..3 {
        node.all(["port add eth2"]);
        assert!(node.attached().contains_key("eth2"));
        node.all(["port del eth2"]);
        assert!(!node.attached().contains_key("eth2"));
    }
    for (words, why) in [
        ("port add eth1", "port eth1: exists already"),
        (
            "port del eth2",
            "port eth2: no such port; the ports are eth0, eth1",
        ),
        (
            "port add a/b",
            "port a/b: no name of an interface; expected 1 to 15 bytes",
        ),
    ] {
        let found = refused(&mut node, words);
        assert!(found.starts_with(why), "{found}");
    }
    node.all(["port del eth1", "port del eth0"]);
    assert!(problem(&mut node, "no_ports").is_some());
    assert!(node.shown().starts_with("ports: []\n"));
    assert!(node.attached().is_empty());
}

#[test]
fn a_port_that_does_not_exist_is_waited_for_with_the_routes_through_it() {
    let waiting =
        "fc00:2::ad encap seg6local action End.AD nh6 fc00:5::2 oif svc0 dev svc0 metric 1024";
    let text = format!("ports: [eth0, svc0]\nroutes:\n- {waiting}\ndomain: [inside svc0]\n");
    let mut node = with_file(&text);
    assert!(problem(&mut node, "port_missing").is_some());
    let before = node.shown();
    assert!(before.contains(waiting), "{before}");
    assert_eq!(reload(&mut node), Ok(Vec::new()));
    let target = |node: &mut Simulation| {
        let ports: report::Ports = node.report(Request::ShowPorts);
        let port = ports.into_iter().find(|port| port.name == "svc0");
        port.expect("a port").target
    };
    assert_eq!(target(&mut node), "none");
    for round in 0..2 {
        node.add_link("eth1", "svc0", 40 + round);
        assert_ne!(target(&mut node), "none");
        let routes: report::Routes = node.report(Request::ShowRoutes { all: false });
        let route = routes.iter().find(|route| route.prefix == "fc00:2::ad/128");
        assert_eq!(route.expect("the route").punt_reason, None);
        assert_eq!(node.shown(), before);
        node.ip("link del svc0");
        assert_eq!(target(&mut node), "none");
    }
    // A daemon that takes over waits again.
    let options = node.options();
    let mut again = node.crash(options).expect("a start");
    assert_eq!(again.shown(), before);
    again.all(["port add svc9", "port del svc9"]);
    assert_eq!(again.shown(), before);
}

#[test]
fn a_daemon_starts_before_all_of_its_ports() {
    let mut node = Simulation::with(STAR, &["svc0"], "");
    assert!(node.attached().is_empty());
    node.add_link("eth1", "svc0", 40);
    assert_eq!(node.attached().len(), 1);
}
