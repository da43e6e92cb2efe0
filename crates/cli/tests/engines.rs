//! Engines of the laboratory: each is set up for each behavior that it does not refuse, which compares a packet byte for byte,
//! and takes a short trial.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use sidestep_lab::capability::{root_or_skip, without_vrf};
use sidestep_lab::engine::behavior::{Kind, kinds};
use sidestep_lab::engine::{Case, Engine, Flows, Options, Size, all};
use sidestep_lab::traffic::Load;

fn engines() -> Vec<Box<dyn Engine>> {
    all(&Options {
        sidestep: Some(PathBuf::from(env!("CARGO_BIN_EXE_sidestep"))),
        ..Options::default()
    })
}

/// Sizes and numbers of segments differ from one kind to the next, so that all meet all ends of their ranges somewhere.
fn case(number: usize, kind: &Kind) -> Case {
    let sizes = [64, 1500, 333, 65];
    let middle = u32::midpoint(*kind.sids.start(), *kind.sids.end());
    let sids = [middle, *kind.sids.end(), *kind.sids.start()];
    let sids = sids[number % sids.len()];
    let few = if kind.takes_rules { 3 } else { 0 };
    Case {
        behavior: kind.name.to_owned(),
        sids,
        size: Size::Bytes(sizes[number % sizes.len()]),
        // The generator writes no more than the front of a packet anew.
        flows: Flows::Uniform(if sids > 8 {
            1
        } else {
            1 + number as u32 % 2 * 7
        }),
        rules: [0, few][number / 2 % 2],
        routes: [0, few][number / 3 % 2],
    }
}

/// Sets it up and takes a trial; what is wrong, if something is.
fn tried(engine: &dyn Engine, case: &Case) -> Result<(), String> {
    let wrong = |error: sidestep_lab::Error| format!("{}: {case}: {error}", engine.name());
    let mut standing = engine.set_up(case).map_err(wrong)?;
    let trial = standing.trial(Load::Maximum, Duration::from_millis(20), false);
    let trial = trial.map_err(wrong)?;
    if trial.received == 0 || trial.received > trial.sent + trial.sent / 100 + 5 {
        return Err(format!("{}: {case}: {trial:?}", engine.name()));
    }
    Ok(())
}

#[test]
fn every_engine_does_every_behavior_that_it_does_not_refuse() {
    if !root_or_skip("every_engine_does_every_behavior_that_it_does_not_refuse") {
        return;
    }
    let kinds = kinds();
    let next = AtomicUsize::new(0);
    let mut wrong: Vec<String> = Vec::new();
    let mut done = 0;
    thread::scope(|scope| {
        let worker = || {
            let engines = engines();
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
    // Sidestep has all but the limits, in two modes; Linux all but proxies and USD, and End.DT4 and End.DT46 by VRF.
    let limits = kinds.iter().filter(|kind| kind.limit).count();
    let no_vrf = without_vrf().is_some();
    let not_in_linux = |kind: &&Kind| kind.not_in_linux.is_some() || kind.needs_vrf && no_vrf;
    let not_in_linux = kinds.iter().filter(not_in_linux).count();
    let expected = 3 * (kinds.len() - limits) - not_in_linux + limits;
    assert_eq!(done, expected);
}

/// Most of the time is spent in waiting.
const WORKERS: usize = 3;
