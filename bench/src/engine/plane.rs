//! The three built-in data planes of the router: Linux, and Sidestep in TC and in XDP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sidestep_wire::EtherType;

use super::behavior::{Behavior, Service};
use super::network::{
    Network, PORT, PORTS, SERVICE_IFNAMES, SERVICE_MACS, SERVICE_PORT_MACS, SERVICE_PORTS,
};
use super::packet::ethernet;
use super::product::{Running, Sidestep, Tally};
use sidestep_testkit::Napi;
use sidestep_testkit::traffic::{Hook, Redirect};
use sidestep_testkit::{Error, FrameSocket};

/// Data plane of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// The kernel without Sidestep.
    Linux,
    /// Sidestep, `--mode tc`.
    Tc,
    /// Sidestep, `--mode xdp`.
    Xdp,
}

/// An active data plane on the router, removed on drop.
#[derive(Debug)]
pub struct Standing {
    network: Arc<Network>,
    running: Option<Running>,
    _beside: Beside,
}

impl Plane {
    /// All data planes in the order of the table.
    pub const ALL: [Self; 3] = [Self::Linux, Self::Tc, Self::Xdp];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Tc => "Sidestep TC",
            Self::Xdp => "Sidestep XDP",
        }
    }

    /// Returns the name of the engine in campaigns.
    pub fn engine(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Tc => "sidestep-tc",
            Self::Xdp => "sidestep-xdp",
        }
    }

    /// Report text.
    pub fn mode(self) -> &'static str {
        match self {
            Self::Linux => "the kernel alone",
            Self::Tc => "--mode tc",
            Self::Xdp => "--mode xdp-always",
        }
    }

    /// Returns the hooks that may count its packets. The cheaper hook for counting socket buffers
    /// depends on the remaining headroom, so the better of the two is selected by trials. An XDP
    /// redirect ends in XDP; elsewhere a socket buffer would have to be built for it first.
    pub fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Linux | Self::Tc => &[Hook::Xdp, Hook::Tc],
            Self::Xdp => &[Hook::Xdp],
        }
    }

    /// Returns the frame that the data plane has to send.
    pub fn expected(self, behavior: &Behavior) -> &[u8] {
        match self {
            Self::Linux => &behavior.from_linux,
            Self::Tc | Self::Xdp => &behavior.from_sidestep,
        }
    }

    /// Returns how the service behind the data plane forwards. Linux has no SR proxies, so the
    /// kernel of the service runs End instead.
    pub fn service(self, behavior: &Behavior) -> Option<Service> {
        if self == Self::Linux && !behavior.own.is_empty() {
            return behavior.service.map(|_| Service::Kernel);
        }
        behavior.service
    }

    /// Starts the data plane. A port that receives XDP frames needs NAPI. If Sidestep has no XDP
    /// program there, a program that passes all packets provides it.
    ///
    /// # Errors
    /// Sidestep fails to start.
    pub fn set_up(
        self,
        network: &Arc<Network>,
        sidestep: &Sidestep,
        behavior: &Behavior,
    ) -> Result<Standing, Error> {
        let mode = match self {
            Self::Linux => return Standing::linux(network, behavior),
            Self::Tc => "tc",
            Self::Xdp => "xdp-always",
        };
        let beside = Beside::attach(network, behavior.service, self == Self::Xdp)?;
        Ok(Standing {
            network: Arc::clone(network),
            running: Some(sidestep.start(network, mode, &behavior.own)?),
            _beside: beside,
        })
    }
}

/// Additional programs that deliver frames to the data plane and through the service.
#[derive(Debug, Default)]
struct Beside {
    napi: Vec<Napi>,
    redirects: Vec<Redirect>,
}

impl Beside {
    /// `in_xdp`: the data plane has XDP programs of its own at the router's ports, and sends XDP
    /// frames.
    fn attach(network: &Network, service: Option<Service>, in_xdp: bool) -> Result<Self, Error> {
        let router = network.router()?;
        let mut beside = Self::default();
        if !in_xdp {
            beside.napi.push(Napi::attach(router, PORTS[0])?);
        }
        if let Some(service) = service {
            beside.serve(network, service, in_xdp)?;
        }
        if service == Some(Service::Xdp) && !in_xdp {
            beside.napi.push(Napi::attach(router, SERVICE_PORTS[1])?);
        }
        Ok(beside)
    }

    /// Starts forwarding in a service. `in_xdp`: the service receives XDP frames.
    fn serve(&mut self, network: &Network, service: Service, in_xdp: bool) -> Result<(), Error> {
        let (namespace, [ingress, egress]) = (network.service()?, SERVICE_IFNAMES);
        match service {
            Service::Kernel if in_xdp => self.napi.push(Napi::attach(namespace, ingress)?),
            // The kernel forwards already.
            Service::Kernel => {}
            Service::Xdp => {
                let header = ethernet(SERVICE_PORT_MACS[1], SERVICE_MACS[1], EtherType(0), &[]);
                let program = Redirect::attach(namespace, ingress, egress, &header)?;
                self.redirects.push(program);
            }
        }
        Ok(())
    }
}

impl Standing {
    /// Prepares the ports for a data plane that another program sets up in the namespace. A port
    /// without an XDP program gets one that passes all packets, as for Linux.
    ///
    /// # Errors
    /// There is no router, or BPF is not allowed.
    pub fn others(network: &Arc<Network>, behavior: &Behavior) -> Result<Self, Error> {
        let (router, mut beside) = (network.router()?, Beside::default());
        let mut ports = vec![PORTS[0]];
        if let Some(service) = behavior.service {
            beside.serve(network, service, false)?;
            ports.extend((service == Service::Xdp).then_some(SERVICE_PORTS[1]));
        }
        let napi = ports.into_iter().map(|port| Napi::attach(router, port));
        // Ports that already have a program need none.
        beside.napi.extend(napi.flatten());
        Ok(Self::beside(network, beside))
    }

    /// Prepares the ports for the kernel without Sidestep.
    ///
    /// # Errors
    /// BPF is not allowed.
    pub fn linux(network: &Arc<Network>, behavior: &Behavior) -> Result<Self, Error> {
        let service = Plane::Linux.service(behavior);
        let beside = Beside::attach(network, service, false)?;
        Ok(Self::beside(network, beside))
    }

    fn beside(network: &Arc<Network>, beside: Beside) -> Self {
        Self {
            network: Arc::clone(network),
            running: None,
            _beside: beside,
        }
    }

    /// Waits until Sidestep forwards this frame at each ingress port. Returns at once if Sidestep
    /// does not run. Sidestep must first detect that the egress ports accept XDP redirects, which
    /// depends on their programs.
    ///
    /// # Errors
    /// Sidestep still punts or drops the frame after the time limit.
    pub fn ready(&self, frame: &[u8]) -> Result<(), Error> {
        let (network, Some(sidestep)) = (&self.network, &self.running) else {
            return Ok(());
        };
        let near = FrameSocket::open(network.generator()?, PORT)?;
        let forwarded = || -> Result<Vec<u64>, Error> {
            let tallies = sidestep.tally(network.ways_in())?;
            Ok(tallies.iter().map(|tally| tally.forwarded).collect())
        };
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let before = forwarded()?;
            near.send(frame)?;
            if forwarded()?
                .iter()
                .zip(&before)
                .all(|(now, before)| now > before)
            {
                return Ok(());
            }
        }
        let reasons = sidestep.reasons();
        Err(Error::Wrong(format!(
            "it is not Sidestep that forwards the frame\n{reasons}"
        )))
    }

    /// Returns the network of the data plane.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns Sidestep's counters of each ingress port, or `None` if it does not run.
    ///
    /// # Errors
    /// The reply of Sidestep lacks these counters.
    pub fn tallies(&self) -> Result<Vec<Tally>, Error> {
        let tallies = self.running.as_ref();
        let tallies = tallies.map(|it| it.tally(self.network.ways_in()));
        tallies.unwrap_or(Ok(Vec::new()))
    }

    /// Returns Sidestep, if it runs.
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }
}

/// Time limit for Sidestep to follow a change of the sink's port on a busy machine. It compiles all
/// routes again, up to 100,000.
const PATIENCE: Duration = Duration::from_secs(30);
