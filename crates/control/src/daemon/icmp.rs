//! ICMP on the daemon's part: what the packet path reports is answered, and errors that come back to this node as a headend
//! are told on. None of it is in the way of packets: without the daemon they go on as before, only nobody is told.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use sidestep_datapath::Report;
use sidestep_datapath::kernel::ReportRate;
use sidestep_model::node::{IfIndex, LinkKind, Node, TableId};
use sidestep_model::route::{Encap, Route};

use super::{Daemon, nanoseconds};
use crate::icmp::answer::answer;
use crate::icmp::relay::{Relayed, relay};
use crate::icmp::socket::Sockets;
use crate::icmp::{Counts, Message};
use crate::report;

/// So many are dealt with before the daemon looks at anything else.
const AT_ONCE: usize = 64;
/// Who waits longer for an answer has stopped waiting: what a dead daemon left is not answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often sockets are tried again that could not be opened.
const RETRY: Duration = Duration::from_secs(1);

/// What is known of it.
#[derive(Debug)]
pub(super) struct Icmp {
    sockets: Option<Sockets>,
    /// Why there are none.
    trouble: Option<String>,
    retry: Instant,
    answered: Counts,
    relayed: Counts,
    not_relayed: u64,
    failed: u64,
    bucket: Bucket,
}

/// RFC 4443 2.4(f), of what is relayed.
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

impl Icmp {
    pub fn new(rate: ReportRate, now: Instant) -> Self {
        let mut icmp = Self {
            sockets: None,
            trouble: None,
            retry: now,
            answered: Counts::new(),
            relayed: Counts::new(),
            not_relayed: 0,
            failed: 0,
            bucket: Bucket::new(rate, now),
        };
        icmp.open(now);
        icmp
    }

    fn open(&mut self, now: Instant) {
        if self.sockets.is_some() || now < self.retry {
            return;
        }
        self.retry = now + RETRY;
        match Sockets::open() {
            Ok(sockets) => {
                self.sockets = Some(sockets);
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(format!("no ICMP errors are sent: {error}")),
        }
    }

    /// Readable when an error has come for this node.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(Sockets::fd)
    }

    /// Why nothing is sent, if so.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Whether it was sent.
    fn send(&mut self, message: &Message, vrf: Option<IfIndex>) -> bool {
        let sent = match &self.sockets {
            Some(sockets) => sockets.send(message, vrf),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        self.failed += u64::from(sent.is_err());
        sent.is_ok()
    }
}

impl Daemon {
    /// Answers what the packet path has reported, and tells on what has come back.
    pub(super) fn tell_senders(&mut self) {
        let now = Instant::now();
        self.icmp.open(now);
        let clock = nanoseconds(ClockId::CLOCK_MONOTONIC);
        for report in self.kernel.reports(AT_ONCE) {
            if Duration::from_nanos(clock.saturating_sub(report.time)) > PATIENCE {
                continue;
            }
            let Some(message) = answer(&report) else {
                continue;
            };
            let vrf = self.vrf_of(&report);
            if self.icmp.send(&message, vrf) {
                *self.icmp.answered.entry(message.kind.name()).or_default() += 1;
            }
        }
        for _ in 0..AT_ONCE {
            let Some(heard) = self.icmp.sockets.as_ref().and_then(Sockets::hear) else {
                break;
            };
            let policies = self.compiled.index.policies.values();
            let Some(relayed) = relay(&heard, policies) else {
                continue;
            };
            if !self.icmp.bucket.take(now) {
                self.icmp.not_relayed += 1;
                continue;
            }
            let vrf = vrf_toward(self.node(), &relayed);
            if self.icmp.send(&relayed.message, vrf) {
                let name = relayed.message.kind.name();
                *self.icmp.relayed.entry(name).or_default() += 1;
            }
        }
    }

    /// The VRF whose routes lead to the sender: that of the table in which a packet from inside was looked up, else the
    /// one that the ingress port is in.
    fn vrf_of(&self, report: &Report) -> Option<IfIndex> {
        let node = self.mirror.node();
        let view = self.compiled.index.views.get(&report.view);
        if let Some(table) = view.and_then(|view| view.tables.first()) {
            return vrf_with(node, *table);
        }
        let master = node.links.get(&IfIndex(report.ifindex))?.master?;
        let is_vrf = |ifindex: &IfIndex| {
            let link = node.links.get(ifindex);
            link.is_some_and(|link| matches!(link.kind, LinkKind::Vrf { .. }))
        };
        Some(master).filter(is_vrf)
    }

    pub(super) fn icmp_report(&self) -> report::Icmp {
        let named = |counts: &Counts| -> BTreeMap<String, u64> {
            let counts = counts.iter();
            counts.map(|(name, n)| ((*name).to_owned(), *n)).collect()
        };
        let suppressed = self
            .attached
            .iter()
            .map(|(name, port)| (name.clone(), self.kernel.reports_suppressed(port.ifindex.0)));
        report::Icmp {
            sent: named(&self.icmp.answered),
            relayed: named(&self.icmp.relayed),
            suppressed: suppressed.collect(),
            not_relayed: self.icmp.not_relayed,
            failed: self.icmp.failed,
        }
    }
}

fn vrf_with(node: &Node, table: TableId) -> Option<IfIndex> {
    let mut links = node.links.values();
    let vrf = links.find(|link| link.kind == LinkKind::Vrf { table })?;
    Some(vrf.ifindex)
}

/// The VRF in whose table the policy is the way to that destination; none: there is no VRF, or it is in none.
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
