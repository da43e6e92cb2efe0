//! Many changes on a live router: afterwards the tables are those that a fresh compilation gives, and the traffic of a
//! route that did not change has lost nothing.

mod live;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use nix::sys::signal::Signal;
use sidestep_control::compile::Compiler;
use sidestep_control::report;
use sidestep_datapath::kernel::{Kernel, PIN_ROOT};
use sidestep_datapath::{FibKey, Image, Limits};
use sidestep_lab::Namespace;
use sidestep_lab::traffic::Napi;
use sidestep_mirror::Mirror;
use sidestep_model::node::IfIndex;

use live::frames::{ethernet, udp};
use live::{ROUTER, Star, begin, constant, counters, eventually, explain, printed};

/// Routes added at once.
const MANY: usize = 5_000;
/// Times that a route comes and goes.
const FLAPS: usize = 1_000;

/// The routes as the program shows them, without what it has counted.
fn routes(namespace: &Namespace) -> Vec<report::Route> {
    let shown = printed(namespace, &["route", "show", "-a", "-j"]);
    let mut routes: report::Routes = serde_json::from_str(&shown).expect("the report");
    for route in &mut routes {
        (route.packets, route.bytes, route.errors) = (0, 0, 0);
    }
    routes
}

/// Waits until a packet to this address leaves for that MAC, or not at all.
fn settled(star: &Star, to: &str, verdict: &str) {
    let ends = ["fc00:a::2", to].map(|text| text.parse().expect("an address"));
    let packet = udp(ends[0], ends[1], 64, b"settled");
    let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
    eventually(&format!("{to}: {verdict}"), || {
        (explain(star.router(), "eth0", &frame).0 == verdict).then_some(())
    });
}

/// The tables by meaning: the same text for the same treatment of every packet, whatever the indices are.
fn meaning(image: &Image) -> Vec<String> {
    let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
    let mut queue = VecDeque::new();
    let mut number = |view: u32, queue: &mut VecDeque<u32>| {
        if view == 0 {
            return 0;
        }
        let next = numbers.len() + 1;
        *numbers.entry(view).or_insert_with(|| {
            queue.push_back(view);
            next
        })
    };
    let adjacency = |index: u32| {
        if index == 0 {
            return "none".to_owned();
        }
        let it = &image.adjacencies[&index];
        let (to, from) = (live::hex(&it.destination), live::hex(&it.source));
        format!("({to} {from} {:#x} {} {})", it.flags, it.ifindex, it.mtu)
    };
    let mut lines = Vec::new();
    for (ifindex, port) in &image.ports {
        let views = [port.view6, port.view4].map(|view| number(view, &mut queue));
        lines.push(format!(
            "port {ifindex} {} {:#x} {views:?}",
            live::hex(&port.mac),
            port.flags
        ));
    }
    let mut of_view: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (key, route) in &image.fib {
        of_view.entry(key.view).or_default().push((key, route));
    }
    let mut seen = 0;
    while let Some(view) = queue.pop_front() {
        seen += 1;
        for (key, index) in of_view.get(&view).into_iter().flatten() {
            // An interval without a route.
            let Some(route) = image.routes.get(index) else {
                lines.push(format!("view {seen} {} no route", live::hex(&key.address)));
                continue;
            };
            let views = [route.view6, route.view4].map(|view| number(view, &mut queue));
            let policy = match route.policy {
                0 => "none".to_owned(),
                index => {
                    let it = &image.policies[&index];
                    let view = number(it.view, &mut queue);
                    let header = live::hex(&it.header[..usize::from(it.length)]);
                    let next = adjacency(it.adjacency);
                    format!("({} {} {view} {next} {header})", it.kind, it.flow_label)
                }
            };
            lines.push(format!(
                "view {seen} {} action {} {:#x} {} {} {views:?} {policy}",
                live::hex(&key.address),
                route.action,
                route.flags,
                route.reason,
                adjacency(route.adjacency)
            ));
        }
    }
    // Nothing is kept that nothing refers to.
    lines.push(format!(
        "{} intervals, {} routes, {} adjacencies, {} policies",
        image.fib.len(),
        image.routes.len(),
        image.adjacencies.len(),
        image.policies.len()
    ));
    lines
}

/// What a packet can still meet: records out of use are cleared a grace period later, before which a daemon may be killed.
fn reachable(mut image: Image) -> Image {
    let met: BTreeSet<u32> = image.fib.values().copied().collect();
    image.routes.retain(|index, _| met.contains(index));
    let policies: BTreeSet<u32> = image.routes.values().map(|route| route.policy).collect();
    image.policies.retain(|index, _| policies.contains(index));
    let adjacencies: BTreeSet<u32> = image
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

/// What the kernel's maps hold, after the program has died.
fn pinned(namespace: &Namespace) -> Image {
    let image = namespace.run(|| {
        let kernel = Kernel::adopt(Path::new(PIN_ROOT)).expect("what is pinned");
        let image = kernel.image();
        reachable(by_intervals(image, |view| kernel.intervals(view)))
    });
    image.expect("the namespace can be entered")
}

/// What a compilation without a past makes of the node.
fn fresh(namespace: &Namespace, ports: &[&str]) -> Image {
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

/// The image with the beginnings of intervals in the place of prefixes: which prefixes there were, a dead daemon's table
/// does not tell, only what it says of each address.
fn by_intervals(mut image: Image, intervals: impl Fn(u32) -> Vec<(u128, u32)>) -> Image {
    let of_ports = image.ports.values().flat_map(|it| [it.view6, it.view4]);
    let of_routes = image.routes.values().flat_map(|it| [it.view6, it.view4]);
    let of_policies = image.policies.values().map(|it| it.view);
    let views: BTreeSet<u32> = of_ports.chain(of_routes).chain(of_policies).collect();
    image.fib.clear();
    for view in views.into_iter().filter(|view| *view != 0) {
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

fn assert_same(what: &str, left: &[String], right: &[String]) {
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

/// The changes, phase after phase; each ends when the program has seen its last.
fn churn(star: &Star) {
    let mut ip = star.ip();
    let prefix = |number: usize| format!("fd{:02x}:{:x}::/32", number >> 12, number & 0xfff);
    let next = |number: usize| match number % 5 {
        0 => "encap seg6 mode encap segs fc00:bb::e,fc00:bb::f dev eth1".to_owned(),
        1 => format!(
            "encap seg6 mode encap.red segs fc00:bb::{:x} dev eth1",
            number % 50 + 1
        ),
        2 => "encap seg6local action End dev eth0".to_owned(),
        3 => "encap seg6local action End.X nh6 fc00:b::2 dev eth0".to_owned(),
        _ => "via fc00:b::2 dev eth1".to_owned(),
    };
    let started = Instant::now();
    let phase = |name: &str| eprintln!("  {name} after {:?}", started.elapsed());

    // Add, change, delete one after the other.
    for number in 0..60 {
        ip.run(&format!("route add {} {}", prefix(number), next(number)));
    }
    for number in 0..60 {
        ip.run(&format!(
            "route replace {} {}",
            prefix(number),
            next(number + 1)
        ));
    }
    for number in (0..60).step_by(2) {
        ip.run(&format!("route del {}", prefix(number)));
    }
    settled(star, "fd00:3a::1", "kernel");
    phase("add, change, delete");

    // Flap: as fast as the kernel takes it, of every kind.
    let flaps: Vec<String> = (0..FLAPS)
        .flat_map(|number| {
            let prefix = prefix(4000 + number % 7);
            [
                format!("route add {prefix} {}", next(number)),
                format!("route del {prefix}"),
            ]
        })
        .collect();
    // What the kernel had no memory for (see `Ip::all`) needs not be deleted either.
    for line in ip.attempt(flaps.iter().map(String::as_str)).lines() {
        assert!(
            [
                "Cannot allocate memory",
                "No such process",
                "Command failed"
            ]
            .iter()
            .any(|expected| line.contains(expected)),
            "{line}"
        );
    }
    ip.run("route add fdee::/16 via fc00:b::2 dev eth1");
    settled(star, "fdee::1", "forward");
    phase("flaps");

    // A neighbor and the MTU of a link go to and fro.
    for number in 0..50 {
        let mac = format!("02:ee:00:00:00:{number:02x}");
        ip.run(&format!(
            "neighbor replace fc00:b::ee lladdr {mac} dev eth1 nud permanent"
        ));
        ip.run(&format!("link set eth2 mtu {}", 1400 + number));
    }
    ip.run("route replace fdee::/16 via fc00:b::ee dev eth1");

    // Many at once.
    let add: Vec<String> = (100..100 + MANY)
        .map(|number| format!("route add {} {}", prefix(number), next(number)))
        .collect();
    ip.all(add.iter().map(String::as_str));
    ip.run("route add fdef::/16 via fc00:b::2 dev eth1");
    settled(star, "fdef::1", "forward");
    phase("5,000 added");
    let remove: Vec<String> = (100..100 + MANY)
        .filter(|number| number % 3 != 0)
        .map(|number| format!("route del {}", prefix(number)))
        .collect();
    ip.all(remove.iter().map(String::as_str));
    ip.run("route del fdef::/16");
    settled(star, "fdef::1", "kernel");
    phase("two thirds of them removed");
}

#[test]
fn tables_after_many_changes_are_those_of_a_fresh_compile_and_constant_traffic_loses_nothing() {
    let Some(_turn) = begin("tables_after_many_changes_are_those_of_a_fresh_compile") else {
        return;
    };
    let ports = ["eth0", "eth1"];
    for mode in live::modes(
        "tables_after_many_changes_are_those_of_a_fresh_compile_and_constant_traffic_loses_nothing",
        &["tc", "xdp"],
    ) {
        let star = Star::new("livechurn");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().all(constant::ROUTES);
        let args = ["--mode", mode, ports[0], ports[1]];
        let daemon = star.run(&args);
        let done = AtomicBool::new(false);
        let (sent, arrived) = thread::scope(|scope| {
            let traffic = scope.spawn(|| constant::traffic(&star, &done));
            // The traffic ends with a failure, too.
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                churn(&star);
                let shown = routes(router);

                // It dies; the tables stay, and packets do not notice.
                daemon.signal(Signal::SIGKILL);
                daemon.end();
                assert_same(
                    "the maps of the kernel",
                    &meaning(&pinned(router)),
                    &meaning(&fresh(router, &ports)),
                );
                // The next one takes them over.
                let next = star.run(&args);
                assert!(
                    next.began
                        .contains("took over what an instance that died had left"),
                    "{}",
                    next.began
                );
                assert_eq!(routes(router), shown);
                next.signal(Signal::SIGKILL);
                next.end();
                assert_same(
                    "the maps after an adoption",
                    &meaning(&pinned(router)),
                    &meaning(&fresh(router, &ports)),
                );
                let next = star.run(&args);
                let at = counters(router, "eth0");
                done.store(true, Ordering::Release);
                (at, shown, next)
            }));
            done.store(true, Ordering::Release);
            let counted = traffic.join().expect("the traffic");
            let (at, shown, next) = told.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(at.kernel < 10, "the kernel had to do nothing: {at:?}");
            // Afresh, with nothing taken over.
            next.signal(Signal::SIGTERM);
            assert!(next.end().0.success());
            let afresh = star.run(&args);
            assert_eq!(routes(router), shown);
            drop(afresh);
            counted
        });
        assert!(sent > 1000, "{mode}: {sent} packets are too few to tell");
        assert_eq!(arrived, [sent; 2], "{mode}: of {sent} each");
    }
}
