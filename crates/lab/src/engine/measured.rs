//! Trials on a path that stands.

use std::thread;
use std::time::{Duration, Instant};

use super::behavior::Behavior;
use super::network::{Network, PORT, PORTS};
use super::plane::{self, Plane};
use super::product::Tally;
use super::verify::exchange;
use super::{Case, Flows, Options, Standing};
use crate::Error;
use crate::hexdiff::diff;
use crate::traffic::{self, Generator, Hook, Load, Napi, Redirect, Sink, Template, Trial};

/// What is between generator and sink.
pub enum Path {
    /// A router whose data plane forwards.
    Router(Plane, plane::Standing),
    /// They are joined.
    Nothing(Network),
    /// A router that sends all that comes by its first port out of its second, while the program is attached.
    Redirect {
        /// What does it.
        _program: Redirect,
        /// Where.
        network: Network,
    },
}

impl Path {
    /// One of engine `none`; one packet has been compared.
    pub fn limit(case: &Case, behavior: &Behavior) -> Result<Self, Error> {
        let path = if case.behavior == "redirect" {
            let network = Network::routed(&Behavior::default())?;
            let [ingress, egress] = PORTS;
            let macs = &behavior.from_linux[..ETHERNET];
            Self::Redirect {
                _program: Redirect::attach(network.router()?, ingress, egress, macs)?,
                network,
            }
        } else {
            Self::Nothing(Network::bare()?)
        };
        let _napi = Napi::attach(path.network().sink()?, PORT)?;
        let found = exchange(path.network(), &behavior.sent)?.unwrap_or_default();
        if found != behavior.from_linux {
            let difference = diff(&behavior.from_linux, &found);
            let what = format!("{case}: another packet comes out\n{difference}");
            return Err(Error::Wrong(what));
        }
        Ok(path)
    }

    fn network(&self) -> &Network {
        match self {
            Self::Router(_, standing) => standing.network(),
            Self::Nothing(network) | Self::Redirect { network, .. } => network,
        }
    }

    fn hooks(&self) -> &'static [Hook] {
        match self {
            Self::Router(plane, _) => plane.hooks(),
            Self::Nothing(_) | Self::Redirect { .. } => &[Hook::Xdp],
        }
    }

    /// Returns when the frame is forwarded by whom it should be.
    fn ready(&self, frame: &[u8]) -> Result<(), Error> {
        match self {
            Self::Router(_, standing) => standing.ready(frame),
            Self::Nothing(_) | Self::Redirect { .. } => Ok(()),
        }
    }

    /// What Sidestep has counted at each port that packets come in by; none if it is not there.
    fn tallies(&self) -> Result<Vec<Tally>, Error> {
        match self {
            Self::Router(_, standing) => standing.tallies(),
            Self::Nothing(_) | Self::Redirect { .. } => Ok(Vec::new()),
        }
    }
}

/// A path that was verified, and its sink.
pub struct Measured {
    // In this order they go: the sink before its port.
    sink: Option<Sink>,
    hook: Hook,
    path: Path,
    stream: Vec<(Behavior, u32)>,
    flows: Flows,
    options: Options,
}

impl Measured {
    /// The sink is put at the hook where packets cost less, which is tried out.
    pub fn new(
        path: Path,
        stream: Vec<(Behavior, u32)>,
        flows: Flows,
        options: &Options,
    ) -> Result<Self, Error> {
        let hooks = path.hooks();
        let mut measured = Self {
            sink: None,
            hook: hooks[0],
            path,
            stream,
            flows,
            options: options.clone(),
        };
        let mut best = 0.0;
        let mut chosen = hooks[0];
        for hook in hooks {
            measured.move_sink(*hook)?;
            if hooks.len() > 1 {
                let tried = measured.trial(Load::Maximum, LOOK, false)?.received_rate();
                if tried > best {
                    (best, chosen) = (tried, *hook);
                }
            }
        }
        measured.move_sink(chosen)?;
        Ok(measured)
    }

    fn move_sink(&mut self, hook: Hook) -> Result<(), Error> {
        if self.sink.is_none() || self.hook != hook {
            // The old one goes first: a port has one.
            self.sink = None;
            self.sink = Some(Sink::attach_at(self.path.network().sink()?, PORT, hook)?);
            self.hook = hook;
        }
        Ok(())
    }

    fn sink(&self) -> Result<&Sink, Error> {
        let sink = self.sink.as_ref();
        sink.ok_or_else(|| Error::Usage("there is no sink".into()))
    }

    /// Packets made, and the time that they took.
    fn offer(&self, behavior: &Behavior, duration: Duration) -> Result<(u64, Duration), Error> {
        let flows = traffic::Flows {
            count: self.flows.count(),
            offset: behavior.udp_at,
            checksum: Some(behavior.udp_at + 6),
        };
        let template = Template::new(&behavior.sent, flows)?;
        let near = self.path.network().generator()?;
        let cpu = self.options.placement.generator;
        let generator = Generator::start(near, PORT, &template, cpu)?;
        let started = Instant::now();
        while let Some(left) = duration.checked_sub(started.elapsed()) {
            self.options.check()?;
            thread::sleep(left.min(LOOK));
        }
        let sent = generator.stop()?;
        Ok((sent, started.elapsed()))
    }

    /// What has arrived since `before`, when all have or no more come.
    fn late(&self, sent: u64, before: u64) -> Result<u64, Error> {
        let started = Instant::now();
        loop {
            let arrived = self.sink()?.count()?.packets - before;
            thread::sleep(QUIET);
            let still = self.sink()?.count()?.packets - before;
            if arrived >= sent || still == arrived || started.elapsed() > LATE {
                return Ok(still);
            }
        }
    }

    /// Sidestep forwarded what it received, not the kernel.
    fn check_forwarded(&self, before: &[Tally]) -> Result<(), Error> {
        let ports = self.path.network().ways_in();
        for ((before, after), port) in before.iter().zip(self.path.tallies()?).zip(ports) {
            let received = after.received - before.received;
            let forwarded = after.forwarded - before.forwarded;
            if (forwarded as f64) < received as f64 * (1.0 - STRANGERS) {
                return Err(Error::Wrong(format!(
                    "of {received} packets received by {port}, Sidestep forwarded {forwarded}"
                )));
            }
        }
        Ok(())
    }
}

impl Standing for Measured {
    fn trial(&mut self, load: Load, duration: Duration, _: bool) -> Result<Trial, Error> {
        let [(behavior, _)] = &self.stream[..] else {
            return Err(Error::Usage(
                "the generator sends packets of one length".into(),
            ));
        };
        if load != Load::Maximum {
            return Err(Error::Usage("the generator sends as fast as it can".into()));
        }
        self.path.ready(&behavior.sent)?;
        let (tallies, before) = (self.path.tallies()?, self.sink()?.count()?.packets);
        let (sent, elapsed) = self.offer(behavior, duration)?;
        let received = self.late(sent, before)?;
        self.check_forwarded(&tallies)?;
        Ok(Trial {
            load,
            seconds: elapsed.as_secs_f64(),
            sent,
            received,
            latency: None,
        })
    }
}

/// The part of the packets that may be others than the generator's: neighbor discovery and the like.
const STRANGERS: f64 = 0.001;
/// How long each hook of the sink is tried, and how long a Ctrl-C may go unseen.
const LOOK: Duration = Duration::from_millis(50);
/// Nothing has come for so long: nothing more comes.
const QUIET: Duration = Duration::from_millis(50);
/// RFC 2544 26.1: how long late packets are waited for.
const LATE: Duration = Duration::from_secs(2);

const ETHERNET: usize = 14;
