//! `sidestep-bench converge`: packets after a change of their path.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::builder::PossibleValuesParser;

use super::bar::Bar;
use super::print::print;
use super::{Outcome, take_signals};
use crate::converge::{Change, Options, run as measure};
use crate::report;

/// Arguments of `converge`.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct Args {
    /// Changes to make [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(Change::ALL.map(|change| change.name)), hide_possible_values = true)]
    pub change: Vec<String>,
    /// Data planes: linux, tc and xdp for Sidestep in a mode
    #[arg(short, long, value_name = "ENGINE", value_delimiter = ',', default_value = "linux,tc,xdp", value_parser = PossibleValuesParser::new(["linux", "tc", "xdp"]), hide_possible_values = true)]
    pub engine: Vec<String>,
    /// Numbers of service routes
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1000,10000,50000,200000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub routes: Vec<u32>,
    /// Packets per second
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub rate: u32,
    /// Repetitions of each point
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Time for which packets are sent after the change, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub after: u32,
    /// Folder for report.json, the page, plots and tables
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Print JSON, as in report.json
    #[arg(short, long)]
    pub json: bool,
}

fn help() -> String {
    let changes = Change::ALL.map(|change| format!("\n  {:<16} {}", change.name, change.about));
    format!("Changes:{}", changes.concat())
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    take_signals(&interrupted)?;
    let chosen = args.change.iter().filter_map(|name| Change::named(name));
    let all = Change::ALL
        .iter()
        .filter_map(|change| Change::named(change.name));
    let options = Options {
        changes: match args.change[..] {
            [] => all.collect(),
            _ => chosen.collect(),
        },
        engines: args.engine.clone(),
        routes: args.routes.iter().map(|routes| *routes as usize).collect(),
        rate: args.rate,
        rounds: args.rounds as usize,
        after: Duration::from_secs(args.after.into()),
    };
    let measured = measure(&options, &interrupted, &mut Bar::new())?;
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
