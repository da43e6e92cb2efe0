//! A [`Report`] as files to look at: one HTML page, Markdown, and for each picture a PNG and its numbers as CSV.
//!
//! All of them are made from `report.json` and from nothing else, so that they can be made again (`sidestep-bench report`).

pub mod findings;
mod html;
pub(crate) mod machine;
mod markdown;
pub mod number;
mod plot;
pub mod table;
pub mod text;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use html::page;
pub use markdown::markdown;

use self::plot::ink::Subjects;
use crate::result::{Report, SCHEMA, Section};

/// The file that everything is made from.
pub const JSON: &str = "report.json";
/// The page.
pub const HTML: &str = "report.html";

/// A report could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file and the system's error.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not JSON, or not of this form; with line and column.
    #[error("{}: {source}", path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A form that another version writes.
    #[error("{}: schema {found}, but this version reads schema {SCHEMA}", path.display())]
    Schema {
        /// Which file.
        path: PathBuf,
        /// Its text.
        found: u64,
    },
    /// A picture could not be drawn.
    #[error("picture {id}: {why}")]
    Picture {
        /// Section.
        id: String,
        /// Error of the plotting library.
        why: String,
    },
}

/// Reads `report.json`, or the one in that folder.
pub fn read(path: &Path) -> Result<Report, Error> {
    let path = if path.is_dir() {
        path.join(JSON)
    } else {
        path.to_path_buf()
    };
    let text = fs::read(&path).map_err(|source| Error::File {
        path: path.clone(),
        source,
    })?;
    let form = |source| Error::Form {
        path: path.clone(),
        source,
    };
    // The number first: what another version writes is not damaged.
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(form)?;
    if let Some(found) = value["schema"]
        .as_u64()
        .filter(|&found| found != u64::from(SCHEMA))
    {
        return Err(Error::Schema { path, found });
    }
    serde_json::from_slice(&text).map_err(form)
}

/// Writes `report.json` and everything made from it into a folder, which is made if need be.
pub fn write(report: &Report, folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|source| Error::File {
        path: folder.to_path_buf(),
        source,
    })?;
    let json = serde_json::to_vec_pretty(report).map_err(|source| Error::Form {
        path: folder.join(JSON),
        source,
    })?;
    save(folder, JSON, &json)?;
    render(report, folder)
}

/// Writes everything but `report.json`.
pub fn render(report: &Report, folder: &Path) -> Result<(), Error> {
    save(folder, HTML, page(report).as_bytes())?;
    save(folder, "report.md", markdown(report).as_bytes())?;
    let subjects = Subjects::of(report);
    if let Some(overview) = findings::overview(report) {
        save_picture(folder, &overview, &subjects)?;
    }
    for section in &report.sections {
        save(
            folder,
            &format!("{}.csv", section.id),
            &text::csv(&table::raw(section)),
        )?;
        save_picture(folder, section, &subjects)?;
    }
    for table in &report.tables {
        save(folder, &format!("{}.csv", table.id), &text::csv(table))?;
    }
    Ok(())
}

/// Writes the picture of a section, unless it has no points.
fn save_picture(folder: &Path, section: &Section, subjects: &Subjects) -> Result<(), Error> {
    let Some(png) = plot::png(section, subjects) else {
        return Ok(());
    };
    let png = png.map_err(|why| Error::Picture {
        id: section.id.clone(),
        why,
    })?;
    save(folder, &format!("{}.png", section.id), &png)
}

/// Sentences below every report.
fn how_to_read() -> [&'static str; 4] {
    [
        "A value is the median of its rounds; the bar at it reaches from the lowest to the highest round, where nothing \
         else is said. A box reaches from the first to the third quartile, its whiskers to the last round within one and \
         a half times that range.",
        "SD is the standard deviation of the rounds, CV the same as a share of the mean, ± 95 % CI half the width of the \
         confidence interval of the mean (Student's distribution over the rounds).",
        "The columns “times Linux” compare the speed of an engine with the speed of Linux at the same point, by medians. \
         For rates this is the ratio to the value of Linux, for times the inverse ratio.",
        "What is marked as of other hardware is published, and was measured by others: compare its shape, not its height.",
    ]
}

fn save(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let path = folder.join(name);
    fs::write(&path, bytes).map_err(|source| Error::File { path, source })
}
