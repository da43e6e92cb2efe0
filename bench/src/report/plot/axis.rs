//! Positions of values, range of an axis, and labels of points.

use std::sync::Arc;

use kuva::render::layout::TickFormat;

use crate::report::{number, table, text};
use crate::result::{Axis, Point, Scale, Section, Series};

/// Position of a number of the report on an axis.
pub trait Place {
    /// Converts a number to the axis's own numbers. Categories start at 1 in plots.
    fn place(&self, value: f64) -> f64;
}

impl Place for Scale {
    fn place(&self, value: f64) -> f64 {
        match self {
            Self::Categories(_) => value + 1.0,
            Self::Linear | Self::Log => value,
        }
    }
}

/// Returns the limits of an axis that shows these values. `from_zero`: a linear axis starts at
/// zero.
pub fn range(
    scale: &Scale,
    values: impl Iterator<Item = f64>,
    from_zero: bool,
) -> Option<(f64, f64)> {
    let shown = values.filter(|value| value.is_finite() && (*scale != Scale::Log || *value > 0.0));
    let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return None;
    }
    Some(match scale {
        Scale::Categories(words) => (0.5, words.len() as f64 + 0.5),
        Scale::Log => log_range(low, high),
        Scale::Linear if from_zero && low >= 0.0 => (0.0, beyond(high, high)),
        Scale::Linear => (low - room(high - low, low), beyond(high, high - low)),
    })
}

/// Returns the limits of a logarithmic axis. If they span less than a decade, they are round
/// numbers, so that the axis has a tick.
fn log_range(low: f64, high: f64) -> (f64, f64) {
    let room = (high / low).powf(0.04).max(1.02);
    let (low, high) = (low / room, high * room);
    if high / low >= 10.0 {
        return (low, high);
    }
    let round = |decade: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade));
    let decades = low.log10().floor() as i32..=high.log10().floor() as i32 + 1;
    let rounds: Vec<f64> = decades.flat_map(round).collect();
    let below = rounds.iter().rfind(|&&round| round <= low);
    let above = rounds.iter().find(|&&round| round >= high);
    (
        below.copied().unwrap_or(low),
        above.copied().unwrap_or(high),
    )
}

/// Returns the lengths of a point's bar below and above its value. `None` if both are 0.
pub fn arms(point: &Point, scale: &Scale) -> Option<(f64, f64)> {
    if point.low >= point.high {
        return None;
    }
    // A logarithmic axis has no zero to draw the bar to.
    let low = if *scale == Scale::Log && point.low <= 0.0 {
        point.value
    } else {
        point.low
    };
    Some((
        (point.value - low).max(0.0),
        (point.high - point.value).max(0.0),
    ))
}

/// Returns the format of an axis's ticks. Ticks of packet rates have their unit: `1.5 Mpps`.
pub fn ticks(axis: &Axis) -> TickFormat {
    match number::rate_factor(&axis.unit) {
        Some(factor) => {
            TickFormat::Custom(Arc::new(move |value| number::short_rate(value * factor)))
        }
        None => TickFormat::Custom(Arc::new(number::short)),
    }
}

/// Returns the title of an axis. The unit is omitted if the ticks have it.
pub fn title(axis: &Axis) -> String {
    match number::rate_factor(&axis.unit) {
        Some(_) => axis.name.clone(),
        None => table::head(axis),
    }
}

/// Tooltip of a point.
pub fn label(section: &Section, series: &Series, point: &Point) -> String {
    let place = with_unit(
        &text::readable(&table::place(&section.x, point.x)),
        &section.x,
    );
    let value = with_unit(&number::rounded(point.value), &section.y);
    let reach = (point.low < point.high).then(|| {
        let (low, high) = (number::rounded(point.low), number::rounded(point.high));
        format!(" ({low} to {high})")
    });
    let note = point.note.as_ref().map(|note| format!(": {note}"));
    let name = table::legend(series);
    format!(
        "{name}: {place}, {value}{}{}",
        reach.unwrap_or_default(),
        note.unwrap_or_default()
    )
}

fn with_unit(value: &str, axis: &Axis) -> String {
    match (&axis.scale, axis.unit.as_str()) {
        (Scale::Categories(_), _) => value.into(),
        (_, "") => format!("{value} {}", axis.name),
        (_, unit) => format!("{value} {unit}"),
    }
}

fn beyond(high: f64, span: f64) -> f64 {
    high + room(span, high)
}

/// Returns the margin of an axis: a twentieth of the span, or a part of the value if the span is 0.
fn room(span: f64, value: f64) -> f64 {
    match (span, value) {
        (0.0, 0.0) => 1.0,
        (0.0, value) => value.abs() * 0.1,
        (span, _) => span * 0.05,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(scale: &Scale, values: &[f64], from_zero: bool) -> Option<(f64, f64)> {
        range(scale, values.iter().copied(), from_zero)
    }

    #[test]
    fn an_axis_shows_all_values_and_a_round_number() {
        assert_eq!(reach(&Scale::Log, &[31.0, 35.0], true), Some((20.0, 50.0)));
        let (low, high) = reach(&Scale::Log, &[100.0, 2e6], true).unwrap();
        assert!(
            low < 100.0 && low > 50.0 && high > 2e6 && high < 5e6,
            "{low} to {high}"
        );
        assert_eq!(
            reach(&Scale::Linear, &[3.0, 100.0], true),
            Some((0.0, 105.0))
        );
        assert_eq!(
            reach(&Scale::Linear, &[100.0, 200.0], false),
            Some((95.0, 205.0))
        );
        let words = Scale::Categories(vec!["a".into(), "b".into()]);
        assert_eq!(reach(&words, &[1.0], false), Some((0.5, 2.5)));
    }

    #[test]
    fn an_axis_of_one_value_has_room_around_it() {
        assert_eq!(reach(&Scale::Linear, &[0.0], false), Some((-1.0, 1.0)));
        assert_eq!(reach(&Scale::Linear, &[10.0], false), Some((9.0, 11.0)));
        assert_eq!(reach(&Scale::Log, &[10.0], true), Some((5.0, 20.0)));
    }

    #[test]
    fn values_that_cannot_be_shown_do_not_extend_the_axis() {
        assert_eq!(
            reach(&Scale::Log, &[0.0, 31.0, 35.0, f64::NAN], true),
            Some((20.0, 50.0))
        );
        assert_eq!(reach(&Scale::Log, &[0.0], true), None);
        assert_eq!(reach(&Scale::Linear, &[], true), None);
    }
}
