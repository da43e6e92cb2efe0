//! More routes than a table holds: existing routes stay in the fast path, the others are punted,
//! and no packet follows a wrong route. A Sidestep-only route is refused. Freed space goes to the
//! other routes.

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;
use sidestep_testkit::lab::mac_text;

use crate::support::frames::{Mac, ROUTING, ethernet, next_header, to_mac, udp};
use crate::support::{
    ROUTER, Star, begin, counters, eventually, explain, output, printed, report, text_of,
};

/// Number of added routes, more than fit.
const ROUTES: usize = 20;
/// Free entries on an empty router.
const ROOM: u64 = 9;
/// Time during which the daemon must stay idle.
const REST: std::time::Duration = std::time::Duration::from_millis(300);
/// Next hop of the route that covers all of them.
const COVER: Mac = [2, 0xb1, 0, 0, 0, 0];

/// Next hop of a route, which no other route has.
fn next_hop(number: usize) -> Mac {
    [2, 0xb2, 0, 0, 0, number as u8]
}

fn frame(star: &Star, number: usize) -> Vec<u8> {
    let to = format!("fd00:{number:x}::1");
    let ends = ["fc00:a::2", &to].map(|text| text.parse().expect("an address"));
    let packet = udp(ends[0], ends[1], 64, b"mine");
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

/// Returns the arguments of a route that occupies an entry of this table.
fn route(table: &str, number: usize) -> String {
    match table {
        "policies" => {
            format!("fd00:{number:x}::/32 encap seg6 mode encap segs fc00:b::c:{number:x} dev eth1")
        }
        _ => format!("fd00:{number:x}::/32 via fc00:b::c:{number:x} dev eth1"),
    }
}

/// Returns the arguments of a Sidestep-only route that occupies an entry of this table.
fn own_route(table: &str) -> Vec<&'static str> {
    let words = match table {
        "adjacencies" => "route add fd01::/16 via fc00:b::d dev eth1",
        _ => "route add fd01::/16 encap seg6 mode encap segs fc00:b::c:0,fc00:b::c:1 dev eth1",
    };
    words.split(' ').collect()
}

fn shown(star: &Star) -> report::Routes {
    report(star.router(), Request::ShowRoutes { all: true })
}

/// Waits until this route, the last change, exists or does not exist.
fn followed(star: &Star, prefix: &str, there: bool) {
    eventually("all changes are followed", || {
        let found = shown(star).iter().any(|route| route.prefix == prefix);
        (found == there).then_some(())
    });
}

fn limits(star: &Star, table: &str) -> report::Limit {
    let limits: report::Limits = report(star.router(), Request::ShowLimits);
    let found = limits.into_iter().find(|limit| limit.name == table);
    found.expect("the limit")
}

fn verdicts(star: &Star, numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers
        .map(|number| explain(star.router(), "eth0", &frame(star, number)).0)
        .collect()
}

/// Checks that every packet leaves for the next hop of its own route, whether Sidestep or the
/// kernel forwards it.
fn check_packets(star: &Star, table: &str, numbers: impl Iterator<Item = usize>) {
    let (a, b) = (star.socket("a"), star.socket("b"));
    for number in numbers {
        a.send(&frame(star, number)).expect("send");
        let out = b.receive(crate::support::PATIENCE).expect("receive");
        let out = out.unwrap_or_else(|| panic!("{table}, route {number}: no packet"));
        assert_eq!(to_mac(&out), next_hop(number), "{table}, route {number}");
        if table == "policies" {
            assert_eq!(next_header(&out), Some(ROUTING));
        }
    }
}

fn neighbors_and_cover(star: &Star) {
    let mut lines: Vec<String> = (0..ROUTES)
        .map(|number| {
            let mac = mac_text(next_hop(number));
            format!("neighbor add fc00:b::c:{number:x} lladdr {mac} dev eth1 nud permanent")
        })
        .collect();
    let mac = mac_text(COVER);
    lines.push(format!(
        "neighbor add fc00:b::b1 lladdr {mac} dev eth1 nud permanent"
    ));
    lines.push("route add fd00::/16 via fc00:b::b1 dev eth1".to_owned());
    star.ip().all(lines.iter().map(String::as_str));
}

fn fills_up_and_recovers(table: &str, mode: &str) {
    let star = Star::new("livefull");
    let router = star.router();
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    neighbors_and_cover(&star);
    let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
    let used = limits(&star, table).used.expect("a number");
    drop(daemon);

    // On-link neighbors already have adjacencies, so the limit is the current number of next hops.
    let limit = format!(
        "{table}={}",
        if table == "adjacencies" {
            used - ROOM
        } else {
            used + ROOM
        }
    );
    let daemon = star.run(&["--mode", mode, "--limit", &limit, "eth0", "eth1"]);
    let mut ip = star.ip();
    let add: Vec<String> = (0..ROUTES)
        .map(|number| format!("route add {}", route(table, number)))
        .collect();
    ip.all(add.iter().map(String::as_str));
    eventually("the table is full", || {
        (limits(&star, table).left_out > 0).then_some(())
    });
    ip.run("route add fdff::/16 via fc00:b::c:0 dev eth1");
    followed(&star, "fdff::/16", true);
    let found = verdicts(&star, 0..ROUTES);
    let served = found.iter().filter(|verdict| *verdict == "forward").count();
    assert!((1..ROUTES).contains(&served), "{table}: {found:?}");
    assert!(
        found
            .iter()
            .all(|verdict| verdict == "forward" || verdict == "punt")
    );
    check_packets(&star, table, 0..ROUTES);
    let at = counters(router, "eth0");
    assert_eq!(at.forwarded as usize, served, "{table}: {at:?}");
    assert_eq!(at.punted as usize, ROUTES - served, "{table}: {at:?}");

    // The daemon does not retry all the time.
    let compilations = || {
        let status: report::Status = report(router, Request::ShowStatus);
        status.compilations
    };
    let before = compilations();
    std::thread::sleep(REST);
    assert!(compilations() < before + 3, "{table}");

    // The output names the routes that do not fit, and the reason.
    let before = shown(&star);
    let full = format!("the table of {table} is full: it holds ");
    let punted = before.iter().filter(|route| {
        let why = route.punt_reason.as_deref().unwrap_or_default();
        route.prefix.starts_with("fd00:") && why.starts_with(&full)
    });
    assert!(punted.count() >= ROUTES - served, "{table}: {before:#?}");

    // A Sidestep-only route is refused, and nothing changes.
    let own = own_route(table);
    let refused = output(router, &own);
    assert_eq!(refused.status.code(), Some(1), "{table}: {refused:?}");
    assert!(
        text_of(&refused).starts_with(&format!("sidestep: {full}")),
        "{}",
        text_of(&refused)
    );
    assert_eq!(shown(&star).len(), before.len());
    assert_eq!(verdicts(&star, 0..ROUTES), found, "{table}");

    // Existing routes stay in the fast path when more are added.
    ip.run("route add fd00:0:ff::/48 via fc00:b::c:0 dev eth1");
    ip.run("route del fdff::/16");
    followed(&star, "fdff::/16", false);
    let now = verdicts(&star, 1..ROUTES);
    for (number, (before, now)) in found[1..].iter().zip(&now).enumerate() {
        assert!(
            before == "punt" || now == "forward",
            "{table}, route {}",
            number + 1
        );
    }
    ip.run("route del fd00:0:ff::/48");

    // After entries are freed, Sidestep forwards all routes.
    let (first, gone) = (ROUTES - 3, 0..ROUTES - 3);
    let mut remove: Vec<String> = gone
        .clone()
        .map(|number| format!("route del fd00:{number:x}::/32"))
        .collect();
    // The adjacencies are those of neighbors on the link.
    remove.extend(gone.map(|number| format!("neighbor del fc00:b::c:{number:x} dev eth1")));
    ip.all(remove.iter().map(String::as_str));
    eventually("the others are served", || {
        let all = verdicts(&star, first..ROUTES);
        (all.iter().all(|verdict| verdict == "forward") && limits(&star, table).left_out == 0)
            .then_some(())
    });
    let before = counters(router, "eth0");
    check_packets(&star, table, first..ROUTES);
    let at = counters(router, "eth0");
    assert_eq!(at.forwarded, before.forwarded + 3, "{table}");
    let cover = explain(router, "eth0", &frame(&star, 0xfff));
    assert_eq!(cover.0, "forward", "{table}");
    printed(router, &own);
    drop(daemon);
}

#[test]
fn a_full_table_leaves_the_rest_to_the_kernel_misforwards_nothing_and_recovers() {
    let Some(_turn) = begin() else {
        return;
    };
    for (table, mode) in [
        ("prefixes", "tc"),
        ("routes", "xdp-always"),
        ("adjacencies", "tc"),
        ("policies", "tc"),
    ] {
        fills_up_and_recovers(table, mode);
    }
}

#[test]
fn tables_that_are_nearly_full_are_taken_over_and_hold_everything_again() {
    let Some(_turn) = begin() else {
        return;
    };
    for (table, mode) in [("routes", "tc"), ("policies", "xdp-always")] {
        let star = Star::new("livenearly");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        neighbors_and_cover(&star);
        let all: Vec<String> = (0..ROUTES)
            .map(|number| format!("route add {}", route(table, number)))
            .collect();
        star.ip().all(all.iter().map(String::as_str));
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let used = limits(&star, table).used.expect("a number");
        drop(daemon);
        // The old and the new records do not fit at the same time.
        let limit = format!("{table}={}", used + 3);
        let args = ["--mode", mode, "--limit", &limit, "eth0", "eth1"];
        for round in 0..2 {
            let daemon = star.run(&args);
            assert_eq!(daemon.began.contains("adopted the data plane"), round > 0);
            assert_eq!(limits(&star, table).left_out, 0, "{table}, round {round}");
            let found = verdicts(&star, 0..ROUTES);
            assert!(
                found.iter().all(|verdict| verdict == "forward"),
                "{table}, round {round}: {found:?}"
            );
            check_packets(&star, table, 0..ROUTES);
            let at = counters(router, "eth0");
            assert_eq!(at.punted, 0, "{table}, round {round}: {at:?}");
            daemon.signal(nix::sys::signal::Signal::SIGKILL);
            daemon.end();
        }
    }
}
