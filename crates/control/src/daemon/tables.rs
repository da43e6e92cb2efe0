//! Updates of the tables: full and incremental compilation, and reclaiming of indices.

use std::time::{Duration, Instant};

use sidestep_datapath::Delta;
use sidestep_mirror::Changes;
use sidestep_model::config::Overlay;
use sidestep_model::route::RouteKey;

use super::{Daemon, DaemonError, policies, urgent};
use crate::compile::Counted;

/// Interval between looks at a grace period.
const RECLAIM_PERIOD: Duration = Duration::from_millis(8);
/// Minimum interval between attempts to fit what did not fit, while other entries come and go.
const REFIT: Duration = Duration::from_millis(100);
/// Inverse of the maximum share of time for these attempts.
const REFIT_SHARE: u32 = 10;

impl Daemon {
    /// Recompiles for a client that waits for the result. If something does not fit, it waits for a
    /// grace period and tries again, since indices may be waiting to be reclaimed. Otherwise
    /// [`Daemon::reclaim`] does so later.
    pub(super) fn recompile_after_grace(
        &mut self,
        before: Option<&Overlay>,
    ) -> Result<(), DaemonError> {
        let result = self.recompile(before);
        let lacks = result.is_err() || self.compiled.index.is_full();
        if !lacks || !self.compiler.has_pending() {
            return result;
        }
        self.kernel.reclaim()?;
        self.compiler.reclaim();
        self.recompile(before)
    }

    /// Compiles the whole node without publishing it. Entries that may fit after a grace period are
    /// no error.
    pub(super) fn check_compilation(&mut self) -> Result<(), DaemonError> {
        let ports = self.port_slots();
        let node = self.overlaid.node(self.mirror.node());
        let fib = &self.compiled.image.fib;
        let result = self.compiler.attempt(node, &ports, fib);
        if self.compiler.has_pending() {
            return Ok(());
        }
        let full = result?.index.full;
        match self.own.routes.keys().find_map(|key| full.get(key)) {
            Some(table) => Err(self.compiler.full(table).into()),
            None => Ok(()),
        }
    }

    /// Compiles the whole node and publishes the result, as far as it fits. With `before`, a new
    /// Sidestep-only route that does not fit is an error, and nothing changes.
    pub(super) fn recompile(&mut self, before: Option<&Overlay>) -> Result<(), DaemonError> {
        self.apply_overlay();
        let ports = self.port_slots();
        let node = self.overlaid.node(self.mirror.node());
        self.compilations += 1;
        let next = self
            .compiler
            .attempt(node, &ports, &self.compiled.image.fib)?;
        if let Some(before) = before {
            let full = &next.index.full;
            let lost = |key: &&RouteKey| {
                before.routes.get(*key) != self.own.routes.get(*key)
                    || !self.compiled.index.full.contains_key(*key)
            };
            let mut refused = self.own.routes.keys().filter(lost);
            if let Some(table) = refused.find_map(|key| full.get(key)) {
                return Err(self.compiler.full(table).into());
            }
        }
        // Clear a counter slot that another route or a replaced list used before.
        let replaced =
            before.map(|it| policies::replaced(&it.all_policies(), &self.own.all_policies()));
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
        // After the update: a failed update does not change which services are probed.
        self.liveness
            .watch(self.own.routes.values(), Instant::now());
        Ok(())
    }

    /// Updates the tables after changes of these routes, neighbors and links only. Returns false,
    /// with nothing changed, if that requires a full compilation.
    pub(super) fn apply_incremental(&mut self, changes: &Changes) -> bool {
        if !self.apply_stations(&changes.stations) {
            return false;
        }
        let mirrored = self.mirror.node();
        let routes = self.overlaid.apply(mirrored, &self.own, changes);
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

    /// Returns when to call [`Self::reclaim`], if indices wait for a grace period or routes for the
    /// room of reclaimed ones.
    pub(super) fn reclaim_due(&self) -> Option<Instant> {
        let awaits = self.reclaiming
            || self.compiler.has_pending()
            || self.kernel.has_pending()
            || (self.room_freed && self.compiled.index.is_full());
        awaits.then_some(self.next_reclaim)
    }

    /// Reclaims indices that no packet can read any more. The grace period takes tens of
    /// milliseconds; changes are applied meanwhile.
    pub(super) fn reclaim(&mut self) {
        self.next_reclaim = Instant::now() + RECLAIM_PERIOD;
        if self.reclaiming {
            match self.kernel.end_reclaim() {
                Ok(None) => return,
                Ok(Some(_)) => self.compiler.end_reclaim(),
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
        let begun = Instant::now();
        if self.room_freed && self.compiled.index.is_full() && begun >= self.refit_due {
            self.room_freed = false;
            self.on_change(&Changes::default(), true);
            self.refit_due = Instant::now() + REFIT.max(begun.elapsed() * REFIT_SHARE);
        }
    }
}
