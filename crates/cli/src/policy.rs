//! `sidestep policy`: SR policies (RFC 9256), with their validity and counters.

use std::io::Write;

use comfy_table::Table;
use sidestep_control::api::{Noun, Request};
use sidestep_control::report;

use crate::entry::Entry;
use crate::show::{List, show};
use crate::{Outcome, tables};

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
    format!("  preference {}{state}", candidate.preference)
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
