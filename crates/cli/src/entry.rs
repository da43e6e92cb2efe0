//! `sidestep route|rule|policy|vlan|domain|protect|reflector add|replace|del|show`: entries that exist only in
//! Sidestep.

use std::io::Write;

use clap::Subcommand;
use sidestep_control::api::{self, Noun, Request, Verb};
use sidestep_control::report;

use crate::show::{self, List};
use crate::{Outcome, tables};

/// Kind of entry: the arguments that describe one, and the output of `show`.
pub trait Entry: clap::Args {
    /// Its noun in requests.
    const NOUN: Noun;
    /// Arguments of `show`.
    type Show: clap::Args;

    /// Returns the arguments of an entry.
    fn args(&self) -> &[String];

    /// Prints the entries.
    ///
    /// # Errors
    /// The daemon does not run, or standard output cannot be written.
    fn show(show: &Self::Show, out: &mut dyn Write) -> Outcome;
}

/// Subcommands for a kind of entry.
#[derive(Debug, Subcommand)]
pub enum Command<E: Entry> {
    /// Add an entry; fails if it exists
    Add(E),
    /// Add an entry, or replace the one with the same key
    Replace(E),
    /// Remove an entry
    Del(E),
    /// Show all entries
    Show(E::Show),
}

impl<E: Entry> Command<E> {
    /// Runs the command.
    ///
    /// # Errors
    /// The daemon refuses the change or does not run.
    pub fn run(&self, out: &mut dyn Write) -> Outcome {
        let (verb, entry) = match self {
            Self::Add(entry) => (Verb::Add, entry),
            Self::Replace(entry) => (Verb::Replace, entry),
            Self::Del(entry) => (Verb::Del, entry),
            Self::Show(show) => return E::show(show, out),
        };
        api::call(Request::Change {
            noun: E::NOUN,
            verb,
            args: entry.args().to_vec(),
        })?;
        Ok(())
    }
}

/// A policy rule in iproute2 syntax.
#[derive(Debug, clap::Args)]
pub struct Rule {
    /// [ from PREFIX ] [ to PREFIX ] [ iif DEV ] { lookup TABLE | seg6local-behaviour PROXY | ... }
    /// [ priority NUMBER ]
    ///
    /// Without an address, the rule applies to IPv6 and IPv4. For `del`, the priority is optional.
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

impl Entry for Rule {
    const NOUN: Noun = Noun::Rule;
    type Show = List;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(list: &List, out: &mut dyn Write) -> Outcome {
        list.show(Request::ShowRules, "rule", out)
    }
}

/// An entry of a VLAN table of End.DX2V. Table and VLAN ids are its key.
#[derive(Debug, clap::Args)]
pub struct Vlan {
    /// table TABLE { vid VID [ inner VID ] | untagged } dev DEV
    ///
    /// For `del`, `dev` is optional.
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

impl Entry for Vlan {
    const NOUN: Noun = Noun::Vlan;
    type Show = List;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(list: &List, out: &mut dyn Write) -> Outcome {
        list.show(Request::ShowVlans, "entry", out)
    }
}

/// An entry of the SR domain, which protects its SIDs from packets of outside ports (RFC 8754 5.1).
#[derive(Debug, clap::Args)]
pub struct Domain {
    /// sid-block PREFIX | inside DEV
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

impl Entry for Domain {
    const NOUN: Noun = Noun::Domain;
    type Show = List;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(list: &List, out: &mut dyn Write) -> Outcome {
        list.show(Request::ShowDomain, "entry", out)
    }
}

/// The protection of a next hop, or of all next hops of a link.
#[derive(Debug, clap::Args)]
pub struct Protect {
    /// DEV [ via ADDRESS ] by { segs A,B,... [ mode encap | encap.red ] [ lookup TABLE ] |
    /// via ADDRESS dev DEV } [ path NAME ]
    ///
    /// For `del`, DEV and ADDRESS are enough.
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

impl Entry for Protect {
    const NOUN: Noun = Noun::Protect;
    type Show = List;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(list: &List, out: &mut dyn Write) -> Outcome {
        show::show(
            Request::ShowProtections,
            list.json,
            out,
            |all: &report::Protections| vec![tables::protections(all)],
        )
    }
}

/// A reflector of S-BFD (RFC 7880): probes for its discriminator are answered in the packet path.
#[derive(Debug, clap::Args)]
pub struct Reflector {
    /// DISCRIMINATOR [ admin-down ]
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

impl Entry for Reflector {
    const NOUN: Noun = Noun::Reflector;
    type Show = List;

    fn args(&self) -> &[String] {
        &self.args
    }

    fn show(list: &List, out: &mut dyn Write) -> Outcome {
        show::show(
            Request::ShowReflectors,
            list.json,
            out,
            |reflectors: &report::Reflectors| vec![tables::reflectors(reflectors)],
        )
    }
}
