//! Names of interfaces that a configuration may use.

use std::collections::BTreeMap;

use sidestep_model::grammar::Names;
use sidestep_model::node::{IfIndex, Node};

use super::Devices;

/// First index for a port whose interface does not exist yet. The kernel's indices are positive
/// `int`s. The interface's own index replaces it once it exists.
const ABSENT: u32 = 1 << 31;

/// The interfaces of the node, those that are gone and still configured, and those that are waited
/// for.
pub(crate) struct KnownNames<'a> {
    node: &'a Node,
    absent: BTreeMap<IfIndex, String>,
}

impl<'a> KnownNames<'a> {
    /// `awaited`: names of ports and ether devices.
    pub(crate) fn new<'n>(
        node: &'a Node,
        devices: &Devices,
        awaited: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let mut known = Self {
            node,
            absent: BTreeMap::new(),
        };
        for (index, name) in devices.names() {
            if !node.links.contains_key(index) && known.ifindex(name).is_none() {
                known.absent.insert(*index, name.clone());
            }
        }
        for name in awaited {
            if known.ifindex(name).is_none() {
                let taken = |index: &IfIndex| known.absent.contains_key(index);
                let mut free = (ABSENT..).map(IfIndex).filter(|index| !taken(index));
                let index = free.next().unwrap_or(IfIndex(ABSENT));
                known.absent.insert(index, name.to_owned());
            }
        }
        known
    }

    /// The names of interfaces that do not exist, by their index in the configuration.
    pub(crate) fn into_absent(self) -> BTreeMap<IfIndex, String> {
        self.absent
    }
}

impl Names for KnownNames<'_> {
    fn ifindex(&self, name: &str) -> Option<IfIndex> {
        let absent = || self.absent.iter().find(|(_, known)| *known == name);
        self.node
            .ifindex(name)
            .or_else(|| absent().map(|(index, _)| *index))
    }

    fn name(&self, ifindex: IfIndex) -> Option<String> {
        self.node
            .name(ifindex)
            .or_else(|| self.absent.get(&ifindex).cloned())
    }

    fn interfaces(&self) -> Vec<String> {
        let mut names = self.node.interfaces();
        names.extend(self.absent.values().cloned());
        names
    }
}
