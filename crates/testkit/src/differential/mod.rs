//! Random nodes and random packets, to ask two data planes the same question and compare the answers.
//!
//! - [`scenario`]: a node in the words of the node file, which the Linux runner and the product both read.
//! - [`packet`]: a packet for such a node: right, nearly right ([`mutate`]), or noise. [`headers`] are its bytes.
//! - [`shrink`]: what is left of a node and a packet that still show what a larger case showed.
//!
//! Everything follows from one seed. Nothing here knows what a data plane should answer.

mod choose;
pub mod headers;
pub mod mutate;
pub mod packet;
pub mod scenario;
pub mod shrink;
