//! Runs the golden vectors on the Linux kernel: one namespace per file, configured with plain `ip`.
//! Output frames are compared byte for byte.
//!
//! Nothing here sleeps. After the frame, a marker frame is sent on the same port and received
//! inside the system under test. Then a marker is sent out of every port. One CPU's receive queue
//! processes everything in order, so a frame that does not precede the marker was not sent.

mod ends;
mod lacking;
mod other;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::frames::{FrameSocket, noise};
use crate::hexdiff::diff;
use crate::lab::{Lab, LinkEnd, mac_text};
use crate::netns::Namespace;
use crate::vectors::{Case, Expect, Linux, Node, Port, VectorFile, Vlan};
use crate::{Error, hexdiff};
pub use ends::{End, Sent};
use lacking::Lacking;
pub use lacking::OLDER;

/// An egress port and the frame that left through it.
pub type Output = (String, Vec<u8>);

/// A node of the Linux kernel, with a tester at the other end of each port.
#[derive(Debug)]
pub struct Sut {
    lab: Lab,
    ports: Vec<SutPort>,
    refused: Vec<Refused>,
    lacking: Vec<Lacking>,
}

#[derive(Debug)]
struct SutPort {
    name: String,
    mac: [u8; 6],
    /// Socket at the other end of the link.
    tester: FrameSocket,
    /// Socket on the port itself, which receives only markers.
    marker: FrameSocket,
}

/// A line of the configuration that `ip` or the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The command line, including `ip`.
    pub line: String,
    /// Message.
    pub reason: String,
}

/// Results of the cases of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The file's group.
    pub group: String,
    /// Cases with the expected result.
    pub passed: Vec<String>,
    /// Cases that were not run on Linux, with reasons.
    pub skipped: Vec<(String, String)>,
    /// Cases with another result on Linux, with an annotated difference.
    pub failed: Vec<(String, String)>,
    /// Lines that Linux refused. Only the cases that depend on them fail.
    pub refused: Vec<Refused>,
}

/// Runs all cases of a file on the Linux kernel that it supports.
///
/// # Errors
/// The node cannot be created, because its ports, addresses, neighbors or tunnel source are
/// refused.
pub fn run(file: &VectorFile) -> Result<Report, Error> {
    on_one_cpu(|| {
        let mut report = Report {
            group: file.group.clone(),
            ..Report::default()
        };
        let asked = |case: &Case| !matches!(case.linux, Linux::Skip(_));
        let sut = if file.cases.iter().any(asked) {
            Some(Sut::build(&file.node)?)
        } else {
            None
        };
        for case in &file.cases {
            let name = case.name.clone();
            match (&case.linux, &sut) {
                (Linux::Skip(why), _) => report.skipped.push((name, why.clone())),
                (_, None) => report
                    .skipped
                    .push((name, "no case of this file can run on Linux".to_owned())),
                (_, Some(sut)) if sut.lacks(&case.frame).is_some() => {
                    let why = sut.lacks(&case.frame).unwrap_or_default();
                    report.skipped.push((name, why.to_owned()));
                }
                (_, Some(sut)) => match judge(case, &sut.exchange(&case.port, &case.frame)?) {
                    None => report.passed.push(name),
                    Some(difference) => report.failed.push((name, difference)),
                },
            }
        }
        report.refused = sut.map(|sut| sut.refused).unwrap_or_default();
        Ok(report)
    })?
}

impl Sut {
    /// Creates a node: ports in the order of the file, sysctls, addresses, permanent neighbors,
    /// routes, rules. Refused routes and rules are recorded.
    ///
    /// # Errors
    /// Another line is refused.
    pub fn build(node: &Node) -> Result<Self, Error> {
        let mut lab = Lab::new("kernel")?;
        lab.node(SUT)?.node(TESTER)?;
        for (path, value) in SYSCTLS {
            lab.namespace(SUT)?.sysctl(path, value)?;
        }
        // The tester's stack sends no packets and no replies.
        lab.namespace(TESTER)?
            .sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        let (mut ports, mut refused) = (Vec::new(), Vec::new());
        for (name, port) in &node.ports {
            if let Some(vlan) = &port.vlan {
                add_vlan(lab.namespace(SUT)?, name, port, vlan, &mut refused);
                continue;
            }
            let near = LinkEnd {
                node: SUT,
                ifname: name,
                mac: port.mac,
            };
            let far = LinkEnd {
                node: TESTER,
                ifname: name,
                mac: None,
            };
            lab.link_with([near, far], port.mtu, 1)?;
            let (sut, tester) = (lab.namespace(SUT)?, lab.namespace(TESTER)?);
            tester.exec(&["ip", "link", "set", name, "arp", "off"])?;
            let (mut tester, marker) = (
                FrameSocket::open(tester, name)?,
                FrameSocket::open_for(sut, name, MARKER)?,
            );
            // A decapsulated frame may look like noise. The node's own noise is recognized by its
            // source.
            tester.keep_noise(true);
            ports.push(SutPort {
                name: name.clone(),
                mac: lab.mac(SUT, name)?,
                tester,
                marker,
            });
        }
        let lacking = configure(lab.namespace(SUT)?, node, &mut refused)?;
        Ok(Self {
            lab,
            ports,
            refused,
            lacking,
        })
    }

    /// Sends a frame into a port and returns the frames that leave, with their ports, in order per
    /// port. Ignores neighbor discovery, MLD and ARP of the node. The calling thread must stay on
    /// one CPU: see [`on_one_cpu`].
    ///
    /// # Errors
    /// The port does not exist, the frame is longer than its MTU, or a marker does not arrive.
    pub fn exchange(&self, port: &str, frame: &[u8]) -> Result<Vec<Output>, Error> {
        let mut outputs = self.frames_after(port, Some(frame))?;
        outputs.retain(|output| !self.is_own_noise(output));
        Ok(outputs)
    }

    /// Returns true for neighbor discovery, MLD and ARP of the node itself.
    fn is_own_noise(&self, (name, frame): &Output) -> bool {
        let mut ports = self.ports.iter();
        let own = ports.any(|port| port.name == *name && frame.get(6..12) == Some(&port.mac));
        own && noise(frame).is_some()
    }

    /// Everything that leaves after a frame was sent into a port, or, without one, since the last call.
    fn frames_after(&self, port: &str, frame: Option<&[u8]>) -> Result<Vec<Output>, Error> {
        let known = self.ports.iter().find(|known| known.name == port);
        let ingress = known.ok_or_else(|| Error::Usage(format!("no port {port}")))?;
        if let Some(frame) = frame {
            for port in &self.ports {
                port.tester.drain()?;
                port.marker.drain()?;
            }
            ingress.tester.send(frame)?;
        }
        ingress.tester.send(&marker())?;
        until_marker(&ingress.marker, &ingress.name)?;
        let mut outputs = Vec::new();
        for port in &self.ports {
            port.marker.send(&marker())?;
            let frames = until_marker(&port.tester, &port.name)?;
            outputs.extend(frames.into_iter().map(|frame| (port.name.clone(), frame)));
        }
        Ok(outputs)
    }

    /// Returns the reason if this kernel cannot process a frame, because it refused a route that
    /// the frame needs.
    pub fn lacks(&self, frame: &[u8]) -> Option<&str> {
        let needed = self.lacking.iter().find(|route| route.concerns(frame));
        needed.map(|route| route.why.as_str())
    }

    /// Returns the refused routes and rules.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Returns the namespace of the node.
    ///
    /// # Errors
    /// None in practice: every node has a namespace.
    pub fn namespace(&self) -> Result<&Namespace, Error> {
        self.lab.namespace(SUT)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, skipped, failed) = (self.passed.len(), self.skipped.len(), self.failed.len());
        writeln!(
            formatter,
            "{}: {passed} passed, {skipped} skipped, {failed} failed",
            self.group
        )?;
        for (name, why) in &self.skipped {
            writeln!(formatter, "  skipped {name}: {why}")?;
        }
        for Refused { line, reason } in &self.refused {
            writeln!(
                formatter,
                "  refused by Linux: `{line}`: {}",
                reason.replace('\n', " ")
            )?;
        }
        for (name, difference) in &self.failed {
            write!(formatter, "  FAILED {name}\n{difference}")?;
        }
        Ok(())
    }
}

/// A kernel without VLAN support refuses the device and its configuration.
fn add_vlan(sut: &Namespace, name: &str, port: &Port, vlan: &Vlan, refused: &mut Vec<Refused>) {
    let Vlan { link, id, protocol } = vlan;
    let mac = port
        .mac
        .map_or(String::new(), |mac| format!("address {} ", mac_text(mac)));
    let mtu = port.mtu;
    apply(
        sut,
        &format!(
            "ip link add link {link} name {name} {mac}mtu {mtu} type vlan protocol {protocol} id {id}"
        ),
        refused,
    );
    apply(sut, &format!("ip link set {name} up"), refused);
}

/// Applies sysctls, addresses, neighbors and the tunnel source, which must be valid, then routes
/// and rules one by one. Skips the configuration of missing ports. Returns the routes that this
/// kernel does not support.
fn configure(
    sut: &Namespace,
    node: &Node,
    refused: &mut Vec<Refused>,
) -> Result<Vec<Lacking>, Error> {
    let mut batch = String::new();
    let missing: Vec<&str> = node
        .ports
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| sut.ifindex(name).is_err())
        .collect();
    for (name, port) in node
        .ports
        .iter()
        .filter(|(name, _)| !missing.contains(&name.as_str()))
    {
        let settings = [
            ("ipv6", "seg6_enabled", Some(i32::from(port.seg6_enabled))),
            ("ipv6", "seg6_require_hmac", port.seg6_require_hmac),
            ("ipv6", "forwarding", Some(i32::from(port.forwarding))),
            ("ipv6", "hop_limit", port.hop_limit.map(i32::from)),
            ("ipv4", "forwarding", Some(i32::from(port.forwarding))),
            ("ipv4", "rp_filter", port.rp_filter.map(i32::from)),
        ];
        for (family, setting, value) in settings {
            let Some(value) = value else { continue };
            sut.sysctl(
                &format!("net/{family}/conf/{name}/{setting}"),
                &value.to_string(),
            )?;
        }
        for address in &port.addresses {
            let _ = writeln!(batch, "address add {address} dev {name}");
        }
    }
    let on_missing = |line: &str| line.split_whitespace().any(|word| missing.contains(&word));
    for neighbor in node.neighbors.iter().filter(|line| !on_missing(line)) {
        let state = if neighbor.contains(" nud ") {
            ""
        } else {
            " nud permanent"
        };
        let _ = writeln!(batch, "neighbor replace {neighbor}{state}");
    }
    if let Some(tunsrc) = &node.tunsrc {
        let _ = writeln!(batch, "sr tunsrc set {tunsrc}");
    }
    let applied = sut.exec_with_input(&["ip", "-batch", "-"], &batch)?;
    if !applied.status.success() {
        return Err(Error::Command {
            command: format!("ip -batch - <<'.'\n{batch}."),
            namespace: sut.name().to_owned(),
            status: applied.status.to_string(),
            stderr: String::from_utf8_lossy(&applied.stderr)
                .trim_end()
                .to_owned(),
        });
    }
    for (id, key) in &node.hmac {
        sut.set_hmac(*id, &key.algorithm, &key.secret)?;
    }
    if let Some(mode) = node.seg6_flowlabel {
        sut.sysctl("net/ipv6/seg6_flowlabel", &mode.to_string())?;
    }
    let routes: Vec<String> = node
        .routes
        .iter()
        .filter(|line| !line.ends_with(" owner sidestep"))
        .map(|line| lacking::in_linux_words(line))
        .collect();
    let no_vrf = add_vrfs(sut, &routes, refused)?;
    let block = lacking::block(&routes);
    let mut lacking = Vec::new();
    for route in &routes {
        let lacks = match lacking::vrf_table(route).and(no_vrf.clone()) {
            Some(why) => Some(why),
            None => add_route(sut, route, refused),
        };
        let own = lacking::block(std::slice::from_ref(route)).or(block);
        lacking.extend(lacks.map(|why| Lacking::new(route, own, why)));
    }
    for rule in &node.rules {
        for family in families(rule) {
            apply(sut, &format!("ip {family} rule add {rule}"), refused);
        }
    }
    Ok(lacking)
}

/// Creates a VRF device for each table of an End.DT behavior in these routes. The ports are not VRF
/// members, so routes of the table may use any port. Returns the reason if this kernel has no VRF
/// devices.
fn add_vrfs(
    sut: &Namespace,
    routes: &[String],
    refused: &mut Vec<Refused>,
) -> Result<Option<String>, Error> {
    let tables: BTreeSet<usize> = routes
        .iter()
        .filter_map(|route| lacking::vrf_table(route))
        .collect();
    for table in &tables {
        let name = format!("vrf{table}");
        let words = format!("ip link add {name} type vrf table {table}");
        let words: Vec<&str> = words.split_whitespace().collect();
        match sut.exec(&words) {
            Err(Error::Command { stderr, .. }) if stderr.contains("Unknown device type") => {
                return Ok(Some("this kernel has no VRF devices".to_owned()));
            }
            made => made.map(drop)?,
        }
        apply(sut, &format!("ip link set {name} up"), refused);
    }
    if !tables.is_empty() {
        // The behaviors find the device by its table. Strict mode guarantees one device per table.
        sut.sysctl("net/vrf/strict_mode", "1")?;
    }
    Ok(None)
}

/// Adds a route. If older kernels are allowed, returns the reason if the kernel refuses the route
/// or a part of it.
fn add_route(sut: &Namespace, route: &str, refused: &mut Vec<Refused>) -> Option<String> {
    let before = refused.len();
    apply(sut, &format!("ip route add {route}"), refused);
    std::env::var_os(OLDER)?;
    if refused.len() > before {
        let Refused { line, reason } = refused.pop()?;
        return Some(format!("this kernel refuses `{line}`: {reason}"));
    }
    // If `ip` cannot print a route, only its effect is compared.
    ignored(sut, route).ok()?
}

/// Returns the reason if the kernel ignores a part of a route that it has taken.
fn ignored(sut: &Namespace, route: &str) -> Result<Option<String>, Error> {
    let prefix = route.split_whitespace().next().unwrap_or_default();
    let shown = sut.exec(&["ip", "-6", "route", "show", "table", "all", "exact", prefix])?;
    let left_out = lacking::left_out(route, &shown);
    Ok(left_out.map(|word| format!("this kernel ignores `{word}` of `ip route add {route}`")))
}

fn apply(sut: &Namespace, line: &str, refused: &mut Vec<Refused>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let Err(error) = sut.exec(&words) {
        let reason = match error {
            Error::Command { stderr, .. } => stderr,
            other => other.to_string(),
        };
        refused.push(Refused {
            line: line.to_owned(),
            reason,
        });
    }
}

/// Returns the families of a rule as options of `ip`, which does not derive them: the family of its
/// addresses, or both.
fn families(rule: &str) -> &'static [&'static str] {
    let address = rule
        .split([' ', '/'])
        .find_map(|word| word.parse::<IpAddr>().ok());
    match address {
        Some(IpAddr::V6(_)) => &["-6"],
        Some(IpAddr::V4(_)) => &["-4"],
        None => &["-6", "-4"],
    }
}

/// Returns the frames before the next marker.
fn until_marker(socket: &FrameSocket, port: &str) -> Result<Vec<Vec<u8>>, Error> {
    let deadline = Instant::now() + PATIENCE;
    let (marker, mut frames) = (marker(), Vec::new());
    while let Some(frame) = socket.receive(deadline.saturating_duration_since(Instant::now()))? {
        if frame == marker {
            return Ok(frames);
        }
        frames.push(frame);
    }
    Err(Error::Timeout {
        what: format!("the marker on port {port}"),
        milliseconds: PATIENCE.as_millis(),
    })
}

/// Returns a broadcast frame with an `EtherType` that no stack accepts. All bytes are compared,
/// because a case may use this `EtherType` too.
fn marker() -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend(MARKER.to_be_bytes());
    frame.extend(b"the end of what one frame caused");
    frame.resize(60, 0);
    frame
}

/// Returns the problem with the outputs of this case, or `None`.
fn judge(case: &Case, found: &[Output]) -> Option<String> {
    if let (Linux::OneOf(ways), [found]) = (&case.linux, found)
        && ways.contains(found)
    {
        return None;
    }
    let ours = match &case.expect {
        Expect::Forward { port, frame } => Some((port, frame)),
        Expect::Drop(_) | Expect::Kernel(_) => None,
    };
    let (expected, why) = match &case.linux {
        Linux::Differs { outcome, why } => (
            outcome.as_ref().map(|(port, frame)| (port, frame)),
            Some(why),
        ),
        Linux::Same | Linux::OneOf(_) | Linux::Skip(_) => (ours, None),
    };
    let as_expected = |wanted: Option<(&String, &Vec<u8>)>| match (wanted, found) {
        (None, []) => true,
        (Some((port, frame)), [(found_port, found_frame)]) => {
            port == found_port && frame == found_frame
        }
        _ => false,
    };
    if as_expected(expected) {
        return None;
    }
    let mut text = String::new();
    if let Some(why) = why {
        let _ = writeln!(text, "    the file expects that Linux differs: {why}");
        if as_expected(ours) {
            let _ = writeln!(text, "    but Linux has the result of `expect`");
        }
    }
    match expected {
        None => text.push_str("    expected: no frame\n"),
        Some((port, frame)) => {
            let _ = writeln!(text, "    expected: {} bytes by {port}", frame.len());
        }
    }
    if found.is_empty() {
        text.push_str("    found: no frame\n");
    }
    for (port, frame) in found {
        let _ = writeln!(
            text,
            "    found: {} bytes by {port}: {}",
            frame.len(),
            hexdiff::plain(frame)
        );
        if let Some((_, expected)) = expected {
            text.push_str(&diff(expected, frame));
        }
    }
    Some(text)
}

/// Runs a closure on a thread pinned to one CPU (the first that this process may use), so that the
/// CPU's receive queue preserves the order of the frames of [`Sut::exchange`].
///
/// # Errors
/// The thread cannot be pinned.
///
/// # Panics
/// If `closure` panics.
pub fn on_one_cpu<T: Send>(closure: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let pin = || {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let cpu = (0..CpuSet::count())
            .find(|cpu| allowed.is_set(*cpu) == Ok(true))
            .unwrap_or(0);
        let mut one = CpuSet::new();
        one.set(cpu)?;
        sched_setaffinity(Pid::from_raw(0), &one)
    };
    let pinned = || -> Result<T, Error> {
        pin().map_err(|errno| Error::os("pin the runner to one CPU", errno))?;
        Ok(closure())
    };
    let ended = thread::scope(|scope| scope.spawn(pinned).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const SUT: &str = "sut";
const TESTER: &str = "tester";

/// Local Experimental `EtherType` 1, IEEE 802.
const MARKER: u16 = 0x88b5;

/// Time limit for a marker on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sysctls that make the namespace a router. `seg6_enabled` is the smaller of `all` and the port's.
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
