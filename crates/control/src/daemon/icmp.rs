//! ICMP messages of the daemon: errors and replies for reports from the packet path, and relayed
//! errors. Forwarding does not depend on them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use sidestep_datapath::Report;
use sidestep_datapath::kernel::ReportRate;
use sidestep_model::node::{IfIndex, LinkKind, Node, TableId};
use sidestep_model::route::{Encap, Route};

use super::system::{FrameSender, Messenger};
use super::{Instance, NodeMirror, PacketPath, System};
use crate::compile::Compiled;
use crate::fragment::socket::FrameSocket;
use crate::icmp::answer::answer;
use crate::icmp::relay::{Relayed, relay};
use crate::icmp::socket::Sockets;
use crate::icmp::{Counts, Kind, Message, frame};
use crate::report;

/// Maximum number of messages per round of the event loop.
const AT_ONCE: usize = 64;
/// Drop reports older than this, such as those queued while no daemon ran.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between attempts to open the sockets.
const RETRY: Duration = Duration::from_secs(1);

/// Sockets and counters.
#[derive(Debug)]
pub(super) struct Icmp<M, F> {
    sockets: Option<M>,
    /// For messages into ether devices.
    frames: Option<F>,
    /// Reason why there are no sockets.
    problem: Option<String>,
    retry: Instant,
    answered: Counts,
    relayed: Counts,
    not_relayed: u64,
    failed: u64,
    bucket: Bucket,
}

/// Rate limit for relayed errors (RFC 4443 2.4(f)), as a token bucket.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
    rate: ReportRate,
}

impl Bucket {
    fn new(rate: ReportRate, now: Instant) -> Self {
        Self {
            tokens: rate.burst.into(),
            filled: now,
            rate,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        let full = f64::from(self.rate.burst);
        self.tokens = (self.tokens + passed * f64::from(self.rate.per_second)).min(full);
        let has = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(has));
        has
    }
}

impl<M: Messenger, F: FrameSender> Icmp<M, F> {
    pub fn new(rate: ReportRate, now: Instant) -> Self {
        Self {
            sockets: None,
            frames: None,
            problem: None,
            retry: now,
            answered: Counts::new(),
            relayed: Counts::new(),
            not_relayed: 0,
            failed: 0,
            bucket: Bucket::new(rate, now),
        }
    }

    /// Sets the rate of the messages of the daemon.
    pub fn set_rate(&mut self, rate: ReportRate, now: Instant) {
        self.bucket = Bucket::new(rate, now);
    }

    pub fn open(&mut self, system: &impl System<Messenger = M, FrameSender = F>, now: Instant) {
        if self.sockets.is_some() || now < self.retry {
            return;
        }
        self.retry = now + RETRY;
        let sockets = system.messenger();
        match sockets.and_then(|sockets| Ok((sockets, system.frame_sender()?))) {
            Ok((sockets, frames)) => {
                self.sockets = Some(sockets);
                self.frames = Some(frames);
                self.problem = None;
            }
            Err(error) => self.problem = Some(format!("ICMP errors cannot be sent: {error}")),
        }
    }

    /// Reason why no messages can be sent.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Sends a message and returns whether that succeeded.
    fn send(&mut self, message: &Message, vrf: Option<IfIndex>) -> bool {
        let sent = match &self.sockets {
            Some(sockets) => sockets.send(message, vrf),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        self.failed += u64::from(sent.is_err());
        sent.is_ok()
    }

    /// Sends a frame with a message of this kind out of the interface that it answers.
    fn send_frame(&mut self, kind: Kind, egress: IfIndex, frame: &[u8]) {
        let Some(frames) = &self.frames else {
            return;
        };
        match frames.send(egress, frame) {
            Ok(()) => *self.answered.entry(kind.name()).or_default() += 1,
            Err(_) => self.failed += 1,
        }
    }
}

impl Icmp<Sockets, FrameSocket> {
    /// Descriptor that is readable when an error for this node has arrived.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(Sockets::fd)
    }
}

impl<S: System> Instance<S> {
    /// Replies to reports of the packet path, and relays received errors.
    pub(super) fn send_icmp(&mut self) {
        let now = self.time.now;
        self.senders.icmp.open(&self.system, now);
        let clock = self.system.nanoseconds(ClockId::CLOCK_MONOTONIC);
        for report in self.tables.kernel.reports(AT_ONCE) {
            if Duration::from_nanos(clock.saturating_sub(report.time)) > TIMEOUT {
                continue;
            }
            if let Some((kind, frame)) = frame::answer(&report) {
                let port = self.mirror.node().source_of(IfIndex(report.ifindex));
                self.senders.icmp.send_frame(kind, port, &frame);
            }
            let Some(message) = answer(&report) else {
                continue;
            };
            let vrf = vrf_of(self.mirror.node(), &self.tables.compiled, &report);
            if self.senders.icmp.send(&message, vrf) {
                *self
                    .senders
                    .icmp
                    .answered
                    .entry(message.kind.name())
                    .or_default() += 1;
            }
        }
        for _ in 0..AT_ONCE {
            let sockets = self.senders.icmp.sockets.as_ref();
            let Some(heard) = sockets.and_then(S::Messenger::hear) else {
                break;
            };
            let policies = self.tables.compiled.index.policies.values();
            let node = self.mirror.node();
            let is_own = |address| node.addresses.iter().any(|(_, net)| net.addr() == address);
            let Some(relayed) = relay(&heard, policies, is_own) else {
                continue;
            };
            if !self.senders.icmp.bucket.take(now) {
                self.senders.icmp.not_relayed += 1;
                continue;
            }
            let vrf = vrf_toward(self.node(), &relayed);
            if self.senders.icmp.send(&relayed.message, vrf) {
                let name = relayed.message.kind.name();
                *self.senders.icmp.relayed.entry(name).or_default() += 1;
            }
        }
    }

    pub(super) fn icmp_report(&self) -> report::Icmp {
        let named = |counts: &Counts| -> BTreeMap<String, u64> {
            let counts = counts.iter();
            counts.map(|(name, n)| ((*name).to_owned(), *n)).collect()
        };
        let suppressed = self.ports.attached.iter().map(|(name, port)| {
            (
                name.clone(),
                self.tables.kernel.reports_suppressed(port.ifindex.0),
            )
        });
        report::Icmp {
            sent: named(&self.senders.icmp.answered),
            relayed: named(&self.senders.icmp.relayed),
            suppressed: suppressed.collect(),
            not_relayed: self.senders.icmp.not_relayed,
            failed: self.senders.icmp.failed,
        }
    }
}

/// Returns the VRF whose routes lead to the source of a packet. If the packet was looked up in
/// other tables than the ingress port's, this is the VRF of one of these tables. Otherwise it is
/// the VRF of the ingress port.
fn vrf_of(node: &Node, compiled: &Compiled, report: &Report) -> Option<IfIndex> {
    let port = compiled.image.ports.get(&report.ifindex);
    let is_ports_own = port.is_some_and(|it| [it.view6, it.view4].contains(&report.view));
    let view = compiled.index.views.get(&report.view);
    if let Some(view) = view.filter(|_| !is_ports_own) {
        // Tables before that of the VRF may be merged in the view, such as table local.
        return view.tables.iter().find_map(|table| vrf_with(node, *table));
    }
    let master = node.links.get(&IfIndex(report.ifindex))?.master?;
    let is_vrf = |ifindex: &IfIndex| {
        let link = node.links.get(ifindex);
        link.is_some_and(|link| matches!(link.kind, LinkKind::Vrf { .. }))
    };
    Some(master).filter(is_vrf)
}

fn vrf_with(node: &Node, table: TableId) -> Option<IfIndex> {
    let mut links = node.links.values();
    let vrf = links.find(|link| link.kind == LinkKind::Vrf { table })?;
    Some(vrf.ifindex)
}

/// Returns the VRF in whose table this policy is the route to the destination, if any.
fn vrf_toward(node: &Node, relayed: &Relayed) -> Option<IfIndex> {
    let is_vrf = |kind: &LinkKind| matches!(kind, LinkKind::Vrf { .. });
    if !node.links.values().any(|link| is_vrf(&link.kind)) {
        return None;
    }
    let encapsulates = |route: &&Route| {
        let mut encaps = route.next_hops.iter().filter_map(|hop| hop.encap.as_ref());
        encaps.any(|encap| match encap {
            Encap::Seg6(encap) => *encap == relayed.encap,
            Encap::Policy(steering) => steering.policies().into_iter().any(|name| {
                let lists = node.policies.defined().get(name).into_iter();
                let mut encaps = lists.flat_map(|it| it.lists().map(|(_, list)| it.encap(list)));
                encaps.any(|encap| encap == relayed.encap)
            }),
            _ => false,
        })
    };
    let routes = node.routes.values();
    let fitting = routes.filter(|route| route.key.prefix.contains(&relayed.destination));
    let longest = fitting
        .filter(encapsulates)
        .max_by_key(|route| route.key.prefix.prefix_len())?;
    vrf_with(node, longest.key.table)
}

#[cfg(test)]
mod tests {
    use sidestep_datapath::abi::{Reason, ViewId, sidestep_port};
    use sidestep_model::config::File;
    use sidestep_model::route::Family;

    use super::*;
    use crate::compile::ViewInfo;

    /// `eth0` is in the VRF of table 100, `eth1` is in no VRF.
    const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"]}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc01::2/64"]}
"#;
    const VRF: IfIndex = IfIndex(100);

    fn node() -> Node {
        let node = File::parse(NODE).and_then(|file| file.node());
        let mut node = node.expect("a good node file");
        let eth0 = node.link_by_name("eth0").expect("a port").clone();
        let vrf = sidestep_model::node::Link {
            ifindex: VRF,
            name: "vrf100".into(),
            kind: LinkKind::Vrf {
                table: TableId(100),
            },
            ..eth0.clone()
        };
        node.links.insert(VRF, vrf);
        let master = Some(VRF);
        node.links
            .insert(eth0.ifindex, sidestep_model::node::Link { master, ..eth0 });
        node
    }

    #[test]
    fn the_source_is_in_the_searched_vrf_or_that_of_the_port() {
        let node = node();
        let port = |name| node.link_by_name(name).expect("a port").ifindex.0;
        let mut compiled = Compiled::default();
        // Views of `eth0`, `eth1`, a SID with `vrftable`, and a SID with `table`.
        let views = [&[255, 100, 254][..], &[255, 254], &[255, 100], &[254]];
        for (view, tables) in (1..).zip(views) {
            let tables = tables.iter().map(|table| TableId(*table));
            let info = ViewInfo {
                family: Family::V6,
                tables: tables.collect(),
            };
            compiled.index.views.insert(ViewId(view), info);
        }
        for (name, view6) in [("eth0", 1), ("eth1", 2)] {
            let record = sidestep_port {
                view6: ViewId(view6),
                ..Default::default()
            };
            compiled.image.ports.insert(port(name), record);
        }
        let vrf = |name, view| {
            let report = Report {
                time: 0,
                ifindex: port(name),
                reason: Reason::from_number(1).expect("a reason"),
                value: 0,
                proto: 0,
                view,
                destination: std::net::Ipv6Addr::UNSPECIFIED,
                is_frame: false,
                length: 0,
                packet: Vec::new(),
            };
            vrf_of(&node, &compiled, &report)
        };
        let of_eth0 = [0, 1, 3, 4].map(|view| vrf("eth0", ViewId(view)));
        assert_eq!(of_eth0, [Some(VRF), Some(VRF), Some(VRF), None]);
        let of_eth1 = [0, 2, 3, 4].map(|view| vrf("eth1", ViewId(view)));
        assert_eq!(of_eth1, [None, None, Some(VRF), None]);
    }
}
