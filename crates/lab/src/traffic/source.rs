//! What offers load: so many stamped packets a second, for so long.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::program::{Program, State};
use super::run::{BATCH, Run};
use super::stream::Stream;
use super::trial::Load;
use crate::netns::Handle;
use crate::program::Interrupt;
use crate::{Error, Namespace};

/// What is to be offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// The number that stamps carry: of [`super::Receiver::begin`]. Where several generators send, the first one's; those of the
    /// others follow it.
    pub trial: u16,
    /// How much.
    pub load: Load,
    /// How long.
    pub duration: Duration,
    /// Whether stamps say when the packet was made.
    pub timed: bool,
}

/// What was offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offered {
    /// Packets that have left: what the pace could not keep is not among them.
    pub sent: u64,
    /// Seconds from the first packet to the end.
    pub seconds: f64,
}

/// Something that offers load.
pub trait Source: fmt::Debug {
    /// How many generators it has, each of which counts its packets by itself.
    fn generators(&self) -> u16 {
        1
    }

    /// Offers it, and returns when all is sent.
    ///
    /// # Errors
    /// The rate is not above 0, the duration is 0, the kernel refuses to send, or it was interrupted.
    fn offer(&mut self, offer: &Offer, interrupt: Option<&Interrupt>) -> Result<Offered, Error>;
}

/// XDP live frames (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18), paced by the program that makes them.
///
/// The other end of a veth must take XDP redirects: a [`super::Receiver`] or [`super::Napi`], any XDP program, or GRO. What
/// does not fit the ring there is lost on the path, as on a network card whose queue is full.
#[derive(Debug)]
pub struct LiveFrames {
    senders: Vec<Sender>,
    namespace: Handle,
}

/// A program, and the CPU that it runs on.
#[derive(Debug)]
struct Sender {
    program: Program,
    cpu: usize,
}

impl LiveFrames {
    /// Prepares to send `stream` out of `ifname`, from a thread pinned to `cpu`.
    ///
    /// # Errors
    /// No such interface, or BPF is not allowed.
    pub fn open(
        namespace: &Namespace,
        ifname: &str,
        stream: &Stream,
        cpu: usize,
    ) -> Result<Self, Error> {
        Self::on_cpus(namespace, ifname, &[(stream, cpu)])
    }

    /// Prepares to send several streams at once, each from a thread pinned to a CPU of its own, and each as much as the others. Over
    /// a veth with as many queues the path behind is that CPU's, too.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn on_cpus(
        namespace: &Namespace,
        ifname: &str,
        streams: &[(&Stream, usize)],
    ) -> Result<Self, Error> {
        let ifindex = namespace.ifindex(ifname)?;
        let senders = streams.iter().map(|(stream, cpu)| {
            Ok(Sender {
                program: Program::of_stream(stream, ifindex)?,
                cpu: *cpu,
            })
        });
        Ok(Self {
            senders: senders.collect::<Result<_, Error>>()?,
            namespace: namespace.handle(),
        })
    }

    fn states(&self) -> Result<Vec<State>, Error> {
        let senders = self.senders.iter();
        senders.map(|it| it.program.state()).collect()
    }
}

impl Source for LiveFrames {
    fn generators(&self) -> u16 {
        self.senders.len() as u16
    }

    fn offer(&mut self, offer: &Offer, interrupt: Option<&Interrupt>) -> Result<Offered, Error> {
        let duration = nanoseconds(offer.duration)?;
        let interval = pace_interval(share(offer.load, self.senders.len()))?;
        for (number, sender) in (0..).zip(&mut self.senders) {
            sender.program.set(&State {
                duration,
                interval,
                trial: offer.trial.wrapping_add(number).into(),
                timed: offer.timed.into(),
                ..State::default()
            })?;
        }
        let batch = match offer.load {
            Load::Rate(_) if offer.timed => BATCH_TIMED,
            _ => BATCH,
        };
        let started = Instant::now();
        let runs = self.senders.iter().map(|Sender { program, cpu }| {
            let (descriptor, frame) = (program.descriptor()?, program.frame().to_owned());
            Run::start(descriptor, frame, batch, self.namespace.clone(), *cpu)
        });
        let mut runs = runs.collect::<Result<Vec<_>, Error>>()?;
        loop {
            let states = self.states()?;
            let mut pairs = runs.iter().zip(&states);
            if pairs.all(|(run, state)| state.ended > 0 || !run.is_running()) {
                break;
            }
            let left = offer.duration.saturating_sub(started.elapsed());
            thread::sleep(left.clamp(LOOK_LEAST, LOOK));
            check(interrupt)?;
            if started.elapsed() > offer.duration + PATIENCE {
                return Err(Error::Timeout {
                    what: "the end of the generator's run".into(),
                    milliseconds: (offer.duration + PATIENCE).as_millis(),
                });
            }
        }
        runs.iter_mut().try_for_each(Run::stop)?;
        let states = self.states()?;
        let first = states.iter().map(|state| state.first).min().unwrap_or(0);
        let ended = states.iter().map(|state| state.ended).max().unwrap_or(0);
        Ok(Offered {
            sent: states.iter().map(|state| state.made).sum(),
            seconds: ended.saturating_sub(first) as f64 / 1e9,
        })
    }
}

/// What each of so many generators has to offer of a load.
fn share(load: Load, generators: usize) -> Load {
    match load {
        Load::Maximum => Load::Maximum,
        Load::Rate(rate) => Load::Rate(rate / generators as f64),
    }
}

/// The time between two packets, in ns * 2^16: a rate is exact to 1.5e-5 at 1 Gpps, and better below. 0 at [`Load::Maximum`].
pub(super) fn pace_interval(load: Load) -> Result<u64, Error> {
    match load {
        Load::Maximum => Ok(0),
        // At least one unit: 0 would be no pace at all.
        Load::Rate(rate) if rate.is_finite() && rate > 0.0 => {
            Ok((1e9 / rate * 65536.0).round().max(1.0) as u64)
        }
        Load::Rate(rate) => Err(Error::Usage(format!(
            "a rate of {rate} packets per second; it has to be above 0"
        ))),
    }
}

/// The duration of a trial.
pub(super) fn nanoseconds(duration: Duration) -> Result<u64, Error> {
    let nanoseconds = duration.as_nanos();
    if (1..=DURATION_MAX.as_nanos()).contains(&nanoseconds) {
        return Ok(nanoseconds as u64);
    }
    Err(Error::Usage(format!(
        "a trial of {duration:?}; allowed are more than 0 and at most {DURATION_MAX:?}"
    )))
}

/// Whether somebody wants it to end.
pub(super) fn check(interrupt: Option<&Interrupt>) -> Result<(), Error> {
    match interrupt.map(Interrupt::check) {
        Some(Err(_)) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// Where packets are timed at a rate. A packet waits until its batch is full, and runs in which none is due count too: with
/// [`BATCH`] that is 3 us on average, which would be taken for the path's. Fewer cost the path its own batches.
const BATCH_TIMED: u32 = 16;
/// LIMIT: what stamps can tell apart.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long an end or a signal may go unseen.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_LEAST: Duration = Duration::from_millis(1);
/// How much longer than asked a run may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
