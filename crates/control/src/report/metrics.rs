//! Counters and states of the whole daemon, in one report.

use serde::{Deserialize, Serialize};

use super::{
    Drops, Flows, Fragments, HmacKeys, Icmp, Limits, Oam, Paths, Policies, PortCounters, Ports,
    Service, Status,
};

/// `metrics`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// As `show status`, with the problems of the last checks.
    pub status: Status,
    /// As `show ports`.
    pub ports: Ports,
    /// Counters per interface.
    pub port_counters: Vec<PortCounters>,
    /// As `show drops`.
    pub reasons: Drops,
    /// Routes with an SRv6 encapsulation, and routes that exist only in Sidestep.
    pub routes: u64,
    /// Number of these routes that are punted.
    pub punted_routes: u64,
    /// All SIDs.
    pub sids: Vec<Sid>,
    /// Return paths of SR proxies.
    pub return_paths: Vec<ReturnCounters>,
    /// As `policy show`.
    pub policies: Policies,
    /// As `path show`.
    pub paths: Paths,
    /// As `show limits`.
    pub limits: Limits,
    /// As `show icmp`.
    pub icmp: Icmp,
    /// As `show fragments`.
    pub fragments: Fragments,
    /// As `oam show`.
    pub oam: Oam,
    /// As `hmac show`.
    pub hmac_keys: HmacKeys,
}

/// Counters of a SID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sid {
    /// SID, as a prefix.
    pub sid: String,
    /// Table id of its route.
    pub table: u32,
    /// Behavior name.
    pub behavior: String,
    /// Packets processed with it.
    pub packets: u64,
    /// Bytes of these packets as received, from layer 3 on.
    pub bytes: u64,
    /// Packets that a check of the behavior dropped.
    pub errors: u64,
    /// State of the service of an SR proxy with `liveness`.
    pub service: Option<Service>,
}

/// Counters of a return path. Several SIDs can share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnCounters {
    /// Port that the service returns packets by.
    pub port: String,
    /// `ipv6`, `ipv4` or `l2`.
    pub inner: String,
    /// Packets processed on the return path.
    pub packets: u64,
    /// Bytes of these packets as received, from layer 3 on.
    pub bytes: u64,
    /// Packets that a check of the proxy dropped.
    pub errors: u64,
    /// Errors for lack of learned headers (part of `errors`).
    pub not_learned: u64,
    /// End.AM: packets without an SRH whose source is not at a service.
    pub no_srh: u64,
    /// End.AD with `flows`: the flow table.
    pub flows: Option<Flows>,
}
