//! Packets of a measurement: UDP, and helpers for the headers around it.

use std::net::{Ipv4Addr, Ipv6Addr};

use sidestep_wire::{Ends, EtherType, Ethernet, Ipv4, Ipv6, Protocol, Srh, Udp};

/// Returns an Ethernet frame.
pub fn ethernet(
    destination: [u8; 6],
    source: [u8; 6],
    ethertype: EtherType,
    payload: &[u8],
) -> Vec<u8> {
    Ethernet {
        destination,
        source,
        ethertype,
    }
    .emit(payload)
}

/// Returns an SRH without flags, tag and TLVs. `list` is in wire order: the last segment first.
pub fn srh(next: Protocol, segments_left: u8, list: &[Ipv6Addr], payload: &[u8]) -> Vec<u8> {
    Srh::new(next, segments_left, list.to_vec()).emit(payload)
}

/// Returns a UDP packet of `length` bytes, including the IPv6 header.
pub fn udp6(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, length: usize) -> Vec<u8> {
    let header = Ipv6 {
        hop_limit,
        ..Ipv6::new(source, destination, Protocol::UDP)
    };
    header.emit(&udp(Ends::new(source, destination), length - Ipv6::LENGTH))
}

/// Returns a UDP packet of `length` bytes, including the IPv4 header.
pub fn udp4(source: Ipv4Addr, destination: Ipv4Addr, ttl: u8, length: usize) -> Vec<u8> {
    let header = Ipv4 {
        ttl,
        ..Ipv4::new(source, destination, Protocol::UDP)
    };
    header.emit(&udp(Ends::new(source, destination), length - Ipv4::LENGTH))
}

/// Returns a UDP datagram of `length` bytes from [`SOURCE_PORT`] to port 9 (discard), filled with
/// zeros.
fn udp(ends: Ends, length: usize) -> Vec<u8> {
    let header = Udp {
        source_port: SOURCE_PORT,
        destination_port: 9,
    };
    header.emit(&vec![0; length - Udp::LENGTH], ends)
}

/// Source port of the first flow.
pub const SOURCE_PORT: u16 = 4096;
