//! The compiler: full and incremental compilations, with indices that stay stable between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sidestep_datapath::abi::{SIDESTEP_FLOW_TABLES, SIDESTEP_HMAC_KEYS, SIDESTEP_LEARNED};
use sidestep_datapath::{FibKey, Image, KeySlot, Limits, RouteId, VIEWS};
use sidestep_model::node::{IfIndex, Node, TableId};
use sidestep_model::route::{Family, NextHops, ObjectChange, RouteKey};

use super::builder::ViewBuilder;
use super::change::{Change, ChangeLog};
use super::entries::CompiledTables;
use super::error::CompileError;
use super::index::Compiled;
use super::indices::Indices;
use super::kept::KeptLists;
use super::object::{self, ObjectGroups};
use super::record::full_record;
use super::resolver::{Resolver, key_of};
use super::routes::RouteCompiler;
use super::store::RecordStore;
use super::tables::Prefix;
use super::update::NeedsFullCompile;
use super::view_set::ViewSet;

/// State after a compilation, as the base of an incremental one.
#[derive(Debug, Default)]
struct PassState {
    resolver: Resolver,
    views: ViewSet,
    tables: CompiledTables,
    kept: KeptLists,
    hmac_keys: BTreeMap<u32, KeySlot>,
    objects: ObjectGroups,
    /// See [`RecordStore::full_routes`].
    full_routes: [RouteId; 2],
}

impl PassState {
    /// Starts a compilation with this state.
    fn resume<'a>(
        self,
        node: &'a Node,
        indices: &'a mut Indices,
        out: &'a mut Compiled,
        log: ChangeLog,
    ) -> ViewBuilder<'a> {
        ViewBuilder {
            routes: RouteCompiler {
                node,
                store: RecordStore::new(node, indices, out, self.full_routes, self.objects, log),
                resolver: self.resolver,
                views: self.views,
                hmac_keys: self.hmac_keys,
                dependent: None,
                changed_object: None,
            },
            tables: self.tables,
            kept: self.kept,
            vacated: Vec::new(),
        }
    }

    /// Ends a compilation. Returns its state and its changes.
    fn suspend(pass: ViewBuilder<'_>) -> (Self, Change) {
        let RouteCompiler {
            store,
            resolver,
            views,
            hmac_keys,
            ..
        } = pass.routes;
        let state = Self {
            resolver,
            views,
            tables: pass.tables,
            kept: pass.kept,
            hmac_keys,
            full_routes: store.full_routes,
            objects: store.objects,
        };
        (state, store.log.change)
    }
}

/// Compiles a node again and again, fully or incrementally, with stable indices.
#[derive(Debug)]
pub struct Compiler {
    limits: Limits,
    indices: Indices,
    /// State after the last accepted pass, unless another pass has begun since.
    known: Option<PassState>,
    /// State after a pass that is not accepted yet, and whether that pass was a full compilation.
    attempted: Option<(PassState, bool)>,
}

impl Compiler {
    /// Returns a compiler without assigned indices. Index 0 of each table stays empty.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            indices: Indices::new(limits),
            known: None,
            attempted: None,
        }
    }

    /// Returns a compiler that does not reuse the indices of an earlier process's tables before
    /// they are reclaimed.
    pub fn beside(limits: Limits, image: &Image) -> Self {
        let mut compiler = Self::new(limits);
        compiler.indices.reserve(image);
        compiler
    }

    /// Whether indices wait for [`Compiler::reclaim`].
    pub fn has_pending(&self) -> bool {
        self.indices.has_pending()
    }

    /// Compiles all of `node` with these ports. On an error the indices in use do not change.
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

    /// Compiles `node` with these ports, as far as the tables can hold it. Routes that do not fit
    /// are punted and listed in [`Index::full`]. `held` is the present content of the prefix table,
    /// which has priority. Call [`Compiler::accept`] to keep the new indices.
    pub fn attempt(
        &mut self,
        node: &Node,
        ports: &BTreeSet<IfIndex>,
        held: &BTreeMap<FibKey, RouteId>,
    ) -> Result<Compiled, CompileError> {
        (self.known, self.attempted) = (None, None);
        for allocator in self.indices.all() {
            allocator.begin();
        }
        // First, so that the records of what does not fit always fit.
        let mut full_routes = [RouteId::NONE; 2];
        for own in [false, true] {
            let full = self.indices.routes.index_of(&full_record(own))?;
            self.indices.routes.acquire(full);
            full_routes[usize::from(own)] = full;
        }
        let mut out = Compiled::default();
        let state = PassState {
            full_routes,
            resolver: Resolver::new(node),
            ..PassState::default()
        };
        let log = ChangeLog::default();
        let mut pass = state.resume(node, &mut self.indices, &mut out, log);
        pass.ports(ports)?;
        pass.views()?;
        pass.kept.keep(&mut pass.routes.store, node);
        pass.fit(self.limits.fib, held);
        pass.settle();
        let (state, _) = PassState::suspend(pass);
        self.attempted = Some((state, true));
        Ok(out)
    }

    /// Compiles incrementally: `node` differs from the last accepted pass only in these routes,
    /// neighbors, and links that went up or down. The time depends on their users, not on the size
    /// of the node. The result equals that of [`Compiler::attempt`], except for index values. A
    /// route that did not fit before waits for the next full compilation.
    ///
    /// # Errors
    /// The node needs a full compilation; `compiled` is unchanged.
    pub fn update(
        &mut self,
        node: &Node,
        routes: &[RouteKey],
        neighbors: &[(IfIndex, IpAddr)],
        links: &[IfIndex],
        compiled: &mut Compiled,
    ) -> Result<Change, NeedsFullCompile> {
        if routes.len() > node.routes.len() / FULL_SHARE + 64 {
            return Err(NeedsFullCompile::Many(routes.len()));
        }
        if compiled.index.is_short() {
            return Err(NeedsFullCompile::Full);
        }
        self.incremental(node, compiled, |pass| {
            pass.apply_changes(routes, neighbors, links)
        })
    }

    /// Compiles the change of a nexthop object incrementally: one write for all of its routes.
    /// `node` has the routes with the next hops from before the change. The next pass expects those
    /// after it.
    ///
    /// # Errors
    /// Each route of the object needs a compilation; `compiled` is unchanged.
    pub fn update_object(
        &mut self,
        node: &Node,
        change: &ObjectChange,
        compiled: &mut Compiled,
    ) -> Result<Change, NeedsFullCompile> {
        let known = self.known.as_mut().ok_or(NeedsFullCompile::Unknown)?;
        if !object::is_one_write(node, change, &mut known.objects) {
            return Err(NeedsFullCompile::Object(change.object.1));
        }
        if compiled.index.is_short() {
            return Err(NeedsFullCompile::Full);
        }
        let after = NextHops::from(change.after.clone().unwrap_or_default());
        self.incremental(node, compiled, |pass| {
            pass.apply_object(change.object, after)
        })
    }

    /// Runs an incremental compilation. If it fails, the next one must be full.
    fn incremental(
        &mut self,
        node: &Node,
        compiled: &mut Compiled,
        apply: impl FnOnce(&mut ViewBuilder<'_>) -> Result<(), NeedsFullCompile>,
    ) -> Result<Change, NeedsFullCompile> {
        let known = self.known.take().ok_or(NeedsFullCompile::Unknown)?;
        let log = ChangeLog {
            on: true,
            ..ChangeLog::default()
        };
        let mut pass = known.resume(node, &mut self.indices, compiled, log);
        let mut done = apply(&mut pass);
        if pass.routes.store.out.image.fib.len() > self.limits.fib as usize {
            done = done.and(Err(NeedsFullCompile::Full));
        }
        let (known, change) = PassState::suspend(pass);
        if let Err(why) = done {
            change.revert(compiled);
            // It was empty before the update.
            compiled.index.full_for_rules.clear();
            return Err(why);
        }
        self.attempted = Some((known, false));
        Ok(change)
    }

    /// Accepts the last attempt or update, which will be published. Indices that it does not use
    /// are retired.
    pub fn accept(&mut self) {
        if let Some((known, is_full)) = self.attempted.take() {
            for allocator in self.indices.all() {
                allocator.accept(is_full);
            }
            self.known = Some(known);
        }
    }

    /// Returns the route of a table for an address and any source, as of the last accepted pass.
    pub fn route_for(&self, table: TableId, address: IpAddr) -> Option<RouteKey> {
        let winners = &self.known.as_ref()?.resolver.winners;
        let table = (Family::of(&address), table);
        let winners = winners.get(&table)?;
        let found = winners.find(Prefix::host(address), Prefix::DEFAULT);
        found.map(|found| key_of(table, found))
    }

    /// Returns the error for a full table of [`Index::full`].
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

    /// Frees retired indices. The accepted result must be published, and a grace period must have
    /// passed.
    pub fn reclaim(&mut self) {
        self.begin_reclaim();
        self.end_reclaim();
    }

    /// Begins a grace period, after the accepted result has been published.
    pub fn begin_reclaim(&mut self) {
        for allocator in self.indices.all() {
            allocator.begin_reclaim();
        }
    }

    /// Ends the grace period and frees the indices that were retired when it began.
    pub fn end_reclaim(&mut self) {
        for allocator in self.indices.all() {
            allocator.end_reclaim();
        }
    }
}

/// An incremental compilation of one route costs about as much as this many routes in a full one.
const FULL_SHARE: usize = 4;
