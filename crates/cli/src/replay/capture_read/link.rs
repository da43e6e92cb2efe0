//! Link types of captured packets, and the Ethernet frames that they stand for.

use std::ops::Range;

/// `LINKTYPE_ETHERNET` (<https://www.tcpdump.org/linktypes.html>).
pub const ETHERNET: u16 = 1;
/// `LINKTYPE_LINUX_SLL`: `tcpdump -i any` until version 4.99.
pub const SLL: u16 = 113;
/// `LINKTYPE_LINUX_SLL2`: `tcpdump -i any`.
pub const SLL2: u16 = 276;

/// Length of an Ethernet header.
const HEADER: usize = 14;
/// `ARPHRD_ETHER`.
const ARPHRD_ETHER: u16 = 1;

/* `sll_pkttype`. */
const HOST: u8 = 0;
const BROADCAST: u8 = 1;
const MULTICAST: u8 = 2;
const OUTGOING: u8 = 4;

/// Link layer of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet frame.
    Ethernet,
    /// An Ethernet frame to the interface that captured it, whose address the capture omits.
    ToInterface,
    /// No Ethernet frame: its link type.
    Other(u16),
}

/// A packet of a link type in a buffer.
pub(super) struct Converted {
    pub link: Link,
    /// The frame in the buffer, or the packet as captured.
    pub data: Range<usize>,
    /// Bytes that the frame is shorter than the captured packet.
    pub less: u32,
    pub is_outbound: bool,
}

/// Replaces the header of a Linux cooked capture by an Ethernet header, in place. The destination of
/// a frame to another host is unknown: it becomes zero.
pub(super) fn convert(link_type: u16, buffer: &mut [u8], data: Range<usize>) -> Converted {
    let as_it_is = |link| Converted {
        link,
        data: data.clone(),
        less: 0,
        is_outbound: false,
    };
    let cooked = match link_type {
        ETHERNET => return as_it_is(Link::Ethernet),
        SLL => Cooked::sll(&buffer[data.clone()]),
        SLL2 => Cooked::sll2(&buffer[data.clone()]),
        _ => None,
    };
    // Packets of other devices, such as tunnels and the loopback, have no Ethernet header.
    let Some(cooked) = cooked.filter(|cooked| cooked.hardware == ARPHRD_ETHER) else {
        return as_it_is(Link::Other(link_type));
    };
    let start = data.start + cooked.length - HEADER;
    let group = buffer[data.start + cooked.length..data.end].get(36..40);
    let destination = match (cooked.kind, group) {
        (BROADCAST, _) => [0xff; 6],
        // RFC 2464 7: the last four bytes of the IPv6 destination.
        (MULTICAST, Some(&[a, b, c, d])) => [0x33, 0x33, a, b, c, d],
        _ => [0; 6],
    };
    let header = &mut buffer[start..start + HEADER];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&cooked.source);
    header[12..].copy_from_slice(&cooked.protocol);
    Converted {
        link: if cooked.kind == HOST {
            Link::ToInterface
        } else {
            Link::Ethernet
        },
        data: start..data.end,
        less: (cooked.length - HEADER) as u32,
        is_outbound: cooked.kind == OUTGOING,
    }
}

/// Fields of the header of a Linux cooked capture.
struct Cooked {
    length: usize,
    kind: u8,
    hardware: u16,
    source: [u8; 6],
    protocol: [u8; 2],
}

impl Cooked {
    /// Packet type, ARPHRD type, address length, address, protocol; in network order.
    fn sll(packet: &[u8]) -> Option<Self> {
        Some(Self {
            length: 16,
            kind: *packet.get(1)?,
            hardware: u16::from_be_bytes(*packet.get(2..)?.first_chunk()?),
            source: *packet.get(6..)?.first_chunk()?,
            protocol: *packet.get(14..)?.first_chunk()?,
        })
    }

    /// Protocol, reserved, interface index, ARPHRD type, packet type, address length, address; in
    /// network order.
    fn sll2(packet: &[u8]) -> Option<Self> {
        Some(Self {
            length: 20,
            kind: *packet.get(10)?,
            hardware: u16::from_be_bytes(*packet.get(8..)?.first_chunk()?),
            source: *packet.get(12..)?.first_chunk()?,
            protocol: *packet.first_chunk()?,
        })
        .filter(|cooked| cooked.length <= packet.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: [u8; 40] = [7; 40];

    fn sll(kind: u8, hardware: u8) -> Vec<u8> {
        let head = [
            0, kind, 0, hardware, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 0x86, 0xdd,
        ];
        [&head[..], &PAYLOAD].concat()
    }

    fn sll2(kind: u8, hardware: u8) -> Vec<u8> {
        let head = [
            0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, hardware, kind, 6, 2, 0, 0, 0, 0, 9, 0, 0,
        ];
        [&head[..], &PAYLOAD].concat()
    }

    fn converted(link_type: u16, packet: &[u8]) -> (Link, Vec<u8>, u32, bool) {
        // Not at the start of the buffer, as in a block of pcapng.
        let mut buffer = [&[0xee; 3][..], packet].concat();
        let end = buffer.len();
        let Converted {
            link,
            data,
            less,
            is_outbound,
        } = convert(link_type, &mut buffer, 3..end);
        (link, buffer[data].to_vec(), less, is_outbound)
    }

    #[test]
    fn cooked_packets_become_ethernet_frames() {
        for (link_type, packet, less) in [
            (SLL, sll as fn(u8, u8) -> Vec<u8>, 2),
            (SLL2, sll2 as fn(u8, u8) -> Vec<u8>, 6),
        ] {
            for (kind, link, destination, is_outbound) in [
                (HOST, Link::ToInterface, [0; 6], false),
                (BROADCAST, Link::Ethernet, [0xff; 6], false),
                (MULTICAST, Link::Ethernet, [0x33, 0x33, 7, 7, 7, 7], false),
                (3, Link::Ethernet, [0; 6], false),
                (OUTGOING, Link::Ethernet, [0; 6], true),
            ] {
                let frame = [&destination[..], &[2, 0, 0, 0, 0, 9, 0x86, 0xdd], &PAYLOAD];
                let expected = (link, frame.concat(), less, is_outbound);
                assert_eq!(
                    converted(link_type, &packet(kind, 1)),
                    expected,
                    "{link_type} {kind}"
                );
            }
        }
    }

    #[test]
    fn packets_without_ethernet_stay_as_they_are() {
        for (link_type, packet) in [
            (101, PAYLOAD.to_vec()),
            (SLL, sll(HOST, 4)),
            (SLL2, sll2(HOST, 4)),
            (SLL, vec![0; 15]),
            (SLL2, vec![0; 19]),
            (SLL2, vec![]),
        ] {
            let expected = (Link::Other(link_type), packet.clone(), 0, false);
            assert_eq!(converted(link_type, &packet), expected);
        }
        let (link, frame, ..) = converted(ETHERNET, &[1; 20]);
        assert_eq!((link, frame), (Link::Ethernet, vec![1; 20]));
        // A multicast packet that ends within its header.
        assert_eq!(converted(SLL, &sll(MULTICAST, 1)[..20]).0, Link::Ethernet);
    }
}
