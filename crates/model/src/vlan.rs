//! VLAN tables: End.DX2V (RFC 8986 4.10) selects the egress by the VLAN IDs of the frame's tags.
//! Linux has no such table, so all entries are Sidestep-only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::node::IfIndex;

/// The largest VLAN ID. 0 means "no VLAN" and 4095 is reserved (IEEE 802.1Q).
pub const VID_MAX: u16 = 4094;

/// Number of a VLAN table. It is unrelated to routing table IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VlanTableId(pub u32);

/// Match of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Vids {
    /// Frames without a VLAN: no tag, or a tag with VLAN ID 0.
    Untagged,
    /// Frames whose outermost tag has this VLAN ID, with or without further tags.
    Outer(u16),
    /// Frames whose two outermost tags have these VLAN IDs. Takes precedence over `Outer`.
    OuterInner(u16, u16),
}

/// Identity of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VlanKey {
    /// VLAN table.
    pub table: VlanTableId,
    /// Match.
    pub vids: Vids,
}

/// Entries of all tables, each with its egress interface.
pub type VlanTables = BTreeMap<VlanKey, IfIndex>;
