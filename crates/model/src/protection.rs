//! Protection of next hops: backups that take their packets while their link, or a path, is down.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::behavior::Seg6Encap;
use crate::policy::PathOwner;

/// LIMIT: protected next hops of a node.
pub const PROTECTIONS_MAX: usize = 4096;

/// Protections by their links and next hops.
pub type Protections = BTreeMap<Protected, Protection>;

/// Backups by controllers, with their owners.
pub type ControllerBackups = BTreeMap<Protected, (PathOwner, Protection)>;

/// A protected link, or one neighbor on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protected {
    /// Name of the egress.
    pub dev: String,
    /// Address of the next hop. `None` for all next hops of the link without a protection of their own.
    pub via: Option<IpAddr>,
}

/// Backup of a next hop, and the failures after which it takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The backup.
    pub by: Backup,
    /// The path whose failure takes the next hop out of use, too. `None` for the link alone.
    pub path: Option<String>,
}

/// Backup of a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backup {
    /// A segment list around it (RFC 9855). The packets are encapsulated, also those that were before.
    List(Seg6Encap),
    /// Another next hop, which leads around it (RFC 5286).
    NextHop {
        /// Name of its egress.
        dev: String,
        /// Its address.
        via: IpAddr,
    },
}

/// Returns the protection of a next hop: its own, otherwise that of its link.
pub fn protection_of<'a>(
    all: &'a Protections,
    dev: &str,
    via: IpAddr,
) -> Option<(&'a Protected, &'a Protection)> {
    if all.is_empty() {
        return None;
    }
    let place = |via| Protected {
        dev: dev.to_owned(),
        via,
    };
    all.get_key_value(&place(Some(via)))
        .or_else(|| all.get_key_value(&place(None)))
}
