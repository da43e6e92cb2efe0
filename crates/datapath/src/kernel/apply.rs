//! Bringing the tables from one image to the next while packets are read against them.
//!
//! A packet follows port -> FIB -> route (-> group -> route) -> policy, adjacency. So records are written before anything refers to them,
//! and cleared when nothing has referred to them for a grace period. In between, every packet sees the old or the new
//! way, never a half of each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::abi::{SIDESTEP_HMAC_KEYS, SIDESTEP_LEARNED, SIDESTEP_PORTS, sidestep_adjacency};
use sidestep_fib::Prefix;

use super::maps::{Mapped, Record, differ_in_first_word_only};
use super::{Kernel, KernelError, Table};
use crate::delta::{Changes, Delta};
use crate::image::{FibKey, Image, Limits};

/// What [`Kernel::apply`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Records written: ports, routes, groups, adjacencies and policies.
    pub written: usize,
    /// Prefixes inserted or given another route.
    pub prefixes: usize,
    /// Prefixes deleted.
    pub deleted: usize,
    /// Records cleared because nothing uses them any more.
    pub cleared: usize,
    /// Grace periods waited for.
    pub grace_periods: usize,
    /// Until the last packet took the old way: everything but the clearing up.
    pub effective: Duration,
}

impl Kernel {
    /// Brings the tables from `from`, which must be what they hold, to `to`, under traffic, and clears up: as
    /// [`Kernel::publish`] and [`Kernel::tidy`].
    ///
    /// # Errors
    /// As they have.
    pub fn apply(&mut self, from: &Image, to: &Image) -> Result<Applied, KernelError> {
        let mut applied = self.publish(&Delta::between(from, to), to)?;
        if !self.unused.is_empty() {
            applied.cleared += self.tidy()?;
            applied.grace_periods += 1;
        }
        Ok(applied)
    }

    /// Makes these changes, which lead from what the tables hold to `to`, under traffic, in time that depends on their
    /// number alone. Does not wait for packets that still read what `to` has no more: the indices of those records must
    /// not be given to others before [`Kernel::tidy`], or what [`Kernel::begin_tidy`] began, has ended.
    ///
    /// # Errors
    /// [`KernelError::Full`], [`KernelError::PortSlot`] and [`KernelError::InUse`] are found before anything is
    /// written; the tables then hold what they held, and so they do after [`KernelError::Map`].
    pub fn publish(&mut self, delta: &Delta, to: &Image) -> Result<Applied, KernelError> {
        check(delta, to, self.limits)?;
        let begin = Instant::now();
        let mut applied = Applied::default();

        self.write_adjacencies(delta, &mut applied)?;
        let maps = &self.maps;
        publish(&maps.hmac_keys, delta.hmac_keys.added(), &mut applied);
        publish(&maps.policies, delta.policies.added(), &mut applied);
        publish(&maps.learned, delta.learned.added(), &mut applied);
        // A group refers to routes, and other routes to groups.
        let (grouped, plain): (Vec<_>, Vec<_>) = delta
            .routes
            .added()
            .partition(|(_, route)| route.group != 0);
        publish(&maps.routes, plain.into_iter(), &mut applied);
        publish(&maps.groups, delta.groups.added(), &mut applied);
        publish(&maps.routes, grouped.into_iter(), &mut applied);
        let views = self.view_changes(&delta.fib);
        if let Err(error) = self.insert_prefixes(&views, to, &mut applied) {
            self.undo(delta, &views, to)?;
            return Err(error);
        }
        self.write_ports(delta, &mut applied);
        if let Err(error) = self.delete_prefixes(&views, to, &mut applied) {
            self.undo_ports(delta);
            self.undo(delta, &views, to)?;
            return Err(error);
        }
        applied.effective = begin.elapsed();
        self.unused.note(delta);
        Ok(applied)
    }

    /// New ones, and changed ones: by one store where only the neighbor changed; otherwise the record is taken back,
    /// for a grace period its packets are the kernel's (unresolved neighbor), and it is written anew.
    fn write_adjacencies(&self, delta: &Delta, applied: &mut Applied) -> Result<(), KernelError> {
        publish(&self.maps.adjacencies, delta.adjacencies.added(), applied);
        let changed: Vec<_> = delta.adjacencies.changed().collect();
        applied.written += changed.len();
        applied.grace_periods += usize::from(self.change_adjacencies(&changed)?);
        Ok(())
    }

    /// Index, old and new content. Whether a grace period was waited for.
    fn change_adjacencies(
        &self,
        changed: &[(&u32, &sidestep_adjacency, &sidestep_adjacency)],
    ) -> Result<bool, KernelError> {
        let table = &self.maps.adjacencies;
        let (store, rewrite): (Vec<_>, Vec<_>) = changed
            .iter()
            .partition(|(_, old, new)| differ_in_first_word_only(*old, *new));
        for (index, _, new) in store {
            table.publish_first(*index, new);
        }
        for (index, _, _) in &rewrite {
            table.retract(**index);
        }
        if !rewrite.is_empty() {
            self.synchronize()?;
        }
        for (index, _, new) in &rewrite {
            table.publish(**index, new);
        }
        Ok(!rewrite.is_empty())
    }

    /// The changes view by view. Those that are new come first: nothing leads to them yet but what others will have.
    fn view_changes(&self, fib: &Changes<FibKey, u32>) -> Vec<ViewChanges> {
        let mut views: BTreeMap<u32, ViewChanges> = BTreeMap::new();
        for (key, before, after) in fib.iter() {
            let it = views.entry(key.view).or_insert_with(|| {
                // What is out of use but not yet emptied is none of what the tables hold.
                let is_back = self.unused.has_view(key.view);
                let size = if is_back {
                    0
                } else {
                    self.maps.fib.len(key.view)
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

    /// New prefixes and new routes of prefixes. A view that changes in large part is written anew, with what goes out
    /// of it.
    fn insert_prefixes(
        &mut self,
        changes: &[ViewChanges],
        to: &Image,
        applied: &mut Applied,
    ) -> Result<(), KernelError> {
        for change in changes {
            if change.is_anew() {
                let mut whole = to.view(change.view).collect();
                self.change_fib(|fib| fib.replace_with(change.view, &mut whole))?;
                self.unused.keep_view(change.view);
                applied.deleted += change.removed.len();
            } else {
                for &(prefix, route) in &change.upserts {
                    self.change_fib(|fib| fib.insert(change.view, prefix, route))?;
                }
            }
            applied.prefixes += change.upserts.len();
        }
        Ok(())
    }

    /// Prefixes that go. A view that nothing refers to any more goes in [`Kernel::tidy`]: packets may be on their way
    /// into it.
    fn delete_prefixes(
        &mut self,
        changes: &[ViewChanges],
        to: &Image,
        applied: &mut Applied,
    ) -> Result<(), KernelError> {
        self.maps.fib.drop_foreign();
        for change in changes.iter().filter(|change| !change.is_anew()) {
            if change.size > 0 {
                for &prefix in &change.removed {
                    self.change_fib(|fib| fib.remove(change.view, prefix))?;
                }
            } else if to.leads_to(change.view) {
                self.change_fib(|fib| fib.replace(change.view, []))?;
            } else {
                self.unused.retire_view(change.view);
            }
            applied.deleted += change.removed.len();
        }
        Ok(())
    }

    /// Ports that go, go first: one that comes may need the slot.
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

    /// Waits until no packet holds a record that was taken out of use, and clears them: then their indices can be used
    /// again. Returns how many were cleared.
    ///
    /// # Errors
    /// [`KernelError::System`] and [`KernelError::Map`]; what was not cleared yet is cleared the next time.
    pub fn tidy(&mut self) -> Result<usize, KernelError> {
        self.begin_grace();
        self.synchronize()?;
        self.end_grace()
    }

    /// As [`Kernel::tidy`] for what is out of use now, but the waiting is done elsewhere while changes go on:
    /// [`Kernel::end_tidy`] ends it. Nothing happens if that has not ended yet.
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn begin_tidy(&mut self) -> Result<(), KernelError> {
        if !self.background.is_waiting() {
            self.begin_grace();
            self.background.begin()?;
        }
        Ok(())
    }

    /// How many records were cleared; none while a packet may hold one of them.
    ///
    /// # Errors
    /// As [`Kernel::tidy`].
    pub fn end_tidy(&mut self) -> Result<Option<usize>, KernelError> {
        if !self.background.has_ended()? {
            return Ok(None);
        }
        self.end_grace().map(Some)
    }

    /// Whether records or lines of the prefix table wait for [`Kernel::tidy`].
    pub fn holds_back(&self) -> bool {
        !self.unused.is_empty() || self.maps.fib.holds_back()
    }

    fn begin_grace(&mut self) {
        self.maps.fib.begin_grace();
        self.unused.begin_grace();
    }

    /// The counter slot comes before the route that names it: whoever dies in between leaves the name.
    fn end_grace(&mut self) -> Result<usize, KernelError> {
        self.maps.fib.end_grace();
        let records = self.unused.end_grace();
        for &view in &records.views {
            if let Err(error) = self.change_fib(|fib| fib.replace(view, [])) {
                self.unused.put_back(records);
                return Err(error);
            }
        }
        for (index, counter) in &records.routes {
            if !self.unused.is_counted(*counter)
                && let Err(error) = self.clear_route_counters(*counter)
            {
                self.unused.put_back(records);
                return Err(error);
            }
            self.maps.routes.clear(*index);
        }
        for index in &records.groups {
            self.maps.groups.clear(*index);
        }
        for index in &records.policies {
            self.maps.policies.clear(*index);
        }
        for index in &records.hmac_keys {
            self.maps.hmac_keys.clear(*index);
        }
        for index in &records.learned {
            self.maps.forget(*index);
        }
        for index in &records.adjacencies {
            self.maps.adjacencies.clear(*index);
        }
        Ok(records.len())
    }

    /// Back to the ports as they were.
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

    /// Back to what the tables held after the FIB took only some of the changes. Where that fails too, its error is
    /// the one to report.
    fn undo(
        &mut self,
        delta: &Delta,
        views: &[ViewChanges],
        to: &Image,
    ) -> Result<(), KernelError> {
        // What leads to others ceases to first.
        for change in views.iter().rev() {
            if change.size > 0 && !change.is_anew() {
                for &(prefix, route) in &change.before {
                    self.change_fib(|fib| fib.put_back(change.view, prefix, route))?;
                }
            } else {
                let mut prefixes: BTreeMap<Prefix, u32> = to.view(change.view).collect();
                for &(prefix, route) in &change.before {
                    match route {
                        Some(route) => prefixes.insert(prefix, route),
                        None => prefixes.remove(&prefix),
                    };
                }
                let mut before = prefixes.into_iter().collect();
                self.change_fib(|fib| fib.replace_with(change.view, &mut before))?;
            }
            self.unused.keep_view(change.view);
        }
        let back: Vec<_> = delta
            .adjacencies
            .changed()
            .map(|(index, old, new)| (index, new, old))
            .collect();
        self.change_adjacencies(&back)?;
        self.synchronize()?;
        let maps = &self.maps;
        clear(&maps.routes, &delta.routes);
        clear(&maps.groups, &delta.groups);
        clear(&maps.policies, &delta.policies);
        clear(&maps.hmac_keys, &delta.hmac_keys);
        clear(&maps.learned, &delta.learned);
        clear(&maps.adjacencies, &delta.adjacencies);
        Ok(())
    }
}

/// Takes back what was added.
fn clear<T: Record + PartialEq>(table: &Mapped<T>, changes: &Changes<u32, T>) {
    for (index, _) in changes.added() {
        table.clear(*index);
    }
}

fn publish<'a, T: Record + 'a>(
    table: &Mapped<T>,
    added: impl Iterator<Item = (&'a u32, &'a T)>,
    applied: &mut Applied,
) {
    for (index, record) in added {
        table.publish(*index, record);
        applied.written += 1;
    }
}

/// Whether the changes can be made and their result has a place in tables of these sizes: a route, a group, a
/// policy or the place of learned headers does not change its content under its index.
fn check(delta: &Delta, to: &Image, limits: Limits) -> Result<(), KernelError> {
    fn first<V: Clone + PartialEq>(
        table: Table,
        changes: &Changes<u32, V>,
    ) -> Option<(Table, u32)> {
        let (index, _, _) = changes.changed().next()?;
        Some((table, *index))
    }
    let in_use = first(Table::Routes, &delta.routes)
        .or_else(|| first(Table::Groups, &delta.groups))
        .or_else(|| first(Table::Policies, &delta.policies))
        .or_else(|| first(Table::HmacKeys, &delta.hmac_keys))
        .or_else(|| first(Table::Learned, &delta.learned));
    if let Some((table, index)) = in_use {
        return Err(KernelError::InUse { table, index });
    }
    let last = |keys: Option<u32>| keys.unwrap_or(0);
    let wanted = [
        (Table::Fib, limits.fib, to.fib.len() as u32),
        (
            Table::Routes,
            limits.routes,
            last(to.routes.last_key_value().map(|(i, _)| *i)),
        ),
        (
            Table::Groups,
            limits.groups,
            last(to.groups.last_key_value().map(|(i, _)| *i)),
        ),
        (
            Table::Adjacencies,
            limits.adjacencies,
            last(to.adjacencies.last_key_value().map(|(i, _)| *i)),
        ),
        (
            Table::Policies,
            limits.policies,
            last(to.policies.last_key_value().map(|(i, _)| *i)),
        ),
        (
            Table::HmacKeys,
            SIDESTEP_HMAC_KEYS,
            last(to.hmac_keys.last_key_value().map(|(i, _)| *i)),
        ),
        (
            Table::Learned,
            SIDESTEP_LEARNED,
            last(to.learned.last_key_value().map(|(i, _)| *i)),
        ),
        (
            Table::RouteCounters,
            limits.route_counters,
            last(delta.routes.added().map(|(_, route)| route.counter).max()),
        ),
    ];
    if let Some((table, limit, wanted)) =
        wanted.into_iter().find(|(_, limit, wanted)| wanted > limit)
    {
        return Err(KernelError::Full {
            table,
            limit,
            wanted,
        });
    }
    let mut slots = BTreeMap::new();
    for &second in to.ports.keys().filter(|_| !delta.ports.is_empty()) {
        if let Some(first) = slots.insert(second % SIDESTEP_PORTS, second) {
            return Err(KernelError::PortSlot { first, second });
        }
    }
    Ok(())
}

/// What changes in one view.
#[derive(Default)]
struct ViewChanges {
    view: u32,
    upserts: Vec<(Prefix, u32)>,
    removed: Vec<Prefix>,
    /// What each of these prefixes was.
    before: Vec<(Prefix, Option<u32>)>,
    /// How many prefixes the view will have.
    size: usize,
    /// It had none.
    is_new: bool,
    /// It comes back before it was emptied.
    is_back: bool,
}

impl ViewChanges {
    /// Whether writing all of it costs less than the changes one by one.
    fn is_anew(&self) -> bool {
        self.size > 0 && (self.is_back || self.before.len() * ANEW > self.size)
    }
}

/// One change costs as much as writing so many prefixes in one go (measured: 2 µs and 0.5 µs, and copies to be waited
/// for).
const ANEW: usize = 8;

#[cfg(test)]
mod tests;
