//! Tests of commands that need neither root nor a network.

#[path = "../common/mod.rs"]
mod common;
mod completion;
mod explain;
mod replay;
