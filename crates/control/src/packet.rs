//! UDP packets for questions about the packet path: `explain SRC DST` and `route get`.

use std::net::{IpAddr, Ipv6Addr};

use sidestep_wire::{Ends, EtherType, Ethernet, Ipv4, Ipv6, Protocol, Srh, Udp};
use thiserror::Error;

/// LIMIT: segments besides the destination, which is the last entry of the SRH. Its length field
/// has 8 bits (RFC 8754 2).
pub const SEGMENTS_MAX: usize = 126;
/// Hop limit of a packet, as `net.ipv6.conf.all.hop_limit` has it by default.
pub const HOP_LIMIT: u8 = 64;
/// Source MAC of the frame: a locally administered address.
const SENDER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// Source and destination port: an unprivileged port, and the first one of traceroute(8).
const PORTS: [u16; 2] = [49_152, 33_434];

/// A UDP packet without data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, behind the last segment.
    pub destination: IpAddr,
    /// Segments in the order of travel. With at least one, the packet has an SRH, and the first
    /// segment is the destination address of its IPv6 header.
    pub segments: Vec<Ipv6Addr>,
    /// Hop limit or TTL.
    pub hop_limit: u8,
}

/// Error in the parts of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DatagramError {
    /// Source and destination are of different families.
    #[error(
        "source {source_address} and destination {destination}: expected two IPv6 or two IPv4 \
         addresses"
    )]
    Families {
        /// Source address.
        source_address: IpAddr,
        /// Destination address.
        destination: IpAddr,
    },
    /// Segments in an IPv4 packet.
    #[error("destination {0}: a packet with segments needs IPv6 addresses")]
    SegmentsInIpv4(IpAddr),
    /// More segments than an SRH has.
    #[error("{0} segments; expected at most {SEGMENTS_MAX} besides the destination")]
    TooManySegments(usize),
}

impl Datagram {
    /// Returns the packet in an Ethernet frame to this MAC address.
    ///
    /// # Errors
    /// The addresses are of different families, or the segments do not fit.
    pub fn frame(&self, mac: [u8; 6]) -> Result<Vec<u8>, DatagramError> {
        let (ethertype, packet) = match (self.source, self.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (EtherType::IPV6, self.ipv6(source, destination)?)
            }
            (IpAddr::V4(_), IpAddr::V4(_)) if !self.segments.is_empty() => {
                return Err(DatagramError::SegmentsInIpv4(self.destination));
            }
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4 {
                    ttl: self.hop_limit,
                    ..Ipv4::new(source, destination, Protocol::UDP)
                };
                (EtherType::IPV4, header.emit(&self.udp()))
            }
            (source_address, destination) => {
                return Err(DatagramError::Families {
                    source_address,
                    destination,
                });
            }
        };
        let header = Ethernet {
            destination: mac,
            source: SENDER,
            ethertype,
        };
        Ok(header.emit(&packet))
    }

    fn ipv6(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Result<Vec<u8>, DatagramError> {
        if self.segments.len() > SEGMENTS_MAX {
            return Err(DatagramError::TooManySegments(self.segments.len()));
        }
        let (first, next_header, payload) = match self.segments.first() {
            None => (destination, Protocol::UDP, self.udp()),
            Some(first) => {
                // RFC 8754 2: Segment List[0] is the last segment.
                let list = std::iter::once(destination).chain(self.segments.iter().rev().copied());
                let segments_left = self.segments.len() as u8;
                let srh = Srh::new(Protocol::UDP, segments_left, list.collect());
                (*first, Protocol::ROUTING, srh.emit(&self.udp()))
            }
        };
        let header = Ipv6 {
            hop_limit: self.hop_limit,
            ..Ipv6::new(source, first, next_header)
        };
        Ok(header.emit(&payload))
    }

    /// The datagram. RFC 8200 8.1: the checksum covers the final destination.
    fn udp(&self) -> Vec<u8> {
        let [source_port, destination_port] = PORTS;
        let header = Udp {
            source_port,
            destination_port,
        };
        header.emit(&[], Ends::new(self.source, self.destination))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(ends: [&str; 2], segments: &[&str]) -> Datagram {
        let [source, destination] = ends.map(|text| text.parse().expect("an address"));
        Datagram {
            source,
            destination,
            segments: segments
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect(),
            hop_limit: 9,
        }
    }

    /// From Scapy: `Ether(dst="02:00:00:00:00:0a", src="02:00:00:00:00:01") / IPv6(src="fc00:a::2",
    /// dst="fc00::e", hlim=9) / IPv6ExtHdrSegmentRouting(addresses=["fc00:b::2", "fc00::f",
    /// "fc00::e"], segleft=2, lastentry=2) / UDP(sport=49152, dport=33434)`, whose checksum is that
    /// of the packet to `fc00:b::2`.
    const WITH_SRH: &str = "02000000000a02000000000186dd\
        6000000000402b09fc00000a000000000000000000000002fc00000000000000000000000000000e\
        1106040202000000fc00000b000000000000000000000002\
        fc00000000000000000000000000000ffc00000000000000000000000000000e\
        c000829a0008c528";
    /// `IP(src="10.0.1.2", dst="10.0.2.2", ttl=9, id=0) / UDP(sport=49152, dport=33434)`.
    const IPV4: &str = "02000000000a0200000000010800\
        4500001c0000000009119ace0a0001020a000202c000829a0008a63f";

    #[test]
    fn a_packet_has_the_bytes_of_scapy() {
        let mac = [2, 0, 0, 0, 0, 0x0a];
        for (ends, segments, expected) in [
            (
                ["fc00:a::2", "fc00:b::2"],
                &["fc00::e", "fc00::f"][..],
                WITH_SRH,
            ),
            (["10.0.1.2", "10.0.2.2"], &[], IPV4),
        ] {
            let frame = datagram(ends, segments).frame(mac).expect("a frame");
            assert_eq!(hex::encode(frame), expected, "{ends:?}");
        }
    }

    #[test]
    fn a_packet_that_cannot_exist_is_refused() {
        let many = vec!["fc00::e"; SEGMENTS_MAX + 1];
        for (ends, segments, expected) in [
            (
                ["fc00::1", "10.0.0.1"],
                &[][..],
                "expected two IPv6 or two IPv4 addresses",
            ),
            (
                ["10.0.0.1", "fc00::1"],
                &[],
                "source 10.0.0.1 and destination fc00::1",
            ),
            (
                ["10.0.0.1", "10.0.0.2"],
                &["fc00::e"],
                "needs IPv6 addresses",
            ),
            (
                ["fc00::1", "fc00::2"],
                &many,
                "127 segments; expected at most 126",
            ),
        ] {
            let error = datagram(ends, segments).frame([0; 6]).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert!(
            datagram(["fc00::1", "fc00::2"], &many[1..])
                .frame([0; 6])
                .is_ok()
        );
    }
}
