//! Random nodes and packets, to compare the results of two data planes.
//!
//! - [`scenario`]: a node as a node file, which the Linux runner and the product both read.
//! - [`packet`]: a packet for the node: valid, nearly valid ([`mutate`]), or noise. [`headers`]
//!   builds its bytes.
//! - [`shrink`]: reduces a node and a packet that still reproduce a failure.
//!
//! One seed determines everything. Nothing here knows the expected result.

mod choose;
pub mod headers;
pub mod mutate;
pub mod packet;
pub mod scenario;
pub mod shrink;
