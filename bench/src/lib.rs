//! The benchmark, `sidestep-bench`: measurements, and reports about them.
//!
//! - [`campaign`]: measurements of engines and behaviors from one YAML file.
//! - [`commands`]: the command line.
//! - [`compare`]: comparison of two reports.
//! - [`engine`]: data planes under test.
//! - [`fib`]: prefix tables of Sidestep and others.
//! - [`progress`]: progress of a measurement.
//! - [`report`]: a report as a page, plots and tables.
//! - [`result`]: the format of `report.json`, from which all plots and tables are generated.
//! - [`search`]: the highest rate without loss.
//! - [`statistics`]: statistics of repeated measurements.
//! - [`trex`]: TRex, a generator on another machine.
//!
//! The generator and the receiver of this machine are in `sidestep_testkit::traffic`.

pub mod campaign;
pub mod commands;
pub mod compare;
pub mod conform;
pub mod converge;
mod cpu;
pub mod engine;
pub mod fib;
mod huge_pages;
pub mod machine;
mod memory;
pub mod program;
pub mod progress;
pub mod report;
pub mod result;
pub mod search;
pub mod statistics;
pub mod trex;

/// Version of Sidestep, followed by the commit in parentheses if it is known.
pub const VERSION: &str = env!("SIDESTEP_VERSION");

/// The commit, with the suffix `-dirty` if files had changed. `None` outside a repository.
const GIT: Option<&str> = option_env!("SIDESTEP_GIT");

/// SHA-256 of the running program. `None` if its file cannot be read.
fn program() -> Option<String> {
    crate::program::sha256(std::path::Path::new("/proc/self/exe")).ok()
}
