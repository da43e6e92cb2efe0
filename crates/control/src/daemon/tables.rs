//! Bringing the tables to what the node is now: all of them, or by one change; and what comes free of them.

use std::time::{Duration, Instant};

use sidestep_datapath::Delta;
use sidestep_mirror::Changes;
use sidestep_model::config::Overlay;
use sidestep_model::route::RouteKey;

use super::{Daemon, DaemonError, policies};
use crate::compile::Counted;

/// Where something does not fit and other things come and go, it is tried again whether it does no more often than this,
const REFIT: Duration = Duration::from_millis(100);
/// and in no more than one part in so many of the time.
const REFIT_SHARE: u32 = 10;

impl Daemon {
    /// As [`Daemon::bring`], for somebody who waits for the answer: what does not fit, perhaps only because indices are held
    /// back since the last grace period, is tried again after one. (Otherwise [`Daemon::release`] does, and nobody waits.)
    pub(super) fn bring_patiently(&mut self, whole: Option<&Overlay>) -> Result<(), DaemonError> {
        let brought = self.bring(whole);
        let lacks = brought.is_err() || self.compiled.index.is_full();
        if !lacks || !self.compiler.holds_back() {
            return brought;
        }
        self.kernel.tidy()?;
        self.compiler.release();
        self.bring(whole)
    }

    /// Brings the tables to what the node is now, all of it compiled anew, as far as they hold it. With `whole`, a route of
    /// our own that does not fit, though not one of those that did not before, is an error, and nothing changes.
    pub(super) fn bring(&mut self, whole: Option<&Overlay>) -> Result<(), DaemonError> {
        self.lay_over();
        let ports = self.slots();
        let node = self.over.node(self.mirror.node());
        self.compilations += 1;
        let next = self
            .compiler
            .attempt(node, &ports, &self.compiled.image.fib)?;
        if let Some(before) = whole {
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
        // A slot that another route had before begins at zero, and that of a list which stands in another one's place.
        let replaced = whole.map(|before| policies::replaced(&before.policies, &self.own.policies));
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
        // Not before: what was refused changes nothing of whom is looked at.
        self.liveness
            .follow(self.own.routes.values(), Instant::now());
        Ok(())
    }

    /// Brings the tables to what the node is now, which differs in these routes and neighbors alone. False: that cannot
    /// be done without the rest, and nothing has changed.
    pub(super) fn step(&mut self, changes: &Changes) -> bool {
        let mirrored = self.mirror.node();
        let routes = self.over.follow(mirrored, &self.own, changes);
        let (node, compiled) = (self.over.node(mirrored), &mut self.compiled);
        let neighbors = &changes.neighbors;
        let Ok(change) = self.compiler.update(node, &routes, neighbors, compiled) else {
            return false;
        };
        let cleared = change
            .new_counters()
            .try_for_each(|slot| self.kernel.clear_route_counters(slot));
        let mut publish = || self.kernel.publish(&change.delta, &compiled.image);
        if cleared.and_then(|()| publish()).is_err() {
            change.revert(compiled);
            return false;
        }
        self.compiler.accept();
        true
    }

    /// Indices whose last readers have gone can be used again. Waiting for these takes tens of milliseconds, in which
    /// changes are followed as ever.
    pub(super) fn release(&mut self) {
        if self.releasing {
            match self.kernel.end_tidy() {
                Ok(None) => return,
                Ok(Some(_)) => self.compiler.end_release(),
                // What was not cleared is cleared the next time, and its indices are free then.
                Err(_) => {}
            }
            self.releasing = false;
            self.has_room = true;
        } else if self.compiler.holds_back() || self.kernel.holds_back() {
            self.releasing = self.kernel.begin_tidy().is_ok();
            if self.releasing {
                self.compiler.begin_release();
            }
        }
        let begun = Instant::now();
        if self.has_room && self.compiled.index.is_full() && begun >= self.refit {
            self.has_room = false;
            self.follow(&Changes::default(), true);
            self.refit = Instant::now() + REFIT.max(begun.elapsed() * REFIT_SHARE);
        }
    }
}
