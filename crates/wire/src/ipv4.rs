//! IPv4 header, RFC 791 3.1.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |Version|  IHL  |Type of Service|          Total Length         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |         Identification        |Flags|      Fragment Offset    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Time to Live |    Protocol   |         Header Checksum       |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                       Source Address                          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                    Destination Address                        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                    Options                    |    Padding    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use std::net::Ipv4Addr;

use crate::checksum::{self, Ends, Sum};
use crate::{Protocol, octets_at, u16_at};

/// Offsets.
pub mod field {
    /// Version (4 bits) and Internet Header Length (4 bits).
    pub const VERSION_IHL: usize = 0;
    /// Type of Service: DSCP and ECN.
    pub const TOS: usize = 1;
    /// Total Length.
    pub const TOTAL_LENGTH: usize = 2;
    /// Identification.
    pub const IDENTIFICATION: usize = 4;
    /// Flags (3 bits) and Fragment Offset (13 bits).
    pub const FRAGMENT: usize = 6;
    /// Time to Live.
    pub const TTL: usize = 8;
    /// Protocol.
    pub const PROTOCOL: usize = 9;
    /// Header Checksum.
    pub const CHECKSUM: usize = 10;
    /// Source Address.
    pub const SOURCE: usize = 12;
    /// Destination Address.
    pub const DESTINATION: usize = 16;
}

header! {
    /// A received IPv4 header with its options. An IHL below 5 counts as 5.
    view Ipv4View, |bytes| Some((usize::from(bytes.first()? & 15) * 4).max(Ipv4::LENGTH));
    /// An IPv4 header without options to emit.
    #[derive(Copy)]
    owned Ipv4;

    /// DSCP and ECN.
    tos: u8 = |header| header[field::TOS];
    /// Identification of the fragments of one packet.
    identification: u16 = |header| u16_at(header, field::IDENTIFICATION);
    /// Flags (3 bits) and Fragment Offset (13 bits, in units of 8 bytes).
    fragment: u16 = |header| u16_at(header, field::FRAGMENT);
    /// Time to live.
    ttl: u8 = |header| header[field::TTL];
    /// Protocol of the payload.
    protocol: Protocol = |header| Protocol(header[field::PROTOCOL]);
    /// Source address.
    source: Ipv4Addr = |header| octets_at::<4>(header, field::SOURCE).into();
    /// Destination address.
    destination: Ipv4Addr = |header| octets_at::<4>(header, field::DESTINATION).into();
}

impl<'a> Ipv4View<'a> {
    /// Bytes of header and payload.
    pub fn total_length(&self) -> u16 {
        u16_at(self.0, field::TOTAL_LENGTH)
    }

    /// Flag DF.
    pub fn dont_fragment(&self) -> bool {
        self.fragment() & Ipv4::DONT_FRAGMENT != 0
    }

    /// Flag MF.
    pub fn more_fragments(&self) -> bool {
        self.fragment() & Ipv4::MORE_FRAGMENTS != 0
    }

    /// Fragment Offset, in units of 8 bytes.
    pub fn fragment_offset(&self) -> u16 {
        self.fragment() & 0x1fff
    }

    /// Header Checksum as received.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0, field::CHECKSUM)
    }

    /// Whether the Header Checksum is right.
    pub fn has_right_checksum(&self) -> bool {
        checksum::checksum(self.0) == 0
    }

    /// Both addresses.
    pub fn ends(&self) -> Ends {
        Ends::new(self.source(), self.destination())
    }

    /// Options and padding, 0 to 40 bytes.
    pub fn options(&self) -> &'a [u8] {
        &self.0[Ipv4::LENGTH..]
    }
}

impl Ipv4 {
    /// Bytes of a header without options.
    pub const LENGTH: usize = 20;
    /// Flag DF of [`Self::fragment`].
    pub const DONT_FRAGMENT: u16 = 0x4000;
    /// Flag MF of [`Self::fragment`].
    pub const MORE_FRAGMENTS: u16 = 0x2000;

    /// A header with TTL 64 and zeros in the other fields.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: Protocol) -> Self {
        Self {
            tos: 0,
            identification: 0,
            fragment: 0,
            ttl: 64,
            protocol,
            source,
            destination,
        }
    }

    /// The packet with this payload, whose Total Length is the low 16 bits of the length.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        self.emit_with_options(&[], payload)
    }

    /// The packet with these options, 0 to 40 bytes in multiples of 4, and this payload.
    pub fn emit_with_options(&self, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let header = Self::LENGTH + options.len();
        let mut packet = [
            &[0x40 | (header / 4) as u8, self.tos][..],
            &((header + payload.len()) as u16).to_be_bytes(),
            &self.identification.to_be_bytes(),
            &self.fragment.to_be_bytes(),
            &[self.ttl, self.protocol.0, 0, 0],
            &self.source.octets(),
            &self.destination.octets(),
            options,
            payload,
        ]
        .concat();
        Self::write_checksum(&mut packet);
        packet
    }

    /// Writes the Header Checksum of the packet. Does nothing if its header is truncated.
    pub fn write_checksum(packet: &mut [u8]) {
        if let Some((view, _)) = Ipv4View::parse(packet) {
            let length = view.bytes().len();
            checksum::write(&mut packet[..length], field::CHECKSUM, Sum::default());
        }
    }
}
