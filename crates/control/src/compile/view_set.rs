//! The views of a compilation, and the rule chains that they merge.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::abi::SIDESTEP_ROUTE_NEXT;
use sidestep_datapath::{RouteId, ViewId};
use sidestep_model::node::TableId;
use sidestep_model::route::Family;

use super::allocator::TableFull;
use super::chain::{Chain, RuleEffect};
use super::index::ViewInfo;
use super::keys::ViewKey;
use super::rules::Chains;
use super::store::RecordStore;
use super::tables::Prefix;

/// All views that merge routing tables.
#[derive(Debug, Default)]
pub(super) struct ViewSet {
    /// Views by the chain that they merge.
    pub by_chain: BTreeMap<Chain, ViewId>,
    /// Views that ports refer to.
    pub rooted: BTreeSet<ViewId>,
    /// New views whose prefixes are not compiled yet.
    pub unfilled: Vec<Chain>,
}

impl ViewSet {
    /// Returns the view for rule chains: that of the only chain, or one that selects a chain by
    /// source address.
    pub fn view_of(
        &mut self,
        store: &mut RecordStore<'_>,
        chains: &Chains,
    ) -> Result<ViewId, TableFull> {
        if let Some(chain) = chains.only() {
            return self.view(store, chain.clone());
        }
        let family = chains.family();
        let next: Result<Vec<RouteId>, TableFull> = chains
            .distinct()
            .iter()
            .map(|chain| {
                let view = self.view(store, chain.clone())?;
                store.lead(SIDESTEP_ROUTE_NEXT, family, view)
            })
            .collect();
        let next = next?;
        let sources = chains
            .sources()
            .map(|(prefix, place)| (prefix, next[place]));
        let by_source = store.by_source(family, sources.collect())?;
        let tables = chains.distinct().iter().flat_map(Chain::tables);
        let mut info = ViewInfo::new(family, tables);
        info.tables.sort_unstable();
        info.tables.dedup();
        store.leading_view(vec![(Prefix::DEFAULT, by_source)], info)
    }

    /// Returns the view for a chain.
    pub fn view(&mut self, store: &mut RecordStore<'_>, chain: Chain) -> Result<ViewId, TableFull> {
        let id = store
            .indices
            .views
            .index_of(&ViewKey::Chain(chain.clone()))?;
        if self.by_chain.insert(chain.clone(), id).is_none() {
            let own = chain.steps.iter().filter_map(|step| match step.effect {
                RuleEffect::Lookup { table, .. } => Some(table),
                _ => None,
            });
            store.set_view_info(id, Some(ViewInfo::new(chain.family, own)));
            self.unfilled.push(chain);
        }
        Ok(id)
    }

    /// Whether a view merges this table.
    pub fn merges(&self, table: (Family, TableId)) -> bool {
        self.by_chain.keys().any(|chain| chain.asks(table))
    }
}
