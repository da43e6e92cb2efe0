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
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

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

/// Has signals that end a program raise this instead, so that what was made is taken down. A program that was started by
/// nohup(1) goes on when its terminal is closed.
fn take_signals(wanted: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if !(signal == SIGHUP && is_ignored(signal)) {
            signal_hook::flag::register(signal, Arc::clone(wanted))?;
        }
    }
    Ok(())
}

/// Whether whoever started this program has a signal ignored (`SigIgn` of `proc_pid_status(5)`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
