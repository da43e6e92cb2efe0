//! Hop-by-Hop Options header (RFC 8200 4.3) and Destination Options header (RFC 8200 4.6).
//!
//! ```text
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Next Header  |  Hdr Ext Len  |   Options, a multiple of 8 bytes with these two
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::Protocol;

/// Bytes of an extension header: Hdr Ext Len counts units of 8 bytes behind the first one.
pub(crate) fn extension_length(bytes: &[u8]) -> Option<usize> {
    Some((usize::from(*bytes.get(1)?) + 1) * 8)
}

header! {
    /// A received options header.
    view OptionsView, extension_length;
    /// An options header to emit.
    owned Options;

    /// Type of the header that follows.
    next_header: Protocol = |header| Protocol(header[0]);
    /// Options as bytes, at most 2046. `emit` pads them.
    options: Vec<u8> = |header| header[2..].to_vec();
}

impl Options {
    /// The header, padded with `Pad1` or `PadN` (RFC 8200 4.2), and the payload.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        let mut header = [&[self.next_header.0, 0][..], &self.options].concat();
        match header.len().next_multiple_of(8) - header.len() {
            0 => {}
            1 => header.push(0),
            missing => {
                header.extend([1, missing as u8 - 2]);
                header.resize(header.len() + missing - 2, 0);
            }
        }
        header[1] = (header.len() / 8 - 1) as u8;
        header.extend(payload);
        header
    }
}
