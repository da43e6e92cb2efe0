//! One router between a generator and a sink.

use std::fmt::Write as _;

use super::Error;
use crate::lab::mac_text;
use crate::offload::Offload;
use crate::{Lab, LinkEnd, Namespace};

/// The three namespaces, the router configured.
#[derive(Debug)]
pub struct Network {
    lab: Lab,
}

impl Network {
    /// Builds generator -- router -- sink, and gives the router these route lines (what `ip route add` takes) on top of the
    /// addresses, static neighbors, the way to the segments and the tunnel source that all behaviors share.
    ///
    /// # Errors
    /// The kernel or `ip` refuses something.
    pub fn routed(lines: &[&str], rules: &[String]) -> Result<Self, Error> {
        let mut lab = Lab::new(NAME)?;
        lab.node(GENERATOR)?.node(ROUTER)?.node(SINK)?;
        let router = lab.namespace(ROUTER)?;
        for (path, value) in SYSCTLS {
            router.sysctl(path, value)?;
        }
        link(
            &mut lab,
            (GENERATOR, PORT, GENERATOR_MAC),
            (ROUTER, PORTS[0], ROUTER_MACS[0]),
        )?;
        link(
            &mut lab,
            (ROUTER, PORTS[1], ROUTER_MACS[1]),
            (SINK, PORT, SINK_MAC),
        )?;
        let router = lab.namespace(ROUTER)?;
        for port in PORTS {
            router.sysctl(&format!("net/ipv6/conf/{port}/seg6_enabled"), "1")?;
        }
        configure(router, lines, rules)?;
        Ok(Self { lab })
    }

    /// Builds generator -- sink, with nothing between.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn bare() -> Result<Self, Error> {
        let mut lab = Lab::new(NAME)?;
        lab.node(GENERATOR)?.node(SINK)?;
        link(
            &mut lab,
            (GENERATOR, PORT, GENERATOR_MAC),
            (SINK, PORT, SINK_MAC),
        )?;
        Ok(Self { lab })
    }

    /// Sends out of [`PORT`].
    ///
    /// # Errors
    /// Never, as built.
    pub fn generator(&self) -> Result<&Namespace, Error> {
        Ok(self.lab.namespace(GENERATOR)?)
    }

    /// Forwards between [`PORTS`].
    ///
    /// # Errors
    /// There is none in [`Self::bare`].
    pub fn router(&self) -> Result<&Namespace, Error> {
        Ok(self.lab.namespace(ROUTER)?)
    }

    /// Receives on [`PORT`].
    ///
    /// # Errors
    /// Never, as built.
    pub fn sink(&self) -> Result<&Namespace, Error> {
        Ok(self.lab.namespace(SINK)?)
    }
}

/// Joins two ports, all offloads off at both.
fn link(lab: &mut Lab, near: End, far: End) -> Result<(), Error> {
    let end = |(node, ifname, mac): End| LinkEnd {
        node,
        ifname,
        mac: Some(mac),
    };
    lab.link_with([end(near), end(far)], 1500)?;
    for (node, ifname, _) in [near, far] {
        lab.offload(node, ifname, Offload::OFF)?;
    }
    Ok(())
}

fn configure(router: &Namespace, lines: &[&str], rules: &[String]) -> Result<(), Error> {
    let (mut batch, sink) = (String::new(), mac_text(SINK_MAC));
    for line in ADDRESSES {
        // The text of a String never fails.
        let _ = writeln!(batch, "address add {line}");
    }
    for address in ["fc01::1", "10.1.0.1"] {
        let _ = writeln!(
            batch,
            "neighbor add {address} lladdr {sink} nud permanent dev eth1"
        );
    }
    for route in TO_SEGMENTS.iter().chain(lines) {
        let _ = writeln!(batch, "route add {route}");
    }
    batch.push_str("sr tunsrc set fc01::2\n");
    apply(router, &["ip", "-batch", "-"], &batch)?;
    let mut batch = String::new();
    for rule in rules {
        let _ = writeln!(batch, "rule add {rule}");
    }
    apply(router, &["ip", "-6", "-batch", "-"], &batch)
}

fn apply(router: &Namespace, ip: &[&str], batch: &str) -> Result<(), Error> {
    let applied = router.exec_with_input(ip, batch)?;
    if applied.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&applied.stderr);
    let last = stderr.trim_end();
    Err(Error::Wrong(format!("`{}` refuses: {last}", ip.join(" "))))
}

/// Node, interface, Ethernet address.
type End = (&'static str, &'static str, [u8; 6]);

/// The lab's name: namespaces are `ss-figures-PID-NODE`.
pub const NAME: &str = "figures";
/// The router's node name.
pub const ROUTER: &str = "router";
/// The interface of generator and sink.
pub const PORT: &str = "eth0";
/// The interfaces of the router: in, out.
pub const PORTS: [&str; 2] = ["eth0", "eth1"];
/// Of the generator's interface.
pub const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
/// Of the router's interfaces.
pub const ROUTER_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x01], [2, 0, 0, 0, 0, 0x02]];
/// Of the sink's interface.
pub const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x12];

const GENERATOR: &str = "generator";
const SINK: &str = "sink";

const ADDRESSES: [&str; 4] = [
    "fc00::2/64 dev eth0",
    "10.0.0.2/24 dev eth0",
    "fc01::2/64 dev eth1",
    "10.1.0.2/24 dev eth1",
];

/// For every behavior that sends to a next segment.
const TO_SEGMENTS: [&str; 1] = ["fc0b::/16 via fc01::1 dev eth1"];

/// What makes a router of the namespace. `seg6_enabled` is the smaller of `all` and the port's.
const SYSCTLS: [(&str, &str); 8] = [
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/forwarding", "1"),
    ("net/ipv6/conf/all/seg6_enabled", "1"),
    ("net/ipv4/conf/all/forwarding", "1"),
    ("net/ipv4/conf/default/forwarding", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
];
