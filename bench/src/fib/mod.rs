//! `sidestep-bench fib`: Sidestep's prefix tables and others, side by side in one run.
//!
//! - [`plan`]: scenarios and their points; [`routes`] and [`traffic`] create tables and addresses.
//! - [`subject`]: the tables under test and their lookups.
//! - `point`, `threads`: measure a point, round by round; `changes`: measures single changes.
//! - [`latency`]: measures the memory; `limits`: the resulting lower bound for a lookup.
//! - `book`: results so far; `pages`: its plots.

mod book;
mod changes;
pub mod latency;
mod limits;
mod oracle;
mod pages;
pub mod plan;
mod point;
pub mod routes;
pub mod subject;
mod threads;
pub mod traffic;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use sidestep_fib::Prefix;
use sidestep_testkit::Lab;

use book::Book;
use limits::Depth;
use plan::Scenario;
use routes::RoutesError;
use subject::{Environment, Harness, Kind, Stop, Trouble};

use crate::huge_pages::HugePages;
use crate::progress::Progress;
use crate::result::{Report, SCHEMA};
use crate::{cpu, machine};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Scenarios to run, in this order.
    pub scenarios: Vec<Scenario>,
    /// File of prefixes. Without it, the embedded full view is used.
    pub routes: Option<PathBuf>,
    /// Tables to measure.
    pub against: Vec<Kind>,
    /// Numbers of routes of the points. Empty: the defaults of the scenario.
    pub sizes: Vec<usize>,
    /// Few small points and short rounds, which test the function and not the speed.
    pub quick: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Time limit for a table to be ready at a point.
    pub limit: Duration,
}

impl Options {
    /// Settings that must be equal for results to be comparable.
    fn facts(&self) -> [(String, String); 2] {
        let hurry = if self.quick { ", quick" } else { "" };
        let rounds = format!("{} of about {:?}{hurry}", self.rounds(), self.round());
        let routes = self.routes.as_ref();
        let routes = routes.map_or("built in".into(), |path| path.display().to_string());
        [("rounds", rounds), ("table", routes)].map(|(name, fact)| (name.to_owned(), fact))
    }

    /// Number of rounds of lookups.
    const fn rounds(&self) -> usize {
        if self.quick { 2 } else { 11 }
    }

    /// Approximate duration of one table's round.
    const fn round(&self) -> Duration {
        Duration::from_micros(if self.quick { 200 } else { 10_000 })
    }

    /// Number of times that a table is built.
    const fn builds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// Duration for which single changes are measured.
    const fn changes(&self) -> Duration {
        Duration::from_millis(if self.quick { 5 } else { 300 })
    }

    /// Number of iterations with several threads.
    const fn iterations(&self) -> usize {
        if self.quick { 3 } else { 12 }
    }
}

/// A run in progress.
struct Bench<'a> {
    options: &'a Options,
    environment: Environment,
    interrupted: Arc<AtomicBool>,
    progress: &'a mut dyn Progress,
    cpus: Cpus,
    table: Vec<Prefix>,
    book: Book,
    /// Number of compared answers that were right.
    compared: usize,
    /// Nanoseconds per dependent lookup of Sidestep's tables, by group, routes and table.
    dependent: HashMap<(String, usize, &'static str), f64>,
    depths: Vec<Depth>,
    latencies: Vec<(usize, f64)>,
}

/// The CPUs of a run.
#[derive(Clone, Debug)]
struct Cpus {
    all: Vec<usize>,
    /// CPU of all measurements.
    measured: usize,
    /// CPU for lookups during changes. Equal to `measured` on a machine with one CPU.
    other: usize,
}

/// Part of the namespace names that identifies this program.
const LAB: &str = "bench";

/// Runs the benchmark. If `interrupted` is set, it ends early with the results so far.
///
/// # Errors
/// The file of routes cannot be used. The report lists all other errors.
pub fn run(
    options: &Options,
    interrupted: &Arc<AtomicBool>,
    progress: &mut dyn Progress,
) -> Result<Report, RoutesError> {
    let begun = (Instant::now(), SystemTime::now());
    // Removes leftovers of killed runs.
    Lab::sweep_of(LAB);
    let mut machine = machine::this();
    machine.facts.extend(options.facts());
    let table = routes::read(options.routes.as_deref())?;
    let mut book = Book::default();
    let harness = match Harness::new() {
        Ok(harness) => Some(Arc::new(harness)),
        Err(why) => {
            book.refuse("all BPF tables", "the start", &why);
            None
        }
    };
    let all = cpu::allowed();
    let mut bench = Bench {
        options,
        environment: Environment {
            harness,
            huge_pages: HugePages::new(),
        },
        interrupted: Arc::clone(interrupted),
        progress,
        cpus: Cpus {
            measured: all.last().copied().unwrap_or(0),
            other: all.first().copied().unwrap_or(0),
            all,
        },
        table,
        book,
        compared: 0,
        dependent: HashMap::new(),
        depths: Vec::new(),
        latencies: Vec::new(),
    };
    let complete = bench.measure().is_ok();
    let notes = bench.notes();
    let tables = bench.tables();
    bench.book.close();
    Ok(Report {
        schema: SCHEMA,
        title: "IPv6 longest prefix match".into(),
        made: humantime::format_rfc3339_seconds(begun.1).to_string(),
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").into(),
        git: crate::GIT.map(Into::into),
        program: crate::program(),
        seed: Some(options.seed),
        complete,
        seconds: begun.0.elapsed().as_secs_f64(),
        machine,
        notes,
        sections: bench.book.sections,
        tables,
        refusals: bench.book.refusals,
    })
}

impl Bench<'_> {
    fn measure(&mut self) -> Result<(), Trouble> {
        let points = plan::points(self.options);
        let steps = points.iter().map(|point| self.steps(point)).sum::<usize>();
        self.progress.plan(steps + self.latency_sizes().len());
        self.latency()?;
        for point in &points {
            let done = match point.scenario {
                Scenario::Threads => self.threads(point),
                _ => self.point(point),
            };
            match done {
                Err(Trouble::Interrupted) => return Err(Trouble::Interrupted),
                // The error is not specific to one table.
                Err(why) => self.book.refuse("all", &point.title(), &why),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn steps(&self, point: &plan::Point) -> usize {
        let (kinds, builds) = (self.options.against.len(), self.options.builds());
        kinds * builds
            + match point.scenario {
                Scenario::Threads => threads::THREADS.len() * self.options.iterations(),
                _ => self.options.rounds() + kinds,
            }
    }

    fn stop(&self) -> Stop {
        Stop::new(Arc::clone(&self.interrupted), self.options.limit)
    }

    fn notes(&self) -> Vec<String> {
        let cpus = &self.cpus;
        let pages = HugePages::free();
        vec![
            format!(
                "Before a subject is timed at a point its answers to {} addresses, on and around the edges of prefixes, are compared with \
                 those of a slow list; all in all {} were compared and right. Who is wrong is not timed.",
                point::COMPARED, self.compared
            ),
            "Lookups: addresses drawn from the prefixes of the table, so that all are hits. Rounds of all subjects take turns; the loop \
             around the lookups is measured in each round and subtracted."
                .into(),
            format!(
                "Measured on CPU {}, with lookups during changes on CPU {}; this process may use {} CPUs.",
                cpus.measured, cpus.other, cpus.all.len()
            ),
            format!("2 MiB pages free at the end, for DPDK: {pages}."),
        ]
    }
}
