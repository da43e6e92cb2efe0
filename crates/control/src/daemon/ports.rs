//! Choice of the target for a port.

use sidestep_datapath::kernel::Target;
use sidestep_model::node::{Link, LinkKind, Node};

/// `--mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// XDP where all frames arrive with a checksum, otherwise TC.
    #[default]
    Auto,
    /// XDP in the driver.
    Xdp,
    /// XDP behind the driver (`xdpgeneric`): slow, for experiments.
    Generic,
    /// TC.
    Tc,
}

impl Mode {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Generic => "generic",
            Self::Tc => "tc",
        }
    }
}

/// Adds the differences of an older kernel to the reason for a port's target.
pub(crate) fn on_this_kernel(target: Target, why: String, tcx: bool, xdp_features: bool) -> String {
    match target {
        Target::Tc if !tcx => format!("{why}; a clsact filter, as this kernel has no tcx"),
        Target::Xdp | Target::XdpGeneric if !xdp_features => format!(
            "{why}; out of veth, tap and devices above others the kernel forwards, as it does not tell which take XDP \
             redirects"
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
    // A bridge or bond receives the frames of its members first. Members of a VRF stay routed
    // ports.
    if let Some(master) = link.master.and_then(|master| node.links.get(&master))
        && !matches!(master.kind, LinkKind::Vrf { .. })
    {
        return Err(format!(
            "it belongs to {}, which gets its frames first; attach {} instead",
            master.name, master.name
        ));
    }
    let why = match (mode, &link.kind) {
        (Mode::Xdp, _) => return Ok((Target::Xdp, "as requested (--mode xdp)".into())),
        (Mode::Generic, _) => {
            return Ok((Target::XdpGeneric, "as requested (--mode generic)".into()));
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
