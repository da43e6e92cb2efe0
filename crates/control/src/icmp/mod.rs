//! ICMP messages that Sidestep sends because of packets in the packet path. These are errors for
//! dropped packets, replies of SIDs to echo requests, and errors that a headend relays to the inner
//! source.
//!
//! This module composes messages from untrusted bytes without a system call; [`socket`] sends them.
//! Linux chooses source address and route, as for its own errors.

pub mod answer;
pub mod frame;
pub mod packet;
pub mod relay;
pub mod socket;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use sidestep_wire::{Icmp, Icmpv4Type, Icmpv6Type, Ipv4, Ipv6};

/// RFC 4443 2.4(c): an error with its IPv6 header is no larger than this.
const IPV6_MIN_MTU: usize = 1280;
/// Bytes of the packet that an `ICMPv6` error quotes.
const QUOTE_V6: usize = IPV6_MIN_MTU - Ipv6::LENGTH - Icmp::LENGTH;
/// RFC 1812 4.3.2.3: 576 bytes with headers.
const QUOTE_V4: usize = 576 - Ipv4::LENGTH - Icmp::LENGTH;

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Type and code.
    pub kind: Kind,
    /// Destination address.
    pub to: IpAddr,
    /// Source address of a SID, which no interface has. None: Linux chooses one.
    pub from: Option<Ipv6Addr>,
    /// Message from its type on. The kernel fills in the `ICMPv6` checksum, which depends on the
    /// source address.
    pub bytes: Vec<u8>,
}

/// Type and code of a message, named after the IANA `ICMPv6` "type" and "code" registries; IPv4
/// uses the equivalents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// RFC 4443 3.1 code 0, RFC 792 code 0.
    NoRoute,
    /// RFC 4443 3.1 code 3, RFC 792 type 3 code 1 (host unreachable).
    AddressUnreachable,
    /// RFC 4443 3.1 code 4.
    PortUnreachable,
    /// RFC 4443 3.2; RFC 792 and 1191: fragmentation needed.
    TooBig {
        /// Largest packet size that fits, in bytes.
        mtu: u32,
    },
    /// RFC 4443 3.3, code 0; RFC 792.
    TimeExceeded,
    /// Code 1 of the same: fragment reassembly time exceeded (RFC 8200 4.5).
    ReassemblyTimeExceeded,
    /// RFC 4443 3.4, code 0: erroneous header field.
    HeaderField {
        /// Its offset in the packet.
        pointer: u32,
    },
    /// Code 1 of the same: unrecognized Next Header type.
    NextHeader {
        /// Offset of the Next Header field in the packet.
        pointer: u32,
    },
    /// Code 2 of the same: unrecognized IPv6 option.
    Option {
        /// Offset of the option in the packet.
        pointer: u32,
    },
    /// Code 4 of the same: SR Upper-layer Header Error (RFC 8986 4.1.1).
    UpperLayer {
        /// Offset of that header in the packet.
        pointer: u32,
    },
    /// Codes 7, 8 and 9 of the same: a limit of RFC 8883 3.
    Limit {
        /// The exceeded limit.
        limit: Limit,
        /// Offset of the first header or option beyond the limit.
        pointer: u32,
    },
    /// RFC 4443 4.2.
    EchoReply,
}

/// Limit on the headers of a packet (RFC 8883 3.3 to 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// Length of the header chain.
    ChainLength,
    /// Number of extension headers.
    Headers,
    /// Number of options in one header.
    Options,
}

impl Limit {
    /// Code of the Parameter Problem message.
    fn code(self) -> u8 {
        match self {
            Self::ChainLength => 7,
            Self::Headers => 8,
            Self::Options => 9,
        }
    }
}

impl Kind {
    /// Stable name in `show icmp`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::AddressUnreachable => "address_unreachable",
            Self::PortUnreachable => "port_unreachable",
            Self::TooBig { .. } => "packet_too_big",
            Self::TimeExceeded => "time_exceeded",
            Self::ReassemblyTimeExceeded => "reassembly_time_exceeded",
            Self::HeaderField { .. } => "parameter_problem_header_field",
            Self::NextHeader { .. } => "parameter_problem_next_header",
            Self::Option { .. } => "parameter_problem_option",
            Self::UpperLayer { .. } => "parameter_problem_upper_layer",
            Self::Limit { .. } => "parameter_problem_limit",
            Self::EchoReply => "echo_reply",
        }
    }

    /// Returns the `ICMPv6` header of the message.
    fn header_v6(self) -> Icmp {
        let (kind, code, word) = match self {
            Self::NoRoute => (Icmpv6Type::DESTINATION_UNREACHABLE, 0, 0),
            Self::AddressUnreachable => (Icmpv6Type::DESTINATION_UNREACHABLE, 3, 0),
            Self::PortUnreachable => (Icmpv6Type::DESTINATION_UNREACHABLE, 4, 0),
            Self::TooBig { mtu } => (Icmpv6Type::PACKET_TOO_BIG, 0, mtu.max(IPV6_MIN_MTU as u32)),
            Self::TimeExceeded => (Icmpv6Type::TIME_EXCEEDED, 0, 0),
            Self::ReassemblyTimeExceeded => (Icmpv6Type::TIME_EXCEEDED, 1, 0),
            Self::HeaderField { pointer } => (Icmpv6Type::PARAMETER_PROBLEM, 0, pointer),
            Self::NextHeader { pointer } => (Icmpv6Type::PARAMETER_PROBLEM, 1, pointer),
            Self::Option { pointer } => (Icmpv6Type::PARAMETER_PROBLEM, 2, pointer),
            Self::UpperLayer { pointer } => (Icmpv6Type::PARAMETER_PROBLEM, 4, pointer),
            Self::Limit { limit, pointer } => {
                (Icmpv6Type::PARAMETER_PROBLEM, limit.code(), pointer)
            }
            Self::EchoReply => (Icmpv6Type::ECHO_REPLY, 0, 0),
        };
        Icmp::v6(kind, code, word)
    }

    /// Returns the ICMP header of the message, or none if IPv4 has no equivalent.
    fn header_v4(self) -> Option<Icmp> {
        let (kind, code, word) = match self {
            Self::NoRoute => (Icmpv4Type::DESTINATION_UNREACHABLE, 0, 0),
            Self::AddressUnreachable => (Icmpv4Type::DESTINATION_UNREACHABLE, 1, 0),
            // RFC 1191 4: the low half of the word.
            Self::TooBig { mtu } => (
                Icmpv4Type::DESTINATION_UNREACHABLE,
                4,
                mtu.min(u16::MAX.into()),
            ),
            Self::TimeExceeded => (Icmpv4Type::TIME_EXCEEDED, 0, 0),
            _ => return None,
        };
        Some(Icmp::v4(kind, code, word))
    }
}

/// Composes an error of `kind` about an IPv6 or IPv4 packet, or none if the RFCs forbid one.
fn error(kind: Kind, quoted: &[u8]) -> Option<Message> {
    match packet::version(quoted)? {
        6 => {
            let to = packet::error_receiver_v6(quoted)?;
            let quote = &quoted[..quoted.len().min(QUOTE_V6)];
            Some(Message {
                kind,
                to: to.into(),
                from: None,
                bytes: kind.header_v6().emit_without_checksum(quote),
            })
        }
        4 => {
            let to = packet::error_receiver_v4(quoted)?;
            let quote = &quoted[..quoted.len().min(QUOTE_V4)];
            Some(Message {
                kind,
                to: to.into(),
                from: None,
                bytes: kind.header_v4()?.emit_v4(quote),
            })
        }
        _ => None,
    }
}

/// Number of sent messages, by message name.
pub type Counts = BTreeMap<&'static str, u64>;
