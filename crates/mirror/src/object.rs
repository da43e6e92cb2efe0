//! Nexthop objects: whose routes change when one does.
//!
//! A route names one object; if that is a group, a change of each of its members changes the route
//! as well. The kernel notifies of the object alone.

use std::collections::BTreeMap;

use crate::wire::{Message, attributes_after, u32_at};

/// Length of `struct nhmsg`.
pub(crate) const NHMSG: usize = 8;
/// Length of `struct nexthop_grp`, which begins with the member's id.
const GROUP_ENTRY: usize = 8;

// include/uapi/linux/nexthop.h.
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// `NHA_ID`.
    pub id: u32,
    /// The members of a group; none of any other object.
    pub members: Vec<u32>,
}

/// Reads an `RTM_NEWNEXTHOP` or `RTM_DELNEXTHOP`.
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

/// The groups that there are. The mirror may have an object that no longer exists, because the
/// kernel does not notify of objects that it removes with a link.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<u32, Vec<u32>>);

impl Groups {
    /// These, and no others.
    pub fn replace(&mut self, objects: Vec<Object>) {
        self.0.clear();
        for object in objects {
            self.set(object);
        }
    }

    /// The object is there, or has changed.
    pub fn set(&mut self, object: Object) {
        if object.members.is_empty() {
            self.0.remove(&object.id);
        } else {
            self.0.insert(object.id, object.members);
        }
    }

    /// The object is not there any more.
    pub fn delete(&mut self, id: u32) {
        self.0.remove(&id);
    }

    /// The object and the groups that it is a member of. No group is one (`nh_check_attr_group`).
    pub fn with(&self, id: u32) -> impl Iterator<Item = u32> {
        let groups = self.0.iter().filter(move |it| it.1.contains(&id));
        groups.map(|it| *it.0).chain([id])
    }
}
