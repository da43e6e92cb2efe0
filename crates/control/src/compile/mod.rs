//! `compile(node) -> tables`: turns the configuration into records that cost a packet one lookup
//! each.
//!
//! Everything that does not depend on a packet is resolved here: rules become one view per port,
//! next hops become MAC addresses, segment lists become headers. Neighbors on a connected prefix
//! become host routes, as in hardware routers, so that the longest match yields the MAC address.

mod allocator;
mod builder;
mod chain;
mod change;
mod compiler;
mod cross_connect;
mod endpoints;
mod entries;
mod error;
mod fit;
mod group;
mod headend;
mod header;
mod hmac;
mod index;
mod indices;
mod kept;
mod keys;
mod liveness;
mod lookups;
mod merge;
mod object;
mod policy;
mod ports;
mod protection;
mod record;
mod resolver;
mod routes;
mod rules;
mod service;
mod share;
mod store;
mod tables;
mod update;
mod view_set;
mod views;

pub use change::Change;
pub use compiler::Compiler;
pub use error::CompileError;
pub use hmac::sign;
pub use index::{
    AdjacencyInfo, Compiled, Continuation, Counted, Index, PathRoute, PolicyInfo, ProxyInfo,
    RouteInfo, ViewInfo,
};
pub(crate) use policy::shares;
pub(crate) use tables::Prefix;
pub use update::NeedsFullCompile;

#[cfg(test)]
mod tests;
