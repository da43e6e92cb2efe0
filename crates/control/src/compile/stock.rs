//! The indices of all tables.

use sidestep_datapath::abi::{
    SIDESTEP_FLOW_TABLES, SIDESTEP_HMAC_KEYS, SIDESTEP_LEARNED, sidestep_hmac_key,
};
use sidestep_datapath::{
    AdjacencyId, CounterId, FlowTableId, GroupId, HeaderSetId, Image, KeySlot, Limits, PolicyId,
    RouteId, VIEWS, ViewId,
};
use sidestep_model::node::IfIndex;
use sidestep_model::route::Family;
use sidestep_model::vlan::VlanTableId;

use super::chain::Chain;
use super::group::GroupKey;
use super::ids::{Ids, Passes};
use super::index::Counted;
use super::routes::{AdjacencyKey, PolicyKey, RouteRecord};
use super::service::LearnedKey;
use super::tables::Prefix;

/// What a view of the FIB holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ViewKey {
    /// Routing tables.
    Chain(Chain),
    /// Just these prefixes, with the indices of their routes: by source address, or the way there.
    Leading(Vec<(Prefix, RouteId)>),
    /// A VLAN table.
    Vlans(VlanTableId),
    /// HMAC key ids.
    HmacKeys,
    /// The addresses of an interface by which a service sends back.
    Own(IfIndex, Family),
    /// The SID blocks of the domain.
    Domain,
}

/// Who has which index.
#[derive(Debug)]
pub(super) struct Stock {
    pub views: Ids<ViewKey, ViewId>,
    pub routes: Ids<RouteRecord, RouteId>,
    pub groups: Ids<GroupKey, GroupId>,
    pub counters: Ids<Counted, CounterId>,
    pub adjacencies: Ids<AdjacencyKey, AdjacencyId>,
    pub policies: Ids<PolicyKey, PolicyId>,
    pub hmac_keys: Ids<sidestep_hmac_key, KeySlot>,
    pub learned: Ids<LearnedKey, HeaderSetId>,
    pub flow_tables: Ids<LearnedKey, FlowTableId>,
}

impl Stock {
    pub fn new(limits: Limits) -> Self {
        Self {
            views: Ids::new("views", VIEWS),
            routes: Ids::new("routes", limits.routes),
            groups: Ids::new("groups", limits.groups),
            counters: Ids::new("route counters", limits.route_counters),
            adjacencies: Ids::new("adjacencies", limits.adjacencies),
            policies: Ids::new("policies", limits.policies),
            hmac_keys: Ids::new("HMAC keys", SIDESTEP_HMAC_KEYS + 1),
            learned: Ids::new("learned headers", SIDESTEP_LEARNED + 1),
            flow_tables: Ids::new("tables of flows", SIDESTEP_FLOW_TABLES + 1),
        }
    }

    /// No index of these tables is given to anything before it is released.
    pub fn avoid(&mut self, image: &Image) {
        // The prefixes may be unknown, but no packet searches a view that nothing refers to.
        self.views.avoid(image.referenced_views());
        self.routes.avoid(image.routes.keys().copied());
        self.groups.avoid(image.groups.keys().copied());
        let of_counters = image.routes.values().map(|route| route.counter);
        self.counters.avoid(of_counters);
        self.adjacencies.avoid(image.adjacencies.keys().copied());
        self.policies.avoid(image.policies.keys().copied());
        self.hmac_keys.avoid(image.hmac_keys.keys().copied());
        self.learned.avoid(image.learned.keys().copied());
        let of_learned = image.learned.values().map(|learned| learned.table);
        self.flow_tables.avoid(of_learned);
    }

    /// Each of them.
    pub fn all(&mut self) -> [&mut dyn Passes; 9] {
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

    /// Whether any index is out of use.
    pub fn holds_back(&self) -> bool {
        self.views.holds_back()
            || self.routes.holds_back()
            || self.groups.holds_back()
            || self.counters.holds_back()
            || self.adjacencies.holds_back()
            || self.policies.holds_back()
            || self.hmac_keys.holds_back()
            || self.learned.holds_back()
            || self.flow_tables.holds_back()
    }
}
