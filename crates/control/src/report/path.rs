//! `path show`, `protect show` and `reflector show`.

use serde::{Deserialize, Serialize};
use sidestep_model::policy::PathOwner;

/// `reflector show`.
pub type Reflectors = Vec<Reflector>;

/// A reflector of S-BFD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflector {
    /// Discriminator.
    pub discriminator: u32,
    /// Whether its answers have the state `AdminDown`.
    pub admin_down: bool,
    /// Probes that became answers.
    pub answers: u64,
}

/// `protect show`.
pub type Protections = Vec<Protection>;

/// A protected next hop, or all of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Arguments of `protect add`.
    pub words: String,
    /// The controller that installed it; none for a configured one.
    pub owner: Option<PathOwner>,
    /// `ready`; `in use` while it takes packets; `unused` without a next hop in the tables; `failed`
    /// without a backup.
    pub state: String,
    /// Why it has no backup, or why the backup does not help.
    pub why: Option<String>,
    /// Number of next hops that it protects.
    pub next_hops: usize,
}

/// `path show`.
pub type Paths = Vec<WatchedPath>;

/// A path that is probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedPath {
    /// Name.
    pub name: String,
    /// Arguments of `path add`.
    pub words: String,
    /// Segment list.
    pub segments: Vec<String>,
    /// `up`, `init` before the first answer, `down`, `waiting` while it is alive but not in use yet,
    /// `admin-down`, `unknown` without a prober.
    pub state: String,
    /// Whether policies use the list.
    pub in_use: bool,
    /// Why it is not in use, or not probed.
    pub why: Option<String>,
    /// Milliseconds until it is in use again, if it stays alive.
    pub wait_ms: Option<u64>,
    /// Number of times it went out of use.
    pub failures: u64,
    /// Its flows.
    pub flows: Vec<PathFlow>,
    /// The last changes, the oldest first.
    pub changes: Vec<PathChange>,
}

/// A flow of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFlow {
    /// `init`, `up`, `lost` or `remote-admin-down`.
    pub state: String,
    /// Probes sent.
    pub probes: u64,
    /// Microseconds since the last answer.
    pub answered_us: Option<u64>,
}

/// A change of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// Milliseconds since the change.
    pub ago_ms: u64,
    /// Whether it came into use.
    pub in_use: bool,
    /// Reason.
    pub why: String,
}
