//! Counters and states of the daemon for Prometheus: `sidestep metrics` and `sidestep run
//! --metrics`.

mod families;
pub mod http;
mod text;

use std::io::Write;

use sidestep_control::api::{self, ApiError, Request};
use sidestep_control::report;

use crate::Outcome;
pub use text::Format;

/// Arguments of `metrics`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_: &Args, out: &mut dyn Write) -> Outcome {
    out.write_all(scrape(Format::Text)?.as_bytes())?;
    Ok(())
}

/// Returns all metrics of the daemon in this network namespace.
///
/// # Errors
/// The daemon does not run or does not reply.
pub fn scrape(format: Format) -> Result<String, ApiError> {
    let report: report::Metrics = api::ask(Request::ShowMetrics)?;
    Ok(families::text(&report, format))
}
