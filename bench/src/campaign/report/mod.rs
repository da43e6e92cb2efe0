//! Builds a [`Report`] from a campaign's folder: rates with statistics and published figures,
//! curves over the sending rate, latency, and commands to set up each point by hand.

mod curve;
mod latency;
mod rates;
mod words;

use std::path::{Path, PathBuf};

use crate::engine::Case;
use crate::engine::exec::quoted;
use crate::engine::testbed::{Generator, Testbed};
use sidestep_model::error::ConfigError;
use sidestep_testkit::traffic::Hook;

use super::file::{Campaign, Find, Group, Order};
use super::log::{self, Begin, Failed, Measured, Record};
use super::plan::{self, Point};
use super::repeat::{Disturbed, REPEAT_TIME, STEAL_MAX};
use crate::result::{Cell, Refusal, Report, Section, Table};
use crate::statistics::Summary;

/// Id of the table with the commands that set up each case.
pub const COMMANDS: &str = "commands";

/// A result above this share of the ceiling is limited by generator and sink.
pub const CEILING_SHARE: f64 = 0.8;

/// Reason why a folder has no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be read.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The campaign of the folder is invalid.
    #[error("{}: {why}", path.display())]
    Campaign {
        /// The campaign file.
        path: PathBuf,
        /// Place and problem.
        why: ConfigError,
    },
    /// The campaign has not started.
    #[error("{}: contains no measurements yet", .0.join(log::TRIALS).display())]
    Empty(PathBuf),
}

/// Returns the report of a folder, also of an incomplete campaign.
///
/// # Errors
/// One of its files cannot be read.
pub fn read(folder: &Path) -> Result<Report, Error> {
    let (text, records) = log::read(folder)?;
    let campaign = Campaign::parse(&text).map_err(|why| Error::Campaign {
        path: folder.join(log::CAMPAIGN),
        why,
    })?;
    let quick = records
        .iter()
        .any(|record| matches!(record, Record::Begin(begin) if begin.quick));
    let campaign = if quick { campaign.quick() } else { campaign };
    report(&campaign, &records).ok_or_else(|| Error::Empty(folder.to_path_buf()))
}

/// Returns the report of a campaign. `None` if the campaign has not started.
pub fn report(campaign: &Campaign, records: &[Record]) -> Option<Report> {
    let results = Results::of(campaign, records)?;
    let mut sections: Vec<Section> = Vec::new();
    let mut tables: Vec<Table> = Vec::new();
    for group in &campaign.groups {
        for find in [Find::Pdr, Find::Ndr, Find::Mrr] {
            let wanted = campaign.finds(group).contains(&find);
            let section = wanted
                .then(|| rates::section(&results, group, find))
                .flatten();
            if let Some(section) = section {
                sections.push(section);
                tables.push(rates::table(&results, group, find));
            }
        }
        sections.extend(curve::sections(&results, group));
        sections.extend(latency::sections(&results, group));
        tables.extend(latency::table(&results, group));
    }
    tables.extend(results.ceiling_table());
    tables.extend(results.recipes());
    let begin = results.last;
    Some(Report {
        schema: crate::result::SCHEMA,
        title: campaign.title.clone(),
        made: results.first.at.clone(),
        command: whole(&begin.command),
        version: begin.version.clone(),
        git: begin.git.clone(),
        program: begin.program.clone(),
        seed: None,
        complete: records.last() == Some(&Record::End),
        seconds: results
            .measured
            .iter()
            .map(|measured| measured.seconds)
            .sum(),
        machine: results.machine(),
        notes: results.notes(),
        sections,
        tables,
        refusals: results.refusals(records),
    })
}

/// Returns the command without `--only`, which would repeat only the last part.
fn whole(command: &[String]) -> Vec<String> {
    let mut words = command.iter();
    let mut whole = Vec::new();
    while let Some(word) = words.next() {
        if word == "--only" {
            words.next();
        } else if !word.starts_with("--only=") {
            whole.push(word.clone());
        }
    }
    whole
}

/// Remarks about results from a testbed. The facts describe its machines.
fn testbed_note(testbed: &Testbed) -> String {
    let Generator { host, .. } = &testbed.trex;
    format!(
        "Measured on a testbed: TRex at {host} sent and counted, and {} forwarded. A packet is what TRex counted at its ports, whoever sent \
         it. Neither its latency nor the limit of TRex without a router between its ports was measured. The facts describe \
         the machine that ran the campaign.",
        testbed.system
    )
}

/// Measured values.
struct Results<'a> {
    campaign: &'a Campaign,
    /// First start of the campaign.
    first: &'a Begin,
    /// Last start of the campaign.
    last: &'a Begin,
    measured: Vec<&'a Measured>,
    /// Packets per second of generator and sink without an engine, by case.
    ceilings: Vec<(&'a Case, f64)>,
}

impl<'a> Results<'a> {
    fn of(campaign: &'a Campaign, records: &'a [Record]) -> Option<Self> {
        let begins = || {
            records.iter().filter_map(|record| match record {
                Record::Begin(begin) => Some(begin.as_ref()),
                _ => None,
            })
        };
        let measured = records.iter().filter_map(|record| match record {
            Record::Measured(measured) => Some(measured.as_ref()),
            _ => None,
        });
        let ceilings = records.iter().filter_map(|record| match record {
            Record::Ceiling { case, trial } => Some((case, trial.received_rate())),
            _ => None,
        });
        Some(Self {
            campaign,
            first: begins().next()?,
            last: begins().next_back()?,
            measured: measured.collect(),
            ceilings: ceilings.collect(),
        })
    }

    /// Returns the points of a group, in the order of the plan.
    fn points(&self, group: &Group) -> impl Iterator<Item = &'a Point> {
        let points = self.last.plan.points.iter();
        points.filter(|point| point.group == group.name.value)
    }

    /// Returns the distinct cases of a group.
    fn cases(&self, group: &Group) -> Vec<&'a Case> {
        let mut cases: Vec<&Case> = Vec::new();
        for point in self.points(group) {
            if !cases.contains(&&point.case) {
                cases.push(&point.case);
            }
        }
        cases
    }

    /// Returns the distinct engines of a group.
    fn engines(&self, group: &Group) -> Vec<&'a str> {
        let mut engines: Vec<&str> = Vec::new();
        for point in self.points(group) {
            if !engines.contains(&point.engine.as_str()) {
                engines.push(&point.engine);
            }
        }
        engines
    }

    /// Returns all runs of a measurement in order.
    fn runs(&self, point: &Point, find: Find) -> Vec<&'a Measured> {
        let all = self.measured.iter().copied();
        let mut runs: Vec<_> = all
            .filter(|measured| measured.find == find && measured.point == *point)
            .collect();
        runs.sort_by_key(|measured| measured.run);
        runs
    }

    /// Returns the packets per second of generator and sink without an engine, for the traffic of a
    /// case.
    fn ceiling(&self, case: &Case) -> Option<f64> {
        let measured = |wanted: &Case| {
            let mut all = self.ceilings.iter();
            let found = all.find(|(case, _)| *case == wanted);
            found.map(|(_, rate)| *rate)
        };
        // Folders of earlier versions contain only the ceiling for customers' packets.
        measured(&plan::ceiling(case)).or_else(|| measured(&plan::sent_alike(case)))
    }

    /// Returns the mean of a point as a share of the ceiling. `None` if one of them was not
    /// measured.
    fn share_of_ceiling(&self, point: &Point, find: Find) -> Option<f64> {
        let rates = self.runs(point, find).into_iter().map(rates::kpps);
        let mean = Summary::of(&rates.collect::<Vec<_>>())?.mean;
        Some(mean * 1e3 / self.ceiling(&point.case)?)
    }

    fn machine(&self) -> crate::result::Machine {
        let mut machine = self.last.machine.clone();
        for (engine, facts) in &self.last.engines {
            for (name, value) in facts {
                machine
                    .facts
                    .insert(format!("{engine}: {name}"), value.clone());
            }
        }
        for engine in self.last.engines.keys() {
            let sink = self.sink(engine);
            machine
                .facts
                .extend(sink.map(|sink| (format!("{engine}: sink"), sink)));
        }
        if let Ok(search) = self.campaign.parameters(Find::Pdr) {
            let text = format!(
                "from {} packets/s{}, beta {}, epsilon {}, trials of {}, {} of them a rate, exceed {}",
                search.start(),
                search
                    .line()
                    .map_or_else(String::new, |line| format!(" to {line}")),
                search.beta(),
                search.epsilon(),
                humantime::format_duration(search.trial()),
                search.trials(),
                search.exceed(),
            );
            machine.facts.insert("rate search".into(), text);
        }
        let order = match self.campaign.order {
            Order::Interleaved => "interleaved",
            Order::Sequential => "sequential",
        };
        let hurry = if self.last.quick { ", quick" } else { "" };
        let runs = format!("{} of each point, {order}{hurry}", self.campaign.runs());
        machine.facts.insert("runs".into(), runs);
        if self.campaign.testbed.is_none() {
            let sender = "XDP live frames";
            machine.facts.insert("generator".into(), sender.into());
        }
        machine
    }

    /// Describes the hook that counted an engine's packets. `None` if there was no choice.
    fn sink(&self, engine: &str) -> Option<String> {
        let of_engine = self.measured.iter().filter(|it| it.point.engine == engine);
        let sinks: Vec<Hook> = of_engine.filter_map(|it| it.sink).collect();
        let at_tc = sinks.iter().filter(|sink| **sink == Hook::Tc).count();
        Some(match (at_tc, sinks.len()) {
            (_, 0) => return None,
            (0, _) => "XDP".to_owned(),
            (tc, all) if tc == all => "TC".to_owned(),
            (tc, all) => {
                format!("TC in {tc} of {all} measurements, where that costs less, otherwise XDP")
            }
        })
    }

    /// Returns the relative precision of a searched rate. `None` for other metrics.
    fn resolution(&self, find: Find) -> Option<f64> {
        let searched = matches!(find, Find::Pdr | Find::Ndr);
        let parameters = searched.then(|| self.campaign.parameters(find).ok());
        parameters.flatten().map(|it| it.epsilon())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.campaign.note.is_empty() {
            notes.push(self.campaign.note.clone());
        }
        if self.last.quick {
            notes.push(
                "Measured with --quick (short trials, one run): the rates are inaccurate.".into(),
            );
        }
        if let Ok(parameters) = self.campaign.parameters(Find::Pdr) {
            notes.push(format!(
                "A rate is searched by doubling it until packets are lost, then by halving the interval until it is narrower than {} % of \
                 it{}. PDR: at most {} % of the packets are lost; NDR: none{}; MRR: what comes \
                 through at the highest load. A trial takes {}, and each point is measured {} times.",
                parameters.epsilon() * 100.0,
                if parameters.trials() == 1 { "; both its ends are measured again" } else { "" },
                parameters.beta() * 100.0,
                match parameters.may_exceed() {
                    0 => String::new(),
                    some => format!(", both in {} of {} trials", parameters.trials() - some, parameters.trials()),
                },
                humantime::format_duration(parameters.trial()),
                self.campaign.runs(),
            ));
            if parameters.trials() > 1 {
                notes.push(format!(
                    "A rate is judged by {} trials, of which {} may lose more (RFC 9971: Goal Duration Sum {}, Goal Exceed Ratio {}). \
                     What is found is what the system does while nothing disturbs it.",
                    parameters.trials(),
                    parameters.may_exceed(),
                    humantime::format_duration(parameters.duration_sum()),
                    parameters.exceed(),
                ));
            }
        }
        notes.extend(self.stolen());
        notes.extend(self.repeated());
        if let Some(testbed) = &self.campaign.testbed {
            notes.push(testbed_note(&testbed.value));
        }
        if !self.ceilings.is_empty() {
            notes.push(format!(
                "What generator and sink do with nothing between them is measured first. A rate of {} % of that and more is limited by them, \
                 and marked.",
                CEILING_SHARE * 100.0
            ));
        }
        notes
    }

    /// Describes the steal time of the hypervisor. `None` if it is zero or unknown.
    fn stolen(&self) -> Option<String> {
        let all = self.measured.iter();
        let shares: Vec<(f64, f64)> = all
            .filter_map(|measured| Some((measured.stolen?, measured.seconds)))
            .collect();
        let seconds: f64 = shares.iter().map(|(_, seconds)| seconds).sum();
        let taken: f64 = shares.iter().map(|(share, seconds)| share * seconds).sum();
        let most = shares.iter().map(|(share, _)| *share).fold(0.0, f64::max);
        (taken > 0.0).then(|| {
            format!(
                "Meanwhile the host took {:.1} % of all processors' time for others (steal of proc(5)), at the worst {:.0} % during a \
                 measurement.",
                taken / seconds * 100.0,
                most * 100.0
            )
        })
    }

    /// Describes the trials that were repeated because of steal time. `None` if steal time was not
    /// recorded.
    fn repeated(&self) -> Option<String> {
        let all = self.measured.iter();
        let all: Vec<Disturbed> = all.filter_map(|measured| measured.disturbed).collect();
        let repeated: u32 = all.iter().map(|disturbed| disturbed.repeated).sum();
        let kept: u32 = all.iter().map(|disturbed| disturbed.kept).sum();
        let (percent, limit) = (STEAL_MAX * 100.0, REPEAT_TIME.as_secs());
        let rest = match kept {
            0 => String::new(),
            _ => format!(
                " Another {kept} such trials count, because a measurement repeats trials for at \
                 most {limit} s."
            ),
        };
        (!all.is_empty()).then(|| {
            format!(
                "Trials during which the host took more than {percent} % of the processors' time \
                 are repeated: {repeated} in this report.{rest}"
            )
        })
    }

    fn ceiling_table(&self) -> Option<Table> {
        let rows = self
            .ceilings
            .iter()
            .map(|(case, rate)| vec![Cell::Text(words::sent(case)), Cell::Number(rate / 1e3)]);
        let rows: Vec<_> = rows.collect();
        (!rows.is_empty()).then(|| Table {
            id: "ceiling".into(),
            title: "Generator to sink".into(),
            note: "Upper bound of this setup: generator and sink are connected directly.".into(),
            heads: ["packets", "received (kpps)"].map(String::from).to_vec(),
            rows,
        })
    }

    fn recipes(&self) -> Option<Table> {
        let points = self.last.plan.points.iter().zip(&self.last.recipes);
        let quick = if self.last.quick { " --quick" } else { "" };
        let rows = points.flat_map(|(point, commands)| {
            let again = format!(
                "sidestep-bench run campaign.yaml{quick} -o again --only {}",
                quoted(&point.to_string())
            );
            std::iter::once(&again)
                .chain(commands)
                .map(|command| {
                    [&point.engine, &point.case.to_string(), command]
                        .map(|text| Cell::Text(text.clone()))
                        .to_vec()
                })
                .collect::<Vec<_>>()
        });
        let mut rows: Vec<Vec<Cell>> = rows.collect();
        // Several groups may contain the same case.
        rows.dedup();
        (!rows.is_empty()).then(|| Table {
            id: COMMANDS.into(),
            title: "Commands that repeat the measurement, and that set it up by hand".into(),
            note: "The first of each point measures it again, traffic and all: campaign.yaml lies in the folder that this report was made \
                   from. The others set its router up, between ports and namespaces that are there (docs/engines.md)."
                .into(),
            heads: ["engine", "case", "command"].map(String::from).to_vec(),
            rows,
        })
    }

    /// Returns the unsupported cases, and failures without a later success.
    fn refusals(&self, records: &[Record]) -> Vec<Refusal> {
        let refused = self.last.plan.refused.iter().map(|refused| Refusal {
            subject: refused.point.engine.clone(),
            at: refused.point.case.to_string(),
            why: refused.why.clone(),
        });
        let mut refusals: Vec<Refusal> = Vec::new();
        let failed = records.iter().filter_map(|record| match record {
            Record::Failed(failed) => Some(failed),
            _ => None,
        });
        let failed = failed.filter(|failed| !self.is_mended(failed));
        let failed = failed.map(|failed| Refusal {
            subject: failed.point.engine.clone(),
            at: match failed.find {
                None => format!("{}, run {}", failed.point.case, failed.run + 1),
                Some(find) => format!(
                    "{} of {}, run {}",
                    words::find(find),
                    failed.point.case,
                    failed.run + 1
                ),
            },
            why: failed.why.clone(),
        });
        for refusal in refused.chain(failed) {
            if !refusals.contains(&refusal) {
                refusals.push(refusal);
            }
        }
        refusals
    }

    /// Whether a failed measurement succeeded later.
    fn is_mended(&self, failed: &Failed) -> bool {
        if failed.point.engine == plan::CEILING_ENGINE {
            let mut ceilings = self.ceilings.iter();
            return ceilings.any(|(case, _)| **case == failed.point.case);
        }
        let there = |find: Find| {
            self.measured.iter().any(|measured| {
                (measured.run, measured.find) == (failed.run, find)
                    && measured.point == failed.point
            })
        };
        let mut groups = self.campaign.groups.iter();
        match failed.find {
            Some(find) => there(find),
            // The failure affects all groups, because there was no engine.
            None => groups
                .find(|group| group.name.value == failed.point.group)
                .is_none_or(|group| self.campaign.finds(group).into_iter().all(there)),
        }
    }
}
