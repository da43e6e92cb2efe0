//! Groups of nexthop objects. All routes that refer to an object use one group, as in the kernel, and
//! its slots follow the object. A change of the object is therefore one write, whatever the number
//! of its routes.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::GroupId;
use sidestep_datapath::abi::{
    SIDESTEP_GROUP_SLOTS, SIDESTEP_ROUTE_GROUP, sidestep_group, sidestep_route,
};
use sidestep_model::node::Node;
use sidestep_model::route::{
    Encap, NextHop, NextHops, ObjectChange, ObjectId, Owner, Route, RouteKey, RouteKind, Source,
};

use super::error::Skip;
use super::group::shares;
use super::keys::{GroupKey, ObjectKey};
use super::record::record;
use super::routes::{RouteCompiler, is_ethernet};
use super::share::alive;

/// The groups of nexthop objects.
#[derive(Debug, Default)]
pub(super) struct ObjectGroups {
    groups: BTreeMap<GroupId, ObjectGroup>,
    /// Objects with a route that does not use the group.
    apart: BTreeSet<ObjectId>,
}

/// Group of an object.
#[derive(Clone, Debug)]
struct ObjectGroup {
    key: ObjectKey,
    /// Its next hops.
    hops: NextHops,
    /// A route that uses it.
    route: RouteKey,
}

impl ObjectGroups {
    /// Removes a group.
    pub fn forget(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    fn hops(&self, group: GroupId) -> Option<&NextHops> {
        self.groups.get(&group).map(|group| &group.hops)
    }
}

impl RouteCompiler<'_> {
    /// Returns the next hops of a route.
    pub(super) fn hops(&self, route: &Route) -> NextHops {
        match &self.changed_object {
            Some((object, hops)) if route.object() == Some(*object) => hops.clone(),
            _ => route.next_hops.clone(),
        }
    }

    /// Returns the record of a route that refers to a nexthop object. Returns none if the next
    /// hops depend on more than the object, or for one next hop if the groups are full.
    pub(super) fn by_object(
        &mut self,
        route: &Route,
        hops: &NextHops,
    ) -> Result<Option<sidestep_route>, Skip> {
        let Some(object) = route.object() else {
            return Ok(None);
        };
        let group = if can_share(self.node, hops) {
            self.object_group(object, route, hops).map(Some)
        } else {
            Ok(None)
        };
        if !matches!(group, Ok(Some(_))) {
            self.store.objects.apart.insert(object);
        }
        if hops.len() == 1 && matches!(group, Err(Skip::Full(_))) {
            return Ok(None);
        }
        Ok(group?.map(|group| sidestep_route {
            group,
            ..record(SIDESTEP_ROUTE_GROUP)
        }))
    }

    /// Returns the group of an object, with these next hops.
    fn object_group(
        &mut self,
        object: ObjectId,
        route: &Route,
        hops: &NextHops,
    ) -> Result<GroupId, Skip> {
        let key = ObjectKey {
            object,
            table: route.key.table,
            family: route.family(),
            mtu: route.mtu,
            in_kernel: route.owner.in_kernel(),
        };
        let index = self.store.indices.groups.index_of(&GroupKey::Object(key))?;
        if self.store.objects.hops(index) == Some(hops) {
            return Ok(index);
        }
        let members = self.members(route, &alive(hops))?;
        // One next hop needs no hash of the flow.
        let slots = match &members[..] {
            [(only, _)] => vec![*only],
            members => shares(members)?,
        };
        // A packet may read old and new slots, so each has a route.
        let mut routes = slots.iter().copied().cycle();
        let content = sidestep_group {
            slots: slots.len() as u32,
            seed: self.node.multipath_hash_seed,
            routes: [(); SIDESTEP_GROUP_SLOTS as usize].map(|()| routes.next().unwrap_or_default()),
        };
        self.store.set_group(index, &content, slots);
        let group = ObjectGroup {
            key,
            hops: hops.clone(),
            route: route.key,
        };
        self.store.objects.groups.insert(index, group);
        Ok(index)
    }

    /// Gives the groups of the object that changes its new next hops.
    pub(super) fn rebuild_groups(&mut self, object: ObjectId) -> Result<(), Skip> {
        let groups = self.store.objects.groups.values();
        let groups: Vec<ObjectGroup> = groups
            .filter(|it| it.key.object == object)
            .cloned()
            .collect();
        for ObjectGroup { key, route, .. } in groups {
            let route = Route {
                key: route,
                kind: RouteKind::Unicast,
                next_hops: NextHops::default(),
                prefsrc: None,
                mtu: key.mtu,
                nhid: Some(object.1),
                protocol: 0,
                owner: match object.0 {
                    Source::Kernel => Owner::Kernel,
                    Source::Fpm => Owner::Fpm {
                        in_kernel: key.in_kernel,
                    },
                },
            };
            let hops = self.hops(&route);
            self.object_group(object, &route, &hops)?;
        }
        Ok(())
    }
}

/// Whether the change of an object is one write: its groups have all of its routes, and can have
/// the new next hops.
pub(super) fn is_one_write(node: &Node, change: &ObjectChange, objects: &mut ObjectGroups) -> bool {
    let can_share = |hops: &Option<Vec<NextHop>>| {
        let hops = hops.as_ref().filter(|hops| can_share(node, hops));
        hops.is_some()
    };
    // Otherwise all of its routes are compiled again, and use the groups if they can.
    let is_apart = objects.apart.remove(&change.object);
    !is_apart && can_share(&change.before) && can_share(&change.after) && node.policies.is_empty()
}

/// Whether the records of these next hops depend on nothing but the object.
fn can_share(node: &Node, hops: &[NextHop]) -> bool {
    let can = |hop: &NextHop| match &hop.encap {
        None => {
            let link = hop.dev.and_then(|dev| node.links.get(&dev));
            hop.via.is_some() && link.is_some_and(|link| is_ethernet(&link.kind))
        }
        Some(Encap::Seg6(_)) => true,
        Some(_) => false,
    };
    !hops.is_empty() && hops.iter().all(can)
}
