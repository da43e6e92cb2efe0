//! The `sidestep` program.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match sidestep_cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of standard output has closed it, as `| head` does.
        Err(error) if sidestep_cli::is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep: {error}");
            sidestep_cli::exit_code(error.as_ref())
        }
    }
}
