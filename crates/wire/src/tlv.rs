//! TLVs of the SRH, RFC 8754 2.1.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |   Type = 5    |     Length    |D|        RESERVED             |   HMAC, RFC 8754 2.1.2
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                      HMAC Key ID (4 octets)                   |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                      HMAC (variable)                          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! `Pad1` is the type alone. All other TLVs have a Length, which does not count type and length.

use crate::{SrhTlvType, u16_at, u32_at};

/// A TLV. Emitting a parsed one gives the same bytes, except that `PadN` is padded with zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tlv {
    /// One byte of padding.
    Pad1,
    /// Padding, with its Length.
    PadN(u8),
    /// HMAC.
    Hmac(Hmac),
    /// Any other type, and an HMAC too short for its fields.
    Opaque(SrhTlvType, Vec<u8>),
}

/// The HMAC TLV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hmac {
    /// D bit and reserved bits.
    pub flags: u16,
    /// HMAC Key ID.
    pub key_id: u32,
    /// HMAC, at most 32 bytes.
    pub hmac: Vec<u8>,
}

impl Hmac {
    /// Offset of the HMAC from the TLV's type.
    pub const HMAC: usize = 8;
}

impl Tlv {
    /// Appends the TLV.
    pub fn emit(&self, bytes: &mut Vec<u8>) {
        let mut put = |kind: SrhTlvType, value: &[u8]| {
            bytes.extend([kind.0, value.len() as u8]);
            bytes.extend(value);
        };
        match self {
            Self::Pad1 => bytes.push(SrhTlvType::PAD1.0),
            Self::PadN(length) => put(SrhTlvType::PADN, &vec![0; usize::from(*length)]),
            Self::Hmac(tlv) => {
                let (flags, key_id) = (tlv.flags.to_be_bytes(), tlv.key_id.to_be_bytes());
                put(SrhTlvType::HMAC, &[&flags[..], &key_id, &tlv.hmac].concat());
            }
            Self::Opaque(kind, value) => put(*kind, value),
        }
    }
}

/// The TLVs of an SRH, in order. The view of the SRH has checked that none is truncated.
#[derive(Clone, Debug)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Type and value of the next TLV.
    fn split(&mut self) -> Option<(SrhTlvType, &'a [u8])> {
        let (kind, rest) = self.0.split_first()?;
        let kind = SrhTlvType(*kind);
        let (value, rest) = if kind == SrhTlvType::PAD1 {
            (&rest[..0], rest)
        } else {
            let (length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(*length))?
        };
        self.0 = rest;
        Some((kind, value))
    }
}

impl Iterator for Tlvs<'_> {
    type Item = Tlv;

    fn next(&mut self) -> Option<Tlv> {
        let (kind, value) = self.split()?;
        Some(match kind {
            SrhTlvType::PAD1 => Tlv::Pad1,
            SrhTlvType::PADN => Tlv::PadN(value.len() as u8),
            SrhTlvType::HMAC if value.len() >= 6 => Tlv::Hmac(Hmac {
                flags: u16_at(value, 0),
                key_id: u32_at(value, 2),
                hmac: value[6..].to_vec(),
            }),
            _ => Tlv::Opaque(kind, value.to_vec()),
        })
    }
}

/// Whether the last TLV ends where the bytes end.
pub(crate) fn are_complete(bytes: &[u8]) -> bool {
    let mut tlvs = Tlvs(bytes);
    while tlvs.split().is_some() {}
    tlvs.0.is_empty()
}
