//! VLAN tables: where End.DX2V (RFC 8986 4.10) sends a frame, by the VLANs that its tags name. Linux has nothing like it;
//! the entries are Sidestep's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::node::IfIndex;

/// The largest VLAN id; 0 means "no VLAN" and 4095 is reserved (IEEE 802.1Q).
pub const VID_MAX: u16 = 4094;

/// The number of a VLAN table; not a routing table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VlanTableId(pub u32);

/// What an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Vids {
    /// Frames without a VLAN: no tag, or one with VLAN id 0.
    Untagged,
    /// Frames whose outermost tag has this VLAN id, whatever is behind it.
    Outer(u16),
    /// Frames whose two outermost tags have these VLAN ids; wins over `Outer`.
    OuterInner(u16, u16),
}

/// What identifies an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VlanKey {
    /// Its table.
    pub table: VlanTableId,
    /// What it matches.
    pub vids: Vids,
}

/// The entries of all tables: the interface that the frame leaves by.
pub type VlanTables = BTreeMap<VlanKey, IfIndex>;
