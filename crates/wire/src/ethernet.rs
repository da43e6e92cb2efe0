//! Ethernet II.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                      Destination Address                      |
//! +                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               |                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//! |                        Source Address                         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |           EtherType           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::{EtherType, octets_at, u16_at};

/// Offsets.
pub mod field {
    /// Destination Address.
    pub const DESTINATION: usize = 0;
    /// Source Address.
    pub const SOURCE: usize = 6;
    /// `EtherType`.
    pub const ETHERTYPE: usize = 12;
}

header! {
    /// A received Ethernet header.
    view EthernetView, |_| Some(Ethernet::LENGTH);
    /// An Ethernet header to emit.
    #[derive(Copy)]
    owned Ethernet;

    /// MAC address of the receiver.
    destination: [u8; 6] = |header| octets_at(header, field::DESTINATION);
    /// MAC address of the sender.
    source: [u8; 6] = |header| octets_at(header, field::SOURCE);
    /// Type of the payload.
    ethertype: EtherType = |header| EtherType(u16_at(header, field::ETHERTYPE));
}

impl Ethernet {
    /// Bytes of the header.
    pub const LENGTH: usize = 14;

    /// The frame with this payload, without frame check sequence.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        let ethertype = self.ethertype.0.to_be_bytes();
        [&self.destination[..], &self.source, &ethertype, payload].concat()
    }
}
