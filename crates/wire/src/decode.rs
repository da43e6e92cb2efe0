//! The headers of a frame or packet, from the outermost one to the innermost one.

use crate::{
    AuthenticationView, EtherType, EthernetView, FragmentView, IcmpView, Ipv4View, Ipv6View,
    OptionsView, Protocol, RoutingView, SctpView, TcpView, UdpView, VlanView,
};

/// The kind of header or payload that follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An Ethernet header.
    Ethernet,
    /// The payload of an Ethernet header or VLAN tag.
    EtherType(EtherType),
    /// The payload of an IP or extension header.
    Protocol(Protocol),
    /// Bytes without a header that can be read: data, or a fragment that is not the first.
    Payload,
}

/// A header of a frame.
#[derive(Clone, Copy, Debug)]
pub enum Header<'a> {
    /// Ethernet, outermost or in IPv6.
    Ethernet(EthernetView<'a>),
    /// VLAN tag.
    Vlan(VlanView<'a>),
    /// IPv4.
    Ipv4(Ipv4View<'a>),
    /// IPv6.
    Ipv6(Ipv6View<'a>),
    /// Hop-by-Hop Options.
    HopByHop(OptionsView<'a>),
    /// Destination Options.
    Destination(OptionsView<'a>),
    /// Routing header. [`RoutingView::srh`] checks whether it is an SRH.
    Routing(RoutingView<'a>),
    /// Fragment header.
    Fragment(FragmentView<'a>),
    /// Authentication Header.
    Authentication(AuthenticationView<'a>),
    /// TCP.
    Tcp(TcpView<'a>),
    /// UDP.
    Udp(UdpView<'a>),
    /// SCTP.
    Sctp(SctpView<'a>),
    /// ICMP.
    Icmpv4(IcmpView<'a>),
    /// `ICMPv6`.
    Icmpv6(IcmpView<'a>),
}

/// Reason why no header can be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// No header with a known type follows.
    Payload,
    /// Bytes of the header are missing.
    Truncated,
}

impl<'a> Header<'a> {
    /// Reads one header, and returns it with the bytes that follow.
    fn parse(next: Next, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), End> {
        /// Wraps the view of a parsed header.
        macro_rules! header {
            ($view:ident, $variant:ident) => {
                $view::parse(bytes).map(|(view, rest)| (Self::$variant(view), rest))
            };
        }
        let ethertype = match next {
            Next::EtherType(ethertype) => Some(ethertype),
            Next::Protocol(Protocol::IPV4) => Some(EtherType::IPV4),
            Next::Protocol(Protocol::IPV6) => Some(EtherType::IPV6),
            _ => None,
        };
        let parsed = match (ethertype, next) {
            (Some(EtherType::IPV4), _) => header!(Ipv4View, Ipv4),
            (Some(EtherType::IPV6), _) => header!(Ipv6View, Ipv6),
            (Some(EtherType::VLAN | EtherType::QINQ), _) => header!(VlanView, Vlan),
            (_, Next::Ethernet | Next::Protocol(Protocol::ETHERNET)) => {
                header!(EthernetView, Ethernet)
            }
            (_, Next::Protocol(protocol)) => match protocol {
                Protocol::HOP_BY_HOP => header!(OptionsView, HopByHop),
                Protocol::DESTINATION_OPTIONS => header!(OptionsView, Destination),
                Protocol::ROUTING => header!(RoutingView, Routing),
                Protocol::FRAGMENT => header!(FragmentView, Fragment),
                Protocol::AUTHENTICATION => header!(AuthenticationView, Authentication),
                Protocol::TCP => header!(TcpView, Tcp),
                Protocol::UDP => header!(UdpView, Udp),
                Protocol::SCTP => header!(SctpView, Sctp),
                Protocol::ICMP => header!(IcmpView, Icmpv4),
                Protocol::ICMPV6 => header!(IcmpView, Icmpv6),
                _ => return Err(End::Payload),
            },
            _ => return Err(End::Payload),
        };
        parsed.ok_or(End::Truncated)
    }

    /// The kind of header or payload behind this header.
    pub fn next(&self) -> Next {
        match self {
            Self::Ethernet(header) => Next::EtherType(header.ethertype()),
            Self::Vlan(tag) => Next::EtherType(tag.ethertype()),
            Self::Ipv4(header) if header.fragment_offset() > 0 => Next::Payload,
            Self::Ipv4(header) => Next::Protocol(header.protocol()),
            Self::Ipv6(header) => Next::Protocol(header.next_header()),
            Self::HopByHop(header) | Self::Destination(header) => {
                Next::Protocol(header.next_header())
            }
            Self::Routing(header) => Next::Protocol(header.next_header()),
            Self::Fragment(header) if header.offset() > 0 => Next::Payload,
            Self::Fragment(header) => Next::Protocol(header.next_header()),
            Self::Authentication(header) => Next::Protocol(header.next_header()),
            Self::Tcp(_) | Self::Udp(_) | Self::Sctp(_) | Self::Icmpv4(_) | Self::Icmpv6(_) => {
                Next::Payload
            }
        }
    }
}

/// A header and its place in the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// Offset of its first byte.
    pub offset: usize,
    /// Length in bytes, including options.
    pub length: usize,
    /// The header.
    pub header: Header<'a>,
}

/// Iterator over the headers of a frame or packet.
///
/// It ends at the payload or at a truncated header; [`Self::next_header`] says which.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// Offset of the end of the packet, which may lie behind `bytes`.
    end: usize,
    follows_lengths: bool,
    next: Next,
}

impl<'a> Headers<'a> {
    /// The headers of an Ethernet frame.
    pub fn frame(bytes: &'a [u8]) -> Self {
        Self::starting(Next::Ethernet, bytes)
    }

    /// The headers of bytes that begin with `next`.
    pub fn starting(next: Next, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            offset: 0,
            end: bytes.len(),
            follows_lengths: true,
            next,
        }
    }

    /// Declares that the bytes are the first ones of a frame of this length.
    #[must_use]
    pub fn with_length(self, length: usize) -> Self {
        let end = length.max(self.bytes.len());
        Self { end, ..self }
    }

    /// Ignores Payload Length and Total Length: every packet reaches to the end of the bytes.
    #[must_use]
    pub fn ignore_lengths(self) -> Self {
        let follows_lengths = false;
        Self {
            follows_lengths,
            ..self
        }
    }

    /// The truncated header at which the iterator ended, or [`Next::Payload`].
    pub fn next_header(&self) -> Next {
        self.next
    }

    /// Returns the length of the packet after the last parsed header, including bytes that are
    /// missing.
    pub fn remaining(&self) -> usize {
        self.end - self.offset
    }

    /// Offset where the packet ends, by the length field of its IP header at offset `start`.
    fn end_of(&self, start: usize, header: &Header<'_>) -> usize {
        let end = match header {
            Header::Ipv6(view) => self.offset + usize::from(view.payload_length()),
            Header::Ipv4(view) => start + usize::from(view.total_length()),
            _ => self.end,
        };
        end.clamp(self.offset, self.end)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Layer<'a>;

    fn next(&mut self) -> Option<Layer<'a>> {
        let offset = self.offset;
        let bytes = &self.bytes[offset..self.end.min(self.bytes.len())];
        let (header, rest) = match Header::parse(self.next, bytes) {
            Ok(parsed) => parsed,
            Err(end) => {
                if end == End::Payload {
                    self.next = Next::Payload;
                }
                return None;
            }
        };
        let length = bytes.len() - rest.len();
        self.offset += length;
        self.next = header.next();
        if self.follows_lengths {
            self.end = self.end_of(offset, &header);
        }
        Some(Layer {
            offset,
            length,
            header,
        })
    }
}
