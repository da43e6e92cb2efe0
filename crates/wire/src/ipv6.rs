//! IPv6 header, RFC 8200 3.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |Version| Traffic Class |           Flow Label                  |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |         Payload Length        |  Next Header  |   Hop Limit   |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                   Source Address (16 bytes)                   |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                Destination Address (16 bytes)                 |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use std::net::Ipv6Addr;

use crate::checksum::Ends;
use crate::{Protocol, octets_at, u16_at, u32_at};

/// Offsets.
pub mod field {
    /// Version (4 bits), Traffic Class (8 bits) and Flow Label (20 bits).
    pub const VERSION_CLASS_LABEL: usize = 0;
    /// Payload Length.
    pub const PAYLOAD_LENGTH: usize = 4;
    /// Next Header.
    pub const NEXT_HEADER: usize = 6;
    /// Hop Limit.
    pub const HOP_LIMIT: usize = 7;
    /// Source Address.
    pub const SOURCE: usize = 8;
    /// Destination Address.
    pub const DESTINATION: usize = 24;
}

header! {
    /// A received IPv6 header.
    view Ipv6View, |_| Some(Ipv6::LENGTH);
    /// An IPv6 header to emit.
    #[derive(Copy)]
    owned Ipv6;

    /// DSCP and ECN.
    traffic_class: u8 = |header| (u32_at(header, field::VERSION_CLASS_LABEL) >> 20) as u8;
    /// Flow label, 20 bits.
    flow_label: u32 = |header| u32_at(header, field::VERSION_CLASS_LABEL) & 0xf_ffff;
    /// Type of the header that follows.
    next_header: Protocol = |header| Protocol(header[field::NEXT_HEADER]);
    /// Hop limit.
    hop_limit: u8 = |header| header[field::HOP_LIMIT];
    /// Source address.
    source: Ipv6Addr = |header| octets_at::<16>(header, field::SOURCE).into();
    /// Destination address.
    destination: Ipv6Addr = |header| octets_at::<16>(header, field::DESTINATION).into();
}

impl Ipv6View<'_> {
    /// Bytes behind this header.
    pub fn payload_length(&self) -> u16 {
        u16_at(self.0, field::PAYLOAD_LENGTH)
    }

    /// Both addresses.
    pub fn ends(&self) -> Ends {
        Ends::new(self.source(), self.destination())
    }
}

impl Ipv6 {
    /// Bytes of the header.
    pub const LENGTH: usize = 40;

    /// A header with hop limit 64 and zeros in the other fields.
    pub fn new(source: Ipv6Addr, destination: Ipv6Addr, next_header: Protocol) -> Self {
        Self {
            traffic_class: 0,
            flow_label: 0,
            next_header,
            hop_limit: 64,
            source,
            destination,
        }
    }

    /// The packet with this payload, whose Payload Length is the low 16 bits of the length.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        [
            &first.to_be_bytes()[..],
            &(payload.len() as u16).to_be_bytes(),
            &[self.next_header.0, self.hop_limit],
            &self.source.octets(),
            &self.destination.octets(),
            payload,
        ]
        .concat()
    }
}
