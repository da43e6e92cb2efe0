//! pcap (draft-ietf-opsawg-pcap): a file header of 24 bytes, then records of 16 bytes and the
//! packet.
//!
//! ```text
//!  0  Magic Number: byte order and unit of the timestamps
//!  4  Major Version 2, Minor Version (16 bits each)        0  Timestamp, seconds
//!  8  reserved (8 bytes)                                   4  Timestamp, micro- or nanoseconds
//! 16  SnapLen                                              8  Captured Packet Length
//! 20  FCS length and f bit (upper), LinkType (lower)      12  Original Packet Length
//! ```

use std::io::Read;

use super::source::Source;
use super::timestamp::Resolution;
use super::{BLOCK_MAX, CaptureError, Interface, Order, Record};

const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

/// The byte order and the unit that a magic number says.
fn meaning(magic: [u8; 4]) -> Option<(Order, Resolution)> {
    let resolution = |number| match number {
        MAGIC_MICROSECONDS => Some(Resolution::Decimal(6)),
        MAGIC_NANOSECONDS => Some(Resolution::Decimal(9)),
        _ => None,
    };
    let little =
        resolution(u32::from_le_bytes(magic)).map(|resolution| (Order::Little, resolution));
    little.or_else(|| {
        resolution(u32::from_be_bytes(magic)).map(|resolution| (Order::Big, resolution))
    })
}

/// The file begins as a pcap file does.
pub(super) fn is_magic(magic: [u8; 4]) -> bool {
    meaning(magic).is_some()
}

pub(super) struct Pcap {
    link_type: u16,
    order: Order,
    resolution: Resolution,
    /// The one that all packets are of.
    interface: [Interface; 1],
}

impl Pcap {
    /// Reads the file header behind its magic number.
    pub(super) fn open<R: Read>(
        magic: [u8; 4],
        source: &mut Source<R>,
    ) -> Result<Self, CaptureError> {
        let (order, resolution) =
            meaning(magic).unwrap_or((Order::Little, Resolution::MICROSECONDS));
        let mut header = [0; FILE_HEADER];
        header[..4].copy_from_slice(&magic);
        source.read_all(&mut header[4..], 0, || {
            format!("a pcap file header of {FILE_HEADER} bytes")
        })?;
        let major = order.u16(&header, 4);
        if major != 2 {
            return Err(CaptureError::damaged(
                4,
                format!("pcap version {major}; only 2 is known"),
            ));
        }
        // The upper bits say how long the FCS is, if there is one: behind the packet's end, so
        // padding to us.
        let link_type = order.u32(&header, 20) as u16;
        Ok(Self {
            link_type,
            order,
            resolution,
            interface: [Interface {
                number: 0,
                name: None,
            }],
        })
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interface
    }

    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Record>, CaptureError> {
        let offset = source.offset();
        let mut header = [0; RECORD_HEADER];
        match source.read(&mut header)? {
            0 => return Ok(None),
            RECORD_HEADER => {}
            _ => {
                let problem = format!(
                    "a record header of {RECORD_HEADER} bytes begins here, but the file ends at byte {}",
                    source.offset()
                );
                return Err(CaptureError::damaged(offset, problem));
            }
        }
        let field = |at| self.order.u32(&header, at);
        let (seconds, fraction, captured, original_length) =
            (field(0), field(4), field(8), field(12));
        if captured > BLOCK_MAX {
            let problem =
                format!("Captured Packet Length is {captured}; at most {BLOCK_MAX} is believed");
            return Err(CaptureError::damaged(offset + 8, problem));
        }
        buffer.resize(captured as usize, 0);
        source.read_all(buffer, offset, || {
            format!("a record of {RECORD_HEADER} and {captured} bytes")
        })?;
        // Both are 32 bits: nanoseconds of the year 2106 fit into 64.
        let timestamp = self
            .resolution
            .nanoseconds(u64::from(fraction), i64::from(seconds));
        Ok(Some(Record {
            offset,
            interface: 0,
            timestamp,
            is_outbound: false,
            original_length,
            link_type: self.link_type,
            data: 0..buffer.len(),
        }))
    }
}
