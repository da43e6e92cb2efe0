//! `sidestep bench`: measurements, and their reports.

mod bar;
mod compare;
mod fib;
mod init;
mod list;
mod print;
mod report;
mod run;

use std::error::Error;
use std::io::Write;
use std::path::Path;

use clap::Subcommand;

use sidestep_bench::campaign;
use sidestep_bench::report as files;
use sidestep_bench::result::Report;

use crate::Outcome;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a campaign to start from: a YAML file with every key explained
    Init(init::Args),
    /// Measure engines and behaviors as a campaign says, and go on where it was interrupted
    Run(run::Args),
    /// Print engines and behaviors, and who can do what here
    List(list::Args),
    /// Compare IPv6 prefix tables, ours and others': lookups, memory, changes
    Fib(fib::Args),
    /// Make page, pictures and tables of a report.json again
    Report(report::Args),
    /// Tell what is faster or slower in the second of two reports, and how sure that is
    Compare(compare::Args),
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    match command {
        Command::Init(args) => init::run(args, out),
        Command::Run(args) => run::run(args, out),
        Command::List(args) => list::run(args, out),
        Command::Fib(args) => fib::run(args, out),
        Command::Report(args) => report::run(args, out),
        Command::Compare(args) => compare::run(args, out),
    }
}

/// The report of a file or a folder; a campaign's is made of its trials, also while it is not whole.
fn read(path: &Path) -> Result<Report, Box<dyn Error + Send + Sync>> {
    if campaign::log::is_campaign(path) {
        return Ok(campaign::report::read(path)?);
    }
    Ok(files::read(path)?)
}
