//! `sidestep monitor`: an event for each change, at most ten times a second.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::SECOND;
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};

const POLICY: &str = "policy add gold color 100 endpoint fc00:c::2 segs fc00:c::2";

struct Listener(UnixStream);

impl Listener {
    fn new(node: &mut Simulation) -> Self {
        let stream = node.serve(Request::Monitor);
        let listener = Self(stream);
        assert_eq!(listener.read(), [""; 0], "the first line is empty");
        // Between two checks, which are compared, too.
        node.run(SECOND * 13 / 10);
        listener
    }

    fn events(&self) -> Vec<Value> {
        let lines = Simulation::lines(&self.0).into_iter();
        let events = lines.map(|mut line| line["ok"].take());
        events.filter(|event| !event.is_null()).collect()
    }

    /// Kind, event and subject of the events that have arrived.
    fn read(&self) -> Vec<String> {
        let words = |event: Value| {
            let word = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            format!("{} {} {}", word("kind"), word("event"), word("subject"))
        };
        self.events().into_iter().map(words).collect()
    }
}

fn start() -> Simulation {
    Simulation::with(STAR, &["eth0", "eth1", "eth2"], "")
}

/// Events after a command of `ip`.
fn after_ip(node: &mut Simulation, listener: &Listener, words: &str) -> Vec<String> {
    node.ip(words);
    node.run(SECOND * 2);
    listener.read()
}

#[test]
fn every_change_of_a_route_is_an_event() {
    let mut node = start();
    let listener = Listener::new(&mut node);
    let route = "fc00:5:e::/128 encap seg6local action End dev";
    for (words, event, text) in [
        (
            format!("route add {route} eth0"),
            "added",
            "fc00:5:e:: encap seg6local action End",
        ),
        (
            format!("route replace {route} eth1"),
            "changed",
            "fc00:5:e:: ",
        ),
        ("route del fc00:5:e::/128".into(), "removed", "fc00:5:e:: "),
    ] {
        let found = after_ip(&mut node, &listener, &words);
        let expected = format!("route {event} {text}");
        assert!(
            found.len() == 1 && found[0].starts_with(&expected),
            "{words}: {found:?}"
        );
    }
}

#[test]
fn a_policy_that_becomes_invalid_is_an_event_and_a_problem() {
    let mut node = start();
    let listener = Listener::new(&mut node);
    node.all([POLICY]);
    node.run(SECOND * 2);
    let found = listener.read();
    assert!(found.contains(&"policy valid gold".into()), "{found:?}");
    node.ip("neigh del fc00:c::2");
    node.run(SECOND * 2);
    let events = listener.events();
    let invalid = events
        .iter()
        .find(|event| event["kind"] == "policy")
        .expect("an event");
    assert_eq!(invalid["event"], "invalid");
    let why = "a segment list is invalid: neighbor fc00:c::2 is not resolved";
    assert_eq!(invalid["detail"], why);
    let begun = |event: &&Value| event["kind"] == "problem" && event["event"] == "begun";
    let begun = events.iter().find(begun).expect("a problem");
    assert_eq!(begun["subject"], "policy_invalid");
    assert!(!begun["severity"].is_null());
    node.all(["policy del gold"]);
    node.run(SECOND * 2);
    let found = listener.read();
    assert!(found.contains(&"policy removed gold".into()), "{found:?}");
    assert!(
        found.contains(&"problem resolved policy_invalid".into()),
        "{found:?}"
    );
}

#[test]
fn a_port_that_goes_down_up_and_away_has_its_events() {
    let mut node = start();
    let listener = Listener::new(&mut node);
    let found = after_ip(&mut node, &listener, "link down eth1");
    assert!(found.contains(&"port down eth1".into()), "{found:?}");
    assert!(
        found.contains(&"problem begun port_down".into()),
        "{found:?}"
    );
    let found = after_ip(&mut node, &listener, "link up eth1");
    assert!(found.contains(&"port up eth1".into()), "{found:?}");
    assert!(
        found.contains(&"problem resolved port_down".into()),
        "{found:?}"
    );
    let found = after_ip(&mut node, &listener, "link del eth1");
    assert!(found.contains(&"port detached eth1".into()), "{found:?}");
}

#[test]
fn many_changes_at_once_are_one_comparison_and_only_the_last_state_counts() {
    let mut node = start();
    let listener = Listener::new(&mut node);
    node.ip("link down eth1");
    let first = listener.read();
    assert_eq!(first[0], "port down eth1", "at once");
    for _ in 0..50 {
        node.ip("link up eth1");
        node.ip("link down eth1");
    }
    node.ip("link up eth1");
    assert_eq!(
        listener.read(),
        [""; 0],
        "not before the tenth of a second is over"
    );
    node.run(Duration::from_millis(100));
    let found = listener.read();
    assert_eq!(
        found.iter().filter(|event| event.contains("eth1")).count(),
        1,
        "{found:?}"
    );
    assert_eq!(found[0], "port up eth1");
}

#[test]
fn a_client_that_comes_later_gets_later_events_only() {
    let mut node = start();
    let first = Listener::new(&mut node);
    node.ip("link down eth1");
    let second = Listener::new(&mut node);
    node.ip("link up eth1");
    node.run(SECOND * 2);
    let count = |listener: &Listener| {
        let events = listener.read();
        events
            .iter()
            .filter(|event| event.starts_with("port "))
            .count()
    };
    assert_eq!((count(&first), count(&second)), (2, 1));
}

#[test]
fn a_client_that_hangs_up_is_forgotten_and_without_clients_nothing_is_compared() {
    let mut node = start();
    drop(Listener::new(&mut node));
    node.turn();
    assert_eq!(node.instance.clients.monitor.poll_events().count(), 0);
    assert_eq!(node.instance.clients.monitor.due(), None);
    let listener = Listener::new(&mut node);
    node.ip("link down eth1");
    assert_eq!(listener.read()[0], "port down eth1");
}

#[test]
fn too_many_listeners_are_refused() {
    let mut node = start();
    let all: Vec<_> = (0..16).map(|_| Listener::new(&mut node)).collect();
    let why = node.ask(Request::Monitor).expect_err("one more");
    assert_eq!(why, "16 clients listen already");
    node.ip("link down eth1");
    assert!(all.iter().all(|listener| listener.read().len() == 1));
}
