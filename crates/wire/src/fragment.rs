//! Fragment header, RFC 8200 4.5.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Next Header  |   Reserved    |      Fragment Offset    |Res|M|
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                         Identification                        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::{Protocol, u16_at, u32_at};

header! {
    /// A received Fragment header.
    view FragmentView, |_| Some(Fragment::LENGTH);
    /// A Fragment header to emit.
    #[derive(Copy)]
    owned Fragment;

    /// Type of the header that follows in the first fragment.
    next_header: Protocol = |header| Protocol(header[0]);
    /// Fragment Offset, in units of 8 bytes. 0 in the first fragment.
    offset: u16 = |header| u16_at(header, 2) >> 3;
    /// Flag M.
    more_fragments: bool = |header| header[3] & 1 != 0;
    /// Identification of the fragments of one packet.
    identification: u32 = |header| u32_at(header, 4);
}

impl Fragment {
    /// Bytes of the header.
    pub const LENGTH: usize = 8;

    /// The header and the payload.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        [
            &[self.next_header.0, 0][..],
            &(self.offset << 3 | u16::from(self.more_fragments)).to_be_bytes(),
            &self.identification.to_be_bytes(),
            payload,
        ]
        .concat()
    }
}
