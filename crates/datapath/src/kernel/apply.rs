//! Publishes changes to the tables while packets read them.
//!
//! A packet follows port -> FIB -> route (-> group -> route) -> policy, adjacency. A record is
//! therefore written before anything refers to it. It is cleared after nothing has referred to it
//! for a grace period. Each packet sees either the old or the new path, never a mixture.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sidestep_fib::Prefix;

use super::maps::{ADJACENCY_WORDS, Mapped, POLICY_WORDS, Record, keeps_its_link};
use super::stations;
use super::unused::Retired;
use super::{Kernel, KernelError, Table};
use crate::abi::{
    AdjacencyId, RouteId, SIDESTEP_HMAC_KEYS, SIDESTEP_LEARNED, SIDESTEP_PORTS, SIDESTEP_STATIONS,
    TableIndex, ViewId, sidestep_adjacency,
};
use crate::delta::{Changes, Delta};
use crate::image::{FibKey, Image, Limits, record_tables};

/// Result of [`Kernel::apply`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Records written, ports included.
    pub written: usize,
    /// Prefixes that were inserted, or whose route changed.
    pub prefixes: usize,
    /// Prefixes deleted.
    pub deleted: usize,
    /// Unused records that were cleared.
    pub cleared: usize,
    /// Number of grace periods that the change waited for.
    pub grace_periods: usize,
    /// Time until the last packet took the old path; reclaiming is not included.
    pub effective: Duration,
}

impl Kernel {
    /// Changes the tables from `from`, which must be their content, to `to` under traffic, and
    /// reclaims the records that are out of use. Equivalent to [`Kernel::publish`] followed by
    /// [`Kernel::reclaim`].
    ///
    /// # Errors
    /// As for [`Kernel::publish`] and [`Kernel::reclaim`].
    pub fn apply(&mut self, from: &Image, to: &Image) -> Result<Applied, KernelError> {
        let mut applied = self.publish(&Delta::between(from, to), to)?;
        if !self.unused.is_empty() {
            applied.cleared += self.reclaim()?;
            applied.grace_periods += 1;
        }
        Ok(applied)
    }

    /// Publishes the changes that lead from the content of the tables to `to`, under traffic. The
    /// time depends only on the number of changes.
    ///
    /// Packets may still read records that `to` does not have. Do not reuse their indices before
    /// [`Kernel::reclaim`] returns, or before the reclaim ends that [`Kernel::begin_reclaim`]
    /// began.
    ///
    /// # Errors
    /// [`KernelError::Full`], [`KernelError::PortSlot`] and [`KernelError::InUse`] are found before
    /// anything is written. After any error, [`KernelError::Map`] included, the tables have their
    /// old content.
    pub fn publish(&mut self, delta: &Delta, to: &Image) -> Result<Applied, KernelError> {
        check(delta, to, self.limits)?;
        let begin = Instant::now();
        let mut applied = Applied::default();

        publish(
            &self.maps.adjacencies,
            delta.adjacencies.added(),
            &mut applied,
        );
        self.write_records(delta, &mut applied);
        // A backup is a route.
        let changed: Vec<_> = delta.adjacencies.changed().collect();
        applied.written += changed.len();
        applied.grace_periods += usize::from(self.change_adjacencies(&changed)?);
        let views = self.view_changes(&delta.fib);
        if let Err(error) = self.insert_prefixes(&views, to, &mut applied) {
            self.undo(delta, &views, to)?;
            return Err(error);
        }
        if let Err(error) = stations::change(self.maps.handle(Table::Stations), &delta.stations) {
            self.undo(delta, &views, to)?;
            return Err(error);
        }
        self.write_ports(delta, &mut applied);
        if let Err(error) = self.delete_prefixes(&views, to, &mut applied) {
            self.undo_ports(delta);
            stations::undo(self.maps.handle(Table::Stations), &delta.stations);
            self.undo(delta, &views, to)?;
            return Err(error);
        }
        applied.effective = begin.elapsed();
        self.unused.update(delta);
        Ok(applied)
    }

    /// Writes the new records of the tables that routes refer to, then the groups and routes, then the
    /// new paths of policies. The groups of nexthop objects change in place, word by word. A group refers to plain routes, and other routes refer to groups.
    fn write_records(&self, delta: &Delta, applied: &mut Applied) {
        let maps = &self.maps;
        publish(&maps.hmac_keys, delta.hmac_keys.added(), applied);
        publish(&maps.policies, delta.policies.added(), applied);
        publish(&maps.learned, delta.learned.added(), applied);
        let (grouped, plain): (Vec<_>, Vec<_>) = delta
            .routes
            .added()
            .partition(|(_, route)| route.group.is_some());
        publish(&maps.routes, plain.into_iter(), applied);
        publish(&maps.groups, delta.groups.upserts(), applied);
        publish(&maps.routes, grouped.into_iter(), applied);
        for (index, _, policy) in delta.policies.changed() {
            maps.policies.publish_words(index.0, policy, &POLICY_WORDS);
            applied.written += 1;
        }
    }

    /// Writes changed adjacencies, given as index, old and new content. If only the neighbor or the
    /// backup changed, a store of each is enough. Otherwise the record is retracted, written after a
    /// grace period, and valid again. Its packets are punted meanwhile, as for an unresolved
    /// neighbor. Returns whether it waited.
    fn change_adjacencies(
        &self,
        changed: &[(&AdjacencyId, &sidestep_adjacency, &sidestep_adjacency)],
    ) -> Result<bool, KernelError> {
        let table = &self.maps.adjacencies;
        let (store, rewrite): (Vec<_>, Vec<_>) = changed
            .iter()
            .partition(|(_, old, new)| keeps_its_link(old, new));
        for (index, _, new) in store {
            table.publish_words(index.0, new, &ADJACENCY_WORDS);
        }
        for (index, _, _) in &rewrite {
            table.retract(index.0);
        }
        if !rewrite.is_empty() {
            self.synchronize()?;
        }
        for (index, _, new) in &rewrite {
            table.publish(index.0, new);
        }
        Ok(!rewrite.is_empty())
    }

    /// Groups the changes by view. New views come first, because only routes that are not reachable
    /// yet refer to them.
    fn view_changes(&self, fib: &Changes<FibKey, RouteId>) -> Vec<ViewChanges> {
        let mut views: BTreeMap<ViewId, ViewChanges> = BTreeMap::new();
        for (key, before, after) in fib.iter() {
            let it = views.entry(key.view).or_insert_with(|| {
                // A retired view still has its old prefixes, which do not count.
                let is_back = self.unused.has_view(key.view);
                let size = if is_back {
                    0
                } else {
                    self.maps.fib.len(key.view.0)
                };
                ViewChanges {
                    view: key.view,
                    is_new: size == 0,
                    is_back,
                    size,
                    ..ViewChanges::default()
                }
            });
            it.size = it.size + usize::from(after.is_some()) - usize::from(before.is_some());
            it.before.push(((*key).into(), before.copied()));
            match after {
                Some(route) => it.upserts.push(((*key).into(), *route)),
                None => it.removed.push((*key).into()),
            }
        }
        let mut views: Vec<_> = views.into_values().collect();
        views.sort_by_key(|change| !change.is_new);
        views
    }

    /// Inserts new prefixes and writes new routes of prefixes. A view that changes in large part is
    /// rewritten as a whole, which also deletes prefixes.
    fn insert_prefixes(
        &mut self,
        changes: &[ViewChanges],
        to: &Image,
        applied: &mut Applied,
    ) -> Result<(), KernelError> {
        for change in changes {
            if change.is_rewrite() {
                let mut whole = to.view(change.view).map(raw).collect();
                self.change_fib(|fib| fib.replace_with(change.view.0, &mut whole))?;
                self.unused.keep_view(change.view);
                applied.deleted += change.removed.len();
            } else {
                for &(prefix, route) in &change.upserts {
                    self.change_fib(|fib| fib.insert(change.view.0, prefix, route.0))?;
                }
            }
            applied.prefixes += change.upserts.len();
        }
        Ok(())
    }

    /// Deletes prefixes. A view that nothing refers to any more is emptied by [`Kernel::reclaim`],
    /// because packets may be about to read it.
    fn delete_prefixes(
        &mut self,
        changes: &[ViewChanges],
        to: &Image,
        applied: &mut Applied,
    ) -> Result<(), KernelError> {
        self.maps.fib.drop_foreign();
        for change in changes.iter().filter(|change| !change.is_rewrite()) {
            if change.size > 0 {
                for &prefix in &change.removed {
                    self.change_fib(|fib| fib.remove(change.view.0, prefix))?;
                }
            } else if to.leads_to(change.view) {
                self.change_fib(|fib| fib.replace(change.view.0, []))?;
            } else {
                self.unused.retire_view(change.view);
            }
            applied.deleted += change.removed.len();
        }
        Ok(())
    }

    /// Clears removed ports, then writes the others: a new port may need the slot of a removed one.
    fn write_ports(&self, delta: &Delta, applied: &mut Applied) {
        for (ifindex, _) in delta.ports.removed() {
            self.maps.ports.clear(*ifindex % SIDESTEP_PORTS);
            applied.cleared += 1;
        }
        for (ifindex, port) in delta.ports.upserts() {
            self.maps.ports.publish(ifindex % SIDESTEP_PORTS, port);
            applied.written += 1;
        }
    }

    /// Waits until no packet reads a record that is out of use, and clears these records. Their
    /// indices can be used again. Returns the number of cleared records.
    ///
    /// # Errors
    /// [`KernelError::System`] and [`KernelError::Map`]. The next call clears the remaining
    /// records.
    pub fn reclaim(&mut self) -> Result<usize, KernelError> {
        self.begin_grace();
        self.synchronize()?;
        self.end_grace()
    }

    /// Begins to reclaim the records that are out of use now. Another thread waits while changes
    /// continue; [`Kernel::end_reclaim`] ends the reclaim. Does nothing while an earlier reclaim
    /// has not ended.
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn begin_reclaim(&mut self) -> Result<(), KernelError> {
        if !self.background.is_waiting() {
            self.begin_grace();
            self.background.begin()?;
        }
        Ok(())
    }

    /// Ends a reclaim and returns the number of cleared records, or `None` while a packet may still
    /// read one of them.
    ///
    /// # Errors
    /// As for [`Kernel::reclaim`].
    pub fn end_reclaim(&mut self) -> Result<Option<usize>, KernelError> {
        if !self.background.has_ended()? {
            return Ok(None);
        }
        self.end_grace().map(Some)
    }

    /// Returns whether records or lines of the prefix table wait for [`Kernel::reclaim`].
    pub fn has_pending(&self) -> bool {
        !self.unused.is_empty() || self.maps.fib.has_pending()
    }

    fn begin_grace(&mut self) {
        self.maps.fib.begin_grace();
        self.unused.begin_grace();
    }

    fn end_grace(&mut self) -> Result<usize, KernelError> {
        self.maps.fib.end_grace();
        let records = self.unused.end_grace();
        let cleared = self.clear_counters(&records);
        if let Err(error) = cleared.and_then(|()| self.empty_views(&records)) {
            self.unused.put_back(records);
            return Err(error);
        }
        for &route in &records.routes {
            self.unused.forget(route);
        }
        let maps = &self.maps;
        maps.forget_learned(&records.learned);
        macro_rules! clear_retired {
            ($($field:ident: $index:ty => $record:ty, $table:ident, $limit:expr;)*) => {
                $(records.$field.iter().for_each(|index| maps.$field.clear(index.0));)*
            };
        }
        record_tables!(clear_retired);
        Ok(records.len())
    }

    fn empty_views(&mut self, records: &Retired) -> Result<(), KernelError> {
        for view in &records.views {
            self.change_fib(|fib| fib.replace(view.0, []))?;
        }
        Ok(())
    }

    /// Clears the counters of retired routes. The route record, which names the slot, is cleared
    /// later: if this process dies in between, the next one still finds the slot.
    fn clear_counters(&self, records: &Retired) -> Result<(), KernelError> {
        let mut slots = records.routes.iter();
        slots.try_for_each(|route| match self.unused.free_counter(*route) {
            Some(slot) => self.clear_route_counters(slot),
            None => Ok(()),
        })
    }

    /// Restores the ports.
    fn undo_ports(&self, delta: &Delta) {
        for (ifindex, _) in delta.ports.added() {
            self.maps.ports.clear(*ifindex % SIDESTEP_PORTS);
        }
        for (ifindex, before, _) in delta.ports.iter() {
            if let Some(port) = before {
                self.maps.ports.publish(ifindex % SIDESTEP_PORTS, port);
            }
        }
    }

    /// Restores the old content of the tables after the FIB took only some of the changes. If that
    /// fails too, the caller reports this second error.
    fn undo(
        &mut self,
        delta: &Delta,
        views: &[ViewChanges],
        to: &Image,
    ) -> Result<(), KernelError> {
        // Views are restored in reverse order: first those that refer to other views.
        for change in views.iter().rev() {
            if change.size > 0 && !change.is_rewrite() {
                for &(prefix, route) in &change.before {
                    self.change_fib(|fib| {
                        fib.put_back(change.view.0, prefix, route.map(|it| it.0))
                    })?;
                }
            } else {
                let mut prefixes: BTreeMap<Prefix, RouteId> = to.view(change.view).collect();
                for &(prefix, route) in &change.before {
                    match route {
                        Some(route) => prefixes.insert(prefix, route),
                        None => prefixes.remove(&prefix),
                    };
                }
                let mut before = prefixes.into_iter().map(raw).collect();
                self.change_fib(|fib| fib.replace_with(change.view.0, &mut before))?;
            }
            self.unused.keep_view(change.view);
        }
        for (index, policy, _) in delta.policies.changed() {
            let table = &self.maps.policies;
            table.publish_words(index.0, policy, &POLICY_WORDS);
        }
        for (index, group, _) in delta.groups.changed() {
            self.maps.groups.publish(index.0, group);
        }
        let back: Vec<_> = delta
            .adjacencies
            .changed()
            .map(|(index, old, new)| (index, new, old))
            .collect();
        self.change_adjacencies(&back)?;
        self.synchronize()?;
        let maps = &self.maps;
        macro_rules! clear_added {
            ($($field:ident: $index:ty => $record:ty, $table:ident, $limit:expr;)*) => {
                $(clear(&maps.$field, &delta.$field);)*
            };
        }
        record_tables!(clear_added);
        Ok(())
    }
}

/// Returns a prefix with its route as the prefix table stores it.
fn raw((prefix, route): (Prefix, RouteId)) -> (Prefix, u32) {
    (prefix, route.0)
}

/// Clears the records that were added.
fn clear<I: TableIndex, T: Record + PartialEq>(table: &Mapped<T>, changes: &Changes<I, T>) {
    for (index, _) in changes.added() {
        table.clear((*index).into());
    }
}

fn publish<'a, I: TableIndex + 'a, T: Record + 'a>(
    table: &Mapped<T>,
    added: impl Iterator<Item = (&'a I, &'a T)>,
    applied: &mut Applied,
) {
    for (index, record) in added {
        table.publish((*index).into(), record);
        applied.written += 1;
    }
}

/// Checks that the changes can be made and that the result fits in tables of these sizes. Only
/// ports, adjacencies, the paths of policies and groups of nexthop objects may change under an
/// index in use.
fn check(delta: &Delta, to: &Image, limits: Limits) -> Result<(), KernelError> {
    check_content(delta)?;
    check_limits(delta, to, limits)?;
    let mut slots = BTreeMap::new();
    for &second in to.ports.keys().filter(|_| !delta.ports.is_empty()) {
        if let Some(first) = slots.insert(second % SIDESTEP_PORTS, second) {
            return Err(KernelError::PortSlot { first, second });
        }
    }
    Ok(())
}

fn check_content(delta: &Delta) -> Result<(), KernelError> {
    macro_rules! check_table {
        ($($field:ident: $index:ty => $record:ty, $table:ident, $limit:expr;)*) => {
            $(
                let mut changed = delta.$field.changed();
                let refused = changed.find(|(_, old, new)| !Table::$table.may_change(*old, *new));
                if let Some((index, _, _)) = refused {
                    return Err(KernelError::InUse {
                        table: Table::$table,
                        index: index.0,
                    });
                }
            )*
        };
    }
    record_tables!(check_table);
    Ok(())
}

fn check_limits(delta: &Delta, to: &Image, limits: Limits) -> Result<(), KernelError> {
    let fits = |table, limit, wanted| {
        if wanted <= limit {
            return Ok(());
        }
        Err(KernelError::Full {
            table,
            limit,
            wanted,
        })
    };
    fits(Table::Fib, limits.fib, to.fib.len() as u32)?;
    fits(Table::Stations, SIDESTEP_STATIONS, to.stations.len() as u32)?;
    macro_rules! check_table {
        ($($field:ident: $index:ty => $record:ty, $table:ident, $limit:expr;)*) => {
            $(
                let limit: fn(Limits) -> u32 = $limit;
                let last = to.$field.last_key_value().map_or(0, |(index, _)| index.0);
                fits(Table::$table, limit(limits), last)?;
            )*
        };
    }
    record_tables!(check_table);
    let counters = delta.routes.added().map(|(_, route)| route.counter.0);
    fits(
        Table::RouteCounters,
        limits.route_counters,
        counters.max().unwrap_or(0),
    )
}

/// Changes in one view.
#[derive(Default)]
struct ViewChanges {
    view: ViewId,
    upserts: Vec<(Prefix, RouteId)>,
    removed: Vec<Prefix>,
    /// The old route of each of these prefixes.
    before: Vec<(Prefix, Option<RouteId>)>,
    /// Number of prefixes that the view will have.
    size: usize,
    /// The view had no prefixes.
    is_new: bool,
    /// The view was retired and is used again before it was emptied.
    is_back: bool,
}

impl ViewChanges {
    /// Returns whether rewriting the whole view costs less than the single changes.
    fn is_rewrite(&self) -> bool {
        self.size > 0 && (self.is_back || self.before.len() * REWRITE_RATIO > self.size)
    }
}

/// Prefixes that a rewrite writes in the time of one single change.
///
/// PERF: measured 2 µs per change and 0.5 µs per prefix; single changes also wait for copies.
const REWRITE_RATIO: usize = 8;

#[cfg(test)]
mod tests;
