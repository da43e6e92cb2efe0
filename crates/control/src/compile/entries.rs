//! Compiled routing tables: the route record of each prefix.

use std::collections::BTreeMap;

use sidestep_datapath::RouteId;
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, Route};

use super::chain::{Chain, RuleEffect};
use super::merge::Search;
use super::tables::{LookupResult, Routing, Winner};

/// Compiled route of a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompiledRoute {
    /// Route record; `NONE` for `throw`, which continues with the next rule.
    route: RouteId,
    /// `suppress_prefixlength` concerns the route.
    suppressible: bool,
    /// The kernel does not have the route.
    own: bool,
}

impl CompiledRoute {
    pub(super) fn new(route: &Route, index: Option<RouteId>) -> Self {
        let winner = Winner::from(route);
        Self {
            route: index.unwrap_or(RouteId::NONE),
            suppressible: winner.may_be_suppressed(),
            own: winner.is_own(),
        }
    }

    /// Returns the result of a rule itself.
    pub(super) const fn by_rule(index: RouteId) -> Self {
        Self {
            route: index,
            suppressible: false,
            own: false,
        }
    }

    /// Route record, or `NONE` for `throw`.
    pub(super) fn route(self) -> RouteId {
        self.route
    }
}

impl LookupResult for CompiledRoute {
    fn is_throw(&self) -> bool {
        self.route.is_none()
    }

    fn may_be_suppressed(&self) -> bool {
        self.suppressible
    }

    fn is_own(&self) -> bool {
        self.own
    }
}

/// The compiled tables that views merge.
#[derive(Debug, Default)]
pub(super) struct CompiledTables {
    /// Entries of each table.
    pub entries: BTreeMap<(Family, TableId), Routing<CompiledRoute>>,
    /// Number of entries of each table whose record may lead to a view.
    pub leading: BTreeMap<(Family, TableId), isize>,
}

impl CompiledTables {
    /// Returns the search through the compiled tables of a chain's own steps.
    pub fn merging<'s>(
        &'s self,
        chain: &'s Chain,
        terminals: &[(RuleEffect, RouteId)],
        fallback: Option<RouteId>,
    ) -> Search<'s, CompiledRoute> {
        let record = |effect: &RuleEffect| {
            let mut terminals = terminals.iter();
            terminals
                .find(|(it, _)| it == effect)
                .map(|(_, index)| *index)
        };
        let search = Search::new(
            &chain.steps,
            |table| self.entries.get(&(chain.family, table)),
            |effect| record(effect).map(CompiledRoute::by_rule),
        );
        search.or(fallback.map(CompiledRoute::by_rule))
    }
}
