//! The composition root: compiles the model of the node into the tables of the packet path and keeps them current.

pub mod api;
pub mod compile;
pub mod daemon;
pub mod icmp;
pub mod report;
pub mod trace;
