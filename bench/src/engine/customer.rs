//! The customer's packets, and the addresses of all nodes on their path. All expected frames are
//! built from these.

use std::net::{Ipv4Addr, Ipv6Addr};

use sidestep_wire::{EtherType, Protocol};

use super::network::{GENERATOR_MAC, ROUTER_MACS, SINK_MAC};
use super::packet::{ethernet, udp4, udp6};

/// A UDP packet of one length. Its flow label is 0: Sidestep computes the outer flow label (RFC
/// 6437), and Linux copies the 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Customer {
    /// True for IPv4, false for IPv6.
    pub ipv4: bool,
    /// Bytes, from the IP header on.
    pub length: usize,
}

impl Customer {
    /// An IPv6 packet.
    pub fn v6(length: usize) -> Self {
        let ipv4 = false;
        Self { ipv4, length }
    }

    /// An IPv4 packet.
    pub fn v4(length: usize) -> Self {
        let ipv4 = true;
        Self { ipv4, length }
    }

    /// Returns the packet with this hop limit (IPv4: TTL).
    pub fn packet(self, hop_limit: u8) -> Vec<u8> {
        if self.ipv4 {
            udp4(HOST_4, CUSTOMER_4, hop_limit, self.length)
        } else {
            udp6(HOST_6, CUSTOMER_6, hop_limit, self.length)
        }
    }

    /// Returns the protocol number of its IP version.
    pub fn protocol(self) -> Protocol {
        if self.ipv4 {
            Protocol::IPV4
        } else {
            Protocol::IPV6
        }
    }

    /// Returns the frame in which the router receives the packet without outer headers.
    pub fn received(self, hop_limit: u8) -> Vec<u8> {
        received(self.ethertype(), &self.packet(hop_limit))
    }

    /// Returns the frame in which the router sends the packet without outer headers.
    pub fn sent(self, hop_limit: u8) -> Vec<u8> {
        sent(self.ethertype(), &self.packet(hop_limit))
    }

    /// Length of UDP header and payload in bytes.
    pub fn datagram(self) -> usize {
        self.length - if self.ipv4 { 20 } else { 40 }
    }

    fn ethertype(self) -> EtherType {
        if self.ipv4 {
            EtherType::IPV4
        } else {
            EtherType::IPV6
        }
    }
}

/// Returns the frame in which the router receives this IPv6 packet.
pub fn received6(packet: &[u8]) -> Vec<u8> {
    received(EtherType::IPV6, packet)
}

/// Returns the frame in which the router sends this IPv6 packet.
pub fn sent6(packet: &[u8]) -> Vec<u8> {
    sent(EtherType::IPV6, packet)
}

fn received(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    ethernet(ROUTER_MACS[0], GENERATOR_MAC, ethertype, packet)
}

fn sent(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    ethernet(SINK_MAC, ROUTER_MACS[1], ethertype, packet)
}

/// Returns the list `fc0b::1`, `fc0b::2`, … of this length in header order, the last segment first.
pub fn path(count: u32) -> Vec<Ipv6Addr> {
    (1..=count as u16).rev().map(next).collect()
}

/// Returns [`path`] in the syntax of `ip route`, with the first segment first.
pub fn path_words(count: u32) -> String {
    let words: Vec<String> = (1..=count as u16).map(|n| next(n).to_string()).collect();
    words.join(",")
}

fn next(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc0b, 0, 0, 0, 0, 0, 0, number)
}

/// Returns a list of this length in header order: these segments, then segments that were visited
/// before, `fc0a::1`, ….
pub fn passed(last: &[Ipv6Addr], count: u32) -> Vec<Ipv6Addr> {
    let before = (1..).map(|number| Ipv6Addr::new(0xfc0a, 0, 0, 0, 0, 0, 0, number));
    let all = last.iter().copied().chain(before);
    all.take(count as usize).collect()
}

/// Source of the customer's packets, and of all SRv6 packets that arrive.
pub const HOST_6: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1);
const HOST_4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Destination of the customer's packets.
pub const CUSTOMER_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd, 0, 0, 0, 0, 1);
const CUSTOMER_4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Outer source address of encapsulated packets (`ip sr tunsrc`).
pub const TUNSRC: Ipv6Addr = Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0, 0, 2);
/// The router's SID.
pub const SID: Ipv6Addr = Ipv6Addr::new(0xfc0f, 0, 0, 0, 0, 0, 0, 1);
/// The segment after [`SID`], and the first segment of the headends.
pub const NEXT: Ipv6Addr = Ipv6Addr::new(0xfc0b, 0, 0, 0, 0, 0, 0, 1);
/// A segment after [`NEXT`].
pub const LAST: Ipv6Addr = Ipv6Addr::new(0xfc0c, 0, 0, 0, 0, 0, 0, 1);
/// The route of the customer's IPv6 packets.
pub const TO_CUSTOMER_6: &str = "2001:db8:d::/48 via fc01::1 dev eth1";
/// The route of the customer's IPv4 packets.
pub const TO_CUSTOMER_4: &str = "198.51.100.0/24 via 10.1.0.1 dev eth1";
