//! Engines on this machine. Each one is set up for each behavior that it supports, which compares a
//! packet byte for byte, and makes a short trial.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sidestep_bench::engine::behavior::{Kind, kinds};
use sidestep_bench::engine::{Case, Engine, Flows, Options, Placement, Size, all};
use sidestep_testkit::capability::{root_or_skip, two_cpus_or_skip, without_vrf};
use sidestep_testkit::traffic::Load;

use crate::program::router;

/// Returns all engines except VPP, which is rarely installed; `vpp_engine.rs` tests it.
fn engines(placement: Placement) -> Vec<Box<dyn Engine>> {
    let mut engines = all(&Options {
        placement,
        more_cores: vec![1],
        sidestep: Some(router()),
        ..Options::default()
    });
    engines.retain(|engine| engine.name() != "vpp");
    engines
}

fn plain(behavior: &str, sids: u32) -> Case {
    Case {
        behavior: behavior.to_owned(),
        sids,
        size: Size::Bytes(64),
        flows: Flows::Uniform(1),
        rules: 0,
        routes: 0,
        cores: 1,
    }
}

/// Returns the case of a kind. Sizes and numbers of segments differ between kinds, so that together
/// they cover the ends of all ranges.
///
/// Sidestep punts packets with a signed header of ten segments, which exceeds the headroom of XDP.
/// Signed headers are therefore shorter.
fn case(number: usize, kind: &Kind) -> Case {
    let sizes = [64, 1500, 333, 65].map(Size::Bytes);
    let middle = u32::midpoint(*kind.sids.start(), *kind.sids.end());
    let sids = [middle, *kind.sids.end(), *kind.sids.start()];
    let sids = sids[number % sids.len()];
    let sids = if kind.name.contains("hmac") {
        sids.min(5)
    } else {
        sids
    };
    let few = if kind.takes_rules { 3 } else { 0 };
    Case {
        behavior: kind.name.to_owned(),
        sids,
        size: if number.is_multiple_of(5) {
            Size::Imix
        } else {
            sizes[number % sizes.len()]
        },
        // The generator rewrites only the front of each packet.
        flows: Flows::Uniform(if sids > 8 {
            1
        } else {
            1 + number as u32 % 2 * 7
        }),
        rules: [0, few][number / 2 % 2],
        routes: [0, few][number / 3 % 2],
        cores: 1,
    }
}

/// Sets an engine up and runs a trial. Returns the problem, if any.
fn tried(engine: &dyn Engine, case: &Case) -> Result<(), String> {
    let wrong = |error: sidestep_testkit::Error| format!("{}: {case}: {error}", engine.name());
    let mut standing = engine.set_up(case).map_err(wrong)?;
    let trial = standing.trial(Load::Maximum, Duration::from_millis(20), false);
    let trial = trial.map_err(wrong)?;
    if trial.received == 0 || trial.received > trial.sent + trial.sent / 100 + 5 {
        return Err(format!("{}: {case}: {trial:?}", engine.name()));
    }
    Ok(())
}

#[test]
fn every_engine_runs_every_behavior_that_it_does_not_refuse() {
    if !root_or_skip() {
        return;
    }
    let kinds = kinds();
    let next = AtomicUsize::new(0);
    let mut wrong: Vec<String> = Vec::new();
    let mut done = 0;
    thread::scope(|scope| {
        let worker = || {
            let engines = engines(Placement::default());
            let (mut wrong, mut done) = (Vec::new(), 0);
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let (number, index) = (turn / engines.len(), turn % engines.len());
                let Some(kind) = kinds.get(number) else {
                    return (wrong, done);
                };
                let (engine, case) = (&engines[index], case(number + index, kind));
                if engine.refuses(&case).is_none() {
                    done += 1;
                    wrong.extend(tried(&**engine, &case).err());
                }
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            let (theirs, count) = worker.join().expect("no panic");
            wrong.extend(theirs);
            done += count;
        }
    });
    assert!(
        wrong.is_empty(),
        "{} of {done}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // Sidestep supports all kinds but the limits, in two modes. Linux lacks proxies and USD, and
    // needs VRFs for End.DT4 and End.DT46.
    let limits = kinds.iter().filter(|kind| kind.limit).count();
    let no_vrf = without_vrf().is_some();
    let not_in_linux = |kind: &&Kind| kind.not_in_linux.is_some() || kind.needs_vrf && no_vrf;
    let not_in_linux = kinds.iter().filter(not_in_linux).count();
    let expected = 3 * (kinds.len() - limits) - not_in_linux + limits;
    assert_eq!(done, expected);
}

#[test]
fn generator_system_and_sink_have_cpus_of_their_own() {
    if !root_or_skip() || !two_cpus_or_skip() {
        return;
    }
    let places = [(0, 1, 1), (0, 0, 1), (0, 1, 0)];
    for (generator, system, sink) in places {
        let engines = engines(Placement {
            generator,
            system,
            sink,
        });
        for engine in &engines {
            let behavior = if engine.name() == "none" {
                "ceiling"
            } else {
                "ipv6"
            };
            tried(&**engine, &plain(behavior, 0)).expect("set up and measured");
        }
    }
}

#[test]
fn two_cores_forward_what_two_generators_send() {
    if !root_or_skip() || !two_cpus_or_skip() {
        return;
    }
    let on_two = |behavior: &str, sids| Case {
        flows: Flows::Uniform(6),
        cores: 2,
        ..plain(behavior, sids)
    };
    for engine in &engines(Placement::default()) {
        let cases = match engine.name() {
            "none" => vec![on_two("ceiling", 0), on_two("redirect", 0)],
            "linux" => vec![on_two("h.encaps", 2), on_two("service", 0)],
            _ => vec![on_two("h.encaps", 2), on_two("end.ad.xdp", 2)],
        };
        for case in cases {
            tried(&**engine, &case).expect("set up and measured");
        }
        let three = Case {
            cores: 3,
            ..on_two("ipv6", 0)
        };
        let ceiling = Case {
            behavior: "ceiling".to_owned(),
            ..three.clone()
        };
        let refused = if engine.name() == "none" {
            &ceiling
        } else {
            &three
        };
        let why = engine.refuses(refused).expect("refused");
        assert_eq!(why, "3 cores; there are CPUs for 2");
    }
    let apart = Placement {
        sink: 1,
        ..Placement::default()
    };
    let apart = &engines(apart)[0];
    let why = apart.refuses(&on_two("ipv6", 0)).expect("refused");
    assert!(why.ends_with("have to share each of them"), "{why}");
}

/// If this variable is set, this process is the one to be killed.
const KILLED: &str = "SIDESTEP_TEST_KILLED";

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next_run() {
    if !root_or_skip() {
        return;
    }
    let engines = engines(Placement::default());
    let xdp = engines
        .iter()
        .find(|engine| engine.name() == "sidestep-xdp");
    let xdp = xdp.expect("it is among them");
    let case = plain("end.dx4", 2);
    if std::env::var_os(KILLED).is_some() {
        let _standing = xdp.set_up(&case).expect("set up");
        std::process::abort();
    }
    let test = std::env::current_exe().expect("this program");
    // The test harness names the thread after the test.
    let name = thread::current().name().expect("a name").to_owned();
    let mut child = Command::new(test)
        .args(["--exact", &name, "--nocapture"])
        .env(KILLED, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let pid = child.id();
    let ended = child.wait().expect("ended");
    assert!(ended.signal().is_some(), "{ended}");
    let left = || {
        let all = std::fs::read_dir("/run/netns").into_iter().flatten();
        let all = all.flatten().map(|entry| entry.file_name());
        let all = all.map(|name| name.to_string_lossy().into_owned());
        let part = format!("-{pid}-");
        all.filter(|name| name.contains(&part)).collect::<Vec<_>>()
    };
    // Another test of this file may already have removed the leftovers.
    let found = left();
    assert!(found.is_empty() || found.len() == 3, "{found:?}");
    tried(&**xdp, &case).expect("set up and measured");
    assert!(left().is_empty(), "{:?}", left());
}

/// Number of parallel tests, which mostly wait.
const WORKERS: usize = 3;
