//! Draws the plot of a section with kuva, which places axes, ticks, legend and text.
//!
//! The same scene becomes SVG for the page, whose style sheet defines the colours, and PNG for
//! other uses.

mod axis;
mod curve;
pub mod ink;
mod rows;

use std::io::Cursor;

use image::{DynamicImage, ImageFormat};
use kuva::backend::png::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::legend::LegendPosition;
use kuva::render::annotations::ShadedRegion;
use kuva::render::layout::{ComputedLayout, Layout};
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};

use self::ink::{Medium, Style, Subjects};
use self::rows::Rows;
use super::table;
use crate::result::{Axis, Kind, Scale, Section};

/// Width in pixels of a plot for a wide window.
pub const WIDE: f64 = 860.0;
/// Width in pixels of a plot for phones, which show it unscaled.
pub const NARROW: f64 = 372.0;

/// Height of the plot area in pixels.
const HEIGHT: f64 = 380.0;
/// Height of a row of bars or boxes in pixels.
const ROW: f64 = 22.0;
/// Height of axis, ticks and axis title below rows, in pixels.
const BELOW: f64 = 70.0;
/// Pixels per character of an axis title, which wraps to a second line.
const CHARACTER: f64 = 16.0;
/// Pixels per character of a legend entry.
const LEGEND_CHARACTER: f64 = 10.0;
/// Pixels of a PNG per pixel of the page.
const PNG_SCALE: u32 = 2;
/// Drawn pixels per pixel of a PNG in each direction: kuva itself does not antialias.
const PNG_SAMPLES: u32 = 2;

/// Returns SVG for a page. `name` must be unique in the page. The title and the description make
/// the plot accessible; the description refers to the table with the values. `None` if there is
/// nothing to draw.
pub fn svg(section: &Section, subjects: &Subjects, width: f64, name: &str) -> Option<String> {
    let scene = scene(section, subjects, width, Medium::Page)?;
    let svg = SvgBackend::new().render_scene(&scene);
    let content = svg.split_once('>').map_or("", |(_, content)| content);
    let (title, description) = (escaped(&section.title), escaped(&described(section)));
    Some(format!(
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" "#,
            r#"aria-labelledby="{name}-title {name}-desc" fill="var(--text)">"#,
            r#"<title id="{name}-title">{title}</title><desc id="{name}-desc">{description}</desc>{content}"#
        ),
        width = scene.width,
        height = scene.height,
        name = name,
        title = title,
        description = description,
        // Ids of clip paths must be unique in the page, not only in the plot.
        content = content.replace("kuva-clip-", &format!("{name}-clip-")),
    ))
}

/// Returns the plot as a PNG on white, with its title. `None` if there is nothing to draw.
pub fn png(section: &Section, subjects: &Subjects) -> Option<Result<Vec<u8>, String>> {
    scene(section, subjects, WIDE, Medium::Paper).map(|scene| smooth(&scene))
}

/// Draws with a higher resolution and scales down. The font is embedded in kuva, so the result does
/// not depend on the machine's fonts.
fn smooth(scene: &Scene) -> Result<Vec<u8>, String> {
    let scale = (PNG_SCALE * PNG_SAMPLES) as f32;
    let drawn = PngBackend::new().with_scale(scale).render_scene(scene)?;
    let large = image::load_from_memory(&drawn).map_err(|error| error.to_string())?;
    let small = large.thumbnail_exact(large.width() / PNG_SAMPLES, large.height() / PNG_SAMPLES);
    let mut png = Cursor::new(vec![]);
    let written = DynamicImage::from(small.into_rgb8()).write_to(&mut png, ImageFormat::Png);
    written.map_err(|error| error.to_string())?;
    Ok(png.into_inner())
}

/// Whether there is anything to draw.
pub fn is_drawn(section: &Section) -> bool {
    section
        .series
        .iter()
        .flat_map(|series| &series.points)
        .any(|point| curve::is_shown(section, point))
}

/// Returns the number of points that the plot cannot show: a logarithmic axis has no zero.
pub fn hidden(section: &Section) -> usize {
    let points = section.series.iter().flat_map(|series| &series.points);
    points
        .filter(|point| !curve::is_shown(section, point))
        .count()
}

fn scene(section: &Section, subjects: &Subjects, width: f64, medium: Medium) -> Option<Scene> {
    let styles = subjects.styles(section, medium);
    let lone = section.series.len() > 1 && table::places(section).len() == 1;
    let (plots, layout) = match section.kind {
        Kind::Line if lone => {
            let rows = rows::lone(section, &styles);
            let layout = rows_layout(section, &rows, medium)?;
            (rows.plots, layout)
        }
        Kind::Line | Kind::Cdf => {
            let plots = curve::plots(section, &styles);
            let layout = curve_layout(section, &plots, &styles)?;
            (plots, layout)
        }
        Kind::Bars | Kind::Box => {
            let rows = Rows::of(section, &styles, medium);
            let layout = rows_layout(section, &rows, medium)?;
            (rows.plots, layout)
        }
    };
    let mut layout = layout
        .with_width(width)
        .with_theme(medium.theme())
        .with_legend_position(LegendPosition::OutsideBottomColumns)
        .with_legend_box(false)
        .with_label_size(13)
        .with_tick_size(12)
        .with_x_label_wrap((width / CHARACTER) as usize)
        .with_legend_wrap((width / LEGEND_CHARACTER) as usize);
    if medium == Medium::Paper {
        layout = layout.with_title(&section.title).with_title_size(16);
    }
    // The legend adds to the requested height.
    let legend = ComputedLayout::from_layout(&layout).legend_bottom_extra;
    let height = layout.height.unwrap_or(HEIGHT);
    Some(render_multiple(plots, layout.with_height(height + legend)))
}

fn curve_layout(section: &Section, plots: &[Plot], styles: &[Style]) -> Option<Layout> {
    let points = || {
        section
            .series
            .iter()
            .flat_map(|series| &series.points)
            .filter(|point| curve::is_shown(section, point))
    };
    let (left, right) = axis::range(&section.x.scale, points().map(|point| point.x), false)?;
    let heights = points().flat_map(|point| [point.low, point.value, point.high]);
    let (bottom, top) = axis::range(&section.y.scale, heights, true)?;
    let mut layout = Layout::auto_from_plots(plots)
        .with_height(HEIGHT)
        .with_legend_entries(curve::legend(section, styles))
        .with_x_label(axis::title(&section.x))
        .with_y_label(axis::title(&section.y))
        .with_x_axis_min(left)
        .with_x_axis_max(right)
        .with_y_axis_min(bottom)
        .with_y_axis_max(top)
        .with_x_tick_format(axis::ticks(&section.x))
        .with_y_tick_format(axis::ticks(&section.y));
    if section.x.scale == Scale::Log {
        layout = layout.with_log_x();
    }
    if let Scale::Categories(words) = &section.x.scale {
        layout = layout.with_x_categories(words.clone());
    }
    if section.y.scale == Scale::Log {
        layout = layout.with_log_y();
    }
    Some(layout)
}

/// Rows are horizontal, so the section's vertical axis becomes the plot's horizontal axis.
fn rows_layout(section: &Section, rows: &Rows, medium: Medium) -> Option<Layout> {
    let points = section.series.iter().flat_map(|series| &series.points);
    let values = points.flat_map(|point| [point.low, point.value, point.high]);
    let (left, right) = axis::range(&section.y.scale, values, section.kind != Kind::Box)?;
    let height = rows.lines as f64 * ROW + BELOW;
    let mut layout = Layout::auto_from_plots(&rows.plots)
        .with_height(height)
        .with_x_label(axis::title(&section.y))
        .with_y_categories(rows.words.clone())
        .with_y_axis_min(0.5)
        .with_y_axis_max(rows.words.len() as f64 + 0.5)
        .with_x_axis_min(left)
        .with_x_axis_max(right)
        .with_x_tick_format(axis::ticks(&section.y));
    // Shade every second group, so that labels and values are easy to match.
    for &(bottom, top) in rows.groups.iter().rev().skip(1).step_by(2) {
        let color = medium.theme().grid_color;
        layout = layout.with_shaded_region(
            ShadedRegion::horizontal(bottom, top)
                .with_color(color)
                .with_opacity(0.35),
        );
    }
    if !rows.legend.is_empty() {
        layout = layout.with_legend_entries(rows.legend.clone());
    }
    if section.y.scale == Scale::Log {
        layout = layout.with_log_x();
    }
    Some(layout)
}

fn described(section: &Section) -> String {
    let kind = match section.kind {
        Kind::Line => "Lines",
        Kind::Bars => "Bars",
        Kind::Box => "Box plots",
        Kind::Cdf => "Cumulative distributions",
    };
    let logarithmic = |axis: &Axis| {
        if axis.scale == Scale::Log {
            ", logarithmic"
        } else {
            ""
        }
    };
    let series: Vec<String> = section.series.iter().map(table::legend).collect();
    format!(
        "{kind} of {}{} over {}{}, for: {}. The same values are in the table below.",
        table::head(&section.y),
        logarithmic(&section.y),
        table::head(&section.x),
        logarithmic(&section.x),
        series.join("; "),
    )
}

fn escaped(text: &str) -> String {
    maud::html! { (text) }.into_string()
}
