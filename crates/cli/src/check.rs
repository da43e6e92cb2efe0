//! `sidestep check FILE`: validates a node file, and prints the parts that are punted to the
//! kernel.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use sidestep_control::compile::Compiler;
use sidestep_datapath::Limits;
use sidestep_model::grammar::{Style, route};
use sidestep_model::route::{Family, Owner};

use crate::tables::count;
use crate::{Outcome, node_file};

/// `RTPROT_KERNEL`.
const PROTOCOL_KERNEL: u8 = 2;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Node file (YAML)
    pub file: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let (_, file) = node_file::read_text(&args.file)?;
    let node = node_file::node(&file, &args.file)?;
    let has_ports = file.has_ports();
    let file = args.file.display();
    let ports = node.links.keys().copied().collect::<BTreeSet<_>>();
    let compiled = Compiler::new(Limits::default())
        .compile(&node, &ports)
        .map_err(|error| format!("{file}: {error}"))?;
    for (key, why) in &compiled.index.unsupported {
        // Routes that the kernel adds by itself are not in the file.
        if let Some(found) = node
            .routes
            .get(key)
            .filter(|found| found.protocol != PROTOCOL_KERNEL)
        {
            writeln!(
                out,
                "{file}: punted to the kernel: {}: {why}",
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
            "{file}: punted to the kernel: {family} packets from {name}: {why}"
        )?;
    }
    if node.links.is_empty() {
        let add = if has_ports {
            "`sidestep port add` adds them"
        } else {
            "`sidestep run` needs them on its command line"
        };
        writeln!(out, "{file}: no ports: {add}")?;
    }
    let rules: usize = node.rules.values().map(Vec::len).sum();
    let routes = node.routes.values();
    let sidestep_only = routes.filter(|route| route.owner == Owner::Sidestep);
    writeln!(
        out,
        "{file}: valid: {}, {}, {} ({} Sidestep-only) and {}, including those that the kernel adds",
        count(node.links.len() as u64, "port"),
        count(node.neighbors.len() as u64, "neighbor"),
        count(node.routes.len() as u64, "route"),
        sidestep_only.count(),
        count(rules as u64, "rule"),
    )?;
    Ok(())
}
