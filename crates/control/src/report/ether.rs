//! State of ether devices.

use serde::{Deserialize, Serialize};

/// `ether show`.
pub type Ethers = Vec<Ether>;

/// An ether device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ether {
    /// Name.
    pub name: String,
    /// Arguments of `ether add`.
    pub words: String,
    /// Headend behavior: `l2encap` or `l2encap.red`.
    pub mode: String,
    /// Segment list in the order of travel; empty for a device into a policy.
    pub segments: Vec<String>,
    /// Name of its policy.
    pub policy: Option<String>,
    /// Interface at which its frames arrive.
    pub port: String,
    /// MTU in bytes that Sidestep has set.
    pub mtu: u32,
    /// Why frames cannot be sent; then the device has no carrier.
    pub invalid: Option<String>,
    /// Whether the device is up and has a carrier.
    pub up: bool,
    /// Frames that were sent in SRv6.
    pub encapsulated_packets: u64,
    /// Their bytes behind the Ethernet headers.
    pub encapsulated_bytes: u64,
    /// Frames that took the route of the device and were dropped.
    pub dropped_packets: u64,
    /// Frames that its SIDs sent into the device, or out of its attached interface.
    pub delivered_packets: u64,
    /// Bytes of the packets with these frames, from the outer IPv6 header on.
    pub delivered_bytes: u64,
}
