//! `sidestep bench fib`: prefix tables side by side.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use comfy_table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use sidestep_bench::fib::plan::Scenario;
use sidestep_bench::fib::subject::Kind;
use sidestep_bench::fib::{Options, Progress, run as measure};
use sidestep_bench::report::{self, number, table, text};
use sidestep_bench::result::{Report, Section};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Outcome;
use crate::style::{Ink, Style};
use crate::tables;

/// Arguments of `bench fib`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct Args {
    /// What is measured [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)))]
    pub scenario: Vec<String>,
    /// What Sidestep's tables are compared with [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(Kind::ALL.map(|kind| kind.name)), hide_possible_values = true)]
    pub against: Vec<String>,
    /// Prefixes, one a line, also packed by gzip [default: an Internet table of 2026]
    #[arg(long, value_name = "FILE")]
    pub routes: Option<PathBuf>,
    /// Routes of each point, instead of the scenario's own
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub points: Vec<u32>,
    /// Small tables and short rounds: whether it works here, in seconds
    #[arg(long)]
    pub quick: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds that a table may take to be filled, before it is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Where to put report.json and what is made of it: a page, pictures, tables
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Print JSON, as in report.json
    #[arg(short, long)]
    pub json: bool,
}

fn help() -> String {
    let kinds = Kind::ALL.map(|kind| format!("\n  {:<14} {}", kind.name, kind.about));
    format!("Subjects:{}", kinds.concat())
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    // What cannot be written is said before an hour of measuring.
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let measured = measure(&options(args), &interrupted, &mut Bar::new())?;
    if let Some(folder) = &args.output {
        report::write(&measured, folder)?;
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &measured)?;
        writeln!(out)?;
    } else {
        print(&measured, out)?;
    }
    if measured.complete {
        Ok(())
    } else {
        Err("interrupted; what was measured until then is in the report".into())
    }
}

fn options(args: &Args) -> Options {
    let scenarios = args
        .scenario
        .iter()
        .filter_map(|name| Scenario::named(name));
    let chosen = |kind: &Kind| {
        args.against.is_empty()
            || kind.is_ours()
            || args.against.iter().any(|name| name == kind.name)
    };
    Options {
        scenarios: match args.scenario[..] {
            [] => Scenario::ALL.to_vec(),
            _ => scenarios.collect(),
        },
        routes: args.routes.clone(),
        against: Kind::ALL.into_iter().filter(chosen).collect(),
        sizes: args.points.iter().map(|size| *size as usize).collect(),
        quick: args.quick,
        seed: args.seed,
        limit: Duration::from_secs(args.limit.into()),
    }
}

/// A bar on the terminal, with the time left; nothing elsewhere.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %, {eta} left  {wide_msg}");
        Self(ProgressBar::new(1).with_style(style.expect("the template is a constant")))
    }
}

impl Progress for Bar {
    fn plan(&mut self, steps: usize) {
        self.0.set_length(steps as u64);
    }

    fn step(&mut self, what: &str) {
        self.0.inc(1);
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The report as text: a table for each picture.
fn print(report: &Report, out: &mut dyn Write) -> Outcome {
    let style = Style::of_stdout();
    for section in &report.sections {
        let title = style.paint(Ink::Title, &section.title);
        writeln!(out, "{title}: {}", table::head(&section.y))?;
        writeln!(out, "{}\n", rows(section))?;
    }
    let refusals = Some(table::refusals(&report.refusals)).filter(|table| !table.rows.is_empty());
    for table in report.tables.iter().chain(&refusals) {
        writeln!(out, "{}", style.paint(Ink::Title, &table.title))?;
        writeln!(out, "{}\n", told(table))?;
    }
    Ok(())
}

/// A row for each series, a column for each place on the axis: there are more series than places.
fn rows(section: &Section) -> Table {
    let places = table::places(section);
    let mut heads = vec![table::head(&section.x)];
    heads.extend(places.iter().map(|place| number::rounded(*place)));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut rows = tables::table(&heads, &heads[1..]);
    for series in &section.series {
        let values = places.iter().map(|place| {
            let point = table::at(series, *place);
            point.map_or_else(String::new, |point| number::rounded(point.value))
        });
        rows.add_row(std::iter::once(table::legend(series)).chain(values));
    }
    rows
}

fn told(from: &sidestep_bench::result::Table) -> Table {
    let heads: Vec<&str> = from.heads.iter().map(String::as_str).collect();
    let numbers = (0..heads.len()).filter(|column| text::is_numeric(from, *column));
    let numbers: Vec<&str> = numbers.map(|column| heads[column]).collect();
    let mut table = tables::table(&heads, &numbers);
    for row in &from.rows {
        table.add_row(row.iter().map(text::readable));
    }
    table
}
