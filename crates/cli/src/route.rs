//! `sidestep route`: routes that Linux cannot express, in iproute2's words; and all routes with their counters.

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Request, Verb};
use sidestep_control::report;
use sidestep_model::behavior::text;

use crate::show::show;
use crate::{Outcome, tables};

/// Arguments of `route`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add a route of Sidestep's own
    #[command(after_long_help = text::help())]
    Add(Words),
    /// Add a route, or put it in the place of the one with its prefix, table and metric
    #[command(after_long_help = text::help())]
    Replace(Words),
    /// Remove a route of Sidestep's own
    Del(Words),
    /// Show routes: those with an SRv6 encapsulation, and Sidestep's own
    Show(Show),
}

/// A route in iproute2's words.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// PREFIX encap seg6local action ACTION ... dev DEV [table T]; or PREFIX encap seg6 mode MODE segs A,B,... dev DEV
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub words: Vec<String>,
}

/// What to show of routes.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// With counters
    #[arg(short, long)]
    pub statistics: bool,
    /// All routes, plain ones too
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(command: &Command, out: &mut dyn Write) -> Outcome {
    let change = |verb, words: &Words| {
        api::call(Request::Route {
            verb,
            words: words.words.clone(),
        })?;
        Ok(())
    };
    match command {
        Command::Add(words) => change(Verb::Add, words),
        Command::Replace(words) => change(Verb::Replace, words),
        Command::Del(words) => change(Verb::Del, words),
        Command::Show(args) => show(
            Request::ShowRoutes { all: args.all },
            args.json,
            out,
            |routes: &report::Routes| {
                vec![if args.statistics {
                    tables::routes(routes)
                } else {
                    plain(routes)
                }]
            },
        ),
    }
}

fn plain(routes: &[report::Route]) -> comfy_table::Table {
    let mut table = tables::table(&["owner", "route", "left to the kernel"], &[]);
    for route in routes {
        table.add_row([
            &route.owner,
            &route.route,
            route.punt_reason.as_deref().unwrap_or(""),
        ]);
    }
    table
}
