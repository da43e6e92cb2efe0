//! Reports of the daemon for the `show` commands.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::time::ClockId;
use serde_json::Value;
use sidestep_datapath::abi::{
    Reason, SIDESTEP_COPY_BYTES, SIDESTEP_EXT_HEADERS_MAX, SIDESTEP_FLOW_TABLES, SIDESTEP_FLOWS,
    SIDESTEP_HEADER_SETS, SIDESTEP_HMAC_KEYS, SIDESTEP_HMAC_SEGMENTS_MAX, SIDESTEP_LEARNED,
    SIDESTEP_LEARNED_MAX, SIDESTEP_OPTIONS_MAX, SIDESTEP_PORTS, SIDESTEP_REPORT_BYTES,
    SIDESTEP_SAMPLE_BYTES, SIDESTEP_SAMPLE_STEPS, SIDESTEP_SEGMENTS_MAX, SIDESTEP_SESSIONS,
    SIDESTEP_STATIONS, SIDESTEP_STEPS_MAX, SIDESTEP_TLVS_MAX, sidestep_learned,
    sidestep_route_counters,
};
use sidestep_datapath::kernel::Origin;
use sidestep_datapath::{HeaderSetId, VIEWS, learned};
use sidestep_model::grammar::route;
use sidestep_model::node::{IfIndex, Link, Node};
use sidestep_model::route::{Owner, Route, RouteKey};

use super::metrics::configured;
use super::policies::Counts;
use super::{Instance, NodeMirror, PacketPath, System};
use crate::compile::{Counted, ProxyInfo};
use crate::report;
use crate::trace::RATE_MAX;

impl<S: System> Instance<S> {
    pub(super) fn status_report(&self) -> report::Status {
        report::Status {
            version: self.configured.options.version.into(),
            pid: std::process::id(),
            start: Some(self.configured.start_command.clone()),
            uptime: self.time.uptime().as_secs(),
            origin: match self.tables.origin {
                Origin::Fresh => "fresh",
                Origin::Adopted => "adopted",
                Origin::Replaced => "replaced",
            }
            .into(),
            pins: self.tables.kernel.folder(),
            config: self
                .configured
                .state
                .path
                .as_ref()
                .map(|path| path.display().to_string()),
            confirm_within: self.configured.state.confirm_within(self.time.now),
            prefixes: self.tables.compiled.image.fib.len() as u64,
            compilations: self.tables.compilations,
            resyncs: self.health.resyncs,
            encap_lookup_main: self.configured.own.settings.encap_lookup_main,
            requires_seg6_enabled: self.configured.own.settings.require_seg6_enabled,
            metrics: self
                .configured
                .own
                .metrics
                .map(|it| format!("http://{it}/metrics")),
            fpm: self.fpm_report(),
            problems: self.problems().iter().cloned().collect(),
        }
    }

    pub(super) fn ports_report(&self) -> report::Ports {
        let node = self.mirror.node();
        let report = |name: &String| {
            let link = node.link_by_name(name);
            let (target, why) = match (self.ports.attached.get(name), self.ports.refused.get(name))
            {
                (Some(port), _) => (port.target.name().into(), port.why.clone()),
                (None, Some(why)) => ("none".into(), why.clone()),
                (None, None) => (
                    "none".into(),
                    "waits for its interface, which does not exist".into(),
                ),
            };
            let (redirect_peer, redirect_peer_why) = self.peer_report(link);
            let here = |port: IfIndex| link.is_some_and(|link| link.ifindex == port);
            report::Port {
                name: name.clone(),
                alt_names: link.map_or_else(Vec::new, |link| link.alt_names.clone()),
                ifindex: link.map(|link| link.ifindex.0),
                target,
                why: beside_bridge(node, link, why),
                mac: link.map_or_else(String::new, |link| link.mac.to_string()),
                mtu: link.map_or(0, |link| link.mtu),
                up: link.is_some_and(|link| link.up),
                seg6_enabled: link.is_some_and(|link| link.seg6_enabled),
                processes_sids: !self.configured.own.settings.require_seg6_enabled
                    || link.is_some_and(|link| link.seg6_enabled),
                redirect_peer,
                redirect_peer_why,
                punt_reasons: self
                    .tables
                    .compiled
                    .index
                    .punt_reasons
                    .iter()
                    .filter(|((port, _), _)| here(*port))
                    .map(|((_, family), why)| format!("{family:?}: {why}"))
                    .collect(),
                proxies: self.proxies_at(here),
            }
        };
        self.port_names().iter().map(report).collect()
    }

    /// SIDs of SR proxies whose services use a port.
    fn proxies_at(&self, here: impl Fn(IfIndex) -> bool) -> Vec<report::PortProxy> {
        let proxies = self.tables.compiled.index.proxies.iter();
        proxies
            .map(|(key, proxy)| report::PortProxy {
                sid: key.prefix.to_string(),
                table: key.table.0,
                behavior: proxy.behavior.into(),
                to_service: here(proxy.oif),
                from_service: here(proxy.iif),
            })
            .filter(|proxy| proxy.to_service || proxy.from_service)
            .collect()
    }

    pub(super) fn counters_report(&self) -> Result<report::Counters, String> {
        Ok(report::Counters {
            ports: self.port_counters()?,
            routes: self.routes_report(false)?,
        })
    }

    /// Counters of the ports, and of every egress.
    pub(super) fn port_counters(&self) -> Result<Vec<report::PortCounters>, String> {
        let node = self.mirror.node();
        let egress = self
            .tables
            .compiled
            .image
            .adjacencies
            .values()
            .map(|adjacency| adjacency.ifindex);
        let interfaces: BTreeSet<u32> = self
            .tables
            .compiled
            .image
            .ports
            .keys()
            .copied()
            .chain(egress)
            .collect();
        interfaces
            .into_iter()
            .map(|ifindex| {
                let c = self
                    .tables
                    .kernel
                    .port_counters(ifindex)
                    .map_err(|error| error.to_string())?;
                Ok(report::PortCounters {
                    name: node
                        .links
                        .get(&IfIndex(ifindex))
                        .map_or_else(|| ifindex.to_string(), |link| link.name.clone()),
                    received_packets: c.received_packets,
                    received_bytes: c.received_bytes,
                    forwarded: c.forwarded,
                    punted: c.punted,
                    dropped: c.dropped,
                    sent_packets: c.sent_packets,
                    sent_bytes: c.sent_bytes,
                })
            })
            .collect()
    }

    pub(super) fn routes_report(&self, all: bool) -> Result<report::Routes, String> {
        let node = self.node();
        let mut keys = srv6_routes(node);
        if all {
            keys.extend(node.routes.keys());
        }
        let counts = self.counts_of_routes(keys.iter().copied())?;
        let keys = keys.into_iter();
        keys.map(|key| self.route_report(node, key, &counts))
            .collect()
    }

    pub(super) fn route_report(
        &self,
        node: &Node,
        key: &RouteKey,
        counts: &Counts,
    ) -> Result<report::Route, String> {
        let index = &self.tables.compiled.index;
        let counters = self.counted_by_route(key, counts);
        let of_route = configured(node, key);
        Ok(report::Route {
            route: route::print_resolved(of_route, node),
            prefix: key.prefix.to_string(),
            table: key.table.0,
            nhid: of_route.nhid,
            next_hops: report::NextHop::all(of_route, node),
            owner: of_route.owner.name().into(),
            packets: counters.packets,
            bytes: counters.bytes,
            errors: counters.errors,
            punt_reason: index.unsupported.get(key).cloned(),
            return_path: index
                .proxies
                .get(key)
                .map(|proxy| self.return_path_report(node, proxy))
                .transpose()?,
            service: self.watchers.liveness.report(of_route),
        })
    }

    fn return_path_report(
        &self,
        node: &Node,
        proxy: &ProxyInfo,
    ) -> Result<report::ReturnPath, String> {
        let counters = self.counted(proxy.return_counter)?;
        let port = node.links.get(&proxy.iif);
        let mut learned = Vec::new();
        let mut flows = None;
        if proxy.learned.is_some() {
            learned.push(self.tables.kernel.learned(proxy.learned));
            learned.extend(self.tables.kernel.chains(proxy.learned));
            flows = self.flows_report(proxy.learned);
        }
        let words = self.clients.formatter.headers;
        let now = self.system.nanoseconds(ClockId::CLOCK_MONOTONIC);
        let mut learned: Vec<_> = learned
            .iter()
            .filter_map(|learned| learned_report(learned, words, now))
            .collect();
        learned.sort_by_key(|learned| learned.age);
        Ok(report::ReturnPath {
            port: port.map_or_else(|| proxy.iif.0.to_string(), |link| link.name.clone()),
            packets: counters.packets,
            bytes: counters.bytes,
            errors: counters.errors,
            not_learned: counters.not_learned,
            no_srh: counters.no_srh,
            learned,
            flows,
        })
    }

    pub(super) fn flows_report(&self, learned: HeaderSetId) -> Option<report::Flows> {
        let flows = self.tables.kernel.flows(learned)?;
        Some(report::Flows {
            limit: flows.limit,
            used: flows.used,
            evicted: flows.evicted,
        })
    }

    /// Counters of a route or return path, or zeros if it has none.
    pub(super) fn counted(&self, of: Counted) -> Result<sidestep_route_counters, String> {
        let Some(&slot) = self.tables.compiled.index.counters.get(&of) else {
            return Ok(sidestep_route_counters::default());
        };
        let counters = self.tables.kernel.route_counters(slot);
        counters.map_err(|error| error.to_string())
    }

    pub(super) fn drops_report(&self) -> Result<report::Drops, String> {
        let mut reasons = self.reasons_report()?;
        reasons.retain(|reason| reason.packets > 0);
        Ok(reasons)
    }

    /// All reasons, whether they occurred or not.
    pub(super) fn reasons_report(&self) -> Result<report::Drops, String> {
        let counts = self
            .tables
            .kernel
            .reason_counters()
            .map_err(|error| error.to_string())?;
        let counts = counts.iter().enumerate();
        Ok(counts
            .filter_map(|(number, &packets)| {
                let reason = Reason::from_number(number as u32)?;
                Some(report::Reason {
                    verdict: if reason.is_drop() { "drop" } else { "punt" }.into(),
                    number: reason.number,
                    name: reason.name.into(),
                    source: reason.source.into(),
                    sentence: reason.sentence.into(),
                    packets,
                })
            })
            .collect())
    }

    pub(super) fn hmac_report(&self) -> report::HmacKeys {
        let image = &self.tables.compiled.image;
        let policies = |id: u32| {
            let signing = image.policies.values().filter(|policy| {
                let key = image.hmac_keys.get(&policy.hmac_key);
                key.is_some_and(|key| key.id == id)
            });
            signing.count() as u64
        };
        let keys = self.node().hmac_keys.iter();
        keys.map(|(&id, key)| report::HmacKey {
            key: id,
            algorithm: key.algorithm.to_string(),
            owner: if self.configured.own.hmac_keys.contains_key(&id) {
                "sidestep".into()
            } else {
                "kernel".into()
            },
            policies: policies(id),
        })
        .collect()
    }

    pub(super) fn limits_report(&self) -> report::Limits {
        let (limits, image) = (self.configured.options.limits, &self.tables.compiled.image);
        let refused = "a Sidestep-only route is refused, a kernel route is punted";
        let full = &self.tables.compiled.index.full;
        let row = |name: &str, limit: u32, used: Option<usize>, beyond: &str| report::Limit {
            name: name.into(),
            limit: limit.into(),
            used: used.map(|used| used as u64),
            left_out: full.values().filter(|table| **table == name).count() as u64,
            beyond: beyond.into(),
        };
        let tables = [
            row("prefixes", limits.fib, Some(image.fib.len()), refused),
            row("routes", limits.routes, Some(image.routes.len()), refused),
            row("groups", limits.groups, Some(image.groups.len()), refused),
            row(
                "adjacencies",
                limits.adjacencies,
                Some(image.adjacencies.len()),
                refused,
            ),
            row(
                "policies",
                limits.policies,
                Some(image.policies.len()),
                refused,
            ),
            row(
                "route counters",
                limits.route_counters,
                Some(self.tables.compiled.index.counters.len()),
                "further routes are not counted one by one",
            ),
            row(
                "views",
                VIEWS,
                Some(self.tables.compiled.index.views.len()),
                refused,
            ),
            row(
                "ports",
                SIDESTEP_PORTS,
                Some(image.ports.len()),
                "ports with equal index modulo it are refused",
            ),
            row(
                "HMAC keys",
                SIDESTEP_HMAC_KEYS,
                Some(image.hmac_keys.len()),
                "the kernel signs and verifies with the others",
            ),
            row(
                "sessions of paths",
                SIDESTEP_SESSIONS - 1,
                Some(
                    self.tables
                        .overlaid
                        .node(self.mirror.node())
                        .watched
                        .sessions
                        .len(),
                ),
                "further paths are refused",
            ),
            row(
                "stations",
                SIDESTEP_STATIONS,
                Some(image.stations.len()),
                "frames of further stations pass their bridge",
            ),
            row(
                "learned headers",
                SIDESTEP_LEARNED,
                Some(image.learned.len()),
                refused,
            ),
            row(
                "services with flows",
                SIDESTEP_FLOW_TABLES,
                Some(
                    image
                        .learned
                        .values()
                        .filter(|learned| learned.flows != 0)
                        .count(),
                ),
                refused,
            ),
        ];
        let of_packets = OF_PACKETS.map(|(name, limit, beyond)| row(name, limit, None, beyond));
        tables.into_iter().chain(of_packets).collect()
    }
}

/// Returns the routes with an SRv6 encapsulation, routes that exist only in Sidestep, and routes
/// into policies, whether in effect or not.
pub(super) fn srv6_routes(node: &Node) -> BTreeSet<&RouteKey> {
    let srv6 = |route: &Route| route.next_hops.iter().any(|hop| hop.encap.is_some());
    let shown = node
        .routes
        .iter()
        .filter(|(_, route)| route.owner == Owner::Sidestep || srv6(route));
    let into_policies = node.policies.routes().iter();
    let shown = shown.chain(into_policies).map(|(key, _)| key);
    // `ether show` has those of ether devices.
    shown
        .filter(|key| node.ether_of_table(key.table).is_none())
        .collect()
}

/// Returns none if nothing was learned yet.
fn learned_report(
    learned: &sidestep_learned,
    words: fn(&[u8]) -> (Value, String),
    now: u64,
) -> Option<report::Learned> {
    let bytes = learned::current(learned)?;
    let (headers, text) = words(bytes);
    // Another CPU may have learned it after the clock was read.
    let age = Duration::from_nanos(now.saturating_sub(learned.time));
    Some(report::Learned {
        age: age.as_millis() as u64,
        bytes: bytes.len() as u64,
        headers,
        text,
    })
}

/// Limits per packet: name, limit, and the consequence of exceeding it.
const OF_PACKETS: [(&str, u32, &str); 15] = [
    (
        "flows of a service",
        SIDESTEP_FLOWS,
        "the one longest without a packet makes room",
    ),
    (
        "records of headers that the flows of a service share",
        SIDESTEP_HEADER_SETS,
        "those longest without a packet make room",
    ),
    (
        "bytes of learned headers",
        SIDESTEP_LEARNED_MAX,
        "drop learned_length",
    ),
    (
        "segments",
        SIDESTEP_SEGMENTS_MAX,
        "refused, or punted if the kernel has the route",
    ),
    ("local SIDs per packet", SIDESTEP_STEPS_MAX, "drop sid_loop"),
    (
        "extension headers",
        SIDESTEP_EXT_HEADERS_MAX,
        "punt ext_chain",
    ),
    (
        "segments under an HMAC",
        SIDESTEP_HMAC_SEGMENTS_MAX,
        "drop hmac_segments, as the kernel does; a policy with more is the kernel's",
    ),
    (
        "TLVs looked at",
        SIDESTEP_TLVS_MAX,
        "the rest is passed on unread",
    ),
    (
        "options per extension header",
        SIDESTEP_OPTIONS_MAX,
        "punt hop_by_hop, or ext_chain in Destination Options",
    ),
    (
        "traced packets per second",
        RATE_MAX,
        "further packets are not printed",
    ),
    (
        "bytes of a traced packet",
        SIDESTEP_SAMPLE_BYTES,
        "the rest is not printed",
    ),
    (
        "steps of a traced packet",
        SIDESTEP_SAMPLE_STEPS,
        "the rest is not printed",
    ),
    (
        "bytes of a packet for its ICMP error",
        SIDESTEP_REPORT_BYTES,
        "an error quotes fewer; a longer ping to a SID is not answered",
    ),
    (
        "bytes of a frame that is sent in fragments",
        SIDESTEP_REPORT_BYTES,
        "drop too_big, with an ICMP error",
    ),
    (
        "bytes of a copy for the O-flag",
        SIDESTEP_COPY_BYTES,
        "the rest is not printed",
    ),
];

/// Adds to the reason for a port's target what happens to its frames if it belongs to a bridge.
fn beside_bridge(node: &Node, link: Option<&Link>, why: String) -> String {
    let Some(port) = link.and_then(|link| node.bridge_ports.get(&link.ifindex)) else {
        return why;
    };
    let bridge = node.links.get(&port.bridge);
    let bridge = bridge.map_or("its bridge", |bridge| &bridge.name);
    match &port.obstacle {
        Some(obstacle) => format!("{why}; its frames pass {bridge}: {obstacle}"),
        None => format!("{why}; frames between stations that {bridge} knows pass beside it"),
    }
}
