//! Tests of `sidestep-bench`: the library on simulated systems, and in [`live`] the program on this
//! machine.
//!
//! Engines need the router: the `sidestep` program next to `sidestep-bench`, or the one in
//! `$SIDESTEP`.

mod campaign;
mod campaign_file;
mod campaign_folder;
mod commands;
mod compare;
mod completion;
mod live;
mod program;
mod report;
mod sample;
mod search;
mod simulated;
mod trex;
