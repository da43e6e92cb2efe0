//! Colors, markers and dashes. They remain distinguishable for color-blind readers, in light and
//! dark mode, and on paper.

use std::collections::BTreeMap;

use kuva::plot::LineStyle;
use kuva::plot::scatter::MarkerShape;
use kuva::render::theme::Theme;

use crate::result::{Report, Section};

/// One colour per engine, for a light and for a dark page. The ninth engine has the first colour
/// with another marker. Neighbors also differ in lightness, and all colours have a contrast of 3:1
/// to the page (WCAG 2.2, 1.4.11).
pub const COLORS: [(&str, &str); 8] = [
    ("#0067a5", "#4aa8e8"),
    ("#d1500a", "#ff8f4a"),
    ("#00856f", "#3ed0ac"),
    ("#a8327e", "#f08ac8"),
    ("#8a6a00", "#e6c044"),
    ("#4d4d57", "#c9ccd4"),
    ("#6a4fc4", "#b3a4ff"),
    ("#2492a8", "#86dcee"),
];

/// Markers of measured series.
const MARKERS: [MarkerShape; 6] = [
    MarkerShape::Circle,
    MarkerShape::Square,
    MarkerShape::Triangle,
    MarkerShape::Diamond,
    MarkerShape::TriangleDown,
    MarkerShape::Star,
];

/// Markers of published figures.
const PUBLISHED_MARKERS: [MarkerShape; 2] = [MarkerShape::Cross, MarkerShape::Plus];

/// Colors of text, axes with ticks, and grid, in this order.
pub const FRAME: [(&str, &str, &str); 3] = [
    ("text", "#1b1f24", "#e8eaed"),
    ("axis", "#5d6570", "#9aa3ae"),
    ("grid", "#e1e4e8", "#31363d"),
];

/// Medium of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A page whose style sheet defines `--ink-0` and so on, and `--text`, `--axis` and `--grid`.
    Page,
    /// A separate file with a white background.
    Paper,
}

impl Medium {
    /// Returns the colours of text, axes and grid.
    pub fn theme(self) -> Theme {
        let [text, axis, grid] = FRAME.map(|(name, light, _)| match self {
            Self::Page => format!("var(--{name})"),
            Self::Paper => light.to_string(),
        });
        let background = match self {
            Self::Page => "none",
            Self::Paper => "#ffffff",
        };
        Theme {
            background: background.into(),
            axis_color: axis.clone(),
            tick_color: axis.clone(),
            grid_color: grid,
            box_median: text.clone(),
            text_color: text,
            legend_bg: "none".into(),
            legend_border: "none".into(),
            ..Theme::light()
        }
    }

    fn color(self, subject: usize) -> String {
        let index = subject % COLORS.len();
        match self {
            Self::Page => format!("var(--ink-{index})"),
            Self::Paper => COLORS[index].0.into(),
        }
    }
}

/// Colours of the engines, the same in all sections of a report.
#[derive(Clone, Debug)]
pub struct Subjects(BTreeMap<String, usize>);

/// Style of one series.
#[derive(Clone, Debug)]
pub struct Style {
    /// Colour in SVG syntax.
    pub color: String,
    /// Marker of its points.
    pub marker: MarkerShape,
    /// Line between its points.
    pub line: LineStyle,
}

impl Subjects {
    /// Assigns colours in the order of appearance.
    pub fn of(report: &Report) -> Self {
        let mut found = BTreeMap::new();
        for series in report.sections.iter().flat_map(|section| &section.series) {
            let next = found.len();
            found.entry(series.subject.clone()).or_insert(next);
        }
        Self(found)
    }

    /// Returns the styles of a section's series in order. Further series of an engine have other
    /// markers and dashes.
    pub fn styles(&self, section: &Section, medium: Medium) -> Vec<Style> {
        let mut seen = BTreeMap::<_, usize>::new();
        let styles = section.series.iter().map(|series| {
            let subject = self.0.get(&series.subject).copied().unwrap_or_default();
            let again = seen.entry((&series.subject, series.published)).or_default();
            let style = style(subject, *again, series.published, medium);
            *again += 1;
            style
        });
        styles.collect()
    }
}

fn style(subject: usize, again: usize, published: bool, medium: Medium) -> Style {
    let color = medium.color(subject);
    if published {
        let marker = PUBLISHED_MARKERS[(subject + again) % PUBLISHED_MARKERS.len()];
        return Style {
            color,
            marker,
            line: LineStyle::Dotted,
        };
    }
    // With eight colours and six markers, the twenty-fifth engine has the style of the first.
    let marker = MARKERS[(subject + again) % MARKERS.len()];
    let line = match again {
        0 => LineStyle::Solid,
        1 => LineStyle::Dashed,
        _ => LineStyle::DashDot,
    };
    Style {
        color,
        marker,
        line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, as WCAG 2.2 defines it.
    fn luminance(color: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn every_colour_contrasts_with_its_page() {
        for (light, dark) in COLORS {
            assert!(
                contrast(light, "#ffffff") >= 3.0,
                "{light}: {}",
                contrast(light, "#ffffff")
            );
            assert!(
                contrast(dark, "#15181c") >= 3.0,
                "{dark}: {}",
                contrast(dark, "#15181c")
            );
        }
    }

    #[test]
    fn no_two_of_twenty_four_subjects_look_alike() {
        let looks: std::collections::BTreeSet<String> = (0..24)
            .map(|subject| style(subject, 0, false, Medium::Paper))
            .map(|style| format!("{style:?}"))
            .collect();
        assert_eq!(looks.len(), 24);
    }
}
