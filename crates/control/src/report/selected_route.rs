//! The route that the tables select for an address.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{NextHop, Route};

/// `route get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedRoute {
    /// Destination address.
    pub destination: IpAddr,
    /// Source address, as given or a dummy address.
    pub source: IpAddr,
    /// Ingress port.
    pub port: String,
    /// Ids of the tables that were searched, in the order of the rules. Empty if the packet path
    /// does not look up the address.
    pub tables: Vec<u32>,
    /// Selected route; none if the tables have no route.
    pub route: Option<Route>,
    /// Next hop that the flow of a UDP packet selects, if the route has several.
    pub next_hop: Option<NextHop>,
    /// Verdict for a UDP packet: `forward`, `punt` or `drop`. None if Sidestep processes the
    /// address as a SID, where the headers decide, or if the reverse path filter needs a source.
    pub verdict: Option<String>,
    /// Egress of a forwarded packet.
    pub egress: Option<String>,
    /// Reason of a punt or a drop.
    pub reason: Option<String>,
    /// Meaning of the reason, as one sentence.
    pub sentence: Option<String>,
    /// `sidestep`, or `kernel` for a punt.
    pub handled_by: String,
}
