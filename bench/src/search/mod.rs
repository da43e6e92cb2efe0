//! Search for the highest rate without loss, or with little loss: the algorithm of `SRPerf`
//! (Abdelsalam et al., "`SRPerf`: a Performance Evaluation Framework for IPv6 Segment Routing",
//! 2020), and measurement of the received rate at the highest load.
//!
//! The sending rate doubles from a start rate until packets are lost or the line rate is reached.
//! Then the search bisects between the highest passing rate and the lowest failing rate above it. A
//! rate passes if the share of lost packets is at most beta. With beta 0 the result is the No Drop
//! Rate, otherwise a Partial Drop Rate.
//!
//! The search knows only `measure(duration, load)`: no clock, no system, no generator. Extensions
//! of the published algorithm:
//!
//! - Both ends of the last interval are measured again. If the repetition differs, the first result
//!   was chance and the search continues from there. A disturbed trial costs time, not accuracy.
//! - A generator that does not reach the requested rate bounds the search, and the result states
//!   that. Rates are offered rates, not requested rates.
//! - It ends after [`VERDICTS_MAX`] verdicts, whatever the system does.
//! - On a noisy machine, several short trials can judge each rate, and some of them may exceed
//!   beta: the Goal Exceed Ratio of RFC 9971 (`MLRsearch`). See [`Parameters::judged_by`].

mod history;
mod verdict;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidestep_testkit::traffic::trial::{Load, Trial};

use history::{History, Next};
use verdict::Verdict;

/// LIMIT: verdicts on rates in a search. Each verdict takes one trial, or more with
/// [`Parameters::judged_by`]. An undisturbed search takes about 20.
pub const VERDICTS_MAX: usize = 64;

/// Relative deviation of the offered from the requested rate that is not reported.
pub const PACING: f64 = 0.02;

/// Parameters of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    start: f64,
    line: Option<f64>,
    beta: f64,
    epsilon: f64,
    trial: Duration,
    trials: u32,
    exceed: f64,
}

/// Error: an invalid parameter, with the allowed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The start rate.
    #[error("start: a rate of at least 1 packet/s, not above the line rate")]
    Start,
    /// The line rate.
    #[error("line: a rate of at least 1 packet/s")]
    Line,
    /// Beta.
    #[error("beta: a share of the packets, from 0 to below 1")]
    Beta,
    /// Epsilon.
    #[error("epsilon: a share of the rate, from 0.0001 to 0.5")]
    Epsilon,
    /// The length of a trial.
    #[error("trial: from 1 ms to 1 h")]
    Trial,
    /// The trial is too short for the start rate and beta.
    #[error("trial: at least 100 packets, and 1 / beta, at the start rate")]
    Short,
    /// Number of trials that judge a rate.
    #[error("trials: from 1 to 1000, which together take no more than 24 h")]
    Trials,
    /// Share of trials that may lose more.
    #[error("exceed: a share of the trials, from 0 to 0.5, that is at least one of them")]
    Exceed,
}

impl Parameters {
    /// Rates are in packets per second. `line` is the highest requested rate. Without it, the rate
    /// rises until packets are lost or the generator is saturated. `beta` is the highest share of
    /// lost packets that passes. `epsilon` is the allowed width of the last interval, as a share of
    /// its upper end (in `SRPerf` of the line rate, which a virtual link does not have).
    ///
    /// # Errors
    /// The invalid parameter.
    pub fn new(
        start: f64,
        line: Option<f64>,
        beta: f64,
        epsilon: f64,
        trial: Duration,
    ) -> Result<Self, Wrong> {
        if line.is_some_and(|line| !(1.0..=RATE_MAX).contains(&line)) {
            return Err(Wrong::Line);
        }
        if !(1.0..=line.unwrap_or(RATE_MAX)).contains(&start) {
            return Err(Wrong::Start);
        }
        if !(0.0..1.0).contains(&beta) {
            return Err(Wrong::Beta);
        }
        if !(0.0001..=0.5).contains(&epsilon) {
            return Err(Wrong::Epsilon);
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&trial) {
            return Err(Wrong::Trial);
        }
        let parameters = Self {
            start,
            line,
            beta,
            epsilon,
            trial,
            trials: 1,
            exceed: 0.0,
        };
        // Report 0 if even the lowest measurable rate loses packets. That rate is at most the start
        // rate. A trial has whole nanoseconds.
        if parameters.floor() as f64 > start + 1.0 {
            return Err(Wrong::Short);
        }
        Ok(parameters)
    }

    /// Judges each rate by `trials` trials; a share of `exceed` may lose more than beta. In RFC
    /// 9971, the total duration is the Goal Duration Sum, and `exceed` the Goal Exceed Ratio.
    /// Occasional disturbances of short trials, such as steal time of milliseconds, then do not
    /// affect the result.
    ///
    /// # Errors
    /// The invalid parameter.
    pub fn judged_by(self, trials: u32, exceed: f64) -> Result<Self, Wrong> {
        if !(1..=1000).contains(&trials) || self.trial * trials > SUM_MAX {
            return Err(Wrong::Trials);
        }
        let judged = Self {
            trials,
            exceed,
            ..self
        };
        let has_effect = exceed.to_bits() == 0 || judged.may_exceed() > 0;
        if !(0.0..=0.5).contains(&exceed) || !has_effect {
            return Err(Wrong::Exceed);
        }
        Ok(judged)
    }

    /// The rate that is tried first, in packets per second.
    pub fn start(&self) -> f64 {
        self.start
    }

    /// The highest requested rate in packets per second. `None` for no limit.
    pub fn line(&self) -> Option<f64> {
        self.line
    }

    /// The highest share of lost packets that passes.
    pub fn beta(&self) -> f64 {
        self.beta
    }

    /// Returns the allowed width of the last interval, as a share of its upper end.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// Length of a trial.
    pub fn trial(&self) -> Duration {
        self.trial
    }

    /// Number of trials that judge a rate.
    pub fn trials(&self) -> u32 {
        self.trials
    }

    /// The share of them that may lose more than beta.
    pub fn exceed(&self) -> f64 {
        self.exceed
    }

    /// Returns the number of trials that may lose more than beta.
    pub fn may_exceed(&self) -> u32 {
        (self.exceed * f64::from(self.trials)).floor() as u32
    }

    /// Returns the total duration of all trials that judge a rate.
    pub fn duration_sum(&self) -> Duration {
        self.trial * self.trials
    }

    /// The lowest measurable rate in packets per second. Below it, a single packet exceeds beta.
    fn floor(&self) -> u64 {
        (packets_min(self.beta) / self.trial.as_secs_f64()).ceil() as u64
    }

    /// Returns true if this number of packets passed.
    fn passes(&self, trial: &Trial) -> bool {
        let lost = trial.sent.saturating_sub(trial.received);
        lost as f64 <= self.beta * trial.sent as f64
    }
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Sent packets per second at the highest passing rate; 0 if no rate passed.
    pub rate: f64,
    /// Share of these packets that arrived, 0 to 1. With several trials per rate, only trials that
    /// lost at most beta count.
    pub delivery_ratio: f64,
    /// Reason why the rate is not higher.
    pub bound: Bound,
    /// Whether repeated trials confirmed both ends of the interval.
    pub settled: bool,
    /// Number of verdicts that a repetition reversed. Each of them was chance, and misled the
    /// search until then.
    #[serde(default)]
    pub reversed: u32,
    /// Largest relative deviation of the offered from the requested rate, for rates up to the
    /// result. Negative if it sent less. A deviation within [`PACING`] is normal.
    pub pacing: f64,
}

/// Bound of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// At higher rates, more packets are lost than beta allows.
    Loss,
    /// The line rate: the system may be faster.
    Line,
    /// The generator cannot send more: the system may be faster.
    Generator,
    /// Even the lowest rate that a trial of this length can measure loses packets.
    Floor,
    /// [`VERDICTS_MAX`] verdicts were not enough.
    Trials,
}

/// Reason why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// A trial failed.
    #[error(transparent)]
    Measure(E),
    /// The generator sent no packets, in two trials.
    #[error("the generator sent nothing at {asked} packets/s")]
    Nothing {
        /// Requested rate in packets per second.
        asked: u64,
    },
    /// More packets arrived than were sent, in two trials: one of the two counts is wrong.
    #[error(
        "{received} packets arrived of {sent} sent at {asked} packets/s: the generator or the receiver counts wrongly"
    )]
    Surplus {
        /// Requested rate in packets per second.
        asked: u64,
        /// Packets.
        sent: u64,
        /// Packets.
        received: u64,
    },
}

/// Runs a search. `measure` runs each trial in order, including trials that the search rejects and
/// repeats.
///
/// # Errors
/// A trial fails, or the generator or the receiver does not count right.
pub fn search<E: std::error::Error + 'static>(
    parameters: &Parameters,
    mut measure: impl FnMut(Duration, Load) -> Result<Trial, E>,
) -> Result<Found, Error<E>> {
    let mut history = History::new(parameters);
    for _ in 0..VERDICTS_MAX {
        match history.next() {
            Next::Ask(rate) => {
                let mut verdict = Verdict::new(parameters);
                let (passed, trial) = loop {
                    let trial = believable(parameters, rate, &mut measure)?;
                    if let Some(decided) = verdict.add(&trial) {
                        break decided;
                    }
                };
                history.add(rate, passed, &trial);
            }
            Next::Done(bound) => return Ok(history.found(bound, true)),
        }
    }
    Ok(match history.next() {
        Next::Done(bound) => history.found(bound, true),
        Next::Ask(_) => history.found(Bound::Trials, false),
    })
}

/// Runs a trial, and repeats it if its counts are impossible.
fn believable<E: std::error::Error + 'static>(
    parameters: &Parameters,
    asked: u64,
    measure: &mut impl FnMut(Duration, Load) -> Result<Trial, E>,
) -> Result<Trial, Error<E>> {
    let mut attempt = || {
        let load = Load::Rate(asked as f64);
        measure(parameters.trial, load).map_err(Error::Measure)
    };
    let believed = |trial: &Trial| trial.sent > 0 && trial.received <= trial.sent;
    let first = attempt()?;
    if believed(&first) {
        return Ok(first);
    }
    let Trial { sent, received, .. } = match attempt()? {
        second if believed(&second) => return Ok(second),
        second => second,
    };
    Err(match sent {
        0 => Error::Nothing { asked },
        _ => Error::Surplus {
            asked,
            sent,
            received,
        },
    })
}

/// Minimum number of packets of a trial that can detect a loss of more than `beta`.
pub fn packets_min(beta: f64) -> f64 {
    if beta > 0.0 {
        PACKETS_MIN.max(1.0 / beta)
    } else {
        PACKETS_MIN
    }
}

/// LIMIT: highest requested rate, one packet per nanosecond.
pub const RATE_MAX: f64 = 1e9;

/// Longest total duration of the trials at one rate, and therefore of a single trial.
const SUM_MAX: Duration = Duration::from_secs(24 * 3600);

/// Minimum number of packets in a trial that can judge a rate.
const PACKETS_MIN: f64 = 100.0;
