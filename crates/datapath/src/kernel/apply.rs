//! Bringing the tables from one image to the next while packets are read against them.
//!
//! A packet follows port -> FIB -> route (-> group -> route) -> policy, adjacency. So records are written before anything refers to them,
//! and cleared when nothing has referred to them for a grace period. In between, every packet sees the old or the new
//! way, never a half of each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sidestep_abi::{SIDESTEP_PORTS, sidestep_adjacency};
use sidestep_fib::Prefix;

use super::diff::Diff;
use super::maps::{Record, differ_in_first_word_only};
use super::{Kernel, KernelError, Table};
use crate::image::{FibKey, Image, Limits};

/// Records that nothing refers to any more, but that a packet may still be reading.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// Index, and the counter slot that the route names.
    routes: BTreeMap<u32, u32>,
    groups: BTreeSet<u32>,
    policies: BTreeSet<u32>,
    adjacencies: BTreeSet<u32>,
    /// Views of the prefix table: what leads to one may just have been read.
    views: BTreeSet<u32>,
}

impl Unused {
    fn is_empty(&self) -> bool {
        self.records() == 0 && self.views.is_empty()
    }

    fn records(&self) -> usize {
        self.routes.len() + self.groups.len() + self.policies.len() + self.adjacencies.len()
    }

    /// What `changes` took out of use; what `to` uses is not unused.
    fn add(&mut self, changes: &Changes<'_>, to: &Image) {
        let routes = changes.routes.removed.iter();
        self.routes
            .extend(routes.map(|(index, route)| (**index, route.counter)));
        self.groups
            .extend(changes.groups.removed.iter().map(|(index, _)| **index));
        self.policies
            .extend(changes.policies.removed.iter().map(|(index, _)| **index));
        self.adjacencies
            .extend(changes.adjacencies.removed.iter().map(|(index, _)| **index));
        self.routes
            .retain(|index, _| !to.routes.contains_key(index));
        self.groups.retain(|index| !to.groups.contains_key(index));
        self.policies
            .retain(|index| !to.policies.contains_key(index));
        self.adjacencies
            .retain(|index| !to.adjacencies.contains_key(index));
    }
}

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
        let mut applied = self.publish(from, to)?;
        if !self.unused.is_empty() {
            applied.cleared += self.tidy(to)?;
            applied.grace_periods += 1;
        }
        Ok(applied)
    }

    /// Brings the tables from `from`, which must be what they hold, to `to`, under traffic. Does not wait for packets
    /// that still read what `to` has no more: the indices of those records must not be used again before
    /// [`Kernel::tidy`].
    ///
    /// # Errors
    /// [`KernelError::Full`], [`KernelError::PortSlot`] and [`KernelError::InUse`] are found before anything is
    /// written; the tables then hold `from`, and so they do after [`KernelError::Map`].
    pub fn publish(&mut self, from: &Image, to: &Image) -> Result<Applied, KernelError> {
        check(to, self.limits)?;
        let changes = Changes::between(from, to)?;
        let begin = Instant::now();
        let mut applied = Applied::default();

        self.write_adjacencies(&changes.adjacencies, &mut applied)?;
        publish(&self.maps.policies, &changes.policies.added, &mut applied);
        // A group refers to routes, and other routes to groups.
        let (grouped, plain): (Vec<_>, Vec<_>) = changes
            .routes
            .added
            .iter()
            .partition(|(_, route)| route.group != 0);
        publish(&self.maps.routes, &plain, &mut applied);
        publish(&self.maps.groups, &changes.groups.added, &mut applied);
        publish(&self.maps.routes, &grouped, &mut applied);
        let sizes = to.views();
        let views = ViewChanges::of(&changes.fib, &from.views(), &sizes);
        if let Err(error) = self.insert_prefixes(&views, to, &mut applied) {
            self.undo(from, &changes, &views)?;
            return Err(error);
        }
        self.write_ports(&changes, &mut applied);
        self.delete_prefixes(&views, &sizes, &mut applied)?;
        applied.effective = begin.elapsed();
        self.unused.add(&changes, to);
        self.unused.views.retain(|view| !sizes.contains_key(view));
        Ok(applied)
    }

    /// New ones, and changed ones: by one store where only the neighbor changed; otherwise the record is taken back,
    /// for a grace period its packets are the kernel's (unresolved neighbor), and it is written anew.
    fn write_adjacencies(
        &self,
        changes: &Diff<'_, u32, sidestep_adjacency>,
        applied: &mut Applied,
    ) -> Result<(), KernelError> {
        let table = &self.maps.adjacencies;
        publish(table, &changes.added, applied);
        let (store, rewrite): (Vec<_>, Vec<_>) = changes
            .changed
            .iter()
            .partition(|(_, old, new)| differ_in_first_word_only(*old, *new));
        for (index, _, new) in &store {
            table.publish_first(**index, new);
        }
        if !rewrite.is_empty() {
            for (index, _, _) in &rewrite {
                table.retract(**index);
            }
            self.synchronize()?;
            applied.grace_periods += 1;
            for (index, _, new) in &rewrite {
                table.publish(**index, new);
            }
        }
        applied.written += changes.changed.len();
        Ok(())
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
            if change.anew {
                self.change_fib(|fib| fib.replace(change.view, to.view(change.view)))?;
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
        to: &BTreeMap<u32, usize>,
        applied: &mut Applied,
    ) -> Result<(), KernelError> {
        self.maps.fib.drop_foreign();
        for change in changes.iter().filter(|change| !change.anew) {
            if to.contains_key(&change.view) {
                for &prefix in &change.removed {
                    self.change_fib(|fib| fib.remove(change.view, prefix))?;
                }
            } else {
                self.unused.views.insert(change.view);
            }
            applied.deleted += change.removed.len();
        }
        Ok(())
    }

    /// Ports that go, go first: one that comes may need the slot.
    fn write_ports(&self, changes: &Changes<'_>, applied: &mut Applied) {
        for (ifindex, _) in &changes.ports.removed {
            self.maps.ports.clear(*ifindex % SIDESTEP_PORTS);
            applied.cleared += 1;
        }
        for (ifindex, port) in changes.ports.upserts() {
            self.maps.ports.publish(ifindex % SIDESTEP_PORTS, port);
            applied.written += 1;
        }
    }

    /// Waits until no packet holds a record that was taken out of use, and clears them: then their indices can be used
    /// again. `current` is what the tables hold. Returns how many were cleared.
    ///
    /// The counter slot comes before the route that names it: whoever dies in between leaves the name.
    ///
    /// # Errors
    /// [`KernelError::System`] and [`KernelError::Map`]; what was not cleared yet is cleared the next time.
    pub fn tidy(&mut self, current: &Image) -> Result<usize, KernelError> {
        self.maps.fib.begin_grace();
        self.synchronize()?;
        self.maps.fib.end_grace();
        let counted: BTreeSet<u32> = current.routes.values().map(|route| route.counter).collect();
        let unused = std::mem::take(&mut self.unused);
        for (index, counter) in &unused.routes {
            if !counted.contains(counter)
                && let Err(error) = self.clear_route_counters(*counter)
            {
                self.unused = unused;
                return Err(error);
            }
            self.maps.routes.clear(*index);
        }
        for index in &unused.groups {
            self.maps.groups.clear(*index);
        }
        for index in &unused.policies {
            self.maps.policies.clear(*index);
        }
        for index in &unused.adjacencies {
            self.maps.adjacencies.clear(*index);
        }
        for &view in &unused.views {
            self.change_fib(|fib| fib.replace(view, []))?;
        }
        Ok(unused.records())
    }

    /// Back to `from` after the FIB took only some of the prefixes. Where that fails too, its error is the one to
    /// report.
    fn undo(
        &mut self,
        from: &Image,
        changes: &Changes<'_>,
        views: &[ViewChanges],
    ) -> Result<(), KernelError> {
        for change in views {
            self.change_fib(|fib| fib.replace(change.view, from.view(change.view)))?;
        }
        let adjacencies = Diff {
            added: Vec::new(),
            changed: changes
                .adjacencies
                .changed
                .iter()
                .map(|&(index, old, new)| (index, new, old))
                .collect(),
            removed: Vec::new(),
        };
        self.write_adjacencies(&adjacencies, &mut Applied::default())?;
        self.synchronize()?;
        changes
            .routes
            .added
            .iter()
            .for_each(|(index, _)| self.maps.routes.clear(**index));
        changes
            .groups
            .added
            .iter()
            .for_each(|(index, _)| self.maps.groups.clear(**index));
        changes
            .policies
            .added
            .iter()
            .for_each(|(index, _)| self.maps.policies.clear(**index));
        changes
            .adjacencies
            .added
            .iter()
            .for_each(|(index, _)| self.maps.adjacencies.clear(**index));
        Ok(())
    }
}

fn publish<T: Record>(table: &super::maps::Mapped<T>, added: &[(&u32, &T)], applied: &mut Applied) {
    for (index, record) in added {
        table.publish(**index, record);
    }
    applied.written += added.len();
}

/// Whether the image has a place in tables of these sizes.
fn check(to: &Image, limits: Limits) -> Result<(), KernelError> {
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
            Table::RouteCounters,
            limits.route_counters,
            last(to.routes.values().map(|route| route.counter).max()),
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
    for &second in to.ports.keys() {
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
    /// Writing all of it costs less than the changes one by one.
    anew: bool,
}

impl ViewChanges {
    /// `before`, `sizes`: how many prefixes each view had and will have. Views that are new come first: nothing leads to
    /// them yet but what others will have.
    fn of(
        changes: &Diff<'_, FibKey, u32>,
        before: &BTreeMap<u32, usize>,
        sizes: &BTreeMap<u32, usize>,
    ) -> Vec<Self> {
        let mut views: BTreeMap<u32, Self> = BTreeMap::new();
        for (key, route) in changes.upserts() {
            let change = views.entry(key.view).or_default();
            change.upserts.push(((*key).into(), *route));
        }
        for (key, _) in &changes.removed {
            let change = views.entry(key.view).or_default();
            change.removed.push((**key).into());
        }
        for (view, change) in &mut views {
            change.view = *view;
        }
        let mut views: Vec<_> = views.into_values().collect();
        views.sort_by_key(|change| before.contains_key(&change.view));
        for change in &mut views {
            let size = sizes.get(&change.view).copied().unwrap_or(0);
            change.anew = size > 0 && (change.upserts.len() + change.removed.len()) * ANEW > size;
        }
        views
    }
}

/// One change costs as much as writing so many prefixes in one go (measured: 2 µs and 0.5 µs, and copies to be waited
/// for).
const ANEW: usize = 8;

/// The differences between two images, table by table.
struct Changes<'a> {
    ports: Diff<'a, u32, sidestep_abi::sidestep_port>,
    routes: Diff<'a, u32, sidestep_abi::sidestep_route>,
    groups: Diff<'a, u32, sidestep_abi::sidestep_group>,
    adjacencies: Diff<'a, u32, sidestep_adjacency>,
    policies: Diff<'a, u32, sidestep_abi::sidestep_policy>,
    fib: Diff<'a, FibKey, u32>,
}

impl<'a> Changes<'a> {
    /// Refuses a route, a group or a policy whose content changes under its index.
    fn between(from: &'a Image, to: &'a Image) -> Result<Self, KernelError> {
        let changes = Self {
            ports: Diff::between(&from.ports, &to.ports),
            routes: Diff::between(&from.routes, &to.routes),
            groups: Diff::between(&from.groups, &to.groups),
            adjacencies: Diff::between(&from.adjacencies, &to.adjacencies),
            policies: Diff::between(&from.policies, &to.policies),
            fib: Diff::between(&from.fib, &to.fib),
        };
        let route = changes
            .routes
            .changed
            .first()
            .map(|(index, _, _)| (Table::Routes, **index));
        let group = changes
            .groups
            .changed
            .first()
            .map(|(index, _, _)| (Table::Groups, **index));
        let policy = changes
            .policies
            .changed
            .first()
            .map(|(index, _, _)| (Table::Policies, **index));
        match route.or(group).or(policy) {
            Some((table, index)) => Err(KernelError::InUse { table, index }),
            None => Ok(changes),
        }
    }
}

#[cfg(test)]
mod tests {
    use sidestep_abi::{sidestep_port, sidestep_route};
    use sidestep_lab::root_or_skip;

    use super::*;
    use crate::kernel::scratch::Scratch;

    #[test]
    fn an_image_larger_than_a_table_is_refused_with_the_table_and_its_limit() {
        let limits = Limits {
            fib: 1,
            routes: 2,
            groups: 1,
            adjacencies: 1,
            policies: 1,
            route_counters: 3,
        };
        let mut image = Image::default();
        image.routes.insert(
            2,
            sidestep_route {
                counter: 3,
                ..Default::default()
            },
        );
        assert!(check(&image, limits).is_ok(), "limits are inclusive");
        image.routes.insert(3, sidestep_route::default());
        let error = check(&image, limits).expect_err("three routes").to_string();
        assert_eq!(error, "table routes is full: 3 wanted, the limit is 2");
        image.routes.remove(&3);
        image.routes.insert(
            1,
            sidestep_route {
                counter: 4,
                ..Default::default()
            },
        );
        let error = check(&image, limits).expect_err("counter 4").to_string();
        assert_eq!(
            error,
            "table route_counters is full: 4 wanted, the limit is 3"
        );
    }

    #[test]
    fn two_ports_in_one_slot_are_refused() {
        let mut image = Image::default();
        for ifindex in [5, 5 + SIDESTEP_PORTS] {
            image.ports.insert(
                ifindex,
                sidestep_port {
                    ifindex,
                    ..Default::default()
                },
            );
        }
        let error = check(&image, Limits::default()).expect_err("same slot");
        assert!(
            matches!(error, KernelError::PortSlot { first: 5, second } if second == 5 + SIDESTEP_PORTS)
        );
    }

    #[test]
    fn a_route_in_use_cannot_change_its_meaning() {
        let image = |action| {
            let mut image = Image::default();
            image.routes.insert(
                7,
                sidestep_route {
                    action,
                    ..Default::default()
                },
            );
            image
        };
        let (from, to) = (image(1), image(2));
        assert!(matches!(
            Changes::between(&from, &to),
            Err(KernelError::InUse {
                table: Table::Routes,
                index: 7
            })
        ));
    }

    #[test]
    fn when_a_prefix_is_refused_the_tables_go_back_to_what_they_were() {
        if !root_or_skip("when_a_prefix_is_refused_the_tables_go_back_to_what_they_were") {
            return;
        }
        let image = |first: u8, count: u32, route: u32| {
            let mut image = Image::default();
            image.routes.insert(
                route,
                sidestep_route {
                    action: 1,
                    adjacency: 1,
                    ..Default::default()
                },
            );
            let mac = [first; 6];
            image.adjacencies.insert(
                1,
                sidestep_adjacency {
                    destination: mac,
                    mtu: 1500,
                    ..Default::default()
                },
            );
            for n in 0..count {
                // Each in a /64 of its own, which takes a line.
                let address = u128::from(first) << 120 | u128::from(n) << 64 | 1;
                image.fib.insert(
                    FibKey {
                        view: 1,
                        address: address.to_be_bytes(),
                        length: 128,
                    },
                    route,
                );
            }
            image
        };
        let scratch = Scratch::new("undo");
        scratch.run(|| {
            let mut kernel = scratch.load();
            let from = image(1, 4, 1);
            kernel.apply(&Image::default(), &from).expect("apply");
            let before = kernel.intervals(1);
            kernel.limits.fib = 100_000;
            kernel.fib_lines_max = super::super::fib::LINES;
            let error = kernel
                .apply(&from, &image(2, 50_000, 2))
                .expect_err("the table cannot grow");
            assert!(
                matches!(
                    error,
                    KernelError::Full {
                        table: Table::Fib,
                        ..
                    }
                ),
                "{error}"
            );
            assert_eq!(kernel.intervals(1), before);
            assert_eq!(kernel.image(), from);
        });
    }
}
