//! The kernel targets in the running kernel: needs root, else every test says that it is skipped.

mod bench;
mod pins;
mod ports;
mod support;
mod tables;
mod trace;
