//! Repeats trials during which the host took the processors away.
//!
//! The decision depends on steal time only, never on the result of the trial. A disturbed trial is
//! discarded and measured again until [`REPEAT_TIME`] is spent. After that it counts, and the
//! report states how many such trials there are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Share of all processors' time from which a trial counts as disturbed. The clock of `/proc/stat`
/// has 10 ms ticks, so a trial of 100 ms on two processors has 20 of them, and one is 5 %.
pub const STEAL_MAX: f64 = 0.1;

/// LIMIT: time that one measurement spends on repeated trials.
pub const REPEAT_TIME: Duration = Duration::from_secs(60);

/// Disturbed trials of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbed {
    /// Trials that were discarded and repeated.
    pub repeated: u32,
    /// Trials that count nevertheless, because the time for repetitions was spent.
    pub kept: u32,
}

/// Time and count of a measurement's repetitions.
#[derive(Debug, Default)]
pub struct Repeats {
    /// Disturbed trials so far.
    pub disturbed: Disturbed,
    spent: Duration,
}

impl Repeats {
    /// Returns true if a trial of this length is to be repeated, given the share of all
    /// processors' time that the host took meanwhile.
    pub fn repeat(&mut self, stolen: f64, length: Duration) -> bool {
        if stolen <= STEAL_MAX {
            return false;
        }
        let spent = self.spent + length;
        if spent > REPEAT_TIME {
            self.disturbed.kept += 1;
            return false;
        }
        self.spent = spent;
        self.disturbed.repeated += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_trials_are_repeated_within_the_time_limit() {
        let mut repeats = Repeats::default();
        let length = REPEAT_TIME / 2;
        assert!(!repeats.repeat(STEAL_MAX, length));
        let repeated = [0.2, 0.2, 0.2].map(|stolen| repeats.repeat(stolen, length));
        assert_eq!(repeated, [true, true, false]);
        let counted = Disturbed {
            repeated: 2,
            kept: 1,
        };
        assert_eq!(repeats.disturbed, counted);
    }

    #[test]
    fn a_trial_longer_than_the_limit_is_never_repeated() {
        let mut repeats = Repeats::default();
        assert!(!repeats.repeat(0.5, REPEAT_TIME * 2));
        assert_eq!(repeats.disturbed.kept, 1);
    }
}
