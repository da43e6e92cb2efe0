//! `compile(node) -> tables`: what the operator configured, as records that cost a packet one lookup each.
//!
//! Everything that can be known before a packet comes is resolved here: rules become a view per port, next hops become
//! MAC addresses, segment lists become headers. Neighbors on a connected prefix become host routes, as hardware routers
//! do it, so that the longest match gives the MAC.

mod chain;
mod endpoints;
mod fit;
mod group;
mod headend;
mod header;
mod hmac;
mod ids;
mod index;
mod known;
mod merge;
mod policy;
mod records;
mod resolved;
mod routes;
mod rules;
mod service;
mod share;
mod stock;
mod tables;
mod update;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sidestep_datapath::abi::{
    DROP_sid_block, PUNT_table_full, SIDESTEP_FLOW_TABLES, SIDESTEP_HMAC_KEYS, SIDESTEP_LEARNED,
    SIDESTEP_PORT_FORWARD4, SIDESTEP_PORT_FORWARD6, SIDESTEP_PORT_IGNORE_HMAC,
    SIDESTEP_PORT_O_FLAG, SIDESTEP_PORT_REQUIRE_HMAC, SIDESTEP_PORT_RPF_LOOSE,
    SIDESTEP_PORT_RPF_STRICT, SIDESTEP_PORT_RULES4_PUNT, SIDESTEP_PORT_RULES6_PUNT,
    SIDESTEP_PORT_SEG6, SIDESTEP_PORTS, SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_SIDESTEP_ONLY,
    sidestep_port, sidestep_route,
};
use sidestep_datapath::{FibKey, Image, Limits, RouteId, VIEWS, ViewId};
use sidestep_model::node::{IfIndex, Link, Node, TableId};
use sidestep_model::route::{Family, RouteKey};
use thiserror::Error;

use chain::Chain;
pub use hmac::sign;
use ids::Full;
pub use index::{AdjacencyInfo, Counted, Index, Leads, PolicyInfo, ProxyInfo, RouteInfo, ViewInfo};
use known::Known;
pub(crate) use policy::shares;
pub use records::Change;
use records::Log;
use rules::{Chains, Source};
use stock::{Stock, ViewKey};
use tables::{Place, Prefix};
pub use update::Whole;

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
    #[error("no interface with index {0} exists, so it cannot be a port")]
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

/// Compiles again and again, with indices that stay what they were: all of a node, or only what has changed since.
#[derive(Debug)]
pub struct Compiler {
    limits: Limits,
    stock: Stock,
    /// What the last accepted pass left, if no other was begun since.
    known: Option<Known>,
    /// What a pass left that is not accepted yet, and whether it was over everything.
    attempted: Option<(Known, bool)>,
}

/// One compilation on its way.
struct Pass<'a> {
    stock: &'a mut Stock,
    node: &'a Node,
    known: Known,
    /// The entry that is being made.
    place: Option<Place>,
    /// Views asked for that have no prefixes yet.
    unfilled: Vec<Chain>,
    /// Views that a record ceased to refer to.
    left: Vec<ViewId>,
    /// Entries that left a record.
    vacated: Vec<(Place, RouteId)>,
    log: Log,
    out: &'a mut Compiled,
}

impl Compiler {
    /// With nothing in use. Index 0 of each table stays empty.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            stock: Stock::new(limits),
            known: None,
            attempted: None,
        }
    }

    /// As [`Compiler::new`], beside tables that an earlier process filled: none of their indices is given to anything
    /// before it is released.
    pub fn beside(limits: Limits, image: &Image) -> Self {
        let mut compiler = Self::new(limits);
        compiler.stock.avoid(image);
        compiler
    }

    /// Whether indices wait for [`Compiler::release`].
    pub fn holds_back(&self) -> bool {
        self.stock.holds_back()
    }

    /// The tables for `node` with these ports, all of it. On an error the indices in use do not change.
    pub fn compile(
        &mut self,
        node: &Node,
        ports: &BTreeSet<IfIndex>,
    ) -> Result<Compiled, CompileError> {
        let out = self.attempt(node, ports, &BTreeMap::new())?;
        if let Some(&table) = out.index.full_tables().first() {
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
        held: &BTreeMap<FibKey, RouteId>,
    ) -> Result<Compiled, CompileError> {
        (self.known, self.attempted) = (None, None);
        for ids in self.stock.all() {
            ids.begin();
        }
        // First: there is always room for the record of what does not fit.
        let full = self.stock.routes.get(&routes::punt(PUNT_table_full))?;
        self.stock.routes.hold(full);
        let mut out = Compiled::default();
        let mut pass = Pass {
            stock: &mut self.stock,
            node,
            known: Known {
                full,
                ..Known::of(node)
            },
            place: None,
            unfilled: Vec::new(),
            left: Vec::new(),
            vacated: Vec::new(),
            log: Log::default(),
            out: &mut out,
        };
        pass.ports(ports)?;
        pass.views()?;
        pass.keep_lists()?;
        pass.fit(self.limits.fib, held);
        pass.settle();
        self.attempted = Some((pass.known, true));
        Ok(out)
    }

    /// Brings the tables of the last accepted pass to what `node` is now, which differs from the node of then in these
    /// routes and neighbors and nothing else: in time that depends on what they are for, not on how large the node is.
    /// The result is that of [`Compiler::attempt`], save for the numbers of indices, and save that a route for which there
    /// was no room waits for the next attempt.
    ///
    /// # Errors
    /// The node has to be compiled as a whole; the tables are what they were.
    pub fn update(
        &mut self,
        node: &Node,
        routes: &[RouteKey],
        neighbors: &[(IfIndex, IpAddr)],
        compiled: &mut Compiled,
    ) -> Result<Change, Whole> {
        if routes.len() > node.routes.len() / WHOLE + 64 {
            return Err(Whole::Many(routes.len()));
        }
        if compiled.index.is_short() {
            return Err(Whole::Full);
        }
        let known = self.known.take().ok_or(Whole::Unknown)?;
        let mut pass = Pass {
            stock: &mut self.stock,
            node,
            known,
            place: None,
            unfilled: Vec::new(),
            left: Vec::new(),
            vacated: Vec::new(),
            log: Log {
                on: true,
                ..Log::default()
            },
            out: compiled,
        };
        let mut done = pass.update(routes, neighbors);
        if pass.out.image.fib.len() > self.limits.fib as usize {
            done = done.and(Err(Whole::Full));
        }
        let (known, change) = (pass.known, pass.log.change);
        if let Err(why) = done {
            change.revert(compiled);
            // Nothing was: see above.
            compiled.index.full_for_rules.clear();
            return Err(why);
        }
        self.attempted = Some((known, false));
        Ok(change)
    }

    /// The last attempt or update is what will be applied: indices that it does not use are out of use.
    pub fn accept(&mut self) {
        if let Some((known, whole)) = self.attempted.take() {
            for ids in self.stock.all() {
                ids.accept(whole);
            }
            self.known = Some(known);
        }
    }

    /// The route that a table has for an address, whatever the source: of the last accepted pass.
    pub fn route_for(&self, table: TableId, address: IpAddr) -> Option<RouteKey> {
        let winners = &self.known.as_ref()?.winners;
        let winners = winners.get(&(Family::of(&address), table))?;
        let found = winners.find(Prefix::host(address), Prefix::DEFAULT);
        found.map(|winner| winner.key)
    }

    /// That a table of [`Index::full`] is full.
    pub fn full(&self, table: &'static str) -> CompileError {
        let limit = match table {
            "routes" => self.limits.routes,
            "groups" => self.limits.groups,
            "adjacencies" => self.limits.adjacencies,
            "policies" => self.limits.policies,
            "HMAC keys" => SIDESTEP_HMAC_KEYS,
            "learned headers" => SIDESTEP_LEARNED,
            "tables of flows" => SIDESTEP_FLOW_TABLES,
            "views" => VIEWS,
            _ => self.limits.fib,
        };
        CompileError::Full { table, limit }
    }

    /// The last result has been applied and a grace period has passed since: indices that it no longer uses are free.
    pub fn release(&mut self) {
        self.begin_release();
        self.end_release();
    }

    /// As [`Compiler::release`], while changes go on: the last result has been applied, and a grace period begins.
    pub fn begin_release(&mut self) {
        for ids in self.stock.all() {
            ids.begin_release();
        }
    }

    /// That grace period has passed.
    pub fn end_release(&mut self) {
        for ids in self.stock.all() {
            ids.end_release();
        }
    }
}

/// To compile one route alone costs as much as so many in a pass over everything.
const WHOLE: usize = 4;

impl Pass<'_> {
    fn ports(&mut self, ports: &BTreeSet<IfIndex>) -> Result<(), CompileError> {
        let mut slots: BTreeMap<u32, &Link> = BTreeMap::new();
        let mut chains: BTreeMap<Family, BTreeSet<Option<Arc<Chains>>>> = BTreeMap::new();
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
            for family in [Family::V4, Family::V6] {
                let source = Source::port(self.node, port, family)
                    .ok_or(CompileError::NoSuchPort(port.0))?;
                let of_port = self.chains(family, source).ok();
                chains.entry(family).or_default().insert(of_port);
            }
        }
        for (family, mut chains) in chains {
            if let (1, Some(Some(common))) = (chains.len(), chains.pop_first()) {
                self.known.common.insert(family, Chains::clone(&common));
            }
        }
        let hmac_keys = self.hmac_view()?;
        for &port in ports {
            let record = sidestep_port {
                hmac_keys,
                ..self.port(port)?
            };
            for view in record.views() {
                self.stock.views.hold(view);
            }
            self.out.image.ports.insert(port.0, record);
        }
        // No route has asked for any yet.
        self.known.rooted = self.known.views.values().copied().collect();
        Ok(())
    }

    /// The view of the domain's SID blocks.
    fn domain(&mut self) -> Result<ViewId, CompileError> {
        let view = self.stock.views.get(&ViewKey::Domain)?;
        // Ours: the kernel's routes make room for it where the prefixes do not all fit.
        let kept_out = self.bare(sidestep_route {
            flags: SIDESTEP_ROUTE_SIDESTEP_ONLY as u8,
            reason: DROP_sid_block as u8,
            ..routes::record(SIDESTEP_ROUTE_DROP)
        })?;
        for block in &self.node.domain.sid_blocks {
            let key = FibKey {
                view,
                address: block.network().octets(),
                length: block.prefix_len(),
            };
            self.put_prefix(key, Some(kept_out));
        }
        Ok(view)
    }

    fn port(&mut self, port: IfIndex) -> Result<sidestep_port, CompileError> {
        let link = self
            .node
            .links
            .get(&port)
            .ok_or(CompileError::NoSuchPort(port.0))?;
        let node = self.node;
        let source =
            |family| Source::port(node, port, family).ok_or(CompileError::NoSuchPort(port.0));
        let (source6, source4) = (source(Family::V6)?, source(Family::V4)?);
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
            (link.seg6_require_hmac < 0, SIDESTEP_PORT_IGNORE_HMAC),
            (self.node.oam_rate > 0, SIDESTEP_PORT_O_FLAG),
        ];
        record.flags = flags
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, flag)| flag)
            .sum();
        if self.node.domain.is_outside(link) {
            record.domain = self.domain()?;
        }
        let chains = [
            (
                Family::V6,
                SIDESTEP_PORT_RULES6_PUNT,
                self.chains(Family::V6, source6),
            ),
            (
                Family::V4,
                SIDESTEP_PORT_RULES4_PUNT,
                self.chains_with_way_back(link, source4),
            ),
        ];
        for (family, punt, chains) in chains {
            let view = chains.and_then(|chains| {
                if let Some(why) = chains.leaves() {
                    let why = why.to_owned();
                    self.out.index.punt_reasons.insert((port, family), why);
                }
                self.view_of(&chains).map_err(|full| {
                    self.out.index.full_for_rules.insert(full.table);
                    CompileError::from(full).to_string()
                })
            });
            match (view, family) {
                (Ok(view), Family::V6) => record.view6 = view,
                (Ok(view), Family::V4) => record.view4 = view,
                (Err(why), _) => {
                    record.flags |= punt;
                    self.out.index.punt_reasons.insert((port, family), why);
                }
            }
        }
        Ok(record)
    }

    /// What rules make of packets from there.
    fn chains(&mut self, family: Family, source: Source<'_>) -> Result<Arc<Chains>, String> {
        self.known.chains(self.node, family, source)
    }

    /// The chains of a port's IPv4 packets. With `rp_filter`, Linux looks up the way back to the source as if for a packet
    /// that arrives where this one leaves (`__fib_validate_source`): by the same chains, or it is the kernel's.
    fn chains_with_way_back(
        &mut self,
        link: &Link,
        source: Source<'_>,
    ) -> Result<Arc<Chains>, String> {
        let node = self.node;
        let own = self.chains(Family::V4, source)?;
        let mut same = |other: &Link| {
            let source = Source::port(node, other.ifindex, Family::V4);
            let others = source.map(|source| self.chains(Family::V4, source));
            // The same source has the very same ones; only others are looked through.
            matches!(others, Some(Ok(others)) if Arc::ptr_eq(&others, &own) || others == own)
        };
        let mut others = node.links.values();
        let mut differs = |other: &Link| other.master == link.master && !same(other);
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
