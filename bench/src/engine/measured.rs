//! Trials on a path that is set up between generator and sink.

use std::sync::Arc;
use std::time::Duration;

use super::behavior::Behavior;
use super::network::{Network, PORT, PORTS};
use super::plane::{self, Plane};
use super::product::{Tally, check_forwarded};
use super::verify::exchange;
use super::{Case, Flows, Options, Standing, napi};
use sidestep_testkit::Napi;
use sidestep_testkit::hexdiff::diff;
use sidestep_testkit::traffic::Driver as _;
use sidestep_testkit::traffic::Interrupt;
use sidestep_testkit::traffic::{
    self, Arrivals, Distribution, Hook, LiveFrames, Load, Local, Receiver, Redirect, Stream,
    Template, Trial,
};
use sidestep_testkit::{Error, Namespace};

/// The connection between generator and sink.
pub enum Path {
    /// A router whose data plane forwards.
    Router(Plane, plane::Standing),
    /// A router with another data plane: VPP, or an engine that commands set up.
    Other(plane::Standing),
    /// A direct link between generator and sink.
    Nothing(Network),
    /// A router with a BPF program that redirects all packets from the first port to the second.
    Redirect {
        /// The BPF program, detached on drop.
        _program: Redirect,
        /// The network with the router.
        network: Network,
    },
}

impl Path {
    /// Creates the path of engine `none`, and verifies it with one packet.
    pub fn limit(case: &Case, behavior: &Behavior) -> Result<Self, Error> {
        let path = if case.behavior == "redirect" {
            let network = Network::routed(&Behavior {
                queues: behavior.queues,
                ..Behavior::default()
            })?;
            let [ingress, egress] = PORTS;
            let macs = &behavior.from_linux[..ETHERNET];
            Self::Redirect {
                _program: Redirect::attach(network.router()?, ingress, egress, macs)?,
                network,
            }
        } else {
            Self::Nothing(Network::bare(behavior.queues)?)
        };
        let _napi = Napi::attach(path.network().sink()?, PORT)?;
        let found = exchange(path.network(), &behavior.sent)?.unwrap_or_default();
        if found != behavior.from_linux {
            let difference = diff(&behavior.from_linux, &found);
            let what = format!("{case}: the router sent another packet\n{difference}");
            return Err(Error::Wrong(what));
        }
        Ok(path)
    }

    fn network(&self) -> &Network {
        match self {
            Self::Router(_, standing) | Self::Other(standing) => standing.network(),
            Self::Nothing(network) | Self::Redirect { network, .. } => network,
        }
    }

    fn hooks(&self) -> &'static [Hook] {
        match self {
            Self::Router(plane, _) => plane.hooks(),
            // XDP receives all packets of these paths.
            Self::Other(_) | Self::Nothing(_) | Self::Redirect { .. } => &[Hook::Xdp],
        }
    }

    /// Returns the expected frame at the sink. If two frames are allowed, both have the same
    /// length.
    fn expected<'a>(&self, behavior: &'a Behavior) -> &'a [u8] {
        match self {
            Self::Router(plane, _) => plane.expected(behavior),
            Self::Other(_) => &behavior.from_sidestep,
            Self::Nothing(_) | Self::Redirect { .. } => &behavior.from_linux,
        }
    }

    /// Waits until the expected engine forwards the frame.
    fn ready(&self, frame: &[u8]) -> Result<(), Error> {
        match self {
            Self::Router(_, standing) => standing.ready(frame),
            Self::Other(_) | Self::Nothing(_) | Self::Redirect { .. } => Ok(()),
        }
    }

    /// Returns Sidestep's counters of each ingress port, or `None` if it does not run.
    fn tallies(&self) -> Result<Vec<Tally>, Error> {
        match self {
            Self::Router(_, standing) => standing.tallies(),
            Self::Other(_) | Self::Nothing(_) | Self::Redirect { .. } => Ok(Vec::new()),
        }
    }
}

/// A verified path, with a generator and a receiver at its ends.
pub struct Measured {
    // Rust drops fields in this order: receiver and generator are dropped before their ports.
    driver: Option<Local>,
    /// Hook of the receiver.
    sink: Hook,
    path: Path,
    /// Behaviors whose frames are sent, each with its share of the stream.
    stream: Vec<(Behavior, u32)>,
    flows: Flows,
    /// The CPUs of the generators.
    cores: Vec<usize>,
    options: Options,
}

impl Measured {
    /// Creates the generator and the receiver. Short trials select the hook with the highest rate
    /// for the receiver.
    ///
    /// # Errors
    /// The frames cannot be sent, nothing can be attached, or no packet arrives.
    pub fn new(
        path: Path,
        stream: Vec<(Behavior, u32)>,
        case: &Case,
        options: &Options,
    ) -> Result<Self, Error> {
        let mut measured = Self {
            driver: None,
            sink: Hook::Xdp,
            path,
            stream,
            flows: case.flows,
            cores: options.cores(case).map_err(Error::Usage)?,
            options: options.clone(),
        };
        let hooks = if measured.own_sink() {
            // A polling thread delivers frames to XDP.
            &[Hook::Xdp]
        } else {
            measured.path.hooks()
        };
        let mut best = (hooks[0], 0.0);
        for hook in hooks.iter().skip(usize::from(hooks.len() == 1)) {
            measured.receive_at(*hook)?;
            for _ in 0..TRIES {
                let tried = measured.trial(Load::Maximum, TRIED, false)?.received_rate();
                if tried > best.1 {
                    best = (*hook, tried);
                }
            }
        }
        measured.receive_at(best.0)?;
        Ok(measured)
    }

    fn receive_at(&mut self, hook: Hook) -> Result<(), Error> {
        // Detach the old driver first: a port has only one receiver.
        self.driver = None;
        let network = self.path.network();
        let streams = (0..self.cores.len()).map(|core| self.frames(core as u32));
        let streams = streams.collect::<Result<Vec<_>, Error>>()?;
        let cpus = self.cores.iter().copied();
        let streams: Vec<_> = streams.iter().zip(cpus).collect();
        let generator = network.generator()?;
        let source = LiveFrames::on_cpus(generator, PORT, &streams)?;
        let receiver = Receiver::attach(network.sink()?, PORT, hook)?;
        self.sink = hook;
        let interrupt = Interrupt::from(Arc::clone(&self.options.interrupted));
        self.driver = Some(Local::new(source, receiver).interrupted_by(interrupt));
        // The sink's port has NAPI only after the receiver is attached.
        self.thread()
    }

    /// Stream of one core's generator.
    fn frames(&self, core: u32) -> Result<Stream, Error> {
        let distribution = match self.flows {
            Flows::Uniform(_) => Distribution::Uniform,
            Flows::Zipf(_) => Distribution::Zipf,
        };
        let templates = self.stream.iter().map(|(behavior, share)| {
            let flows = traffic::Flows {
                count: self.flows.count(),
                offset: behavior.udp_at,
                checksum: Some(behavior.udp_at + 6),
            };
            let all = Template::new(&behavior.sent, flows)?;
            Ok((all.part(core, self.cores.len() as u32)?, *share))
        });
        let templates: Vec<_> = templates.collect::<Result<_, Error>>()?;
        Stream::new(&templates, distribution)
    }

    /// Whether a separate NAPI thread polls the sink's port.
    fn own_sink(&self) -> bool {
        let placement = self.options.placement;
        match self.path {
            Path::Nothing(_) => placement.sink != placement.generator,
            _ => placement.sink != placement.system,
        }
    }

    /// Returns the ports with separate NAPI threads, and the CPU of each. These ports receive
    /// packets from another CPU.
    fn polled(&self) -> Result<Vec<(&Namespace, &'static str, usize)>, Error> {
        let (network, placement) = (self.path.network(), self.options.placement);
        let mut polled = Vec::new();
        if !matches!(self.path, Path::Nothing(_)) && placement.system != placement.generator {
            polled.push((network.router()?, PORTS[0], placement.system));
        }
        if self.own_sink() {
            polled.push((network.sink()?, PORT, placement.sink));
        }
        Ok(polled)
    }

    fn thread(&self) -> Result<(), Error> {
        let mut polled = self.polled()?.into_iter();
        polled.try_for_each(|(namespace, ifname, _)| napi::thread(namespace, ifname))
    }

    /// Pins the NAPI threads before each trial, because attaching a program creates new ones.
    fn pin(&self) -> Result<(), Error> {
        let mut polled = self.polled()?.into_iter();
        polled.try_for_each(|(namespace, ifname, cpu)| napi::pin(namespace, ifname, cpu))
    }

    /// Checks that the received packets have the expected length.
    fn check_lengths(&self, arrivals: &Arrivals) -> Result<(), Error> {
        let lengths = self.stream.iter();
        let lengths = lengths.map(|(behavior, _)| self.path.expected(behavior).len() as u64);
        let (least, most) = lengths.fold((u64::MAX, 0), |(least, most), length| {
            (least.min(length), most.max(length))
        });
        let (packets, bytes) = (arrivals.packets, arrivals.bytes);
        if (packets * least..=packets * most).contains(&bytes) {
            return Ok(());
        }
        Err(Error::Wrong(format!(
            "{packets} packets with {bytes} bytes in total arrived; each must have {least} to {most} bytes"
        )))
    }
}

impl Standing for Measured {
    fn trial(&mut self, load: Load, duration: Duration, latency: bool) -> Result<Trial, Error> {
        self.options.check()?;
        self.path.ready(&self.stream[0].0.sent)?;
        self.pin()?;
        let before = self.path.tallies()?;
        let driver = self.driver.as_mut();
        let driver = driver.ok_or_else(|| Error::Usage("nothing receives yet".into()))?;
        let trial = driver.trial(load, duration, latency)?;
        let arrivals = driver.arrivals().clone();
        self.check_lengths(&arrivals)?;
        let ports = self.path.network().ways_in();
        check_forwarded(ports, &before, &self.path.tallies()?)?;
        Ok(trial)
    }

    fn sink(&self) -> Option<Hook> {
        Some(self.sink)
    }

    fn count_at(&mut self, sink: Hook) -> Result<(), Error> {
        self.receive_at(sink)
    }
}

/// Duration and number of the trials per hook of the sink. Several trials reduce the influence of
/// disturbances by the host.
const TRIED: Duration = Duration::from_millis(20);
const TRIES: usize = 3;

const ETHERNET: usize = 14;
