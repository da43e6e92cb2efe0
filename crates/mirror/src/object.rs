//! Nexthop objects: the next hops of the routes that refer to one.
//!
//! A route names one object; if that is a group, a change of each of its members changes the route
//! as well. With `net.ipv4.nexthop_compat_mode` 0 the kernel notifies of the object alone, and the
//! message of a route has only the id of its object.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_model::node::IfIndex;
use sidestep_model::route::{Encap, Family, NextHop, NextHops, Route, RouteKind};
pub(crate) use sidestep_model::route::{ObjectId, Source};

use crate::route::HopAttributes;
use crate::route_table::family;
use crate::wire::{Message, attributes_after, u32_at};

/// Length of `struct nhmsg`.
pub(crate) const NHMSG: usize = 8;
/// Length of `struct nexthop_grp`: the member's id, its weight less one, reserved bytes.
const GROUP_ENTRY: usize = 8;

// include/uapi/linux/nexthop.h.
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;

/// A nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// `NHA_ID`.
    pub id: u32,
    content: Content,
}

impl Object {
    /// Returns an object without content, to name a removed one.
    pub fn named(id: u32) -> Self {
        Self {
            id,
            content: Content::Blackhole,
        }
    }

    /// Returns the next hop of an object that is one.
    pub fn next_hop_mut(&mut self) -> Option<&mut NextHop> {
        match &mut self.content {
            Content::NextHop(hop) => Some(hop),
            Content::Blackhole | Content::Group(_) => None,
        }
    }
}

/// Content of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Packets are dropped.
    Blackhole,
    /// One next hop.
    NextHop(NextHop),
    /// Members with their weights. A resilient group has them as well.
    Group(Vec<(u32, u16)>),
}

/// Decodes an `RTM_NEWNEXTHOP` or `RTM_DELNEXTHOP`.
pub(crate) fn decode(message: &Message<'_>) -> Option<Object> {
    let flags = u32_at(message.body, 4)?;
    let (mut id, mut blackhole, mut members) = (0, false, Vec::new());
    let mut hop = HopAttributes::default();
    for attribute in attributes_after(message.body, NHMSG) {
        match attribute.kind {
            NHA_ID => id = attribute.u32()?,
            NHA_GROUP => {
                let entries = attribute.value.chunks_exact(GROUP_ENTRY);
                let member = |it: &[u8]| Some((u32_at(it, 0)?, u16::from(*it.get(4)?) + 1));
                members = entries.filter_map(member).collect();
            }
            NHA_BLACKHOLE => blackhole = true,
            NHA_OIF => hop.dev = attribute.u32().map(IfIndex),
            NHA_GATEWAY => hop.via = attribute.address(),
            NHA_ENCAP_TYPE => hop.encap_type = attribute.u16(),
            NHA_ENCAP => hop.encap = Some(attribute.value),
            _ => {}
        }
    }
    let content = match (blackhole, members) {
        (true, _) => Content::Blackhole,
        (false, members) if members.is_empty() => Content::NextHop(hop.next_hop(flags as u8, 1)),
        (false, members) => Content::Group(members),
    };
    (id != 0).then_some(Object { id, content })
}

/// The objects that there are. The mirror may have an object that no longer exists, because the
/// kernel does not notify of objects that it removes with a link.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    contents: BTreeMap<u32, Content>,
    /// Groups that contain an object, by (member, group).
    groups: BTreeSet<(u32, u32)>,
}

impl Objects {
    /// These, and no others.
    pub fn replace(&mut self, objects: Vec<Object>) {
        *self = Self::default();
        for object in objects {
            self.set(object);
        }
    }

    /// Adds or changes an object.
    pub fn set(&mut self, object: Object) {
        self.delete(object.id);
        self.groups.extend(members(&object));
        self.contents.insert(object.id, object.content);
    }

    /// Removes an object.
    pub fn delete(&mut self, id: u32) {
        if let Some(content) = self.contents.remove(&id) {
            for pair in members(&Object { id, content }) {
                self.groups.remove(&pair);
            }
        }
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Returns whether there is an object with this ID.
    pub fn contains(&self, id: u32) -> bool {
        self.contents.contains_key(&id)
    }

    /// Returns the IDs of all objects.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.contents.keys().copied()
    }

    /// Returns an object and the groups that contain it. A group cannot contain groups
    /// (`nh_check_attr_group`).
    pub fn with(&self, id: u32) -> impl Iterator<Item = u32> {
        let groups = self.groups.range((id, 0)..=(id, u32::MAX));
        groups.map(|it| it.1).chain([id])
    }

    /// Sets kind and next hops of a route from its object. If the object is unknown, packets of the
    /// route are punted until its notification comes.
    pub fn resolve(&self, route: &mut Route) {
        let Some(id) = route.nhid else {
            return;
        };
        (route.kind, route.next_hops) = for_routes(self.next_hops(id), family(&route.key));
    }

    /// Returns the next hops of an object, or none if packets are dropped.
    pub fn next_hops(&self, id: u32) -> Option<Vec<NextHop>> {
        let alone = [(id, 1)];
        let members = match self.contents.get(&id) {
            Some(Content::Group(members)) => members.as_slice(),
            _ => &alone,
        };
        let mut hops = Vec::new();
        for (member, weight) in members {
            match self.contents.get(member) {
                Some(Content::NextHop(hop)) => hops.push(NextHop {
                    weight: *weight,
                    ..hop.clone()
                }),
                // A group with a blackhole has no other member.
                Some(Content::Blackhole) => return None,
                Some(Content::Group(_)) | None => {}
            }
        }
        if hops.is_empty() {
            let unknown = format!("unknown nexthop object {id}");
            hops.push(NextHop {
                encap: Some(Encap::Unsupported(unknown)),
                ..NextHop::new()
            });
        }
        Some(hops)
    }
}

/// Returns kind and next hops of the routes of a family, from those of their object. Without next hops
/// it drops packets.
pub(crate) fn for_routes(hops: Option<Vec<NextHop>>, family: Family) -> (RouteKind, NextHops) {
    let kind = match hops {
        Some(_) => RouteKind::Unicast,
        None => RouteKind::Blackhole,
    };
    let mut hops = hops.unwrap_or_default();
    match (family, hops.as_mut_slice()) {
        // As in the message of a route, see `route::decode`.
        (Family::V6, hops) => hops.sort_unstable(),
        (Family::V4, [only]) => only.weight = 1,
        (Family::V4, _) => {}
    }
    (kind, hops.into())
}

/// Returns the pairs (member, group) of a group; none for another object.
fn members(object: &Object) -> BTreeSet<(u32, u32)> {
    match &object.content {
        Content::Group(members) => members.iter().map(|it| (it.0, object.id)).collect(),
        Content::Blackhole | Content::NextHop(_) => BTreeSet::new(),
    }
}
