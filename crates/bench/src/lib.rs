//! What `sidestep bench` measures, and what it writes down.
//!
//! - [`report`]: a result as a page, pictures and tables.
//! - [`result`]: the form of `report.json`, from which every picture and table is made.
//! - [`statistics`]: what is said of repeated measurements.

pub mod report;
pub mod result;
pub mod statistics;
