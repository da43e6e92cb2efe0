//! `sidestep port`: adds ports to a running daemon, and removes them.

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Request};
use sidestep_control::report::AddedPort;

use crate::Outcome;

/// Arguments of `port`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Attach to an interface; if it does not exist, as soon as it does
    Add {
        /// Interface
        #[arg(value_name = "DEV")]
        name: String,
    },
    /// Detach from an interface; the kernel alone forwards its packets
    Del {
        /// Interface
        #[arg(value_name = "DEV")]
        name: String,
    },
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    match command {
        Command::Add { name } => {
            let request = Request::AddPort { name: name.clone() };
            let port: AddedPort = api::ask(request)?;
            match port.target {
                Some(target) => writeln!(out, "forwarding on {name} ({target})")?,
                None => writeln!(
                    out,
                    "waiting for {name}: there is no such interface; Sidestep attaches to it when \
                     it appears"
                )?,
            }
        }
        Command::Del { name } => {
            api::call(Request::DelPort { name: name.clone() })?;
        }
    }
    Ok(())
}
