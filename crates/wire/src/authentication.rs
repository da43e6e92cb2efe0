//! Authentication Header, RFC 4302 2.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | Next Header   |  Payload Len  |          RESERVED             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                 Security Parameters Index (SPI)               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                    Sequence Number Field                      |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                Integrity Check Value-ICV (variable)           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::{Protocol, u32_at};

/// Bytes in front of the ICV.
const FIXED: usize = 12;

header! {
    /// A received Authentication Header. One without room for its fields is truncated.
    view AuthenticationView, |bytes| {
        let length = (usize::from(*bytes.get(1)?) + 2) * 4;
        (length >= FIXED).then_some(length)
    };
    /// An Authentication Header to emit.
    owned Authentication;

    /// Type of the header that follows.
    next_header: Protocol = |header| Protocol(header[0]);
    /// Security Parameters Index.
    spi: u32 = |header| u32_at(header, 4);
    /// Sequence number.
    sequence: u32 = |header| u32_at(header, 8);
    /// Integrity Check Value, a multiple of 4 bytes and at most 1016.
    icv: Vec<u8> = |header| header[FIXED..].to_vec();
}

impl Authentication {
    /// The header and the payload.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        let units = ((FIXED + self.icv.len()) / 4 - 2) as u8;
        [
            &[self.next_header.0, units, 0, 0][..],
            &self.spi.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.icv,
            payload,
        ]
        .concat()
    }
}
