//! A service chain: between two edges two nodes, each with a function behind SR proxies: a firewall and a rate limiter. They are
//! plain Linux with nftables, forward plain packets, and know nothing of SRv6.

mod change;
mod functions;
mod story;
pub(super) mod topology;

pub(super) use story::Story;
