//! UDP, RFC 768.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |          Source Port          |       Destination Port        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |            Length             |           Checksum            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::checksum::{self, Ends, Sum};
use crate::{Protocol, u16_at};

/// Offset of the checksum.
const CHECKSUM: usize = 6;

header! {
    /// A received UDP header.
    view UdpView, |_| Some(Udp::LENGTH);
    /// A UDP header to emit.
    #[derive(Copy)]
    owned Udp;

    /// Source port.
    source_port: u16 = |header| u16_at(header, 0);
    /// Destination port.
    destination_port: u16 = |header| u16_at(header, 2);
}

impl UdpView<'_> {
    /// Bytes of header and data.
    pub fn length(&self) -> u16 {
        u16_at(self.0, 4)
    }

    /// Checksum as received. In IPv4, 0 means no checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0, CHECKSUM)
    }
}

impl Udp {
    /// Bytes of the header.
    pub const LENGTH: usize = 8;

    /// The datagram with its checksum. A checksum of 0 is emitted as 0xffff (RFC 768).
    pub fn emit(&self, data: &[u8], ends: Ends) -> Vec<u8> {
        let length = Self::LENGTH + data.len();
        let words = [self.source_port, self.destination_port, length as u16, 0];
        let mut datagram = [&words.map(u16::to_be_bytes).concat()[..], data].concat();
        let sum = Sum::default().add_pseudo_header(ends, Protocol::UDP, length);
        checksum::write(&mut datagram, CHECKSUM, sum);
        let checksum = &mut datagram[CHECKSUM..Self::LENGTH];
        if *checksum == [0, 0] {
            checksum.fill(0xff);
        }
        datagram
    }
}
