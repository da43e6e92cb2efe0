//! `sidestep-bench converge`: how long packets take the old way after a path has changed.
//!
//! A router has many service routes onto segment lists. One command of `ip` moves them from host `b`
//! to host `c`, while host `a` sends at a constant rate. Each engine does the same with the same
//! routes, so that Linux is the measure.

mod change;
mod lab;
mod traffic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sidestep_testkit::{Error, Lab};

pub use self::change::Change;
use self::lab::{Engine, LAB, Network};
use self::traffic::Observed;
use crate::engine::product::Sidestep;
use crate::machine;
use crate::progress::Progress;
use crate::result::{
    Axis, Better, Cell, Kind, Point, Refusal, Report, SCHEMA, Scale, Section, Series, Table,
};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Changes to make.
    pub changes: Vec<&'static Change>,
    /// Engines to compare: `linux`, `tc`, `xdp`.
    pub engines: Vec<String>,
    /// Numbers of service routes.
    pub routes: Vec<usize>,
    /// Packets per second.
    pub rate: u32,
    /// Repetitions of each point.
    pub rounds: usize,
    /// Time after the change for which packets are sent.
    pub after: Duration,
}

/// Observations of a point, one for each round.
type Rounds = Vec<Observed>;

/// Results of an engine for a change: by number of routes.
#[derive(Debug)]
struct Results {
    change: &'static Change,
    engine: Engine,
    points: Vec<(usize, Rounds)>,
}

/// Runs the measurement. If `interrupted` is set, it ends early with the results so far.
///
/// # Errors
/// There is no Sidestep to measure, or a name is none of an engine.
pub fn run(
    options: &Options,
    interrupted: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Report, Error> {
    let begun = (Instant::now(), SystemTime::now());
    Lab::sweep_of(LAB);
    let engines: Vec<Engine> = options
        .engines
        .iter()
        .map(|name| Engine::named(name))
        .collect::<Result<_, _>>()?;
    let is_needed = engines.iter().any(Engine::is_sidestep);
    let sidestep = is_needed.then(Sidestep::find).transpose()?;
    let points = options.changes.len() * engines.len() * options.routes.len();
    progress.plan(points * options.rounds);
    let mut results = Vec::new();
    let mut refusals = Vec::new();
    'all: for change in &options.changes {
        let mut of_change: Vec<Results> = Vec::new();
        for engine in &engines {
            of_change.push(Results {
                change,
                engine: engine.clone(),
                points: Vec::new(),
            });
        }
        for &routes in &options.routes {
            let mut rounds: Vec<Rounds> = vec![Vec::new(); engines.len()];
            // The engines take turns, so that a disturbance of the machine affects all of them.
            for round in 0..options.rounds {
                for (engine, rounds) in engines.iter().zip(&mut rounds) {
                    if interrupted.load(Ordering::Relaxed) {
                        break 'all;
                    }
                    let place = format!("{}, {routes} routes", change.name);
                    progress.step(&format!("{place}: {}, round {}", engine.name(), round + 1));
                    match Network::measure(engine, sidestep.as_ref(), change, routes, options) {
                        Ok(observed) => rounds.push(observed),
                        Err(why) => refusals.push(Refusal {
                            subject: engine.name().to_owned(),
                            at: place,
                            why: why.to_string(),
                        }),
                    }
                }
            }
            for (results, rounds) in of_change.iter_mut().zip(rounds) {
                if !rounds.is_empty() {
                    results.points.push((routes, rounds));
                }
            }
        }
        results.extend(of_change);
    }
    let complete = !interrupted.load(Ordering::Relaxed);
    let mut machine = machine::this();
    let facts = [
        ("rate", format!("{} packets per second", options.rate)),
        ("rounds", options.rounds.to_string()),
    ];
    let facts = facts.map(|(name, fact)| (name.to_owned(), fact));
    machine.facts.extend(facts);
    Ok(Report {
        schema: SCHEMA,
        title: "Convergence: packets after a change of their path".into(),
        made: humantime::format_rfc3339_seconds(begun.1).to_string(),
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").into(),
        git: crate::GIT.map(Into::into),
        program: crate::program(),
        seed: None,
        complete,
        seconds: begun.0.elapsed().as_secs_f64(),
        machine,
        notes: vec![
            "Times count from the start of the command that changes the path. Linux changes its \
             routes while the command runs."
                .into(),
        ],
        sections: sections(&options.changes, &results),
        tables: vec![table(&results)],
        refusals,
    })
}

/// Returns one plot for each change: the last packet on the old way, by the number of routes.
fn sections(changes: &[&'static Change], results: &[Results]) -> Vec<Section> {
    let moves = changes.iter().filter(|change| change.moves);
    let section = |change: &&'static Change| {
        let of_change = results.iter().filter(|it| it.change.name == change.name);
        let series: Vec<Series> = of_change
            .filter(|it| !it.points.is_empty())
            .map(|it| Series {
                name: it.engine.name().into(),
                subject: it.engine.name().into(),
                published: false,
                points: it
                    .points
                    .iter()
                    .map(|(x, rounds)| point(*x, rounds))
                    .collect(),
            })
            .collect();
        Section {
            id: change.name.into(),
            title: format!("{}: last packet on the old way", change.about),
            note: format!("`{}`", change.command),
            kind: Kind::Line,
            x: Axis::new("routes", "", Scale::Log),
            y: Axis::log("time after the start of the command", "ms").better(Better::Lower),
            baseline: Some("linux".into()),
            series,
        }
    };
    moves
        .map(section)
        .filter(|it| !it.series.is_empty())
        .collect()
}

fn point(routes: usize, rounds: &Rounds) -> Point {
    let times = rounds.iter().map(Observed::last_old_ms).collect();
    Point::of(routes as f64, times)
}

/// Returns the table with a row for each point. A cell has the worst value of all rounds.
fn table(results: &[Results]) -> Table {
    let heads = [
        "change",
        "routes",
        "engine",
        "last packet on the old way, ms",
        "end of the command, ms",
        "lost",
        "punted",
    ];
    let rows = results.iter().flat_map(|it| {
        it.points.iter().map(|(routes, rounds)| {
            let worst = |value: fn(&Observed) -> f64| {
                Cell::Number(rounds.iter().map(value).fold(0.0, f64::max))
            };
            let only_if = |is: bool, cell: Cell| is.then_some(cell);
            let none = || Cell::Text(String::new());
            let old = only_if(it.change.moves, worst(Observed::last_old_ms)).unwrap_or_else(none);
            let punted = worst(|observed| observed.punted as f64);
            let punted = only_if(it.engine.is_sidestep(), punted).unwrap_or_else(none);
            vec![
                Cell::Text(it.change.name.into()),
                Cell::Number(*routes as f64),
                Cell::Text(it.engine.name().into()),
                old,
                worst(|observed| observed.command.as_secs_f64() * 1e3),
                worst(|observed| observed.lost as f64),
                punted,
            ]
        })
    });
    Table {
        id: "points".into(),
        title: "All points".into(),
        note: "The worst of all rounds. Lost: arrived at neither host. Punted: left to Linux."
            .into(),
        heads: heads.map(Into::into).to_vec(),
        rows: rows.collect(),
    }
}
