//! `sidestep rule`: policy rules of Sidestep's own, in iproute2's words.

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Request, Verb};

use crate::Outcome;
use crate::show::List;

/// Arguments of `rule`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add a rule; without an address it is one for IPv6 and one for IPv4
    Add(Words),
    /// Remove a rule, by the words that added it; the priority may be left out
    Del(Words),
    /// Show Sidestep's own rules
    Show(List),
}

/// A rule in iproute2's words.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// [ from PREFIX ] [ to PREFIX ] [ iif DEV ] { lookup TABLE | seg6local-behaviour PROXY | ... } [ priority NUMBER ]
    #[arg(required = true, trailing_var_arg = true, value_name = "WORD")]
    pub words: Vec<String>,
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    let change = |verb, words: &Words| {
        api::call(Request::Rule {
            verb,
            words: words.words.clone(),
        })?;
        Ok(())
    };
    match command {
        Command::Add(words) => change(Verb::Add, words),
        Command::Del(words) => change(Verb::Del, words),
        Command::Show(list) => list.show(Request::ShowRules, "rule", out),
    }
}
