//! Horizontal bars and boxes, since their labels are text.

use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::plot::scatter::{ScatterPlot, ScatterPoint};
use kuva::plot::{BarPlot, BoxPlot};
use kuva::render::plots::Plot;

use super::axis::{arms, label};
use super::curve::is_shown;
use super::ink::{Medium, Style};
use crate::report::table::{self, at};
use crate::report::text;
use crate::result::{Kind, Point, Scale, Section, Series};
use crate::statistics::Quartiles;

/// Plots, labels and legend of a section with rows.
pub struct Rows {
    /// Plots to draw over one another.
    pub plots: Vec<Plot>,
    /// Labels from the bottom up. The row with index n has the position n + 1.
    pub words: Vec<String>,
    /// Legend entries; empty if the labels suffice.
    pub legend: Vec<LegendEntry>,
    /// Ranges of rows that belong together.
    pub groups: Vec<(f64, f64)>,
    /// Height of the rows in lines of text.
    pub lines: usize,
}

impl Rows {
    /// Draws a section whose kind is bars or boxes.
    pub fn of(section: &Section, styles: &[Style], medium: Medium) -> Self {
        if section.kind == Kind::Box {
            return boxes(section, styles);
        }
        let places = places(section);
        Self {
            plots: match section.y.scale {
                // A bar needs a zero, which a logarithmic axis lacks.
                Scale::Log => markers(section, styles, &places),
                Scale::Linear | Scale::Categories(_) => {
                    vec![bars(section, styles, &places, medium)]
                }
            },
            words: places.iter().map(|&x| word(section, x)).collect(),
            legend: legend(section, styles),
            groups: groups(places.len()),
            lines: places.len() * section.series.len().max(2),
        }
    }
}

/// Draws a group of bars per position, with one bar per series.
fn bars(section: &Section, styles: &[Style], places: &[f64], medium: Medium) -> Plot {
    let mut errors = vec![];
    let mut labels = vec![];
    let mut plot = BarPlot::new()
        .with_horizontal(true)
        .with_error_color(medium.theme().text_color);
    for &x in places {
        let mut group = vec![];
        for (series, style) in section.series.iter().zip(styles).rev() {
            let point = at(series, x);
            group.push((point.map_or(0.0, |point| point.value), style.color.clone()));
            errors.push(
                point
                    .and_then(|point| arms(point, &section.y.scale))
                    .unwrap_or_default(),
            );
            labels.push(point.map_or_else(String::new, |point| label(section, series, point)));
        }
        plot = plot.with_group(word(section, x), group);
    }
    if errors.iter().any(|arms| *arms != (0.0, 0.0)) {
        plot = plot.with_asymmetric_error(errors);
    }
    Plot::Bar(plot.with_tooltip_labels(labels).with_tooltips())
}

/// Draws a marker per series at each position, one below the other.
fn markers(section: &Section, styles: &[Style], places: &[f64]) -> Vec<Plot> {
    let count = section.series.len() as f64;
    let series = section.series.iter().zip(styles).enumerate();
    let plots = series.map(|(index, (series, style))| {
        let offset = ((count - 1.0) / 2.0 - index as f64) * 0.7 / count;
        let rows = places.iter().enumerate();
        let points = rows.filter_map(|(row, &x)| Some((row as f64 + 1.0 + offset, at(series, x)?)));
        marked(section, series, style, points.collect())
    });
    plots.collect()
}

/// Draws a row per series, for sections with a single position.
pub fn lone(section: &Section, styles: &[Style]) -> Rows {
    let count = section.series.len();
    let series = section.series.iter().zip(styles).enumerate();
    let plots = series.map(|(index, (series, style))| {
        let points = series
            .points
            .iter()
            .map(|point| ((count - index) as f64, point));
        marked(section, series, style, points.collect())
    });
    Rows {
        plots: plots.collect(),
        words: section.series.iter().rev().map(table::legend).collect(),
        legend: vec![],
        groups: groups(count),
        lines: count,
    }
}

/// Draws the points of a series, each at a given height.
fn marked(
    section: &Section,
    series: &Series,
    style: &Style,
    mut points: Vec<(f64, &Point)>,
) -> Plot {
    points.retain(|(_, point)| is_shown(section, point));
    let mut plot = ScatterPlot::new()
        .with_color(&style.color)
        .with_marker(style.marker)
        .with_size(4.0)
        .with_tooltip_labels(
            points
                .iter()
                .map(|(_, point)| label(section, series, point)),
        )
        .with_tooltips();
    let points = points.into_iter().map(|(y, point)| ScatterPoint {
        x: point.value,
        y,
        x_err: arms(point, &section.y.scale),
        y_err: None,
    });
    plot.data = points.collect();
    Plot::Scatter(plot)
}

/// Makes each row a group of its own.
fn groups(rows: usize) -> Vec<(f64, f64)> {
    (1..=rows)
        .map(|row| (row as f64 - 0.5, row as f64 + 0.5))
        .collect()
}

/// Draws a box per point, with markers for outliers among its rounds.
fn boxes(section: &Section, styles: &[Style]) -> Rows {
    let mut plot = BoxPlot::new().with_horizontal(true).with_width(0.6);
    let mut far_off = vec![];
    let mut colors = vec![];
    let mut words = vec![];
    let mut groups = vec![];
    for x in places(section) {
        let first = words.len();
        for (series, style) in section.series.iter().zip(styles).rev() {
            let Some(point) = at(series, x) else { continue };
            plot = plot.with_group("", measured(point));
            colors.push(style.color.clone());
            words.push(box_word(section, series, x));
            far_off.push(outliers(point, words.len(), style));
        }
        groups.push((first as f64 + 0.5, words.len() as f64 + 0.5));
    }
    let boxes = Plot::Box(plot.with_group_colors(colors));
    Rows {
        plots: std::iter::once(boxes).chain(far_off).collect(),
        lines: words.len(),
        words,
        legend: vec![],
        groups,
    }
}

fn outliers(point: &Point, row: usize, style: &Style) -> Plot {
    let quartiles = Quartiles::of(&measured(point));
    let outliers = quartiles
        .map(|quartiles| quartiles.outliers)
        .unwrap_or_default();
    let places = outliers.into_iter().map(|value| (value, row as f64));
    Plot::Scatter(
        ScatterPlot::new()
            .with_data(places)
            .with_color(&style.color)
            .with_size(2.5),
    )
}

fn measured(point: &Point) -> Vec<f64> {
    if point.rounds.is_empty() {
        vec![point.low, point.value, point.high]
    } else {
        point.rounds.clone()
    }
}

fn box_word(section: &Section, series: &Series, x: f64) -> String {
    let one_place = section
        .series
        .iter()
        .flat_map(|series| &series.points)
        .all(|point| point.x.total_cmp(&x).is_eq());
    match (one_place, section.series.len()) {
        (true, _) => table::legend(series),
        (false, 1) => word(section, x),
        (false, _) => format!("{}, {}", word(section, x), table::legend(series)),
    }
}

fn legend(section: &Section, styles: &[Style]) -> Vec<LegendEntry> {
    let shape = |style: &Style| match section.y.scale {
        Scale::Log => LegendShape::Marker(style.marker),
        Scale::Linear | Scale::Categories(_) => LegendShape::Rect,
    };
    let entries = section
        .series
        .iter()
        .zip(styles)
        .map(|(series, style)| LegendEntry {
            label: table::legend(series),
            color: style.color.clone(),
            shape: shape(style),
            dasharray: None,
        });
    entries.collect()
}

/// Returns the positions from the bottom up, so that the first one is at the top.
fn places(section: &Section) -> Vec<f64> {
    let mut places = table::places(section);
    places.reverse();
    places
}

fn word(section: &Section, x: f64) -> String {
    text::readable(&table::place(&section.x, x))
}
