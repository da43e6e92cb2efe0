//! `compile(node) -> tables`: what the operator configured, as records that cost a packet one lookup each.
//!
//! Everything that can be known before a packet comes is resolved here: rules become a view per port, next hops become
//! MAC addresses, segment lists become headers. Neighbors on a connected prefix become host routes, as hardware routers
//! do it, so that the longest match gives the MAC.

mod chain;
mod endpoints;
mod fit;
mod group;
mod header;
mod ids;
mod index;
mod merge;
mod routes;
mod rules;
mod tables;
mod views;

use std::collections::{BTreeMap, BTreeSet};

use sidestep_abi::{
    PUNT_table_full, SIDESTEP_PORT_FORWARD4, SIDESTEP_PORT_FORWARD6, SIDESTEP_PORT_REQUIRE_HMAC,
    SIDESTEP_PORT_RPF_LOOSE, SIDESTEP_PORT_RPF_STRICT, SIDESTEP_PORT_RULES4_PUNT,
    SIDESTEP_PORT_RULES6_PUNT, SIDESTEP_PORT_SEG6, SIDESTEP_PORTS, sidestep_port,
};
use sidestep_datapath::{FibKey, Image, Limits, VIEWS};
use sidestep_model::node::{IfIndex, Link, Node, TableId};
use sidestep_model::route::{Family, Route, RouteKey};
use sidestep_model::vlan::VlanTableId;
use thiserror::Error;

use chain::Chain;
use group::GroupKey;
use ids::{Full, Ids};
pub use index::{AdjacencyInfo, Index, Leads, PolicyInfo, RouteInfo, ViewInfo};
use routes::{AdjacencyKey, PolicyKey, RouteRecord};
use rules::{Chains, Source};
use tables::{Prefix, Routing};

/// Why a node cannot be compiled. Nothing of it is applied then; what ran before runs on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    /// A table is full.
    #[error("the table of {table} is full: it holds {limit} (see `sidestep show limits`)")]
    Full {
        /// Which.
        table: &'static str,
        /// Its size.
        limit: u32,
    },
    /// A port is not an interface of the node.
    #[error("port with interface index {0}: there is no such interface")]
    NoSuchPort(u32),
    /// Two ports share a slot of the port table.
    #[error(
        "ports {0} and {1}: their interface indices are equal modulo {SIDESTEP_PORTS}; attach only one of them, or \
         recreate one interface"
    )]
    PortSlot(String, String),
}

impl From<Full> for CompileError {
    fn from(full: Full) -> Self {
        Self::Full {
            table: full.table,
            limit: full.limit,
        }
    }
}

/// Tables and what their indices mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// What the packet path reads.
    pub image: Image,
    /// What a person wants to know of it.
    pub index: Index,
}

/// Compiles again and again, with indices that stay what they were.
#[derive(Debug)]
pub struct Compiler {
    limits: Limits,
    views: Ids<ViewKey>,
    routes: Ids<RouteRecord>,
    groups: Ids<GroupKey>,
    counters: Ids<RouteKey>,
    adjacencies: Ids<AdjacencyKey>,
    policies: Ids<PolicyKey>,
}

/// What a view of the FIB holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ViewKey {
    /// Routing tables.
    Chain(Chain),
    /// Just these prefixes, with the indices of their routes: by source address, or the way there.
    Leading(Vec<(Prefix, u32)>),
    /// A VLAN table.
    Vlans(VlanTableId),
}

/// One compilation on its way.
struct Pass<'a> {
    ids: &'a mut Compiler,
    node: &'a Node,
    tables: BTreeMap<(Family, TableId), Routing<&'a Route>>,
    /// The chains that all ports share, per family, if they do: then next hops can be resolved ahead.
    common: BTreeMap<Family, Chains>,
    /// Views asked for whose tables are yet to be filled.
    wanted: Vec<(Chain, u32)>,
    /// The route record of what did not fit: it leaves packets to the kernel.
    full: u32,
    out: Compiled,
}

impl Compiler {
    /// With nothing in use. Index 0 of each table stays empty.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            views: Ids::new("views", VIEWS),
            routes: Ids::new("routes", limits.routes),
            groups: Ids::new("groups", limits.groups),
            counters: Ids::new("route counters", limits.route_counters),
            adjacencies: Ids::new("adjacencies", limits.adjacencies),
            policies: Ids::new("policies", limits.policies),
        }
    }

    /// As [`Compiler::new`], beside tables that an earlier process filled: none of their indices is given to anything
    /// before [`Compiler::release`].
    pub fn beside(limits: Limits, image: &Image) -> Self {
        let mut compiler = Self::new(limits);
        // Of the prefixes nothing may be known, but a view that nothing refers to is not walked either.
        let of_ports = image.ports.values().flat_map(|it| [it.view6, it.view4]);
        let of_routes = image.routes.values().flat_map(|it| [it.view6, it.view4]);
        let of_policies = image.policies.values().map(|it| it.view);
        compiler
            .views
            .avoid(of_ports.chain(of_routes).chain(of_policies));
        compiler.routes.avoid(image.routes.keys().copied());
        compiler.groups.avoid(image.groups.keys().copied());
        compiler
            .counters
            .avoid(image.routes.values().map(|route| route.counter));
        compiler
            .adjacencies
            .avoid(image.adjacencies.keys().copied());
        compiler.policies.avoid(image.policies.keys().copied());
        compiler
    }

    /// Whether indices wait for [`Compiler::release`].
    pub fn holds_back(&self) -> bool {
        self.views.holds_back()
            || self.routes.holds_back()
            || self.groups.holds_back()
            || self.counters.holds_back()
            || self.adjacencies.holds_back()
            || self.policies.holds_back()
    }

    /// The tables for `node` with these ports, all of it. On an error the indices in use do not change.
    pub fn compile(
        &mut self,
        node: &Node,
        ports: &BTreeSet<IfIndex>,
    ) -> Result<Compiled, CompileError> {
        let out = self.attempt(node, ports, &BTreeMap::new())?;
        if let Some(&table) = out.index.full.values().next() {
            return Err(self.full(table));
        }
        self.accept();
        Ok(out)
    }

    /// The tables for `node` with these ports, as far as they hold it: routes that do not fit are left to the kernel and
    /// named in [`Index::full`]. `held` is what the FIB holds now, which comes first. The indices in use do not change
    /// before [`Compiler::accept`].
    pub fn attempt(
        &mut self,
        node: &Node,
        ports: &BTreeSet<IfIndex>,
        held: &BTreeMap<FibKey, u32>,
    ) -> Result<Compiled, CompileError> {
        self.begin();
        let limit = self.limits.fib;
        let mut pass = Pass {
            ids: self,
            node,
            tables: BTreeMap::new(),
            common: BTreeMap::new(),
            wanted: Vec::new(),
            full: 0,
            out: Compiled::default(),
        };
        // First: there is always room for the record of what does not fit.
        pass.full = pass.ids.routes.get(&routes::punt(PUNT_table_full))?;
        pass.read_tables();
        pass.ports(ports)?;
        pass.views()?;
        pass.fit(limit, held);
        Ok(pass.out)
    }

    /// The last attempt is what will be applied: indices that it does not use are out of use.
    pub fn accept(&mut self) {
        self.sweep();
    }

    /// That a table of [`Index::full`] is full.
    pub fn full(&self, table: &'static str) -> CompileError {
        let limit = match table {
            "routes" => self.limits.routes,
            "groups" => self.limits.groups,
            "adjacencies" => self.limits.adjacencies,
            "policies" => self.limits.policies,
            "views" => VIEWS,
            _ => self.limits.fib,
        };
        CompileError::Full { table, limit }
    }

    /// The last result has been applied and a grace period has passed since: indices that it no longer uses are free.
    pub fn release(&mut self) {
        self.views.release();
        self.routes.release();
        self.groups.release();
        self.counters.release();
        self.adjacencies.release();
        self.policies.release();
    }

    fn begin(&mut self) {
        self.views.begin();
        self.routes.begin();
        self.groups.begin();
        self.counters.begin();
        self.adjacencies.begin();
        self.policies.begin();
    }

    fn sweep(&mut self) {
        self.views.sweep();
        self.routes.sweep();
        self.groups.sweep();
        self.counters.sweep();
        self.adjacencies.sweep();
        self.policies.sweep();
    }
}

impl Pass<'_> {
    /// Per table and prefixes the route that wins: the lowest metric (and no TOS: those are the kernel's).
    fn read_tables(&mut self) {
        for (key, route) in &self.node.routes {
            let table = self
                .tables
                .entry((tables::family(&key.prefix), key.table))
                .or_default();
            let entry = table.entry(key.prefix.into());
            let from = key.from.filter(|from| from.prefix_len() > 0);
            let from = from.map(Prefix::from);
            let better = entry.get(from).is_none_or(|winner| {
                // A TOS makes the whole prefix the kernel's.
                let selects = (key.tos != 0, winner.key.tos != 0);
                selects == (true, false) || selects.0 == selects.1 && key.metric < winner.key.metric
            });
            if better {
                entry.set(from, route);
            }
        }
    }

    fn ports(&mut self, ports: &BTreeSet<IfIndex>) -> Result<(), CompileError> {
        let mut slots: BTreeMap<u32, &Link> = BTreeMap::new();
        let mut chains: BTreeMap<Family, BTreeSet<Option<Chains>>> = BTreeMap::new();
        for &port in ports {
            let link = self
                .node
                .links
                .get(&port)
                .ok_or(CompileError::NoSuchPort(port.0))?;
            if let Some(other) = slots.insert(port.0 % SIDESTEP_PORTS, link) {
                return Err(CompileError::PortSlot(
                    other.name.clone(),
                    link.name.clone(),
                ));
            }
            let source = Source::port(self.node, port).ok_or(CompileError::NoSuchPort(port.0))?;
            for family in [Family::V4, Family::V6] {
                chains
                    .entry(family)
                    .or_default()
                    .insert(rules::chains(self.node, family, source).ok());
            }
        }
        for (family, mut chains) in chains {
            if let (1, Some(Some(common))) = (chains.len(), chains.pop_first()) {
                self.common.insert(family, common);
            }
        }
        for &port in ports {
            let record = self.port(port)?;
            self.out.image.ports.insert(port.0, record);
        }
        Ok(())
    }

    fn port(&mut self, port: IfIndex) -> Result<sidestep_port, CompileError> {
        let link = self
            .node
            .links
            .get(&port)
            .ok_or(CompileError::NoSuchPort(port.0))?;
        let source = Source::port(self.node, port).ok_or(CompileError::NoSuchPort(port.0))?;
        let mut record = sidestep_port {
            ifindex: port.0,
            mac: link.mac.0,
            ..Default::default()
        };
        let flags = [
            (link.seg6_enabled, SIDESTEP_PORT_SEG6),
            (link.forwarding6, SIDESTEP_PORT_FORWARD6),
            (link.forwarding4, SIDESTEP_PORT_FORWARD4),
            (link.rp_filter == 1, SIDESTEP_PORT_RPF_STRICT),
            (link.rp_filter == 2, SIDESTEP_PORT_RPF_LOOSE),
            (link.seg6_require_hmac > 0, SIDESTEP_PORT_REQUIRE_HMAC),
        ];
        record.flags = flags
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, flag)| flag)
            .sum();
        let chains = [
            (
                Family::V6,
                SIDESTEP_PORT_RULES6_PUNT,
                rules::chains(self.node, Family::V6, source),
            ),
            (
                Family::V4,
                SIDESTEP_PORT_RULES4_PUNT,
                self.chains_with_way_back(link, source),
            ),
        ];
        for (family, punt, chains) in chains {
            let view = chains.and_then(|chains| {
                if let Some(why) = chains.leaves() {
                    let why = why.to_owned();
                    self.out.index.left_to_kernel.insert((port, family), why);
                }
                self.view_of(&chains)
                    .map_err(|full| CompileError::from(full).to_string())
            });
            match (view, family) {
                (Ok(view), Family::V6) => record.view6 = view,
                (Ok(view), Family::V4) => record.view4 = view,
                (Err(why), _) => {
                    record.flags |= punt;
                    self.out.index.left_to_kernel.insert((port, family), why);
                }
            }
        }
        Ok(record)
    }

    /// The chains of a port's IPv4 packets. With `rp_filter`, Linux looks up the way back to the source as if for a packet
    /// that arrives where this one leaves (`__fib_validate_source`): by the same chains, or it is the kernel's.
    fn chains_with_way_back(&self, link: &Link, source: Source<'_>) -> Result<Chains, String> {
        let own = rules::chains(self.node, Family::V4, source)?;
        let same = |other: &Link| {
            let source = Source::port(self.node, other.ifindex);
            source.map(|source| rules::chains(self.node, Family::V4, source))
                == Some(Ok(own.clone()))
        };
        let mut others = self.node.links.values();
        let differs = |other: &Link| other.master == link.master && !same(other);
        match others.find(|other| link.rp_filter != 0 && differs(other)) {
            Some(other) => Err(format!(
                "rp_filter is on, and {} has other rules, by which the way back would be looked up",
                other.name
            )),
            None => Ok(own),
        }
    }
}

#[cfg(test)]
mod tests;
