//! Statistics of repeated measurements: location, spread, confidence, and significance of
//! differences.
//!
//! Nothing here assumes an order of the values. Spread is that of a sample (n - 1). Quartiles and
//! percentiles are interpolated between the two nearest values, as in numpy, R and the box plots of
//! reports (type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996).

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

/// Highest coefficient of variation of a result that can be cited.
pub const CV_MAX: f64 = 0.1;

/// Statistics of one set of values, in their unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Lowest value.
    pub low: f64,
    /// Highest value.
    pub high: f64,
    /// Median of the distances from the median, which is robust against outliers.
    pub median_absolute_deviation: f64,
    /// Statistics that need at least two values.
    pub spread: Option<Spread>,
}

/// Spread of the values around their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Standard deviation of the sample.
    pub standard_deviation: f64,
    /// Coefficient of variation: standard deviation as a share of the mean; none if the mean is 0.
    pub cv: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean (Student).
    pub ci95: f64,
}

impl Summary {
    /// Returns `None` if there are no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (&low, &high) = (sorted.first()?, sorted.last()?);
        let median = percentile(&sorted, 0.5);
        let distances: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        Some(Self {
            count: sorted.len(),
            mean: mean(&sorted),
            median,
            low,
            high,
            median_absolute_deviation: percentile(&self::sorted(&distances), 0.5),
            spread: Spread::of(&sorted),
        })
    }
}

impl Spread {
    /// Returns true if the coefficient of variation is at most [`CV_MAX`], or if all values are 0.
    pub fn is_citable(&self) -> bool {
        match self.cv {
            Some(cv) => cv <= CV_MAX,
            None => self.standard_deviation == 0.0,
        }
    }

    fn of(values: &[f64]) -> Option<Self> {
        if values.len() < 2 {
            return None;
        }
        let count = values.len() as f64;
        let mean = mean(values);
        let standard_deviation = values.std_dev();
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
        Some(Self {
            standard_deviation,
            cv: (mean != 0.0).then(|| standard_deviation / mean.abs()),
            ci95: student.inverse_cdf(0.975) * standard_deviation / count.sqrt(),
        })
    }
}

/// The box of a box plot (Tukey): whiskers reach to the last value within 1.5 quartile ranges of
/// the box.
#[derive(Clone, Debug, PartialEq)]
pub struct Quartiles {
    /// End of the lower whisker.
    pub lower_whisker: f64,
    /// A quarter of the values lies below.
    pub first: f64,
    /// Half of the values lie below.
    pub median: f64,
    /// Three quarters of the values lie below.
    pub third: f64,
    /// End of the upper whisker.
    pub upper_whisker: f64,
    /// Outliers beyond the whiskers, ascending.
    pub outliers: Vec<f64>,
}

impl Quartiles {
    /// Returns `None` if there are no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        if sorted.is_empty() {
            return None;
        }
        let [first, median, third] = [0.25, 0.5, 0.75].map(|share| percentile(&sorted, share));
        let reach = 1.5 * (third - first);
        let (within, outliers): (Vec<f64>, Vec<f64>) = sorted
            .iter()
            .partition(|&&value| (first - reach..=third + reach).contains(&value));
        Some(Self {
            // The median is always within the limits.
            lower_whisker: within.first().copied().unwrap_or(median),
            first,
            median,
            third,
            upper_whisker: within.last().copied().unwrap_or(median),
            outliers,
        })
    }
}

/// Returns the value below which a share (0 to 1) of the values lies. Requires at least one value,
/// in ascending order.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let weight = place - place.floor();
    sorted[below] + (sorted[above] - sorted[below]) * weight
}

/// Welch's test: whether two sets of values have the same mean. Their variances may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Difference of the means (second minus first) in standard errors.
    pub t: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// Probability of a difference at least this large if the means are equal, 0 to 1 (two-sided).
    pub p: f64,
}

impl Welch {
    /// Returns `None` unless both sets have at least two values.
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        if first.len() < 2 || second.len() < 2 {
            return None;
        }
        let difference = mean(second) - mean(first);
        let squares = [first, second].map(|values| values.variance() / values.len() as f64);
        let square = squares[0] + squares[1];
        if square == 0.0 {
            return Some(Self::without_spread(
                difference,
                first.len() + second.len() - 2,
            ));
        }
        let each = squares[0].powi(2) / (first.len() - 1) as f64
            + squares[1].powi(2) / (second.len() - 1) as f64;
        let (t, freedom) = (difference / square.sqrt(), square.powi(2) / each);
        let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
        Some(Self {
            t,
            freedom,
            p: 2.0 * student.cdf(-t.abs()),
        })
    }

    /// Result for values without variance: the means are equal, or differ with certainty.
    fn without_spread(difference: f64, freedom: usize) -> Self {
        let equal = difference == 0.0;
        Self {
            t: if equal {
                0.0
            } else {
                f64::INFINITY.copysign(difference)
            },
            freedom: freedom as f64,
            p: f64::from(u8::from(equal)),
        }
    }
}

/// Adjusts p values for multiple comparisons (Benjamini and Hochberg, 1995). Among the results
/// whose adjusted value is below a bound, at most that share is due to chance.
pub fn false_discovery(p: &[f64]) -> Vec<f64> {
    let mut falling: Vec<usize> = (0..p.len()).collect();
    falling.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let mut raised = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (place, &index) in falling.iter().enumerate() {
        let rank = p.len() - place;
        least = least.min(p[index] * p.len() as f64 / rank as f64);
        raised[index] = least;
    }
    raised
}

/// Returns the values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn mean(values: &[f64]) -> f64 {
    values.mean()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected values computed by numpy 2.4.6 and scipy 1.17.1 from these two samples.
    const SLOW: [f64; 8] = [36.2, 35.9, 36.8, 37.1, 35.5, 36.4, 39.9, 36.0];
    const FAST: [f64; 5] = [35.1, 34.8, 35.6, 35.0, 34.4];

    #[track_caller]
    fn near(left: f64, right: f64) {
        assert!(
            (left - right).abs() <= 1e-12 * right.abs(),
            "{left} is not {right}"
        );
    }

    #[test]
    fn a_summary_matches_scipy() {
        let summary = Summary::of(&SLOW).unwrap();
        assert_eq!((summary.count, summary.low, summary.high), (8, 35.5, 39.9));
        near(summary.mean, 36.725);
        near(summary.median, 36.3);
        near(summary.median_absolute_deviation, 0.449_999_999_999_999_3);
        let spread = summary.spread.unwrap();
        near(spread.standard_deviation, 1.379_181_952_152_382_3);
        near(spread.cv.unwrap(), 0.037_554_307_750_915_78);
        // scipy.stats.t.ppf(0.975, 7) * scipy.stats.sem
        assert!((spread.ci95 - 1.153_024_966_733_499).abs() < 1e-9);
    }

    #[test]
    fn a_small_spread_far_from_zero_keeps_its_digits() {
        // NumAcc4 of the NIST Statistical Reference Datasets (higher difficulty): certified mean
        // 10000000.2, deviation 0.1.
        let mut values = vec![10_000_000.2];
        values.extend([10_000_000.1, 10_000_000.3].repeat(500));
        let summary = Summary::of(&values).unwrap();
        assert!(
            (summary.mean - 10_000_000.2).abs() < 1e-8,
            "{}",
            summary.mean
        );
        let deviation = summary.spread.unwrap().standard_deviation;
        assert!((deviation - 0.1).abs() < 1e-8, "{deviation}");
    }

    #[test]
    fn one_value_has_no_spread_and_none_no_summary() {
        let one = Summary::of(&[4.0]).unwrap();
        assert_eq!((one.mean, one.median, one.spread), (4.0, 4.0, None));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Quartiles::of(&[]), None);
        assert_eq!(Summary::of(&[-1.0, 1.0]).unwrap().spread.unwrap().cv, None);
    }

    #[test]
    fn a_result_that_varies_by_more_than_a_tenth_is_not_citable() {
        let citable = |values: &[f64]| Summary::of(values).unwrap().spread.unwrap().is_citable();
        assert!(citable(&[100.0, 110.0, 90.0]));
        assert!(!citable(&[100.0, 111.0, 89.0]));
        assert!(citable(&[0.0, 0.0]));
        assert!(!citable(&[-1.0, 1.0]));
    }

    #[test]
    fn percentiles_match_numpy() {
        let sorted = sorted(&SLOW);
        for (share, value) in [
            (0.0, 35.5),
            (0.25, 35.975),
            (0.9, 37.94),
            (0.99, 39.704),
            (1.0, 39.9),
        ] {
            near(percentile(&sorted, share), value);
        }
    }

    #[test]
    fn whiskers_end_at_values_and_leave_outliers_outside() {
        let found = Quartiles::of(&SLOW).unwrap();
        near(found.first, 35.975);
        near(found.third, 36.875);
        assert_eq!((found.lower_whisker, found.upper_whisker), (35.5, 37.1));
        assert_eq!(found.outliers, [39.9]);
    }

    #[test]
    fn welch_matches_scipy() {
        // scipy.stats.ttest_ind(FAST, SLOW, equal_var=False)
        let welch = Welch::of(&SLOW, &FAST).unwrap();
        near(welch.t, -3.320_541_146_874_857);
        near(welch.freedom, 9.031_371_437_497_052);
        assert!(
            (welch.p - 0.008_889_882_994_747_27).abs() < 1e-9,
            "{}",
            welch.p
        );
    }

    #[test]
    fn values_without_spread_differ_with_certainty_or_not_at_all() {
        let same = Welch::of(&[2.0, 2.0], &[2.0, 2.0]).unwrap();
        assert_eq!((same.t, same.p), (0.0, 1.0));
        let risen = Welch::of(&[2.0, 2.0], &[3.0, 3.0]).unwrap();
        assert_eq!((risen.t, risen.p), (f64::INFINITY, 0.0));
        assert_eq!(Welch::of(&[2.0], &[3.0, 3.0]), None);
    }

    #[test]
    fn p_values_are_adjusted_for_the_number_of_tests() {
        // scipy.stats.false_discovery_control
        let raised = false_discovery(&[0.01, 0.04, 0.03, 0.005, 0.5]);
        for (left, right) in raised.into_iter().zip([0.025, 0.05, 0.05, 0.025, 0.5]) {
            near(left, right);
        }
        assert!(false_discovery(&[]).is_empty());
    }
}
