//! Changes of many routes: nexthop objects, and links that stop running. They are reported before
//! the routes change.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use sidestep_model::node::IfIndex;
use sidestep_model::route::{Family, NextHop, ObjectChange, Route};

use super::State;
use crate::carrier::Links;
use crate::error::MirrorError;
use crate::fpm::is_dead;
use crate::kernel::Kernel;
use crate::link::LinkState;
use crate::object::{self, Object, ObjectId, Objects, Source};
use crate::route_table::family;
use crate::stale::Stale;
use crate::{OnUrgent, Urgent};

/// The first address in the order of neighbors.
const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl State {
    /// Resyncs the nexthop objects before [`State::refresh`]. The kernel removes those of a link with
    /// it, without a notification.
    pub fn refresh_objects(
        &mut self,
        stale: &Stale,
        kernel: &mut Kernel,
    ) -> Result<(), MirrorError> {
        if stale.objects.is_empty() && stale.links.is_empty() {
            return Ok(());
        }
        let mut objects = Objects::default();
        objects.replace(kernel.objects()?);
        let known: BTreeSet<u32> = self.objects.ids().chain(objects.ids()).collect();
        let before = std::mem::replace(&mut self.objects, objects);
        for id in known {
            let object = (Source::Kernel, id);
            let (then, now) = (before.next_hops(id), self.objects.next_hops(id));
            let differs = self.presumed.remove(&id) || then != now;
            if differs && self.routes.refer_to(object) && self.objects.contains(id) {
                self.note_object(object, then);
            }
        }
        Ok(())
    }

    /// Handles a nexthop object that was added, changed or removed. The kernel notifies of
    /// dependent routes only if they use the object directly, not through a group, and not with
    /// `nexthop_compat_mode` 0.
    pub fn object(&mut self, source: Source, object: Object, present: bool) {
        let affected: Vec<u32> = self.objects(source).with(object.id).collect();
        let hops = |state: &Self| -> Vec<_> {
            affected
                .iter()
                .map(|id| state.hops((source, *id)))
                .collect()
        };
        let removed = (!present).then_some(object.id);
        let before = hops(self);
        self.change_object(source, object, present);
        for (id, before) in affected.into_iter().zip(before) {
            if Some(id) != removed && before != self.hops((source, id)) {
                self.note_object((source, id), before);
            }
        }
    }

    /// Returns the next hops of an object. The kernel does not mark those of FPM dead.
    fn hops(&self, object: ObjectId) -> Option<Vec<NextHop>> {
        let mut hops = self.objects(object.0).next_hops(object.1)?;
        if object.0 == Source::Fpm {
            for hop in &mut hops {
                hop.dead |= is_dead(&self.links, hop);
            }
        }
        Some(hops)
    }

    /// Notes that an object has other next hops than `before`.
    pub fn note_object(&mut self, object: ObjectId, before: Option<Vec<NextHop>>) {
        self.changed_objects.insert(object);
        let change = ObjectChange {
            object,
            before,
            after: self.hops(object),
            routes: self.routes.count_users(object),
        };
        if change.routes > 0 {
            self.urgent.push(Urgent::Object(change));
        }
    }

    /// Calls `urgent` for the changes of many routes since the last call.
    pub fn report(&mut self, urgent: &mut OnUrgent<'_>) {
        for change in std::mem::take(&mut self.urgent) {
            let object = match &change {
                Urgent::Object(change) => Some(change.object),
                Urgent::Link(_) => None,
            };
            let is_handled = urgent(&self.node, change);
            match object {
                Some(object) if is_handled => _ = self.handled.insert(object),
                Some(object) => _ = self.handled.remove(&object),
                None => {}
            }
        }
    }

    fn objects(&self, source: Source) -> &Objects {
        match source {
            Source::Kernel => &self.objects,
            Source::Fpm => &self.fpm.objects,
        }
    }

    fn change_object(&mut self, source: Source, object: Object, present: bool) {
        let objects = match source {
            Source::Kernel => &mut self.objects,
            Source::Fpm => &mut self.fpm.objects,
        };
        let id = object.id;
        let affected = objects.with(id).map(|it| (source, it));
        if present {
            self.changed_objects.extend(affected);
            objects.set(object);
        } else {
            // The routes of a removed object of the kernel go with it.
            let users = affected.filter(|it| self.routes.refer_to(*it));
            match source {
                Source::Kernel => self.stale.objects.extend(users.map(|it| it.1)),
                // zebra withdraws the routes by messages of their own.
                Source::Fpm => self.changed_objects.extend(users),
            }
            objects.delete(id);
        }
    }

    /// Changes the routes of changed nexthop objects, once for all notifications of an object.
    pub fn resolve_objects(&mut self) {
        for id in std::mem::take(&mut self.changed_objects) {
            // Once for all routes, of which there may be many.
            let of_family = |family| object::for_routes(self.hops(id), family);
            let (v4, v6) = (of_family(Family::V4), of_family(Family::V6));
            let resolve = |route: &mut Route| {
                let (kind, hops) = match family(&route.key) {
                    Family::V4 => &v4,
                    Family::V6 => &v6,
                };
                route.kind = *kind;
                route.next_hops.clone_from(hops);
            };
            let (node, changed) = (&mut self.node, &mut self.changed_routes);
            self.routes.resolve(node, id, resolve, changed);
        }
    }

    /// Reports a link that went down, and the nexthop objects that keep other next hops. The kernel
    /// removes those of the link (`nexthop_flush_dev`), but holds the RTNL lock until it has updated
    /// all routes.
    pub(super) fn link_lost(&mut self, dev: IfIndex) {
        for id in self.objects.ids() {
            let object = (Source::Kernel, id);
            let users = self.routes.count_users(object);
            let before = self.objects.next_hops(id).filter(|_| users > 0);
            let Some(before) = before else {
                continue;
            };
            let stays = |hop: &&NextHop| hop.dev != Some(dev);
            let after: Vec<_> = before.iter().filter(stays).cloned().collect();
            if after.is_empty() || after.len() == before.len() {
                continue;
            }
            self.presumed.insert(id);
            self.urgent.push(Urgent::Object(ObjectChange {
                object,
                before: Some(before),
                after: Some(after),
                routes: users,
            }));
        }
        self.urgent.push(Urgent::Link(dev));
    }

    /// Handles a link that has stopped running without a notification yet, and awaits that.
    pub fn stop_running(&mut self, link: IfIndex, until: Instant) {
        if self.links.get(&link).is_some_and(LinkState::is_running) {
            self.awaited.insert(link, until);
            self.link_lost(link);
        }
    }

    /// Reads everything again about links whose notification did not come.
    pub fn stop_waiting(&mut self, now: Instant) {
        let stale = &mut self.stale.links;
        self.awaited.retain(|link, until| {
            let is_late = *until <= now;
            if is_late {
                stale.insert(*link);
            }
            !is_late
        });
    }

    /// Returns the links with neighbors.
    pub fn links_with_neighbors(&self) -> Links {
        let mut found = Links::new();
        let mut from = IfIndex(0);
        while let Some(((dev, _), _)) = self.node.neighbors.range((from, UNSPECIFIED)..).next() {
            let link = self.links.get(dev);
            found.extend(link.map(|link| (*dev, link.name.clone())));
            from = IfIndex(dev.0.saturating_add(1));
        }
        found
    }
}
