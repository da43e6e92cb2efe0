//! What `sidestep bench` measures, and what it writes down.
//!
//! - [`campaign`]: engines and behaviors, as one YAML file asks for it.
//! - [`compare`]: two results of the same measurements.
//! - [`fib`]: prefix tables, ours and others'.
//! - [`progress`]: how far a measurement is.
//! - [`report`]: a result as a page, pictures and tables.
//! - [`result`]: the form of `report.json`, from which every picture and table is made.
//! - [`search`]: how fast a system can be sent to before it loses packets.
//! - [`statistics`]: what is said of repeated measurements.

pub mod campaign;
pub mod compare;
mod cpu;
pub mod fib;
mod huge_pages;
mod machine;
mod memory;
pub mod progress;
pub mod report;
pub mod result;
pub mod search;
pub mod statistics;
