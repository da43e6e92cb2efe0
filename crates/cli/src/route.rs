//! `sidestep route`: Sidestep-only routes in iproute2 syntax, and the counters of all routes.

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
    /// Add a Sidestep-only route
    #[command(after_long_help = text::help())]
    Add(Words),
    /// Add a route, or replace the one with the same prefix, table and metric
    #[command(after_long_help = text::help())]
    Replace(Words),
    /// Remove a Sidestep-only route
    Del(Words),
    /// Show the routes with an SRv6 encapsulation and the Sidestep-only routes
    Show(Show),
}

/// A route in iproute2 syntax.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// PREFIX encap seg6local action ACTION ... dev DEV [table T]; or PREFIX encap seg6 mode MODE
    /// segs A,B,... dev DEV
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub words: Vec<String>,
}

/// Arguments of `route show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Show counters
    #[arg(short, long)]
    pub statistics: bool,
    /// Show all routes, including those without SRv6
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
    let mut table = tables::table(&["owner", "route", "punted because"], &[]);
    for route in routes {
        table.add_row([
            &route.owner,
            &route.route,
            route.punt_reason.as_deref().unwrap_or(""),
        ]);
    }
    table
}
