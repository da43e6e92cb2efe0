//! Changes of Sidestep-only routes by commands: one at a time, and many by a batch file.

use std::io::Write;

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::{Namespace, Napi};

use crate::support::tables::{assert_same, meaning, pinned};
use crate::support::{Star, begin, constant, output, printed, report, text_of};

const ROUTES: usize = 60;

fn prefix(number: usize) -> String {
    format!("fd{:02x}:{:x}::/32", number >> 12, number & 0xfff)
}

/// Words of a route of every kind in turn.
fn next(number: usize) -> &'static str {
    [
        "encap seg6 mode encap segs fc00:bb::e,fc00:bb::f dev eth1",
        "encap seg6 mode encap.red segs fc00:bb::1 dev eth1",
        "encap seg6local action End dev eth0",
        "encap seg6local action End flavors psp,usd dev eth0",
        "encap seg6local action End.X nh6 fc00:b::2 dev eth0",
        "encap seg6local action End.DT6 table main dev eth0",
        "encap seg6local action End.DX2 oif eth1 dev eth0",
        "via fc00:b::2 dev eth1",
        "dev eth1",
        "blackhole",
    ][number % 10]
}

fn route(router: &Namespace, verb: &str, number: usize, kind: usize) {
    let words = match next(kind) {
        "blackhole" => format!("route {verb} blackhole {}", prefix(number)),
        words => format!("route {verb} {} {words}", prefix(number)),
    };
    printed(router, &words.split(' ').collect::<Vec<_>>());
}

fn compilations(router: &Namespace) -> u64 {
    let status: report::Status = report(router, Request::ShowStatus);
    status.compilations
}

/// Number of routes with a [`prefix`].
fn own_routes(router: &Namespace) -> usize {
    let shown = printed(router, &["route", "show", "-a"]);
    shown.matches("fd00:").count()
}

#[test]
fn a_route_by_command_compiles_nothing_else_and_loses_no_packet() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("liveownone");
    let router = star.router();
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    star.ip().all(constant::ROUTES);
    let daemon = star.run(&["eth0", "eth1"]);
    route(router, "add", 0, 0);
    let before = compilations(router);
    constant::during(&star, "changes", || {
        for number in 1..ROUTES {
            route(router, "add", number, number);
        }
        for number in 0..ROUTES {
            route(router, "replace", number, number + 1);
        }
        for number in (0..ROUTES).step_by(2) {
            let words = format!("route del {}", prefix(number));
            printed(router, &words.split(' ').collect::<Vec<_>>());
        }
    });
    assert_eq!(compilations(router), before);
    let shown = printed(router, &["route", "show"]);

    // The next daemon reads the changes, and compiles everything.
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let changed = meaning(&pinned(router));
    let next = star.run(&["eth0", "eth1"]);
    assert_eq!(printed(router, &["route", "show"]), shown);
    next.signal(Signal::SIGKILL);
    next.end();
    assert_same(
        "changed tables and compiled ones",
        &changed,
        &meaning(&pinned(router)),
    );
    drop(star.run(&["eth0", "eth1"]));
}

#[test]
fn a_batch_changes_all_entries_or_none_and_loses_no_packet() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("liveownbatch");
    let router = star.router();
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    star.ip().all(constant::ROUTES);
    let _daemon = star.run(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("batch");
    let path = path.to_str().expect("a path");
    let write = |lines: &[String]| {
        let mut file = std::fs::File::create(path).expect("a file");
        for line in lines {
            writeln!(file, "{line}").expect("a line");
        }
    };
    let lines = |verb: &str, kind: usize| -> Vec<String> {
        let numbers = 0..1000;
        let words = next(kind);
        numbers
            .map(|number| format!("route {verb} {} {words}", prefix(number)))
            .collect()
    };
    let mut wrong = lines("add", 0);
    wrong.push("# the next line has an unknown interface".into());
    wrong.push("route add fc00:77::/32 dev eth7".into());
    constant::during(&star, "a batch", || {
        write(&wrong);
        let refused = output(router, &["-b", path]);
        let why = text_of(&refused);
        assert!(!refused.status.success(), "{why}");
        assert!(
            why.contains(&format!("{path}: line 1002: word 3: no such interface")),
            "{why}"
        );
        assert_eq!(own_routes(router), 0);
        write(&lines("add", 0));
        printed(router, &["--batch", path]);
        assert_eq!(own_routes(router), 1000);
        write(&lines("replace", 2));
        printed(router, &["-b", path]);
        let shown = printed(router, &["route", "show"]);
        assert_eq!(shown.matches("action End ").count(), 1000, "{shown}");
        write(&lines("del", 2));
        printed(router, &["-b", path]);
        assert_eq!(own_routes(router), 0);
    });

    // A later line may need an earlier one.
    write(&[
        "policy add gold color 1 endpoint fc00:bb::1 segs fc00:bb::e".into(),
        "ether add lan0 policy gold".into(),
        "route add fc00:1::d2/128 encap seg6local action End.DT2U l2dev lan0 dev eth0".into(),
        "route add fc00:99::/32 policy gold".into(),
    ]);
    printed(router, &["-b", path]);
    let shown = printed(router, &["route", "show"]);
    assert!(shown.contains("End.DT2U l2dev lan0"), "{shown}");
    assert!(shown.contains("policy gold"), "{shown}");
    let none = output(router, &["-b", "/nonexistent"]);
    let why = text_of(&none);
    assert!(why.contains("/nonexistent: No such file"), "{why}");
    let both = output(router, &["-b", path, "show", "ports"]);
    assert_eq!(both.status.code(), Some(2), "{}", text_of(&both));
}
