//! Memory of the daemon per service route, by type. `--nocapture` prints the table of
//! docs/reference/limits.md.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use dhat::{Alloc, HeapStats, Profiler};
use ipnet::Ipv6Net;
use sidestep_control::compile::{Compiled, Compiler};
use sidestep_datapath::{Image, Limits};
use sidestep_model::config::File;
use sidestep_model::grammar::{Context, route};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{Owner, Route, RouteKey};

#[global_allocator]
static ALLOCATOR: Alloc = Alloc;

const ROUTES: u32 = 20_000;
/// Routes with a counter of their own: the default share of 200,000 routes.
const COUNTERS: u32 = ROUTES * 65_536 / 200_000;

const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64"]}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64"]}
neighbors: [fc00:b::2 lladdr 02:00:00:00:01:02 dev eth1]
routes: [fcbb:9::/32 via fc00:b::2 dev eth1]
"#;

/// Adds service routes behind one nexthop object, as the mirror has them.
fn add_routes(node: &mut Node) {
    let context = Context {
        names: node,
        family: None,
        owner: Owner::Kernel,
    };
    let line = "2001::/16 via fc00:b::2 dev eth1 encap seg6 mode encap segs fcbb:9::6";
    let first = route::parse_line(line, &context).expect("a route");
    for number in 0..ROUTES {
        let address = (0x2001_1000 + u128::from(number >> 16)) << 96;
        let address = address | u128::from(number & 0xffff) << 80;
        let prefix = Ipv6Net::new(Ipv6Addr::from(address), 48).expect("a prefix");
        let key = RouteKey {
            metric: 20,
            ..RouteKey::new(prefix.into())
        };
        let route = Route {
            key,
            nhid: Some(11),
            ..first.clone()
        };
        node.routes.insert(key, route);
    }
}

/// Prints and returns the bytes per route that the heap has lost or gained.
struct Meter(usize);

impl Meter {
    fn step(&mut self, of: &str) -> usize {
        let now = HeapStats::get().curr_bytes;
        let per_route = now.abs_diff(self.0) / ROUTES as usize;
        println!("{per_route:5} {of}");
        self.0 = now;
        per_route
    }
}

#[test]
fn a_service_route_takes_at_most_700_bytes() {
    let _profiler = Profiler::builder().testing().build();
    let file = File::parse(NODE).expect("a good node file");
    let mut node = file.node().expect("a good node");
    let ports: BTreeSet<IfIndex> = node.links.keys().copied().collect();
    let limits = Limits {
        route_counters: COUNTERS,
        ..Limits::default()
    };
    let mut compiler = Compiler::beside(limits, &Image::default());
    let mut meter = Meter(HeapStats::get().curr_bytes);
    add_routes(&mut node);
    let mut sum = meter.step("routes of the node");
    let attempt = compiler.attempt(&node, &ports, &BTreeMap::new());
    let Compiled { image, index } = attempt.expect("a good node");
    compiler.accept();
    assert!(image.fib.len() >= ROUTES as usize);
    sum += meter.step("all of the compilation, of it:");
    drop(image.fib);
    meter.step("  prefixes");
    drop((image.routes, index.routes));
    meter.step("  route records, and the routes they are named after");
    drop(index.counters);
    meter.step("  counters by route");
    drop(compiler);
    meter.step("  winners, entries and indices of the compiler");
    assert!(sum <= 700, "{sum} bytes per route");
}
