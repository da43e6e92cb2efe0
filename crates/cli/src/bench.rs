//! `sidestep bench`: measurements, and their reports.

mod bar;
mod compare;
mod fib;
mod print;
mod report;

use std::io::Write;

use clap::Subcommand;

use crate::Outcome;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
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
        Command::Fib(args) => fib::run(args, out),
        Command::Report(args) => report::run(args, out),
        Command::Compare(args) => compare::run(args, out),
    }
}
