//! Tests of commands that need neither root nor a network.

#[path = "../common/mod.rs"]
mod common;
mod completion;
mod exec;
mod explain;
mod replay;
mod words;
