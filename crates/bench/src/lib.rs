//! What `sidestep bench` measures, and what it writes down.
//!
//! - [`compare`]: two results of the same measurements.
//! - [`report`]: a result as a page, pictures and tables.
//! - [`result`]: the form of `report.json`, from which every picture and table is made.
//! - [`statistics`]: what is said of repeated measurements.

pub mod compare;
pub mod report;
pub mod result;
pub mod statistics;
