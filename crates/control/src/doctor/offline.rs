//! The checks without a running daemon.

use std::collections::BTreeSet;
use std::path::PathBuf;

use sidestep_datapath::Limits;
use sidestep_datapath::kernel;
use sidestep_mirror::Mirror;
use sidestep_model::config::{File, Overlay};
use sidestep_model::grammar::{Style, route};
use sidestep_model::node::{IfIndex, Node};

use super::examine;
use super::facts::{self, Facts, Host, Port};
use crate::compile::{Compiled, Compiler};
use crate::daemon::{DaemonError, Devices, KnownNames, Mode, OverlaidNode, choose, resolve};
use crate::report::Problem;

/// A daemon that would run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Interface names.
    pub ports: Vec<String>,
    /// Target of the ports.
    pub mode: Mode,
    /// Node file.
    pub config: File,
    /// Directory of the pins.
    pub pin_root: PathBuf,
}

/// The result of [`Plan::check`].
#[derive(Debug)]
pub struct Checked {
    /// The node with the entries of the file.
    pub node: Node,
    /// The entries of the file.
    pub own: Overlay,
    /// The entries without an effect, each with the reason.
    pub without_effect: Vec<String>,
}

impl Plan {
    /// Checks ports and node file as a start in the network namespace of the calling thread does.
    /// Needs no privilege.
    ///
    /// # Errors
    /// The first error, with its place in the file.
    pub fn check(&self) -> Result<Checked, DaemonError> {
        let mirror = Mirror::open()?;
        let mut devices = Devices::default();
        let live = mirror.node();
        let (own, names) = resolve(live, &devices, self.mode, &self.ports, &self.config)?;
        devices.extend(names.into_absent());
        let overlaid = OverlaidNode::new(live, &own, &devices, Default::default());
        let node = overlaid.node(live).clone();
        let ports = self.ports.iter().filter_map(|port| node.link_by_name(port));
        let ports = ports.map(|link| link.ifindex).collect();
        let compiled = Compiler::new(Limits::default()).compile(&node, &ports)?;
        let unsupported = compiled.index.unsupported.iter();
        let without_effect = unsupported.filter_map(|(key, why)| {
            let route = own.routes.get(key)?;
            Some(format!("{}: {why}", route::print(route, &node, Style::Add)))
        });
        let without_effect = without_effect.collect();
        Ok(Checked {
            node,
            own,
            without_effect,
        })
    }

    /// Makes all checks that need no daemon, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's configuration cannot be read, or the node file does not fit it.
    pub fn examine(&self) -> Result<BTreeSet<Problem>, DaemonError> {
        let mirror = Mirror::open()?;
        let mut devices = Devices::default();
        let ports = self.ports.iter().map(String::as_str);
        let awaited = ports.chain(self.config.ether_names());
        let names = KnownNames::new(mirror.node(), &devices, awaited);
        let own = self.config.overlay(mirror.node(), &names)?;
        devices.extend(names.into_absent());
        let overlaid = OverlaidNode::new(mirror.node(), &own, &devices, Default::default());
        let node = overlaid.node(mirror.node());
        let port = |name: &String| {
            let link = node.link_by_name(name);
            let choice = link.map(|link| choose(node, link, self.mode));
            let (target, refused) = match choice {
                Some(Ok((target, _))) => (Some(target), None),
                Some(Err(why)) => (None, Some(why)),
                None => (None, None),
            };
            Port {
                name: name.clone(),
                target,
                refused,
            }
        };
        let ports: Vec<Port> = self.ports.iter().map(port).collect();
        let there = ports.iter().filter(|port| port.target.is_some());
        let there: BTreeSet<IfIndex> = there
            .filter_map(|port| node.link_by_name(&port.name))
            .map(|link| link.ifindex)
            .collect();
        let compiled = Compiler::new(Limits::default()).compile(node, &there);
        let (refused, lacks) = match kernel::probe() {
            Ok(features) => (None, facts::lacks(features, mirror.reports_xdp_features())),
            Err(error) => (Some(error.to_string()), Vec::new()),
        };
        let private = kernel::private_bpffs(&self.pin_root);
        let empty = Compiled::default();
        let facts = Facts {
            survey: facts::survey(node, &ports)?,
            ports,
            host: Host::read(&self.pin_root, private, refused, lacks),
            ..Facts::new(node, mirror.node(), compiled.as_ref().unwrap_or(&empty))
        };
        Ok(examine(&facts))
    }
}
