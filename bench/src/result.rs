//! The format of `report.json`: measurements with machine, command and every round.
//!
//! The format is generic: a section is a set of series over an axis, such as lookups over routes or
//! packets over a sending rate. Numbers are in the unit that their axis names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the format. It changes if a field is removed or changes its meaning, not for a new
/// optional field.
pub const SCHEMA: u32 = 1;

/// One run of the benchmark, complete or interrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Short title of the measurement.
    pub title: String,
    /// Start time: RFC 3339, UTC.
    pub made: String,
    /// The command that repeats the run, one element per argument.
    pub command: Vec<String>,
    /// Version of Sidestep.
    pub version: String,
    /// Commit of the build, with the suffix `-dirty` if files had changed. `None` outside a
    /// repository.
    pub git: Option<String>,
    /// SHA-256 of the program in hexadecimal. Builds with different uncommitted changes have the
    /// same commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Seed of all random choices, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether the run is complete; `false` after Ctrl-C.
    pub complete: bool,
    /// Duration of the run in seconds. For a campaign, which may have been interrupted, the
    /// duration of its trials.
    pub seconds: f64,
    /// The machine that ran the benchmark.
    pub machine: Machine,
    /// Remarks that are necessary to read the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Plots, in order.
    pub sections: Vec<Section>,
    /// Tables without a plot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// Requested points that were not measured, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
}

/// Properties of the machine that affect speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor, as the kernel reports it.
    pub cpu: String,
    /// Number of online processors.
    pub cpus: u32,
    /// Release and version of the kernel.
    pub kernel: String,
    /// Name of the hypervisor, if it is a virtual machine.
    pub hypervisor: Option<String>,
    /// Bytes of memory.
    pub memory: u64,
    /// The first processor's caches.
    pub caches: Vec<Cache>,
    /// Frequency governor; `None` if the kernel does not set the frequency.
    pub governor: Option<String>,
    /// State of each processor vulnerability, as the kernel reports it.
    pub mitigations: BTreeMap<String, String>,
    /// Other facts, such as huge pages, a NIC's driver, and the roles of CPUs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// A cache of a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Cache level; 1 is closest to the processor.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// One plot: series over an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Unique id of lower-case letters, digits and `-`, used as file name.
    pub id: String,
    /// Title above the plot.
    pub title: String,
    /// Remarks on the measurement. May be empty.
    pub note: String,
    /// How points are drawn.
    pub kind: Kind,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Name of the series that the others are compared with.
    pub baseline: Option<String>,
    /// Series, in the order of the legend.
    pub series: Vec<Series>,
}

/// How the points of a section are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A line through the values, with a bar from low to high.
    Line,
    /// One bar per point.
    Bars,
    /// One box per point, computed from its rounds.
    Box,
    /// Steps: `value` is the share (0 to 1) of measurements that are at most `x`.
    Cdf,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Quantity.
    pub name: String,
    /// Unit; empty for a plain number.
    pub unit: String,
    /// Scale.
    pub scale: Scale,
    /// Which values are better; `None` if neither direction is.
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
    /// Lower values, for example of nanoseconds.
    Lower,
    /// Higher values, for example of packets per second.
    Higher,
}

/// Scale of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic; zero cannot be shown.
    Log,
    /// Categories: the number n, counted from 0, stands for the n-th of these texts.
    Categories(Vec<String>),
}

/// Measurements of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name in the legend; unique in its section.
    pub name: String,
    /// Name of the engine. A name has the same color in all sections.
    pub subject: String,
    /// Whether these are published figures from other hardware.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
    /// Points by ascending `x`.
    pub points: Vec<Point>,
}

/// A measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Position on the horizontal axis.
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
    /// Identifies the point in another report if `x` cannot, because `x` was measured or is a
    /// category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Unique id among sections and tables.
    pub id: String,
    /// Title above the table.
    pub title: String,
    /// Remarks. May be empty.
    pub note: String,
    /// Heads of the columns, units included.
    pub heads: Vec<String>,
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number: aligned right, and rounded in pages.
    Number(f64),
    /// Text; may be empty.
    Text(String),
}

/// A requested point that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Engine.
    pub subject: String,
    /// Scenario and point.
    pub at: String,
    /// Reason: a wrong answer, too little memory, or a time limit.
    pub why: String,
}

impl Point {
    /// Creates a point with median, minimum and maximum of at least one round.
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
    /// Creates a linear axis.
    pub fn linear(name: &str, unit: &str) -> Self {
        Self::new(name, unit, Scale::Linear)
    }

    /// Creates a logarithmic axis.
    pub fn log(name: &str, unit: &str) -> Self {
        Self::new(name, unit, Scale::Log)
    }

    /// Creates an axis.
    pub fn new(name: &str, unit: &str, scale: Scale) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            scale,
            better: None,
            resolution: None,
        }
    }

    /// Sets the relative resolution of values.
    #[must_use]
    pub fn resolution(self, resolution: Option<f64>) -> Self {
        Self { resolution, ..self }
    }

    /// Sets which values are better.
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
    fn a_written_report_is_read_unchanged() {
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
