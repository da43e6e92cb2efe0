//! `sidestep domain`: the SR domain, which protects its SIDs from packets of outside ports (RFC
//! 8754 5.1).

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Request, Verb};

use crate::Outcome;
use crate::show::List;

/// Arguments of `domain`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add an entry
    Add(Words),
    /// Add an entry unless it exists
    Replace(Words),
    /// Remove an entry
    Del(Words),
    /// Show all entries
    Show(List),
}

/// An entry.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// sid-block PREFIX | inside DEV
    #[arg(required = true, trailing_var_arg = true, value_name = "WORD")]
    pub words: Vec<String>,
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    let change = |verb, words: &Words| {
        api::call(Request::Domain {
            verb,
            words: words.words.clone(),
        })?;
        Ok(())
    };
    match command {
        Command::Add(words) => change(Verb::Add, words),
        Command::Replace(words) => change(Verb::Replace, words),
        Command::Del(words) => change(Verb::Del, words),
        Command::Show(list) => list.show(Request::ShowDomain, "entry", out),
    }
}
