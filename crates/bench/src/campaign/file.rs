//! The YAML file of a campaign: its keys, and what values may be. Unknown keys, values out of range and words that occur twice
//! are errors with line and column; what the engines say to it comes later ([`super::plan`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;
use sidestep_lab::engine::exec::Commands;
use sidestep_lab::engine::testbed::Testbed;
use sidestep_lab::engine::{Case, Flows, Placement, Sender, Size};
use sidestep_lab::traffic::Receiver;
use sidestep_model::config::yaml::{self, wrong};
use sidestep_model::error::ConfigError;

use super::word::{FlowsWord, SizeWord};
use crate::search::{self, Parameters, Wrong};

/// What `sidestep bench init` writes: every key, explained.
pub const TEMPLATE: &str = include_str!("template.yaml");

/// Version of the campaign file that this program reads.
pub const SCHEMA: u32 = 1;

/// A campaign: what is measured, of what, and how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    schema: Spanned<u32>,
    /// Above the report.
    pub title: String,
    /// What has to be known to read it; may be empty.
    #[serde(default)]
    pub note: String,
    /// Engines of all groups that name none.
    pub engines: Vec<Spanned<String>>,
    /// What all groups find that do not say it.
    #[serde(default = "pdr")]
    pub find: Vec<Spanned<Find>>,
    #[serde(default)]
    search: Search,
    #[serde(default = "ten")]
    runs: Spanned<u32>,
    /// What follows what.
    #[serde(default)]
    pub order: Order,
    /// What sends.
    #[serde(default = "live_frames")]
    pub generator: Spanned<Sender>,
    /// Which CPU does what.
    pub cpus: Option<Spanned<Placement>>,
    /// The machines that take part, where it is not this one alone.
    pub testbed: Option<Spanned<Testbed>>,
    /// Engines that are driven by commands, beside those that are known.
    #[serde(default)]
    pub commands: Vec<Spanned<Commands>>,
    /// Experiments.
    pub groups: Vec<Group>,
}

/// An experiment: every behavior with every size, number of SIDs, and so on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Unique, of lower-case letters, digits and `-`: part of the names of files.
    pub name: Spanned<String>,
    /// Above its pictures; its name if it has none.
    pub title: Option<String>,
    /// What to know of it.
    #[serde(default)]
    pub note: String,
    /// Instead of the campaign's.
    pub engines: Option<Vec<Spanned<String>>>,
    /// Instead of the campaign's.
    pub find: Option<Vec<Spanned<Find>>>,
    /// As engines know them.
    pub behaviors: Vec<Spanned<String>>,
    /// Bytes of the packets.
    #[serde(default = "sixty_four")]
    pub sizes: Vec<Spanned<SizeWord>>,
    /// Segments; a behavior that has none takes no part in this. Without them 1, or the least that a behavior takes.
    pub sids: Option<Vec<Spanned<u32>>>,
    /// Policy rules before the one that matches.
    #[serde(default = "zero")]
    pub rules: Vec<Spanned<u32>>,
    /// Routes beside the one that matches.
    #[serde(default = "zero")]
    pub routes: Vec<Spanned<u32>>,
    /// Flows.
    #[serde(default = "one_flow")]
    pub flows: Vec<Spanned<FlowsWord>>,
    /// Sending rates of a curve, packets per second; without them shares of each engine's own PDR.
    pub rates: Option<Vec<Spanned<f64>>>,
    /// CPUs that send and forward at once.
    #[serde(default = "one")]
    pub cores: Vec<Spanned<u32>>,
    /// The behavior whose rate is 100 %.
    pub baseline: Option<Spanned<String>>,
    /// What others measured.
    #[serde(default)]
    pub published: Vec<Spanned<Published>>,
}

/// What is measured of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Find {
    /// The highest rate at which no more than beta of the packets is lost.
    Pdr,
    /// The highest rate at which none is lost.
    Ndr,
    /// What comes through at the highest load.
    Mrr,
    /// What comes through over the sending rate: up to 1.2 times the PDR, or at the rates that the group names.
    Curve,
    /// How long packets take at 10, 50 and 90 % of the PDR.
    Latency,
}

/// What follows what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Every case of every engine once, then all of them again: what the machine does meanwhile hits all alike.
    #[default]
    Interleaved,
    /// All runs of a case of an engine, then the next.
    Sequential,
}

/// A figure that somebody published, of other hardware.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where it stands.
    pub source: String,
    /// What was measured, in the source's words.
    pub engine: String,
    /// The behavior it belongs to.
    pub behavior: String,
    /// Only with this size.
    pub size: Option<SizeWord>,
    /// Only with so many segments.
    pub sids: Option<u32>,
    /// Only with so many rules.
    pub rules: Option<u32>,
    /// Only with so many routes.
    pub routes: Option<u32>,
    /// Only with so many cores.
    pub cores: Option<u32>,
    /// Which rate it is.
    #[serde(default = "a_pdr")]
    pub find: Find,
    /// Thousands of packets per second.
    pub kpps: Option<f64>,
    /// Percent of the baseline.
    pub percent: Option<f64>,
}

/// The search's parameters as a file has them; rates in packets per second.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Search {
    start: Option<Spanned<f64>>,
    line: Option<Spanned<f64>>,
    beta: Option<Spanned<f64>>,
    epsilon: Option<Spanned<f64>>,
    trial: Option<Spanned<String>>,
    trials: Option<Spanned<u32>>,
    exceed: Option<Spanned<f64>>,
    #[serde(skip)]
    quick: bool,
}

impl Campaign {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let campaign: Self = yaml::parse_whole(text)?;
        if campaign.schema.value != SCHEMA {
            let found = campaign.schema.value.to_string();
            return Err(wrong(
                &campaign.schema,
                "schema",
                &found,
                &SCHEMA.to_string(),
            ));
        }
        within(&campaign.runs, "runs", 1, RUNS_MAX)?;
        campaign.parameters(Find::Pdr)?;
        unique(&campaign.engines, "engine", Clone::clone)?;
        unique(&campaign.find, "measurement", |find| format!("{find:?}"))?;
        unique(&campaign.commands, "engine", |commands| {
            commands.name.clone()
        })?;
        let any_without = |lacks: fn(&Group) -> bool| campaign.groups.iter().any(lacks);
        for (list, is_empty) in [
            (
                "engines",
                campaign.engines.is_empty() && any_without(|it| it.engines.is_none()),
            ),
            (
                "find",
                campaign.find.is_empty() && any_without(|it| it.find.is_none()),
            ),
            ("groups", campaign.groups.is_empty()),
        ] {
            if is_empty {
                return Err(wrong(&campaign.schema, list, "[]", "at least one"));
            }
        }
        let names: Vec<_> = campaign
            .groups
            .iter()
            .map(|group| group.name.clone())
            .collect();
        unique(&names, "group", Clone::clone)?;
        for group in &campaign.groups {
            group.check()?;
            campaign.check_rates(group)?;
            campaign.check_cores(group)?;
        }
        if let Some(testbed) = &campaign.testbed {
            campaign.check_testbed(testbed)?;
        }
        Ok(campaign)
    }

    /// Sending rates are of curves.
    fn check_rates(&self, group: &Group) -> Result<(), ConfigError> {
        let Some(rates) = &group.rates else {
            return Ok(());
        };
        unique(rates, "rate", f64::to_string)?;
        for rate in rates {
            if !(1.0..=search::RATE_MAX).contains(&rate.value) {
                let allowed = format!("from 1 to {} packets/s", search::RATE_MAX);
                return Err(wrong(rate, "rate", &rate.value.to_string(), &allowed));
            }
        }
        match rates.first() {
            Some(rate) if !self.finds(group).contains(&Find::Curve) => {
                let allowed = "find: curve, which alone is measured at given rates";
                Err(wrong(rate, "rates of group", &group.name.value, allowed))
            }
            _ => Ok(()),
        }
    }

    /// What does not go with several cores: a socket of AF_XDP, which sends from one CPU, and CPUs that generator, system and sink do
    /// not share.
    fn check_cores(&self, group: &Group) -> Result<(), ConfigError> {
        let Some(cores) = group.cores.iter().find(|cores| cores.value > 1) else {
            return Ok(());
        };
        let found = cores.value.to_string();
        let refused = |what: &str, allowed: &str| Err(wrong(cores, what, &found, allowed));
        if self.generator.value == Sender::AfXdp {
            return refused("cores with generator af-xdp", "1: a socket sends from one");
        }
        match self.cpus.as_ref().map(|cpus| &cpus.value) {
            Some(it) if (it.generator, it.system) != (it.system, it.sink) => {
                let allowed = "1: generator, system and sink have to share a CPU for more";
                refused("cores with these cpus", allowed)
            }
            _ => Ok(()),
        }
    }

    /// What a testbed has not: our own generator, its stamps and its CPUs.
    fn check_testbed(&self, testbed: &Spanned<Testbed>) -> Result<(), ConfigError> {
        if let Err([what, value, allowed]) = testbed.value.check() {
            return Err(wrong(testbed, what, &value, &allowed));
        }
        if self.generator.value != Sender::default() {
            let allowed = "no generator: TRex sends";
            return Err(wrong(
                &self.generator,
                "generator on a testbed",
                "",
                allowed,
            ));
        }
        if let Some(cpus) = &self.cpus {
            let allowed = "no cpus: each machine uses its own";
            return Err(wrong(cpus, "cpus on a testbed", "", allowed));
        }
        let finds = self
            .groups
            .iter()
            .flat_map(|group| group.find.iter().flatten());
        let mut finds = self.find.iter().chain(finds);
        if let Some(latency) = finds.find(|find| find.value == Find::Latency) {
            let (found, allowed) = ("TRex counts packets and times none", "pdr, ndr, mrr, curve");
            return Err(wrong(
                latency,
                format!("find on a testbed ({found})"),
                "latency",
                allowed,
            ));
        }
        for group in &self.groups {
            if let Some(cores) = group.cores.iter().find(|cores| cores.value > 1) {
                let found = cores.value.to_string();
                return Err(wrong(
                    cores,
                    "cores on a testbed",
                    &found,
                    "1: the system has its own",
                ));
            }
            let by_zipf = |flows: &&Spanned<FlowsWord>| matches!(flows.value.0, Flows::Zipf(_));
            if let Some(flows) = group.flows.iter().find(by_zipf) {
                let found = format!("zipf {}", flows.value.0.count());
                let allowed = "a number: TRex sends each flow in its turn";
                return Err(wrong(flows, "flows on a testbed", &found, allowed));
            }
        }
        Ok(())
    }

    /// How often each case is measured.
    pub fn runs(&self) -> u32 {
        self.runs.value
    }

    /// The same in a hurry: one run, short trials, a wide interval. Whether it works, not how fast.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.runs.value = 1;
        self.search.quick = true;
        self
    }

    /// What a search for this is given. An NDR is a PDR whose beta is 0.
    ///
    /// # Errors
    /// A value is out of range; [`Self::parse`] has looked.
    pub fn parameters(&self, find: Find) -> Result<Parameters, ConfigError> {
        self.search.parameters(find)
    }

    /// What a group finds.
    pub fn finds<'a>(&'a self, group: &'a Group) -> Vec<Find> {
        let chosen = group.find.as_ref().unwrap_or(&self.find);
        let mut finds: Vec<Find> = chosen.iter().map(|find| find.value).collect();
        // What is measured at shares of it.
        let of_pdr = |find: &Find| match find {
            Find::Curve => group.rates.is_none(),
            Find::Latency => true,
            Find::Pdr | Find::Ndr | Find::Mrr => false,
        };
        if finds.iter().any(of_pdr) {
            finds.push(Find::Pdr);
        }
        finds.sort_unstable();
        finds.dedup();
        finds
    }
}

impl Group {
    /// Above its pictures.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name.value)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let name = &self.name.value;
        let plain =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(wrong(
                &self.name,
                "name of a group",
                name,
                "lower-case letters, digits and -",
            ));
        }
        for (list, is_empty) in [
            ("behaviors", self.behaviors.is_empty()),
            ("sizes", self.sizes.is_empty()),
            ("sids", self.sids.as_ref().is_some_and(Vec::is_empty)),
            ("rules", self.rules.is_empty()),
            ("routes", self.routes.is_empty()),
            ("flows", self.flows.is_empty()),
            ("rates", self.rates.as_ref().is_some_and(Vec::is_empty)),
            ("cores", self.cores.is_empty()),
            ("engines", self.engines.as_ref().is_some_and(Vec::is_empty)),
            ("find", self.find.as_ref().is_some_and(Vec::is_empty)),
        ] {
            if is_empty {
                return Err(wrong(
                    &self.name,
                    format!("{list}: [] in group"),
                    name,
                    "at least one",
                ));
            }
        }
        unique(&self.behaviors, "behavior", Clone::clone)?;
        unique(&self.sizes, "size", |size| format!("{:?}", size.0))?;
        let sids = self.sids.as_deref().unwrap_or_default();
        unique(sids, "number of SIDs", u32::to_string)?;
        unique(&self.rules, "number of rules", u32::to_string)?;
        unique(&self.routes, "number of routes", u32::to_string)?;
        unique(&self.flows, "flows", |flows| format!("{:?}", flows.0))?;
        unique(&self.cores, "number of cores", u32::to_string)?;
        for cores in &self.cores {
            within(cores, "cores", 1, Receiver::SOURCES_MAX.into())?;
        }
        unique(
            self.engines.as_deref().unwrap_or_default(),
            "engine",
            Clone::clone,
        )?;
        let finds = self.find.as_deref().unwrap_or_default();
        unique(finds, "measurement", |find| format!("{find:?}"))?;
        if let Some(baseline) = &self.baseline
            && !self
                .behaviors
                .iter()
                .any(|behavior| behavior.value == baseline.value)
        {
            return Err(wrong(
                baseline,
                "baseline",
                &baseline.value,
                "a behavior of the group",
            ));
        }
        for published in &self.published {
            let figure = &published.value;
            if figure.kpps.is_none() && figure.percent.is_none() {
                return Err(wrong(
                    published,
                    "published figure without a value",
                    "",
                    "kpps, percent or both",
                ));
            }
            let values = [figure.kpps, figure.percent].into_iter().flatten();
            if let Some(value) = values.into_iter().find(|it| !(it.is_finite() && *it > 0.0)) {
                return Err(wrong(
                    published,
                    "published figure",
                    &value.to_string(),
                    "above 0",
                ));
            }
            if !matches!(figure.find, Find::Pdr | Find::Ndr | Find::Mrr) {
                return Err(wrong(
                    published,
                    "published figure",
                    "",
                    "find: pdr, ndr or mrr",
                ));
            }
        }
        Ok(())
    }
}

impl Search {
    fn parameters(&self, find: Find) -> Result<Parameters, ConfigError> {
        let number =
            |given: &Option<Spanned<f64>>, default| given.as_ref().map_or(default, |it| it.value);
        let trial = match &self.trial {
            None => Duration::from_secs(1),
            Some(text) => humantime::parse_duration(&text.value)
                .map_err(|_| wrong(text, "trial", &text.value, "a time such as 500ms or 2s"))?,
        };
        let beta = match find {
            Find::Ndr => 0.0,
            _ => number(&self.beta, 0.005),
        };
        let line = self.line.as_ref().map(|line| line.value);
        let trials = self.trials.as_ref().map_or(1, |trials| trials.value);
        let start = number(&self.start, START);
        let mut exceed = number(&self.exceed, 0.0);
        let (epsilon, trial, trials) = if self.quick {
            let epsilon = number(&self.epsilon, EPSILON).max(0.05);
            // A trial that tells nothing of the start rate is no trial.
            let telling = Duration::try_from_secs_f64(search::packets_min(beta) / start);
            let quick = telling.unwrap_or(trial).max(QUICK);
            exceed = if exceed > 0.0 { 0.5 } else { exceed };
            (epsilon, trial.min(quick), trials.min(QUICK_TRIALS))
        } else {
            (number(&self.epsilon, EPSILON), trial, trials)
        };
        let parameters = Parameters::new(start, line, beta, epsilon, trial)
            .and_then(|it| it.judged_by(trials, exceed));
        parameters.map_err(|why| {
            let text = why.to_string();
            let (name, allowed) = text.split_once(": ").unwrap_or((&text, ""));
            let of_number = |at: &Option<Spanned<f64>>| {
                let at = at.as_ref()?;
                Some(wrong(at, name, &at.value.to_string(), allowed))
            };
            let of_trial = |found: Option<&str>| {
                let at = self.trial.as_ref()?;
                Some(wrong(at, name, found.unwrap_or(&at.value), allowed))
            };
            let of_trials = || {
                let at = self.trials.as_ref()?;
                Some(wrong(at, name, &at.value.to_string(), allowed))
            };
            let error = match why {
                // The line rate may be below the start rate that nobody gave.
                Wrong::Start => of_number(&self.start).or_else(|| {
                    let at = self.line.as_ref()?;
                    Some(wrong(at, name, &START.to_string(), allowed))
                }),
                Wrong::Line => of_number(&self.line),
                Wrong::Beta => of_number(&self.beta),
                Wrong::Epsilon => of_number(&self.epsilon),
                Wrong::Exceed => of_number(&self.exceed),
                Wrong::Trial => of_trial(None),
                Wrong::Short => {
                    let length = humantime::format_duration(trial);
                    let found = format!("{length} at {start} packets/s");
                    let others = || of_number(&self.start).or_else(|| of_number(&self.beta));
                    of_trial(Some(&found)).or_else(others)
                }
                Wrong::Trials => of_trials(),
            };
            error.unwrap_or_else(|| unreachable!("what nobody gave is allowed"))
        })
    }
}

impl Published {
    /// Whether it is of this case.
    pub fn is_of(&self, case: &Case) -> bool {
        let same = |wanted: Option<u32>, is: u32| wanted.is_none_or(|wanted| wanted == is);
        self.behavior == case.behavior
            && self.size.is_none_or(|size| size.0 == case.size)
            && same(self.sids, case.sids)
            && same(self.rules, case.rules)
            && same(self.routes, case.routes)
            && same(self.cores, case.cores)
    }
}

fn within(at: &Spanned<u32>, name: &str, least: u32, most: u32) -> Result<(), ConfigError> {
    if (least..=most).contains(&at.value) {
        return Ok(());
    }
    let expected = format!("{least} to {most}");
    Err(wrong(at, name, &at.value.to_string(), &expected))
}

fn unique<T>(
    list: &[Spanned<T>],
    noun: &str,
    word: impl Fn(&T) -> String,
) -> Result<(), ConfigError> {
    for (index, item) in list.iter().enumerate() {
        let name = word(&item.value);
        if list[..index]
            .iter()
            .any(|before| word(&before.value) == name)
        {
            return Err(wrong(item, format!("{noun} twice"), &name, ""));
        }
    }
    Ok(())
}

fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(
        value,
        serde_saphyr::Location::UNKNOWN,
        serde_saphyr::Location::UNKNOWN,
    )
}

fn pdr() -> Vec<Spanned<Find>> {
    vec![spanned(Find::Pdr)]
}

fn a_pdr() -> Find {
    Find::Pdr
}

fn live_frames() -> Spanned<Sender> {
    spanned(Sender::LiveFrames)
}

fn ten() -> Spanned<u32> {
    spanned(10)
}

fn sixty_four() -> Vec<Spanned<SizeWord>> {
    vec![spanned(SizeWord(Size::Bytes(64)))]
}

fn zero() -> Vec<Spanned<u32>> {
    vec![spanned(0)]
}

fn one() -> Vec<Spanned<u32>> {
    vec![spanned(1)]
}

fn one_flow() -> Vec<Spanned<FlowsWord>> {
    vec![spanned(FlowsWord(Flows::Uniform(1)))]
}

/// LIMIT: runs of a case.
const RUNS_MAX: u32 = 1000;

/// Where nothing is said: packets per second, and a share of the rate.
const START: f64 = 10_000.0;
const EPSILON: f64 = 0.01;

/// The longest trial of a run in a hurry.
const QUICK: Duration = Duration::from_millis(50);

/// The most trials that judge a rate in a run in a hurry.
const QUICK_TRIALS: u32 = 3;
