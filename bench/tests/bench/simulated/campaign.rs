//! A test campaign, and functions that run it on simulated engines.

use std::path::Path;

use sidestep_bench::campaign::file::Campaign;
use sidestep_bench::campaign::log::Log;
use sidestep_bench::campaign::plan::Plan;
use sidestep_bench::campaign::run;
use sidestep_bench::progress::Progress;

use super::engine::{World, engines, vocabulary};

/// A campaign of two engines, with groups of one and of several cases.
pub const CAMPAIGN: &str = "\
schema: 1
title: Two engines
engines: [slow, fast]
find: [pdr, mrr, curve, latency]
search: {start: 10000, beta: 0.005, epsilon: 0.01, trial: 1s}
runs: 3
groups:
- name: behaviors
  behaviors: [ipv6, end, end.as]
  published:
  - {source: A study, engine: Linux 4.12, behavior: end, kpps: 912.5, percent: 78}
- name: segments
  find: [ndr]
  behaviors: [end]
  sids: [1, 2, 4]
";

struct Steps {
    planned: usize,
    made: usize,
}

impl Progress for Steps {
    fn plan(&mut self, steps: usize) {
        self.planned = steps;
    }

    fn step(&mut self, _: &str) {
        self.made += 1;
    }

    fn pass(&mut self, steps: usize) {
        self.made += steps;
    }
}

/// Runs a campaign into a folder. Returns whether everything was tried.
pub fn measure(text: &str, folder: &Path, world: &World) -> Result<bool, String> {
    measure_so(text, folder, world, false, &[])
}

/// Runs a campaign, with `--quick` or only the points that match a pattern.
pub fn measure_so(
    text: &str,
    folder: &Path,
    world: &World,
    quick: bool,
    only: &[run::Pattern],
) -> Result<bool, String> {
    let campaign = Campaign::parse(text).map_err(|error| error.to_string())?;
    let campaign = if quick { campaign.quick() } else { campaign };
    let engines = engines(world);
    let plan = Plan::of(&campaign, &engines, &vocabulary()).map_err(|error| error.to_string())?;
    let mut log = Log::open(folder, text).map_err(|error| error.to_string())?;
    let runner = run::Runner {
        campaign: &campaign,
        quick,
        plan: &plan,
        engines: &engines,
        only,
        ticks: &|| Some(world.ticks.get()),
        interrupted: &world.interrupted,
    };
    let mut steps = Steps {
        planned: 0,
        made: 0,
    };
    let done = runner
        .run(&mut log, &mut steps)
        .map_err(|error| error.to_string())?;
    if done {
        assert_eq!(steps.made, steps.planned, "the bar ends at its end");
    }
    Ok(done)
}
