//! The report of `sidestep metrics`: counters and states of the whole daemon, made in one go.

use std::collections::BTreeSet;

use sidestep_model::behavior::proxy::InnerType;
use sidestep_model::node::Node;
use sidestep_model::route::{Encap, Route, RouteKey};

use super::policies::Counts;
use super::reports::srv6_routes;
use super::{Instance, System};
use crate::compile::Counted;
use crate::report;

impl<S: System> Instance<S> {
    pub(super) fn metrics_report(&self) -> Result<report::Metrics, String> {
        let node = self.node();
        let keys = srv6_routes(node);
        let punted = |key: &&&RouteKey| self.tables.compiled.index.unsupported.contains_key(key);
        let sids = self.sids_report(node, &keys)?;
        Ok(report::Metrics {
            status: self.status_report(),
            ports: self.ports_report(),
            port_counters: self.port_counters()?,
            reasons: self.reasons_report()?,
            routes: keys.len() as u64,
            punted_routes: keys.iter().filter(punted).count() as u64,
            sids,
            return_paths: self.return_counters(node)?,
            policies: self.policies_report()?,
            paths: self.paths_report(),
            limits: self.limits_report(),
            icmp: self.icmp_report(),
            fragments: self.fragments_report(),
            oam: self.oam_report(),
            hmac_keys: self.hmac_report(),
        })
    }

    fn sids_report(
        &self,
        node: &Node,
        keys: &BTreeSet<&RouteKey>,
    ) -> Result<Vec<report::Sid>, String> {
        let routes = keys.iter().copied();
        let sids: Vec<_> = routes
            .filter_map(|key| {
                let route = configured(node, key);
                Some((key, route, behavior(route)?))
            })
            .collect();
        let counts = self.counts_of_routes(sids.iter().map(|(key, ..)| *key))?;
        let mut reports: Vec<report::Sid> = Vec::with_capacity(sids.len());
        let mut before: Option<&RouteKey> = None;
        for (key, route, behavior) in sids {
            let sid = self.sid_report(key, route, behavior, &counts);
            let is_same = before.is_some_and(|it| (it.table, it.prefix) == (key.table, key.prefix));
            match reports.last_mut().filter(|_| is_same) {
                // Routes that differ in their metric count as one SID. The first has precedence.
                Some(first) => {
                    first.packets += sid.packets;
                    first.bytes += sid.bytes;
                    first.errors += sid.errors;
                }
                None => reports.push(sid),
            }
            before = Some(key);
        }
        Ok(reports)
    }

    fn sid_report(
        &self,
        key: &RouteKey,
        route: &Route,
        behavior: &str,
        counts: &Counts,
    ) -> report::Sid {
        let counters = self.counted_by_route(key, counts);
        report::Sid {
            sid: key.prefix.to_string(),
            table: key.table.0,
            behavior: behavior.into(),
            packets: counters.packets,
            bytes: counters.bytes,
            errors: counters.errors,
            service: self.watchers.liveness.report(route),
        }
    }

    fn return_counters(&self, node: &Node) -> Result<Vec<report::ReturnCounters>, String> {
        let proxies = self.tables.compiled.index.proxies.values();
        let paths: BTreeSet<_> = proxies
            .filter_map(|proxy| match proxy.return_counter {
                Counted::ReturnPath(port, inner) => Some((port, inner, proxy.learned)),
                _ => None,
            })
            .collect();
        let mut reports: Vec<report::ReturnCounters> = Vec::new();
        for (port, inner, learned) in paths {
            let counters = self.counted(Counted::ReturnPath(port, inner))?;
            let link = node.links.get(&port);
            reports.push(report::ReturnCounters {
                port: link.map_or_else(|| port.0.to_string(), |link| link.name.clone()),
                inner: match inner {
                    InnerType::Ipv6 => "ipv6",
                    InnerType::Ipv4 => "ipv4",
                    InnerType::L2 => "l2",
                }
                .into(),
                packets: counters.packets,
                bytes: counters.bytes,
                errors: counters.errors,
                not_learned: counters.not_learned,
                no_srh: counters.no_srh,
                flows: learned
                    .is_some()
                    .then(|| self.flows_report(learned))
                    .flatten(),
            });
        }
        Ok(reports)
    }
}

/// Returns the route as configured: a route into a policy may not be in effect.
pub(super) fn configured<'a>(node: &'a Node, key: &RouteKey) -> &'a Route {
    let into_policies = node.policies.routes();
    into_policies.get(key).unwrap_or_else(|| &node.routes[key])
}

/// Behavior of a SID.
fn behavior(route: &Route) -> Option<&'static str> {
    let encap = route.next_hops.iter().find_map(|hop| hop.encap.as_ref())?;
    match encap {
        Encap::Seg6Local(local) => Some(local.action.descriptor().name),
        _ => None,
    }
}
