//! What `sidestep bench` measures, and what it writes down.
//!
//! - [`compare`]: two results of the same measurements.
//! - [`fib`]: prefix tables, ours and others'.
//! - [`report`]: a result as a page, pictures and tables.
//! - [`result`]: the form of `report.json`, from which every picture and table is made.
//! - [`search`]: how fast a system can be sent to before it loses packets.
//! - [`statistics`]: what is said of repeated measurements.

pub mod compare;
mod cpu;
pub mod fib;
mod huge_pages;
mod machine;
mod memory;
pub mod report;
pub mod result;
pub mod search;
pub mod statistics;
