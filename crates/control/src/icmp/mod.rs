//! ICMP messages of this node on account of packets that the packet path saw: errors of packets that it dropped, answers to
//! those who ask a SID, and errors that come back to a headend, told on to the sender of what it encapsulated.
//!
//! What a message says is made here, from bytes that may be hostile, without a system call; [`socket`] sends it. Linux
//! chooses source address and route, as it does for its own errors.

pub mod answer;
pub mod packet;
pub mod relay;
pub mod socket;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// RFC 4443 2.4(c): an error with its IPv6 header is no larger than this.
const IPV6_MIN_MTU: usize = 1280;
/// Bytes of the packet that an `ICMPv6` error quotes.
const QUOTE_V6: usize = IPV6_MIN_MTU - packet::IPV6_LENGTH - HEAD;
/// RFC 1812 4.3.2.3: 576 bytes with headers.
const QUOTE_V4: usize = 576 - packet::IPV4_LENGTH - HEAD;
/// Type, code, checksum and the word that depends on the type.
const HEAD: usize = 8;

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub kind: Kind,
    /// To whom.
    pub to: IpAddr,
    /// From this address, though it is none of the node's interfaces: a SID. None: from the one that Linux chooses.
    pub from: Option<Ipv6Addr>,
    /// From the type on. Of `ICMPv6` the checksum is 0: it needs the source address, and the kernel writes it.
    pub bytes: Vec<u8>,
}

/// What a message says. IANA: `ICMPv6` "type" and "code" numbers; of IPv4 what is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// RFC 4443 3.1 code 0, RFC 792 code 0.
    NoRoute,
    /// RFC 4443 3.1 code 4.
    PortUnreachable,
    /// RFC 4443 3.2; RFC 792 and 1191: fragmentation needed.
    TooBig {
        /// Bytes that fit.
        mtu: u32,
    },
    /// RFC 4443 3.3, code 0; RFC 792.
    TimeExceeded,
    /// RFC 4443 3.4, code 0: erroneous header field.
    HeaderField {
        /// Its offset in the packet.
        pointer: u32,
    },
    /// Code 4 of the same: SR Upper-layer Header Error (RFC 8986 4.1.1).
    UpperLayer {
        /// Offset of that header in the packet.
        pointer: u32,
    },
    /// RFC 4443 4.2.
    EchoReply,
}

impl Kind {
    /// Name in `show icmp`; stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::PortUnreachable => "port_unreachable",
            Self::TooBig { .. } => "packet_too_big",
            Self::TimeExceeded => "time_exceeded",
            Self::HeaderField { .. } => "parameter_problem_header_field",
            Self::UpperLayer { .. } => "parameter_problem_upper_layer",
            Self::EchoReply => "echo_reply",
        }
    }

    /// Type, code, and the word behind the checksum.
    fn head_v6(self) -> (u8, u8, u32) {
        match self {
            Self::NoRoute => (1, 0, 0),
            Self::PortUnreachable => (1, 4, 0),
            Self::TooBig { mtu } => (2, 0, mtu.max(IPV6_MIN_MTU as u32)),
            Self::TimeExceeded => (3, 0, 0),
            Self::HeaderField { pointer } => (4, 0, pointer),
            Self::UpperLayer { pointer } => (4, 4, pointer),
            Self::EchoReply => (129, 0, 0),
        }
    }

    /// The same; none where IPv4 has no such message here.
    fn head_v4(self) -> Option<(u8, u8, u32)> {
        match self {
            Self::NoRoute => Some((3, 0, 0)),
            // RFC 1191 4: the low half of the word.
            Self::TooBig { mtu } => Some((3, 4, mtu.min(u16::MAX.into()))),
            Self::TimeExceeded => Some((11, 0, 0)),
            _ => None,
        }
    }
}

/// An error of `kind` about this packet, IPv6 or IPv4: none if there must not be one.
fn error(kind: Kind, quoted: &[u8]) -> Option<Message> {
    match packet::version(quoted)? {
        6 => {
            let to = packet::may_answer_v6(quoted)?;
            let bytes = message(kind.head_v6(), &quoted[..quoted.len().min(QUOTE_V6)]);
            Some(Message {
                kind,
                to: to.into(),
                from: None,
                bytes,
            })
        }
        4 => {
            let to = packet::may_answer_v4(quoted)?;
            // RFC 1191 4: who lets routers fragment is not told.
            if matches!(kind, Kind::TooBig { .. }) && !packet::dont_fragment(quoted) {
                return None;
            }
            let head = kind.head_v4()?;
            let mut bytes = message(head, &quoted[..quoted.len().min(QUOTE_V4)]);
            let checksum = packet::checksum(&bytes, 0);
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            Some(Message {
                kind,
                to: to.into(),
                from: None,
                bytes,
            })
        }
        _ => None,
    }
}

fn message((kind, code, word): (u8, u8, u32), quote: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0][..], &word.to_be_bytes(), quote].concat()
}

/// How many messages were sent, by their names.
pub type Counts = BTreeMap<&'static str, u64>;
