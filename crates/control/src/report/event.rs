//! Events of `sidestep monitor`.

use serde::{Deserialize, Serialize};

use super::{Path, Severity};

/// A change of the daemon's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time of its detection, in nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp: u64,
    /// What changed.
    #[serde(flatten)]
    pub change: Change,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// `port`, `route`, `policy`, `candidate_path`, `path`, `service`, `fpm`, `problem`, or `monitor`.
    pub kind: String,
    /// Its event, such as `added` or `down`.
    pub event: String,
    /// Port, route, SR policy, candidate path, path, SID of the service, address of zebra, or code of
    /// the problem.
    pub subject: String,
    /// Reason or description.
    pub detail: Option<String>,
    /// Severity of a problem.
    pub severity: Option<Severity>,
    /// The candidate path.
    pub path: Option<Path>,
}

impl Change {
    /// Returns a change without detail.
    pub(crate) fn new(kind: &str, event: &str, subject: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            event: event.into(),
            subject: subject.into(),
            detail: None,
            severity: None,
            path: None,
        }
    }

    pub(crate) fn with(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}
