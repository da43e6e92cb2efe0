//! `sidestep vlan`: the VLAN tables of End.DX2V.

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Request, Verb};

use crate::Outcome;
use crate::show::List;

/// Arguments of `vlan`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add an entry
    Add(Words),
    /// Add an entry, or replace the one with the same table and VLAN ids
    Replace(Words),
    /// Remove an entry; `dev` is optional
    Del(Words),
    /// Show all entries
    Show(List),
}

/// An entry.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// table TABLE { vid VID [ inner VID ] | untagged } dev DEV
    #[arg(required = true, trailing_var_arg = true, value_name = "WORD")]
    pub words: Vec<String>,
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    let change = |verb, words: &Words| {
        api::call(Request::Vlan {
            verb,
            words: words.words.clone(),
        })?;
        Ok(())
    };
    match command {
        Command::Add(words) => change(Verb::Add, words),
        Command::Replace(words) => change(Verb::Replace, words),
        Command::Del(words) => change(Verb::Del, words),
        Command::Show(list) => list.show(Request::ShowVlans, "entry", out),
    }
}
