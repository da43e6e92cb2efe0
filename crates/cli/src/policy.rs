//! `sidestep policy`: SR policies (RFC 9256), with their validity and counters.

use std::io::{Read, Write};
use std::path::PathBuf;

use clap::Subcommand;
use comfy_table::Table;
use sidestep_control::api::{self, Noun, Request, policy_batch};
use sidestep_control::report;

use crate::entry::{self, Entry};
use crate::show::{List, show};
use crate::{Outcome, tables};

/// Arguments of `policy`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Commands of all Sidestep-only entries.
    #[command(flatten)]
    Entry(entry::Command<Policy>),
    /// Apply a batch of candidate paths of a controller, all or nothing
    #[command(after_help = "The batch is a JSON document, as a controller sends it on the socket")]
    Apply(Apply),
}

/// Arguments of `policy apply`.
#[derive(Debug, clap::Args)]
pub struct Apply {
    /// Batch (JSON); `-` reads standard input
    pub file: PathBuf,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The daemon refuses the change or does not run, or the batch cannot be read.
    pub fn run(&self, out: &mut dyn Write) -> Outcome {
        match self {
            Self::Entry(command) => command.run(out),
            Self::Apply(args) => apply(args, out),
        }
    }
}

fn apply(args: &Apply, out: &mut dyn Write) -> Outcome {
    let name = args.file.display();
    let mut text = String::new();
    let read = if args.file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(&args.file).map(|read| text = read)
    };
    read.map_err(|error| format!("{name}: {error}"))?;
    let batch: policy_batch::PolicyBatch =
        policy_batch::parse(&text).map_err(|error| format!("{name}: {error}"))?;
    let operations = batch.operations.clone();
    let applied: report::PolicyBatch = api::ask(Request::PolicyBatch { batch })?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&applied)?)?;
        return Ok(());
    }
    for (operation, result) in operations.iter().zip(&applied.results) {
        let (policy, number) = (&result.policy, operation.discriminator);
        let word = outcome_word(result.result);
        writeln!(out, "policy {policy} discriminator {number}: {word}")?;
    }
    for path in &applied.withdrawn {
        let (color, endpoint, number) = (path.color, &path.endpoint, path.discriminator);
        writeln!(
            out,
            "policy color {color} endpoint {endpoint} discriminator {number}: withdrawn"
        )?;
    }
    Ok(())
}

fn outcome_word(outcome: report::Outcome) -> &'static str {
    match outcome {
        report::Outcome::Added => "added",
        report::Outcome::Replaced => "replaced",
        report::Outcome::Withdrawn => "withdrawn",
        report::Outcome::Unchanged => "unchanged",
    }
}

/// A policy. Its name is its key, and enough for `del`.
#[derive(Debug, clap::Args)]
pub struct Policy {
    /// NAME color N endpoint ADDRESS [bsid SID] [mode encap|encap.red] [tunsrc ADDRESS]
    /// [hmac KEYID] [drop-upon-invalid] {[preference N] segs A,B,... [weight N] ...}
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

impl Entry for Policy {
    const NOUN: Noun = Noun::Policy;
    type Show = List;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(list: &List, out: &mut dyn Write) -> Outcome {
        show(
            Request::ShowPolicies,
            list.json,
            out,
            |policies: &report::Policies| vec![table(policies)],
        )
    }
}

/// Returns a table of the policies, with their candidate paths and segment lists.
fn table(policies: &report::Policies) -> Table {
    let heads = ["packets", "bytes", "share", "policy"];
    let mut table = tables::table(&heads, &heads[..3]);
    for policy in policies {
        table.add_row(["", "", "", &policy_words(policy)]);
        for candidate in &policy.candidates {
            table.add_row(["", "", "", &candidate_words(candidate)]);
            for list in &candidate.lists {
                let share = list.share.map_or_else(String::new, |(own, all)| {
                    format!("{:.1} %", f64::from(own) * 100.0 / f64::from(all))
                });
                let numbers = [list.packets.to_string(), list.bytes.to_string(), share];
                table.add_row(numbers.into_iter().chain([list_words(list)]));
            }
        }
        for route in &policy.routes {
            table.add_row(["", "", "", &format!("  route {route}")]);
        }
    }
    table
}

fn policy_words(policy: &report::Policy) -> String {
    let bsid = policy.bsid.as_ref();
    let bsid = bsid.map_or_else(String::new, |sid| format!(" bsid {sid}"));
    let state = match (policy.active, policy.drop_upon_invalid) {
        (Some(_), _) => "",
        (None, true) => ": invalid, drops",
        (None, false) => ": invalid",
    };
    let (name, color, endpoint) = (&policy.name, policy.color, &policy.endpoint);
    format!("{name} color {color} endpoint {endpoint}{bsid}{state}")
}

fn candidate_words(candidate: &report::Candidate) -> String {
    let state = if candidate.active { ": active" } else { "" };
    let path = candidate.path.id();
    let of = if path.is_configured() {
        String::new()
    } else {
        format!(" {path}")
    };
    format!("  preference {}{of}{state}", candidate.preference)
}

fn list_words(list: &report::SegmentList) -> String {
    let why = list.invalid.as_ref();
    let why = why.map_or_else(String::new, |why| format!(": invalid, {why}"));
    format!(
        "    segs {} weight {}{why}",
        list.segments.join(","),
        list.weight
    )
}
