//! `sidestep check FILE`: validates a node file, and says what of it would be left to the kernel.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use sidestep_control::compile::Compiler;
use sidestep_datapath::Limits;
use sidestep_model::grammar::{Style, route};
use sidestep_model::route::Family;

use crate::{Outcome, node_file};

/// `RTPROT_KERNEL`.
const PROTOCOL_KERNEL: u8 = 2;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The YAML file
    pub file: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let node = node_file::read(&args.file)?;
    let file = args.file.display();
    let ports = node.links.keys().copied().collect::<BTreeSet<_>>();
    let compiled = Compiler::new(Limits::default())
        .compile(&node, &ports)
        .map_err(|error| format!("{file}: {error}"))?;
    for (key, why) in &compiled.index.unsupported {
        // What the kernel makes by itself is not in the file.
        if let Some(found) = node
            .routes
            .get(key)
            .filter(|found| found.protocol != PROTOCOL_KERNEL)
        {
            writeln!(
                out,
                "{file}: left to the kernel: {}: {why}",
                route::print(found, &node, Style::Add)
            )?;
        }
    }
    for ((port, family), why) in &compiled.index.punt_reasons {
        let name = node.links.get(port).map_or("?", |link| link.name.as_str());
        let family = match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        writeln!(
            out,
            "{file}: left to the kernel: {family} packets from {name}: {why}"
        )?;
    }
    let rules: usize = node.rules.values().map(Vec::len).sum();
    writeln!(
        out,
        "{file}: valid: {} ports, {} neighbors, {} routes and {rules} rules with those that the kernel makes by itself",
        node.links.len(),
        node.neighbors.len(),
        node.routes.len(),
    )?;
    Ok(())
}
