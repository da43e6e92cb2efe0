//! Segment Routing Header, RFC 8754 2.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | Next Header   |  Hdr Ext Len  | Routing Type  | Segments Left |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Last Entry   |     Flags     |              Tag              |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |            Segment List[0] (128-bit IPv6 address)             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                              ...                              |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |            Segment List[n] (128-bit IPv6 address)             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! //         Optional Type Length Value objects (variable)       //
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use std::net::Ipv6Addr;

use crate::{Protocol, RoutingType, RoutingView, Tlv, Tlvs, tlv, u16_at};

/// Offsets.
pub mod field {
    /// Next Header.
    pub const NEXT_HEADER: usize = 0;
    /// Hdr Ext Len.
    pub const HDR_EXT_LEN: usize = 1;
    /// Routing Type.
    pub const ROUTING_TYPE: usize = 2;
    /// Segments Left.
    pub const SEGMENTS_LEFT: usize = 3;
    /// Last Entry.
    pub const LAST_ENTRY: usize = 4;
    /// Flags.
    pub const FLAGS: usize = 5;
    /// Tag.
    pub const TAG: usize = 6;
    /// Segment List\[0\].
    pub const SEGMENT_LIST: usize = 8;
}

/// Bytes of a segment.
const SEGMENT: usize = 16;

/// Contradiction in an SRH (RFC 8754 4.3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrhError {
    /// The Routing Type is not that of an SRH.
    RoutingType,
    /// Hdr Ext Len is too small for the segments up to Last Entry.
    LastEntry,
    /// Segments Left exceeds Last Entry by more than 1.
    SegmentsLeft,
    /// A TLV reaches beyond the header.
    Tlv,
}

/// A received SRH whose lengths, Last Entry and Segments Left agree.
#[derive(Clone, Copy, Debug)]
pub struct SrhView<'a>(&'a [u8]);

impl<'a> SrhView<'a> {
    pub(crate) fn check(routing: RoutingView<'a>) -> Result<Self, SrhError> {
        if routing.routing_type() != RoutingType::SRH {
            return Err(SrhError::RoutingType);
        }
        let view = Self(routing.bytes());
        if view.segments_end() > view.0.len() {
            return Err(SrhError::LastEntry);
        }
        if usize::from(view.segments_left()) > usize::from(view.last_entry()) + 1 {
            return Err(SrhError::SegmentsLeft);
        }
        if !tlv::are_complete(view.tlv_bytes()) {
            return Err(SrhError::Tlv);
        }
        Ok(view)
    }

    /// Type of the header that follows.
    pub fn next_header(&self) -> Protocol {
        Protocol(self.0[field::NEXT_HEADER])
    }

    /// Number of segments that remain, at most Last Entry plus 1.
    pub fn segments_left(&self) -> u8 {
        self.0[field::SEGMENTS_LEFT]
    }

    /// Index of the last entry of the Segment List.
    pub fn last_entry(&self) -> u8 {
        self.0[field::LAST_ENTRY]
    }

    /// Flags.
    pub fn flags(&self) -> u8 {
        self.0[field::FLAGS]
    }

    /// Tag.
    pub fn tag(&self) -> u16 {
        u16_at(self.0, field::TAG)
    }

    /// The Segment List in wire order: the last segment of the path first.
    pub fn segment_list(&self) -> impl DoubleEndedIterator<Item = Ipv6Addr> + use<'a> {
        let (segments, _) = self.0[field::SEGMENT_LIST..self.segments_end()].as_chunks::<SEGMENT>();
        segments.iter().map(|octets| Ipv6Addr::from(*octets))
    }

    /// The TLVs in wire order, with padding.
    pub fn tlvs(&self) -> Tlvs<'a> {
        Tlvs::new(self.tlv_bytes())
    }

    /// The TLVs as bytes.
    pub fn tlv_bytes(&self) -> &'a [u8] {
        &self.0[self.segments_end()..]
    }

    fn segments_end(&self) -> usize {
        field::SEGMENT_LIST + SEGMENT * (usize::from(self.last_entry()) + 1)
    }

    /// The owned form.
    pub fn to_owned(&self) -> Srh {
        Srh {
            next_header: self.next_header(),
            segments_left: self.segments_left(),
            flags: self.flags(),
            tag: self.tag(),
            segment_list: self.segment_list().collect(),
            tlvs: self.tlvs().collect(),
        }
    }
}

/// An SRH to emit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srh {
    /// Type of the header that follows.
    pub next_header: Protocol,
    /// Number of segments that remain.
    pub segments_left: u8,
    /// Flags.
    pub flags: u8,
    /// Tag.
    pub tag: u16,
    /// Wire order: the last segment of the path first. 1 to 127 entries.
    pub segment_list: Vec<Ipv6Addr>,
    /// TLVs. `emit` pads them to a multiple of 8 bytes.
    pub tlvs: Vec<Tlv>,
}

impl Srh {
    /// Flag of an SRH with an HMAC TLV (`SR6_FLAG1_HMAC`, include/uapi/linux/seg6.h).
    pub const FLAG_HMAC: u8 = 0x08;
    /// Flag of a packet to copy to an OAM process (RFC 9259 2.1).
    pub const FLAG_OAM: u8 = 0x20;

    /// An SRH without flags, tag and TLVs; the list is in wire order.
    pub fn new(next_header: Protocol, segments_left: u8, segment_list: Vec<Ipv6Addr>) -> Self {
        Self {
            next_header,
            segments_left,
            flags: 0,
            tag: 0,
            segment_list,
            tlvs: Vec::new(),
        }
    }

    /// The header and the payload.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        let last_entry = (self.segment_list.len() as u8).wrapping_sub(1);
        let mut header = vec![
            self.next_header.0,
            0,
            RoutingType::SRH.0,
            self.segments_left,
        ];
        header.extend([last_entry, self.flags]);
        header.extend(self.tag.to_be_bytes());
        header.extend(self.segment_list.iter().flat_map(Ipv6Addr::octets));
        for tlv in &self.tlvs {
            tlv.emit(&mut header);
        }
        match header.len().next_multiple_of(8) - header.len() {
            0 => {}
            1 => Tlv::Pad1.emit(&mut header),
            missing => Tlv::PadN(missing as u8 - 2).emit(&mut header),
        }
        header[field::HDR_EXT_LEN] = (header.len() / 8 - 1) as u8;
        header.extend(payload);
        header
    }
}
