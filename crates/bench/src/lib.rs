//! What `sidestep bench` measures, and what it writes down.
//!
//! - [`result`]: the form of `report.json`, from which every picture and table is made.

pub mod result;
