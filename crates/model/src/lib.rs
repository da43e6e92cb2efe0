//! The operator's nouns: link, address, neighbor, route, rule, encapsulation and behavior. The
//! crate parses and prints them in iproute2's grammar and reads the YAML node file.
//!
//! This crate does no I/O. It depends neither on netlink nor on the data plane.

pub mod behavior;
pub mod bridge;
pub mod config;
pub mod domain;
pub mod error;
pub mod ether;
pub mod grammar;
pub mod hmac;
pub mod liveness;
pub mod node;
pub mod policy;
pub mod protection;
pub mod route;
pub mod service;
pub mod settings;
pub mod source;
pub mod vlan;

pub use error::{ConfigError, Place};
