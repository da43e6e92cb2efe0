//! Rounds: each data plane in turn, a window each, all over again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Error;
use super::series::{Round, Series};
use crate::engine::behavior::{Behavior, Service};
use crate::engine::network::{Network, PORT, PORTS};
use crate::engine::plane::{Plane, Standing};
use crate::engine::product::Sidestep;
use crate::engine::verify::{exchange, verify};
use crate::program::Interrupt;
use crate::traffic::{Generator, Hook, Napi, Rate, Redirect, Sink, Template};

/// How to measure.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The program.
    pub sidestep: &'a Sidestep,
    /// Looked at between two windows.
    pub interrupt: &'a Interrupt,
    /// Length of a window.
    pub window: Duration,
    /// At least 1.
    pub rounds: usize,
    /// The CPU of generator, router and sink.
    pub cpu: usize,
}

/// The figures of one behavior.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was measured.
    pub behavior: Behavior,
    /// Of [`Plane::ALL`], in that order.
    pub planes: [Series; 3],
}

/// What no data plane can exceed.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What is between generator and sink.
    pub name: &'static str,
    /// Its rates.
    pub series: Series,
}

/// What is between generator and sink where no data plane is.
#[derive(Clone, Copy, Debug)]
enum Between<'a> {
    Nothing,
    /// In the router, with this header.
    Redirect(&'a [u8]),
    /// In the router, there and back.
    Service(Service),
}

impl Bench<'_> {
    /// Measures a behavior: Linux, Sidestep in TC and in XDP, the order rotated from round to round. The first time,
    /// each sends one packet that is compared with what it has to be, and the better hook of the sink is found.
    ///
    /// # Errors
    /// A packet is not what it has to be, or not Sidestep forwarded the packets.
    pub fn behavior(&self, behavior: &Behavior) -> Result<Row, Error> {
        let network = Arc::new(Network::routed(behavior)?);
        let mut planes = Plane::ALL.map(|plane| Series::new(plane.hooks()[0]));
        for round in 0..self.rounds {
            for turn in 0..planes.len() {
                self.interrupt.check()?;
                let index = (round + turn) % planes.len();
                let (plane, series) = (Plane::ALL[index], &mut planes[index]);
                let standing = plane.set_up(&network, self.sidestep, behavior)?;
                if round > 0 {
                    series.push(self.round(plane, &standing, behavior, series.hook)?);
                    continue;
                }
                verify(plane, &standing, behavior)?;
                for hook in plane.hooks() {
                    let mut tried = Series::new(*hook);
                    tried.push(self.round(plane, &standing, behavior, *hook)?);
                    if series.rates.is_empty() || tried.median() > series.median() {
                        *series = tried;
                    }
                }
            }
        }
        Ok(Row {
            behavior: behavior.clone(),
            planes,
        })
    }

    /// Measures the limits: nothing between generator and sink, and a bare redirect in the router, of the frame of
    /// `plain`; with the bytes pushed that stand in front of the inner packet in the frame of `encapsulated`; and to a
    /// service and back.
    ///
    /// # Errors
    /// Another packet comes out than has to.
    pub fn limits(&self, plain: &Behavior, encapsulated: &Behavior) -> Result<Vec<Limit>, Error> {
        let nothing = Behavior::default();
        let (bare, routed) = (Network::bare(1)?, Network::routed(&nothing)?);
        let served = Arc::new(Network::routed(&Behavior {
            service: Some(Service::Kernel),
            ..nothing
        })?);
        let macs = &plain.from_linux[..ETHERNET];
        let pushed = &encapsulated.from_sidestep[..ETHERNET + Redirect::PUSH];
        let behind = &plain.sent[ETHERNET..];
        let paths = [
            (
                "generator to sink, nothing between",
                Between::Nothing,
                plain.sent.clone(),
            ),
            (
                "bare XDP redirect, constant MACs",
                Between::Redirect(macs),
                [macs, behind].concat(),
            ),
            (
                "bare XDP redirect, 64 bytes pushed",
                Between::Redirect(pushed),
                [pushed, behind].concat(),
            ),
            // The kernel of the service decrements the hop limit, as it would in a router.
            (
                "bare XDP redirects, VNF between",
                Between::Service(Service::Kernel),
                plain.from_linux.clone(),
            ),
            (
                "bare XDP redirects, VNF in XDP",
                Between::Service(Service::Xdp),
                [macs, behind].concat(),
            ),
        ];
        let mut limits: Vec<Limit> = paths
            .iter()
            .map(|(name, ..)| Limit {
                name,
                series: Series::new(Hook::Xdp),
            })
            .collect();
        for round in 0..self.rounds {
            for ((name, between, out), limit) in paths.iter().zip(&mut limits) {
                self.interrupt.check()?;
                let (mut redirect, mut standing) = (None, None);
                let network = match between {
                    Between::Nothing => &bare,
                    Between::Redirect(header) => {
                        let [ingress, egress] = PORTS;
                        redirect =
                            Some(Redirect::attach(routed.router()?, ingress, egress, header)?);
                        &routed
                    }
                    Between::Service(service) => {
                        standing = Some(Standing::redirecting(&served, *service)?);
                        &served
                    }
                };
                if round == 0 {
                    let _napi = Napi::attach(network.sink()?, PORT)?;
                    if exchange(network, &plain.sent)?.as_ref() != Some(out) {
                        return Err(Error::Wrong(format!("{name}: another packet comes out")));
                    }
                }
                let sink = Sink::attach_at(network.sink()?, PORT, limit.series.hook)?;
                let (rate, _) = self.flood(network, &plain.sent, &sink)?;
                drop((redirect, standing));
                limit.series.push(Round {
                    rate: rate.packets_per_second(),
                    lost: 0.0,
                });
            }
        }
        Ok(limits)
    }

    /// One window, with what must be true of it.
    fn round(
        &self,
        plane: Plane,
        standing: &Standing,
        behavior: &Behavior,
        hook: Hook,
    ) -> Result<Round, Error> {
        let network = standing.network();
        let wrong =
            |what: String| Error::Wrong(format!("{} on {}: {what}", behavior.name, plane.name()));
        let sink = Sink::attach_at(network.sink()?, PORT, hook)?;
        standing
            .ready(&behavior.sent)
            .map_err(|error| wrong(error.to_string()))?;
        let before = standing.tallies()?;
        let (rate, arrived) = self.flood(network, &behavior.sent, &sink)?;
        let after = standing.tallies()?;
        let length = rate.counts.bytes as f64 / rate.counts.packets as f64;
        let expected = plane.expected(behavior).len() as f64;
        if (length / expected - 1.0).abs() > STRANGERS {
            return Err(wrong(format!(
                "frames of {length:.1} bytes arrive, not of {expected}"
            )));
        }
        let mut lost: f64 = 0.0;
        if let Some(sidestep) = standing.running() {
            for ((before, after), port) in before.iter().zip(&after).zip(network.ways_in()) {
                let received = (after.received - before.received) as f64;
                let forwarded = (after.forwarded - before.forwarded) as f64;
                if forwarded < received * (1.0 - STRANGERS) {
                    return Err(wrong(format!(
                        "of {received} packets received by {port}, Sidestep forwarded {forwarded}\n{}",
                        sidestep.reasons()
                    )));
                }
                lost = lost.max(1.0 - arrived as f64 / forwarded);
            }
        }
        Ok(Round {
            rate: rate.packets_per_second(),
            lost,
        })
    }

    /// The rate in one window, and all that arrives from the generator's start to its end.
    fn flood(&self, network: &Network, frame: &[u8], sink: &Sink) -> Result<(Rate, u64), Error> {
        let before = sink.count()?;
        let template = Template::one_flow(frame)?;
        let generator = Generator::start(network.generator()?, PORT, &template, self.cpu)?;
        let started = Instant::now();
        while sink.watch(WARM_UP)?.counts.packets == 0 && started.elapsed() < PATIENCE {
            self.interrupt.check()?;
        }
        let rate = sink.watch(self.window)?;
        generator.stop()?;
        if rate.counts.packets == 0 {
            return Err(Error::Wrong("no packet arrives at the sink".into()));
        }
        Ok((rate, sink.count()?.packets - before.packets))
    }
}

/// The part of the packets that may be others than the generator's: neighbor discovery and the like.
const STRANGERS: f64 = 0.001;

/// Caches and the frequency of the CPU settle.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long the first packet may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

const ETHERNET: usize = 14;
