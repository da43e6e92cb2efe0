//! The tables of the packet path: full and incremental compilation, and reclaiming of indices.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use sidestep_datapath::abi::SIDESTEP_STATIONS;
use sidestep_datapath::kernel::Origin;
use sidestep_datapath::{Delta, Image, Limits};
use sidestep_mirror::Changes;
use sidestep_model::config::Overlay;
use sidestep_model::liveness::Watched;
use sidestep_model::node::{IfIndex, Mac, Node};
use sidestep_model::route::RouteKey;
use sidestep_model::service::Service;

use super::held::Held;
use super::own::{Devices, OverlaidNode};
use super::packet_path::PacketPath;
use super::urgent::Suspended;
use super::{DaemonError, Instance, NodeMirror, System, policies, urgent};
use crate::compile::{Compiled, Compiler, Counted};

#[cfg(test)]
mod tests;

/// Interval between looks at a grace period.
const RECLAIM_PERIOD: Duration = Duration::from_millis(8);
/// Minimum interval between attempts to fit what did not fit, while other entries come and go.
const REFIT: Duration = Duration::from_millis(100);
/// Inverse of the maximum share of time for these attempts.
const REFIT_SHARE: u32 = 10;

/// The tables of the packet path, and the node that they are compiled from.
pub(super) struct Tables<P> {
    pub overlaid: OverlaidNode,
    pub compiler: Compiler,
    pub compiled: Compiled,
    pub kernel: P,
    pub origin: Origin,
    pub suspended: Suspended,
    pub held: Held,
    /// Number of compilations.
    pub compilations: u64,
    /// A grace period is under way, after which indices become free.
    reclaiming: bool,
    /// Time of the next look at that grace period.
    next_reclaim: Instant,
    /// Indices became free since the last full compilation, so that more may fit now.
    room_freed: bool,
    /// Earliest time of the next attempt.
    refit_due: Instant,
}

/// Inputs of a compilation.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    /// The mirrored node.
    pub mirrored: &'a Node,
    pub own: &'a Overlay,
    pub devices: &'a Devices,
    /// Services that do not reply.
    pub down: &'a BTreeSet<Service>,
    /// Sessions and states of paths.
    pub watched: &'a Watched,
    /// Interfaces of the packet path, one for each slot at most.
    pub ports: &'a BTreeSet<IfIndex>,
}

impl<P: PacketPath> Tables<P> {
    /// Returns the tables of a packet path before their first compilation. Until then, an adopted
    /// packet path keeps its content.
    pub fn new(
        kernel: P,
        limits: Limits,
        mirrored: &Node,
        (own, devices): (&Overlay, &Devices),
        now: Instant,
    ) -> Self {
        let origin = kernel.origin();
        let before = if origin == Origin::Adopted {
            kernel.image()
        } else {
            Image::default()
        };
        let overlaid = OverlaidNode::new(
            mirrored,
            own,
            devices,
            (BTreeSet::new(), Watched::default()),
        );
        Self::beside(kernel, (origin, before), limits, overlaid, now)
    }

    /// Returns the tables of a packet path that has this content.
    fn beside(
        kernel: P,
        (origin, before): (Origin, Image),
        limits: Limits,
        overlaid: OverlaidNode,
        now: Instant,
    ) -> Self {
        Self {
            overlaid,
            compiler: Compiler::beside(limits, &before),
            compiled: Compiled {
                image: before,
                ..Compiled::default()
            },
            kernel,
            origin,
            suspended: Suspended::default(),
            held: Held::default(),
            compilations: 0,
            reclaiming: false,
            next_reclaim: now,
            room_freed: false,
            refit_due: now,
        }
    }

    /// Makes the node with the overlay again.
    pub fn overlay(&mut self, on: Sources<'_>) {
        let found = (on.down.clone(), on.watched.clone());
        if self.overlaid.is_separate() {
            let before = self.overlaid.node(on.mirrored);
            self.held.note_all((before, on.mirrored));
        }
        self.overlaid = OverlaidNode::new(on.mirrored, on.own, on.devices, found);
        self.overlaid.hold(&self.held);
    }

    /// Recompiles for a client that waits for the result. If something does not fit, it waits for a
    /// grace period and tries again, since indices may be waiting to be reclaimed. Otherwise
    /// [`Self::reclaim`] does so later.
    pub fn recompile_after_grace(
        &mut self,
        on: Sources<'_>,
        before: Option<&Overlay>,
    ) -> Result<(), DaemonError> {
        let result = self.recompile(on, before);
        let lacks = result.is_err() || self.compiled.index.is_full();
        if !lacks || !self.compiler.has_pending() {
            return result;
        }
        self.kernel.reclaim()?;
        self.compiler.reclaim();
        self.recompile(on, before)
    }

    /// Compiles the whole node without publishing it. Entries that may fit after a grace period are
    /// no error.
    pub fn check(&mut self, on: Sources<'_>) -> Result<(), DaemonError> {
        let node = self.overlaid.node(on.mirrored);
        let fib = &self.compiled.image.fib;
        let result = self.compiler.attempt(node, on.ports, fib);
        if self.compiler.has_pending() {
            return Ok(());
        }
        let full = result?.index.full;
        match on.own.routes.keys().find_map(|key| full.get(key)) {
            Some(table) => Err(self.compiler.full(table).into()),
            None => Ok(()),
        }
    }

    /// Compiles the whole node and publishes the result, as far as it fits. With `before`, a new
    /// Sidestep-only route that does not fit is an error, and nothing changes.
    pub fn recompile(
        &mut self,
        on: Sources<'_>,
        before: Option<&Overlay>,
    ) -> Result<(), DaemonError> {
        self.overlay(on);
        let node = self.overlaid.node(on.mirrored);
        self.compilations += 1;
        let next = self
            .compiler
            .attempt(node, on.ports, &self.compiled.image.fib)?;
        if let Some(before) = before {
            let full = &next.index.full;
            let lost = |key: &&RouteKey| {
                before.routes.get(*key) != on.own.routes.get(*key)
                    || !self.compiled.index.full.contains_key(*key)
            };
            let mut refused = on.own.routes.keys().filter(lost);
            if let Some(table) = refused.find_map(|key| full.get(key)) {
                return Err(self.compiler.full(table).into());
            }
        }
        // Clear a counter slot that another route or a replaced list used before.
        let replaced =
            before.map(|it| policies::replaced(&it.all_policies(), &on.own.all_policies()));
        let replaced = replaced.unwrap_or_default();
        for (key, &slot) in &next.index.counters {
            let of_another = matches!(key, Counted::List(_, list) if replaced.contains(list));
            if of_another || self.compiled.index.counters.get(key) != Some(&slot) {
                self.kernel.clear_route_counters(slot)?;
            }
        }
        let delta = Delta::between(&self.compiled.image, &next.image);
        self.kernel.publish(&delta, &next.image)?;
        self.compiler.accept();
        self.compiled = next;
        Ok(())
    }

    /// Updates the tables after changes of these routes, neighbors, links and stations only. Returns
    /// false, with nothing changed, if that requires a full compilation.
    pub fn apply(&mut self, mirrored: &Node, own: &Overlay, changes: &Changes) -> bool {
        if !self.apply_stations(mirrored, &changes.stations) {
            return false;
        }
        let held = &mut self.held;
        let routes = self.overlaid.apply(mirrored, own, changes, held);
        let (node, compiled) = (self.overlaid.node(mirrored), &mut self.compiled);
        let Changes {
            neighbors, links, ..
        } = changes;
        // The validity of the segment lists of SR policies depends on links.
        if !links.is_empty() && !node.policies.is_empty() {
            return false;
        }
        let updated = self
            .compiler
            .update(node, &routes, neighbors, links, compiled);
        let Ok(change) = updated else {
            return false;
        };
        let is_published = urgent::publish(&mut self.kernel, &change, compiled);
        if is_published {
            self.compiler.accept();
        }
        is_published
    }

    /// Gives next hops the state that the tables have for them. The prober may have taken some of them
    /// down that have no protection by its path any more.
    pub fn restore_next_hops(&self) {
        let all = self.compiled.image.adjacencies.keys().copied();
        let suspended = &self.suspended;
        let known = all
            .filter(|index| !suspended.has_adjacency(*index))
            .collect();
        self.kernel
            .resume(&self.compiled.image, known, BTreeSet::new());
    }

    /// Updates the tables after a change of the states of paths. Returns false if that requires a full
    /// compilation.
    pub fn apply_watched(&mut self, mirrored: &Node, watched: Watched) -> bool {
        let Some(routes) = self.overlaid.set_watched(watched) else {
            return false;
        };
        let (node, compiled) = (self.overlaid.node(mirrored), &mut self.compiled);
        let routes: Vec<RouteKey> = routes.into_iter().collect();
        let protected = node.protections.iter().filter(|(_, it)| it.path.is_some());
        let links = protected.filter_map(|(key, _)| Some(node.link_by_name(&key.dev)?.ifindex));
        let links: Vec<IfIndex> = links.collect();
        let Ok(change) = self.compiler.update(node, &routes, &[], &links, compiled) else {
            return false;
        };
        let is_published = urgent::publish(&mut self.kernel, &change, compiled);
        if is_published {
            self.compiler.accept();
        }
        is_published
    }

    /// Updates the table of stations. Returns false, with nothing changed, if that fails.
    fn apply_stations(&mut self, mirrored: &Node, stations: &[(IfIndex, Mac)]) -> bool {
        if stations.is_empty() {
            return true;
        }
        let known = &mirrored.stations;
        let (image, index) = (&mut self.compiled.image, &self.compiled.index);
        let mut delta = Delta::default();
        for station in stations {
            let (key, way) = index.station(*station, known.get(station).copied());
            // Others pass the bridge while the table is full.
            let fits = image.stations.contains_key(&key)
                || image.stations.len() < SIDESTEP_STATIONS as usize;
            let way = way.filter(|_| fits);
            delta.stations.set(&mut image.stations, key, way);
        }
        let is_published = self.kernel.publish(&delta, image).is_ok();
        if !is_published {
            delta.revert(image);
        }
        is_published
    }

    /// Returns when to call [`Self::reclaim`], if indices wait for a grace period or routes for the
    /// room of reclaimed ones.
    pub fn reclaim_due(&self) -> Option<Instant> {
        let awaits = self.reclaiming
            || self.compiler.has_pending()
            || self.kernel.has_pending()
            || (self.room_freed && self.compiled.index.is_full());
        awaits.then_some(self.next_reclaim)
    }

    /// Reclaims indices that no packet can read any more. The grace period takes tens of
    /// milliseconds; changes are applied meanwhile. Returns true if a full compilation may now fit
    /// more: [`Self::refitted`] follows it.
    pub fn reclaim(&mut self, now: Instant) -> bool {
        self.next_reclaim = now + RECLAIM_PERIOD;
        if self.reclaiming {
            match self.kernel.end_reclaim() {
                Ok(false) => return false,
                Ok(true) => self.compiler.end_reclaim(),
                // The next attempt clears what remains, and frees its indices.
                Err(_) => {}
            }
            self.reclaiming = false;
            self.room_freed = true;
        } else if self.compiler.has_pending() || self.kernel.has_pending() {
            self.reclaiming = self.kernel.begin_reclaim().is_ok();
            if self.reclaiming {
                self.compiler.begin_reclaim();
            }
        }
        let refits = self.room_freed && self.compiled.index.is_full() && now >= self.refit_due;
        if refits {
            self.room_freed = false;
        }
        refits
    }

    /// Notes an attempt to fit more that ended at `now` and took this time.
    pub fn refitted(&mut self, now: Instant, taken: Duration) {
        self.refit_due = now + REFIT.max(taken * REFIT_SHARE);
    }
}

impl<S: System> Instance<S> {
    /// Calls `action` with the tables and the inputs of a compilation.
    fn with_sources<T>(
        &mut self,
        action: impl FnOnce(&mut Tables<S::Path>, Sources<'_>) -> T,
    ) -> T {
        let (ports, down) = (self.port_slots(), self.watchers.liveness.down());
        let own = &self.configured.own;
        let watched = self.watchers.paths.watched(own, &self.tables.kernel);
        let on = Sources {
            mirrored: self.mirror.node(),
            own: &self.configured.own,
            devices: &self.configured.devices,
            down: &down,
            watched: &watched,
            ports: &ports,
        };
        action(&mut self.tables, on)
    }

    /// As [`Tables::overlay`].
    pub(super) fn apply_overlay(&mut self) {
        self.with_sources(Tables::overlay);
    }

    /// As [`Tables::check`].
    pub(super) fn check_compilation(&mut self) -> Result<(), DaemonError> {
        self.with_sources(Tables::check)
    }

    /// As [`Tables::recompile_after_grace`].
    pub(super) fn recompile_after_grace(
        &mut self,
        before: Option<&Overlay>,
    ) -> Result<(), DaemonError> {
        let done = self.with_sources(|tables, on| tables.recompile_after_grace(on, before));
        self.watch_services(done)
    }

    /// As [`Tables::recompile`].
    pub(super) fn recompile(&mut self, before: Option<&Overlay>) -> Result<(), DaemonError> {
        let done = self.with_sources(|tables, on| tables.recompile(on, before));
        self.watch_services(done)
    }

    /// Probes the services of the overlay after an update. A failed update does not change which
    /// services are probed.
    fn watch_services(&mut self, done: Result<(), DaemonError>) -> Result<(), DaemonError> {
        done?;
        let routes = self.configured.own.routes.values();
        self.watchers.liveness.watch(routes, self.time.now);
        self.probe_paths();
        Ok(())
    }

    /// Gives the node the states of its paths, and updates the routes into policies.
    pub(super) fn apply_watched(&mut self) {
        self.clients.monitor.touch();
        self.watchers.ethers.touch();
        let own = &self.configured.own;
        let watched = self.watchers.paths.watched(own, &self.tables.kernel);
        if !self.tables.apply_watched(self.mirror.node(), watched) {
            self.on_change(&Changes::default(), true);
        }
        self.tables.restore_next_hops();
    }

    /// As [`Tables::apply`].
    pub(super) fn apply_incremental(&mut self, changes: &Changes) -> bool {
        let (mirrored, own) = (self.mirror.node(), &self.configured.own);
        self.tables.apply(mirrored, own, changes)
    }

    /// As [`Tables::reclaim`], with the compilation.
    pub(super) fn reclaim(&mut self) {
        let begun = self.system.nanoseconds(ClockId::CLOCK_MONOTONIC);
        if self.tables.reclaim(self.time.now) {
            self.on_change(&Changes::default(), true);
            let taken = self.taken_since(begun);
            self.tables.refitted(self.time.now + taken, taken);
        }
    }
}
