//! Tools of the tests: a network of namespaces, frames that enter and leave it, and the Linux
//! kernel as a reference for the golden vectors. The benchmark also builds its networks with them.
//!
//! - [`netns`], [`lab`]: network namespaces, and a set of them joined by veth links; [`offload`]
//!   per interface.
//! - [`frames`]: sends and receives frames; [`traffic`] sends them at a rate, and counts and times
//!   them.
//! - [`attach`], [`napi`]: programs at interfaces, and veths that receive XDP redirects.
//! - [`tap`]: interfaces like those of a virtual machine, and a simulated machine behind them.
//! - [`vectors`], [`linux`]: the files of `vectors/`, and the kernel's result for each case;
//!   [`hexdiff`] shows the differences of two frames.
//! - [`differential`], [`random`]: random nodes and packets, to compare two data planes.
//! - [`capability`]: reports why a test cannot run here.
//!
//! Nothing here depends on the data plane or the control plane.

pub mod attach;
pub mod capability;
pub mod differential;
pub mod error;
pub mod frames;
pub mod hexdiff;
pub mod lab;
pub mod linux;
pub mod napi;
pub mod netns;
pub mod offload;
pub mod random;
pub mod routes;
pub mod tap;
pub mod traffic;
pub mod vectors;

pub use capability::root_or_skip;
pub use error::Error;
pub use frames::FrameSocket;
pub use lab::{Lab, LinkEnd};
pub use napi::Napi;
pub use netns::Namespace;
