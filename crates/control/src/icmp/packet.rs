//! Packets that ICMP messages are about. They may be hostile and truncated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sidestep_wire::{Header, Headers, Icmpv4Type, Icmpv6Type, Ipv4View, Ipv6View, Next, Protocol};

/// LIMIT: extension headers walked in one packet.
const EXTENSIONS_MAX: usize = 16;

/// IP version. `None` for an empty packet.
pub(super) fn version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|byte| byte >> 4)
}

/// The header chain of an IPv6 packet.
pub(super) struct Chain<'a> {
    /// The IPv6 header.
    pub ipv6: Ipv6View<'a>,
    /// Extension headers in wire order.
    pub extensions: Vec<Header<'a>>,
    /// Protocol and bytes of the upper-layer packet. `None` in a fragment that is not the first.
    ///
    /// Behind a truncated extension header, the protocol is known and the bytes are not.
    pub upper: Option<(Protocol, &'a [u8])>,
}

impl<'a> Chain<'a> {
    /// Walks the chain. `None` if the IPv6 header is truncated.
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let mut headers =
            Headers::starting(Next::Protocol(Protocol::IPV6), packet).ignore_lengths();
        let Header::Ipv6(ipv6) = headers.next()?.header else {
            return None;
        };
        let mut extensions = Vec::new();
        let upper = loop {
            let rest = &packet[packet.len() - headers.remaining()..];
            match headers.next_header() {
                Next::Protocol(protocol)
                    if protocol.is_extension() && extensions.len() < EXTENSIONS_MAX =>
                {
                    match headers.next() {
                        Some(layer) => extensions.push(layer.header),
                        None => break rest.first().map(|next| (Protocol(*next), &rest[..0])),
                    }
                }
                Next::Protocol(protocol) => break Some((protocol, rest)),
                _ => break None,
            }
        };
        Some(Self {
            ipv6,
            extensions,
            upper,
        })
    }
}

/// Returns the receiver of an error about this IPv6 packet. `None` if RFC 4443 2.4(e) forbids one.
///
/// Linux handles packets to multicast addresses and in broadcast frames itself.
pub(super) fn error_receiver_v6(packet: &[u8]) -> Option<Ipv6Addr> {
    let chain = Chain::parse(packet)?;
    let (source, destination) = (chain.ipv6.source(), chain.ipv6.destination());
    if source.is_unspecified() || source.is_multicast() || source.is_loopback() {
        return None;
    }
    if destination.is_multicast() {
        return None;
    }
    match chain.upper {
        // A message without its type may be an error.
        Some((Protocol::ICMPV6, message)) => {
            let kind = Icmpv6Type(*message.first()?);
            (!kind.is_error() && kind != Icmpv6Type::REDIRECT).then_some(source)
        }
        _ => Some(source),
    }
}

/// Returns the receiver of an error about this IPv4 packet. `None` if RFC 1812 4.3.2.7 forbids one.
pub(super) fn error_receiver_v4(packet: &[u8]) -> Option<Ipv4Addr> {
    /// All other types are errors or unknown.
    const QUERIES: [Icmpv4Type; 8] = [
        Icmpv4Type::ECHO_REPLY,
        Icmpv4Type::ECHO_REQUEST,
        Icmpv4Type::TIMESTAMP,
        Icmpv4Type::TIMESTAMP_REPLY,
        Icmpv4Type::INFORMATION_REQUEST,
        Icmpv4Type::INFORMATION_REPLY,
        Icmpv4Type::ADDRESS_MASK_REQUEST,
        Icmpv4Type::ADDRESS_MASK_REPLY,
    ];

    let (header, payload) = Ipv4View::parse(packet)?;
    let (source, destination) = (header.source(), header.destination());
    if source.octets()[0] == 0 || source.is_loopback() || source.octets()[0] >= 224 {
        return None;
    }
    if destination.octets()[0] >= 224 || header.fragment_offset() > 0 {
        return None;
    }
    if header.protocol() == Protocol::ICMP {
        let kind = Icmpv4Type(*payload.first()?);
        return QUERIES.contains(&kind).then_some(source);
    }
    Some(source)
}

/// Whether an IPv4 packet has the flag DF.
pub(super) fn dont_fragment(packet: &[u8]) -> bool {
    Ipv4View::parse(packet).is_some_and(|(header, _)| header.dont_fragment())
}

/// Source address of a packet of either version.
pub(super) fn source(packet: &[u8]) -> Option<IpAddr> {
    match version(packet)? {
        6 => Some(Ipv6View::parse(packet)?.0.source().into()),
        4 => Some(Ipv4View::parse(packet)?.0.source().into()),
        _ => None,
    }
}

/// Destination address of a packet of either version.
pub(super) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match version(packet)? {
        6 => Some(Ipv6View::parse(packet)?.0.destination().into()),
        4 => Some(Ipv4View::parse(packet)?.0.destination().into()),
        _ => None,
    }
}
