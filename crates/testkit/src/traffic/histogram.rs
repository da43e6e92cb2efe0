//! Times in log-linear classes, as in HDR Histogram: below 64 ns one class per nanosecond, above it
//! 64 classes of equal width per power of two. The width of a class is at most 1/64 (1.6 %) of its
//! times, up to [`TIME_MAX`].

/// Counts per class; times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; CLASSES],
            longest: 0,
        }
    }
}

impl Histogram {
    /// Adds one time.
    pub fn add(&mut self, time: u64) {
        self.counts[class_of(time)] += 1;
        self.longest = self.longest.max(time);
    }

    /// Adds counts by class, and the longest time among them.
    pub fn add_classes(&mut self, counts: impl IntoIterator<Item = u64>, longest: u64) {
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        self.longest = self.longest.max(longest);
    }

    /// Returns the number of times that were added.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the exact maximum, or 0 if there is no time.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns this quantile (0 to 1): the lowest class bound that covers at least this share
    /// (nearest rank). The result is never less than the exact percentile, and at most 1/64 more.
    /// Returns 0 if there is no time.
    pub fn percentile(&self, part: f64) -> u64 {
        let rank = (part.clamp(0.0, 1.0) * self.samples() as f64)
            .ceil()
            .max(1.0);
        let mut sum = 0;
        for (class, count) in self.counts.iter().enumerate() {
            sum += count;
            if *count > 0 && sum as f64 >= rank {
                return upper_bound(class).min(self.longest);
            }
        }
        self.longest
    }

    /// Returns the whole distribution: the longest time of each class that is not empty, and the
    /// number of times up to it.
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let mut sum = 0;
        let mut points = Vec::new();
        for (class, count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            sum += count;
            points.push((upper_bound(class).min(self.longest) as f64, sum));
        }
        points
    }
}

/// Returns the class of a time, as `class_of` of bpf/receiver.bpf.c does.
fn class_of(time: u64) -> usize {
    let Some(power) = (time >> LINEAR).checked_ilog2() else {
        return time as usize;
    };
    if power >= POWERS {
        return CLASSES - 1;
    }
    ((power as usize + 1) << LINEAR) + (time >> power) as usize % (1 << LINEAR)
}

/// Returns the longest time of a class.
fn upper_bound(class: usize) -> u64 {
    let (block, step) = (class >> LINEAR, class as u64 % (1 << LINEAR));
    if block == 0 {
        return step;
    }
    (((1 << LINEAR) + step + 1) << (block - 1)) - 1
}

/// The binary logarithm of the classes in a power of two.
const LINEAR: u32 = 6;
/// Powers of two from 2^LINEAR on.
const POWERS: u32 = 34;
/// Number of classes.
pub(super) const CLASSES: usize = (POWERS as usize + 1) << LINEAR;
/// Longer times (18 minutes) are counted as this one.
pub const TIME_MAX: u64 = (1 << (LINEAR + POWERS)) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn classes_follow_each_other_without_gaps_and_are_narrow() {
        let mut next = 0;
        for class in 0..CLASSES {
            let last = upper_bound(class);
            assert_eq!((class_of(next), class_of(last)), (class, class));
            assert!(last - next <= next / 64, "{next} to {last}");
            next = last + 1;
        }
        assert_eq!(next - 1, TIME_MAX);
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn percentiles_exceed_the_exact_ones_by_at_most_a_64th() {
        let mut random = Random::new(7);
        // Some tens of microseconds, with a tail that is a thousand times as long.
        let mut times: Vec<u64> = (0..100_000)
            .map(|_| 1 + random.next() % (10 << (random.next() % 14)))
            .collect();
        let mut histogram = Histogram::default();
        for time in &times {
            histogram.add(*time);
        }
        times.sort_unstable();
        for part in [0.0, 0.5, 0.99, 0.999, 0.999_99, 1.0] {
            let rank = (part * times.len() as f64).ceil().max(1.0) as usize;
            let (exact, found) = (times[rank - 1], histogram.percentile(part));
            assert!(
                (exact..=exact + exact / 64).contains(&found),
                "{part}: {exact} {found}"
            );
        }
        assert_eq!(histogram.percentile(1.0), times[times.len() - 1]);
        let all = histogram.cumulative();
        assert!(
            all.windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
        );
        assert_eq!(all.last().map(|it| it.1), Some(100_000));
    }

    #[test]
    fn no_times_have_no_percentiles() {
        let empty = Histogram::default();
        assert_eq!(
            (empty.percentile(0.5), empty.longest(), empty.samples()),
            (0, 0, 0)
        );
        assert!(empty.cumulative().is_empty());
    }
}
