//! The rates of one path, round by round.

use crate::traffic::Hook;

/// One window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Packets per second at the sink.
    pub rate: f64,
    /// Part of what was forwarded that did not arrive, where that is known.
    pub lost: f64,
}

/// Packets per second, one value per round.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Where they were counted.
    pub hook: Hook,
    /// At least one.
    pub rates: Vec<f64>,
    /// The largest part, over the rounds, of what Sidestep forwarded that did not arrive: a queue behind it was full.
    pub lost: f64,
}

impl Series {
    /// No round yet.
    pub fn new(hook: Hook) -> Self {
        Self {
            hook,
            rates: Vec::new(),
            lost: 0.0,
        }
    }

    /// Adds a round.
    pub fn push(&mut self, round: Round) {
        self.rates.push(round.rate);
        self.lost = self.lost.max(round.lost);
    }

    /// The median; of an even number of rounds the mean of the middle two.
    pub fn median(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match (sorted.len(), sorted.get(middle)) {
            (length, Some(upper)) if length % 2 == 0 => sorted[middle - 1].midpoint(*upper),
            (_, Some(only)) => *only,
            (_, None) => f64::NAN,
        }
    }

    /// Highest less lowest, as a part of the median: what the machine did meanwhile.
    pub fn spread(&self) -> f64 {
        let highest = self.rates.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        (highest - lowest) / self.median()
    }

    /// Median nanoseconds per packet.
    pub fn nanoseconds(&self) -> f64 {
        1e9 / self.median()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[f64]) -> Series {
        Series {
            rates: rates.to_vec(),
            ..Series::new(Hook::Xdp)
        }
    }

    #[test]
    fn the_median_is_the_middle_one_or_the_mean_of_two() {
        assert!((series(&[3.0, 1.0, 2.0]).median() - 2.0).abs() < 1e-9);
        assert!((series(&[4.0, 1.0, 2.0, 3.0]).median() - 2.5).abs() < 1e-9);
        assert!((series(&[7.0]).median() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn the_worst_loss_of_all_rounds_is_kept() {
        let mut series = series(&[]);
        for lost in [0.0, 0.002, 0.001] {
            series.push(Round { rate: 1.0, lost });
        }
        assert!((series.lost - 0.002).abs() < 1e-9);
        assert_eq!(series.rates.len(), 3);
    }

    #[test]
    fn the_spread_is_a_part_of_the_median() {
        assert!((series(&[1.0, 2.0, 3.0]).spread() - 1.0).abs() < 1e-9);
        assert!(series(&[5.0]).spread().abs() < 1e-9);
        assert!((series(&[2e6]).nanoseconds() - 500.0).abs() < 1e-9);
    }
}
