//! ICMP (RFC 792) and `ICMPv6` (RFC 4443 2.1), which differ in types and checksum.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     Type      |     Code      |          Checksum             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |         A word that depends on the type: MTU, pointer, ...    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::checksum::{self, Ends, Sum};
use crate::{Icmpv4Type, Icmpv6Type, Protocol, u32_at};

const CHECKSUM: usize = 2;

header! {
    /// The first 8 bytes of a received message, of ICMP or `ICMPv6`.
    view IcmpView, |_| Some(Icmp::LENGTH);
    /// The first 8 bytes of a message to emit.
    #[derive(Copy)]
    owned Icmp;

    /// Type, an [`Icmpv4Type`] or an [`Icmpv6Type`].
    kind: u8 = |message| message[0];
    /// Code.
    code: u8 = |message| message[1];
    /// The word after the checksum.
    word: u32 = |message| u32_at(message, 4);
}

impl Icmp {
    /// Bytes of the header.
    pub const LENGTH: usize = 8;

    /// A header of ICMP.
    pub fn v4(kind: Icmpv4Type, code: u8, word: u32) -> Self {
        let kind = kind.0;
        Self { kind, code, word }
    }

    /// A header of `ICMPv6`.
    pub fn v6(kind: Icmpv6Type, code: u8, word: u32) -> Self {
        let kind = kind.0;
        Self { kind, code, word }
    }

    /// A message of ICMP with its checksum.
    pub fn emit_v4(&self, body: &[u8]) -> Vec<u8> {
        self.emit(body, Sum::default())
    }

    /// A message of `ICMPv6` with its checksum (RFC 4443 2.3).
    pub fn emit_v6(&self, body: &[u8], ends: Ends) -> Vec<u8> {
        let length = Self::LENGTH + body.len();
        let sum = Sum::default().add_pseudo_header(ends, Protocol::ICMPV6, length);
        self.emit(body, sum)
    }

    /// A message with checksum 0, for a raw socket of `ICMPv6` whose kernel writes it (RFC 3542 3.1).
    pub fn emit_without_checksum(&self, body: &[u8]) -> Vec<u8> {
        [
            &[self.kind, self.code, 0, 0][..],
            &self.word.to_be_bytes(),
            body,
        ]
        .concat()
    }

    fn emit(self, body: &[u8], sum: Sum) -> Vec<u8> {
        let mut message = self.emit_without_checksum(body);
        checksum::write(&mut message, CHECKSUM, sum);
        message
    }
}
