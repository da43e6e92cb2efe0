//! The SR domain of an edge node (RFC 8754 5.1). Only nodes inside may use its SIDs.

use std::collections::BTreeSet;

use ipnet::Ipv6Net;

use crate::node::Link;

/// SID blocks and inside ports of the domain. Without a SID block nothing is filtered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Prefixes of the SIDs, host bits zero.
    pub sid_blocks: BTreeSet<Ipv6Net>,
    /// Names of inside ports; all others are outside. A name still applies when its interface is
    /// created again.
    pub inside: BTreeSet<String>,
}

/// One entry, as it is added and removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A prefix of the domain's SIDs.
    SidBlock(Ipv6Net),
    /// An inside port.
    Inside(String),
}

impl Domain {
    /// Returns true if packets from this port are filtered.
    pub fn is_outside(&self, port: &Link) -> bool {
        !self.sid_blocks.is_empty() && !self.inside.iter().any(|name| port.is_named(name))
    }

    /// Adds an entry. Returns false if it exists.
    pub fn add(&mut self, entry: Entry) -> bool {
        match entry {
            Entry::SidBlock(block) => self.sid_blocks.insert(block),
            Entry::Inside(port) => self.inside.insert(port),
        }
    }

    /// Removes an entry. Returns false if it does not exist.
    pub fn remove(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::SidBlock(block) => self.sid_blocks.remove(block),
            Entry::Inside(port) => self.inside.remove(port),
        }
    }

    /// Returns all entries.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let blocks = self.sid_blocks.iter().copied().map(Entry::SidBlock);
        blocks.chain(self.inside.iter().cloned().map(Entry::Inside))
    }
}
