//! Engines: what forwards SRv6 and can be measured. Each knows how to be set up for a [`Case`], shows with one packet that it
//! really does what it should, byte for byte, takes trials, and goes without a trace.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::traffic::trial::{Load, Trial};

/// What an engine is set up for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// The behavior, as the RFCs call it, in a campaign's spelling: `end.dx4`, `h.encaps`, `ipv6`.
    pub behavior: String,
    /// Segments of the SRH that is pushed or that arrives; 0 where the behavior has none.
    pub sids: u32,
    /// Bytes of the packet that the generator sends, from its IP header on, or the mix of sizes.
    pub size: Size,
    /// Flows, and how often each has its turn.
    pub flows: Flows,
    /// Policy rules that precede the one that matches.
    pub rules: u32,
    /// Routes beside the one that matches.
    pub routes: u32,
}

/// How long the packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// All of so many bytes, from the IP header on.
    Bytes(u32),
    /// Seven of 64, four of 594 and one of 1518 bytes as frames with FCS, or the least that the headers need.
    Imix,
}

/// Which flow a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flows {
    /// So many, each in its turn.
    Uniform(u32),
    /// So many, the n-th 1/n times as often as the first.
    Zipf(u32),
}

/// Something that forwards.
pub trait Engine {
    /// Its name in campaigns and reports: `linux`, `sidestep-xdp`.
    fn name(&self) -> &str;

    /// What a report says about it: versions, modes.
    fn facts(&self) -> BTreeMap<String, String>;

    /// Why it cannot be set up for this case here, if it cannot: the behavior is not one of its, a program is missing. Nothing
    /// is changed by asking.
    fn refuses(&self, case: &Case) -> Option<String>;

    /// Sets it up in a network of its own, and verifies one packet.
    ///
    /// # Errors
    /// What could not be set up, or what came out instead; nothing of it is left.
    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error>;

    /// The command that reproduces this case by hand, as an operator would type it.
    fn recipe(&self, case: &Case) -> Vec<String>;
}

/// An engine that is set up and verified; dropping it takes it down.
pub trait Standing {
    /// Offers `load` for `duration`, waits for what is late, and counts.
    ///
    /// # Errors
    /// Other packets arrive than should, the engine did not forward them itself, or it was interrupted.
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error>;
}
