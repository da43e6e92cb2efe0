//! The laboratory of the tests and the bench: a network in namespaces, frames in and out of it, traffic
//! through it, and the Linux kernel as a reference for the golden vectors.
//!
//! - [`netns`], [`lab`]: network namespaces, and a set of them joined by veth links; [`offload`] per interface.
//! - [`frames`]: one frame in, the frames that come out.
//! - [`tap`]: interfaces as a virtual machine has them, and a machine behind them.
//! - [`traffic`]: millions of packets per second, counted at the other end.
//! - [`vectors`], [`linux`]: the files of `vectors/`, and the kernel's result for each case;
//!   [`hexdiff`] shows the differences of two frames.
//! - [`engine`]: data planes under measurement, case by case.
//! - [`differential`], [`random`]: random nodes and packets, to compare two data planes with.
//! - [`capability`]: reports why a test cannot run here.
//!
//! Nothing here knows the product's data plane or control plane: the lab meets them as an operator does.

pub mod capability;
pub mod differential;
pub mod engine;
pub mod error;
pub mod frames;
pub mod hexdiff;
pub mod lab;
pub mod linux;
pub mod netns;
pub mod offload;
pub mod program;
pub mod random;
pub mod routes;
pub mod tap;
pub mod traffic;
pub mod vectors;

pub use capability::root_or_skip;
pub use error::Error;
pub use frames::FrameSocket;
pub use lab::{Lab, LinkEnd};
pub use netns::Namespace;
