//! `sidestep route`: Sidestep-only routes in iproute2 syntax, the counters of all routes, and the
//! route of an address.

use std::io::Write;

use sidestep_control::api::{Noun, Request};
use sidestep_control::report;
use sidestep_model::behavior::text;

use crate::entry::{self, Entry};
use crate::show::show;
use crate::{Outcome, route_get, tables};

/// Arguments of `route`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Commands of all Sidestep-only entries.
    #[command(flatten)]
    Entry(entry::Command<Route>),
    /// Print the route that the tables select for an address
    Get(route_get::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The daemon refuses the change or does not run, or there is no route.
    pub fn run(&self, out: &mut dyn Write) -> Outcome {
        match self {
            Self::Entry(command) => command.run(out),
            Self::Get(args) => route_get::run(args, out),
        }
    }
}

/// A route in iproute2 syntax. Prefix, table and metric are its key.
#[derive(Debug, clap::Args)]
#[command(after_long_help = text::help())]
pub struct Route {
    /// PREFIX encap seg6local action ACTION ... dev DEV [table T], or
    /// PREFIX encap seg6 mode MODE segs A,B,... dev DEV
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARG"
    )]
    pub args: Vec<String>,
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

impl Entry for Route {
    const NOUN: Noun = Noun::Route;
    type Show = Show;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(args: &Show, out: &mut dyn Write) -> Outcome {
        show(
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
        )
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
