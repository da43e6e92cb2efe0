//! Report of a replay, as text or as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;
use sidestep_control::compile::{Counted, Index};
use sidestep_control::report::{NextHop, PortCounters, Reason, Route};
use sidestep_datapath::Native;
use sidestep_datapath::abi::{REASONS, sidestep_route_counters};
use sidestep_model::grammar::route;
use sidestep_model::node::Node;

use crate::explain::kernel;
use crate::tables;

/// Packets that cannot be replayed, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NotReplayed {
    /// Stable name.
    pub reason: &'static str,
    /// Explanation in one sentence.
    pub sentence: &'static str,
    /// Number of packets.
    pub packets: u64,
}

impl NotReplayed {
    /// The snap length of the capture was shorter than the packet.
    pub const TRUNCATED_CAPTURE: Self = Self {
        reason: "truncated_capture",
        sentence: "the capture has only a part of the packet",
        packets: 0,
    };
    /// The frame exceeds the maximum length.
    pub const FRAME_TOO_LONG: Self = Self {
        reason: "frame_too_long",
        sentence: "the frame is longer than 65549 bytes",
        packets: 0,
    };
    /// The capture marks the packet as one that left by its interface.
    pub const OUTBOUND: Self = Self {
        reason: "outbound",
        sentence: "the packet left by its interface",
        packets: 0,
    };
    /// The packet is no Ethernet frame.
    pub const OTHER_LINK_TYPE: Self = Self {
        reason: "other_link_type",
        sentence: "the packet is no Ethernet frame",
        packets: 0,
    };
}

/// Report of a replay. `packets` is the exact sum of the four counts that follow it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Packets that were read.
    pub packets: u64,
    /// Packets that were forwarded.
    pub forwarded: u64,
    /// Packets that were punted to the kernel.
    pub punted: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that were not replayed, by reason; only reasons that occurred.
    pub not_replayed: Vec<NotReplayed>,
    /// Per port.
    pub ports: Vec<PortCounters>,
    /// Reasons of drops and punts; only those that occurred.
    pub reasons: Vec<Reason>,
    /// Actions of the kernel on the punted packets, by reason.
    pub at_kernel: BTreeMap<&'static str, &'static str>,
    /// Routes that packets used, and all routes with an SRv6 encapsulation.
    pub routes: Vec<Route>,
    /// File with the forwarded packets, if requested.
    pub out: Option<String>,
    /// Error that ended the replay before the end of the capture, if any.
    pub error: Option<String>,
}

impl Report {
    /// Reads the counters.
    pub fn new(
        node: &Node,
        index: &Index,
        native: &Native,
        packets: u64,
        not_replayed: &[NotReplayed],
    ) -> Self {
        let ports: Vec<_> = node
            .links
            .values()
            .map(|link| {
                let counters = native.port_counters(link.ifindex.0);
                PortCounters {
                    name: link.name.clone(),
                    received_packets: counters.received_packets,
                    received_bytes: counters.received_bytes,
                    forwarded: counters.forwarded,
                    punted: counters.punted,
                    dropped: counters.dropped,
                    sent_packets: counters.sent_packets,
                    sent_bytes: counters.sent_bytes,
                }
            })
            .collect();
        let sum = |field: fn(&PortCounters) -> u64| ports.iter().map(field).sum();
        Self {
            packets,
            forwarded: sum(|port| port.forwarded),
            punted: sum(|port| port.punted),
            dropped: sum(|port| port.dropped),
            not_replayed: not_replayed
                .iter()
                .filter(|reason| reason.packets > 0)
                .copied()
                .collect(),
            reasons: reasons(native),
            at_kernel: at_kernel(native),
            routes: routes(node, index, native),
            ports,
            out: None,
            error: None,
        }
    }

    /// Prints the report as tables.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            packets,
            forwarded,
            punted,
            dropped,
            ..
        } = self;
        let skipped: u64 = self.not_replayed.iter().map(|reason| reason.packets).sum();
        write!(
            out,
            "{}: {forwarded} forwarded, {punted} punted to the kernel, {dropped} dropped",
            tables::count(*packets, "packet"),
        )?;
        writeln!(
            out,
            "{}",
            if skipped > 0 {
                format!(", {skipped} not replayed")
            } else {
                String::new()
            }
        )?;
        for NotReplayed {
            reason,
            sentence,
            packets,
        } in &self.not_replayed
        {
            writeln!(out, "not replayed: {packets} {reason}: {sentence}")?;
        }
        match &self.out {
            Some(file) => writeln!(out, "forwarded packets: {file}")?,
            None => writeln!(out, "forwarded packets were not written (no --out)")?,
        }
        let tables = [
            (self.ports.is_empty(), tables::port_counters(&self.ports)),
            (self.reasons.is_empty(), tables::reasons(&self.reasons)),
            (self.routes.is_empty(), tables::routes(&self.routes)),
        ];
        for (_, table) in tables.iter().filter(|(empty, _)| !empty) {
            writeln!(out)?;
            for line in table.to_string().lines() {
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        if !self.at_kernel.is_empty() {
            writeln!(out, "\nWhat the kernel does with the punted packets:")?;
        }
        for (reason, sentence) in &self.at_kernel {
            writeln!(out, "{reason}: {sentence}")?;
        }
        Ok(())
    }
}

fn given(native: &Native, number: u32) -> u64 {
    let counters = native.reason_counters();
    counters.get(number as usize).copied().unwrap_or(0)
}

fn at_kernel(native: &Native) -> BTreeMap<&'static str, &'static str> {
    let occurred = REASONS
        .iter()
        .filter(|reason| given(native, reason.number) > 0);
    occurred
        .filter_map(|reason| Some((reason.name, kernel::at_kernel(reason.name)?)))
        .collect()
}

fn reasons(native: &Native) -> Vec<Reason> {
    let given = |number: u32| given(native, number);
    let occurred = REASONS.iter().filter(|reason| given(reason.number) > 0);
    occurred
        .map(|reason| Reason {
            verdict: if reason.is_drop() { "drop" } else { "punt" }.into(),
            number: reason.number,
            name: reason.name.into(),
            source: reason.source.into(),
            sentence: reason.sentence.into(),
            packets: given(reason.number),
        })
        .collect()
}

fn routes(node: &Node, index: &Index, native: &Native) -> Vec<Route> {
    let mut routes = Vec::new();
    let counted = index.counters.keys().filter_map(|of| match of {
        Counted::Route(key) | Counted::List(key, _) => Some(key),
        Counted::ReturnPath(..) | Counted::Reflector(_) => None,
    });
    for key in counted.collect::<BTreeSet<_>>() {
        let Some(found) = node.routes.get(key) else {
            continue;
        };
        let mut counters = sidestep_route_counters::default();
        for slot in index.counters_of(*key) {
            let of_slot = native.route_counters(slot);
            counters.packets += of_slot.packets;
            counters.bytes += of_slot.bytes;
            counters.errors += of_slot.errors;
        }
        let segment_routing = found.next_hops.iter().any(|hop| hop.encap.is_some());
        if counters.packets + counters.errors == 0 && !segment_routing {
            continue;
        }
        routes.push(Route {
            route: route::print_resolved(found, node),
            nhid: found.nhid,
            next_hops: NextHop::all(found, node),
            prefix: key.prefix.to_string(),
            table: key.table.0,
            owner: found.owner.name().into(),
            packets: counters.packets,
            bytes: counters.bytes,
            errors: counters.errors,
            punt_reason: index.unsupported.get(key).cloned(),
            return_path: None,
            service: None,
        });
    }
    routes
}
