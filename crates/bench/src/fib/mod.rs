//! `sidestep-bench fib`: prefix tables, ours and others', side by side in one run.
//!
//! - [`plan`]: scenarios and their points; [`routes`] and [`traffic`] make tables and addresses.
//! - [`subject`]: the tables under test and their lookups.
//! - `point`, `threads`: measurements of a point, round by round; `changes`: of single changes.
//! - [`latency`]: of the memory; `limits`: the lower bound that follows for a lookup.
//! - `book`: results so far; `pages`: its pictures.

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

/// Options.
#[derive(Clone, Debug)]
pub struct Options {
    /// In this order.
    pub scenarios: Vec<Scenario>,
    /// A file of prefixes instead of the full view that comes with the program.
    pub routes: Option<PathBuf>,
    /// Subjects.
    pub against: Vec<Kind>,
    /// Routes of each point, instead of the scenario's own.
    pub sizes: Vec<usize>,
    /// Few small points, short rounds: whether it works, not how fast.
    pub quick: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// How long a subject may take to be ready at a point.
    pub limit: Duration,
}

impl Options {
    /// Differences that make results incomparable.
    fn facts(&self) -> [(String, String); 2] {
        let hurry = if self.quick { ", in a hurry" } else { "" };
        let rounds = format!("{} of about {:?}{hurry}", self.rounds(), self.round());
        let routes = self.routes.as_ref();
        let routes = routes.map_or("built in".into(), |path| path.display().to_string());
        [("rounds", rounds), ("table", routes)].map(|(name, fact)| (name.to_owned(), fact))
    }

    /// Rounds of lookups.
    const fn rounds(&self) -> usize {
        if self.quick { 2 } else { 11 }
    }

    /// How long a round of one subject takes, about.
    const fn round(&self) -> Duration {
        Duration::from_micros(if self.quick { 200 } else { 10_000 })
    }

    /// How often a table is built.
    const fn builds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// How long single changes are measured.
    const fn changes(&self) -> Duration {
        Duration::from_millis(if self.quick { 5 } else { 300 })
    }

    /// Iterations of threads.
    const fn iterations(&self) -> usize {
        if self.quick { 3 } else { 12 }
    }
}

/// A run under way.
struct Bench<'a> {
    options: &'a Options,
    environment: Environment,
    interrupted: Arc<AtomicBool>,
    progress: &'a mut dyn Progress,
    cpus: Cpus,
    table: Vec<Prefix>,
    book: Book,
    /// Answers that were compared and right.
    compared: usize,
    /// Nanoseconds of ours, each lookup after the last, by group, routes and subject.
    dependent: HashMap<(String, usize, &'static str), f64>,
    depths: Vec<Depth>,
    latencies: Vec<(usize, f64)>,
}

/// Which processor does what.
#[derive(Clone, Debug)]
struct Cpus {
    all: Vec<usize>,
    /// Where everything is measured.
    measured: usize,
    /// CPU for lookups during changes. The same one if there is no other.
    other: usize,
}

/// The part of the names of namespaces that says whose they are.
const LAB: &str = "bench";

/// Measures. `interrupted` ends it early with the results so far.
///
/// # Errors
/// The file of routes cannot be used. Whatever else goes wrong is in the report.
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
            book.refuse("everything in BPF", "the start", &why);
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
                // Not of one subject: the point as a whole.
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
                "Measured on CPU {}, lookups meanwhile on CPU {}, of {} that this process may use.",
                cpus.measured, cpus.other, cpus.all.len()
            ),
            format!("2 MiB pages free at the end, for DPDK: {pages}."),
        ]
    }
}
