//! The way of one packet, told step by step: what was parsed, what was looked up and matched, what each behavior did
//! and by which RFC section, what changed in the headers, and the verdict.
//!
//! An [`Explanation`] is made from what the native target reports of one run; [`text`] prints it for people, and
//! `serde` writes it as JSON, from the same fields. `sidestep replay --explain` uses it for captured packets; whoever
//! has a frame of a live port can run it through the same tables and explain it likewise.

use serde::Serialize;
use sidestep_control::compile::Index;
use sidestep_datapath::abi::Reason;
use sidestep_datapath::{Native, Trace, Verdict};
use sidestep_model::node::{IfIndex, Node};

mod chosen;
pub mod diff;
pub mod headers;
mod steps;
pub mod text;

pub use headers::Header;
pub use steps::{RouteName, Step};

/// What the numbers in tables and traces mean.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The node that was compiled.
    pub node: &'a Node,
    /// What the compiler said of its indices.
    pub index: &'a Index,
}

impl Names<'_> {
    /// The name of that interface; its number where it has none.
    pub fn port(&self, ifindex: u32) -> String {
        self.node
            .links
            .get(&IfIndex(ifindex))
            .map_or_else(|| format!("interface {ifindex}"), |link| link.name.clone())
    }
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It left.
    Forward {
        /// By this port.
        port: String,
    },
    /// It ended here.
    Drop(Why),
    /// The kernel got it.
    Punt(Why),
}

/// The reason of a drop, or of leaving a packet to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    /// Stable name.
    pub reason: &'static str,
    /// RFC section or manual page; `-` where there is none.
    pub source: &'static str,
    /// One sentence.
    pub sentence: &'static str,
}

impl From<&Reason> for Why {
    fn from(reason: &Reason) -> Self {
        Self {
            reason: reason.name,
            source: reason.source,
            sentence: reason.sentence,
        }
    }
}

/// One packet on its way through a target, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What the target reports of it.
    pub steps: &'a [Trace],
    /// What became of it.
    pub verdict: Verdict,
    /// The frame as it arrived: its first bytes, and the length of all of it.
    pub arrived: (&'a [u8], usize),
    /// The frame as it left, or as the kernel got it if it was changed.
    pub left: Option<(&'a [u8], usize)>,
}

/// The way of one packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// What came of it.
    pub verdict: Outcome,
    /// The headers as they arrived.
    pub before: Vec<Header>,
    /// The headers as they left, or as the kernel got them if they were changed; none if the packet ended as it was.
    pub after: Option<Vec<Header>>,
}

impl Explanation {
    /// Explains the last run of `native`, which was of `frame` and gave `verdict`.
    pub fn new(names: Names<'_>, native: &Native, frame: &[u8], verdict: Verdict) -> Self {
        let changed = match verdict {
            Verdict::Forward { .. } => true,
            Verdict::Punt(reason) => reason.number == sidestep_datapath::abi::PUNT_decapsulated,
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

    /// Explains a run of whatever target.
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
