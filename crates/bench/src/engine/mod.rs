//! Engines: what forwards SRv6 and can be measured. Each engine can be set up for a [`Case`],
//! verifies one packet byte for byte, runs trials, and is removed without leftovers.
//!
//! - [`all`]: the engines; [`behavior::kinds`]: the behaviors.
//! - [`network`]: a router between a generator and a sink, in namespaces; [`plane`]: the data plane
//!   that forwards there.
//! - [`testbed`]: the same on a machine of its own, with TRex at its ports.
//! - [`packet`], [`customer`]: the frames that are sent and expected; [`verify`]: one of them, compared.

pub mod behavior;
pub mod customer;
pub mod exec;
mod local;
mod measured;
pub mod napi;
pub mod network;
pub mod packet;
pub mod plane;
mod port;
pub mod product;
mod recipe;
pub mod testbed;
pub mod verify;
mod vpp;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::traffic::Hook;
use crate::traffic::trial::{Load, Trial};
use sidestep_testkit::Error;

use behavior::Behavior;
pub use local::all;
pub use port::INTERRUPTS;

/// A case to set up an engine for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// The behavior, as the RFCs call it, in a campaign's spelling: `end.dx4`, `h.encaps`, `ipv6`.
    pub behavior: String,
    /// Segments of the SRH that is pushed or that arrives; 0 where the behavior has none.
    pub sids: u32,
    /// Sizes of the customer's packets, from their IP header on. They are the sent packets if a
    /// behavior takes plain packets, and the inner packets if it takes SRv6 packets.
    pub size: Size,
    /// Flows, and how often each has its turn.
    pub flows: Flows,
    /// Policy rules that precede the one that matches.
    pub rules: u32,
    /// Routes beside the one that matches.
    pub routes: u32,
    /// CPUs, each with a generator of its own, whose flows the others do not have, and with router and sink in its loop.
    #[serde(default = "one_core")]
    pub cores: u32,
}

/// Default for cases that older versions stored.
fn one_core() -> u32 {
    1
}

/// How long the packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// All packets of this size in bytes, from the IP header on.
    Bytes(u32),
    /// Seven of 64, four of 594 and one of 1518 bytes as frames with FCS, or the least that the headers need.
    Imix,
}

impl Size {
    /// Lengths, from the IP header on, and how many of each take turns. No size of [`Self::Imix`]
    /// is below `least`.
    pub fn packets(self, least: usize) -> Vec<(usize, u32)> {
        match self {
            Self::Bytes(length) => vec![(length as usize, 1)],
            Self::Imix => [(64, 7), (594, 4), (1518, 1)]
                .map(|(frame, share)| (least.max(frame - ETHERNET_AND_FCS), share))
                .into(),
        }
    }
}

/// Which flow a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flows {
    /// This number of flows, round robin.
    Uniform(u32),
    /// This number of flows, the n-th with 1/n of the first one's share.
    Zipf(u32),
}

impl Flows {
    /// How many.
    pub fn count(self) -> u32 {
        let (Self::Uniform(count) | Self::Zipf(count)) = self;
        count
    }
}

impl fmt::Display for Case {
    /// `end.dx4, 2 SIDs, 64 bytes`: the name lists values that are not the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.behavior)?;
        counted(f, self.sids, "SID")?;
        match self.size {
            Size::Bytes(bytes) => write!(f, ", {bytes} bytes")?,
            Size::Imix => f.write_str(", IMIX")?,
        }
        match self.flows {
            Flows::Uniform(1) => {}
            Flows::Uniform(flows) => write!(f, ", {flows} flows")?,
            Flows::Zipf(flows) => write!(f, ", {flows} flows by Zipf")?,
        }
        counted(f, self.rules, "rule")?;
        counted(f, self.routes, "route")?;
        if self.cores > 1 {
            counted(f, self.cores, "core")?;
        }
        Ok(())
    }
}

fn counted(f: &mut fmt::Formatter<'_>, count: u32, what: &str) -> fmt::Result {
    match count {
        0 => Ok(()),
        1 => write!(f, ", 1 {what}"),
        count => write!(f, ", {count} {what}s"),
    }
}

/// Paths and settings for engines.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The CPUs.
    pub placement: Placement,
    /// The CPUs of cores after the first, which is the placement's.
    pub more_cores: Vec<usize>,
    /// The `sidestep` program; without one it is `$SIDESTEP`, or the one next to the running program.
    pub sidestep: Option<PathBuf>,
    /// The directory of the programs `vpp` and `vppctl`; without one they are looked for in `PATH`.
    pub vpp: Option<PathBuf>,
    /// Engines that are driven by commands, beside those that are known here.
    pub commands: Vec<exec::Commands>,
    /// Set when the program must end. Set-ups and trials then return [`Error::Interrupted`].
    pub interrupted: Arc<AtomicBool>,
}

impl Options {
    /// The CPUs of a case's cores.
    ///
    /// # Errors
    /// There are fewer CPUs, or generator, system and sink do not share them.
    fn cores(&self, case: &Case) -> Result<Vec<usize>, String> {
        let first = self.placement.generator;
        let all = || std::iter::once(first).chain(self.more_cores.iter().copied());
        let (wanted, there) = (case.cores as usize, all().count());
        if wanted > 1 && !self.placement.is_shared() {
            return Err(format!(
                "{wanted} cores: generator, system and sink have to share each of them"
            ));
        }
        if wanted > there {
            return Err(format!("{wanted} cores; there are CPUs for {there}"));
        }
        Ok(all().take(wanted).collect())
    }

    /// Report text about the CPUs.
    fn cpus(&self) -> String {
        let mut text = self.placement.to_string();
        if !self.more_cores.is_empty() {
            let more: Vec<String> = self.more_cores.iter().map(usize::to_string).collect();
            text.push_str("; further cores: ");
            text.push_str(&more.join(", "));
        }
        text
    }

    /// Between two steps.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    fn check(&self) -> Result<(), Error> {
        if self.interrupted.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}

/// The case as behaviors of one packet length each, with how many packets of each take turns.
fn stream(case: &Case) -> Result<Vec<(Behavior, u32)>, Error> {
    let kind = behavior::kind(&case.behavior).map_err(Error::Usage)?;
    let sizes = case.size.packets(kind.least).into_iter();
    sizes
        .map(|(length, share)| {
            let made = Behavior::of(case, length).map_err(Error::Usage)?;
            Ok((made, share))
        })
        .collect()
}

/// The CPUs of generator, system under test and sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// CPU of the generator's thread.
    pub generator: usize,
    /// Where the system's ports are polled.
    pub system: usize,
    /// Where the sink's port is polled.
    pub sink: usize,
}

impl Placement {
    /// The three of them, in the order of a packet's way.
    pub fn cpus(self) -> [usize; 3] {
        [self.generator, self.system, self.sink]
    }

    /// Whether one CPU does it all.
    pub fn is_shared(self) -> bool {
        self.generator == self.system && self.system == self.sink
    }
}

impl fmt::Display for Placement {
    /// Report text about shared CPUs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            generator,
            system,
            sink,
        } = *self;
        if self.is_shared() {
            write!(f, "generator, system and sink share CPU {generator}")
        } else if generator == system {
            write!(
                f,
                "generator and system share CPU {system}, sink on CPU {sink}"
            )
        } else if system == sink {
            write!(
                f,
                "generator on CPU {generator}, system and sink share CPU {system}"
            )
        } else if generator == sink {
            write!(
                f,
                "system on CPU {system}, generator and sink share CPU {sink}"
            )
        } else {
            write!(
                f,
                "generator on CPU {generator}, system on CPU {system}, sink on CPU {sink}"
            )
        }
    }
}

/// Something that forwards.
pub trait Engine {
    /// Its name in campaigns and reports: `linux`, `sidestep-xdp`.
    fn name(&self) -> &str;

    /// Facts for the report: versions, modes.
    fn facts(&self) -> BTreeMap<String, String>;

    /// Why it cannot be set up for this case here, if it cannot: the behavior is not one of its, a program is missing. Nothing
    /// is changed by asking.
    fn refuses(&self, case: &Case) -> Option<String>;

    /// Sets it up in a network of its own, and verifies one packet.
    ///
    /// # Errors
    /// Returns the failed step or the unexpected frame. Everything has been removed.
    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error>;

    /// The command that reproduces this case by hand, as an operator would type it.
    fn recipe(&self, case: &Case) -> Vec<String>;
}

/// An engine that is set up and verified; dropping it takes it down.
pub trait Standing {
    /// Offers `load` for `duration`, waits for late packets, and counts.
    ///
    /// # Errors
    /// Other packets arrive than should, the engine did not forward them itself, or it was interrupted.
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error>;

    /// Where packets are counted, which is chosen when the engine is set up; none where it is not ours to choose.
    fn sink(&self) -> Option<Hook> {
        None
    }

    /// Has packets counted there from now on, as where the same case was set up before; nothing where it is not ours to choose.
    ///
    /// # Errors
    /// Nothing can be attached there.
    fn count_at(&mut self, _sink: Hook) -> Result<(), Error> {
        Ok(())
    }
}

/// Fact of Sidestep: SHA-256 of the program's file, which identifies the build.
const PROGRAM_SHA256: &str = "program sha256";

/// Overhead of a frame on the wire in bytes.
const ETHERNET_AND_FCS: usize = 18;
