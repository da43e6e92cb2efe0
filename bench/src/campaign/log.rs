//! The folder of a campaign. `campaign.yaml` is a copy of the campaign at its start. `trials.jsonl`
//! has one line per measurement. Lines are only appended. A crash can truncate the last line, which
//! is then measured again.
//!
//! The report is generated from these two files.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::engine::{Case, INTERRUPTS};
use serde::{Deserialize, Serialize};
use sidestep_testkit::traffic::Hook;
use sidestep_testkit::traffic::trial::Trial;

use super::difference::differences;
use super::file::Find;
use super::plan::{Plan, Point};
use super::repeat::Disturbed;
use crate::result::Machine;
use crate::search::Found;

/// Schema version of the lines. Increment it if a field is removed or changes its meaning, not for
/// a new optional field.
pub const SCHEMA: u32 = 1;
/// Copy of the campaign file at the start.
pub const CAMPAIGN: &str = "campaign.yaml";
/// File with the measurements.
pub const TRIALS: &str = "trials.jsonl";

/// A line of `trials.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The campaign starts or resumes after an interruption.
    Begin(Box<Begin>),
    /// Rate of generator and sink without an engine.
    Ceiling {
        /// Case whose frames were sent.
        case: Case,
        /// The trial.
        trial: Trial,
    },
    /// A completed measurement.
    Measured(Box<Measured>),
    /// A failed measurement. It is retried when the campaign resumes.
    Failed(Failed),
    /// Every measurement of the campaign has been tried.
    End,
}

/// Setup of the following measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Start time: RFC 3339, UTC.
    pub at: String,
    /// Version of Sidestep.
    pub version: String,
    /// Commit it was built from.
    pub git: Option<String>,
    /// SHA-256 of the program that measures: two modified source trees can have the same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The command line, one element per argument.
    pub command: Vec<String>,
    /// Whether `--quick` was given.
    pub quick: bool,
    /// The machine that ran the campaign.
    pub machine: Machine,
    /// Facts that each engine reports.
    pub engines: BTreeMap<String, BTreeMap<String, String>>,
    /// Points that the campaign measures, and points that engines refused.
    pub plan: Plan,
    /// The commands that set up each point of the plan by hand, in the order of the plan.
    pub recipes: Vec<Vec<String>>,
}

impl Begin {
    /// Returns the differences that make results of two starts incomparable: name, old value, new
    /// value.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let of = |begin: &Self| {
            let machine = &begin.machine;
            let git = begin.git.clone().unwrap_or_default();
            [
                ("--quick", begin.quick.to_string()),
                ("version", format!("{} {git}", begin.version)),
                ("program", begin.program.clone().unwrap_or_default()),
                ("processor", machine.cpu.clone()),
                ("kernel", machine.kernel.clone()),
                ("mitigations", format!("{:?}", machine.mitigations)),
                ("governor", format!("{:?}", machine.governor)),
            ]
        };
        let fact = |name: &str, before: &str, now: &str| {
            let changed = before != now;
            changed.then(|| format!("{name}: {before}, now {now}"))
        };
        let pairs = of(self).into_iter().zip(of(now));
        let mut found: Vec<String> = pairs
            .filter_map(|((name, before), (_, now))| fact(name, &before, &now))
            .collect();
        let (before, now_facts) = (facts(&self.engines), facts(&now.engines));
        let more = now_facts.keys().filter(|name| !before.contains_key(*name));
        found.extend(before.keys().chain(more).filter_map(|name| {
            let [before, now] =
                [&before, &now_facts].map(|all| all.get(name).map_or("nothing", String::as_str));
            fact(name, before, now)
        }));
        if self.plan != now.plan {
            found.push("the behaviors that engines support".into());
        }
        found
    }
}

/// Returns the facts of the engines by engine and name. Facts that change by themselves are
/// omitted, such as a queue's interrupt CPU, which irqbalance(1) reassigns every ten seconds.
fn facts(engines: &BTreeMap<String, BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let all = engines.iter().flat_map(|(engine, facts)| {
        let lasting = facts.iter().filter(|(name, _)| !name.ends_with(INTERRUPTS));
        lasting.map(move |(name, fact)| (format!("{engine}: {name}"), fact.clone()))
    });
    all.collect()
}

/// A measurement, with all its trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Group, case and engine.
    #[serde(flatten)]
    pub point: Point,
    /// Number of the run, from 0.
    pub run: u32,
    /// Metric.
    pub find: Find,
    /// Start time: RFC 3339, UTC.
    pub at: String,
    /// Duration in seconds.
    pub seconds: f64,
    /// Hook that counted the packets, if there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Hook>,
    /// Steal time as a share of the time of all processors, 0 to 1. `None` on a testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen: Option<f64>,
    /// Trials that steal time disturbed. `None` on a testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Disturbed>,
    /// Result of a search for a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
    /// All trials that count, in order of execution.
    pub trials: Vec<Trial>,
}

/// A failed measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Group, case and engine of the failed measurement.
    #[serde(flatten)]
    pub point: Point,
    /// Number of the run, from 0.
    pub run: u32,
    /// Metric. `None` if the engine could not be set up.
    pub find: Option<Find>,
    /// Reason.
    pub why: String,
    /// All trials before the failure, in order of execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
}

/// A folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The folder is not empty and does not belong to a campaign.
    #[error("{}: not empty and not the folder of a campaign; choose another one with -o", .0.display())]
    Foreign(PathBuf),
    /// Another process holds the lock of the folder.
    #[error("{}: another `bench run` writes it", .0.display())]
    Busy(PathBuf),
    /// The folder belongs to a different campaign.
    #[error("{}: belongs to another version of the campaign, which differs in: {}. Choose another folder with -o", path.display(), changes.join("; "))]
    Changed {
        /// Path of the folder's copy of the campaign.
        path: PathBuf,
        /// Differences: key, old value, new value.
        changes: Vec<String>,
    },
    /// A line cannot be read.
    #[error("{}: line {line}: {source}", path.display())]
    Form {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Cause.
        source: serde_json::Error,
    },
    /// The schema version differs from [`SCHEMA`].
    #[error("{}: schema {found}, but this version reads schema {SCHEMA}", path.display())]
    Schema {
        /// Path of the file.
        path: PathBuf,
        /// Schema version in the file.
        found: u64,
    },
}

/// Open folder of a running campaign.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// All lines of the file, in order.
    pub records: Vec<Record>,
}

/// Returns whether a folder contains a campaign.
pub fn is_campaign(folder: &Path) -> bool {
    folder.join(TRIALS).is_file()
}

/// Reads the measurements and the campaign's text.
///
/// # Errors
/// One of the files cannot be read.
pub fn read(folder: &Path) -> Result<(String, Vec<Record>), Error> {
    let path = folder.join(CAMPAIGN);
    let text = fs::read_to_string(&path).map_err(|source| Error::File { path, source })?;
    let path = folder.join(TRIALS);
    let lines = fs::read(&path).map_err(|source| Error::File {
        path: path.clone(),
        source,
    })?;
    Ok((text, parse(&path, &lines)?.0))
}

impl Log {
    /// Opens a folder for a campaign. Creates it or resumes it.
    ///
    /// # Errors
    /// It is not a campaign folder, belongs to another campaign, or another process writes to it.
    pub fn open(folder: &Path, campaign: &str) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_path_buf();
            |source| Error::File { path, source }
        };
        fs::create_dir_all(folder).map_err(at(folder))?;
        let (copy, path) = (folder.join(CAMPAIGN), folder.join(TRIALS));
        if copy.exists() {
            let before = fs::read_to_string(&copy).map_err(at(&copy))?;
            let changes = differences(&before, campaign);
            if !changes.is_empty() {
                return Err(Error::Changed {
                    path: copy,
                    changes,
                });
            }
        } else {
            // A file that a power failure left incomplete belongs to the campaign.
            let begun = copy.with_extension(BESIDE);
            for inside in fs::read_dir(folder).map_err(at(folder))? {
                if inside.map_err(at(folder))?.path() != begun {
                    return Err(Error::Foreign(folder.to_path_buf()));
                }
            }
            write_whole(&copy, campaign).map_err(at(&copy))?;
        }
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(at(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy(path)),
            Err(TryLockError::Error(source)) => return Err(Error::File { path, source }),
        }
        let mut lines = Vec::new();
        file.read_to_end(&mut lines).map_err(at(&path))?;
        let (records, whole) = parse(&path, &lines)?;
        file.set_len(whole as u64)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(at(&path))?;
        Ok(Self {
            path,
            file,
            records,
        })
    }

    /// Writes a line, and waits until it is on the disk.
    ///
    /// # Errors
    /// The write fails.
    pub fn add(&mut self, record: Record) -> Result<(), Error> {
        let mut line = serde_json::to_vec(&record).map_err(|source| Error::Form {
            path: self.path.clone(),
            line: self.records.len() + 1,
            source,
        })?;
        line.push(b'\n');
        let written = self
            .file
            .write_all(&line)
            .and_then(|()| self.file.sync_data());
        written.map_err(|source| Error::File {
            path: self.path.clone(),
            source,
        })?;
        self.records.push(record);
        Ok(())
    }
}

/// Writes a file atomically: it exists completely or not at all.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(BESIDE);
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // Sync the folder too, so that the name is on disk before the first measurement.
    path.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Extension of a temporary file, until it is complete and renamed.
const BESIDE: &str = "new";

/// Parses the records. Returns them with the length of all complete lines. A last line without a
/// newline was truncated.
fn parse(path: &Path, text: &[u8]) -> Result<(Vec<Record>, usize), Error> {
    let whole = text
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let lines = text[..whole].split_inclusive(|&byte| byte == b'\n');
    let records = lines.enumerate().map(|(index, line)| {
        let form = |source| Error::Form {
            path: path.to_path_buf(),
            line: index + 1,
            source,
        };
        // Check the version first: a line of another version is not a damaged line.
        let value: serde_json::Value = serde_json::from_slice(line).map_err(form)?;
        match value["schema"].as_u64() {
            Some(found) if found != u64::from(SCHEMA) => Err(Error::Schema {
                path: path.to_path_buf(),
                found,
            }),
            _ => serde_json::from_value(value).map_err(form),
        }
    });
    Ok((records.collect::<Result<_, _>>()?, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(facts: &[(&str, &str)]) -> Begin {
        let facts = facts
            .iter()
            .map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned()));
        Begin {
            schema: SCHEMA,
            at: String::new(),
            version: String::new(),
            git: None,
            program: None,
            command: Vec::new(),
            quick: false,
            machine: crate::machine::this(),
            engines: BTreeMap::from([("linux".to_owned(), facts.collect())]),
            plan: Plan::default(),
            recipes: Vec::new(),
        }
    }

    #[test]
    fn interrupts_moved_by_irqbalance_are_no_difference() {
        let then = begin(&[
            ("eth1 driver", "ice"),
            ("eth1 interrupts", "q0 (IRQ 40) on CPU 1"),
        ]);
        let now = begin(&[
            ("eth1 driver", "ice"),
            ("eth1 interrupts", "q0 (IRQ 40) on CPU 7"),
        ]);
        assert!(then.differences(&now).is_empty());
        let other = begin(&[("eth1 driver", "mlx5"), ("sysctl", "1")]);
        assert_eq!(
            then.differences(&other),
            [
                "linux: eth1 driver: ice, now mlx5",
                "linux: sysctl: nothing, now 1",
            ]
        );
    }
}
