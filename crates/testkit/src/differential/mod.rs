//! Random nodes and random packets, to ask two data planes the same question and compare the answers.
//!
//! - [`scenario`]: a node in node file form, which the Linux runner and the product both read.
//! - [`packet`]: a packet for the node: valid, nearly valid ([`mutate`]), or noise. [`headers`]
//!   builds its bytes.
//! - [`shrink`]: reduces a node and a packet that still reproduce a failure.
//!
//! Everything follows from one seed. Nothing here knows the expected result.

mod choose;
pub mod headers;
pub mod mutate;
pub mod packet;
pub mod scenario;
pub mod shrink;
