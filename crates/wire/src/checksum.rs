//! The Internet checksum (RFC 1071) and the pseudo headers that it covers.

use std::net::IpAddr;

use crate::Protocol;

/// Source and destination address of a packet, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
}

impl Ends {
    /// The addresses of a packet.
    pub fn new(source: impl Into<IpAddr>, destination: impl Into<IpAddr>) -> Self {
        Self {
            source: source.into(),
            destination: destination.into(),
        }
    }
}

/// A ones' complement sum that is being accumulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes as big-endian words. An odd last byte is the high half of its word.
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let (words, odd) = bytes.as_chunks::<2>();
        let odd = odd.first().map(|last| [*last, 0]);
        let words = words.iter().copied().chain(odd);
        Self(
            self.0
                + words
                    .map(|word| u64::from(u16::from_be_bytes(word)))
                    .sum::<u64>(),
        )
    }

    /// Adds a number of up to 32 bits, as the words that it consists of.
    #[must_use]
    pub fn add_number(self, number: impl Into<u32>) -> Self {
        Self(self.0 + u64::from(number.into()))
    }

    /// Adds the pseudo header of an upper-layer packet of `length` bytes.
    ///
    /// RFC 8200 8.1 for IPv6, RFC 9293 3.1 for IPv4: both have the same sum.
    #[must_use]
    pub fn add_pseudo_header(self, ends: Ends, protocol: Protocol, length: usize) -> Self {
        let address = |sum: Self, address| match address {
            IpAddr::V4(address) => sum.add_bytes(&address.octets()),
            IpAddr::V6(address) => sum.add_bytes(&address.octets()),
        };
        address(address(self, ends.source), ends.destination)
            .add_number(protocol.0)
            .add_number(length as u32)
    }

    /// The sum folded to 16 bits: 0xffff over data that includes its right checksum.
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum: the complement of the folded sum.
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// The checksum of bytes: 0 if they include their right checksum.
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::default().add_bytes(bytes).checksum()
}

/// The checksum of an upper-layer packet with its pseudo header: 0 if the packet includes it.
pub fn upper_layer(ends: Ends, protocol: Protocol, packet: &[u8]) -> u16 {
    let sum = Sum::default().add_pseudo_header(ends, protocol, packet.len());
    sum.add_bytes(packet).checksum()
}

/// Writes a checksum at an offset of `bytes`, over all of them and what `sum` already has.
pub(crate) fn write(bytes: &mut [u8], at: usize, sum: Sum) {
    bytes[at..at + 2].fill(0);
    let checksum = sum.add_bytes(bytes).checksum();
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
