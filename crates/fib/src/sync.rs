//! Atomics of the table: those of the standard library, or loom's, which try every order that the
//! memory model allows (`tests/model.rs`).

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering};
