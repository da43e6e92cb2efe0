//! Captures as they are read: pcap and pcapng, one packet after the other, in memory that does not
//! grow with the file.
//!
//! Errors carry the byte offset of the damage; all earlier packets are returned.

use std::io::{self, Read};
use std::ops::Range;

use thiserror::Error;

pub mod link;
mod pcap;
mod pcapng;
mod source;
mod timestamp;

pub use link::Link;
use pcap::Pcap;
use pcapng::Pcapng;
use source::Source;

/// LIMIT: bytes of one packet record, and of one pcapng block that is looked into. libpcap writes
/// no packet above 256 KiB.
pub const BLOCK_MAX: u32 = 1 << 20;

/// Error in a capture.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file has an unknown format.
    #[error("not a pcap or pcapng capture: {0}")]
    NotACapture(String),
    /// The capture is malformed.
    #[error("damaged at byte {offset}: {problem}")]
    Damaged {
        /// Offset in the file of the wrong field, or of the truncated block.
        offset: u64,
        /// Problem.
        problem: String,
    },
    /// Reading the file failed.
    #[error("reading failed at byte {offset}: {source}")]
    Read {
        /// The first byte that was not read.
        offset: u64,
        /// Why.
        source: io::Error,
    },
}

impl CaptureError {
    /// Returns the offset of the error, or `None` if it concerns the whole file.
    pub const fn offset(&self) -> Option<u64> {
        match self {
            Self::NotACapture(_) => None,
            Self::Damaged { offset, .. } | Self::Read { offset, .. } => Some(*offset),
        }
    }

    fn damaged(offset: u64, problem: impl Into<String>) -> Self {
        Self::Damaged {
            offset,
            problem: problem.into(),
        }
    }
}

/// Where a packet was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in its section, from 0. A pcap file has one interface.
    pub number: u32,
    /// `if_name`. Always `None` in a pcap file.
    pub name: Option<String>,
}

/// One packet of a capture.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// Number of the packet, from 1.
    pub number: u64,
    /// Offset of its record or block in the file.
    pub offset: u64,
    /// Where it was captured.
    pub interface: &'a Interface,
    /// Nanoseconds since 1970-01-01 00:00 UTC; none in a Simple Packet Block.
    pub timestamp: Option<u64>,
    /// The packet left by the interface (`epb_flags`). Always `false` in a pcap file.
    pub is_outbound: bool,
    /// Length of the packet on the link, in bytes.
    pub original_length: u32,
    /// Link layer.
    pub link: Link,
    /// Captured bytes, from the destination MAC on if it is an Ethernet frame.
    pub data: &'a [u8],
}

impl Packet<'_> {
    /// Returns whether the capture truncated the packet.
    pub fn is_truncated(&self) -> bool {
        self.data.len() < self.original_length as usize
    }
}

/// A packet within the reader's buffer.
struct Record {
    offset: u64,
    /// Index in the reader's interfaces.
    interface: usize,
    timestamp: Option<u64>,
    is_outbound: bool,
    original_length: u32,
    link_type: u16,
    data: Range<usize>,
}

/// A capture that is being read.
pub struct CaptureReader<R> {
    source: Source<R>,
    format: Format,
    buffer: Vec<u8>,
    packets: u64,
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl<R: Read> CaptureReader<R> {
    /// Detects the format of a capture from its first bytes. `reader` should be buffered.
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        let mut source = Source::new(reader);
        let mut magic = [0; 4];
        let length = source.read(&mut magic)?;
        let format = match magic {
            _ if length == 0 => return Err(CaptureError::NotACapture("the file is empty".into())),
            pcapng::SECTION_HEADER_MAGIC => Format::Pcapng(Pcapng::default()),
            magic if length == 4 && pcap::is_magic(magic) => {
                Format::Pcap(Pcap::open(magic, &mut source)?)
            }
            magic => return Err(CaptureError::NotACapture(begins_with(&magic[..length]))),
        };
        let mut reader = Self {
            source,
            format,
            buffer: Vec::new(),
            packets: 0,
        };
        if let Format::Pcapng(pcapng) = &mut reader.format {
            pcapng.open(&mut reader.source, &mut reader.buffer)?;
        }
        Ok(reader)
    }

    /// Returns the next packet, or `None` at the end of the file. Reading cannot continue after an
    /// error.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        let (record, interfaces) = match &mut self.format {
            Format::Pcap(pcap) => {
                let record = pcap.next(&mut self.source, &mut self.buffer)?;
                (record, pcap.interfaces())
            }
            Format::Pcapng(pcapng) => {
                let record = pcapng.next(&mut self.source, &mut self.buffer)?;
                (record, pcapng.interfaces())
            }
        };
        let Some(record) = record else {
            return Ok(None);
        };
        self.packets += 1;
        let converted = link::convert(record.link_type, &mut self.buffer, record.data);
        Ok(Some(Packet {
            number: self.packets,
            offset: record.offset,
            interface: &interfaces[record.interface],
            timestamp: record.timestamp,
            is_outbound: record.is_outbound || converted.is_outbound,
            original_length: record.original_length.saturating_sub(converted.less),
            link: converted.link,
            data: &self.buffer[converted.data],
        }))
    }

    /// Bytes of memory that hold file content now.
    pub fn buffered(&self) -> usize {
        self.buffer.capacity()
    }
}

fn begins_with(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let what = match bytes {
        [0x1f, 0x8b, ..] => " (gzip: decompress it first)",
        [0x28, 0xb5, 0x2f, 0xfd] => " (zstd: decompress it first)",
        // Kuznetzov's variant, written by Linux distributions of the 1990s.
        [0x34, 0xcd, 0xb2, 0xa1] | [0xa1, 0xb2, 0xcd, 0x34] => {
            " (\"modified\" pcap, which is not read)"
        }
        _ => "",
    };
    format!("it begins with {}{what}", hex.join(" "))
}

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests;
