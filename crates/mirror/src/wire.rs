//! Netlink bytes: message headers, attributes, and requests.
//!
//! Messages are decoded attribute by attribute (`netlink-packet-core` iterates over them), because
//! a typed decoder rejects a whole message for one unexpected attribute. The mirror instead records
//! that a route or a rule has an unsupported part.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{NLA_HEADER_SIZE, NlasIterator};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;

/// One netlink message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`.
    pub sequence: u32,
    /// Bytes behind the header.
    pub body: &'a [u8],
}

/// Returns the messages of one datagram.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let message = Message {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            body: rest.get(HEADER..length)?,
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// One attribute (`struct nlattr`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'a> {
    /// Type, without the nested and byte order flags.
    pub kind: u16,
    /// Value.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The value as `u8`.
    pub fn u8(&self) -> Option<u8> {
        self.value.first().copied()
    }

    /// The value as `u16` in host order.
    pub fn u16(&self) -> Option<u16> {
        u16_at(self.value, 0)
    }

    /// The value as `u32` in host order.
    pub fn u32(&self) -> Option<u32> {
        u32_at(self.value, 0)
    }

    /// The value as a string, without the terminating zero.
    pub fn text(&self) -> String {
        let end = self
            .value
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.value.len());
        String::from_utf8_lossy(&self.value[..end]).into_owned()
    }

    /// The value as an IPv4 or IPv6 address, by its length.
    pub fn address(&self) -> Option<IpAddr> {
        address(self.value)
    }

    /// The attributes nested in this one.
    pub fn nested(&self) -> impl Iterator<Item = Attribute<'a>> + use<'a> {
        attributes(self.value)
    }
}

/// Returns the attributes in `bytes`, up to the first truncated one, which the kernel never sends.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    NlasIterator::new(bytes).map_while(|nla| {
        let nla = nla.ok()?;
        let (kind, length) = (nla.kind(), usize::from(nla.length()));
        let value = nla.into_inner().get(NLA_HEADER_SIZE..length)?;
        Some(Attribute { kind, value })
    })
}

/// The attributes that follow a fixed header of `header` bytes.
pub(crate) fn attributes_after(body: &[u8], header: usize) -> impl Iterator<Item = Attribute<'_>> {
    attributes(body.get(header..).unwrap_or_default())
}

/// A `u16` in host order at `offset`.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(
        *bytes.get(offset..)?.first_chunk::<2>()?,
    ))
}

/// A `u32` in host order at `offset`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        *bytes.get(offset..)?.first_chunk::<4>()?,
    ))
}

/// An address from 4 or 16 bytes in network order.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        16 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// Returns a prefix of `length` bits with zero host bits. `None` as address means zero, because the
/// kernel omits the destination of a default route.
pub(crate) fn prefix(family: u8, address: Option<IpAddr>, length: u8) -> Option<IpNet> {
    let unspecified = match i32::from(family) {
        libc::AF_INET => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let net = IpNet::new(address.unwrap_or(unspecified), length).ok()?;
    Some(net.trunc())
}

/// Body of a request, after the netlink header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body(pub Vec<u8>);

impl Body {
    /// Starts with a fixed header.
    pub fn new(fixed: &[u8]) -> Self {
        Self(fixed.to_vec())
    }

    /// Appends one attribute, padded to four bytes.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = (4 + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends one attribute that holds the attributes of `inner`.
    pub fn nest(&mut self, kind: u16, inner: &Body) -> &mut Self {
        self.attribute(kind | libc::NLA_F_NESTED as u16, &inner.0)
    }
}

/// A whole message: header and body.
pub(crate) fn frame(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_messages_of_a_datagram_are_decoded_with_their_attributes() {
        let mut body = Body::new(&[7, 0, 0, 0]);
        body.attribute(3, b"lo\0").attribute(4, &9u32.to_ne_bytes());
        let mut datagram = frame(16, 2, 1, &body.0);
        datagram.extend(frame(17, 0, 2, &[]));

        let found: Vec<_> = messages(&datagram).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].kind, found[0].flags, found[0].sequence),
            (16, 2, 1)
        );
        let attributes: Vec<_> = attributes_after(found[0].body, 4).collect();
        assert_eq!(attributes[0].text(), "lo");
        assert_eq!(attributes[1].u32(), Some(9));
        assert_eq!(found[1].kind, 17);
        assert!(found[1].body.is_empty());
    }

    #[test]
    fn a_truncated_message_ends_the_datagram() {
        let datagram = frame(16, 0, 1, &[1, 2, 3, 4]);
        assert_eq!(messages(&datagram[..18]).count(), 0);
        assert_eq!(messages(&[]).count(), 0);
    }
}
