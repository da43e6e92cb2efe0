//! The `sidestep-bench` program.

use std::process::ExitCode;

use clap::Parser;
use sidestep_bench::commands::{Cli, is_broken_pipe};

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of standard output has closed it (`| head`).
        Err(error) if is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
