//! Systems and generators whose answers are known: no packet is sent, no time passes but their own.

pub mod campaign;
pub mod engine;

use std::convert::Infallible;
use std::time::Duration;

use sidestep_bench::traffic::trial::{Disorder, Load, Trial};
use sidestep_testkit::random::Random;

/// A system behind a generator.
pub struct Simulated {
    /// Packets per second that it takes, at a time in seconds since the first trial.
    pub capacity: Box<dyn Fn(f64) -> f64>,
    /// Packets that it holds back and sends on after the trial.
    pub buffer: f64,
    /// Share of packets that it loses at a rate, however little is sent.
    pub loss: Box<dyn Fn(f64) -> f64>,
    /// Share of disturbed trials, which lose a tenth.
    pub disturbed: f64,
    /// Share of trials in which the generator stalls and sends half the rate.
    pub held_up: f64,
    /// Standard deviation of its capacity from trial to trial, as a share.
    pub noise: f64,
    /// The most that its generator sends, in packets per second.
    pub generator: f64,
    /// Ratio of the sent to the requested rate.
    pub sends: f64,
    /// How many times as much as it has sent it says.
    pub says: f64,
    /// Seconds since the first trial.
    pub now: f64,
    /// Rates asked for, in order; infinite for the highest load.
    pub asked: Vec<f64>,
    /// Its chances.
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

    /// The same with other chances.
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

    /// Mean 0, standard deviation 1: the sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
