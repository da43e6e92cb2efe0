//! `sidestep rule`: Sidestep-only policy rules, in iproute2 syntax.

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Request, Verb};

use crate::Outcome;
use crate::show::List;

/// Arguments of `rule`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add a rule; without an address, it applies to IPv6 and IPv4
    Add(Words),
    /// Remove a rule, by the arguments that added it; the priority is optional
    Del(Words),
    /// Show the Sidestep-only rules
    Show(List),
}

/// A rule in iproute2 syntax.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// [ from PREFIX ] [ to PREFIX ] [ iif DEV ] { lookup TABLE | seg6local-behaviour PROXY | ... }
    /// [ priority NUMBER ]
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
