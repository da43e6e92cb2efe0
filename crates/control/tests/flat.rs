//! Flapping routes do not grow memory: lines of the prefix table, indices, heap bytes.
//!
//! `FLAPS=1000000 cargo test --release -p sidestep-control --test flat` is the long form. A program of its own: the heap
//! is that of the flaps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use sidestep_control::compile::{Compiled, Compiler};
use sidestep_datapath::{Delta, Limits, TableIndex};
use sidestep_fib::{Fib, Heap};
use sidestep_model::config::File;
use sidestep_model::grammar::{Context, route};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{Owner, Route};

/// Counts the bytes that are taken.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: what `alloc` gave.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// Routes that stay, and routes that flap.
const STAY: usize = 1000;
const FLAP: usize = 300;
/// Changes of each in a round: to something else, away, and back.
const ROUND: usize = 3 * FLAP;
/// Rounds after which everything is as large as it gets.
const WARM_UP: usize = 40;
/// Number of changes whose memory is reclaimed together, as in a grace period of the kernel.
const GRACE: usize = 64;

/// Bytes that the test's own surroundings may take meanwhile.
const HARNESS: usize = 4096;

const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64"], seg6_enabled: true}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64"]}
  eth2: {mac: "02:00:00:00:00:03", addresses: ["fc00:c::1/64"]}
neighbors: ["fc00:b::2 lladdr 02:00:00:00:00:11 dev eth1", "fc00:c::2 lladdr 02:00:00:00:00:12 dev eth2"]
tunsrc: "fc00:a::1"
routes:
- fd00::/8 via fc00:b::2 dev eth1
- fd00::/8 via fc00:c::2 dev eth2 table 100
"#;

fn parse(node: &Node, words: &str) -> Route {
    let context = Context {
        names: node,
        family: None,
        owner: Owner::Kernel,
    };
    route::parse_line(words, &context).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// A route that flaps, as it is at first and as it is for a while: of every kind of record.
fn pair(number: usize) -> [String; 2] {
    let prefix = match number % 3 {
        0 => format!("fd01:{number:x}::/32"),
        1 => format!("fd02:0:0:{number:x}::/64"),
        _ => format!("fd03::{number:x}:1/128"),
    };
    let targets = match number % 5 {
        0 => ["via fc00:b::2 dev eth1", "via fc00:c::2 dev eth2"],
        1 => [
            "encap seg6 mode encap segs fc00:b::2,fc00:d::NUMBER dev eth1",
            "encap seg6 mode encap.red segs fc00:c::2,fc00:e::NUMBER dev eth1",
        ],
        2 => [
            "encap seg6local action End dev eth0",
            "encap seg6local action End.X nh6 fc00:b::2 dev eth0",
        ],
        3 => [
            "nexthop via fc00:b::2 dev eth1 weight 3 nexthop via fc00:c::2 dev eth2",
            "via fc00:b::NUMBER dev eth1",
        ],
        _ => [
            "encap seg6local action End.DT6 table 100 dev eth0",
            "encap seg6local action End.X nh6 fc00:c::2 dev eth0",
        ],
    };
    targets.map(|target| {
        format!(
            "{prefix} {}",
            target.replace("NUMBER", &format!("{number:x}"))
        )
    })
}

/// Tables that follow a node.
struct Tables {
    node: Node,
    compiler: Compiler,
    compiled: Compiled,
    fib: Fib<Heap>,
    /// Changes, and how many of them were compiled alone.
    changes: usize,
    alone: usize,
}

impl Tables {
    fn new(node: Node) -> Self {
        let mut tables = Self {
            node,
            compiler: Compiler::new(Limits::default()),
            compiled: Compiled::default(),
            fib: Fib::new(Heap::new(1 << 16)),
            changes: 0,
            alone: 0,
        };
        tables.compile();
        tables
    }

    fn compile(&mut self) {
        let ports: BTreeSet<IfIndex> = self.node.links.keys().copied().collect();
        let compiled = self.compiler.attempt(&self.node, &ports, &BTreeMap::new());
        let compiled = compiled.expect("it compiles");
        let delta = Delta::between(&self.compiled.image, &compiled.image);
        self.compiled = compiled;
        self.apply(&delta);
    }

    /// A change, as the daemon does it.
    fn change(&mut self, before: &Route, after: Option<&Route>) {
        match after {
            Some(route) => self.node.routes.insert(route.key, route.clone()),
            None => self.node.routes.remove(&before.key),
        };
        let routes = [before.key];
        match self
            .compiler
            .update(&self.node, &routes, &[], &[], &mut self.compiled)
        {
            Ok(change) => {
                self.alone += 1;
                self.apply(&change.delta);
            }
            Err(_) => self.compile(),
        }
        self.changes += 1;
        if self.changes.is_multiple_of(GRACE) {
            self.release();
        }
    }

    fn apply(&mut self, delta: &Delta) {
        for (key, _, after) in delta.fib.iter() {
            let done = match after {
                Some(route) => self.fib.insert(key.view.0, (*key).into(), route.0),
                None => self.fib.remove(key.view.0, (*key).into()),
            };
            done.expect("there is room");
        }
        self.compiler.accept();
    }

    /// A grace period passes.
    fn release(&mut self) {
        self.fib.begin_grace();
        self.fib.end_grace();
        self.compiler.reclaim();
    }

    fn held(&mut self) -> Held {
        fn last<I: TableIndex>(index: Option<&I>) -> u32 {
            index.map_or(0, |index| (*index).into())
        }
        self.release();
        let usage = self.fib.usage();
        let (image, index) = (&self.compiled.image, &self.compiled.index);
        Held {
            lines: usage.used,
            edges: usage.edges,
            bytes: TAKEN.load(Ordering::Relaxed),
            records: [
                image.fib.len(),
                image.routes.len(),
                image.groups.len(),
                image.adjacencies.len(),
                image.policies.len(),
                index.views.len(),
                index.counters.len(),
            ],
            highest: [
                last(image.routes.keys().next_back()),
                last(image.groups.keys().next_back()),
                last(image.adjacencies.keys().next_back()),
                last(image.policies.keys().next_back()),
                last(index.views.keys().next_back()),
                last(index.counters.values().max()),
            ],
        }
    }
}

/// Memory after a round, with all routes in their initial state.
#[derive(Clone, Copy, Debug)]
struct Held {
    lines: usize,
    edges: usize,
    bytes: usize,
    /// Prefixes, routes, groups, adjacencies, policies, views, counters.
    records: [usize; 7],
    /// Indices in use.
    highest: [u32; 6],
}

#[test]
fn a_million_flaps_leak_no_line_index_or_byte() {
    let flaps = std::env::var("FLAPS").map_or(20_000, |text| text.parse().expect("a number"));
    let file = File::parse(NODE).expect("a good node file");
    let mut node = file.node().expect("a good node");
    for number in 0..STAY {
        let route = parse(
            &node,
            &format!("fd00:{number:x}::/48 via fc00:b::2 dev eth1"),
        );
        node.routes.insert(route.key, route);
    }
    let pairs: Vec<[Route; 2]> = (0..FLAP)
        .map(|number| pair(number).map(|words| parse(&node, &words)))
        .collect();
    for [own, _] in &pairs {
        node.routes.insert(own.key, own.clone());
    }
    let mut tables = Tables::new(node);
    let mut round = || {
        for step in 0..3 {
            for [own, other] in &pairs {
                tables.change(own, [Some(other), None, Some(own)][step]);
            }
        }
        tables.held()
    };

    // Where the tree is divided, and which index is free, depends on the past: within the first rounds everything has its
    // size.
    let mut most = round();
    for _ in 1..WARM_UP {
        let held = round();
        assert_eq!((held.records, held.edges), (most.records, most.edges));
        most.lines = most.lines.max(held.lines);
        most.bytes = most.bytes.max(held.bytes);
        most.highest = std::array::from_fn(|it| most.highest[it].max(held.highest[it]));
    }
    let mut last = most;
    for _ in 0..flaps / ROUND {
        last = round();
        assert_eq!((last.records, last.edges), (most.records, most.edges));
        let within = last.lines <= most.lines
            && last.bytes <= most.bytes + HARNESS
            && last.highest.iter().zip(most.highest).all(|(a, b)| *a <= b);
        assert!(within, "{most:?}, then {last:?}");
    }
    let (changes, alone) = (tables.changes, tables.alone);
    println!("{changes} changes, {alone} of them compiled alone: {most:?}, then {last:?}");
    assert!(alone * 4 > changes * 3, "{alone} of {changes}");
}
