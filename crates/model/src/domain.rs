//! The SR domain that the node is at the edge of (RFC 8754 5.1): its SIDs are for those inside.

use std::collections::BTreeSet;

use ipnet::Ipv6Net;

use crate::node::Link;

/// Which addresses are the domain's, and by which ports its other nodes are reached. Without a block nothing is kept out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Prefixes of the SIDs, host bits zero.
    pub sid_blocks: BTreeSet<Ipv6Net>,
    /// Names of the ports that are inside; all others are outside. By name: an interface that is made anew is still meant.
    pub inside: BTreeSet<String>,
}

/// One word of it, as it is added and removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// These are SIDs of the domain.
    SidBlock(Ipv6Net),
    /// This port is inside.
    Inside(String),
}

impl Domain {
    /// Whether the domain is to be kept from packets of that port.
    pub fn is_outside(&self, port: &Link) -> bool {
        !self.sid_blocks.is_empty() && !self.inside.contains(&port.name)
    }

    /// Adds an entry. False: it was there.
    pub fn add(&mut self, entry: Entry) -> bool {
        match entry {
            Entry::SidBlock(block) => self.sid_blocks.insert(block),
            Entry::Inside(port) => self.inside.insert(port),
        }
    }

    /// Removes an entry. False: it was not there.
    pub fn remove(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::SidBlock(block) => self.sid_blocks.remove(block),
            Entry::Inside(port) => self.inside.remove(port),
        }
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let blocks = self.sid_blocks.iter().copied().map(Entry::SidBlock);
        blocks.chain(self.inside.iter().cloned().map(Entry::Inside))
    }
}
