//! `sidestep bench compare BEFORE AFTER`: what has changed between two reports.

use std::io::Write;
use std::path::PathBuf;

use comfy_table::Table;
use serde::Serialize;
use sidestep_bench::compare::{Bounds, Outcome as Found, Verdict, compare, differences};
use sidestep_bench::report::{self, number, table};

use crate::style::{Ink, Style};
use crate::{Outcome, tables};

/// Arguments of `bench compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A report.json, the folder that holds it, or a campaign's
    pub before: PathBuf,
    /// The report of the same measurements to compare with it
    pub after: PathBuf,
    /// Smallest change of the mean that counts
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    pub change: f64,
    /// How many of the changes that are told may be there by chance
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub chance: f64,
    /// Print the points that did not change, too
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON, always with all points
    #[arg(short, long)]
    pub json: bool,
}

/// What is printed, in this order.
const OUTCOMES: [(Found, &str, Ink); 5] = [
    (Found::Worse, "worse", Ink::Removed),
    (Found::Better, "better", Ink::Added),
    (Found::Other, "changed", Ink::Changed),
    (Found::Same, "the same", Ink::Dim),
    (Found::Unknown, "unknown: fewer than two rounds", Ink::Dim),
];

/// A verdict, as JSON has it.
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

#[derive(Serialize)]
struct Comparison {
    bounds: Bounds,
    differences: Vec<String>,
    points: Vec<Row>,
}

/// Runs the command. Points that became worse are a failure.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let (before, after) = (super::read(&args.before)?, super::read(&args.after)?);
    let bounds = Bounds {
        change: args.change / 100.0,
        chance: args.chance / 100.0,
    };
    let verdicts = compare(&before, &after, bounds);
    if verdicts.is_empty() {
        return Err("the reports have no measured point in common".into());
    }
    let comparison = Comparison {
        bounds,
        differences: differences(&before, &after),
        points: verdicts.iter().map(row).collect(),
    };
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&comparison)?)?;
    } else {
        print(&comparison, args.all, out)?;
    }
    match count(&comparison, Found::Worse) {
        0 => Ok(()),
        worse => {
            out.flush()?;
            Err(format!(
                "{worse} of {} points have become worse",
                comparison.points.len()
            )
            .into())
        }
    }
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
        at: report::text::readable(&table::place(&verdict.section.x, verdict.x)),
        unit: verdict.section.y.unit.clone(),
        before: verdict.before,
        after: verdict.after,
        change: verdict.change(),
        confidence: verdict.confidence,
        outcome: verdict.outcome,
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
        if all || outcome < Found::Same {
            let rows = comparison
                .points
                .iter()
                .filter(|row| row.outcome == outcome);
            writeln!(out, "{}\n", points(rows).trim_fmt())?;
        }
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
    let mut table = tables::table(&heads, &["at", "before", "after", "change", "confidence"]);
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
