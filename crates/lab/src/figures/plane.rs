//! The three data planes that take turns on the router.

use std::time::{Duration, Instant};

use super::Error;
use super::behavior::Behavior;
use super::network::{Network, PORT, PORTS};
use super::product::{Running, Sidestep};
use crate::FrameSocket;
use crate::traffic::{Hook, Napi};

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// The kernel alone.
    Linux,
    /// Sidestep, `--mode tc`.
    Tc,
    /// Sidestep, `--mode xdp`.
    Xdp,
}

/// A data plane at work on the router; gone when dropped.
#[derive(Debug)]
pub struct Standing<'a> {
    running: Option<Running<'a>>,
    _napi: Option<Napi>,
}

impl Plane {
    /// All, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Linux, Self::Tc, Self::Xdp];

    /// As the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Tc => "Sidestep TC",
            Self::Xdp => "Sidestep XDP",
        }
    }

    /// Where its packets may be counted. What comes as a socket buffer is cheap to count at either hook, depending on the
    /// headroom that is left, so both are tried and the better one counts. An XDP redirect ends in XDP; elsewhere a
    /// socket buffer would have to be built for it first.
    pub fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Linux | Self::Tc => &[Hook::Xdp, Hook::Tc],
            Self::Xdp => &[Hook::Xdp],
        }
    }

    /// The frame that it has to send.
    pub fn expected(self, behavior: &Behavior) -> &[u8] {
        match self {
            Self::Linux => &behavior.from_linux,
            Self::Tc | Self::Xdp => &behavior.from_sidestep,
        }
    }

    /// Puts it to work. Where no XDP program of Sidestep runs the port's NAPI, so that the generator's frames arrive, an
    /// XDP program that passes everything does.
    ///
    /// # Errors
    /// Sidestep refuses.
    pub fn set_up<'a>(
        self,
        network: &'a Network,
        sidestep: &'a Sidestep,
    ) -> Result<Standing<'a>, Error> {
        let router = network.router()?;
        Ok(match self {
            Self::Linux => Standing::linux(network)?,
            Self::Tc => {
                let mut standing = Standing::linux(network)?;
                standing.running = Some(sidestep.start(router, "tc")?);
                standing
            }
            Self::Xdp => Standing {
                running: Some(sidestep.start(router, "xdp")?),
                _napi: None,
            },
        })
    }
}

impl Standing<'_> {
    /// The kernel alone.
    ///
    /// # Errors
    /// BPF is not allowed.
    pub fn linux(network: &Network) -> Result<Self, Error> {
        Ok(Self {
            running: None,
            _napi: Some(Napi::attach(network.router()?, PORTS[0])?),
        })
    }

    /// Returns when Sidestep forwards this frame; at once if it is not there. It has to see first that the sink's port
    /// takes XDP redirects, which depends on what is attached there.
    ///
    /// # Errors
    /// It leaves the frame to the kernel, or drops it, and goes on doing so.
    pub fn ready(&self, network: &Network, frame: &[u8]) -> Result<(), Error> {
        let Some(sidestep) = &self.running else {
            return Ok(());
        };
        let near = FrameSocket::open(network.generator()?, PORT)?;
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let before = sidestep.tally()?;
            near.send(frame)?;
            if sidestep.tally()?.forwarded > before.forwarded {
                return Ok(());
            }
        }
        let reasons = sidestep.reasons();
        Err(Error::Wrong(format!("not Sidestep forwards it\n{reasons}")))
    }

    /// Sidestep, if it runs.
    pub fn running(&self) -> Option<&Running<'_>> {
        self.running.as_ref()
    }
}

/// How long Sidestep may take to follow the sink's port on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
