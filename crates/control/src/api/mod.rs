//! The control socket: one JSON object per line in, one per line out, over a Unix socket of this network namespace.
//!
//! `{"version": 1, "request": {…}}` is answered by `{"ok": …}` or `{"error": {"message": …, "exit": …}}`. A trace and
//! `oam listen` are answered by many lines, until either side closes.

mod client;
mod server;

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sidestep_model::hmac::{HmacAlgorithm, Secret};

pub use client::{Answers, ApiError, call, stream};
pub(crate) use server::{Incoming, Server, line};

/// Of the protocol. A daemon refuses another one and says which it speaks.
pub const VERSION: u32 = 1;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// [`crate::report::Status`].
    ShowStatus,
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
    /// [`crate::report::Routes`]; with all routes, or those with an SRv6 encapsulation and Sidestep's own.
    ShowRoutes {
        /// Plain routes too.
        all: bool,
    },
    /// `sidestep route add|replace|del WORDS`.
    Route {
        /// What to do with it.
        verb: Verb,
        /// The iproute2 words behind the verb.
        words: Vec<String>,
    },
    /// `sidestep vlan add|replace|del WORDS`.
    Vlan {
        /// What to do with it.
        verb: Verb,
        /// The words behind the verb.
        words: Vec<String>,
    },
    /// [`crate::report::Vlans`].
    ShowVlans,
    /// `sidestep domain add|replace|del WORDS`.
    Domain {
        /// What to do with it.
        verb: Verb,
        /// The words behind the verb.
        words: Vec<String>,
    },
    /// [`crate::report::Domain`].
    ShowDomain,
    /// `sidestep policy add|replace|del WORDS`.
    Policy {
        /// What to do with it.
        verb: Verb,
        /// The words behind the verb.
        words: Vec<String>,
    },
    /// [`crate::report::Policies`].
    ShowPolicies,
    /// `sidestep rule add|del WORDS`.
    Rule {
        /// What to do with it.
        verb: Verb,
        /// The iproute2 words behind the verb.
        words: Vec<String>,
    },
    /// [`crate::report::Rules`].
    ShowRules,
    /// `sidestep hmac set`.
    SetHmac {
        /// HMAC Key ID.
        key: u32,
        /// What it is for.
        algorithm: HmacAlgorithm,
        /// What nobody else may know.
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
        /// Packets with the O-flag that are copied, per second and port; 0: none.
        rate: u32,
    },
    /// [`crate::report::Oam`].
    ShowOam,
    /// `sidestep oam listen`: answered by [`crate::report::Oam`], and then by one [`crate::report::OamCopy`] after the other,
    /// until the client closes its side.
    ListenOam,
    /// Runs one frame through the live tables, in the daemon, without sending it.
    Explain {
        /// Ingress port.
        port: String,
        /// The frame from its destination MAC on, in hexadecimal.
        frame: String,
    },
    /// `sidestep trace`: answered by one [`TraceLine`] after the other. A client that wants no more closes its side
    /// for writing, and reads until [`TraceLine::End`].
    Trace {
        /// The words of a [`crate::trace::Filter`].
        filter: Vec<String>,
        /// Packets told per second, at most.
        rate: u32,
        /// Packets told until it ends; none: it does not.
        count: Option<u64>,
        /// As much of each frame as can be had, not its headers alone.
        whole: bool,
    },
    /// Detach everything and end.
    Stop,
}

/// A secret on its way to the daemon, in hexadecimal. Nothing else writes one down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretText(pub Secret);

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0.expose()))
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What is no text or no number is not quoted either.
        let bytes = match Value::deserialize(deserializer)? {
            Value::String(text) => hex::decode(text).ok(),
            _ => None,
        };
        let bytes = bytes.ok_or_else(|| de::Error::custom("the secret is not in hexadecimal"))?;
        Secret::new(&bytes).map(Self).map_err(de::Error::custom)
    }
}

/// What a trace is answered by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceLine {
    /// The traced programs are in place on these ports.
    Begun {
        /// All ports that are attached.
        ports: Vec<TracedPort>,
    },
    /// One packet, as the printer that the daemon was given tells it.
    Packet(Value),
    /// The plain programs are back.
    End {
        /// Packets that were told.
        told: u64,
        /// Packets that fitted and were not: nobody read fast enough.
        lost: u64,
    },
}

/// A port of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPort {
    /// Interface name.
    pub name: String,
    /// Interface index.
    pub ifindex: u32,
    /// `xdp`, `generic`, `tc`.
    pub target: String,
}

/// What to do with a route, a rule, a policy or an entry of a VLAN table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Refused if there is one with the same key.
    Add,
    /// Added, or put in the place of the one with the same key.
    Replace,
    /// Removed.
    Del,
}

/// A request on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) version: u32,
    pub(crate) request: Request,
}

/// The request in a line.
///
/// # Errors
/// What to answer to it: it is no request, or one of another version of the protocol.
pub fn parse_request(line: &str) -> Result<Request, String> {
    let envelope: Envelope =
        serde_json::from_str(line).map_err(|error| format!("not a request: {error}"))?;
    if envelope.version != VERSION {
        let version = envelope.version;
        return Err(format!(
            "protocol version {version}: this daemon speaks version {VERSION}"
        ));
    }
    Ok(envelope.request)
}

/// An answer on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Ok(Value),
    Error { message: String },
}

/// Where the daemon of the calling thread's network namespace keeps its socket, lock and process id.
pub fn run_directory() -> PathBuf {
    PathBuf::from("/run/sidestep").join(namespace_id())
}

/// The inode of the network namespace: its name in these paths.
fn namespace_id() -> String {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/thread-self/ns/net")
        .map_or_else(|_| "unknown".into(), |meta| meta.ino().to_string())
}
