//! The `sidestep-bench` command: its command tree, and one module for each command.
//!
//! Exit codes are stable: 0 success, 1 the operation failed or a report became worse, 2 wrong usage.

mod bar;
mod compare;
mod completion;
mod conform;
mod converge;
mod fib;
mod init;
mod list;
mod print;
mod report;
mod run;
mod terminal;

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::campaign;
use crate::report as files;
use crate::result::Report;

/// Result of a command: nothing, or one line that names the problem and its place.
pub type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Benchmark of SRv6 data planes and IPv6 prefix tables.
#[derive(Debug, Parser)]
#[command(name = "sidestep-bench", version = crate::VERSION, about, max_term_width = 120)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a campaign template: a YAML file with every key explained
    Init(init::Args),
    /// Run a campaign: measure engines and behaviors, and resume after an interruption
    Run(run::Args),
    /// Print engines and behaviors, and which engine supports which behavior on this machine
    List(list::Args),
    /// Send packets of the RFCs through engines, and print which clauses hold
    Conform(conform::Args),
    /// Change the path of many routes while packets pass, and print how long they take the old way
    Converge(converge::Args),
    /// Compare IPv6 prefix tables of Sidestep and others: lookups, memory, changes
    Fib(fib::Args),
    /// Render page, plots and tables of a report.json again
    Report(report::Args),
    /// Print what became faster or slower between two reports, with its confidence
    Compare(compare::Args),
    /// Print a completion script for a shell
    Completion(completion::Args),
}

impl Cli {
    /// Runs the command.
    pub fn run(&self) -> Outcome {
        let out: &mut dyn Write = &mut io::BufWriter::new(io::stdout().lock());
        let outcome = match &self.command {
            Command::Init(args) => init::run(args, out),
            Command::Run(args) => run::run(args, out),
            Command::List(args) => list::run(args, out),
            Command::Conform(args) => conform::run(args, out),
            Command::Converge(args) => converge::run(args, out),
            Command::Fib(args) => fib::run(args, out),
            Command::Report(args) => report::run(args, out),
            Command::Compare(args) => compare::run(args, out),
            Command::Completion(args) => completion::run(args, out),
        };
        outcome.and(out.flush().map_err(Into::into))
    }
}

/// Whether the reader of standard output closed it.
pub fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns the report of a file or a folder. The report of a campaign is generated from its trials,
/// also if the campaign is incomplete.
fn read(path: &Path) -> Result<Report, Box<dyn Error + Send + Sync>> {
    if campaign::log::is_campaign(path) {
        return Ok(campaign::report::read(path)?);
    }
    Ok(files::read(path)?)
}

/// Makes termination signals set this flag, so that the program can clean up. SIGHUP remains
/// ignored if nohup(1) started the program.
fn take_signals(wanted: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if !(signal == SIGHUP && is_ignored(signal)) {
            signal_hook::flag::register(signal, Arc::clone(wanted))?;
        }
    }
    Ok(())
}

/// Whether this process ignores a signal since its start (`SigIgn` of `proc_pid_status(5)`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
