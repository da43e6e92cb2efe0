//! `sidestep check FILE`: validates a node file as `run` and `config apply` do.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use sidestep_control::compile::Compiler;
use sidestep_control::daemon::DaemonError;
use sidestep_control::doctor::Plan;
use sidestep_datapath::Limits;
use sidestep_model::config::File;
use sidestep_model::grammar::{Style, route};
use sidestep_model::route::{Family, Owner};

use crate::run::{mode_of, pin_root_of, ports_of};
use crate::tables::count;
use crate::{Outcome, node_file};

/// `RTPROT_KERNEL`.
const PROTOCOL_KERNEL: u8 = 2;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Check the file as `replay` reads it, without the interfaces of this machine
    #[arg(long)]
    pub replay: bool,
    /// Node file (YAML)
    pub file: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let (_, file) = node_file::read_text(&args.file)?;
    if args.replay {
        return for_replay(&args.file, &file, out);
    }
    let plan = Plan {
        ports: ports_of(&[], &file)?,
        mode: mode_of(None, &file),
        pin_root: pin_root_of(None, &file),
        config: file.clone(),
    };
    let name = args.file.display();
    let checked = plan.check().map_err(|error| match error {
        DaemonError::Config(error) => {
            format!("{name}: {error} (`--replay` checks a file for another machine)")
        }
        error => format!("{name}: {error}"),
    })?;
    for line in &checked.without_effect {
        writeln!(out, "{name}: not in effect: {line}")?;
    }
    print_no_ports(&args.file, &file, plan.ports.is_empty(), out)?;
    let own = &checked.own;
    writeln!(
        out,
        "{name}: valid: {}, {}, {}, {} and {}, all of them Sidestep-only",
        count(plan.ports.len() as u64, "port"),
        count(own.neighbors.len() as u64, "neighbor"),
        count(own.routes.len() as u64, "route"),
        count(own.rules.len() as u64, "rule"),
        policies(own.policies.len()),
    )?;
    Ok(())
}

fn policies(count: usize) -> String {
    format!("{count} SR polic{}", if count == 1 { "y" } else { "ies" })
}

fn print_no_ports(
    path: &Path,
    file: &File,
    has_none: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if !has_none {
        return Ok(());
    }
    let add = if file.has_ports() {
        "`sidestep port add` adds them"
    } else {
        "`sidestep run` needs them on its command line"
    };
    writeln!(out, "{}: no ports: {add}", path.display())
}

/// Checks the file as `replay` reads it, and prints the parts that are punted to the kernel.
fn for_replay(path: &Path, file: &File, out: &mut dyn Write) -> Outcome {
    let node = node_file::node(file, path)?;
    let name = path.display();
    let ports = node.links.keys().copied().collect::<BTreeSet<_>>();
    let compiled = Compiler::new(Limits::default())
        .compile(&node, &ports)
        .map_err(|error| format!("{name}: {error}"))?;
    for (key, why) in &compiled.index.unsupported {
        // Routes that the kernel adds by itself are not in the file.
        if let Some(found) = node
            .routes
            .get(key)
            .filter(|found| found.protocol != PROTOCOL_KERNEL)
        {
            writeln!(
                out,
                "{name}: punted to the kernel: {}: {why}",
                route::print(found, &node, Style::Add)
            )?;
        }
    }
    for ((port, family), why) in &compiled.index.punt_reasons {
        let port = node.links.get(port).map_or("?", |link| link.name.as_str());
        let family = match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        writeln!(
            out,
            "{name}: punted to the kernel: {family} packets from {port}: {why}"
        )?;
    }
    print_no_ports(path, file, node.links.is_empty(), out)?;
    let rules: usize = node.rules.values().map(Vec::len).sum();
    let routes = node.routes.values();
    let sidestep_only = routes.filter(|route| route.owner == Owner::Sidestep);
    writeln!(
        out,
        "{name}: valid: {}, {}, {} ({} Sidestep-only) and {}, including those that the kernel adds",
        count(node.links.len() as u64, "port"),
        count(node.neighbors.len() as u64, "neighbor"),
        count(node.routes.len() as u64, "route"),
        sidestep_only.count(),
        count(rules as u64, "rule"),
    )?;
    Ok(())
}
