//! Scenarios and their points.

use sidestep_fib::Prefix;
use sidestep_testkit::random::Random;

use super::Options;
use super::routes::{self, Route};

/// A scenario of the published studies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A whole Internet table, sampled or enlarged.
    FullView,
    /// /48s of different densities, from adjacent to sparse.
    Slash48,
    /// Hosts of one link.
    Slash128,
    /// Concurrent lookups of several threads.
    Threads,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::FullView, Self::Slash48, Self::Slash128, Self::Threads];

    /// Returns the name for `--scenario`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FullView => "full-view",
            Self::Slash48 => "slash48",
            Self::Slash128 => "slash128",
            Self::Threads => "threads",
        }
    }

    /// Returns the scenario with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|scenario| scenario.name() == name)
    }

    /// Default sizes.
    fn sizes(self, quick: bool) -> &'static [usize] {
        match (self, quick) {
            (Self::FullView, false) => &[10_000, 40_000, 160_000, 213_000, 500_000],
            (Self::Slash48, false) => &[100, 1_000, 10_000, 100_000, 1_000_000, 2_000_000],
            (Self::Slash128, false) => &[10_000, 100_000, 1_000_000, 2_000_000],
            (Self::Threads, false) => &[1, 10, 100, 1_000, 10_000, 100_000],
            (Self::Threads, true) => &[100],
            (_, true) => &[1_000],
        }
    }
}

/// Densities of /48s.
const DENSITIES: [f64; 6] = [1.0, 0.5, 0.1, 0.05, 0.01, 0.001];

/// A table to measure.
#[derive(Clone, Debug)]
pub struct Point {
    /// Scenario.
    pub scenario: Scenario,
    /// Share of the /48s of the range that the table contains.
    pub density: f64,
    /// Number of routes.
    pub size: usize,
}

impl Point {
    /// Returns the name of the plots for this point.
    pub fn group(&self) -> String {
        match self.scenario {
            Scenario::Slash48 => format!("slash48-{}", self.density),
            scenario => scenario.name().to_owned(),
        }
        .replace('.', "-")
    }

    /// Returns the title of these plots.
    pub fn title(&self) -> String {
        match self.scenario {
            Scenario::FullView => "Full view".into(),
            Scenario::Slash48 => format!("/48s, {} of their range", self.density),
            Scenario::Slash128 => "Hosts of one /104".into(),
            Scenario::Threads => "Random routes".into(),
        }
    }

    /// Returns the routes in insertion order.
    pub fn routes(&self, table: &[Prefix], seed: u64) -> Vec<Route> {
        let random = &mut Random::new(seed ^ self.size as u64);
        let prefixes = match self.scenario {
            Scenario::FullView => routes::scaled(table, self.size, random),
            Scenario::Slash48 => routes::slash48(self.size, self.density, random),
            Scenario::Slash128 => routes::slash128(self.size, random),
            Scenario::Threads => routes::anywhere(table, self.size, random),
        };
        routes::learned(&prefixes, random)
    }
}

/// Returns all points of a run.
pub fn points(options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    for &scenario in &options.scenarios {
        let densities = match scenario {
            Scenario::Slash48 if options.quick => &[0.1][..],
            Scenario::Slash48 => &DENSITIES,
            _ => &[1.0],
        };
        let sizes = match &options.sizes[..] {
            [] => scenario.sizes(options.quick),
            chosen => chosen,
        };
        for &density in densities {
            points.extend(sizes.iter().map(|&size| Point {
                scenario,
                density,
                size,
            }));
        }
    }
    points
}
