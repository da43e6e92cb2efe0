//! The plan of a campaign: every case of every engine, unsupported cases, and the estimated
//! duration.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::engine::behavior::{self, Behavior};
use crate::engine::{Case, Engine, Flows, Size};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;
use sidestep_model::config::yaml::wrong;
use sidestep_model::error::ConfigError;

use super::file::{Campaign, Find, Group, Order};

/// The engine `none`: generator and sink without a system, which gives the ceiling.
pub const CEILING_ENGINE: &str = "none";
/// Behavior of the ceiling engine.
pub const CEILING: &str = "ceiling";

/// The names that a campaign may use.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    /// Behaviors by name, with the allowed numbers of segments. The range 0 to 0 means no segments.
    pub behaviors: BTreeMap<String, RangeInclusive<u32>>,
}

/// A case of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Point {
    /// Name of its group.
    pub group: String,
    /// Measured case.
    pub case: Case,
    /// Name of the engine.
    pub engine: String,
}

impl fmt::Display for Point {
    /// Formats the name of the point: `GROUP: ENGINE CASE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.group, self.engine, self.case)
    }
}

/// A point that its engine does not support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The point.
    #[serde(flatten)]
    pub point: Point,
    /// The engine's reason.
    pub why: String,
}

/// All measurements of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Points in the order of the file: by group, case and engine.
    pub points: Vec<Point>,
    /// Points that engines refused.
    pub refused: Vec<Refused>,
    /// Ceiling measurements of generator and sink, one for each kind of traffic.
    pub ceilings: Vec<Case>,
}

impl Plan {
    /// Queries the engines for supported cases, without setting any of them up.
    ///
    /// # Errors
    /// An engine or behavior is unknown, a behavior does not accept a number of segments, no engine
    /// supports a case, or a published figure matches no case. The error has line and column.
    pub fn of(
        campaign: &Campaign,
        engines: &[Box<dyn Engine>],
        vocabulary: &Vocabulary,
    ) -> Result<Self, ConfigError> {
        let mut plan = Self::default();
        for group in &campaign.groups {
            plan.add(campaign, group, engines, vocabulary)?;
        }
        if let Some(none) = engines
            .iter()
            .find(|engine| engine.name() == CEILING_ENGINE)
        {
            plan.ceilings = ceilings(&plan.points);
            plan.ceilings.retain(|case| none.refuses(case).is_none());
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        campaign: &Campaign,
        group: &Group,
        engines: &[Box<dyn Engine>],
        vocabulary: &Vocabulary,
    ) -> Result<(), ConfigError> {
        let chosen = group.engines.as_ref().unwrap_or(&campaign.engines);
        let chosen = chosen.iter().map(|name| known(name, engines));
        let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
        let mut cases = Vec::new();
        for behavior in &group.behaviors {
            for case in cases_of(group, behavior, vocabulary)? {
                let at = self.points.len();
                for engine in &chosen {
                    let point = Point {
                        group: group.name.value.clone(),
                        case: case.clone(),
                        engine: engine.name().to_owned(),
                    };
                    match engine.refuses(&case) {
                        None => self.points.push(point),
                        Some(why) => self.refused.push(Refused { point, why }),
                    }
                }
                // The number of CPUs is a property of the machine, so a case with too many cores is
                // no error of the file.
                if self.points.len() == at && case.cores == 1 {
                    return Err(impossible(behavior, &case, &self.refused, chosen.len()));
                }
                cases.push(case);
            }
        }
        for published in &group.published {
            let measured = campaign.finds(group).contains(&published.value.find);
            if !measured || !cases.iter().any(|case| published.value.is_of(case)) {
                let found = &published.value.behavior;
                return Err(wrong(
                    published,
                    "published figure without a case",
                    found,
                    "a case and a metric of the group",
                ));
            }
        }
        Ok(())
    }

    /// Returns all measurements of all runs in the order of measurement.
    pub fn units(&self, campaign: &Campaign) -> Vec<Unit<'_>> {
        let unit = |point, run| Unit { point, run };
        match campaign.order {
            Order::Sequential => {
                let points = self.points.iter();
                points
                    .flat_map(|point| (0..campaign.runs()).map(move |run| unit(point, run)))
                    .collect()
            }
            Order::Interleaved => (0..campaign.runs())
                .flat_map(|run| {
                    self.round(run)
                        .into_iter()
                        .map(move |point| unit(point, run))
                })
                .collect(),
        }
    }

    /// Returns the points of a run. Each run starts the points of a case with a different engine,
    /// so that the order of the engines varies.
    fn round(&self, run: u32) -> Vec<&Point> {
        let mut points: Vec<&Point> = self.points.iter().collect();
        let same =
            |one: &&Point, other: &&Point| (&one.group, &one.case) == (&other.group, &other.case);
        for of_case in points.chunk_by_mut(same) {
            of_case.rotate_left(run as usize % of_case.len());
        }
        points
    }
}

/// A point in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Group, case and engine.
    pub point: &'a Point,
    /// Number of the run, from 0.
    pub run: u32,
}

/// Returns the estimated number of trials of a measurement, with at most this number of trials per
/// rate.
pub fn trials(find: Find, judging: u32) -> usize {
    match find {
        Find::Pdr | Find::Ndr if judging == 1 => 22,
        // No rate is requested twice, and little more than half of the trials decide most rates.
        Find::Pdr | Find::Ndr => 16 * (judging as usize + 1).div_ceil(2),
        Find::Mrr => 1,
        Find::Curve => CURVE.len(),
        Find::Latency => LATENCY.len(),
    }
}

/// Returns the estimated duration of this number of trials, including late packets.
pub fn estimated(trial: Duration, trials: usize) -> Duration {
    (trial + LATE) * trials as u32
}

/// Approximate time of a setup, including the verification of a packet.
pub const SET_UP: Duration = Duration::from_millis(1500);

/// Rates of a curve, as shares of the PDR.
pub const CURVE: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2];

/// Rates at which latency is measured, as shares of the PDR.
pub const LATENCY: [f64; 3] = [0.1, 0.5, 0.9];

fn known<'a>(
    name: &Spanned<String>,
    engines: &'a [Box<dyn Engine>],
) -> Result<&'a dyn Engine, ConfigError> {
    let mut all = engines.iter();
    let found = all.find(|engine| engine.name() == name.value);
    found.map(AsRef::as_ref).ok_or_else(|| {
        let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
        wrong(name, "unknown engine", &name.value, &names.join(", "))
    })
}

fn cases_of(
    group: &Group,
    behavior: &Spanned<String>,
    vocabulary: &Vocabulary,
) -> Result<Vec<Case>, ConfigError> {
    let Some(takes) = vocabulary.behaviors.get(&behavior.value) else {
        let names: Vec<&str> = vocabulary.behaviors.keys().map(String::as_str).collect();
        return Err(wrong(
            behavior,
            "unknown behavior",
            &behavior.value,
            &names.join(", "),
        ));
    };
    let sids = segments(group, behavior, takes)?;
    let mut cases = vec![Case {
        behavior: behavior.value.clone(),
        sids: 0,
        size: Size::Bytes(0),
        flows: Flows::Uniform(1),
        rules: 0,
        routes: 0,
        cores: 1,
    }];
    // The last property varies fastest.
    vary(&mut cases, &group.sizes, |case, size| {
        case.size = size.value.0;
    });
    vary(&mut cases, &sids, |case, sids| case.sids = *sids);
    vary(&mut cases, &group.rules, |case, rules| {
        case.rules = rules.value;
    });
    vary(&mut cases, &group.routes, |case, routes| {
        case.routes = routes.value;
    });
    vary(&mut cases, &group.flows, |case, flows| {
        case.flows = flows.value.0;
    });
    vary(&mut cases, &group.cores, |case, cores| {
        case.cores = cores.value;
    });
    Ok(cases)
}

/// Replaces each case by one case per value.
fn vary<T>(cases: &mut Vec<Case>, values: &[T], set: impl Fn(&mut Case, &T)) {
    let each = |case: &Case| {
        let with = values.iter().map(|value| {
            let mut case = case.clone();
            set(&mut case, value);
            case
        });
        with.collect::<Vec<_>>()
    };
    *cases = cases.iter().flat_map(each).collect();
}

/// Returns the numbers of segments for a behavior.
fn segments(
    group: &Group,
    behavior: &Spanned<String>,
    takes: &RangeInclusive<u32>,
) -> Result<Vec<u32>, ConfigError> {
    let (least, most) = (*takes.start(), *takes.end());
    let Some(wanted) = group.sids.as_ref().filter(|_| most > 0) else {
        return Ok(vec![1.clamp(least, most)]);
    };
    let numbers = wanted.iter().map(|wanted| {
        if takes.contains(&wanted.value) {
            return Ok(wanted.value);
        }
        let allowed = format!("{least} to {most} of {}", behavior.value);
        Err(wrong(
            wanted,
            "number of SIDs",
            &wanted.value.to_string(),
            &allowed,
        ))
    });
    numbers.collect()
}

fn impossible(
    behavior: &Spanned<String>,
    case: &Case,
    refused: &[Refused],
    engines: usize,
) -> ConfigError {
    let reasons = refused.iter().rev().take(engines).rev();
    let reasons = reasons.map(|refused| format!("{}: {}", refused.point.engine, refused.why));
    let reasons: Vec<String> = reasons.collect();
    wrong(
        behavior,
        format!("no engine supports this ({})", reasons.join("; ")),
        &case.to_string(),
        "",
    )
}

fn ceilings(points: &[Point]) -> Vec<Case> {
    let mut cases: Vec<Case> = points.iter().map(|point| ceiling(&point.case)).collect();
    cases.sort_unstable();
    cases.dedup();
    cases
}

/// Returns the ceiling measurement of a case: packets of equal length with all headers that an SR
/// endpoint receives, since headers cost the generator time. For a mix, the customers' packets.
pub fn ceiling(of: &Case) -> Case {
    let sent = |length: u32| {
        let few = Case {
            rules: 0,
            routes: 0,
            ..of.clone()
        };
        let made = Behavior::of(&few, length as usize).ok()?;
        u32::try_from(made.sent.len().checked_sub(ETHERNET)?).ok()
    };
    let mut alike = sent_alike(of);
    if let (Size::Bytes(least), Size::Bytes(length)) = (alike.size, of.size) {
        alike.size = Size::Bytes(sent(length).map_or(least, |sent| sent.max(least)));
    }
    alike
}

/// Returns a key that is equal for cases with equal customer packets, flows and cores.
pub fn sent_alike(of: &Case) -> Case {
    let least = behavior::kind(CEILING).map_or(0, |kind| kind.least as u32);
    Case {
        behavior: CEILING.into(),
        sids: 0,
        size: match of.size {
            Size::Bytes(length) => Size::Bytes(length.max(least)),
            Size::Imix => Size::Imix,
        },
        flows: of.flows,
        rules: 0,
        routes: 0,
        cores: of.cores,
    }
}

const ETHERNET: usize = 14;

/// Wait for late packets after a trial.
const LATE: Duration = Duration::from_millis(100);
