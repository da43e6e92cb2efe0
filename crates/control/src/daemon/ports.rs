//! The ports: choice of their targets, and their attachment.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::abi::SIDESTEP_PORTS;
use sidestep_datapath::kernel::Target;
use sidestep_model::config;
use sidestep_model::node::{IfIndex, Link, LinkKind, Node};
use sidestep_model::settings::Mode;

use super::{DaemonError, Instance, NodeMirror, PacketPath, Port, System};

/// Adds the differences of an older kernel to the reason for a port's target.
pub(crate) fn on_this_kernel(target: Target, why: String, tcx: bool, xdp_features: bool) -> String {
    match target {
        Target::Tc if !tcx => format!("{why}; a clsact filter, as this kernel has no tcx"),
        Target::Xdp if !xdp_features => format!(
            "{why}; TC sends to veth, tap and stacked devices, as the kernel does not report which \
             take XDP redirects"
        ),
        _ => why,
    }
}

/// Returns the target of a port with the reason, or why the interface cannot be a port.
pub(crate) fn choose(node: &Node, link: &Link, mode: Mode) -> Result<(Target, String), String> {
    match &link.kind {
        LinkKind::Loopback => return Err("it is the loopback device".into()),
        LinkKind::NotEthernet(kind) => return Err(format!("it has no Ethernet frames ({kind})")),
        LinkKind::Vrf { .. } => {
            return Err("it is a VRF device; attach the interfaces in it".into());
        }
        _ => {}
    }
    // A bond receives the frames of its members first. Members of a VRF stay routed ports. At those of
    // a bridge, frames of known stations pass beside it.
    let master = link.master.and_then(|master| node.links.get(&master));
    match master.map(|master| (&master.kind, &master.name)) {
        None | Some((LinkKind::Vrf { .. } | LinkKind::Bridge, _)) => choose_alone(link, mode),
        Some((_, name)) => Err(format!(
            "it belongs to {name}, which gets its frames first; attach {name} instead"
        )),
    }
}

/// Returns the target of an interface by its kind.
fn choose_alone(link: &Link, mode: Mode) -> Result<(Target, String), String> {
    let why = match (mode, &link.kind) {
        (Mode::Xdp, kind @ (LinkKind::Veth | LinkKind::Tap)) => {
            let (kind, sender) = match kind {
                LinkKind::Veth => ("veth", "peer"),
                _ => ("tap", "user"),
            };
            return Err(format!(
                "it is a {kind}, whose {sender} may leave checksums and segmentation to the \
                 receiver; XDP cannot see that, and is slower than TC here; use --mode auto, or \
                 --mode xdp-always if the {sender} leaves nothing (ethtool -K {} tx off)",
                sender.to_uppercase()
            ));
        }
        (Mode::Xdp | Mode::XdpAlways, _) => {
            return Ok((Target::Xdp, format!("as requested (--mode {mode})")));
        }
        (Mode::Tc, _) => return Ok((Target::Tc, "as requested (--mode tc)".into())),
        (Mode::Auto, LinkKind::Veth) => {
            "veth: its peer may leave checksums and segmentation to the receiver"
        }
        (Mode::Auto, LinkKind::Tap) => {
            "tap: its user may leave checksums and segmentation to the receiver"
        }
        (Mode::Auto, LinkKind::Vlan { .. } | LinkKind::Bridge | LinkKind::Bond) => {
            "a device above another one: frames reach it as the kernel has them"
        }
        (Mode::Auto, _) => return Ok((Target::Xdp, "frames come complete from the wire".into())),
    };
    Ok((Target::Tc, why.into()))
}

/// Function that returns the target of an interface with the reason, or why it cannot be a port.
type Choose = fn(&Node, &Link, Mode) -> Result<(Target, String), String>;

/// Returns the target of an interface that is attached to an ether device.
pub(super) fn choose_attached(
    node: &Node,
    link: &Link,
    mode: Mode,
) -> Result<(Target, String), String> {
    // A frame of a veth may need segmentation, which the device does.
    let is_veth = matches!(link.kind, LinkKind::Veth | LinkKind::Tap);
    match mode {
        Mode::Xdp if is_veth => choose(node, link, Mode::Tc),
        _ => choose(node, link, mode),
    }
}

/// Returns the target of the port of an ether device. Its frames are socket buffers.
fn choose_for_ether(mode: Mode) -> (Target, String) {
    match mode {
        Mode::XdpAlways => (Target::Xdp, format!("as requested (--mode {mode})")),
        _ => (
            Target::Tc,
            "ether device: its frames come from the stack".into(),
        ),
    }
}

/// Checks the names of the ports, and that those that exist can be ports. The others are waited
/// for.
pub(crate) fn check(node: &Node, mode: Mode, ports: &[String]) -> Result<(), DaemonError> {
    for name in ports {
        let wrong = |why| DaemonError::Port {
            name: if name.is_empty() {
                "\"\"".into()
            } else {
                name.clone()
            },
            why,
        };
        if !config::is_interface_name(name) {
            return Err(wrong(format!(
                "no name of an interface; expected {}",
                config::INTERFACE_NAME
            )));
        }
        if let Some(link) = node.link_by_name(name) {
            choose(node, link, mode).map_err(wrong)?;
        }
    }
    Ok(())
}

/// Returns the targets of these ports.
pub(super) fn targets(node: &Node, mode: Mode, ports: &[String]) -> BTreeSet<Target> {
    let links = ports.iter().filter_map(|name| node.link_by_name(name));
    let targets = links.filter_map(|link| Some(choose(node, link, mode).ok()?.0));
    targets.collect()
}

/// Returns each of these ports once, by the name of its interface, or as given if the interface
/// does not exist.
pub(super) fn named<'a>(node: &Node, ports: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for port in ports {
        let name = node.own_name(port);
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

impl<S: System> Instance<S> {
    /// Returns the ports that get an entry in the port table. If two ports share one, the port that
    /// already has it stays; otherwise the first port gets it.
    pub(super) fn port_slots(&self) -> BTreeSet<IfIndex> {
        let mut slots: BTreeMap<u32, IfIndex> = BTreeMap::new();
        let has = |ifindex: &IfIndex| self.tables.compiled.image.ports.contains_key(&ifindex.0);
        let (there, new): (Vec<_>, Vec<_>) = self
            .requested_ports()
            .filter(|(_, choice)| choice.is_ok())
            .map(|(link, _)| link.ifindex)
            .partition(has);
        for ifindex in there.into_iter().chain(new) {
            slots.entry(ifindex.0 % SIDESTEP_PORTS).or_insert(ifindex);
        }
        slots.into_values().collect()
    }

    /// Returns the names of the requested ports: those of their interfaces, or as requested for
    /// interfaces that do not exist.
    pub(super) fn port_names(&self) -> Vec<String> {
        let requested = self.configured.options.ports.iter().map(String::as_str);
        let ports = requested.chain(self.attached_names());
        let mut names = named(self.mirror.node(), ports);
        names.extend(self.ether_port_names());
        names
    }

    /// Names of the interfaces that are attached to ether devices.
    fn attached_names(&self) -> impl Iterator<Item = &str> {
        let devices = self.configured.own.ethers.values();
        devices.filter_map(|device| Some(device.attached.as_ref()?.port.as_str()))
    }

    /// As [`Self::port_names`], without the ports of ether devices.
    pub(super) fn requested_names(&self) -> Vec<String> {
        let ports = self.configured.options.ports.iter().map(String::as_str);
        named(self.mirror.node(), ports)
    }

    /// The requested ports that exist, each with its target.
    fn requested_ports(&self) -> impl Iterator<Item = (&Link, Result<(Target, String), String>)> {
        let node = self.mirror.node();
        let mode = self.configured.options.mode;
        let requested = self.configured.options.ports.iter().map(String::as_str);
        let requested = requested.map(|name| (name, choose as Choose));
        let attached = self.attached_names();
        let attached = attached.map(|name| (name, choose_attached as Choose));
        // A port may have attachments, too.
        let mut seen = BTreeSet::new();
        let ports = requested.chain(attached).filter_map(move |(name, choose)| {
            let link = node.link_by_name(name)?;
            let is_first = seen.insert(link.ifindex);
            is_first.then(|| (link, choose(node, link, mode)))
        });
        let of_ethers = self.ether_port_names().filter_map(move |name| {
            let link = node.link_by_name(&name)?;
            Some((link, Ok(choose_for_ether(mode))))
        });
        ports.chain(of_ethers)
    }

    /// Attaches missing ports. Detaches ports whose interface is gone, was renamed, or can no
    /// longer be a port.
    pub(super) fn attach_ports(&mut self) {
        self.attach_missing();
        self.detach_others();
    }

    /// Attaches the ports of a start.
    ///
    /// # Errors
    /// An interface refuses.
    pub(super) fn attach_all(&mut self) -> Result<(), DaemonError> {
        self.attach_missing();
        match self.ports.refused.pop_first() {
            Some((name, why)) => Err(DaemonError::Port { name, why }),
            None => Ok(()),
        }
    }

    fn attach_missing(&mut self) {
        let right: BTreeSet<(String, IfIndex, Target)> = self
            .requested_ports()
            .filter_map(|(link, choice)| Some((link.name.clone(), link.ifindex, choice.ok()?.0)))
            .collect();
        self.ports
            .attached
            .retain(|name, port| right.contains(&(name.clone(), port.ifindex, port.chosen)));
        let there: BTreeSet<String> = self
            .requested_ports()
            .map(|(link, _)| link.name.clone())
            .collect();
        self.ports.refused.retain(|name, _| there.contains(name));
        let slots = self.port_slots();
        let missing: Vec<_> = self
            .requested_ports()
            .filter(|(link, _)| !self.ports.attached.contains_key(&link.name))
            .map(|(link, choice)| (link.name.clone(), link.ifindex, choice))
            .collect();
        for (name, ifindex, choice) in missing {
            let attached = choice.and_then(|(chosen, why)| {
                has_slot(&slots, ifindex)?;
                let (target, why) = self.attach_as(ifindex, chosen, why)?;
                let (tcx, xdp_features) = (
                    self.tables.kernel.features().tcx,
                    self.mirror.reports_xdp_features(),
                );
                Ok(Port {
                    ifindex,
                    chosen,
                    target,
                    why: on_this_kernel(target, why, tcx, xdp_features),
                })
            });
            match attached {
                Ok(port) => {
                    self.ports.refused.remove(&name);
                    self.ports.attached.insert(name, port);
                }
                Err(why) => {
                    self.ports.refused.insert(name, why);
                }
            }
        }
    }

    /// Attaches an interface. In mode `auto`, TC takes the place of XDP if the driver has none or
    /// refuses the interface's MTU or queues. Returns the target with the reason.
    fn attach_as(
        &mut self,
        IfIndex(ifindex): IfIndex,
        chosen: Target,
        why: String,
    ) -> Result<(Target, String), String> {
        let is_own = self.node().ether_of_port(IfIndex(ifindex)).is_some();
        let attached = if is_own && chosen == Target::Tc {
            self.tables.kernel.attach_alone(ifindex)
        } else {
            self.tables.kernel.attach(ifindex, chosen)
        };
        let error = match attached {
            Ok(()) => return Ok((chosen, why)),
            Err(error) => error,
        };
        if self.configured.options.mode != Mode::Auto || !error.is_without_xdp() {
            return Err(error.to_string());
        }
        let attached = self.tables.kernel.attach(ifindex, Target::Tc);
        attached.map_err(|error| error.to_string())?;
        Ok((Target::Tc, format!("TC takes the place of XDP: {error}")))
    }

    /// Detaches all interfaces that are no port, such as those of an instance that died.
    pub(super) fn detach_others(&mut self) {
        let ports: BTreeSet<u32> = self
            .ports
            .attached
            .values()
            .map(|port| port.ifindex.0)
            .collect();
        for (ifindex, _) in self.tables.kernel.attached() {
            if !ports.contains(&ifindex) {
                // If the interface is gone or in another namespace, this still removes program and
                // pin.
                let _ = self.tables.kernel.detach(ifindex);
            }
        }
    }

    /// Attaches all ports again. An interface may have been recreated with the same index, so that
    /// the program is gone. Attaching twice changes nothing.
    pub(super) fn attach_again(&mut self) {
        let links = &self.mirror.node().links;
        let kernel = &mut self.tables.kernel;
        let refused = &mut self.ports.refused;
        self.ports.attached.retain(|name, port| {
            if !links.contains_key(&port.ifindex) {
                return true;
            }
            let attached = kernel.attach(port.ifindex.0, port.target);
            if let Err(error) = &attached {
                refused.insert(name.clone(), error.to_string());
            }
            attached.is_ok()
        });
    }
}

/// Checks that a port has an entry in the port table: [`Daemon::port_slots`] contains it.
fn has_slot(slots: &BTreeSet<IfIndex>, ifindex: IfIndex) -> Result<(), String> {
    let shares = |other: &&IfIndex| other.0 % SIDESTEP_PORTS == ifindex.0 % SIDESTEP_PORTS;
    match slots.iter().find(shares) {
        Some(other) if *other != ifindex => Err(format!(
            "its interface index {} and that of another port, {}, are equal modulo {SIDESTEP_PORTS}; recreate \
             one of the interfaces",
            ifindex.0, other.0
        )),
        _ => Ok(()),
    }
}
