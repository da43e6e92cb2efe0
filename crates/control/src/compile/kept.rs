//! Counters and next hops of segment lists, kept while the lists are invalid.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_datapath::RouteId;
use sidestep_datapath::abi::{PUNT_route_miss, SIDESTEP_ROUTE_FORWARD, sidestep_route};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::policy::{Policy, named};

use super::index::Counted;
use super::keys::Via;
use super::record::{punt, record};
use super::store::RecordStore;

/// Records that no packet matches. They keep the counters of segment lists, which continue when a
/// list becomes valid again, and their next hops, which are probed until they reply.
#[derive(Debug, Default)]
pub(super) struct KeptLists {
    counters: BTreeSet<RouteId>,
    next_hops: BTreeSet<(IfIndex, IpAddr)>,
    next_hop_routes: BTreeSet<RouteId>,
}

impl KeptLists {
    /// Keeps the counters and next hops of all segment lists, as far as they fit.
    pub fn keep(&mut self, store: &mut RecordStore<'_>, node: &Node) {
        self.keep_next_hops(store, node);
        let mut kept = BTreeSet::new();
        for route in node.policies.routes().values() {
            let policies = named(route).into_iter();
            let policies = policies.filter_map(|name| node.policies.defined().get(name));
            for (list, _) in policies.flat_map(Policy::lists) {
                let counter = store.counter(Counted::List(route.key, list));
                kept.extend(store.keep(sidestep_route {
                    counter,
                    ..punt(PUNT_route_miss)
                }));
            }
        }
        store.acquire_all(&kept);
        let before = std::mem::replace(&mut self.counters, kept);
        store.release_all(&before);
    }

    /// Keeps the next hops. Without a change of policies and their routes, only these can change.
    pub fn keep_next_hops(&mut self, store: &mut RecordStore<'_>, node: &Node) {
        let next_hops = node.policies.next_hops();
        if next_hops == self.next_hops {
            return;
        }
        let mut kept = BTreeSet::new();
        for &(dev, via) in &next_hops {
            if let Ok(adjacency) = store.adjacency(dev, Via::Address(via), None) {
                kept.extend(store.keep(sidestep_route {
                    adjacency,
                    ..record(SIDESTEP_ROUTE_FORWARD)
                }));
            }
        }
        store.acquire_all(&kept);
        self.next_hops = next_hops;
        let before = std::mem::replace(&mut self.next_hop_routes, kept);
        store.release_all(&before);
    }
}
