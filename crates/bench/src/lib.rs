//! The benchmark, `sidestep-bench`: measurements, and the reports made of them.
//!
//! - [`campaign`]: measurements of engines and behaviors from one YAML file.
//! - [`commands`]: the command line.
//! - [`compare`]: two results of the same measurements.
//! - [`engine`]: data planes under test, case by case.
//! - [`fib`]: prefix tables of Sidestep and others.
//! - [`progress`]: progress of a measurement.
//! - [`report`]: a result as a page, pictures and tables.
//! - [`result`]: the form of `report.json`, from which every picture and table is made.
//! - [`search`]: the highest rate without loss.
//! - [`statistics`]: statistics of repeated measurements.
//! - [`traffic`]: millions of packets per second, counted at the other end.

pub mod campaign;
pub mod commands;
pub mod compare;
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
pub mod traffic;

/// Version of Sidestep, and behind it in parentheses the commit that it was built from, where that is known.
pub const VERSION: &str = env!("SIDESTEP_VERSION");

/// The commit alone, with `-dirty` behind it if files had changed; none outside a repository.
const GIT: Option<&str> = option_env!("SIDESTEP_GIT");

/// SHA-256 of the program that runs; none where its file cannot be read.
fn program() -> Option<String> {
    crate::program::sha256(std::path::Path::new("/proc/self/exe")).ok()
}
