//! `sidestep-bench run`: measures engines, behaviors and sizes of a YAML file into a folder that
//! survives interruptions, and builds a [`crate::result::Report`].
//!
//! - [`file`]: the YAML file; [`word`], [`search`]: some of its values; [`difference`]: differences
//!   between two files.
//! - [`plan`]: the resulting cases, and those that an engine does not support.
//! - [`local`]: the engines of this machine.
//! - [`log`]: the folder.
//! - [`run`]: measures what is missing in the folder.
//! - [`repeat`]: repeats trials that steal time disturbed.
//! - [`report`]: builds the report.

pub mod difference;
pub mod file;
pub mod local;
pub mod log;
pub mod plan;
pub mod repeat;
pub mod report;
pub mod run;
pub mod search;
pub mod word;
