//! `sidestep-bench compare BEFORE AFTER`: prints the changes between two reports.

use std::io::Write;
use std::path::PathBuf;

use crate::compare::{Bounds, Lone, Outcome as Found, Verdict, called, compare, differences};
use crate::report::{self, number};
use crate::result::Refusal;
use comfy_table::Table;
use serde::Serialize;

use super::terminal::{Ink, Style};
use super::{Outcome, terminal};

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A report.json, the folder that contains it, or the folder of a campaign
    pub before: PathBuf,
    /// The report to compare with it
    pub after: PathBuf,
    /// Smallest change of the mean that counts
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    pub change: f64,
    /// False-discovery rate of the reported changes
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub chance: f64,
    /// Do not fail when points are missing from the second report
    #[arg(long)]
    pub partial: bool,
    /// Print the points that did not change, too
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON, always with all points
    #[arg(short, long)]
    pub json: bool,
}

/// Parts of the output, in this order.
const OUTCOMES: [(Found, &str, Ink); 5] = [
    (Found::Worse, "worse", Ink::Removed),
    (Found::Better, "better", Ink::Added),
    (Found::Other, "changed", Ink::Changed),
    (Found::Same, "the same", Ink::Dim),
    (Found::Unknown, "unknown: fewer than two rounds", Ink::Dim),
];

/// A verdict as JSON.
#[derive(Serialize)]
struct Row {
    section: String,
    series: String,
    at: String,
    unit: String,
    before: f64,
    after: f64,
    change: f64,
    confidence: Option<f64>,
    outcome: Found,
}

/// A point of only one report, or one that is not comparable; `at` is empty for a distribution.
#[derive(Serialize)]
struct Place {
    section: String,
    series: String,
    at: String,
}

#[derive(Serialize)]
struct Comparison {
    bounds: Bounds,
    differences: Vec<String>,
    points: Vec<Row>,
    gone: Vec<Place>,
    new: Vec<Place>,
    failed: Vec<Refusal>,
    not_compared: Vec<Place>,
}

/// Runs the command. The command fails if a point became worse, is missing or failed, or if the
/// reports cannot be compared.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let (before, after) = (super::read(&args.before)?, super::read(&args.after)?);
    let bounds = Bounds {
        change: args.change / 100.0,
        chance: args.chance / 100.0,
    };
    let compared = compare(&before, &after, bounds);
    if compared.verdicts.is_empty() {
        return Err("the reports have no measured point in common".into());
    }
    let places = |all: &[Lone]| all.iter().map(place).collect::<Vec<_>>();
    let comparison = Comparison {
        bounds,
        differences: differences(&before, &after),
        points: compared.verdicts.iter().map(row).collect(),
        gone: places(&compared.gone),
        new: places(&compared.new),
        failed: compared.failed.into_iter().cloned().collect(),
        not_compared: places(&compared.distributions),
    };
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&comparison)?)?;
    } else {
        print(&comparison, args.all, out)?;
    }
    out.flush()?;
    let mut failures = Vec::new();
    let (worse, all) = (count(&comparison, Found::Worse), comparison.points.len());
    if worse > 0 {
        failures.push(format!("{worse} of {all} points have become worse"));
    }
    let gone = comparison.gone.len();
    if gone > 0 && !args.partial {
        failures.push(format!(
            "points missing from the second report: {gone} (--partial allows that)"
        ));
    }
    let failed = comparison.failed.len();
    if failed > 0 && !args.partial {
        failures.push(format!(
            "measurements that failed only in the second report: {failed} (--partial allows that)"
        ));
    }
    if count(&comparison, Found::Unknown) == all {
        failures.push("no point has two rounds in both reports: nothing can be compared".into());
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(failures.join("; ").into())
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=100.0).contains(&value) {
        Ok(value)
    } else {
        Err("not from 0 to 100".into())
    }
}

fn row(verdict: &Verdict) -> Row {
    Row {
        section: verdict.section.title.clone(),
        series: verdict.series.name.clone(),
        at: report::text::readable(&called(verdict.section, verdict.point)),
        unit: verdict.section.y.unit.clone(),
        before: verdict.before,
        after: verdict.after,
        change: verdict.change(),
        confidence: verdict.confidence,
        outcome: verdict.outcome,
    }
}

fn place(lone: &Lone) -> Place {
    let at = lone.point.map(|point| called(lone.section, point));
    Place {
        section: lone.section.title.clone(),
        series: lone.series.name.clone(),
        at: at.map_or_else(String::new, |at| report::text::readable(&at)),
    }
}

fn count(comparison: &Comparison, outcome: Found) -> usize {
    comparison
        .points
        .iter()
        .filter(|row| row.outcome == outcome)
        .count()
}

fn print(comparison: &Comparison, all: bool, out: &mut dyn Write) -> Outcome {
    let style = Style::of_stdout();
    for difference in &comparison.differences {
        writeln!(
            out,
            "{} {difference}",
            style.paint(Ink::Changed, "not alike:")
        )?;
    }
    for (outcome, name, ink) in OUTCOMES {
        let found = count(comparison, outcome);
        if found == 0 {
            continue;
        }
        writeln!(out, "{found} {}", style.paint(ink, name))?;
        if all || outcome != Found::Same {
            let rows = comparison
                .points
                .iter()
                .filter(|row| row.outcome == outcome);
            writeln!(out, "{}\n", points(rows).trim_fmt())?;
        }
    }
    for (places, name, ink) in [
        (
            &comparison.gone,
            "gone: only in the first report",
            Ink::Removed,
        ),
        (
            &comparison.new,
            "new: only in the second report",
            Ink::Added,
        ),
        (
            &comparison.not_compared,
            "not compared: distributions",
            Ink::Dim,
        ),
    ] {
        if places.is_empty() {
            continue;
        }
        writeln!(out, "{} {}", places.len(), style.paint(ink, name))?;
        if all || ink != Ink::Dim {
            let mut table = terminal::table(&["what", "of", "at"], &["at"]);
            for place in places {
                table.add_row([&place.section, &place.series, &place.at]);
            }
            writeln!(out, "{}\n", table.trim_fmt())?;
        }
    }
    if !comparison.failed.is_empty() {
        let name = style.paint(Ink::Removed, "failed: only in the second report");
        writeln!(out, "{} {name}", comparison.failed.len())?;
        let mut table = terminal::table(&["of", "at", "why"], &["at", "why"]);
        for Refusal { subject, at, why } in &comparison.failed {
            table.add_row([subject, at, why]);
        }
        writeln!(out, "{}\n", table.trim_fmt())?;
    }
    Ok(())
}

fn points<'a>(rows: impl Iterator<Item = &'a Row>) -> Table {
    let heads = [
        "what",
        "of",
        "at",
        "before",
        "after",
        "unit",
        "change",
        "confidence",
    ];
    let mut table = terminal::table(&heads, &["at", "before", "after", "change", "confidence"]);
    for row in rows {
        let confidence = match row.confidence {
            None => String::new(),
            Some(sure) if sure > 0.999 => "> 99.9 %".into(),
            Some(sure) => format!("{:.1} %", sure * 100.0),
        };
        table.add_row([
            &row.section,
            &row.series,
            &row.at,
            &number::rounded(row.before),
            &number::rounded(row.after),
            &row.unit,
            &format!("{:+.1} %", row.change * 100.0),
            &confidence,
        ]);
    }
    table
}
