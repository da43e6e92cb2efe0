//! Protected next hops: those of a path, and the report.

use sidestep_datapath::AdjacencyId;
use sidestep_datapath::abi::{SIDESTEP_ADJACENCY_DOWN, SIDESTEP_ADJACENCY_VALID};
use sidestep_model::grammar::protection;
use sidestep_model::policy::PathOwner;
use sidestep_model::protection::{Protected, Protection};

use super::{Instance, System};
use crate::compile::Compiled;
use crate::report;

impl<S: System> Instance<S> {
    /// Returns the next hops that are out of use while a path is.
    pub(super) fn next_hops_of_path(&self, name: &str) -> Vec<AdjacencyId> {
        let of_path = |_: &Protected, it: &Protection| it.path.as_deref() == Some(name);
        self.protected(of_path)
    }

    pub(super) fn protections_report(&self) -> report::Protections {
        let all = &self.node().protections;
        all.iter()
            .map(|(key, protection)| self.protection_report(key, protection))
            .collect()
    }

    fn protection_report(&self, key: &Protected, protection: &Protection) -> report::Protection {
        let node = self.node();
        let next_hops = self.protected(|of, _| of == key);
        let image = &self.tables.compiled.image;
        let is_down = next_hops.iter().any(|index| {
            let adjacency = image.adjacencies.get(index);
            adjacency.is_some_and(|it| u32::from(it.flags) & SIDESTEP_ADJACENCY_DOWN != 0)
        });
        let why = unusable(&self.tables.compiled, key, &next_hops);
        let state = match &why {
            Some(_) => "failed",
            None if next_hops.is_empty() => "unused",
            None if is_down => "in use",
            None => "ready",
        };
        let path = protection.path.as_ref();
        let missing = path.filter(|path| !node.paths.contains_key(*path));
        report::Protection {
            words: protection::print(key, protection, node),
            owner: self.owner_of(key),
            state: state.into(),
            why: why.or_else(|| missing.map(|path| format!("there is no path {path}"))),
            next_hops: next_hops.len(),
        }
    }

    /// Returns the controller of a protection; none for a configured one.
    fn owner_of(&self, key: &Protected) -> Option<PathOwner> {
        let own = &self.configured.own;
        let owned = own.backups.get(key).map(|(owner, _)| *owner);
        owned.filter(|_| !own.protections.contains_key(key))
    }

    /// Returns the next hops with such a protection.
    fn protected(&self, accepts: impl Fn(&Protected, &Protection) -> bool) -> Vec<AdjacencyId> {
        let node = self.node();
        if node.protections.is_empty() {
            return vec![];
        }
        let all = self.tables.compiled.index.adjacencies.iter();
        all.filter(|(_, info)| {
            let via = info.via.and_then(|via| node.protection(info.ifindex, via));
            via.is_some_and(|(key, it)| accepts(key, it))
        })
        .map(|(index, _)| *index)
        .collect()
    }
}

/// Returns why the backup of these next hops cannot take their packets.
fn unusable(compiled: &Compiled, key: &Protected, next_hops: &[AdjacencyId]) -> Option<String> {
    let route = match compiled.index.backups.get(key) {
        Some(Ok(route)) => compiled.image.routes.get(route)?,
        Some(Err(why)) => return Some(why.clone()),
        None => return Some("the tables are full".into()),
    };
    let of_list = compiled.image.policies.get(&route.policy_id());
    // A list whose first segment has several next hops is looked up for each packet.
    let adjacency = of_list.map_or(route.adjacency, |policy| policy.adjacency);
    let record = compiled.image.adjacencies.get(&adjacency)?;
    if next_hops.contains(&adjacency) {
        return Some("the backup takes the next hop that it protects".into());
    }
    let is_valid = u32::from(record.flags) & SIDESTEP_ADJACENCY_VALID != 0;
    (!is_valid).then(|| "the next hop of the backup is not reachable".into())
}
