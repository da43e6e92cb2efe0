//! TCP, RFC 9293 3.1.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |          Source Port          |       Destination Port        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                        Sequence Number                        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                    Acknowledgment Number                      |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | Offset|  Rsrvd|     Flags     |            Window             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |           Checksum            |         Urgent Pointer        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                           [Options]                           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::checksum::{self, Ends, Sum};
use crate::{Protocol, u16_at, u32_at};

const CHECKSUM: usize = 16;

header! {
    /// A received TCP header with its options. A Data Offset below 5 counts as 5.
    view TcpView, |bytes| Some((usize::from(bytes.get(12)? >> 4) * 4).max(Tcp::LENGTH));
    /// A TCP header without options and urgent pointer to emit.
    #[derive(Copy)]
    owned Tcp;

    /// Source port.
    source_port: u16 = |header| u16_at(header, 0);
    /// Destination port.
    destination_port: u16 = |header| u16_at(header, 2);
    /// Sequence number of the first byte of data.
    sequence: u32 = |header| u32_at(header, 4);
    /// Acknowledgment number.
    acknowledgment: u32 = |header| u32_at(header, 8);
    /// Flags CWR to FIN.
    flags: u8 = |header| header[13];
    /// Window.
    window: u16 = |header| u16_at(header, 14);
}

impl Tcp {
    /// Bytes of a header without options.
    pub const LENGTH: usize = 20;

    /// The segment with its checksum.
    pub fn emit(&self, data: &[u8], ends: Ends) -> Vec<u8> {
        let mut segment = [
            &self.source_port.to_be_bytes()[..],
            &self.destination_port.to_be_bytes(),
            &self.sequence.to_be_bytes(),
            &self.acknowledgment.to_be_bytes(),
            &[0x50, self.flags],
            &self.window.to_be_bytes(),
            &[0; 4],
            data,
        ]
        .concat();
        let sum = Sum::default().add_pseudo_header(ends, Protocol::TCP, segment.len());
        checksum::write(&mut segment, CHECKSUM, sum);
        segment
    }
}
