//! The YAML file of a campaign: its keys and the allowed values. Unknown keys, values out of range
//! and repeated words are errors with line and column. The engines check the plan later
//! ([`super::plan`]).

use crate::engine::exec::Commands;
use crate::engine::testbed::Testbed;
use crate::engine::{Case, Flows, Placement, Size};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;
use sidestep_model::config::yaml::{self, wrong};
use sidestep_model::error::ConfigError;
use sidestep_testkit::traffic::Receiver;

use super::search::Search;
use super::word::{FlowsWord, SizeWord};
use crate::search::{Parameters, RATE_MAX};

/// The file that `sidestep-bench init` writes, with every key explained.
pub const TEMPLATE: &str = include_str!("template.yaml");

/// Version of the campaign file that this program reads.
pub const SCHEMA: u32 = 1;

/// A campaign: engines, cases, metrics and number of runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    schema: Spanned<u32>,
    /// Title of the report.
    pub title: String,
    /// Remarks for the reader. May be empty.
    #[serde(default)]
    pub note: String,
    /// Engines of all groups without their own list.
    pub engines: Vec<Spanned<String>>,
    /// Default metrics of the groups.
    #[serde(default = "pdr")]
    pub find: Vec<Spanned<Find>>,
    #[serde(default)]
    search: Search,
    #[serde(default = "ten")]
    runs: Spanned<u32>,
    /// Order of the measurements.
    #[serde(default)]
    pub order: Order,
    /// CPUs of generator, system and sink.
    pub cpus: Option<Spanned<Placement>>,
    /// Machines of a testbed; `None` if only this machine takes part.
    pub testbed: Option<Spanned<Testbed>>,
    /// Engines that commands drive, in addition to the built-in ones.
    #[serde(default)]
    pub commands: Vec<Spanned<Commands>>,
    /// Experiments.
    pub groups: Vec<Group>,
}

/// An experiment: every behavior with every size, number of SIDs, and so on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Unique name of lower-case letters, digits and `-`. File names contain it.
    pub name: Spanned<String>,
    /// Title above the plots; the default is the name.
    pub title: Option<String>,
    /// Remarks for the reader. May be empty.
    #[serde(default)]
    pub note: String,
    /// Engines of this group; the default is the list of the campaign.
    pub engines: Option<Vec<Spanned<String>>>,
    /// Metrics of this group; the default is the list of the campaign.
    pub find: Option<Vec<Spanned<Find>>>,
    /// Names of behaviors.
    pub behaviors: Vec<Spanned<String>>,
    /// Sizes of the packets in bytes.
    #[serde(default = "sixty_four")]
    pub sizes: Vec<Spanned<SizeWord>>,
    /// Numbers of segments, ignored for behaviors without segments. The default is 1, or the
    /// minimum of the behavior.
    pub sids: Option<Vec<Spanned<u32>>>,
    /// Numbers of policy rules before the one that matches.
    #[serde(default = "zero")]
    pub rules: Vec<Spanned<u32>>,
    /// Numbers of routes in addition to the one that matches.
    #[serde(default = "zero")]
    pub routes: Vec<Spanned<u32>>,
    /// Numbers of flows.
    #[serde(default = "one_flow")]
    pub flows: Vec<Spanned<FlowsWord>>,
    /// Sending rates of a curve in packets per second. The default is shares of each engine's own
    /// PDR.
    pub rates: Option<Vec<Spanned<f64>>>,
    /// Numbers of CPUs that send and forward in parallel.
    #[serde(default = "one")]
    pub cores: Vec<Spanned<u32>>,
    /// The behavior that other rates are given relative to (100 %).
    pub baseline: Option<Spanned<String>>,
    /// Published figures.
    #[serde(default)]
    pub published: Vec<Spanned<Published>>,
}

/// A metric of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Find {
    /// The highest rate at which at most a share of beta of the packets is lost.
    Pdr,
    /// The highest rate at which no packet is lost.
    Ndr,
    /// Rate of received packets at the highest load.
    Mrr,
    /// Received rate over the sending rate: up to 1.2 times the PDR, or at the rates that the group
    /// lists.
    Curve,
    /// Latency at 10, 50 and 90 % of the PDR.
    Latency,
}

/// Order of the measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Measure each case of each engine once per run, and then start the next run, so that
    /// disturbances of the machine affect all cases.
    #[default]
    Interleaved,
    /// Measure all runs of an engine's case before the next case.
    Sequential,
}

/// A published figure from other hardware.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Source of the figure.
    pub source: String,
    /// Name of the measured system, as in the source.
    pub engine: String,
    /// Behavior of the figure.
    pub behavior: String,
    /// Size of the figure; any if not given.
    pub size: Option<SizeWord>,
    /// Number of segments of the figure; any if not given.
    pub sids: Option<u32>,
    /// Number of rules of the figure; any if not given.
    pub rules: Option<u32>,
    /// Number of routes of the figure; any if not given.
    pub routes: Option<u32>,
    /// Number of cores of the figure; any if not given.
    pub cores: Option<u32>,
    /// Metric of the figure.
    #[serde(default = "a_pdr")]
    pub find: Find,
    /// Thousands of packets per second.
    pub kpps: Option<f64>,
    /// Percent of the baseline.
    pub percent: Option<f64>,
}

impl Campaign {
    /// Reads a file.
    ///
    /// # Errors
    /// The first error, with its line and column.
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
        let empty = first_empty([
            (
                "engines",
                campaign.engines.is_empty() && any_without(|it| it.engines.is_none()),
            ),
            (
                "find",
                campaign.find.is_empty() && any_without(|it| it.find.is_none()),
            ),
            ("groups", campaign.groups.is_empty()),
        ]);
        if let Some(list) = empty {
            return Err(wrong(&campaign.schema, list, "[]", "at least one"));
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

    /// Refuses sending rates without curves.
    fn check_rates(&self, group: &Group) -> Result<(), ConfigError> {
        let Some(rates) = &group.rates else {
            return Ok(());
        };
        unique(rates, "rate", f64::to_string)?;
        for rate in rates {
            if !(1.0..=RATE_MAX).contains(&rate.value) {
                let allowed = format!("from 1 to {RATE_MAX} packets/s");
                return Err(wrong(rate, "rate", &rate.value.to_string(), &allowed));
            }
        }
        match rates.first() {
            Some(rate) if !self.finds(group).contains(&Find::Curve) => {
                let allowed = "find: curve, the only metric with given rates";
                Err(wrong(rate, "rates of group", &group.name.value, allowed))
            }
            _ => Ok(()),
        }
    }

    /// Refuses several cores where generator, system and sink do not share a CPU.
    fn check_cores(&self, group: &Group) -> Result<(), ConfigError> {
        let Some(cores) = group.cores.iter().find(|cores| cores.value > 1) else {
            return Ok(());
        };
        match self.cpus.as_ref().map(|cpus| &cpus.value) {
            Some(cpus) if !cpus.is_shared() => {
                let allowed = "1: for more, generator, system and sink must share a CPU";
                let found = cores.value.to_string();
                Err(wrong(cores, "cores with these cpus", &found, allowed))
            }
            _ => Ok(()),
        }
    }

    /// Refuses settings that a testbed does not support. They need the built-in generator, its
    /// timestamps or its CPUs.
    fn check_testbed(&self, testbed: &Spanned<Testbed>) -> Result<(), ConfigError> {
        if let Err([what, value, allowed]) = testbed.value.check() {
            return Err(wrong(testbed, what, &value, &allowed));
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
            let (found, allowed) = (
                "TRex counts packets but does not time them",
                "pdr, ndr, mrr, curve",
            );
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
                let allowed = "a number: TRex sends flows round robin";
                return Err(wrong(flows, "flows on a testbed", &found, allowed));
            }
        }
        Ok(())
    }

    /// Returns the number of runs per case.
    pub fn runs(&self) -> u32 {
        self.runs.value
    }

    /// Returns the campaign for `--quick`: one run, short trials and a wide interval. It only
    /// checks that the setup works; its rates are inaccurate.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.runs.value = 1;
        self.search.hurry();
        self
    }

    /// Returns the parameters of a search for this metric. An NDR is a PDR whose beta is 0.
    ///
    /// # Errors
    /// A value is out of range. [`Self::parse`] has already checked this.
    pub fn parameters(&self, find: Find) -> Result<Parameters, ConfigError> {
        self.search.parameters(find)
    }

    /// Returns the metrics of a group.
    pub fn finds<'a>(&'a self, group: &'a Group) -> Vec<Find> {
        let chosen = group.find.as_ref().unwrap_or(&self.find);
        let mut finds: Vec<Find> = chosen.iter().map(|find| find.value).collect();
        if finds.iter().any(|find| group.is_of_pdr(*find)) {
            finds.push(Find::Pdr);
        }
        finds.sort_unstable();
        finds.dedup();
        finds
    }
}

impl Group {
    /// Returns the title above the plots.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name.value)
    }

    /// Returns the sending rates of a metric in packets per second, if the file lists them.
    pub fn named_rates(&self, find: Find) -> Option<&[Spanned<f64>]> {
        self.rates.as_deref().filter(|_| find == Find::Curve)
    }

    /// Whether a metric is measured at shares of the PDR.
    pub fn is_of_pdr(&self, find: Find) -> bool {
        matches!(find, Find::Curve | Find::Latency) && self.named_rates(find).is_none()
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
        let empty = first_empty([
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
        ]);
        if let Some(list) = empty {
            let what = format!("{list}: [] in group");
            return Err(wrong(&self.name, what, name, "at least one"));
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
            Published::check(published)?;
        }
        Ok(())
    }
}

impl Published {
    fn check(published: &Spanned<Self>) -> Result<(), ConfigError> {
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
        Ok(())
    }

    /// Whether the figure applies to this case.
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

/// Returns the name of the first empty list.
fn first_empty<const N: usize>(lists: [(&'static str, bool); N]) -> Option<&'static str> {
    let empty = lists.into_iter().find(|(_, is_empty)| *is_empty);
    empty.map(|(list, _)| list)
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
