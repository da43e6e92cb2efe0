//! State of FPM.

use serde::{Deserialize, Serialize};

/// `show fpm`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fpm {
    /// Address of the listener.
    pub address: String,
    /// Address of the connected zebra.
    pub peer: Option<String>,
    /// Seconds since it connected.
    pub connected_for: Option<u64>,
    /// Routes of FPM.
    pub routes: u64,
    /// Routes of an earlier session that the present one has not sent.
    pub stale_routes: u64,
    /// Nexthop objects of FPM.
    pub nexthop_objects: u64,
    /// Nexthop objects of an earlier session that the present one has not sent.
    pub stale_nexthop_objects: u64,
    /// Time that stale routes stay, in seconds.
    pub hold: u64,
    /// Seconds until the stale routes are removed; a message of the session may prolong it.
    pub sweep_within: Option<u64>,
    /// Netlink messages of the present session.
    pub messages: u64,
    /// Messages of the present session about MPLS and MAC addresses, and of unknown types, which have
    /// no effect.
    pub ignored: u64,
    /// Routes of the present session that were reported to zebra as installed (`run --fpm-reply`).
    pub reported_installed: u64,
    /// Routes of the present session that were reported to zebra as failed: a table had no room.
    pub reported_failed: u64,
    /// Sessions since the start.
    pub sessions: u64,
    /// Connections that were refused during a session.
    pub refused: u64,
    /// Why the last session ended.
    pub last_end: Option<String>,
    /// The same, if it was an error.
    pub last_error: Option<String>,
}
