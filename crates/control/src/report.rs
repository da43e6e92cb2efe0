//! What `show` shows: made by the daemon, printed by the CLI as text or as JSON from these same fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `show status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program that runs.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it began.
    pub uptime: u64,
    /// What it began with: `fresh`, `adopted`, or `replaced`.
    pub origin: String,
    /// Folder of its pins.
    pub pins: String,
    /// Prefixes in all views.
    pub prefixes: u64,
    /// How often the tables were compiled.
    pub compilations: u64,
    /// How often everything was read again because notifications of the kernel were lost.
    pub resyncs: u64,
    /// What is not in effect, and why.
    pub problems: Vec<String>,
}

/// `show ports`.
pub type Ports = Vec<Port>;

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Interface name.
    pub name: String,
    /// Interface index; none while the interface is not there.
    pub ifindex: Option<u32>,
    /// `xdp`, `generic`, `tc`, or `none`.
    pub target: String,
    /// Why this target, or why none.
    pub why: String,
    /// Ethernet address.
    pub mac: String,
    /// Bytes of layer 3.
    pub mtu: u32,
    /// Up, with carrier.
    pub up: bool,
    /// SIDs are accepted here.
    pub seg6_enabled: bool,
    /// What is left to the kernel on this port, and why.
    pub punt_reasons: Vec<String>,
    /// SIDs of SR proxies whose services are here.
    pub proxies: Vec<PortProxy>,
}

/// An SR proxy that a port is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortProxy {
    /// Its SID, as a prefix.
    pub sid: String,
    /// Table id of the SID's route.
    pub table: u32,
    /// Its behavior.
    pub behavior: String,
    /// Packets go to the service here.
    pub to_service: bool,
    /// The service sends back here.
    pub from_service: bool,
}

/// `show counters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Per interface: ports, and interfaces that packets left by.
    pub ports: Vec<PortCounters>,
    /// Per route that was met, or has an SRv6 encapsulation.
    pub routes: Vec<Route>,
}

/// Counters of one interface. `received_packets = forwarded + punted + dropped`, exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Interface name.
    pub name: String,
    /// Frames that came in here.
    pub received_packets: u64,
    /// Their bytes, Ethernet header included.
    pub received_bytes: u64,
    /// Of them, sent on by the packet path.
    pub forwarded: u64,
    /// Of them, left to the kernel.
    pub punted: u64,
    /// Of them, dropped.
    pub dropped: u64,
    /// Frames that the packet path sent out here, wherever they came in.
    pub sent_packets: u64,
    /// Their bytes, Ethernet header included.
    pub sent_bytes: u64,
}

/// `route show`.
pub type Routes = Vec<Route>;

/// `vlan show`: entries of VLAN tables, in the words that add them.
pub type Vlans = Vec<String>;

/// `domain show`: entries of the SR domain, in the words that add them.
pub type Domain = Vec<String>;

/// `policy show`.
pub type Policies = Vec<Policy>;

/// An SR policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// In the words that add it.
    pub policy: String,
    /// Color.
    pub color: u32,
    /// Endpoint.
    pub endpoint: String,
    /// Binding SID.
    pub bsid: Option<String>,
    /// Preference of the active candidate path; none: the policy is invalid.
    pub active: Option<u32>,
    /// While it is invalid it drops what is steered into it.
    pub drop_upon_invalid: bool,
    /// The candidate paths, the highest preference first.
    pub candidates: Vec<Candidate>,
    /// Routes into it, in the words that add them.
    pub routes: Vec<String>,
}

/// A candidate path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Preference.
    pub preference: u32,
    /// Whether it is the active one.
    pub active: bool,
    /// Its segment lists.
    pub lists: Vec<SegmentList>,
}

/// A segment list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentList {
    /// In the order of travel.
    pub segments: Vec<String>,
    /// Its weight.
    pub weight: u16,
    /// Slots that lead there, and all, among which flows are shared out; none: no packet takes it now.
    pub share: Option<(u32, u32)>,
    /// Why it is not valid, if it is not.
    pub invalid: Option<String>,
    /// Packets that the packet path put on it, by all routes.
    pub packets: u64,
    /// Their bytes, from layer 3 on, as received.
    pub bytes: u64,
}

/// `hmac show`.
pub type HmacKeys = Vec<HmacKey>;

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HmacKey {
    /// HMAC Key ID.
    pub key: u32,
    /// `sha1` or `sha256`.
    pub algorithm: String,
    /// `kernel` (`ip sr hmac`) or `sidestep`.
    pub owner: String,
    /// Segment lists of headends that are signed with it.
    pub policies: u64,
}

/// `rule show`: rules of Sidestep's own, in the words that add them.
pub type Rules = Vec<String>;

/// One route with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// In iproute2's words.
    pub route: String,
    /// Destination prefix.
    pub prefix: String,
    /// Table id.
    pub table: u32,
    /// `kernel` or `sidestep`.
    pub owner: String,
    /// Packets that the packet path processed with it.
    pub packets: u64,
    /// Their bytes, from layer 3 on, as received.
    pub bytes: u64,
    /// Packets dropped by its behavior's checks.
    pub errors: u64,
    /// Why the packet path leaves it to the kernel, if it does.
    pub punt_reason: Option<String>,
    /// Of an SR proxy: the way back from its service.
    pub return_path: Option<ReturnPath>,
    /// Of an SR proxy with `liveness`.
    pub service: Option<Service>,
}

/// What the service of an SR proxy sends back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnPath {
    /// The port. SIDs that share it, with services for the same inner type, share these counters.
    pub port: String,
    /// Packets that the packet path processed as sent back.
    pub packets: u64,
    /// Their bytes, from layer 3 on, as received.
    pub bytes: u64,
    /// Packets dropped by the proxy's checks.
    pub errors: u64,
    /// Of the errors: nothing had been learned.
    pub not_learned: u64,
    /// Of End.AM: packets without an SRH whose source is not at a service. They are routed as they are.
    pub no_srh: u64,
    /// Of End.AD: the headers that such packets get. By flow: those of all flows, the ones that were last needed first.
    pub learned: Vec<Learned>,
    /// Of End.AD that learns by flow.
    pub flows: Option<Flows>,
}

/// The flows that a dynamic proxy tells apart. SIDs that share a way back share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// How many there is room for.
    pub limit: u32,
    /// How many there are.
    pub used: u32,
    /// How many made room for others.
    pub evicted: u64,
}

/// Outer headers that a dynamic proxy has learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// Milliseconds since they were learned; by flow: since a packet last had them.
    pub age: u64,
    /// Their length.
    pub bytes: u64,
    /// Each of them, as `explain` has headers; without what is each packet's own.
    pub headers: Value,
    /// The same in words.
    pub text: String,
}

/// Whether the service of an SR proxy is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// `up`, `down`, or `unknown` until it has answered or been silent for long enough.
    pub state: String,
    /// How often it was asked.
    pub probes: u64,
    /// How often it answered.
    pub answers: u64,
    /// How often it went down.
    pub downs: u64,
    /// Why it cannot be asked.
    pub problem: Option<String>,
}

/// `show drops`: reasons that were given at least once.
pub type Drops = Vec<Reason>;

/// How often a reason was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// `drop` or `punt`.
    pub verdict: String,
    /// Stable number.
    pub number: u32,
    /// Stable name.
    pub name: String,
    /// RFC section.
    pub source: String,
    /// One sentence.
    pub sentence: String,
    /// Packets.
    pub packets: u64,
}

/// `show icmp`: what senders were told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Icmp {
    /// Messages about packets that the packet path saw, by what they say.
    pub sent: BTreeMap<String, u64>,
    /// Errors that came back to this node as a headend, told on to the sender inside.
    pub relayed: BTreeMap<String, u64>,
    /// Packets whose sender was not told because there were too many, by their port.
    pub suppressed: BTreeMap<String, u64>,
    /// Errors that were not told on because there were too many.
    pub not_relayed: u64,
    /// Messages that the kernel refused to send: there is no route to the sender.
    pub failed: u64,
}

/// `oam show`: packets with the O-flag (RFC 9259 2.1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oam {
    /// So many are copied per second and port, at most; 0: none.
    pub rate: u32,
    /// Copies that were made, by the port that the packet came by.
    pub copied: BTreeMap<String, u64>,
    /// Packets that were not copied because there were too many, by their port.
    pub suppressed: BTreeMap<String, u64>,
    /// Copies that somebody who listens did not read in time.
    pub unread: u64,
}

/// `oam listen`: the copy of a packet with the O-flag, at a SID of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OamCopy {
    /// When it was copied: nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp: u64,
    /// The port that it came by.
    pub port: String,
    /// The SID: its destination then.
    pub sid: String,
    /// Before the SID processed it.
    pub segments_left: u8,
    /// Of the whole packet, from its IPv6 header on.
    pub bytes: u32,
    /// The first of them in hexadecimal, as they arrived.
    pub packet: String,
}

/// `show limits`.
pub type Limits = Vec<Limit>;

/// One limit of the product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Name.
    pub name: String,
    /// Its value.
    pub limit: u64,
    /// How much of it is in use; none where that has no meaning.
    pub used: Option<u64>,
    /// Routes that are left to the kernel because it is full.
    pub left_out: u64,
    /// What happens beyond it.
    pub beyond: String,
}
