//! Compares two reports of the same measurements: faster or slower points with their significance.
//!
//! A point has changed if its mean moved by more than a threshold and Welch's test over its rounds
//! is significant, corrected for the number of points ([`statistics::false_discovery`]). Rounds of
//! one run do not show differences between runs, such as another machine or a busier neighbor.
//! [`differences`] lists the known ones.

use serde::Serialize;

use crate::machine::LOAD;
use crate::report::{machine, table};
use crate::result::{Better, Cell, Kind, Point, Refusal, Report, Scale, Section, Series};
use crate::statistics::{self, Summary, Welch};

/// Thresholds of a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Smallest relative change of the mean, as a share.
    pub change: f64,
    /// Share of the reported changes that may be due to chance.
    pub chance: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            change: 0.03,
            chance: 0.01,
        }
    }
}

/// Result for a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The point has become worse.
    Worse,
    /// The point has become better.
    Better,
    /// The point has changed, and the report does not state which direction is better.
    Other,
    /// No change above the thresholds.
    Same,
    /// Fewer than two rounds in one of the reports.
    Unknown,
}

/// One point of both reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict<'a> {
    /// Section in the second report.
    pub section: &'a Section,
    /// Series in the second report.
    pub series: &'a Series,
    /// Point in the second report.
    pub point: &'a Point,
    /// Mean of the rounds in the first report, in the unit of the section's vertical axis.
    pub before: f64,
    /// Mean of the rounds in the second report.
    pub after: f64,
    /// Confidence that the means differ, 0 to 1; `None` if it cannot be computed.
    pub confidence: Option<f64>,
    /// Meaning of the change.
    pub outcome: Outcome,
}

impl Verdict<'_> {
    /// Relative change of the mean, as a share of the first report's.
    pub fn change(&self) -> f64 {
        (self.after - self.before) / self.before.abs()
    }
}

/// Two reports, point by point. Published figures are skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// Points of both reports, in the second one's order.
    pub verdicts: Vec<Verdict<'a>>,
    /// Points of the first report only, in its order.
    pub gone: Vec<Lone<'a>>,
    /// Points of the second report only.
    pub new: Vec<Lone<'a>>,
    /// Points that failed in the second report and not in the first.
    pub failed: Vec<&'a Refusal>,
    /// Distributions of both reports. They are not compared, since their steps are not independent
    /// measurements.
    pub distributions: Vec<Lone<'a>>,
}

/// A point of one report, or a whole distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lone<'a> {
    /// The section.
    pub section: &'a Section,
    /// The series.
    pub series: &'a Series,
    /// The point; `None` for a whole distribution.
    pub point: Option<&'a Point>,
}

/// Returns the name of a point: its key, or its place on the axis.
pub fn called(section: &Section, point: &Point) -> Cell {
    match (&section.x.scale, &point.key) {
        (Scale::Linear | Scale::Log, Some(key)) => Cell::Text(key.clone()),
        _ => table::place(&section.x, point.x),
    }
}

/// Compares all points that both reports contain, and lists those that only one of them contains.
pub fn compare<'a>(before: &'a Report, after: &'a Report, bounds: Bounds) -> Comparison<'a> {
    let pairs: Vec<Pair> = pairs(before, after);
    let tested: Vec<Option<f64>> = pairs
        .iter()
        .map(|pair| Some(Welch::of(&pair.before.rounds, &pair.after.rounds)?.p))
        .collect();
    let p: Vec<f64> = tested.iter().copied().flatten().collect();
    let mut raised = statistics::false_discovery(&p).into_iter();
    let pairs = pairs.into_iter().zip(tested);
    let is_in = |report: &Report, it: &Lone| counterpart(report, it).is_some();
    let distributions = measured(after).filter(|it| it.point.is_none() && is_in(before, it));
    Comparison {
        verdicts: pairs
            .map(|(pair, tested)| pair.verdict(tested.and_then(|_| raised.next()), bounds))
            .collect(),
        gone: measured(before).filter(|it| !is_in(after, it)).collect(),
        new: measured(after).filter(|it| !is_in(before, it)).collect(),
        failed: failed(before, after).collect(),
        distributions: distributions.collect(),
    }
}

/// Returns refusals that only the second report has. Some runs of a point may have failed, which
/// the other runs would hide.
fn failed<'a>(before: &Report, after: &'a Report) -> impl Iterator<Item = &'a Refusal> {
    after.refusals.iter().filter(|it| {
        let series = before.sections.iter().flat_map(|section| &section.series);
        let mut measured = series.filter(|series| !series.published);
        measured.any(|series| series.subject == it.subject)
            && !before
                .refusals
                .iter()
                .any(|other| (&other.subject, &other.at) == (&it.subject, &it.at))
    })
}

/// Returns the differences of program, machine and setup. Any difference makes the results
/// incomparable.
pub fn differences(before: &Report, after: &Report) -> Vec<String> {
    let (one, other) = (facts(before), facts(after));
    let names = one.iter().chain(&other).map(|(name, _)| name);
    let mut differing: Vec<(&String, [Option<&String>; 2])> = Vec::new();
    for name in names {
        let [then, now] = [&one, &other].map(|facts| {
            let mut facts = facts.iter();
            facts.find(|(its, _)| its == name).map(|(_, fact)| fact)
        });
        // If only one report has an engine, the list of its points shows this.
        let one_sided = then.is_none() || now.is_none();
        let of_stranger =
            one_sided && engine_of(name).is_some_and(|it| !(is_of(&one, it) && is_of(&other, it)));
        if then != now && !of_stranger && !differing.iter().any(|(its, _)| *its == name) {
            differing.push((name, [then, now]));
        }
    }
    let mut notes: Vec<(String, String)> = Vec::new();
    for (name, facts) in differing {
        let [then, now] = facts.map(|fact| fact.map_or("not known", String::as_str));
        let (engine, fact) = match engine_of(name) {
            Some(engine) => (Some(engine), &name[engine.len()..]),
            None => (None, name.as_str()),
        };
        let words = format!("{fact}: {then}, then {now}");
        // Several engines often share a program, a kernel, or a pair of network cards.
        match notes
            .iter_mut()
            .find(|(engines, its)| !engines.is_empty() && *its == words)
        {
            Some((engines, _)) => {
                engines.push_str(", ");
                engines.push_str(engine.unwrap_or_default());
            }
            None => notes.push((engine.unwrap_or_default().to_owned(), words)),
        }
    }
    notes
        .into_iter()
        .map(|(engines, words)| format!("{engines}{words}"))
        .collect()
}

type Facts = Vec<(String, String)>;

/// Returns all facts about program, machine and setup, except those that change from minute to
/// minute.
fn facts(report: &Report) -> Facts {
    let machine = &report.machine;
    let none = || "none".to_owned();
    let or_none = |fact: &Option<String>| fact.clone().unwrap_or_else(none);
    let mut facts: Facts = [
        ("version", report.version.clone()),
        ("commit", or_none(&report.git)),
        ("complete", report.complete.to_string()),
        ("processor", machine.cpu.clone()),
        ("processors", machine.cpus.to_string()),
        ("caches", machine::caches(machine)),
        ("memory", machine::bytes(machine.memory)),
        ("kernel", machine.kernel.clone()),
        ("hypervisor", or_none(&machine.hypervisor)),
        ("frequency governor", or_none(&machine.governor)),
        (
            "seed",
            report.seed.map_or_else(none, |seed| seed.to_string()),
        ),
    ]
    .map(|(name, fact)| (name.to_owned(), fact))
    .into();
    let program = report.program.iter();
    facts.extend(program.map(|hash| ("program".to_owned(), hash.clone())));
    let mitigations = machine.mitigations.iter();
    facts.extend(mitigations.map(|(name, state)| (format!("mitigation of {name}"), state.clone())));
    let others = machine.facts.iter();
    let others = others.filter(|(name, _)| name.as_str() != LOAD);
    facts.extend(others.map(|(name, fact)| (name.clone(), fact.clone())));
    facts
}

/// Returns the engine of a fact, if any: `linux` for `linux: mode`.
fn engine_of(name: &str) -> Option<&str> {
    name.split_once(": ").map(|(engine, _)| engine)
}

fn is_of(facts: &Facts, engine: &str) -> bool {
    facts
        .iter()
        .any(|(name, _)| engine_of(name) == Some(engine))
}

/// A point that both reports have.
struct Pair<'b, 'a> {
    section: &'a Section,
    series: &'a Series,
    before: &'b Point,
    after: &'a Point,
    /// Resolution of either report, as a share. A smaller difference does not count as a change,
    /// even if it is significant.
    resolution: Option<f64>,
}

impl<'a> Pair<'_, 'a> {
    fn verdict(&self, p: Option<f64>, bounds: Bounds) -> Verdict<'a> {
        let [before, after] = [self.before, self.after]
            .map(|point| Summary::of(&point.rounds).map_or(point.value, |all| all.mean));
        let mut verdict = Verdict {
            section: self.section,
            series: self.series,
            point: self.after,
            before,
            after,
            confidence: p.map(|p| 1.0 - p),
            outcome: Outcome::Unknown,
        };
        if let Some(p) = p {
            let least = self
                .resolution
                .map_or(bounds.change, |it| it.max(bounds.change));
            let changed = p <= bounds.chance && verdict.change().abs() >= least;
            verdict.outcome = if changed {
                self.direction(after > before)
            } else {
                Outcome::Same
            };
        }
        verdict
    }

    fn direction(&self, risen: bool) -> Outcome {
        match (self.section.y.better, risen) {
            (None, _) => Outcome::Other,
            (Some(Better::Higher), true) | (Some(Better::Lower), false) => Outcome::Better,
            (Some(Better::Higher), false) | (Some(Better::Lower), true) => Outcome::Worse,
        }
    }
}

/// Returns all measured points, and distributions as a whole.
fn measured(report: &Report) -> impl Iterator<Item = Lone<'_>> {
    let series = report.sections.iter().flat_map(|section| {
        let measured = section.series.iter().filter(|series| !series.published);
        measured.map(move |series| (section, series))
    });
    series.flat_map(|(section, series)| {
        let points: Vec<Option<&Point>> = match section.kind {
            Kind::Cdf => vec![None],
            Kind::Line | Kind::Bars | Kind::Box => series.points.iter().map(Some).collect(),
        };
        let lone = move |point| Lone {
            section,
            series,
            point,
        };
        points.into_iter().map(lone)
    })
}

fn pairs<'a>(before: &'a Report, after: &'a Report) -> Vec<Pair<'a, 'a>> {
    let pairs = measured(after).filter_map(|now| {
        let then = counterpart(before, &now)?;
        Some(Pair {
            section: now.section,
            series: now.series,
            before: then.point?,
            after: now.point?,
            resolution: [&then.section.y, &now.section.y]
                .into_iter()
                .filter_map(|axis| axis.resolution)
                .max_by(f64::total_cmp),
        })
    });
    pairs.collect()
}

/// Returns the corresponding point of another report.
fn counterpart<'b>(other: &'b Report, it: &Lone) -> Option<Lone<'b>> {
    let mut sections = other.sections.iter();
    let section = sections.find(|section| {
        section.id == it.section.id
            && section.y.unit == it.section.y.unit
            && (section.kind == Kind::Cdf) == (it.section.kind == Kind::Cdf)
    })?;
    let mut series = section.series.iter().filter(|series| !series.published);
    let series = series.find(|series| series.name == it.series.name)?;
    let point = match it.point {
        None => None,
        Some(point) => {
            // Compare the texts of categories, because the other report may number them
            // differently.
            let place = table::place(&it.section.x, point.x);
            let mut points = series.points.iter();
            Some(points.find(|other| match (&other.key, &point.key) {
                (Some(one), Some(other)) => one == other,
                _ => table::place(&section.x, other.x) == place,
            })?)
        }
    };
    Some(Lone {
        section,
        series,
        point,
    })
}
