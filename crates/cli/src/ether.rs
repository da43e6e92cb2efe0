//! `sidestep ether`: Ethernet devices whose frames take a segment list, with their counters.

use std::io::Write;

use clap::Subcommand;
use comfy_table::Table;
use sidestep_control::api::{self, Noun, Request, Verb};
use sidestep_control::report;

use crate::show::show;
use crate::{Outcome, tables};

/// Arguments of `ether`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a device; fails if it exists
    Add(Device),
    /// Change a device; keep everything that is not named
    Set(Device),
    /// Connect an interface to the far end of a device, without a bridge
    Attach(Attach),
    /// End the connection of an interface
    Detach(Name),
    /// Remove a device
    Del(Name),
    /// Show all devices
    Show(Show),
}

/// A device. Its name is its key.
#[derive(Debug, clap::Args)]
pub struct Device {
    /// NAME { segs A,B,... | policy NAME } [red] [mtu N] [tunsrc ADDRESS]
    /// [attach DEV [ all | untagged | vlan VID [inner VID] ]
    /// [ rewrite pop | push VID | translate VID ]]
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

/// An interface, its frames, and the device.
#[derive(Debug, clap::Args)]
pub struct Attach {
    /// DEV [ all | untagged | vlan VID [inner VID] ] [ rewrite pop | push VID | translate VID ]
    /// to NAME
    #[arg(required = true, trailing_var_arg = true, value_name = "ARG")]
    pub args: Vec<String>,
}

/// The name of a device.
#[derive(Debug, clap::Args)]
pub struct Name {
    /// Name of the device
    pub name: String,
}

/// Arguments of `ether show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Add counters
    #[arg(short, long)]
    pub stats: bool,
    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The daemon refuses the change or does not run.
    pub fn run(&self, out: &mut dyn Write) -> Outcome {
        let (verb, args) = match self {
            Self::Add(device) => (Verb::Add, device.args.clone()),
            Self::Set(device) => (Verb::Replace, device.args.clone()),
            Self::Attach(attach) => (Verb::Replace, attached(&attach.args)?),
            Self::Detach(device) => (Verb::Replace, vec![device.name.clone(), "detach".into()]),
            Self::Del(device) => (Verb::Del, vec![device.name.clone()]),
            Self::Show(args) => {
                return show(
                    Request::ShowEthers,
                    args.json,
                    out,
                    |devices: &report::Ethers| vec![table(devices, args.stats)],
                );
            }
        };
        api::call(Request::Change {
            noun: Noun::Ether,
            verb,
            args,
        })?;
        Ok(())
    }
}

/// Returns `DEV … to NAME` as the arguments of a change: `NAME attach DEV …`.
pub(crate) fn attached(args: &[String]) -> Result<Vec<String>, String> {
    let words: Vec<&str> = args.iter().flat_map(|arg| arg.split_whitespace()).collect();
    let [frames @ .., "to", name] = &words[..] else {
        return Err("missing `to NAME` at the end; expected DEV [FRAMES] to NAME".into());
    };
    let words = [*name, "attach"].into_iter().chain(frames.iter().copied());
    Ok(words.map(str::to_owned).collect())
}

/// Returns a table of the devices.
fn table(devices: &report::Ethers, stats: bool) -> Table {
    let heads = ["sent", "dropped", "received", "state", "device"];
    let heads = if stats { &heads[..] } else { &heads[3..] };
    let numbers = if stats { &heads[..3] } else { &[] };
    let mut table = tables::table(heads, numbers);
    for device in devices {
        let numbers = [
            device.encapsulated_packets,
            device.dropped_packets,
            device.delivered_packets,
        ];
        let numbers = numbers.iter().filter(|_| stats).map(u64::to_string);
        table.add_row(numbers.chain([state(device), device.words.clone()]));
    }
    table
}

/// Returns the state of a device in words.
fn state(device: &report::Ether) -> String {
    match &device.invalid {
        Some(why) => format!("no carrier: {why}"),
        None if device.up => "up".into(),
        None => "down".into(),
    }
}
