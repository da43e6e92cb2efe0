//! Tables in virtual time, over a packet path that fails when a test wants. Neither root nor a kernel
//! is needed.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use sidestep_datapath::{Native, Verdict, VerdictKind};
use sidestep_mirror::Urgent;
use sidestep_model::config::File;
use sidestep_model::liveness::Watched;
use sidestep_testkit::differential::headers::bare_ipv6;

use super::*;
use crate::api::{Noun, Verb};
use crate::daemon::commands;
use crate::daemon::simulated::MemoryPath;

const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64"], seg6_enabled: true}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64"], seg6_enabled: true}
neighbors:
- "fc00:b::2 lladdr 02:00:00:00:00:12 dev eth1"
- "fc00:b::3 lladdr 02:00:00:00:00:13 dev eth1"
routes: ["fc00:bb::/32 via fc00:b::2 dev eth1", "fd00:10::/32 via fc00:b::3 dev eth1"]
tunsrc: "fc00:5::1"
"#;

/// A node, its overlay and its tables.
struct World {
    node: Node,
    own: Overlay,
    ports: BTreeSet<IfIndex>,
    tables: Tables<MemoryPath>,
    now: Instant,
}

impl World {
    fn new(limits: Limits) -> Self {
        let node = File::parse(NODE).and_then(|file| file.node());
        let node = node.expect("a node");
        let now = Instant::now();
        let tables = Tables::beside(
            MemoryPath::default(),
            (Origin::Fresh, Image::default()),
            limits,
            OverlaidNode::default(),
            now,
        );
        let mut world = Self {
            ports: node.links.keys().copied().collect(),
            own: Overlay::default(),
            node,
            tables,
            now,
        };
        world.recompile(None).expect("an empty overlay");
        world
    }

    fn recompile(&mut self, before: Option<&Overlay>) -> Result<(), DaemonError> {
        let on = Sources {
            mirrored: &self.node,
            own: &self.own,
            devices: &Devices::default(),
            down: &BTreeSet::new(),
            watched: &Watched::default(),
            ports: &self.ports,
        };
        self.tables.recompile(on, before)
    }

    /// Changes a route of the overlay, not yet of the tables. Returns its key.
    fn change(&mut self, verb: Verb, words: &str) -> RouteKey {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let node = &self.node;
        let changed = commands::change(&mut self.own, node, node, Noun::Route, verb, &words);
        match changed {
            Ok(commands::Changed::Route(key)) => key,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    /// Changes a route of the overlay, and the tables by that alone.
    fn apply(&mut self, verb: Verb, words: &str) -> bool {
        let changes = Changes {
            routes: vec![self.change(verb, words)],
            ..Changes::default()
        };
        self.tables.apply(&self.node, &self.own, &changes)
    }

    /// Asserts that packets leave as with the tables of a full compilation.
    fn assert_compiled(&self, what: &str) {
        let mut fresh = Self::new(Limits::default());
        fresh.own = self.own.clone();
        fresh.recompile(None).expect("room for all");
        let (found, expected) = (self.tables.kernel.seen(), fresh.tables.kernel.seen());
        let (found, expected) = (packets(&found), packets(&expected));
        assert_eq!(found, expected, "{what}");
        let is_sent = |(verdict, _): &&(Verdict, _)| verdict.kind() == VerdictKind::Forward;
        assert!(
            found.iter().filter(is_sent).count() > 1,
            "{what}: {found:?}"
        );
    }

    /// Lets time pass until no work is due. Returns the times of full compilations since now.
    fn settle(&mut self) -> Vec<Duration> {
        let (begun, mut compilations) = (self.now, Vec::new());
        for _ in 0..1000 {
            let Some(due) = self.tables.reclaim_due() else {
                return compilations;
            };
            self.now = self.now.max(due);
            if self.tables.reclaim(self.now) {
                compilations.push(self.now - begun);
                self.recompile(None).expect("what fits");
                self.tables.refitted(self.now, Duration::ZERO);
            }
        }
        panic!("work is always due");
    }
}

/// Verdicts and frames of packets to these addresses by the tables of the packet path.
fn packets(image: &Image) -> Vec<(Verdict, Vec<u8>)> {
    let mut native = Native::new(image);
    let eth0 = *image.ports.keys().next().expect("a port");
    let to = (0..12).map(|number| format!("fd00:{number}::1"));
    to.map(|to| {
        let ends = ["fc00:a::2", &to].map(|text| text.parse::<Ipv6Addr>().expect("IPv6"));
        let frame = bare_ipv6([2, 0, 0, 0, 0, 1], ends[0], ends[1]);
        let verdict = native.run(eth0, &frame);
        (verdict, native.frame().to_vec())
    })
    .collect()
}

/// Routes of every kind, by number.
fn words(number: usize, kind: usize) -> String {
    let next = [
        "encap seg6 mode encap segs fc00:bb::e,fc00:bb::f dev eth1",
        "encap seg6local action End dev eth0",
        "via fc00:b::2 dev eth1",
        "encap seg6local action End.DT6 table main dev eth0",
        "encap seg6 mode encap.red segs fc00:bb::1 dev eth1",
    ][kind % 5];
    format!("fd00:{number}::/32 {next}")
}

/// Changes of the routes in an order that uses records again.
fn script() -> Vec<(Verb, String)> {
    let add = (0..6).map(|number| (Verb::Add, words(number, number)));
    let replace = (0..6).map(|number| (Verb::Replace, words(number, number + 2)));
    let del = [1, 4, 2].map(|number| (Verb::Del, format!("fd00:{number}::/32")));
    let again = [4, 1].map(|number| (Verb::Add, words(number, number + 1)));
    add.chain(replace).chain(del).chain(again).collect()
}

#[test]
fn changes_of_own_routes_need_no_compilation_and_lead_to_the_same_tables() {
    let mut world = World::new(Limits::default());
    world.change(Verb::Add, &words(9, 0));
    world.recompile(None).expect("room");
    let before = world.tables.compilations;
    for (verb, words) in script() {
        assert!(world.apply(verb, &words), "{verb:?} {words}");
        world.assert_compiled(&words);
        world.settle();
    }
    assert_eq!(world.tables.compilations, before);
}

#[test]
fn a_write_that_fails_leaves_the_tables_and_a_compilation_repairs_them() {
    let all = script().len();
    for failing in 1..=all {
        let mut world = World::new(Limits::default());
        world.change(Verb::Add, &words(9, 0));
        world.recompile(None).expect("room");
        world.tables.kernel.fail_after(failing - 1);
        for (number, (verb, words)) in script().into_iter().enumerate() {
            let image = world.tables.kernel.image.clone();
            let done = world.apply(verb, &words);
            assert_eq!(done, number + 1 != failing, "{words}");
            if !done {
                assert!(world.tables.kernel.image == image, "{words}");
                world.recompile(None).expect("the next write");
            }
            world.assert_compiled(&words);
        }
        world.settle();
        world.assert_compiled("later");
    }
}

#[test]
fn a_compilation_whose_write_fails_changes_nothing_and_the_next_one_everything() {
    let mut world = World::new(Limits::default());
    for (verb, words) in script() {
        let before = world.own.clone();
        world.change(verb, &words);
        let image = world.tables.kernel.image.clone();
        world.tables.kernel.fail_after(0);
        world.recompile(Some(&before)).expect_err("a failed write");
        assert!(world.tables.kernel.image == image, "{words}");
        world.recompile(Some(&before)).expect("the next write");
        world.assert_compiled(&words);
        world.settle();
    }
}

#[test]
fn what_did_not_fit_comes_in_when_other_routes_go() {
    let limits = Limits {
        policies: 4,
        ..Limits::default()
    };
    let mut world = World::new(limits);
    let list = |number: usize| {
        format!("fd00:{number}::/32 encap seg6 mode encap segs fc00:bb::{number:x} dev eth1")
    };
    for number in 0..8 {
        world.change(Verb::Add, &list(number));
    }
    world.recompile(None).expect("as far as it fits");
    let left = world.tables.compiled.index.full.len();
    assert!(left > 0 && left < 8, "{left}");
    assert_eq!(world.settle(), [Duration::ZERO; 0], "nothing has gone");

    // One goes: its index is free after a grace period, and one of the others comes in.
    world.tables.kernel.refusals = 2;
    assert!(world.apply(Verb::Del, "fd00:0::/32"));
    let attempts = world.settle();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    let looks = 2 + 1 + 3;
    assert_eq!(attempts[0], RECLAIM_PERIOD * (looks - 1), "{attempts:?}");
    assert_eq!(world.tables.compiled.index.full.len(), left - 1);

    // Attempts keep their distance, however fast routes come and go.
    let mut attempts = Vec::new();
    let begun = world.now;
    for number in 1..8 {
        world.apply(Verb::Del, &format!("fd00:{number}::/32"));
        let at = world.now - begun;
        attempts.extend(world.settle().into_iter().map(|after| at + after));
    }
    for pair in attempts.windows(2) {
        assert!(pair[1] >= pair[0] + REFIT, "{attempts:?}");
    }
    assert!(world.tables.compiled.index.full.is_empty());
}

#[test]
fn a_clock_that_jumps_ahead_costs_one_look() {
    let mut world = World::new(Limits::default());
    world.change(Verb::Add, &words(0, 0));
    world.recompile(None).expect("room");
    assert!(world.apply(Verb::Del, "fd00:0::/32"));
    world.now += Duration::from_secs(3600);
    assert!(
        world
            .tables
            .reclaim_due()
            .is_some_and(|due| due <= world.now)
    );
    world.settle();
    assert_eq!(world.tables.reclaim_due(), None);
}

#[test]
fn a_link_that_goes_down_suspends_next_hops_of_the_kernel_until_the_routes_have_changed() {
    let mut world = World::new(Limits::default());
    world.change(Verb::Add, "fd00:1::/32 via fc00:b::2 dev eth1");
    world.recompile(None).expect("room");
    let verdicts = |world: &World| {
        let found = packets(&world.tables.kernel.seen());
        [1, 10].map(|number| found[number].0.kind().name())
    };
    assert_eq!(verdicts(&world), ["forward", "forward"]);
    let eth1 = world.node.link_by_name("eth1").expect("a link").ifindex;
    world.tables.urgent(&world.node, Urgent::Link(eth1));
    // Linux has no route of the first one, so there is nothing to leave it to.
    assert_eq!(verdicts(&world), ["forward", "punt"]);
    world.tables.resume();
    assert_eq!(verdicts(&world), ["forward", "forward"]);
    assert!(world.tables.kernel.suspended.borrow().is_empty());
}
