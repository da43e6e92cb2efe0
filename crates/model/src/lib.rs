//! The operator's nouns: link, address, neighbor, route, rule, encapsulation, behavior; the iproute2
//! words for them, in and out; and the YAML file that holds a node.
//!
//! This crate does no I/O and knows neither the kernel's netlink nor the data plane.

pub mod behavior;
pub mod config;
pub mod domain;
pub mod error;
pub mod grammar;
pub mod hmac;
pub mod node;
pub mod policy;
pub mod route;
pub mod service;
pub mod vlan;

pub use error::{ConfigError, Place};
