//! Compares three versions of the tables: those of the running program, those in the kernel, and
//! those of a full compilation of the node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::compile::Compiler;
use sidestep_datapath::abi::{SIDESTEP_ADJACENCY_PEER, sidestep_route};
use sidestep_datapath::kernel::{Kernel, PIN_ROOT};
use sidestep_datapath::{AdjacencyId, FibKey, Image, Limits, PolicyId, RouteId, ViewId};
use sidestep_mirror::Mirror;
use sidestep_model::node::IfIndex;
use sidestep_testkit::Namespace;

use super::{Star, report};

/// Time limit until many changes are in effect. It allows for several full compilations of an
/// unoptimized program on a busy machine.
const PROMISED: Duration = Duration::from_secs(240);

/// Returns the number of prefixes in the tables of the running program.
pub fn prefixes(star: &Star) -> u64 {
    let status: report::Status = report(star.router(), Request::ShowStatus);
    status.prefixes
}

/// Waits until the tables have this number of prefixes.
pub fn wait_for_prefixes(star: &Star, count: u64) {
    let begin = Instant::now();
    loop {
        // It replies between two changes, and each may be a full compilation.
        let answer = star.call(Request::ShowStatus);
        let now = answer.map(|status| status["prefixes"].as_u64());
        if matches!(now, Ok(Some(now)) if now == count) {
            return;
        }
        assert!(
            begin.elapsed() < PROMISED,
            "{now:?} prefixes, {count} wanted"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Describes the tables independently of indices. Equal texts mean equal processing of all packets.
/// They omit redirects to peers, because these depend on programs and captures at the devices. A
/// compilation of the node does not know them.
pub fn meaning(image: &Image) -> Vec<String> {
    let mut numbers: BTreeMap<ViewId, usize> = BTreeMap::new();
    let mut queue = VecDeque::new();
    let mut number = |view: ViewId, queue: &mut VecDeque<ViewId>| {
        if view.is_none() {
            return 0;
        }
        let next = numbers.len() + 1;
        *numbers.entry(view).or_insert_with(|| {
            queue.push_back(view);
            next
        })
    };
    let adjacency = |index: AdjacencyId| {
        if index.is_none() {
            return "none".to_owned();
        }
        let it = &image.adjacencies[&index];
        let (to, from) = (super::hex(&it.destination), super::hex(&it.source));
        let flags = it.flags & !(SIDESTEP_ADJACENCY_PEER as u16);
        format!("({to} {from} {flags:#x} {} {})", it.ifindex, it.mtu)
    };
    let mut lines = Vec::new();
    for (ifindex, port) in &image.ports {
        let views = [port.view6, port.view4].map(|view| number(view, &mut queue));
        lines.push(format!(
            "port {ifindex} {} {:#x} {views:?}",
            super::hex(&port.mac),
            port.flags
        ));
    }
    let mut of_view: BTreeMap<ViewId, Vec<_>> = BTreeMap::new();
    for (key, route) in &image.fib {
        of_view.entry(key.view).or_default().push((key, route));
    }
    let mut seen = 0;
    while let Some(view) = queue.pop_front() {
        seen += 1;
        for (key, index) in of_view.get(&view).into_iter().flatten() {
            // An interval without a route.
            let Some(route) = image.routes.get(index) else {
                lines.push(format!("view {seen} {} no route", super::hex(&key.address)));
                continue;
            };
            let views = [route.view6, route.view4].map(|view| number(view, &mut queue));
            let policy = match route.policy_id() {
                PolicyId::NONE => "none".to_owned(),
                index => {
                    let it = &image.policies[&index];
                    let view = number(it.view, &mut queue);
                    let header = super::hex(&it.header[..usize::from(it.length)]);
                    let next = adjacency(it.adjacency);
                    format!("({} {} {view} {next} {header})", it.kind, it.flow_label)
                }
            };
            lines.push(format!(
                "view {seen} {} action {} {:#x} {} {} {views:?} {policy}",
                super::hex(&key.address),
                route.action,
                route.flags,
                route.reason,
                adjacency(route.adjacency)
            ));
        }
    }
    // There are no unreferenced records.
    lines.push(format!(
        "{} intervals, {} routes, {} adjacencies, {} policies",
        image.fib.len(),
        image.routes.len(),
        image.adjacencies.len(),
        image.policies.len()
    ));
    lines
}

/// Entries that a packet can still reach: unused records are cleared after a grace period, and a
/// daemon may be killed before.
fn reachable(mut image: Image) -> Image {
    let met: BTreeSet<RouteId> = image.fib.values().copied().collect();
    image.routes.retain(|index, _| met.contains(index));
    let policies = image.routes.values().map(sidestep_route::policy_id);
    let policies: BTreeSet<PolicyId> = policies.collect();
    image.policies.retain(|index, _| policies.contains(index));
    let adjacencies: BTreeSet<AdjacencyId> = image
        .routes
        .values()
        .map(|route| route.adjacency)
        .chain(image.policies.values().map(|policy| policy.adjacency))
        .collect();
    image
        .adjacencies
        .retain(|index, _| adjacencies.contains(index));
    image
}

/// Content of the kernel's maps after the program's death.
pub fn pinned(namespace: &Namespace) -> Image {
    let image = namespace.run(|| {
        let kernel = Kernel::adopt(Path::new(PIN_ROOT)).expect("what is pinned");
        let image = kernel.image();
        reachable(by_intervals(image, |view| kernel.intervals(view)))
    });
    image.expect("the namespace can be entered")
}

/// A full compilation of the node.
pub fn fresh(namespace: &Namespace, ports: &[&str]) -> Image {
    let ports: BTreeSet<IfIndex> = ports
        .iter()
        .map(|port| IfIndex(namespace.ifindex(port).expect("a port")))
        .collect();
    let compiled = namespace.run(|| {
        let mirror = Mirror::open().expect("the kernel's configuration");
        Compiler::new(Limits::default())
            .compile(mirror.node(), &ports)
            .expect("tables")
    });
    let image = compiled.expect("the namespace can be entered").image;
    by_intervals(image.clone(), |view| image.intervals(view))
}

/// The image with interval starts instead of prefixes: a dead daemon's table holds only the result
/// for each address, not the prefixes.
fn by_intervals(mut image: Image, intervals: impl Fn(ViewId) -> Vec<(u128, RouteId)>) -> Image {
    let of_ports = image.ports.values().flat_map(|it| [it.view6, it.view4]);
    let of_routes = image.routes.values().flat_map(|it| [it.view6, it.view4]);
    let of_policies = image.policies.values().map(|it| it.view);
    let views: BTreeSet<ViewId> = of_ports.chain(of_routes).chain(of_policies).collect();
    image.fib.clear();
    for view in views.into_iter().filter(|view| view.is_some()) {
        for (begin, route) in intervals(view) {
            let key = FibKey {
                view,
                address: begin.to_be_bytes(),
                length: 0,
            };
            image.fib.insert(key, route);
        }
    }
    image
}

/// Compares two tables by [`meaning`].
pub fn assert_same(what: &str, left: &[String], right: &[String]) {
    let (left, right): (BTreeSet<_>, BTreeSet<_>) = (left.iter().collect(), right.iter().collect());
    let only = |a: &BTreeSet<&String>, b: &BTreeSet<&String>| -> Vec<String> {
        a.difference(b)
            .take(10)
            .map(|line| (*line).clone())
            .collect()
    };
    assert!(
        left == right,
        "{what}: only in the program's tables {:#?}\nonly in fresh ones {:#?}",
        only(&left, &right),
        only(&right, &left)
    );
}
