//! Measures the points of a campaign that its folder does not contain yet.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::engine::{Case, Engine, Standing};
use serde_saphyr::Spanned;
use sidestep_model::error::ConfigError;
use sidestep_testkit::traffic::Hook;
use sidestep_testkit::traffic::trial::{Load, Trial};

use super::file::{Campaign, Find, Group};
use super::log::{self, Begin, Failed, Log, Measured, Record};
use super::plan::{self, CEILING_ENGINE, CURVE, LATENCY, Plan, Point, Unit};
use super::repeat::Repeats;
use crate::machine::{self, Ticks};
use crate::progress::Progress;
use crate::search::{self, Found};

/// A campaign that is ready to run.
pub struct Runner<'a> {
    /// The campaign.
    pub campaign: &'a Campaign,
    /// Whether the campaign is [`Campaign::quick`].
    pub quick: bool,
    /// Points to measure.
    pub plan: &'a Plan,
    /// All engines that the plan names.
    pub engines: &'a [Box<dyn Engine>],
    /// Measures only points that match one of these patterns. Without patterns, all points.
    pub only: &'a [Pattern],
    /// Reads the CPU time of the machine, which contains the steal time.
    pub ticks: &'a dyn Fn() -> Option<Ticks>,
    /// Ends the run early when it is set.
    pub interrupted: &'a AtomicBool,
}

/// A pattern for points of a plan: a part of the name that a dry run prints, with `*` as a
/// wildcard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Parses a pattern.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Whether the pattern matches a point.
    pub fn fits(&self, point: &Point) -> bool {
        let name = point.to_string();
        let mut rest = &name[..];
        self.0.split('*').all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reason why a campaign ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be used.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The folder's results were measured under other conditions.
    #[error("the results in this folder were measured under other conditions: {}. Restore them, or choose another folder with -o", .0.join("; "))]
    Otherwise(
        /// Differences: name, old value, new value.
        Vec<String>,
    ),
    /// A parameter of the search is invalid.
    #[error(transparent)]
    Campaign(#[from] ConfigError),
}

/// Reason why a measurement ended early.
enum Stop {
    Interrupted,
    Log(log::Error),
}

impl From<log::Error> for Stop {
    fn from(error: log::Error) -> Self {
        Self::Log(error)
    }
}

impl Runner<'_> {
    /// Returns the approximate duration of all missing measurements.
    ///
    /// # Errors
    /// A parameter of the search is invalid.
    pub fn estimated(&self, records: &[Record]) -> Result<Duration, ConfigError> {
        let parameters = self.campaign.parameters(Find::Pdr)?;
        let missing = self.missing(records);
        let (mut searches, mut others) = (0, 0);
        for (unit, finds) in &missing {
            for find in finds {
                let of = match find {
                    Find::Pdr | Find::Ndr => &mut searches,
                    Find::Mrr | Find::Curve | Find::Latency => &mut others,
                };
                *of += self.trials(unit.point, *find);
            }
        }
        let ceilings = self.ceilings(records).len();
        let set_ups = (missing.len() + ceilings) as u32;
        Ok(plan::estimated(parameters.trial(), searches)
            + plan::estimated(
                parameters.duration_sum(),
                others + ceilings * CEILING_TRIALS,
            )
            + plan::SET_UP * set_ups)
    }

    /// Returns the approximate number of trials of a measurement.
    fn trials(&self, point: &Point, find: Find) -> usize {
        if let Some(rates) = self.named_rates(point, find) {
            return rates.len();
        }
        // Parsing has checked the file.
        let parameters = self.campaign.parameters(find);
        plan::trials(find, parameters.map_or(1, |it| it.trials()))
    }

    fn group(&self, point: &Point) -> Option<&Group> {
        let mut groups = self.campaign.groups.iter();
        groups.find(|group| group.name.value == point.group)
    }

    fn named_rates(&self, point: &Point, find: Find) -> Option<&[Spanned<f64>]> {
        self.group(point)?.named_rates(find)
    }

    /// Makes the missing measurements until all are done or `interrupted` is set. Returns true if
    /// all have been tried.
    ///
    /// # Errors
    /// The folder cannot be written. Failures of measurements are recorded in the log.
    pub fn run(&self, log: &mut Log, progress: &mut dyn Progress) -> Result<bool, Error> {
        let begin = self.begin();
        let otherwise = begun(log).map_or_else(Vec::new, |before| before.differences(&begin));
        if !otherwise.is_empty() {
            return Err(Error::Otherwise(otherwise));
        }
        let missing = self.missing(&log.records);
        let ceilings = self.ceilings(&log.records);
        let finished = log.records.last() == Some(&Record::End) || !self.only.is_empty();
        if finished && missing.is_empty() && ceilings.is_empty() {
            return Ok(true);
        }
        let all_tried = log.records.contains(&Record::End);
        log.add(Record::Begin(Box::new(begin)))?;
        let trials = missing.iter().flat_map(|(unit, finds)| {
            let finds = finds.iter();
            finds.map(|find| self.trials(unit.point, *find))
        });
        progress.plan(trials.sum::<usize>() + ceilings.len());
        match self.measure(&ceilings, &missing, log, progress) {
            Ok(()) => {
                // A partial run completes the campaign if all other points were tried before.
                let all = Self { only: &[], ..*self };
                if self.only.is_empty()
                    || all_tried
                    || (all.missing(&log.records).is_empty()
                        && all.ceilings(&log.records).is_empty())
                {
                    log.add(Record::End)?;
                }
                Ok(true)
            }
            Err(Stop::Interrupted) => Ok(false),
            Err(Stop::Log(error)) => Err(error.into()),
        }
    }

    fn measure(
        &self,
        ceilings: &[&Case],
        missing: &[(Unit, Vec<Find>)],
        log: &mut Log,
        progress: &mut dyn Progress,
    ) -> Result<(), Stop> {
        for case in ceilings {
            progress.step(&format!("generator to sink: {case}"));
            self.ceiling(case, log)?;
        }
        for (unit, finds) in missing {
            self.unit(*unit, finds, log, progress)?;
        }
        Ok(())
    }

    /// Measures the ceiling of generator and sink: the best of several trials, since disturbances
    /// only lower it.
    fn ceiling(&self, case: &Case, log: &mut Log) -> Result<(), Stop> {
        self.check()?;
        let duration = self.trial_length();
        let measured = self.engine(CEILING_ENGINE).map(|engine| {
            let mut standing = engine.set_up(case)?;
            let mut best = standing.trial(Load::Maximum, duration, false)?;
            for _ in 1..CEILING_TRIALS {
                let trial = standing.trial(Load::Maximum, duration, false)?;
                if trial.received_rate() > best.received_rate() {
                    best = trial;
                }
            }
            Ok::<_, sidestep_testkit::Error>(best)
        });
        let point = Point {
            group: String::new(),
            case: case.clone(),
            engine: CEILING_ENGINE.into(),
        };
        match measured {
            Some(Ok(trial)) => log.add(Record::Ceiling {
                case: case.clone(),
                trial,
            })?,
            Some(Err(error)) => self.failed(log, (&point, 0, None), &error, Vec::new())?,
            None => {}
        }
        Ok(())
    }

    /// Makes all missing measurements of a point in one run, with one setup.
    fn unit(
        &self,
        unit: Unit,
        finds: &[Find],
        log: &mut Log,
        progress: &mut dyn Progress,
    ) -> Result<(), Stop> {
        self.check()?;
        let Unit { point, run } = unit;
        let name = format!("{} {}, run {}", point.engine, point.case, run + 1);
        let Some(engine) = self.engine(&point.engine) else {
            return Ok(());
        };
        let planned: usize = finds.iter().map(|find| self.trials(point, *find)).sum();
        let standing = engine.set_up(&point.case);
        let mut standing = match standing {
            Ok(standing) => standing,
            Err(error) => {
                progress.pass(planned);
                return self.failed(log, (point, run, None), &error, Vec::new());
            }
        };
        // All runs of a point count packets at the same hook.
        if let Some(sink) = sink_before(log, point).filter(|sink| standing.sink() != Some(*sink))
            && let Err(error) = standing.count_at(sink)
        {
            progress.pass(planned);
            return self.failed(log, (point, run, None), &error, Vec::new());
        }
        for &find in finds {
            let mut left = self.trials(point, find);
            if self.has_no_shares(&log.records, unit, find) {
                progress.pass(left);
                continue;
            }
            let mut watch = || {
                if left > 0 {
                    left -= 1;
                    progress.step(&name);
                }
            };
            let (at, begun) = (SystemTime::now(), Instant::now());
            let sink = standing.sink();
            let before = self.ticks();
            let mut trials = Vec::new();
            let mut of = Trials {
                standing: standing.as_mut(),
                made: &mut trials,
                watch: &mut watch,
                repeats: Repeats::default(),
            };
            let outcome = self.find(unit, find, &mut of, &log.records);
            let disturbed = before.map(|_| of.repeats.disturbed);
            progress.pass(left);
            match outcome {
                Ok(found) => log.add(Record::Measured(Box::new(Measured {
                    point: point.clone(),
                    run,
                    find,
                    at: humantime::format_rfc3339_seconds(at).to_string(),
                    seconds: begun.elapsed().as_secs_f64(),
                    sink,
                    stolen: before.and_then(|before| Some(self.ticks()?.stolen_since(before))),
                    disturbed,
                    found,
                    trials,
                })))?,
                // The other metrics can still be measured.
                Err(why) => self.failed(log, (point, run, Some(find)), &why, trials)?,
            }
        }
        Ok(())
    }

    /// Measures one metric. Returns the result of a search, or `None` if the trials contain the
    /// result.
    fn find(
        &self,
        unit: Unit,
        find: Find,
        of: &mut Trials,
        records: &[Record],
    ) -> Result<Option<Found>, String> {
        let mut trial = |duration: Duration, load, latency| {
            (of.watch)();
            loop {
                if self.interrupted.load(Ordering::Acquire) {
                    return Err(TrialError::Interrupted);
                }
                let before = self.ticks();
                let trial = of.standing.trial(load, duration, latency);
                let trial = trial.map_err(TrialError::Lab)?;
                let stolen = before.and_then(|before| Some(self.ticks()?.stolen_since(before)));
                if stolen.is_some_and(|stolen| of.repeats.repeat(stolen, duration)) {
                    continue;
                }
                of.made.push(trial.clone());
                return Ok(trial);
            }
        };
        let length = self.trial_length();
        match find {
            Find::Pdr | Find::Ndr => {
                let parameters = self
                    .campaign
                    .parameters(find)
                    .map_err(|error| error.to_string())?;
                let searched =
                    search::search(&parameters, |duration, load| trial(duration, load, false));
                return searched.map(Some).map_err(|error| error.to_string());
            }
            Find::Mrr => {
                trial(length, Load::Maximum, false).map_err(|error| error.to_string())?;
            }
            Find::Curve | Find::Latency => {
                for rate in self.rates(unit, find, records)? {
                    let latency = find == Find::Latency;
                    trial(length, Load::Rate(rate), latency).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(None)
    }

    /// Returns the sending rates for a curve or for latencies, in packets per second.
    fn rates(&self, unit: Unit, find: Find, records: &[Record]) -> Result<Vec<f64>, String> {
        if let Some(rates) = self.named_rates(unit.point, find) {
            return Ok(rates.iter().map(|rate| rate.value).collect());
        }
        let pdr =
            pdr(records, unit).ok_or("its PDR is unknown, so shares of it cannot be measured")?;
        let shares = match find {
            Find::Latency => &LATENCY[..],
            _ => &CURVE[..],
        };
        Ok(shares.iter().map(|share| pdr.rate * share).collect())
    }

    /// Records a failed measurement and its trials. An error after an interrupt is not a failure.
    fn failed(
        &self,
        log: &mut Log,
        (point, run, find): (&Point, u32, Option<Find>),
        why: &dyn fmt::Display,
        trials: Vec<Trial>,
    ) -> Result<(), Stop> {
        self.check()?;
        log.add(Record::Failed(Failed {
            point: point.clone(),
            run,
            find,
            why: why.to_string(),
            trials,
        }))?;
        Ok(())
    }

    /// Returns the CPU time of this machine. `None` on a testbed, where other machines send and
    /// forward.
    fn ticks(&self) -> Option<Ticks> {
        let here = self.campaign.testbed.is_none();
        here.then(self.ticks).flatten()
    }

    fn check(&self) -> Result<(), Stop> {
        if self.interrupted.load(Ordering::Acquire) {
            return Err(Stop::Interrupted);
        }
        Ok(())
    }

    /// Returns the measurements of the plan that the folder does not contain.
    fn missing(&self, records: &[Record]) -> Vec<(Unit<'_>, Vec<Find>)> {
        let measured = records.iter().filter_map(|record| match record {
            Record::Measured(measured) => Some((&measured.point, measured.run, measured.find)),
            _ => None,
        });
        let measured: HashSet<_> = measured.collect();
        let units = self
            .plan
            .units(self.campaign)
            .into_iter()
            .filter_map(|unit| {
                if !self.is_chosen(unit.point) {
                    return None;
                }
                let mut finds = self.campaign.finds(self.group(unit.point)?);
                finds.retain(|find| {
                    !measured.contains(&(unit.point, unit.run, *find))
                        && !self.has_no_shares(records, unit, *find)
                });
                (!finds.is_empty()).then_some((unit, finds))
            });
        units.collect()
    }

    /// Whether a metric needs shares of a PDR that is 0. Such a measurement is impossible, and the
    /// report shows this next to the PDR.
    fn has_no_shares(&self, records: &[Record], unit: Unit, find: Find) -> bool {
        let group = self.group(unit.point);
        let of_pdr = group.is_some_and(|group| group.is_of_pdr(find));
        of_pdr && pdr(records, unit).is_some_and(|found| found.rate <= 0.0)
    }

    fn ceilings(&self, records: &[Record]) -> Vec<&Case> {
        let measured = |wanted: &&Case| {
            records
                .iter()
                .any(|record| matches!(record, Record::Ceiling { case, .. } if case == *wanted))
        };
        let points = &self.plan.points;
        let chosen = |wanted: &&Case| {
            self.only.is_empty()
                || points
                    .iter()
                    .any(|point| self.is_chosen(point) && plan::ceiling(&point.case) == **wanted)
        };
        let cases = self.plan.ceilings.iter();
        cases
            .filter(|case| chosen(case) && !measured(case))
            .collect()
    }

    /// Whether this run includes a point.
    pub fn is_chosen(&self, point: &Point) -> bool {
        self.only.is_empty() || self.only.iter().any(|pattern| pattern.fits(point))
    }

    fn begin(&self) -> Begin {
        let points = &self.plan.points;
        let recipes = points.iter().map(|point| {
            self.engine(&point.engine)
                .map_or_else(Vec::new, |engine| engine.recipe(&point.case))
        });
        let named =
            |name: &str| name == CEILING_ENGINE || points.iter().any(|point| point.engine == name);
        let engines = self.engines.iter().filter(|engine| named(engine.name()));
        let facts = engines.map(|engine| (engine.name().to_owned(), engine.facts()));
        Begin {
            schema: log::SCHEMA,
            at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            git: crate::GIT.map(Into::into),
            program: crate::program(),
            command: std::env::args().collect(),
            quick: self.quick,
            machine: machine::this(),
            engines: facts.collect(),
            plan: self.plan.clone(),
            recipes: recipes.collect(),
        }
    }

    fn engine(&self, name: &str) -> Option<&dyn Engine> {
        let mut all = self.engines.iter();
        all.find(|engine| engine.name() == name).map(AsRef::as_ref)
    }

    /// Length of a single trial: the total of the trials that judge a rate.
    fn trial_length(&self) -> Duration {
        // Parsing has checked the file.
        self.campaign
            .parameters(Find::Pdr)
            .map_or(Duration::from_secs(1), |it| it.duration_sum())
    }
}

/// Runs the trials of a measurement.
struct Trials<'a> {
    /// The engine, set up for the case.
    standing: &'a mut dyn Standing,
    /// Completed trials.
    made: &'a mut Vec<Trial>,
    /// Called before each trial.
    watch: &'a mut dyn FnMut(),
    /// Repetitions of trials that the host disturbed.
    repeats: Repeats,
}

#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Lab(sidestep_testkit::Error),
}

/// Returns the first start of the campaign in this folder.
fn begun(log: &Log) -> Option<&Begin> {
    log.records.iter().find_map(|record| match record {
        Record::Begin(begin) => Some(begin.as_ref()),
        _ => None,
    })
}

/// Returns the hook that counted packets in earlier runs of a point.
fn sink_before(log: &Log, point: &Point) -> Option<Hook> {
    log.records.iter().find_map(|record| match record {
        Record::Measured(measured) if measured.point == *point => measured.sink,
        _ => None,
    })
}

/// Number of trials of a ceiling measurement.
const CEILING_TRIALS: usize = 5;

/// Returns the PDR of the same run, which is measured first.
fn pdr(records: &[Record], Unit { point, run }: Unit) -> Option<Found> {
    records.iter().rev().find_map(|record| match record {
        Record::Measured(measured)
            if (&measured.point, measured.run, measured.find) == (point, run, Find::Pdr) =>
        {
            measured.found
        }
        _ => None,
    })
}
