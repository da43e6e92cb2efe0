//! `sidestep-bench run`: engines, behaviors and sizes as a YAML file asks for them, measured run by run into a folder that an
//! interruption leaves whole, and told in a [`crate::result::Report`].
//!
//! - [`file`]: the YAML file; [`word`], [`search`]: some of its values; [`difference`]: what is not the same in two of them.
//! - [`plan`]: what it comes to, and who cannot do what.
//! - [`local`]: the engines of this machine.
//! - [`log`]: the folder.
//! - [`run`]: measures what the folder does not have.
//! - [`report`]: tells it.

pub mod difference;
pub mod file;
pub mod local;
pub mod log;
pub mod plan;
pub mod report;
pub mod run;
pub mod search;
pub mod word;
