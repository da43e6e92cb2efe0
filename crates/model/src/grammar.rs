//! iproute2's words, in and out: routes, rules, neighbors; and SR policies, entries of VLAN tables and of the SR domain,
//! for which it has none.
//!
//! What `ip route add`, `ip rule add` and `ip neigh add` take is taken here, with the same meaning, as far as the
//! model can hold it; the rest is refused, not ignored. Keywords are written out: `metric`, not `m`. What
//! `ip route show` prints is understood as well.

use crate::error::Place;
use crate::node::{IfIndex, Node, TableId};
use crate::route::{Family, Owner};

pub mod domain;
pub mod encap;
pub mod neighbor;
pub mod policy;
mod proxy;
pub mod route;
pub mod rule;
pub(crate) mod value;
pub mod vlan;
mod words;

pub use words::Words;

/// Names of interfaces, and of tables beyond the three that everybody has.
pub trait Names {
    /// The interface of that name.
    fn ifindex(&self, name: &str) -> Option<IfIndex>;
    /// The name of that interface.
    fn name(&self, ifindex: IfIndex) -> Option<String>;
    /// The names of all interfaces, to be offered when a name is not known.
    fn interfaces(&self) -> Vec<String>;
    /// The table of that name (`/etc/iproute2/rt_tables`).
    fn table(&self, _name: &str) -> Option<TableId> {
        None
    }
    /// The name of that table.
    fn table_name(&self, _table: TableId) -> Option<String> {
        None
    }
}

impl Names for Node {
    fn ifindex(&self, name: &str) -> Option<IfIndex> {
        self.link_by_name(name).map(|link| link.ifindex)
    }

    fn name(&self, ifindex: IfIndex) -> Option<String> {
        let link = self.links.get(&ifindex);
        link.map(|link| &link.name)
            .or_else(|| self.former_names.get(&ifindex))
            .cloned()
    }

    fn interfaces(&self) -> Vec<String> {
        self.links.values().map(|link| link.name.clone()).collect()
    }
}

/// What a line is read against.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Names of interfaces and tables.
    pub names: &'a dyn Names,
    /// `-4` or `-6`, where the words do not say it; none: as `ip` does without either.
    pub family: Option<Family>,
    /// Who holds what is read.
    pub owner: Owner,
}

/// For whom a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Words that `ip route add` (or `ip rule add`, `ip neigh add`) takes, on one line.
    Add,
    /// As `ip route show table all` (`ip rule show`, `ip neigh show`) prints it, save blanks at the ends of lines.
    Show,
}

/// A word with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// As written.
    pub text: &'a str,
    /// Where.
    pub place: Place,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Interfaces eth0, eth1 and eth2, numbered from 1.
    pub(crate) struct Three;

    impl Names for Three {
        fn ifindex(&self, name: &str) -> Option<IfIndex> {
            let number = self.interfaces().iter().position(|known| known == name)?;
            Some(IfIndex(number as u32 + 1))
        }

        fn name(&self, ifindex: IfIndex) -> Option<String> {
            self.interfaces()
                .get(ifindex.0.checked_sub(1)? as usize)
                .cloned()
        }

        fn interfaces(&self) -> Vec<String> {
            ["eth0", "eth1", "eth2"].map(str::to_owned).to_vec()
        }
    }

    pub(crate) fn names() -> Three {
        Three
    }

    pub(crate) fn ctx() -> Context<'static> {
        Context {
            names: &Three,
            family: None,
            owner: Owner::Kernel,
        }
    }
}
