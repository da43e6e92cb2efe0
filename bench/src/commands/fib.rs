//! `sidestep-bench fib`: prefix tables side by side.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::fib::plan::Scenario;
use crate::fib::subject::Kind;
use crate::fib::{Options, run as measure};
use crate::report;
use clap::builder::PossibleValuesParser;

use super::Outcome;
use super::bar::Bar;
use super::print::print;

/// Arguments of `fib`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct Args {
    /// Scenarios to measure [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)))]
    pub scenario: Vec<String>,
    /// Tables to compare with Sidestep's [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(Kind::ALL.map(|kind| kind.name)), hide_possible_values = true)]
    pub against: Vec<String>,
    /// File with one prefix per line, optionally compressed with gzip [default: an Internet table
    /// of 2026]
    #[arg(long, value_name = "FILE")]
    pub routes: Option<PathBuf>,
    /// Numbers of routes of the points, instead of the scenario's own
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub points: Vec<u32>,
    /// Use small tables and short rounds, to test that it works here
    #[arg(long)]
    pub quick: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Time limit in seconds for filling a table
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Folder for report.json, the page, plots and tables
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
    // Report an unwritable folder before an hour of measuring.
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    super::take_signals(&interrupted)?;
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
        Err("interrupted; the report contains the results so far".into())
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
