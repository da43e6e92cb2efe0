//! The descriptor table of the headend behaviors: one row for each `mode` of `encap seg6`.

use super::EncapMode;
use super::attribute::Inner;
use crate::route::Family;

/// One headend behavior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headend {
    /// Mode.
    pub mode: EncapMode,
    /// The word after `mode`.
    pub word: &'static str,
    /// Name in the RFC's spelling.
    pub name: &'static str,
    /// `SEG6_IPTUN_MODE_*` of `include/uapi/linux/seg6_iptunnel.h`, if Linux has the behavior.
    pub kernel_mode: Option<u32>,
    /// Address families of the routes that may use it.
    pub families: &'static [Family],
    /// True if it accepts `tunsrc`, since it writes an outer header.
    pub tunsrc: bool,
    /// True if it accepts `hmac`.
    pub hmac: bool,
    /// True if it accepts `lookup`.
    pub lookup: bool,
    /// Encapsulated payload.
    pub inner: Inner,
    /// Specification.
    pub source: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
}

/// The headend behaviors, in the order of RFC 8986 5.
pub const HEADENDS: &[Headend] = &[
    Headend {
        mode: EncapMode::Encap,
        word: "encap",
        name: "H.Encaps",
        kernel_mode: Some(1),
        families: &[Family::V6, Family::V4],
        tunsrc: true,
        hmac: true,
        lookup: true,
        inner: Inner::Ip,
        source: "RFC 8986 5.1",
        summary: "outer IPv6 header and SRH around the IP packet",
    },
    Headend {
        mode: EncapMode::EncapRed,
        word: "encap.red",
        name: "H.Encaps.Red",
        kernel_mode: Some(3),
        families: &[Family::V6, Family::V4],
        tunsrc: true,
        hmac: true,
        lookup: true,
        inner: Inner::Ip,
        source: "RFC 8986 5.2",
        summary: "like encap, but the first segment is only in the destination address",
    },
    Headend {
        mode: EncapMode::L2Encap,
        word: "l2encap",
        name: "H.Encaps.L2",
        kernel_mode: Some(2),
        families: &[Family::V6, Family::V4],
        tunsrc: true,
        hmac: true,
        lookup: true,
        inner: Inner::Ethernet,
        source: "RFC 8986 5.3",
        summary: "outer IPv6 header and SRH around the Ethernet frame",
    },
    Headend {
        mode: EncapMode::L2EncapRed,
        word: "l2encap.red",
        name: "H.Encaps.L2.Red",
        kernel_mode: Some(4),
        families: &[Family::V6, Family::V4],
        tunsrc: true,
        hmac: true,
        lookup: true,
        inner: Inner::Ethernet,
        source: "RFC 8986 5.4",
        summary: "like l2encap, but the first segment is only in the destination address",
    },
    Headend {
        mode: EncapMode::Inline,
        word: "inline",
        name: "H.Insert",
        kernel_mode: Some(0),
        families: &[Family::V6],
        tunsrc: false,
        hmac: true,
        lookup: true,
        inner: Inner::None,
        source: "draft-filsfils-spring-srv6-net-pgm-insertion",
        summary: "SRH between the IPv6 header and its payload",
    },
    Headend {
        mode: EncapMode::InlineRed,
        word: "inline.red",
        name: "H.Insert.Red",
        kernel_mode: None,
        families: &[Family::V6],
        tunsrc: false,
        hmac: false,
        lookup: true,
        inner: Inner::None,
        source: "draft-filsfils-spring-srv6-net-pgm-insertion",
        summary: "like inline, but the first segment is only in the destination address",
    },
];

impl EncapMode {
    /// Returns its row of [`HEADENDS`].
    pub fn descriptor(self) -> &'static Headend {
        HEADENDS
            .iter()
            .find(|row| row.mode == self)
            .expect("every mode has a row: tested")
    }

    /// Returns the mode with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        HEADENDS
            .iter()
            .find(|row| row.word == word)
            .map(|row| row.mode)
    }

    /// Returns the mode with this `SEG6_IPTUN_MODE_*` value.
    pub fn from_kernel_mode(mode: u32) -> Option<Self> {
        HEADENDS
            .iter()
            .find(|row| row.kernel_mode == Some(mode))
            .map(|row| row.mode)
    }

    /// Returns true if it inserts an SRH into the packet. The packet's destination is then the last
    /// segment.
    pub const fn inserts(self) -> bool {
        matches!(self, Self::Inline | Self::InlineRed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_has_exactly_one_row() {
        let known = |mode| match mode {
            EncapMode::Inline
            | EncapMode::InlineRed
            | EncapMode::Encap
            | EncapMode::EncapRed
            | EncapMode::L2Encap
            | EncapMode::L2EncapRed => 6,
        };
        assert_eq!(HEADENDS.len(), known(EncapMode::Encap));
        for row in HEADENDS {
            assert_eq!(row.mode.descriptor(), row);
            assert_eq!(EncapMode::from_word(row.word), Some(row.mode));
            if let Some(mode) = row.kernel_mode {
                assert_eq!(EncapMode::from_kernel_mode(mode), Some(row.mode));
            }
        }
    }
}
