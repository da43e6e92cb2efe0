//! Reports of the `show` commands. The daemon makes them; the CLI prints the same fields as text or
//! JSON.

mod ether;
mod event;
mod fpm;
mod metrics;
mod path;
mod policy_batch;
mod selected_route;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use sidestep_model::config::entries::{Difference, Entry};
use sidestep_model::grammar::Names;
use sidestep_model::node::IfIndex;
use sidestep_model::route::{self, Encap};

pub use self::ether::{Ether, Ethers};
pub use self::event::{Change, Event};
pub use self::fpm::Fpm;
pub use self::metrics::{Metrics, ReturnCounters, Sid};
pub use self::path::{
    PathChange, PathFlow, Paths, Protection, Protections, Reflector, Reflectors, WatchedPath,
};
pub use self::policy_batch::{Outcome, Path, PolicyBatch, PolicyResult};
pub use self::selected_route::SelectedRoute;

/// `show status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program that runs.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// The command that starts it again; none from earlier versions.
    #[serde(default)]
    pub start: Option<String>,
    /// Seconds since the start.
    pub uptime: u64,
    /// How the daemon started: `fresh`, `adopted`, or `replaced`.
    pub origin: String,
    /// Folder of the pins.
    pub pins: String,
    /// Node file that a reload reads; none without `--config`.
    pub config: Option<String>,
    /// Seconds until the configuration is rolled back unless it is confirmed.
    pub confirm_within: Option<u64>,
    /// Prefixes in all views.
    pub prefixes: u64,
    /// Number of compilations of the tables.
    pub compilations: u64,
    /// Number of full dumps after lost netlink notifications.
    pub resyncs: u64,
    /// Whether encapsulated packets are looked up in table main.
    pub encap_lookup_main: bool,
    /// Whether SIDs are processed only on ports with `seg6_enabled`.
    pub requires_seg6_enabled: bool,
    /// Address of the HTTP endpoint for metrics.
    pub metrics: Option<String>,
    /// State of FPM; none if it is off.
    pub fpm: Option<Fpm>,
    /// Result of all checks, errors first.
    pub problems: Problems,
}

/// `doctor`.
pub type Problems = Vec<Problem>;

/// A condition that keeps packets from being forwarded, or that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Severity.
    pub severity: Severity,
    /// Stable name of its kind (docs/reference/doctor.md).
    pub code: String,
    /// Description, as one sentence.
    pub sentence: String,
    /// Command that repairs it; none if no single command does.
    pub repair: Option<String>,
    /// Number of findings. Many findings with one cause are one problem.
    #[serde(default = "one")]
    pub count: u64,
    /// The first findings, if `count` is larger than 1.
    #[serde(default)]
    pub examples: Vec<String>,
}

const fn one() -> u64 {
    1
}

impl Problem {
    /// Returns a problem of one finding.
    pub fn new(severity: Severity, code: &str, sentence: impl Into<String>) -> Self {
        Self {
            severity,
            code: code.into(),
            sentence: sentence.into(),
            repair: None,
            count: 1,
            examples: Vec::new(),
        }
    }

    /// Returns the problem without its number and examples, which change while it lasts.
    #[must_use]
    pub fn kind(&self) -> Self {
        Self {
            count: 1,
            examples: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns those of `now` whose kind is not in `before`.
    pub fn begun<'a>(
        before: &BTreeSet<Self>,
        now: &'a BTreeSet<Self>,
    ) -> impl Iterator<Item = &'a Self> {
        let before: BTreeSet<_> = before.iter().map(Self::kind).collect();
        now.iter()
            .filter(move |problem| !before.contains(&problem.kind()))
    }

    /// Returns the sentence, with the number and examples of many findings.
    pub fn description(&self) -> String {
        let mut text = self.sentence.clone();
        if self.count > 1 {
            let more = if self.count > self.examples.len() as u64 {
                ", …"
            } else {
                ""
            };
            let examples = self.examples.join(", ");
            let _ = write!(text, " ({}: {examples}{more})", self.count);
        }
        text
    }
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Packets are lost, or part of the configuration is not in effect.
    Error,
    /// Packets are handled in another way than the configuration suggests.
    Warning,
    /// Worth knowing; nothing is wrong.
    Note,
}

impl Severity {
    /// Name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, code) = (self.severity.name(), &self.code);
        write!(f, "{severity}: {code}: {}", self.description())?;
        match &self.repair {
            Some(repair) => write!(f, "; repair: {repair}"),
            None => Ok(()),
        }
    }
}

/// `config show`: the entries of a node file.
pub type Config = Vec<Entry>;

/// `port add`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedPort {
    /// `xdp` or `tc`; none if the interface does not exist yet.
    pub target: Option<String>,
}

/// `stop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Ports that were attached.
    pub ports: Vec<String>,
    /// Changes of the configuration by commands, which ended with the daemon unless it was kept.
    pub changes: Difference,
}

/// `show ports`.
pub type Ports = Vec<Port>;

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Interface name.
    pub name: String,
    /// Other names of the interface (`altname`).
    pub alt_names: Vec<String>,
    /// Interface index; none if the interface does not exist.
    pub ifindex: Option<u32>,
    /// `xdp`, `tc`, or `none`.
    pub target: String,
    /// Reason for this target, or for `none`.
    pub why: String,
    /// Ethernet address.
    pub mac: String,
    /// MTU of layer 3, in bytes.
    pub mtu: u32,
    /// Whether the interface is up and has a carrier.
    pub up: bool,
    /// `net.ipv6.conf.IF.seg6_enabled`, and that of `all`.
    pub seg6_enabled: bool,
    /// Whether the port processes SIDs: `seg6_enabled` is 1 or not required.
    pub processes_sids: bool,
    /// Whether TC redirects packets that leave here to the peer of this port, a veth.
    pub redirect_peer: bool,
    /// Reason for `redirect_peer`; none if the interface is not a veth or no port is in TC.
    pub redirect_peer_why: Option<String>,
    /// Reasons for which this port punts packets of a family.
    pub punt_reasons: Vec<String>,
    /// SIDs of SR proxies whose services use this port.
    pub proxies: Vec<PortProxy>,
}

/// A SID of an SR proxy that uses a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortProxy {
    /// SID, as a prefix.
    pub sid: String,
    /// Table id of the SID's route.
    pub table: u32,
    /// Behavior name.
    pub behavior: String,
    /// The proxy sends packets to the service by this port.
    pub to_service: bool,
    /// The service returns packets by this port.
    pub from_service: bool,
}

/// `show counters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Counters per interface: the ports, and every egress.
    pub ports: Vec<PortCounters>,
    /// Counters per route: routes that matched packets, and routes with an SRv6 encapsulation.
    pub routes: Vec<Route>,
}

/// Counters of one interface. `received_packets = forwarded + punted + dropped`, exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Interface name.
    pub name: String,
    /// Frames received.
    pub received_packets: u64,
    /// Bytes received, with Ethernet headers.
    pub received_bytes: u64,
    /// Received frames that the packet path forwarded.
    pub forwarded: u64,
    /// Received frames that the packet path punted.
    pub punted: u64,
    /// Received frames that the packet path dropped.
    pub dropped: u64,
    /// Frames that the packet path transmitted by this interface, from any ingress.
    pub sent_packets: u64,
    /// Bytes transmitted, with Ethernet headers.
    pub sent_bytes: u64,
}

/// `route show`.
pub type Routes = Vec<Route>;

/// `vlan show`: entries of VLAN tables, as the arguments of `vlan add`.
pub type Vlans = Vec<String>;

/// `domain show`: entries of the SR domain, as the arguments of `domain add`.
pub type Domain = Vec<String>;

/// `policy show`.
pub type Policies = Vec<Policy>;

/// An SR policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Policy name.
    pub name: String,
    /// Arguments of `policy add`; none if only controllers have paths of the policy.
    pub policy: Option<String>,
    /// Color.
    pub color: u32,
    /// Endpoint.
    pub endpoint: String,
    /// Binding SID.
    pub bsid: Option<String>,
    /// Preference of the active candidate path; none if the policy is invalid.
    pub active: Option<u32>,
    /// Whether the policy drops its packets while it is invalid.
    pub drop_upon_invalid: bool,
    /// The candidate paths, the highest preference first.
    pub candidates: Vec<Candidate>,
    /// Routes into the policy, as the arguments of `route add`.
    pub routes: Vec<String>,
}

/// A candidate path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Identity.
    pub path: Path,
    /// Preference.
    pub preference: u32,
    /// Whether it is the active one.
    pub active: bool,
    /// Segment lists.
    pub lists: Vec<SegmentList>,
}

/// A segment list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentList {
    /// Segments, in the order of travel.
    pub segments: Vec<String>,
    /// Weight.
    pub weight: u16,
    /// Slots of this list, and slots of the group in total; none if no packet takes the list.
    pub share: Option<(u32, u32)>,
    /// Reason why the list is invalid.
    pub invalid: Option<String>,
    /// Packets sent by this list, for all routes.
    pub packets: u64,
    /// Bytes of these packets as received, from layer 3 on.
    pub bytes: u64,
}

/// `hmac show`.
pub type HmacKeys = Vec<HmacKey>;

/// An HMAC key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HmacKey {
    /// HMAC Key ID.
    pub key: u32,
    /// `sha1` or `sha256`.
    pub algorithm: String,
    /// `kernel` (`ip sr hmac`) or `sidestep`.
    pub owner: String,
    /// Number of segment lists that headends sign with this key.
    pub policies: u64,
}

/// `rule show`: rules that exist only in Sidestep, as the arguments of `rule add`.
pub type Rules = Vec<String>;

/// One route with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Route in iproute2 syntax.
    pub route: String,
    /// Destination prefix.
    pub prefix: String,
    /// Table id.
    pub table: u32,
    /// ID of the nexthop object that the route refers to.
    pub nhid: Option<u32>,
    /// Next hops.
    pub next_hops: Vec<NextHop>,
    /// `kernel`, `sidestep`, or `fpm`.
    pub owner: String,
    /// Packets that the packet path processed with it.
    pub packets: u64,
    /// Bytes of these packets as received, from layer 3 on.
    pub bytes: u64,
    /// Packets that a check of the behavior dropped.
    pub errors: u64,
    /// Reason why the packet path punts packets of this route.
    pub punt_reason: Option<String>,
    /// Return path of an SR proxy.
    pub return_path: Option<ReturnPath>,
    /// State of the service of an SR proxy with `liveness`.
    pub service: Option<Service>,
}

/// One next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHop {
    /// Behavior of the SID or headend, such as `End.X` or `H.Encaps`.
    pub behavior: Option<String>,
    /// Segment list, in the order of travel.
    pub segments: Vec<Ipv6Addr>,
    /// Gateway.
    pub via: Option<IpAddr>,
    /// Interface.
    pub dev: Option<String>,
    /// Weight among the next hops.
    pub weight: u16,
}

impl NextHop {
    /// Returns the next hops of a route.
    pub fn all(route: &route::Route, names: &dyn Names) -> Vec<Self> {
        let hops = route.next_hops.iter();
        hops.map(|hop| Self::new(hop, names)).collect()
    }

    pub(crate) fn new(hop: &route::NextHop, names: &dyn Names) -> Self {
        let (behavior, segments) = match &hop.encap {
            Some(Encap::Seg6(encap)) => (Some(encap.mode.descriptor().name), &encap.segments[..]),
            Some(Encap::Seg6Local(local)) => {
                (Some(local.action.descriptor().name), &local.segments[..])
            }
            _ => (None, &[][..]),
        };
        let name = |dev: IfIndex| names.name(dev).unwrap_or_else(|| format!("if{}", dev.0));
        Self {
            behavior: behavior.map(str::to_owned),
            segments: segments.to_vec(),
            via: hop.via,
            dev: hop.dev.map(name),
            weight: hop.weight,
        }
    }
}

/// Return path of an SR proxy: packets that its service returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnPath {
    /// Port that the service returns packets by. SIDs that share it, for the same inner type, share
    /// these counters.
    pub port: String,
    /// Packets processed on the return path.
    pub packets: u64,
    /// Bytes of these packets as received, from layer 3 on.
    pub bytes: u64,
    /// Packets that a check of the proxy dropped.
    pub errors: u64,
    /// Errors for lack of learned headers (part of `errors`).
    pub not_learned: u64,
    /// End.AM: packets without an SRH whose source is not at a service. Sidestep routes them
    /// unmodified.
    pub no_srh: u64,
    /// End.AD: learned header sets. With `flows` these are the sets of all flows, most recently
    /// used first.
    pub learned: Vec<Learned>,
    /// End.AD with `flows`: the flow table.
    pub flows: Option<Flows>,
}

/// Flow table of a dynamic proxy. SIDs with the same return path share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// Capacity, in flows.
    pub limit: u32,
    /// Flows in the table.
    pub used: u32,
    /// Flows that were evicted to make room for others.
    pub evicted: u64,
}

/// Outer headers that a dynamic proxy has learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// Milliseconds since the headers were learned. With `flows`: since a packet last used them.
    pub age: u64,
    /// Length of the headers, in bytes.
    pub bytes: u64,
    /// Headers in the format of `explain`, without the fields that differ for each packet.
    pub headers: Value,
    /// The same headers as text.
    pub text: String,
}

/// Liveness of the service of an SR proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// `up`, `down`, or `unknown` before the first reply or timeout.
    pub state: String,
    /// Probes sent.
    pub probes: u64,
    /// Replies received.
    pub answers: u64,
    /// Number of times the service went down.
    pub downs: u64,
    /// Reason why probes cannot be sent.
    pub problem: Option<String>,
}

/// `show drops`: reasons with at least one packet.
pub type Drops = Vec<Reason>;

/// Packet counter of a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// `drop` or `punt`.
    pub verdict: String,
    /// Stable number.
    pub number: u32,
    /// Stable name, such as `hop_limit`.
    pub name: String,
    /// RFC section.
    pub source: String,
    /// Meaning, as one sentence.
    pub sentence: String,
    /// Packets.
    pub packets: u64,
}

/// `show icmp`: ICMP messages that Sidestep sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Icmp {
    /// Messages sent about packets in the packet path, by message name.
    pub sent: BTreeMap<String, u64>,
    /// ICMPv6 errors that Sidestep relayed from the outer to the inner source, by message name.
    pub relayed: BTreeMap<String, u64>,
    /// Messages suppressed by the rate limit, by ingress port.
    pub suppressed: BTreeMap<String, u64>,
    /// Errors not relayed because of the rate limit.
    pub not_relayed: u64,
    /// Messages that the kernel refused to send, for lack of a route to the source.
    pub failed: u64,
}

/// `show fragments`: packets that exceed the egress MTU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragments {
    /// Setting for IPv4 packets without DF: `fragment` or `icmp`.
    pub ipv4_too_big: String,
    /// Rate limit for packets sent in fragments, per second and port.
    pub rate: u32,
    /// Burst size of the rate limit, in packets.
    pub burst: u32,
    /// Packets that were sent in fragments.
    pub packets: u64,
    /// Fragments that were sent.
    pub fragments: u64,
    /// Packets dropped because of the rate limit or a full ring, by ingress port.
    pub suppressed: BTreeMap<String, u64>,
    /// Packets that could not be sent.
    pub failed: u64,
    /// Packets dropped because they waited too long for the daemon.
    pub expired: u64,
}

/// `oam show`: packets with the O-flag (RFC 9259 2.1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oam {
    /// Rate limit for copies, per second and port; 0 disables copies.
    pub rate: u32,
    /// Copies made, by ingress port.
    pub copied: BTreeMap<String, u64>,
    /// Packets not copied because of the rate limit, by ingress port.
    pub suppressed: BTreeMap<String, u64>,
    /// Copies that a listening client did not read in time.
    pub unread: u64,
}

/// `oam listen`: the copy of a packet with the O-flag, at a SID of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OamCopy {
    /// Time of the copy, in nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp: u64,
    /// Ingress port.
    pub port: String,
    /// SID: the destination address of the packet.
    pub sid: String,
    /// Segments Left before the SID processed the packet.
    pub segments_left: u8,
    /// Length of the whole packet in bytes, from the IPv6 header on.
    pub bytes: u32,
    /// Leading bytes of the packet as received, in hexadecimal.
    pub packet: String,
}

/// `show limits`.
pub type Limits = Vec<Limit>;

/// A limit of Sidestep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Name.
    pub name: String,
    /// Its value.
    pub limit: u64,
    /// Entries in use; none where this has no meaning.
    pub used: Option<u64>,
    /// Routes that are punted because the table is full.
    pub left_out: u64,
    /// Consequence of exceeding the limit.
    pub beyond: String,
}
