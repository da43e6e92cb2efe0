//! Candidate paths of controllers: their identity, and the result of a batch.

use serde::{Deserialize, Serialize};
use sidestep_model::policy::{PathId, PathOwner, PolicyId};

/// Identity of a candidate path (RFC 9256 2.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Color of its policy.
    pub color: u32,
    /// Endpoint of its policy.
    pub endpoint: String,
    /// Protocol-Origin and originator.
    pub owner: PathOwner,
    /// Discriminator.
    pub discriminator: u32,
}

impl From<(PolicyId, PathId)> for Path {
    fn from((policy, path): (PolicyId, PathId)) -> Self {
        Self {
            color: policy.color,
            endpoint: policy.endpoint.to_string(),
            owner: path.owner,
            discriminator: path.discriminator,
        }
    }
}

impl Path {
    /// Returns its identity within the policy.
    pub fn id(&self) -> PathId {
        PathId {
            owner: self.owner,
            discriminator: self.discriminator,
        }
    }
}

/// `policy apply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyBatch {
    /// Result of each operation, in their order.
    pub results: Vec<PolicyResult>,
    /// Paths that a complete batch withdrew because it lacks them.
    pub withdrawn: Vec<Path>,
}

/// Result of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Name of the policy, for routes that steer into it.
    pub policy: String,
    /// Effect on the candidate path.
    pub result: Outcome,
}

/// Effect of an operation on its candidate path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The path is new.
    Added,
    /// The path has changed.
    Replaced,
    /// The path was removed.
    Withdrawn,
    /// The path is as before, or still absent.
    Unchanged,
}
