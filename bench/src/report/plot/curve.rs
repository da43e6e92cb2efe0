//! Series over an axis of numbers or categories: lines with bars from low to high, and steps.

use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::plot::line::{LinePlot, ScatterPoint};
use kuva::plot::scatter::ScatterPlot;
use kuva::render::plots::Plot;

use super::axis::{Place, arms, label};
use super::ink::Style;
use crate::report::table;
use crate::result::{Kind, Point, Scale, Section, Series};

/// Returns one or two plots per series: the line, and the markers of its points.
pub fn plots(section: &Section, styles: &[Style]) -> Vec<Plot> {
    let drawn = section.series.iter().zip(styles);
    match section.kind {
        Kind::Cdf => drawn
            .map(|(series, style)| steps(section, series, style))
            .collect(),
        _ => drawn
            .flat_map(|(series, style)| {
                [
                    line(section, series, style),
                    markers(section, series, style),
                ]
            })
            .collect(),
    }
}

fn line(section: &Section, series: &Series, style: &Style) -> Plot {
    let mut line = LinePlot::new()
        .with_color(&style.color)
        .with_line_style(style.line.clone())
        .with_stroke_width(1.75);
    line.data = shown(section, series)
        .map(|point| ScatterPoint {
            x: section.x.scale.place(point.x),
            y: point.value,
            x_err: None,
            y_err: arms(point, &section.y.scale),
        })
        .collect();
    Plot::Line(line)
}

fn markers(section: &Section, series: &Series, style: &Style) -> Plot {
    let places = shown(section, series).map(|point| (section.x.scale.place(point.x), point.value));
    let labels = shown(section, series).map(|point| label(section, series, point));
    let markers = ScatterPlot::new()
        .with_data(places)
        .with_color(&style.color)
        .with_marker(style.marker)
        .with_size(4.0)
        .with_tooltip_labels(labels)
        .with_tooltips();
    Plot::Scatter(markers)
}

fn steps(section: &Section, series: &Series, style: &Style) -> Plot {
    let places = shown(section, series).map(|point| (point.x, point.value));
    let steps = LinePlot::new()
        .with_data(places)
        .with_color(&style.color)
        .with_line_style(style.line.clone())
        .with_stroke_width(1.75)
        .with_step();
    Plot::Line(steps)
}

/// Returns one legend entry per series.
pub fn legend(section: &Section, styles: &[Style]) -> Vec<LegendEntry> {
    let entries = section
        .series
        .iter()
        .zip(styles)
        .map(|(series, style)| LegendEntry {
            label: table::legend(series),
            color: style.color.clone(),
            shape: match section.kind {
                Kind::Cdf => LegendShape::Line,
                _ => LegendShape::Marker(style.marker),
            },
            dasharray: style.line.dasharray(),
        });
    entries.collect()
}

fn shown<'a>(section: &'a Section, series: &'a Series) -> impl Iterator<Item = &'a Point> {
    series
        .points
        .iter()
        .filter(|point| is_shown(section, point))
}

/// Whether the plot can show a point: a logarithmic axis has no zero.
pub fn is_shown(section: &Section, point: &Point) -> bool {
    (section.x.scale != Scale::Log || point.x > 0.0)
        && (section.y.scale != Scale::Log || point.value > 0.0)
}
