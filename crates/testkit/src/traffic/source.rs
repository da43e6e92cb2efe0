//! Packet sources: stamped packets at a given rate for a given time.

use std::thread;
use std::time::{Duration, Instant};

use super::interrupt::Interrupt;
use super::program::{Program, State};
use super::run::{BATCH, Run};
use super::stream::Stream;
use super::trial::Load;
use crate::netns::Handle;
use crate::{Error, Namespace};

/// Load to offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Trial number in the stamps, from [`super::Receiver::begin`]. With several generators, it is
    /// the number of the first one, and the others use the next numbers.
    pub trial: u16,
    /// Offered load.
    pub load: Load,
    /// Duration of the trial.
    pub duration: Duration,
    /// Whether stamps contain the time of creation.
    pub timed: bool,
}

/// Offered load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offered {
    /// Sent packets. Packets that missed their time are not included.
    pub sent: u64,
    /// Duration of sending in seconds. All generators start at the same time.
    pub seconds: f64,
}

/// XDP live frames (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18), paced by
/// the BPF program that generates them.
///
/// The other end of a veth must take XDP redirects: a [`super::Receiver`] or
/// [`crate::Napi`], any XDP program, or GRO. Packets that do not fit the ring are lost
/// on the path, as on a network card with a full queue.
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

    /// Prepares to send several streams at once, each from a thread pinned to its own CPU, with
    /// equal shares of the load. With as many queues on a veth, each CPU also runs the path behind
    /// its queue.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn on_cpus(
        namespace: &Namespace,
        ifname: &str,
        streams: &[(&Stream, usize)],
    ) -> Result<Self, Error> {
        let ifindex = namespace.ifindex(ifname)?;
        let mut senders: Vec<Sender> = Vec::new();
        for (stream, cpu) in streams {
            let first = senders.first().map(|sender| &sender.program);
            let program = Program::of_stream(stream, ifindex, first)?;
            senders.push(Sender { program, cpu: *cpu });
        }
        Ok(Self {
            senders,
            namespace: namespace.handle(),
        })
    }

    fn states(&self) -> Result<Vec<State>, Error> {
        let senders = self.senders.iter();
        senders.map(|it| it.program.state()).collect()
    }

    /// Number of generators. Each counts its packets by itself.
    pub fn generators(&self) -> u16 {
        self.senders.len() as u16
    }

    /// Offers a load, and returns when all packets are sent.
    ///
    /// # Errors
    /// The rate is not above 0, the duration is 0, the kernel refuses to send, or a signal
    /// interrupts it.
    pub fn offer(
        &mut self,
        offer: &Offer,
        interrupt: Option<&Interrupt>,
    ) -> Result<Offered, Error> {
        let duration = nanoseconds(offer.duration)?;
        let interval = pace_interval(share(offer.load, self.senders.len()))?;
        let generators = self.senders.len() as u32;
        for (number, sender) in (0u16..).zip(&mut self.senders) {
            sender.program.set(&State {
                duration,
                interval,
                trial: offer.trial.wrapping_add(number).into(),
                timed: offer.timed.into(),
                generators,
                number: number.into(),
                ..State::default()
            })?;
        }
        if let Some(first) = self.senders.first_mut() {
            first.program.close_gate()?;
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
            // A failed run never ends, so do not wait for it.
            let failed = runs.iter().any(|run| !run.is_running());
            if failed || states.iter().all(|state| state.ended > 0) {
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
        // All generators share one time window. If a generator loses its CPU and ends late, it has
        // sent nothing after the window.
        Ok(Offered {
            sent: states.iter().map(|state| state.made).sum(),
            seconds: offer.duration.as_secs_f64(),
        })
    }
}

/// Returns the share of a load for each of this number of generators.
fn share(load: Load, generators: usize) -> Load {
    match load {
        Load::Maximum => Load::Maximum,
        Load::Rate(rate) => Load::Rate(rate / generators as f64),
    }
}

/// Returns the time between two packets in ns * 2^16, or 0 for [`Load::Maximum`]. At 1 Gpps the
/// rate is exact to 1.5e-5, and to less below that.
pub fn pace_interval(load: Load) -> Result<u64, Error> {
    match load {
        Load::Maximum => Ok(0),
        // Use at least one unit, because 0 means no pacing.
        Load::Rate(rate) if rate.is_finite() && rate > 0.0 => {
            Ok((1e9 / rate * 65536.0).round().max(1.0) as u64)
        }
        Load::Rate(rate) => Err(Error::Usage(format!(
            "a rate of {rate} packets per second; it has to be above 0"
        ))),
    }
}

/// Returns the duration of a trial in nanoseconds.
pub fn nanoseconds(duration: Duration) -> Result<u64, Error> {
    let nanoseconds = duration.as_nanos();
    if (1..=DURATION_MAX.as_nanos()).contains(&nanoseconds) {
        return Ok(nanoseconds as u64);
    }
    Err(Error::Usage(format!(
        "a trial of {duration:?}; allowed are more than 0 and at most {DURATION_MAX:?}"
    )))
}

/// Returns true if it must end.
pub fn check(interrupt: Option<&Interrupt>) -> Result<(), Error> {
    match interrupt.map(Interrupt::check) {
        Some(Err(_)) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// Batch size for latency measurements at a given rate. A packet waits until its batch is full,
/// also during runs in which no packet is due. [`BATCH`] frames would add 3 us on average to the
/// measured latency. A smaller batch than this would prevent batching in the path.
const BATCH_TIMED: u32 = 16;
/// LIMIT: number of distinct stamps.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// Interval of checks for the end of a run or a signal.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_LEAST: Duration = Duration::from_millis(1);
/// Additional time that a run may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::two_cpus_or_skip;
    use crate::traffic::{Flows, Hook, Receiver, Template};
    use crate::{Lab, root_or_skip};

    /// Creates two nodes whose link has a queue for each of two CPUs. Returns `None` on a machine
    /// with one CPU.
    fn two_cpus() -> Option<Lab> {
        let there = root_or_skip() && two_cpus_or_skip();
        there.then(|| Lab::pair("gate", 2).expect("two nodes"))
    }

    fn stream() -> Stream {
        let mut frame = vec![0x02; 12];
        frame.extend([0x88, 0xb5]);
        frame.extend([0; 64]);
        Stream::of(Template::new(&frame, Flows::ONE).expect("template")).expect("stream")
    }

    #[test]
    fn generators_start_at_the_same_time() {
        let Some(lab) = two_cpus() else {
            return;
        };
        let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
        let _receiver = Receiver::attach(b, "eth0", Hook::Xdp).expect("receiver");
        let stream = stream();
        let mut source =
            LiveFrames::on_cpus(a, "eth0", &[(&stream, 0), (&stream, 1)]).expect("source");
        let duration = Duration::from_millis(50);
        let mut apart = Vec::new();
        for _ in 0..21 {
            let offer = Offer {
                trial: 1,
                load: Load::Maximum,
                duration,
                timed: false,
            };
            let offered = source.offer(&offer, None).expect("offer");
            let states = source.states().expect("states");
            let [one, other] = states[..] else {
                panic!("{states:?}")
            };
            assert_eq!(one.first, other.first, "their time is the same");
            assert!(one.began >= one.first && other.began >= one.first);

            assert!((offered.seconds - duration.as_secs_f64()).abs() < 1e-9);
            apart.push(one.began.abs_diff(other.began));
        }
        apart.sort_unstable();
        assert!(apart[10] < 5_000_000, "ns, the median of {apart:?}");
    }

    #[test]
    fn generators_wait_for_a_late_one_and_then_send_for_the_full_time() {
        let Some(lab) = two_cpus() else {
            return;
        };
        let [a, b] = ["a", "b"].map(|node| lab.namespace(node).expect("node"));
        let _receiver = Receiver::attach(b, "eth0", Hook::Xdp).expect("receiver");
        let (stream, ifindex) = (stream(), a.ifindex("eth0").expect("eth0"));
        let first = Program::of_stream(&stream, ifindex, None).expect("first");
        let late = Program::of_stream(&stream, ifindex, Some(&first)).expect("late");
        let mut programs = [first, late];
        let (duration, rate) = (Duration::from_millis(200), 10_000.0);
        for (number, program) in (0..).zip(&mut programs) {
            let state = State {
                duration: duration.as_nanos() as u64,
                interval: pace_interval(Load::Rate(rate)).expect("a pace"),
                generators: 2,
                number,
                ..State::default()
            };
            program.set(&state).expect("set");
        }
        programs[0].close_gate().expect("closed");
        let run = |at: usize| {
            let (program, frame) = (&programs[at], programs[at].frame().to_owned());
            let descriptor = program.descriptor().expect("descriptor");
            Run::start(descriptor, frame, BATCH, a.handle(), at).expect("run")
        };
        let state = |at: usize| programs[at].state().expect("state");
        let mut runs = vec![run(0)];
        let begun = Instant::now();
        while programs[0].waiting().expect("the gate") == 0 {
            assert!(begun.elapsed() < PATIENCE, "it never ran");
            thread::sleep(LOOK_LEAST);
        }
        // Stall for longer than the trial.
        thread::sleep(duration + LOOK);
        assert_eq!((state(0).made, state(0).first), (0, 0), "it waits");
        runs.push(run(1));
        while state(0).ended == 0 || state(1).ended == 0 {
            assert!(begun.elapsed() < PATIENCE, "they never ended");
            thread::sleep(LOOK);
        }
        runs.iter_mut().try_for_each(Run::stop).expect("stop");
        let states = [state(0), state(1)];
        assert_eq!(states[0].first, states[1].first);
        // CPU time of other threads reduces the number of sent packets, but most packets are sent.
        for state in states {
            assert!((1000..=2001).contains(&state.made), "{state:?}");
            assert!(state.ended - state.first >= state.duration);
        }
    }
}
