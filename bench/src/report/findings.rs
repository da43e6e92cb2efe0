//! The result of a report: sentences, a table that compares each engine with Linux, and a plot of
//! this comparison.
//!
//! "Times Linux" is a ratio of speeds at the same point. For rates it is the value divided by the
//! value of Linux, for times the inverse. It compares medians.

use super::number;
use super::table::{at, head, legend, place, places, without_empty_columns};
use super::text;
use crate::result::{Axis, Better, Cell, Kind, Point, Report, Scale, Section, Series, Table};
use crate::statistics::{CV_MAX, Summary, sorted};

/// Name of the engine that others are compared with.
pub const LINUX: &str = "linux";
/// Id and file name of the plot that opens a report.
pub const OVERVIEW: &str = "overview";
/// Head of a column with ratios.
pub const TIMES_LINUX: &str = "times Linux";

/// If there are at most this many engines, the summary shows values next to the ratios.
const ENGINES_WITH_VALUES: usize = 4;

/// Note about a point whose rounds vary by more than [`CV_MAX`].
pub const VARIES: &str = "not citable: CV above 10 %";

/// Quantity of an axis that has a better end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantity {
    /// Events per second.
    Rate,
    /// Duration.
    Time,
}

impl Quantity {
    /// Quantity of a section, or `None` if its points have no speed in common: distributions,
    /// memory, shares, and curves over the sending rate of each engine.
    fn of(section: &Section) -> Option<Self> {
        if section.kind == Kind::Cdf || number::rate_factor(&section.x.unit).is_some() {
            return None;
        }
        match (section.y.better?, section.y.unit.as_str()) {
            (Better::Higher, unit)
                if unit.ends_with("/s") || number::rate_factor(unit).is_some() =>
            {
                Some(Self::Rate)
            }
            (Better::Lower, "ns" | "us" | "µs" | "ms" | "s") => Some(Self::Time),
            _ => None,
        }
    }

    fn times(self, value: f64, linux: f64) -> Option<f64> {
        let (above, below) = match self {
            Self::Rate => (value, linux),
            Self::Time => (linux, value),
        };
        (below > 0.0).then(|| above / below)
    }

    /// Returns the text about the ratio of the first engine of a sentence.
    fn compared(self, name: &str, times: &str) -> String {
        match self {
            Self::Rate => format!("{name} reaches {times} times the rate of Linux"),
            Self::Time => format!("{name} is {times} times as fast as Linux"),
        }
    }

    /// Returns the text about the value of the first engine of a sentence.
    fn measured(self, name: &str, value: &str) -> String {
        match self {
            Self::Rate => format!("{name} reaches {value}"),
            Self::Time => format!("{name} takes {value}"),
        }
    }
}

/// Returns the measured series of Linux if the section's values are speeds.
pub fn linux(section: &Section) -> Option<&Series> {
    Quantity::of(section)?;
    let mut measured = section.series.iter().filter(|series| !series.published);
    measured.find(|series| series.subject == LINUX)
}

/// Returns the speed of a point as a multiple of Linux's at the same place.
pub fn times_linux(section: &Section, point: &Point) -> Option<f64> {
    let linux = at(linux(section)?, point.x)?;
    Quantity::of(section)?.times(point.value, linux.value)
}

/// Returns true if the rounds of a point vary by more than [`CV_MAX`].
pub fn varies(point: &Point) -> bool {
    let spread = Summary::of(&point.rounds).and_then(|summary| summary.spread);
    spread.is_some_and(|spread| !spread.is_citable())
}

/// Returns the result in words: a sentence for each engine of each section, and the variation.
pub fn sentences(report: &Report) -> Vec<String> {
    let sections = report.sections.iter();
    let mut sentences: Vec<String> = sections.flat_map(of_section).collect();
    sentences.extend(variation(report));
    sentences
}

/// Returns a sentence about the engines that Linux is compared with, and one about those that it
/// is not compared with.
fn of_section(section: &Section) -> Vec<String> {
    let Some(quantity) = Quantity::of(section) else {
        return Vec::new();
    };
    let linux = linux(section);
    let (mut compared, mut measured) = (Vec::new(), Vec::new());
    for series in &section.series {
        let is_linux = linux.is_some_and(|linux| linux.name == series.name);
        if series.published || series.points.is_empty() || is_linux {
            continue;
        }
        let points = series.points.iter();
        let times: Vec<f64> = points
            .filter_map(|point| times_linux(section, point))
            .collect();
        let name = &series.name;
        if times.is_empty() {
            let values: Vec<f64> = series.points.iter().map(|point| point.value).collect();
            let value = format!("{} {}", range(&values, number::rounded), section.y.unit);
            measured.push(match measured.len() {
                0 => quantity.measured(name, &value),
                _ => format!("{name} {value}"),
            });
        } else {
            let times = range(&times, factor);
            compared.push(match compared.len() {
                0 => quantity.compared(name, &times),
                _ => format!("{name} {times} times"),
            });
        }
    }
    let lists = [compared, measured].into_iter();
    let sentence = |list: Vec<String>| format!("In “{}”, {}.", section.title, list.join(", "));
    lists
        .filter(|list| !list.is_empty())
        .map(sentence)
        .collect()
}

/// Returns how many points vary by more than [`CV_MAX`], and how many have too few rounds.
fn variation(report: &Report) -> Vec<String> {
    let sections = report.sections.iter();
    let measured = sections.filter(|section| section.kind != Kind::Cdf);
    let series = measured.flat_map(|section| &section.series);
    let points = series.filter(|series| !series.published);
    let points: Vec<&Point> = points.flat_map(|series| &series.points).collect();
    let all = points.len();
    let lone = points.iter().filter(|point| point.rounds.len() < 2).count();
    let varying = points.iter().filter(|point| varies(point)).count();
    let percent = CV_MAX * 100.0;
    let mut sentences = Vec::new();
    match varying {
        _ if lone == all => {}
        0 if lone == 0 => sentences.push(format!(
            "The coefficient of variation of each point is at most {percent} %."
        )),
        0 => sentences.push(format!(
            "The coefficient of variation of each point with several rounds is at most {percent} %."
        )),
        _ => sentences.push(format!(
            "The coefficient of variation of {varying} of {all} points is above {percent} %. Their \
             notes mark them as not citable."
        )),
    }
    if lone > 0 {
        sentences.push(format!(
            "{lone} of {all} points have a single round, so their variation is unknown."
        ));
    }
    sentences
}

/// Returns the table that opens a report: Linux and the other engines of one section, with a
/// "times Linux" column for each of them.
pub fn summary(report: &Report) -> Option<Table> {
    let section = compared_section(report)?;
    let linux = linux(section)?;
    let others = || others(section, linux);
    let unit = &section.y.unit;
    let mut heads = vec![head(&section.x), format!("{} ({unit})", legend(linux))];
    // More columns do not fit on a page.
    let with_values = others().count() <= ENGINES_WITH_VALUES;
    for series in others() {
        if with_values {
            heads.push(format!("{} ({unit})", series.name));
        }
        heads.push(format!("{}, {TIMES_LINUX}", series.name));
    }
    heads.push("note".into());
    let number = |value: Option<f64>| value.map_or_else(|| Cell::Text(String::new()), Cell::Number);
    let rows = places(section).into_iter().filter_map(|x| {
        let base = at(linux, x)?;
        let mut row = vec![place(&section.x, x), Cell::Number(base.value)];
        for series in others() {
            let point = at(series, x);
            if with_values {
                row.push(number(point.map(|point| point.value)));
            }
            row.push(number(point.and_then(|point| times_linux(section, point))));
        }
        let measured = std::iter::once(linux).chain(others());
        let varying = measured.filter(|series| at(series, x).is_some_and(varies));
        let varying: Vec<&str> = varying.map(|series| series.name.as_str()).collect();
        row.push(Cell::Text(match varying[..] {
            [] => String::new(),
            _ => format!("{VARIES} ({})", varying.join(", ")),
        }));
        Some(row)
    });
    let (heads, rows) = without_empty_columns(heads, rows.collect());
    Some(Table {
        id: "result-table".into(),
        title: section.title.clone(),
        note: String::new(),
        heads,
        rows,
    })
}

/// Returns the plot that opens a report: "times Linux" of one section, or the first section with
/// points if Linux is not one of the engines.
pub fn overview(report: &Report) -> Option<Section> {
    let Some(section) = compared_section(report) else {
        let mut sections = report.sections.iter();
        let first = sections.find(|section| super::plot::is_drawn(section))?;
        return Some(Section {
            id: OVERVIEW.into(),
            ..first.clone()
        });
    };
    let linux = linux(section)?;
    let all = places(section);
    let shared: Vec<f64> = all
        .into_iter()
        .filter(|&x| at(linux, x).is_some())
        .collect();
    let words = shared
        .iter()
        .map(|&x| text::readable(&place(&section.x, x)));
    let x = Axis::new(&head(&section.x), "", Scale::Categories(words.collect()));
    let series = others(section, linux).filter_map(|series| {
        let points = shared.iter().enumerate().filter_map(|(index, &x)| {
            let times = times_linux(section, at(series, x)?)?;
            Some(Point::of(index as f64, vec![times]))
        });
        let points: Vec<Point> = points.collect();
        (!points.is_empty()).then(|| Series {
            points,
            ..series.clone()
        })
    });
    Some(Section {
        id: OVERVIEW.into(),
        title: format!("{}, {TIMES_LINUX}", section.title),
        note: String::new(),
        kind: Kind::Bars,
        x,
        y: Axis::linear(TIMES_LINUX, "").better(Better::Higher),
        baseline: None,
        series: series.collect(),
    })
}

/// Returns the section with the most points that have a "times Linux" ratio, the first of several.
fn compared_section(report: &Report) -> Option<&Section> {
    let ratios = |section: &Section| {
        let Some(linux) = linux(section) else {
            return 0;
        };
        let points = others(section, linux).flat_map(|series| &series.points);
        points
            .filter(|point| times_linux(section, point).is_some())
            .count()
    };
    let mut best = (0, None);
    for section in &report.sections {
        let count = ratios(section);
        if count > best.0 {
            best = (count, Some(section));
        }
    }
    best.1
}

/// Returns the measured series other than Linux.
fn others<'a>(section: &'a Section, linux: &'a Series) -> impl Iterator<Item = &'a Series> {
    let series = section.series.iter();
    series.filter(|series| !series.published && series.name != linux.name)
}

/// Formats the lowest and the highest of at least one value.
fn range(values: &[f64], format: fn(f64) -> String) -> String {
    let sorted = sorted(values);
    let ends = [sorted[0], sorted[sorted.len() - 1]].map(format);
    if ends[0] == ends[1] {
        let [value, _] = ends;
        return value;
    }
    ends.join(" to ")
}

/// Formats a ratio with two significant digits: `0.85`, `2.3`, `18`.
fn factor(value: f64) -> String {
    match value {
        ..0.095 => format!("{value:.1e}")
            .parse()
            .map_or_else(|_| String::new(), number::rounded),
        ..0.995 => format!("{value:.2}"),
        ..9.95 => format!("{value:.1}"),
        _ => number::rounded(value.round()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_two_digits() {
        let factors = [0.004_187, 0.854, 0.999, 2.31, 9.96, 17.7, 1234.5].map(factor);
        assert_eq!(
            factors,
            ["0.0042", "0.85", "1.0", "2.3", "10", "18", "1,235"]
        );
        assert_eq!(range(&[3.0, 2.0], factor), "2.0 to 3.0");
        assert_eq!(range(&[2.01, 2.0], factor), "2.0");
    }
}
