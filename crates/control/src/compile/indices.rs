//! Index allocators of all tables.

use sidestep_datapath::abi::{
    SIDESTEP_FLOW_TABLES, SIDESTEP_HMAC_KEYS, SIDESTEP_LEARNED, sidestep_hmac_key,
};
use sidestep_datapath::{
    AdjacencyId, CounterId, FlowTableId, GroupId, HeaderSetId, Image, KeySlot, Limits, PolicyId,
    RouteId, VIEWS, ViewId,
};

use super::allocator::{Allocator, IndexAllocator};
use super::index::Counted;
use super::keys::{AdjacencyKey, GroupKey, LearnedKey, PolicyKey, RouteRecord, ViewKey};

/// All allocators.
#[derive(Debug)]
pub(super) struct Indices {
    pub views: IndexAllocator<ViewKey, ViewId>,
    pub routes: IndexAllocator<RouteRecord, RouteId>,
    pub groups: IndexAllocator<GroupKey, GroupId>,
    pub counters: IndexAllocator<Counted, CounterId>,
    pub adjacencies: IndexAllocator<AdjacencyKey, AdjacencyId>,
    pub policies: IndexAllocator<PolicyKey, PolicyId>,
    pub hmac_keys: IndexAllocator<sidestep_hmac_key, KeySlot>,
    pub learned: IndexAllocator<LearnedKey, HeaderSetId>,
    pub flow_tables: IndexAllocator<LearnedKey, FlowTableId>,
}

impl Indices {
    pub fn new(limits: Limits) -> Self {
        Self {
            views: IndexAllocator::new("views", VIEWS),
            routes: IndexAllocator::new("routes", limits.routes),
            groups: IndexAllocator::new("groups", limits.groups),
            counters: IndexAllocator::new("route counters", limits.route_counters),
            adjacencies: IndexAllocator::new("adjacencies", limits.adjacencies),
            policies: IndexAllocator::new("policies", limits.policies),
            hmac_keys: IndexAllocator::new("HMAC keys", SIDESTEP_HMAC_KEYS + 1),
            learned: IndexAllocator::new("learned headers", SIDESTEP_LEARNED + 1),
            flow_tables: IndexAllocator::new("tables of flows", SIDESTEP_FLOW_TABLES + 1),
        }
    }

    /// Reserves the indices of an earlier process's tables until they are reclaimed.
    pub fn reserve(&mut self, image: &Image) {
        // The prefixes may be unknown, but no packet searches a view that nothing refers to.
        self.views.reserve(image.referenced_views());
        self.routes.reserve(image.routes.keys().copied());
        self.groups.reserve(image.groups.keys().copied());
        let of_counters = image.routes.values().map(|route| route.counter);
        self.counters.reserve(of_counters);
        self.adjacencies.reserve(image.adjacencies.keys().copied());
        self.policies.reserve(image.policies.keys().copied());
        self.hmac_keys.reserve(image.hmac_keys.keys().copied());
        self.learned.reserve(image.learned.keys().copied());
        let of_learned = image.learned.values().map(|learned| learned.table);
        self.flow_tables.reserve(of_learned);
    }

    /// Returns all allocators.
    pub fn all(&mut self) -> [&mut dyn Allocator; 9] {
        [
            &mut self.views,
            &mut self.routes,
            &mut self.groups,
            &mut self.counters,
            &mut self.adjacencies,
            &mut self.policies,
            &mut self.hmac_keys,
            &mut self.learned,
            &mut self.flow_tables,
        ]
    }

    /// Whether any index waits to be reclaimed.
    pub fn has_pending(&self) -> bool {
        self.views.has_pending()
            || self.routes.has_pending()
            || self.groups.has_pending()
            || self.counters.has_pending()
            || self.adjacencies.has_pending()
            || self.policies.has_pending()
            || self.hmac_keys.has_pending()
            || self.learned.has_pending()
            || self.flow_tables.has_pending()
    }
}
