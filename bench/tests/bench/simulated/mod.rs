//! Simulated systems and generators with known results. They send no packets and have a simulated
//! clock.

pub mod campaign;
pub mod engine;

use std::convert::Infallible;
use std::time::Duration;

use sidestep_testkit::random::Random;
use sidestep_testkit::traffic::trial::{Disorder, Load, Trial};

/// A system behind a generator.
pub struct Simulated {
    /// Capacity in packets per second, at a time in seconds since the first trial.
    pub capacity: Box<dyn Fn(f64) -> f64>,
    /// Number of packets that it buffers and forwards after the trial.
    pub buffer: f64,
    /// Share of packets that it loses at a rate, even below its capacity.
    pub loss: Box<dyn Fn(f64) -> f64>,
    /// Share of disturbed trials, which lose a tenth of the packets.
    pub disturbed: f64,
    /// Share of trials in which the generator stalls and sends half the rate.
    pub held_up: f64,
    /// Standard deviation of its capacity from trial to trial, as a share.
    pub noise: f64,
    /// The most that its generator sends, in packets per second.
    pub generator: f64,
    /// Ratio of the sent to the requested rate.
    pub sends: f64,
    /// Ratio of the reported to the sent packets.
    pub says: f64,
    /// Seconds since the first trial.
    pub now: f64,
    /// Requested rates in order; infinite for the highest load.
    pub asked: Vec<f64>,
    /// Source of randomness.
    pub random: Random,
}

impl Simulated {
    /// A faultless system with this capacity in packets per second.
    pub fn of(capacity: f64) -> Self {
        Self {
            capacity: Box::new(move |_| capacity),
            buffer: 0.0,
            loss: Box::new(|_| 0.0),
            disturbed: 0.0,
            held_up: 0.0,
            noise: 0.0,
            generator: f64::INFINITY,
            sends: 1.0,
            says: 1.0,
            now: 0.0,
            asked: Vec::new(),
            random: Random::new(1),
        }
    }

    /// Sets the seed.
    pub fn seeded(self, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            ..self
        }
    }

    /// The callback of `search`.
    #[allow(clippy::unnecessary_wraps, reason = "as the search wants it")]
    pub fn measure(&mut self, duration: Duration, load: Load) -> Result<Trial, Infallible> {
        let seconds = duration.as_secs_f64();
        let rate = match load {
            Load::Maximum => f64::INFINITY,
            Load::Rate(rate) => rate * self.sends,
        };
        self.asked.push(match load {
            Load::Maximum => f64::INFINITY,
            Load::Rate(rate) => rate,
        });
        let mut rate = rate.min(self.generator);
        if self.held_up > 0.0 && self.uniform() < self.held_up {
            rate /= 2.0;
        }
        let sent = (rate * seconds).round();
        let capacity = (self.capacity)(self.now) * (1.0 + self.noise * self.normal());
        let mut received = sent.min(capacity * seconds + self.buffer);
        received *= 1.0 - (self.loss)(rate);
        if self.uniform() < self.disturbed {
            received *= 0.9;
        }
        self.now += seconds;
        Ok(Trial {
            load,
            seconds,
            sent: (sent * self.says).round() as u64,
            received: received.floor() as u64,
            disorder: Disorder::default(),
            latency: None,
        })
    }

    fn uniform(&mut self) -> f64 {
        self.random.below(1 << 20) as f64 / f64::from(1 << 20)
    }

    /// Returns a normally distributed number with mean 0 and standard deviation 1: a sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
