//! Liveness of paths: a view of the BFD discriminators of the node, and the routes of its probes.

use std::net::Ipv6Addr;

use sidestep_datapath::abi::{
    SIDESTEP_ROUTE_REFLECT, SIDESTEP_ROUTE_SESSION, SIDESTEP_SESSIONS, sidestep_route,
};
use sidestep_datapath::{RouteId, SessionId, ViewId};
use sidestep_model::behavior::Seg6Encap;
use sidestep_model::liveness::SESSIONS_MAX;
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, NextHop};

use super::error::{CompileError, Skip};
use super::headend::Headend;
use super::hmac::of_number;
use super::index::{Counted, PathRoute};
use super::keys::{Guard, ViewKey};
use super::record::record;
use super::routes::RouteCompiler;

// The grammar rejects further flows. Index 0 means none.
const _: () = assert!(SESSIONS_MAX == SIDESTEP_SESSIONS - 1);

impl RouteCompiler<'_> {
    /// Returns the view of discriminators, or `NONE` without any.
    pub(super) fn discriminators(&mut self) -> Result<ViewId, CompileError> {
        let node = self.node;
        if node.reflectors.is_empty() && node.watched.sessions.is_empty() {
            return Ok(ViewId::NONE);
        }
        let view = self
            .store
            .indices
            .views
            .index_of(&ViewKey::Discriminators)?;
        for (&discriminator, reflector) in &node.reflectors {
            let counter = self.store.counter(Counted::Reflector(discriminator));
            let route = self.store.unowned(sidestep_route {
                inner: u8::from(!reflector.admin_down),
                counter,
                ..record(SIDESTEP_ROUTE_REFLECT)
            })?;
            self.store
                .put_prefix(of_number(view, discriminator, 32), Some(route));
        }
        for (&discriminator, &session) in &node.watched.sessions {
            let route = self.store.unowned(sidestep_route {
                policy: session,
                ..record(SIDESTEP_ROUTE_SESSION)
            })?;
            self.store
                .put_prefix(of_number(view, discriminator, 32), Some(route));
        }
        Ok(view)
    }

    /// Returns the guard of a kernel route onto a list with a path: in a group, the other next hops
    /// take over.
    pub(super) fn guard_of(&self, encap: &Seg6Encap) -> Option<Guard> {
        let list = self.node.watched.lists.get(&encap.segments)?;
        Some(Guard {
            list: None,
            session: SessionId(list.session),
        })
    }

    /// Returns the record of a headend that is no route's. Its first segment is looked up in table main,
    /// unless the encapsulation names another one.
    pub(super) fn headend_of_node(&mut self, encap: Seg6Encap) -> Result<sidestep_route, Skip> {
        let encap = Seg6Encap {
            lookup: Some(encap.lookup.unwrap_or(TableId::MAIN)),
            ..encap
        };
        self.headend(Headend {
            table: TableId::MAIN,
            family: Family::V6,
            next_hop: &NextHop::new(),
            encap: &encap,
            alone: None,
            guard: None,
        })
    }

    /// Keeps a record that is no route's while this configuration lasts. Returns its index, or the
    /// reason without one.
    ///
    /// # Errors
    /// A table is full.
    pub(super) fn keep_record(
        &mut self,
        record: Result<sidestep_route, Skip>,
    ) -> Result<Result<(RouteId, sidestep_route), String>, CompileError> {
        let record = match record {
            Ok(record) => record,
            Err(Skip::Full(full)) => return Err(full.into()),
            Err(Skip::Unsupported { text, .. }) => return Ok(Err(text)),
        };
        let route = self.store.unowned(record)?;
        self.store.indices.routes.acquire(route);
        Ok(Ok((route, record)))
    }

    /// Compiles the routes of probes.
    pub(super) fn paths(&mut self) -> Result<(), CompileError> {
        let node = self.node;
        for (name, path) in &node.paths {
            let record = self.headend_of_node(path.encap());
            let compiled = self.keep_record(record)?.map(|(route, record)| {
                let info = self.store.out.index.policies.get(&record.policy_id());
                let source = info.map_or(Ipv6Addr::UNSPECIFIED, |info| info.source);
                PathRoute { route, source }
            });
            let paths = &mut self.store.out.index.paths;
            paths.insert(name.clone(), compiled);
        }
        Ok(())
    }
}
