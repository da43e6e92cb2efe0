//! SCTP common header, RFC 9260 3.1.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |      Source Port Number       |    Destination Port Number    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                       Verification Tag                        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                           Checksum                            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::u16_at;

header! {
    /// A received SCTP common header.
    view SctpView, |_| Some(12);
    /// The ports of an SCTP common header. This crate emits none.
    #[derive(Copy)]
    owned Sctp;

    /// Source port.
    source_port: u16 = |header| u16_at(header, 0);
    /// Destination port.
    destination_port: u16 = |header| u16_at(header, 2);
}
