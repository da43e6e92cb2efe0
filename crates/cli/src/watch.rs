//! Intervals of commands that repeat.

/// Shortest and longest interval, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Parses an interval in seconds.
///
/// # Errors
/// It is not a number, or not within the limits.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|it| INTERVALS.contains(it));
    seconds.ok_or_else(|| {
        let (least, most) = INTERVALS.into_inner();
        format!("expected a number of seconds from {least} to {most}")
    })
}
