//! The control socket: a Unix socket of this network namespace with one JSON object per line.
//!
//! A request is `{"version": 1, "request": {…}}`. Its reply is `{"ok": …}` or `{"error":
//! {"message": …, "exit": …}}`. `trace`, `monitor` and `oam listen` have many replies, until either side
//! closes.

mod client;
pub mod policy_batch;
mod server;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use nix::unistd::{Gid, Group};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;
use sidestep_model::hmac::{HmacAlgorithm, Secret};

#[cfg(doc)]
use crate::report;
pub use client::{ApiError, ReplyStream, ask, call, stream};
use policy_batch::PolicyBatch;
pub(crate) use server::{Incoming, Server, line};

/// Version of the protocol. A daemon rejects other versions and reports its own.
pub const VERSION: u32 = 1;

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// [`crate::report::Status`].
    ShowStatus,
    /// `doctor --repairs`: the repairs of all findings of a kind, as a list of commands.
    ShowRepairs {
        /// Code of the kind.
        code: String,
    },
    /// [`crate::report::Ports`].
    ShowPorts,
    /// [`crate::report::Counters`].
    ShowCounters,
    /// [`crate::report::Drops`].
    ShowDrops,
    /// [`crate::report::Limits`].
    ShowLimits,
    /// [`crate::report::Icmp`].
    ShowIcmp,
    /// [`crate::report::Fragments`].
    ShowFragments,
    /// [`crate::report::Fpm`], or null.
    ShowFpm,
    /// [`crate::report::Metrics`].
    ShowMetrics,
    /// [`crate::report::Routes`] with SRv6 encapsulation or owned by Sidestep, or all routes.
    ShowRoutes {
        /// Include plain routes.
        all: bool,
    },
    /// [`crate::report::SelectedRoute`].
    GetRoute {
        /// Destination address.
        destination: IpAddr,
        /// Source address; none: a dummy address.
        from: Option<IpAddr>,
        /// Ingress port.
        port: String,
    },
    /// `sidestep NOUN VERB ARGS`: changes a Sidestep-only entry.
    Change {
        /// Kind of the entry.
        noun: Noun,
        /// Operation.
        verb: Verb,
        /// Arguments after the verb.
        args: Vec<String>,
    },
    /// `sidestep --batch FILE`: changes of entries, all or none.
    Batch {
        /// The changes, in their order.
        changes: Vec<BatchLine>,
    },
    /// [`crate::report::Vlans`].
    ShowVlans,
    /// [`crate::report::Domain`].
    ShowDomain,
    /// [`crate::report::Reflectors`].
    ShowReflectors,
    /// [`crate::report::Paths`].
    ShowPaths,
    /// [`crate::report::Protections`].
    ShowProtections,
    /// [`crate::report::Policies`].
    ShowPolicies,
    /// [`crate::report::Ethers`].
    ShowEthers,
    /// `sidestep policy apply`: the reply is a [`crate::report::PolicyBatch`].
    PolicyBatch {
        /// Changes of candidate paths.
        batch: PolicyBatch,
    },
    /// [`crate::report::Rules`].
    ShowRules,
    /// `sidestep hmac set`.
    SetHmac {
        /// HMAC Key ID.
        key: u32,
        /// Hash algorithm.
        algorithm: HmacAlgorithm,
        /// Secret.
        secret: SecretText,
    },
    /// `sidestep hmac del`.
    DelHmac {
        /// HMAC Key ID.
        key: u32,
    },
    /// [`crate::report::HmacKeys`].
    ShowHmac,
    /// `sidestep oam rate`.
    SetOam {
        /// Rate limit for copies of packets with the O-flag, per second and port; 0 disables them.
        rate: u32,
    },
    /// [`crate::report::Oam`].
    ShowOam,
    /// `sidestep oam listen`: the reply is one [`crate::report::Oam`], then
    /// [`crate::report::OamCopy`] lines until the client closes its side.
    ListenOam,
    /// `sidestep monitor`: the reply is an empty line, then [`crate::report::Event`] lines until
    /// the client closes its side.
    Monitor,
    /// Runs one frame through the live tables in the daemon, without sending it.
    Explain {
        /// Ingress port.
        port: String,
        /// The frame from its destination MAC on, in hexadecimal.
        frame: String,
    },
    /// `sidestep trace`: the reply is a stream of [`TraceLine`]. To end it, the client closes its
    /// side for writing and reads until [`TraceLine::End`].
    Trace {
        /// Arguments of a [`crate::trace::Filter`].
        filter: Vec<String>,
        /// Program of a [`crate::pcap::PcapFilter`] for the frame that arrived.
        #[serde(default)]
        pcap: Option<Vec<crate::pcap::Instruction>>,
        /// Maximum number of packets per second.
        rate: u32,
        /// Number of packets after which the trace ends; none: no limit.
        count: Option<u64>,
        /// Send each frame up to the size of a sample, not only its headers.
        whole: bool,
    },
    /// `config show`: the reply is a list of [`sidestep_model::config::entries::Entry`].
    ShowConfig,
    /// `config diff`: the reply is a [`report::Difference`].
    DiffConfig {
        /// Node file.
        config: ConfigText,
    },
    /// `config apply`: the reply is a [`report::Difference`].
    ApplyConfig {
        /// Node file.
        config: ConfigText,
        /// Seconds after which the previous configuration returns, without a confirmation.
        confirm: Option<u32>,
    },
    /// `config confirm`.
    ConfirmConfig,
    /// `config reload`: the reply is a [`report::Difference`].
    ReloadConfig,
    /// `port add`: the reply is a [`report::AddedPort`].
    AddPort {
        /// Interface name.
        name: String,
    },
    /// `port del`.
    DelPort {
        /// Interface name.
        name: String,
    },
    /// Detach everything and exit: the reply is a [`crate::report::Stopped`].
    Stop {
        /// Exit as after a crash: the next daemon takes over programs, tables and changes.
        #[serde(default)]
        keep: bool,
    },
}

/// A node file in a request. The text may contain secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigText {
    /// The file.
    pub text: String,
    /// Key ids with the secrets of the files that it names. A map would have texts as keys in JSON,
    /// and a tagged enum does not read numbers from them.
    pub secrets: Vec<(u32, SecretText)>,
}

impl ConfigText {
    /// The secrets by key id.
    pub(crate) fn secrets(&self) -> BTreeMap<u32, Secret> {
        let secrets = self.secrets.iter();
        secrets.map(|(id, text)| (*id, text.0.clone())).collect()
    }
}

impl fmt::Debug for ConfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigText(…)")
    }
}

/// A secret in a request or in the file of changes, in hexadecimal. Only this type and [`ConfigText`] serialize secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretText(pub Secret);

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0.expose()))
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Error messages must not quote a secret of the wrong type either.
        let bytes = match Value::deserialize(deserializer)? {
            Value::String(text) => hex::decode(text).ok(),
            _ => None,
        };
        let bytes = bytes.ok_or_else(|| de::Error::custom("the secret is not in hexadecimal"))?;
        Secret::new(&bytes).map(Self).map_err(de::Error::custom)
    }
}

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceLine {
    /// The traced programs are attached to these ports.
    Begun {
        /// All ports that are attached.
        ports: Vec<TracedPort>,
    },
    /// One packet, as formatted by the CLI's printer.
    Packet(Value),
    /// The normal programs are attached again.
    End {
        /// Packets sent to the client.
        sent: u64,
        /// Matching packets that were lost because the client read too slowly.
        lost: u64,
    },
}

/// A port in a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPort {
    /// Interface name.
    pub name: String,
    /// Interface index.
    pub ifindex: u32,
    /// `xdp`, `tc`.
    pub target: String,
}

/// Kind of a Sidestep-only entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noun {
    /// A route.
    Route,
    /// A policy rule.
    Rule,
    /// An SR policy.
    Policy,
    /// An entry of a VLAN table.
    Vlan,
    /// An entry of the SR domain.
    Domain,
    /// An ether device.
    Ether,
    /// A reflector of S-BFD.
    Reflector,
    /// A path that is probed.
    Path,
    /// The protection of a next hop.
    Protect,
}

/// Operation on a route, rule, policy or entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Adds it; fails if the key exists.
    Add,
    /// Adds it, or replaces the one with the same key.
    Replace,
    /// Removes it.
    Del,
}

/// A change of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLine {
    /// Line of the batch file, for the error.
    pub line: u32,
    /// Kind of the entry.
    pub noun: Noun,
    /// Operation.
    pub verb: Verb,
    /// Arguments after the verb.
    pub args: Vec<String>,
}

/// A request on the wire.
#[derive(Debug, Serialize)]
pub(crate) struct Envelope {
    pub(crate) version: u32,
    pub(crate) request: Request,
}

/// A received request, not parsed yet.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `version` and `request`"
)]
struct Received<'a> {
    version: u32,
    #[serde(borrow)]
    request: &'a RawValue,
}

/// The operation of a request, without its other fields.
#[derive(Deserialize)]
#[serde(expecting = "an object with `op`")]
struct Operation {
    op: String,
}

/// [`Request::PolicyBatch`] with its batch not parsed yet. In an enum with a tag, serde loses the
/// path of a wrong field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchRequest<'a> {
    #[serde(rename = "op")]
    _op: String,
    #[serde(borrow)]
    batch: &'a RawValue,
}

/// Parses a request line.
///
/// # Errors
/// The error reply, if the line is no request or has another protocol version.
pub fn parse_request(line: &str) -> Result<Request, String> {
    let not_a_request = |error: serde_json::Error| {
        let text = error.to_string();
        let text = match text.split_once(", expected one of ") {
            // A list of all operations.
            Some((problem, _)) => problem,
            None if error.is_eof() => "the JSON text is incomplete",
            None => &text,
        };
        let text = text.replace("unknown variant", "unknown operation");
        let number = "expected a number from 0 to 4294967295";
        format!("not a request: {}", text.replace("expected u32", number))
    };
    let Received { version, request } = serde_json::from_str(line).map_err(not_a_request)?;
    if version != VERSION {
        return Err(format!(
            "protocol version {version}: this daemon speaks version {VERSION}"
        ));
    }
    let request = request.get();
    let operation: Operation = serde_json::from_str(request).map_err(not_a_request)?;
    if operation.op == "policy_batch" {
        let BatchRequest { batch, .. } = serde_json::from_str(request).map_err(not_a_request)?;
        let batch = policy_batch::parse(batch.get())?;
        return Ok(Request::PolicyBatch { batch });
    }
    let parsed = serde_json::from_str(request).map_err(not_a_request)?;
    // serde accepts any fields of an operation without fields.
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(request).unwrap_or_default();
    let further = fields.keys().find(|field| **field != "op");
    match (further, has_fields(&parsed)) {
        (Some(field), false) => Err(format!("not a request: unknown field `{field}`")),
        _ => Ok(parsed),
    }
}

/// Whether an operation has fields.
fn has_fields(request: &Request) -> bool {
    let value = serde_json::to_value(request);
    value.is_ok_and(|value| value.as_object().is_some_and(|fields| fields.len() > 1))
}

/// An answer on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply<T> {
    Ok(T),
    Error { message: String },
}

/// Directory of socket, lock and process id of the daemon in the calling thread's network
/// namespace.
pub fn run_directory() -> PathBuf {
    PathBuf::from("/run/sidestep").join(namespace_id())
}

/// Returns the id of a group of this name or number.
///
/// # Errors
/// The group does not exist, or the system cannot read its groups.
pub fn gid(word: &str) -> Result<u32, String> {
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let found = Group::from_name(word).map_err(|errno| errno.to_string())?;
    found
        .map(|group| group.gid.as_raw())
        .ok_or_else(|| "no such group".into())
}

/// Returns the name of a group, or else its number.
pub(crate) fn group_name(gid: Gid) -> String {
    let found = Group::from_gid(gid).ok().flatten();
    found.map_or_else(|| gid.to_string(), |group| group.name)
}

/// Inode of the network namespace, as used in these paths.
fn namespace_id() -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/thread-self/ns/net")
        .map_or_else(|_| "unknown".into(), |meta| meta.ino().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_secrets_is_read_as_it_was_written() {
        let secret = SecretText(Secret::new(b"hush").expect("legal"));
        let config = ConfigText {
            text: "ports: [eth0]".into(),
            secrets: vec![(7, secret)],
        };
        let request = Request::DiffConfig { config };
        let text = serde_json::to_string(&request).expect("JSON");
        let read: Request = serde_json::from_str(&text).expect("a request");
        assert_eq!(read, request);
    }
}
