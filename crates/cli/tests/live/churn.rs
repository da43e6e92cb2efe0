//! Many changes on a live router: afterwards the tables equal those of a new compilation, and a
//! route that did not change has lost no packets.

use std::time::Instant;

use nix::sys::signal::Signal;
use sidestep_control::report;
use sidestep_testkit::Namespace;
use sidestep_testkit::Napi;

use crate::support::frames::{ethernet, udp};
use crate::support::tables::{assert_same, fresh, meaning, pinned};
use crate::support::{ROUTER, Star, begin, constant, counters, eventually, explain, printed};

/// Routes added at once.
const MANY: usize = 5_000;
/// Number of times that a route is added and removed.
const FLAPS: usize = 1_000;

/// The routes as the program prints them, without counters.
fn routes(namespace: &Namespace) -> Vec<report::Route> {
    let shown = printed(namespace, &["route", "show", "-a", "-j"]);
    let mut routes: report::Routes = serde_json::from_str(&shown).expect("the report");
    for route in &mut routes {
        (route.packets, route.bytes, route.errors) = (0, 0, 0);
    }
    routes
}

/// Waits until packets to this address leave for that MAC, or are no longer forwarded.
fn settled(star: &Star, to: &str, verdict: &str) {
    let ends = ["fc00:a::2", to].map(|text| text.parse().expect("an address"));
    let packet = udp(ends[0], ends[1], 64, b"settled");
    let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
    eventually(&format!("{to}: {verdict}"), || {
        (explain(star.router(), "eth0", &frame).0 == verdict).then_some(())
    });
}

/// Makes the changes in phases. Each phase ends when the program has seen its last change.
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
    settled(star, "fd00:3a::1", "punt");
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
    // Routes that the kernel had no memory for (see `Ip::all`) need no deletion.
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

    // Change a neighbor and the MTU of a link back and forth.
    for number in 0..50 {
        let mac = format!("02:ee:00:00:00:{number:02x}");
        ip.run(&format!(
            "neighbor replace fc00:b::ee lladdr {mac} dev eth1 nud permanent"
        ));
        ip.run(&format!("link set eth2 mtu {}", 1400 + number));
    }
    ip.run("route replace fdee::/16 via fc00:b::ee dev eth1");

    // Change many routes at once.
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
    settled(star, "fdef::1", "punt");
    phase("two thirds of them removed");
}

#[test]
fn tables_after_many_changes_are_those_of_a_fresh_compile_and_constant_traffic_loses_nothing() {
    let Some(_turn) = begin() else {
        return;
    };
    let ports = ["eth0", "eth1"];
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("livechurn");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().all(constant::ROUTES);
        let args = ["--mode", mode, ports[0], ports[1]];
        let daemon = star.run(&args);
        let ((at, shown, next), _) = constant::during(&star, mode, || {
            churn(&star);
            let shown = routes(router);

            // Kill the daemon: the tables stay, and no packets are lost.
            daemon.signal(Signal::SIGKILL);
            daemon.end();
            assert_same(
                "the maps of the kernel",
                &meaning(&pinned(router)),
                &meaning(&fresh(router, &ports)),
            );
            // The next daemon adopts the tables.
            let next = star.run(&args);
            assert!(
                next.began
                    .contains("adopted the data plane of an instance that died"),
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
            (at, shown, next)
        });
        assert!(at.punted < 10, "the kernel had to do nothing: {at:?}");
        // Start a daemon that adopts nothing.
        next.signal(Signal::SIGTERM);
        assert!(next.end().0.success());
        let afresh = star.run(&args);
        assert_eq!(routes(router), shown);
        drop(afresh);
    }
}
