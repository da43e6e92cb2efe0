//! Nexthop objects and the routes that depend on them.
//!
//! A route refers to one object. If this object is a group, a change of a member changes the route
//! as well. The kernel notifies only of the object.

use std::collections::BTreeMap;

use crate::wire::{Message, attributes_after, u32_at};

/// Length of `struct nhmsg`.
pub(crate) const NHMSG: usize = 8;
/// Length of `struct nexthop_grp`, which begins with the member's id.
const GROUP_ENTRY: usize = 8;

// include/uapi/linux/nexthop.h.
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;

/// A nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// `NHA_ID`.
    pub id: u32,
    /// Members of a group; empty for other objects.
    pub members: Vec<u32>,
}

/// Decodes an `RTM_NEWNEXTHOP` or `RTM_DELNEXTHOP`.
pub(crate) fn decode(message: &Message<'_>) -> Option<Object> {
    let mut object = Object {
        id: 0,
        members: Vec::new(),
    };
    for attribute in attributes_after(message.body, NHMSG) {
        match attribute.kind {
            NHA_ID => object.id = attribute.u32()?,
            NHA_GROUP => {
                let entries = attribute.value.chunks_exact(GROUP_ENTRY);
                object.members = entries.filter_map(|entry| u32_at(entry, 0)).collect();
            }
            _ => {}
        }
    }
    (object.id != 0).then_some(object)
}

/// All known groups. Some may no longer exist, because the kernel does not notify of objects that
/// it removes with a link.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<u32, Vec<u32>>);

impl Groups {
    /// Replaces all groups.
    pub fn replace(&mut self, objects: Vec<Object>) {
        self.0.clear();
        for object in objects {
            self.set(object);
        }
    }

    /// Adds or changes an object.
    pub fn set(&mut self, object: Object) {
        if object.members.is_empty() {
            self.0.remove(&object.id);
        } else {
            self.0.insert(object.id, object.members);
        }
    }

    /// Removes an object.
    pub fn delete(&mut self, id: u32) {
        self.0.remove(&id);
    }

    /// Returns an object and the groups that contain it. A group cannot contain groups
    /// (`nh_check_attr_group`).
    pub fn with(&self, id: u32) -> impl Iterator<Item = u32> {
        let groups = self.0.iter().filter(move |it| it.1.contains(&id));
        groups.map(|it| *it.0).chain([id])
    }
}
