//! Renders a [`Report`]: one HTML page, Markdown, and per plot a PNG and a CSV file with its
//! numbers.
//!
//! `report.json` is the only input, so that `sidestep-bench report` can render the files again.

pub mod findings;
pub(crate) mod html;
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

/// The file from which all others are generated.
pub const JSON: &str = "report.json";
/// File name of the page.
pub const HTML: &str = "report.html";

/// A report could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not JSON, or not a report.
    #[error("{}: {source}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The error, with line and column.
        source: serde_json::Error,
    },
    /// The file has the format of another version.
    #[error("{}: schema {found}, but this version reads schema {SCHEMA}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Schema version in the file.
        found: u64,
    },
    /// A plot could not be drawn.
    #[error("picture {id}: {why}")]
    Picture {
        /// Id of the section.
        id: String,
        /// Error of the plotting library.
        why: String,
    },
}

/// Reads `report.json` at this path, or in this folder.
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
    // Check the version first: a file of another version is not damaged.
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(form)?;
    if let Some(found) = value["schema"]
        .as_u64()
        .filter(|&found| found != u64::from(SCHEMA))
    {
        return Err(Error::Schema { path, found });
    }
    serde_json::from_slice(&text).map_err(form)
}

/// Writes `report.json` and all generated files into a folder, and creates the folder if necessary.
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

/// Writes all files except `report.json`.
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

/// Writes the plot of a section, unless it has no points.
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
        "A value is the median of its rounds; the bar at it reaches from the lowest to the highest round unless a \
         note says otherwise. A box reaches from the first to the third quartile, its whiskers to the last round within one and \
         a half times that range.",
        "SD is the standard deviation of the rounds, CV the same as a share of the mean, ± 95 % CI half the width of the \
         confidence interval of the mean (Student's distribution over the rounds).",
        "The columns “times Linux” compare the speed of an engine with the speed of Linux at the same point, by medians. \
         For rates this is the ratio to the value of Linux, for times the inverse ratio.",
        "Series marked as other hardware are published figures: compare their shape, not their height.",
    ]
}

fn save(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let path = folder.join(name);
    fs::write(&path, bytes).map_err(|source| Error::File { path, source })
}
