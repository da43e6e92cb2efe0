//! pcapng (draft-ietf-opsawg-pcapng): blocks of type, length, body and the length again, all
//! multiples of 4 bytes.
//!
//! Looked into are the Section Header, the Interface Description and the three blocks that hold a
//! packet; all others are passed over, whatever their size.

use std::io::Read;

use super::source::Source;
use super::timestamp::Resolution;
use super::{BLOCK_MAX, CaptureError, Interface, Order, Record};

/// A Section Header Block's type reads the same in both byte orders.
pub(super) const SECTION_HEADER_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/* Block types: IANA-to-be registry of draft-ietf-opsawg-pcapng 11.1. */
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Type and length in front of the body.
const HEADER: u32 = 8;
/// Overhead of a block: type, length, and the repeated length.
const FRAME: u32 = 12;

/* Option codes. */
const END_OF_OPTIONS: u16 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
/// `epb_flags`, and `pack_flags` of the obsolete block.
const PACKET_FLAGS: u16 = 2;

/// Bits of `epb_flags` with the direction.
const DIRECTION: u32 = 3;
/// `epb_flags`: the packet left by the interface.
const OUTBOUND: u32 = 2;

/// Interface attributes needed to interpret its packets.
#[derive(Clone, Copy)]
struct Description {
    link_type: u16,
    snap_length: u32,
    resolution: Resolution,
    /// `if_tsoffset`, seconds.
    timestamp_offset: i64,
}

/// A block whose body is in the buffer.
struct Block {
    kind: u32,
    offset: u64,
}

impl Block {
    /// Offset in the file of that byte of the body.
    fn at(&self, body: usize) -> u64 {
        self.offset + u64::from(HEADER) + body as u64
    }
}

#[derive(Default)]
pub(super) struct Pcapng {
    order: Order,
    descriptions: Vec<Description>,
    interfaces: Vec<Interface>,
    /// The type of the file's first block has been read already.
    begun: bool,
}

impl Pcapng {
    /// Reads the rest of the first Section Header Block, after its type.
    pub(super) fn open<R: Read>(
        &mut self,
        source: &mut Source<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), CaptureError> {
        match self.read_block(source, buffer)? {
            Some(block) => self.section(&block, buffer),
            None => Ok(()),
        }
    }

    /// The interfaces of this section, by number.
    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(super) fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Record>, CaptureError> {
        while let Some(block) = self.read_block(source, buffer)? {
            match block.kind {
                SECTION_HEADER => self.section(&block, buffer)?,
                INTERFACE_DESCRIPTION => self.interface(&block, buffer)?,
                ENHANCED_PACKET => return self.enhanced(&block, buffer).map(Some),
                SIMPLE_PACKET => return self.simple(&block, buffer).map(Some),
                PACKET => return self.obsolete(&block, buffer).map(Some),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads the next block up to its end; its body is in `buffer` if it is of a kind that is
    /// looked into.
    fn read_block<R: Read>(
        &mut self,
        source: &mut Source<R>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Block>, CaptureError> {
        let mut head = [0; 12];
        let known = if self.begun { 0 } else { 4 };
        head[..known].copy_from_slice(&SECTION_HEADER_MAGIC[..known]);
        self.begun = true;
        let offset = source.offset() - known as u64;
        match known + source.read(&mut head[known..8])? {
            0 => return Ok(None),
            8 => {}
            _ => {
                return Err(cut_short(
                    offset,
                    "a block header of 8 bytes",
                    source.offset(),
                ));
            }
        }
        let is_section = head[..4] == SECTION_HEADER_MAGIC;
        let mut read = 8;
        if is_section {
            // The byte order of the length is known only from what stands behind it.
            source.read_all(&mut head[8..], offset, || {
                "a Section Header Block of at least 28 bytes".into()
            })?;
            read = 12;
            self.order = match [Order::Little, Order::Big].map(|order| order.u32(&head, 8)) {
                [BYTE_ORDER_MAGIC, _] => Order::Little,
                [_, BYTE_ORDER_MAGIC] => Order::Big,
                [found, _] => {
                    let problem = format!(
                        "Byte-Order Magic is {found:#010x}; it has to be {BYTE_ORDER_MAGIC:#010x}"
                    );
                    return Err(CaptureError::damaged(offset + 8, problem));
                }
            };
        }
        let kind = if is_section {
            SECTION_HEADER
        } else {
            self.order.u32(&head, 0)
        };
        let length = self.order.u32(&head, 4);
        let (name, least) = about(kind);
        if length < least || !length.is_multiple_of(4) {
            let problem = format!(
                "{name} of {length} bytes; it has to be a multiple of 4 and at least {least}"
            );
            return Err(CaptureError::damaged(offset + 4, problem));
        }
        let body = (length - FRAME) as usize;
        let what = || format!("{name} of {length} bytes");
        if is_looked_into(kind) {
            if length > BLOCK_MAX {
                let problem = format!("{name} of {length} bytes; at most {BLOCK_MAX} is believed");
                return Err(CaptureError::damaged(offset + 4, problem));
            }
            buffer.clear();
            buffer.extend_from_slice(&head[8..read]);
            buffer.resize(body, 0);
            source.read_all(&mut buffer[read - 8..], offset, what)?;
        } else {
            buffer.clear();
            source.skip(body as u64, offset, what)?;
        }
        let mut trailer = [0; 4];
        let trailer_offset = source.offset();
        source.read_all(&mut trailer, offset, what)?;
        let again = self.order.u32(&trailer, 0);
        if again != length {
            let problem = format!(
                "the {name} that begins at byte {offset} ends with length {again}, not {length}"
            );
            return Err(CaptureError::damaged(trailer_offset, problem));
        }
        Ok(Some(Block { kind, offset }))
    }

    fn section(&mut self, block: &Block, body: &[u8]) -> Result<(), CaptureError> {
        let major = self.order.u16(body, 4);
        if major != 1 {
            let problem = format!("pcapng version {major}; only 1 is known");
            return Err(CaptureError::damaged(block.at(4), problem));
        }
        // Interfaces are numbered anew in each section.
        self.descriptions.clear();
        self.interfaces.clear();
        Ok(())
    }

    fn interface(&mut self, block: &Block, body: &[u8]) -> Result<(), CaptureError> {
        let order = self.order;
        let mut description = Description {
            link_type: order.u16(body, 0),
            snap_length: order.u32(body, 4),
            resolution: Resolution::MICROSECONDS,
            timestamp_offset: 0,
        };
        let mut name = None;
        let mut at = 8;
        while at < body.len() {
            // The body is a multiple of 4 bytes long, and so is each option: its header is there.
            let (code, length) = (order.u16(body, at), usize::from(order.u16(body, at + 2)));
            if code == END_OF_OPTIONS {
                break;
            }
            let Some(value) = body.get(at + 4..at + 4 + length) else {
                let problem =
                    format!("option {code} of {length} bytes runs past the end of its block");
                return Err(CaptureError::damaged(block.at(at), problem));
            };
            match (code, value) {
                (IF_NAME, value) => {
                    // Some writers count a terminating zero.
                    let text = String::from_utf8_lossy(value);
                    name = Some(text.trim_end_matches('\0').to_owned());
                }
                (IF_TSRESOL, &[value, ..]) => {
                    description.resolution = Resolution::from_option(value);
                }
                (IF_TSOFFSET, value) => {
                    if let Ok(bytes) = value.try_into() {
                        description.timestamp_offset = match order {
                            Order::Little => i64::from_le_bytes(bytes),
                            Order::Big => i64::from_be_bytes(bytes),
                        };
                    }
                }
                _ => {}
            }
            at += 4 + length.next_multiple_of(4);
        }
        self.interfaces.push(Interface {
            number: self.interfaces.len() as u32,
            name,
        });
        self.descriptions.push(description);
        Ok(())
    }

    fn enhanced(&self, block: &Block, body: &[u8]) -> Result<Record, CaptureError> {
        let interface = self.described(block, self.order.u32(body, 0), 0)?;
        self.packet(block, body, interface, 4)
    }

    /// The Packet Block, obsolete since 2004: its interface number has 16 bits, and a count of
    /// drops beside it.
    fn obsolete(&self, block: &Block, body: &[u8]) -> Result<Record, CaptureError> {
        let interface = self.described(block, u32::from(self.order.u16(body, 0)), 0)?;
        self.packet(block, body, interface, 4)
    }

    /// Timestamp, lengths and packet from `at` on.
    fn packet(
        &self,
        block: &Block,
        body: &[u8],
        interface: usize,
        at: usize,
    ) -> Result<Record, CaptureError> {
        let field = |at| self.order.u32(body, at);
        let description = &self.descriptions[interface];
        let ticks = u64::from(field(at)) << 32 | u64::from(field(at + 4));
        let timestamp = description
            .resolution
            .nanoseconds(ticks, description.timestamp_offset);
        if timestamp.is_none() {
            let problem = "the timestamp is before 1970 or after 2554";
            return Err(CaptureError::damaged(block.at(at), problem));
        }
        let (captured, original_length) = (field(at + 8), field(at + 12));
        let data = data(block, body, captured, at + 16, at + 8)?;
        let options = body.get(data.end.next_multiple_of(4)..);
        Ok(Record {
            offset: block.offset,
            interface,
            timestamp,
            is_outbound: is_outbound(self.order, options.unwrap_or_default()),
            original_length,
            link_type: self.descriptions[interface].link_type,
            data,
        })
    }

    fn simple(&self, block: &Block, body: &[u8]) -> Result<Record, CaptureError> {
        let interface = self.described(block, 0, 0)?;
        let original_length = self.order.u32(body, 0);
        let captured = match self.descriptions[interface].snap_length {
            0 => original_length,
            snap_length => original_length.min(snap_length),
        };
        let data = data(block, body, captured, 4, 0)?;
        Ok(Record {
            offset: block.offset,
            interface,
            timestamp: None,
            is_outbound: false,
            original_length,
            link_type: self.descriptions[interface].link_type,
            data,
        })
    }

    /// The interface of that number, which stands at `at`; it must be described.
    fn described(&self, block: &Block, number: u32, at: usize) -> Result<usize, CaptureError> {
        let index = number as usize;
        if index >= self.descriptions.len() {
            let count = self.descriptions.len();
            let problem = format!(
                "a packet of interface {number}; this section has described {count} of them so far"
            );
            return Err(CaptureError::damaged(block.at(at), problem));
        }
        Ok(index)
    }
}

/// Returns whether the options of a packet mark it as outbound. Malformed options are ignored,
/// because the packet itself is complete.
fn is_outbound(order: Order, mut options: &[u8]) -> bool {
    while options.len() >= 4 {
        let (code, length) = (order.u16(options, 0), usize::from(order.u16(options, 2)));
        match (code, options.get(4..4 + length)) {
            (END_OF_OPTIONS, _) | (_, None) => return false,
            (PACKET_FLAGS, Some(value)) if length == 4 => {
                return order.u32(value, 0) & DIRECTION == OUTBOUND;
            }
            _ => {
                options = options
                    .get(4 + length.next_multiple_of(4)..)
                    .unwrap_or_default();
            }
        }
    }
    false
}

/// Where in `body` the packet is. `start`: its first byte; `length_at`: the field that says its
/// length.
fn data(
    block: &Block,
    body: &[u8],
    captured: u32,
    start: usize,
    length_at: usize,
) -> Result<std::ops::Range<usize>, CaptureError> {
    let room = body.len() - start;
    if captured as usize > room {
        let problem = format!(
            "packet of {captured} bytes in a block that has room for {room} (it begins at byte {})",
            block.offset
        );
        return Err(CaptureError::damaged(block.at(length_at), problem));
    }
    Ok(start..start + captured as usize)
}

fn cut_short(offset: u64, what: &str, end: u64) -> CaptureError {
    CaptureError::damaged(
        offset,
        format!("{what} begins here, but the file ends at byte {end}"),
    )
}

fn is_looked_into(kind: u32) -> bool {
    matches!(
        kind,
        SECTION_HEADER | INTERFACE_DESCRIPTION | PACKET | SIMPLE_PACKET | ENHANCED_PACKET
    )
}

/// Name and least length of a block.
fn about(kind: u32) -> (String, u32) {
    match kind {
        SECTION_HEADER => ("Section Header Block".into(), 28),
        INTERFACE_DESCRIPTION => ("Interface Description Block".into(), 20),
        PACKET => ("Packet Block".into(), 32),
        SIMPLE_PACKET => ("Simple Packet Block".into(), 16),
        ENHANCED_PACKET => ("Enhanced Packet Block".into(), 32),
        _ => (format!("block of type {kind:#x}"), FRAME),
    }
}
