//! Results per rate, and the choice of the next rate. The next step depends only on these results.

use std::collections::BTreeMap;

use sidestep_testkit::traffic::trial::Trial;

use super::{Bound, Found, Parameters, RATE_MAX};

/// Results of the requested rates, by packets per second.
pub struct History {
    start: u64,
    line: u64,
    floor: u64,
    epsilon: f64,
    /// Number of passes required for the result below a losing rate.
    passed_times: u32,
    rates: BTreeMap<u64, Seen>,
    /// Step above the highest passing rate if no higher rate has a result, in packets per second.
    stride: Option<u64>,
    /// Number of contradicting results for a rate.
    reversed: u32,
}

/// Results of a rate.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Whether the last trial passed.
    passed: bool,
    /// Number of equal results in a row. Of passing ones, only those that offered as much as the
    /// best one count.
    times: u32,
    /// Packets per second that the generator sent, in the last trial if it lost packets, or in the
    /// best of the passing trials in a row.
    offered: f64,
    /// Share of these packets that arrived.
    delivery_ratio: f64,
}

/// Next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run a trial at this rate in packets per second.
    Ask(u64),
    /// Stop: the results suffice.
    Done(Bound),
}

impl History {
    pub fn new(parameters: &Parameters) -> Self {
        let floor = parameters.floor();
        let line = parameters.line.unwrap_or(RATE_MAX).floor() as u64;
        // If several trials judge a rate, a pass is not due to chance.
        let passed_times = if parameters.trials == 1 {
            PASSED_TIMES
        } else {
            1
        };
        Self {
            start: (parameters.start.round() as u64).max(floor).min(line),
            line,
            floor,
            epsilon: parameters.epsilon,
            passed_times,
            rates: BTreeMap::new(),
            stride: None,
            reversed: 0,
        }
    }

    /// Records a trial.
    pub fn add(&mut self, asked: u64, passed: bool, trial: &Trial) {
        let before = self.rates.get(&asked).copied();
        let again = before.filter(|seen| seen.passed == passed);
        let seen = Seen {
            passed,
            times: 1,
            offered: trial.sent_rate(),
            delivery_ratio: trial.delivery_ratio(),
        };
        let seen = again.map_or(seen, |again| again.and(seen, self.epsilon));
        self.rates.insert(asked, seen);
        if before.is_some_and(|seen| seen.passed != passed) {
            self.reversed += 1;
        }
        // The upper bound was due to chance. The real bound is higher, probably only a little.
        let recovered = passed && before.is_some_and(|seen| !seen.passed);
        if recovered {
            self.stride = Some(self.width(asked));
        } else if let (true, Some(stride)) = (passed, self.stride) {
            self.stride = Some(stride.saturating_mul(2));
        }
    }

    pub fn next(&self) -> Next {
        match (self.highest_passed(), self.lowest_lost()) {
            (None, None) => Next::Ask(self.start),
            (None, Some((lost, seen))) => self.lower(lost, seen),
            (Some((passed, seen)), None) => self.higher(passed, seen),
            (Some(passed), Some(lost)) => self.between(passed, lost),
        }
    }

    /// No rate passes yet.
    fn lower(&self, lost: u64, seen: Seen) -> Next {
        match lost / 2 {
            half if half >= self.floor => Next::Ask(half),
            // The lowest rate decides the result, so repeat it to exclude chance.
            _ if seen.times < LOST_TIMES => Next::Ask(lost),
            _ => Next::Done(Bound::Floor),
        }
    }

    /// No rate has lost packets yet.
    fn higher(&self, passed: u64, seen: Seen) -> Next {
        let generator = self.generator_is_at_its_end(passed, seen);
        if passed < self.line && !generator {
            let stride = self.stride.unwrap_or(passed);
            return Next::Ask(passed.saturating_add(stride).min(self.line));
        }
        if seen.times < PASSED_TIMES {
            return Next::Ask(passed);
        }
        Next::Done(if generator {
            Bound::Generator
        } else {
            Bound::Line
        })
    }

    fn between(&self, (passed, low): (u64, Seen), (lost, high): (u64, Seen)) -> Next {
        let narrow = lost - passed <= self.width(lost)
            // The generator offered no more at a higher requested rate.
            || (is_short(passed, low) && high.offered - low.offered <= self.epsilon * high.offered);
        if !narrow {
            return Next::Ask(passed.midpoint(lost));
        }
        if low.times < self.passed_times {
            return Next::Ask(passed);
        }
        if high.times < LOST_TIMES {
            return Next::Ask(lost);
        }
        Next::Done(Bound::Loss)
    }

    /// Returns the allowed width of the final interval below a rate; at least 1.
    fn width(&self, rate: u64) -> u64 {
        ((rate as f64 * self.epsilon) as u64).max(1)
    }

    fn highest_passed(&self) -> Option<(u64, Seen)> {
        let mut rates = self.rates.iter().rev();
        let (rate, seen) = rates.find(|(_, seen)| seen.passed)?;
        Some((*rate, *seen))
    }

    /// Returns the lowest rate with loss above all passing rates.
    fn lowest_lost(&self) -> Option<(u64, Seen)> {
        let above = self.highest_passed().map_or(0, |(rate, _)| rate + 1);
        let (rate, seen) = self.rates.range(above..).next()?;
        Some((*rate, *seen))
    }

    /// Returns whether the generator sends less than requested, and no more than at a lower
    /// requested rate.
    fn generator_is_at_its_end(&self, passed: u64, seen: Seen) -> bool {
        if !is_short(passed, seen) {
            return false;
        }
        let far_below = (passed as f64 * FAR_BELOW) as u64;
        let before = self.rates.range(..=far_below).next_back();
        passed == self.line
            || before.is_some_and(|(_, before)| seen.offered < before.offered * GROWN)
    }

    /// Converts the results of a rate.
    pub fn found(&self, bound: Bound, settled: bool) -> Found {
        let Some((rate, seen)) = self.highest_passed() else {
            return Found {
                rate: 0.0,
                delivery_ratio: self
                    .lowest_lost()
                    .map_or(0.0, |(_, seen)| seen.delivery_ratio),
                bound,
                settled,
                reversed: self.reversed,
                pacing: self.pacing(u64::MAX),
            };
        };
        Found {
            rate: seen.offered,
            delivery_ratio: seen.delivery_ratio,
            bound,
            settled,
            reversed: self.reversed,
            pacing: self.pacing(rate),
        }
    }

    /// Returns the largest deviation of all rates up to this one.
    fn pacing(&self, highest: u64) -> f64 {
        let apart = |(asked, seen): (&u64, &Seen)| seen.offered / *asked as f64 - 1.0;
        let all = self.rates.range(..=highest).map(apart);
        all.max_by(|one, other| one.abs().total_cmp(&other.abs()))
            .unwrap_or(0.0)
    }
}

impl Seen {
    /// Combines two equal results in a row. The second of two results with loss counts. The best of
    /// two passing results counts, and the number of equal ones is kept. If the generator
    /// is the bound, a disturbance makes it offer less.
    fn and(self, next: Self, epsilon: f64) -> Self {
        let close = epsilon.max(super::PACING);
        if !next.passed {
            return Self {
                times: self.times + 1,
                ..next
            };
        }
        let (best, other) = if next.offered > self.offered {
            (next, self)
        } else {
            (self, next)
        };
        let alike = other.offered >= best.offered * (1.0 - close);
        let times = match (alike, next.offered > self.offered) {
            (true, _) => self.times + 1,
            (false, true) => 1,
            (false, false) => self.times,
        };
        Self { times, ..best }
    }
}

fn is_short(asked: u64, seen: Seen) -> bool {
    seen.offered < asked as f64 * (1.0 - super::PACING)
}

/// Number of passes that the resulting rate needs, if one trial judges a rate.
const PASSED_TIMES: u32 = 2;

/// Number of losses that the rate above needs. It is higher, because a disturbance can cause loss
/// but not a pass.
const LOST_TIMES: u32 = 3;

/// Below this distance, differences between rates are noise.
const FAR_BELOW: f64 = 0.9;

/// Factor by which an unsaturated generator offers more when a higher rate is requested.
const GROWN: f64 = 1.01;
