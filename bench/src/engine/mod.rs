//! Engines: data planes that forward SRv6 and can be measured. Each engine can be set up for a
//! [`Case`], verifies one packet byte for byte, runs trials, and is removed without leftovers.
//!
//! - [`all`]: the engines; [`behavior::kinds`]: the behaviors.
//! - [`network`]: a router between a generator and a sink, in namespaces; [`plane`]: the data plane
//!   that forwards there.
//! - [`testbed`]: a router on a separate machine, with TRex at its ports.
//! - [`packet`], [`customer`]: the sent and the expected frames; [`verify`]: comparison of one
//!   frame.

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

use sidestep_testkit::Error;
use sidestep_testkit::traffic::Hook;
use sidestep_testkit::traffic::trial::{Load, Trial};

use behavior::Behavior;
pub use local::all;
pub use port::INTERRUPTS;

/// A case to set up an engine for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// Name of the behavior in the spelling of campaigns: `end.dx4`, `h.encaps`, `ipv6`.
    pub behavior: String,
    /// Segments of the SRH that the router pushes or receives; 0 if the behavior has no SRH.
    pub sids: u32,
    /// Sizes of the customer's packets, from their IP header on. They are the sent packets if a
    /// behavior takes plain packets, and the inner packets if it takes SRv6 packets.
    pub size: Size,
    /// Number of flows, and the share of each.
    pub flows: Flows,
    /// Policy rules that precede the one that matches.
    pub rules: u32,
    /// Routes in addition to the one that matches.
    pub routes: u32,
    /// CPUs. Each has its own generator with separate flows, and also runs the router and the sink.
    #[serde(default = "one_core")]
    pub cores: u32,
}

/// Default for cases that older versions stored.
fn one_core() -> u32 {
    1
}

/// Length of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// All packets of this size in bytes, from the IP header on.
    Bytes(u32),
    /// In 12 frames, seven have 64, four 594 and one 1518 bytes with FCS. Frames that are too short
    /// for the headers are lengthened.
    Imix,
}

impl Size {
    /// Returns the lengths, from the IP header on, each with its share of the packets. No size of
    /// [`Self::Imix`] is below `least`.
    pub fn packets(self, least: usize) -> Vec<(usize, u32)> {
        match self {
            Self::Bytes(length) => vec![(length as usize, 1)],
            Self::Imix => [(64, 7), (594, 4), (1518, 1)]
                .map(|(frame, share)| (least.max(frame - ETHERNET_AND_FCS), share))
                .into(),
        }
    }
}

/// Distribution of the packets over flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flows {
    /// This number of flows, round robin.
    Uniform(u32),
    /// This number of flows, the n-th with 1/n of the first one's share.
    Zipf(u32),
}

impl Flows {
    /// Returns the number of flows.
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
    /// The CPUs of cores after the first. The first core uses the CPU of the placement.
    pub more_cores: Vec<usize>,
    /// Path of the `sidestep` program. The default is `$SIDESTEP`, or the program next to the
    /// running one.
    pub sidestep: Option<PathBuf>,
    /// Directory of the programs `vpp` and `vppctl`. The default is a search in `PATH`.
    pub vpp: Option<PathBuf>,
    /// Engines that commands of the campaign drive, in addition to the built-in ones.
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

    /// Checks for an interruption between two steps.
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

/// Returns the case as behaviors of one packet length each, with their shares of the packets.
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
    /// CPU that polls the ports of the system under test.
    pub system: usize,
    /// CPU that polls the port of the sink.
    pub sink: usize,
}

impl Placement {
    /// Returns the three CPUs in the order of the packet path.
    pub fn cpus(self) -> [usize; 3] {
        [self.generator, self.system, self.sink]
    }

    /// Returns whether one CPU does all the work.
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

/// A data plane that can be measured.
pub trait Engine {
    /// Its name in campaigns and reports: `linux`, `sidestep-xdp`.
    fn name(&self) -> &str;

    /// Facts for the report: versions, modes.
    fn facts(&self) -> BTreeMap<String, String>;

    /// Returns the reason if the engine cannot run this case here, such as an unsupported behavior
    /// or a missing program. Changes nothing.
    fn refuses(&self, case: &Case) -> Option<String>;

    /// Sets the engine up in a network of its own, and verifies one packet.
    ///
    /// # Errors
    /// Returns the failed step or the unexpected frame, after removing everything again.
    fn set_up(&self, case: &Case) -> Result<Box<dyn Standing + '_>, Error>;

    /// Returns the commands that reproduce this case by hand, as an operator would type them.
    fn recipe(&self, case: &Case) -> Vec<String>;
}

/// An engine that is set up and verified; dropping it takes it down.
pub trait Standing {
    /// Offers `load` for `duration`, waits for late packets, and counts.
    ///
    /// # Errors
    /// Unexpected packets arrive, the engine did not forward them itself, or the trial was
    /// interrupted.
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error>;

    /// Returns the hook that counts packets, which the setup of the engine selects. Returns `None`
    /// if there is no choice.
    fn sink(&self) -> Option<Hook> {
        None
    }

    /// Counts packets at this hook from now on, for example at the one that an earlier setup of the
    /// same case selected. Does nothing if there is no choice.
    ///
    /// # Errors
    /// No program can be attached to this hook.
    fn count_at(&mut self, _sink: Hook) -> Result<(), Error> {
        Ok(())
    }
}

/// Fact of Sidestep: SHA-256 of the program's file, which identifies the build.
const PROGRAM_SHA256: &str = "program sha256";

/// Overhead of a frame on the wire in bytes.
const ETHERNET_AND_FCS: usize = 18;
