//! Which flow a packet is of, as the manual says it of End.AD with `flows`. Slow, on bytes.

use sidestep_testkit::differential::headers::proto;

/// Addresses, upper-layer protocol, and the distinguishing part of flows between two addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    source: Vec<u8>,
    destination: Vec<u8>,
    protocol: u8,
    of: Of,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    /// TCP, UDP and SCTP; or none. Source, destination.
    Ports([[u8; 2]; 2]),
    /// The flow of a fragment.
    Identification(Vec<u8>),
}

/* LIMIT: extension headers in front of the ports. */
const HEADERS_MAX: usize = 4;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

impl Flow {
    /// The flow of the packet that starts here, with any following bytes of the frame; `inner` says
    /// which version it has.
    pub fn of(packet: &[u8], inner: u8) -> Option<Self> {
        let address = |from: usize, to: usize| packet.get(from..to).map(<[u8]>::to_vec);
        if inner == proto::IPV4 {
            let header = packet.get(..20)?;
            let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
            return Some(Self {
                source: address(12, 16)?,
                destination: address(16, 20)?,
                protocol: header[9],
                of: if fragment {
                    Of::Identification(header[4..6].to_vec())
                } else {
                    ports(packet, usize::from(header[0] & 15) * 4, header[9])
                },
            });
        }
        let (mut protocol, mut at) = (packet.get(..40)?[6], 40);
        let walked = [
            proto::ROUTING,
            proto::DESTINATION_OPTIONS,
            proto::HOP_BY_HOP,
        ];
        for _ in 0..HEADERS_MAX {
            if !walked.contains(&protocol) {
                break;
            }
            let header = packet.get(at..at + 2)?;
            (protocol, at) = (header[0], at + (usize::from(header[1]) + 1) * 8);
        }
        Some(Self {
            source: address(8, 24)?,
            destination: address(24, 40)?,
            protocol,
            of: if protocol == proto::FRAGMENT {
                Of::Identification(address(at, at + 8)?.split_off(4))
            } else {
                ports(packet, at, protocol)
            },
        })
    }

    /// Against the flow of the packet that an ICMP error quotes.
    pub fn quoted(packet: &[u8], inner: u8) -> Option<Self> {
        let v4 = inner == proto::IPV4;
        let (protocol, at) = if v4 {
            (packet.get(..20)?[9], usize::from(packet[0] & 15) * 4)
        } else {
            (packet.get(..40)?[6], 40)
        };
        let kind = packet.get(at..at + 8)?[0];
        let is_error = if v4 {
            // Destination Unreachable, Time Exceeded, Parameter Problem.
            protocol == ICMP && [3, 11, 12].contains(&kind)
        } else {
            protocol == ICMPV6 && kind < 128
        };
        let quoted = packet.get(at + 8..)?;
        let first = *quoted.first()?;
        let is_packet = if v4 {
            first >> 4 == 4 && first & 15 >= 5
        } else {
            first >> 4 == 6
        };
        if !is_error || !is_packet {
            return None;
        }
        let flow = Self::of(quoted, inner)?;
        let Of::Ports([source, destination]) = flow.of else {
            return None;
        };
        Some(Self {
            source: flow.destination,
            destination: flow.source,
            protocol: flow.protocol,
            of: Of::Ports([destination, source]),
        })
    }
}

fn ports(packet: &[u8], at: usize, protocol: u8) -> Of {
    let has = [TCP, proto::UDP, SCTP].contains(&protocol);
    let bytes = packet.get(at..at + 4).filter(|_| has);
    let bytes = bytes.unwrap_or(&[0; 4]);
    Of::Ports([[bytes[0], bytes[1]], [bytes[2], bytes[3]]])
}
