//! Two reports of the same measurements: what has become faster or slower, and how sure that is.
//!
//! A point has changed if its mean moved by more than a threshold, and Welch's test over its rounds finds the difference
//! too large for chance, with the number of points that were looked at taken into account (see
//! [`statistics::false_discovery`]). Rounds of one run cannot show what differs between runs, such as another machine or
//! a busier neighbor: [`differences`] says what is known of that.

use serde::Serialize;

use crate::report::table;
use crate::result::{Better, Kind, Point, Report, Section, Series};
use crate::statistics::{self, Summary, Welch};

/// What counts as a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Smallest relative change of the mean, as a share.
    pub change: f64,
    /// Share of the reported changes that may be there by chance.
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

/// What became of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It has become worse.
    Worse,
    /// It has become better.
    Better,
    /// It has changed, and the report does not say which direction is better.
    Other,
    /// No change above the bounds.
    Same,
    /// Fewer than two rounds in one of the reports.
    Unknown,
}

/// One point of both reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict<'a> {
    /// Of the second report.
    pub section: &'a Section,
    /// Of the second report.
    pub series: &'a Series,
    /// Where on the axis across.
    pub x: f64,
    /// Mean of the rounds in the first report, in the unit of the section's axis upwards.
    pub before: f64,
    /// Mean of the rounds in the second.
    pub after: f64,
    /// How sure it is that the means differ, 0 to 1; none if it cannot be said.
    pub confidence: Option<f64>,
    /// What that means.
    pub outcome: Outcome,
}

impl Verdict<'_> {
    /// Relative change of the mean, as a share of the first report's.
    pub fn change(&self) -> f64 {
        (self.after - self.before) / self.before.abs()
    }
}

/// Verdicts of all points that both reports measured, in the second one's order. What was published is left out.
pub fn compare<'a>(before: &Report, after: &'a Report, bounds: Bounds) -> Vec<Verdict<'a>> {
    let pairs: Vec<Pair> = pairs(before, after);
    let tested: Vec<Option<f64>> = pairs
        .iter()
        .map(|pair| Some(Welch::of(&pair.before.rounds, &pair.after.rounds)?.p))
        .collect();
    let p: Vec<f64> = tested.iter().copied().flatten().collect();
    let mut raised = statistics::false_discovery(&p).into_iter();
    let pairs = pairs.into_iter().zip(tested);
    pairs
        .map(|(pair, tested)| pair.verdict(tested.and_then(|_| raised.next()), bounds))
        .collect()
}

/// What of machine and setup is not the same in both, in words: figures are then not of one kind.
pub fn differences(before: &Report, after: &Report) -> Vec<String> {
    let [one, other] = [before, after].map(|report| {
        let machine = &report.machine;
        [
            ("processor", machine.cpu.clone()),
            ("processors", machine.cpus.to_string()),
            ("kernel", machine.kernel.clone()),
            (
                "hypervisor",
                machine.hypervisor.clone().unwrap_or_else(|| "none".into()),
            ),
            (
                "frequency governor",
                machine.governor.clone().unwrap_or_else(|| "none".into()),
            ),
            (
                "mitigations",
                machine
                    .mitigations
                    .values()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            (
                "seed",
                report
                    .seed
                    .map_or_else(|| "none".into(), |seed| seed.to_string()),
            ),
        ]
    });
    let pairs = one
        .into_iter()
        .zip(other)
        .filter(|(one, other)| one != other);
    pairs
        .map(|((name, one), (_, other))| format!("{name}: {one}, then {other}"))
        .collect()
}

/// A point that both reports have.
struct Pair<'b, 'a> {
    section: &'a Section,
    series: &'a Series,
    before: &'b Point,
    after: &'a Point,
    /// What either report can tell apart, as a share: what all rounds fall into is no change, however sure it is.
    resolution: Option<f64>,
}

impl<'a> Pair<'_, 'a> {
    fn verdict(&self, p: Option<f64>, bounds: Bounds) -> Verdict<'a> {
        let [before, after] = [self.before, self.after]
            .map(|point| Summary::of(&point.rounds).map_or(point.value, |all| all.mean));
        let mut verdict = Verdict {
            section: self.section,
            series: self.series,
            x: self.after.x,
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

fn pairs<'b, 'a>(before: &'b Report, after: &'a Report) -> Vec<Pair<'b, 'a>> {
    // The steps of a distribution are not measured one by one.
    let sections = after
        .sections
        .iter()
        .filter(|section| section.kind != Kind::Cdf);
    let series = sections.flat_map(|section| {
        let measured = section.series.iter().filter(|series| !series.published);
        measured.map(move |series| (section, series))
    });
    let pairs = series.flat_map(|(section, series)| {
        let old = counterpart(before, section, series);
        series.points.iter().filter_map(move |after| {
            let (old_section, old_series) = old?;
            // By word, not by number: the words of the other report may be others.
            let place = table::place(&section.x, after.x);
            let here = |point: &&Point| table::place(&old_section.x, point.x) == place;
            Some(Pair {
                section,
                series,
                before: old_series.points.iter().find(here)?,
                after,
                resolution: [&old_section.y, &section.y]
                    .into_iter()
                    .filter_map(|axis| axis.resolution)
                    .max_by(f64::total_cmp),
            })
        })
    });
    pairs.collect()
}

fn counterpart<'b>(
    before: &'b Report,
    section: &Section,
    series: &Series,
) -> Option<(&'b Section, &'b Series)> {
    let mut sections = before.sections.iter();
    let old = sections.find(|old| old.id == section.id && old.y.unit == section.y.unit)?;
    let mut measured = old.series.iter().filter(|old| !old.published);
    Some((old, measured.find(|old| old.name == series.name)?))
}
