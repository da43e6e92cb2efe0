//! The results of a run. A plot is created with its first point.

use std::fmt::Display;

use crate::result::{Axis, Kind, Point, Refusal, Scale, Section, Series};

/// All results so far.
#[derive(Debug, Default)]
pub struct Book {
    /// Plots, in the order of their first points.
    pub sections: Vec<Section>,
    /// Points that were not measured.
    pub refusals: Vec<Refusal>,
}

/// A plot of the report.
#[derive(Clone, Debug)]
pub struct Page {
    /// As [`Section::id`].
    pub id: String,
    /// As [`Section::title`].
    pub title: String,
    /// As [`Section::note`].
    pub note: &'static str,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
}

impl Book {
    /// Creates a plot. Its position in the report is before all plots that are created later.
    pub fn open(&mut self, page: &Page) {
        self.section(page);
    }

    /// Appends a point to a series.
    pub fn put(&mut self, page: &Page, series: &str, subject: &str, point: Point) {
        let all = &mut self.section(page).series;
        match all.iter_mut().find(|it| it.name == series) {
            Some(known) => known.points.push(point),
            None => all.push(Series {
                name: series.to_owned(),
                subject: subject.to_owned(),
                published: false,
                points: vec![point],
            }),
        }
    }

    fn section(&mut self, page: &Page) -> &mut Section {
        let known = self.sections.iter().position(|it| it.id == page.id);
        let at = known.unwrap_or_else(|| {
            self.sections.push(Section {
                id: page.id.clone(),
                title: page.title.clone(),
                note: page.note.to_owned(),
                kind: Kind::Line,
                x: page.x.clone(),
                y: page.y.clone(),
                baseline: None,
                series: Vec::new(),
            });
            self.sections.len() - 1
        });
        &mut self.sections[at]
    }

    /// Removes empty plots, and makes the kernel the reference of each plot that contains it.
    pub fn close(&mut self) {
        self.sections.retain(|section| !section.series.is_empty());
        for section in &mut self.sections {
            let linux = section
                .series
                .iter()
                .find(|series| series.subject == "linux");
            section.baseline = linux.map(|series| series.name.clone());
        }
    }

    /// Records why a point is missing.
    pub fn refuse(&mut self, subject: &str, at: &str, why: &dyn Display) {
        self.refusals.push(Refusal {
            subject: subject.to_owned(),
            at: at.to_owned(),
            why: why.to_string(),
        });
    }
}

/// Returns the horizontal axis for the number of routes.
pub fn routes_axis() -> Axis {
    Axis::new("routes", "", Scale::Log)
}
