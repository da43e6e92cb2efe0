//! The path of one packet, step by step: parsed headers, lookups and matches, the actions of each
//! behavior with their RFC sections, changed headers, and the verdict.
//!
//! An [`Explanation`] is built from the trace of one run. [`text`] prints it as text, and `serde`
//! writes the same fields as JSON. `sidestep replay --explain` explains captured packets, and
//! `sidestep explain` explains a frame at a live port.

use serde::Serialize;
use sidestep_control::compile::Index;
use sidestep_datapath::abi::Reason;
use sidestep_datapath::{Native, Trace, Verdict};
use sidestep_model::node::{IfIndex, Node};

mod chosen;
pub mod diff;
pub mod headers;
pub mod kernel;
mod steps;
pub mod text;

pub use headers::Header;
pub(crate) use steps::table as table_name;
pub use steps::{RouteName, Step};

/// Names for the indices in tables and traces.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The node that was compiled.
    pub node: &'a Node,
    /// The compiler's index of its records.
    pub index: &'a Index,
}

impl Names<'_> {
    /// Returns the name of an interface, or its number if it has no name.
    pub fn port(&self, ifindex: u32) -> String {
        self.node
            .links
            .get(&IfIndex(ifindex))
            .map_or_else(|| format!("interface {ifindex}"), |link| link.name.clone())
    }
}

/// Verdict for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The packet left.
    Forward {
        /// Egress.
        port: String,
    },
    /// The packet was discarded.
    Drop(Why),
    /// The packet was punted to the kernel.
    Punt(Why),
}

/// Reason of a drop or a punt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    /// Stable name.
    pub reason: &'static str,
    /// RFC section or manual page; `-` if it is missing.
    pub source: &'static str,
    /// Explanation in one sentence.
    pub sentence: &'static str,
    /// For a punt: the action of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_kernel: Option<&'static str>,
}

impl From<&Reason> for Why {
    fn from(reason: &Reason) -> Self {
        Self {
            reason: reason.name,
            source: reason.source,
            sentence: reason.sentence,
            at_kernel: kernel::at_kernel(reason.name),
        }
    }
}

/// Run of one packet through a target, with its verdict.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Steps that the target reported.
    pub steps: &'a [Trace],
    /// Verdict.
    pub verdict: Verdict,
    /// First bytes of the frame on arrival, and its full length.
    pub arrived: (&'a [u8], usize),
    /// The frame as it was transmitted, or as it was punted after a change.
    pub left: Option<(&'a [u8], usize)>,
}

/// Explanation of one packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Steps, in order.
    pub steps: Vec<Step>,
    /// Verdict.
    pub verdict: Outcome,
    /// Headers on arrival.
    pub before: Vec<Header>,
    /// Headers as they were transmitted, or as they were punted after a change; otherwise `None`.
    pub after: Option<Vec<Header>>,
}

impl Explanation {
    /// Explains the last run of `native`, which returned `verdict` for `frame`.
    pub fn new(names: Names<'_>, native: &Native, frame: &[u8], verdict: Verdict) -> Self {
        let changed = match verdict {
            Verdict::Forward { .. } => true,
            Verdict::Punt(reason) => reason.number == sidestep_datapath::abi::PUNT_rewritten,
            Verdict::Drop(_) => false,
        };
        let left = native.frame();
        Self::of(
            names,
            &Run {
                steps: native.trace(),
                verdict,
                arrived: (frame, frame.len()),
                left: changed.then_some((left, left.len())),
            },
        )
    }

    /// Explains a run of any target.
    pub fn of(names: Names<'_>, run: &Run<'_>) -> Self {
        let head = |(bytes, length)| headers::headers_of_head(bytes, length);
        Self {
            steps: steps::steps(names, run.steps),
            verdict: match run.verdict {
                Verdict::Forward { ifindex } => Outcome::Forward {
                    port: names.port(ifindex),
                },
                Verdict::Drop(reason) => Outcome::Drop(reason.into()),
                Verdict::Punt(reason) => Outcome::Punt(reason.into()),
            },
            before: head(run.arrived),
            after: run.left.map(head),
        }
    }
}
