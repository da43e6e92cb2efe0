//! Parser and printer of iproute2's grammar for routes, rules and neighbors, and of Sidestep's
//! grammar for SR policies, ether devices, VLAN tables and the SR domain.
//!
//! The parser accepts what `ip route add`, `ip rule add` and `ip neigh add` accept, with the same
//! meaning, as far as the model can hold it. It refuses everything else. Keywords cannot be
//! abbreviated: `metric`, not `m`. The parser also accepts the output of `ip route show`.

use crate::error::Place;
use crate::node::{IfIndex, Node, TableId};
use crate::route::{Family, Owner};

pub mod domain;
pub mod encap;
pub mod ether;
pub mod neighbor;
pub mod path;
pub mod policy;
pub mod protection;
mod proxy;
pub mod reflector;
pub mod route;
pub mod rule;
pub(crate) mod value;
pub mod vlan;
pub mod vrf;
mod words;

pub use words::Words;

/// Names of interfaces, and of tables other than main, local and default.
pub trait Names {
    /// Returns the interface with this name.
    fn ifindex(&self, name: &str) -> Option<IfIndex>;
    /// Returns the name of this interface.
    fn name(&self, ifindex: IfIndex) -> Option<String>;
    /// Returns the names of all interfaces, for the error about an unknown name.
    fn interfaces(&self) -> Vec<String>;
    /// Returns the table with this name (`/etc/iproute2/rt_tables`).
    fn table(&self, _name: &str) -> Option<TableId> {
        None
    }
    /// Returns the name of this table.
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

/// Context for parsing a line.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Names of interfaces and tables.
    pub names: &'a dyn Names,
    /// `-4` or `-6`, for lines that do not determine the family. `None` selects `ip`'s default.
    pub family: Option<Family>,
    /// Owner of the parsed item.
    pub owner: Owner,
}

/// Style of a printed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One line of words that `ip route add` (or `ip rule add`, `ip neigh add`) accepts.
    Add,
    /// The output of `ip route show table all` (`ip rule show`, `ip neigh show`), without trailing
    /// blanks.
    Show,
}

/// A word with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// The word as written.
    pub text: &'a str,
    /// Place of the word.
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
