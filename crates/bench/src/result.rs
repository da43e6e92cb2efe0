//! The format of `report.json`: measurements with machine, command and every round.
//!
//! The format is generic: a section is a set of series over an axis, such as lookups over routes or
//! packets over a sending rate. Numbers are in the unit that their axis names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of this form. A field that changes its meaning, or goes, changes it; a new optional field does not.
pub const SCHEMA: u32 = 1;

/// One run of the bench, whole or interrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Short title of the measurement.
    pub title: String,
    /// When the run began: RFC 3339, UTC.
    pub made: String,
    /// The command that repeats it, word by word.
    pub command: Vec<String>,
    /// Version of Sidestep.
    pub version: String,
    /// Commit it was built from, with `-dirty` behind it if files had changed; none outside a repository.
    pub git: Option<String>,
    /// SHA-256 of the program that measured, in hexadecimal: two trees with other changes have one commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Seed of all random choices, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether everything that was asked for was measured; `false` after Ctrl-C.
    pub complete: bool,
    /// Seconds that the run took; of a campaign, which may have been interrupted, those that its trials took.
    pub seconds: f64,
    /// Where it ran.
    pub machine: Machine,
    /// Remarks that a reader of the figures needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The pictures, in order.
    pub sections: Vec<Section>,
    /// Facts that appear as rows only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// Requested points that were not measured, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
}

/// The machine, as far as it has to do with speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, as the kernel names it.
    pub cpu: String,
    /// Processors that the kernel runs on.
    pub cpus: u32,
    /// Release and version of the kernel.
    pub kernel: String,
    /// Name of the hypervisor, if it is a virtual machine.
    pub hypervisor: Option<String>,
    /// Bytes of memory.
    pub memory: u64,
    /// The first processor's caches.
    pub caches: Vec<Cache>,
    /// Frequency governor; none if the kernel does not set the frequency.
    pub governor: Option<String>,
    /// State of each processor vulnerability, as the kernel words it.
    pub mitigations: BTreeMap<String, String>,
    /// Anything else: huge pages, a NIC's driver, which CPU does what.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// A cache of a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is next to the processor.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size.
    pub bytes: u64,
}

/// One picture: series over an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Unique in a report, of lower-case letters, digits and `-`: the name of its files.
    pub id: String,
    /// Above the picture.
    pub title: String,
    /// How it was measured, what to know; may be empty.
    pub note: String,
    /// How points are drawn.
    pub kind: Kind,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The series that the others are compared with, by name.
    pub baseline: Option<String>,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

/// How the points of a section are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A line through the values, with a bar from low to high.
    Line,
    /// A bar a point.
    Bars,
    /// A box a point, from its rounds.
    Box,
    /// Steps: `value` is the share (0 to 1) that is not above `x`.
    Cdf,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Quantity.
    pub name: String,
    /// In what; empty for a plain number.
    pub unit: String,
    /// How numbers lie on it.
    pub scale: Scale,
    /// Where the better ones are; none if there is no better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
    /// Relative resolution: closer values do not differ significantly. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Unit, such as nanoseconds.
    Lower,
    /// Unit, such as packets per second.
    Higher,
}

/// How numbers lie on an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm; zero cannot be shown.
    Log,
    /// The number n, counted from 0, stands for the n-th of these words.
    Categories(Vec<String>),
}

/// Measurements of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// In the legend; unique in its section.
    pub name: String,
    /// Name of the engine. A name has the same color in all sections.
    pub subject: String,
    /// Published figures from other hardware.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
    /// By rising `x`.
    pub points: Vec<Point>,
}

/// A measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where on the axis across.
    pub x: f64,
    /// Value: the median of the rounds unless stated otherwise.
    pub value: f64,
    /// The lowest round unless stated otherwise.
    pub low: f64,
    /// The highest round.
    pub high: f64,
    /// All rounds in the order of execution. Empty for published figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<f64>,
    /// Remarks about the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// By which it is found again in another report, where `x` cannot say it: that was measured, too, or is a place among others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Rows of text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// As a section's: unique among both.
    pub id: String,
    /// Above the table.
    pub title: String,
    /// Remarks. May be empty.
    pub note: String,
    /// Heads of the columns, units included.
    pub heads: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number: aligned right, and rounded in pages.
    Number(f64),
    /// Anything else; empty for nothing.
    Text(String),
}

/// A requested point that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Engine.
    pub subject: String,
    /// In which scenario, at which point.
    pub at: String,
    /// Why it was not: a wrong answer, no memory, a limit of time.
    pub why: String,
}

impl Point {
    /// Median, lowest and highest of at least one round.
    pub fn of(x: f64, rounds: Vec<f64>) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
        let value = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self {
            x,
            value,
            low,
            high,
            rounds,
            note: None,
            key: None,
        }
    }
}

impl Axis {
    /// An axis on which numbers lie evenly.
    pub fn linear(name: &str, unit: &str) -> Self {
        Self::new(name, unit, Scale::Linear)
    }

    /// An axis on which each decade is as long as the next.
    pub fn log(name: &str, unit: &str) -> Self {
        Self::new(name, unit, Scale::Log)
    }

    /// Any axis.
    pub fn new(name: &str, unit: &str, scale: Scale) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            scale,
            better: None,
            resolution: None,
        }
    }

    /// The same with the relative resolution of values.
    #[must_use]
    pub fn resolution(self, resolution: Option<f64>) -> Self {
        Self { resolution, ..self }
    }

    /// The same, and which values on it are the better ones.
    #[must_use]
    pub fn better(self, better: Better) -> Self {
        Self {
            better: Some(better),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_point_is_the_median_of_its_rounds() {
        let odd = Point::of(1.0, vec![9.0, 2.0, 4.0]);
        assert_eq!((odd.low, odd.value, odd.high), (2.0, 4.0, 9.0));
        let even = Point::of(1.0, vec![8.0, 2.0, 4.0, 5.0]);
        assert_eq!((even.low, even.value, even.high), (2.0, 4.5, 8.0));
    }

    #[test]
    fn a_report_reads_back_as_it_was_written() {
        let report = Report {
            schema: SCHEMA,
            title: "lookups".into(),
            made: "2026-01-02T03:04:05Z".into(),
            command: vec!["sidestep".into(), "bench".into()],
            version: "0.1.0".into(),
            git: None,
            program: None,
            seed: Some(1),
            complete: true,
            seconds: 1.5,
            machine: Machine::default(),
            notes: vec![],
            sections: vec![Section {
                id: "time".into(),
                title: "Time".into(),
                note: String::new(),
                kind: Kind::Line,
                x: Axis::log("routes", ""),
                y: Axis::new("lookup", "ns", Scale::Categories(vec!["a".into()])),
                baseline: None,
                series: vec![Series {
                    name: "ours".into(),
                    subject: "ours".into(),
                    published: false,
                    points: vec![Point::of(10.0, vec![1.0, 2.0])],
                }],
            }],
            tables: vec![Table {
                id: "levels".into(),
                title: "Levels".into(),
                note: String::new(),
                heads: vec!["a".into(), "b".into()],
                rows: vec![vec![Cell::Text("x".into()), Cell::Number(2.5)]],
            }],
            refusals: vec![],
        };
        let text = serde_json::to_string(&report).expect("JSON");
        assert_eq!(serde_json::from_str::<Report>(&text).expect("JSON"), report);
    }
}
