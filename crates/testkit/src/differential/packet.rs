//! A random packet for a node, built from the inside out to match the node's addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::headers::{
    self, ETHERNET, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4, IPV6, Ipv4, Ipv6, Srh, proto,
};
use super::mutate;
use super::scenario::{Kind, Place, Port, Scenario, Sid, segment};
use crate::random::Random;

/// A frame that a node receives.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Ingress port.
    pub port: String,
    /// The frame from its destination MAC on, without FCS.
    pub frame: Vec<u8>,
    /// Class of the packet.
    pub class: Class,
}

/// Class of a random packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A valid packet.
    Valid,
    /// A valid packet with one or two changes.
    Nearly,
    /// Random bytes after an Ethernet header.
    Noise,
}

impl Arrival {
    /// Returns a random packet for this node.
    pub fn random(scenario: &Scenario, random: &mut Random) -> Self {
        let class = random.weighted(&[(12, Class::Valid), (6, Class::Nearly), (2, Class::Noise)]);
        let port = random.pick(&scenario.ports).clone();
        let mut packets = Packets {
            places: &scenario.places,
            room: port.mtu,
            near: random.pick(&scenario.ports).mtu,
            random,
        };
        let mut frame = match class {
            Class::Noise => mutate::noise(&port, packets.random),
            _ => packets.frame(&port),
        };
        if class == Class::Nearly {
            mutate::nearly(&mut frame, packets.random);
        }
        frame.truncate(ETHERNET + port.mtu);
        // AF_PACKET does not send frames shorter than an Ethernet header.
        frame.resize(frame.len().max(ETHERNET), 0);
        Self {
            port: port.name(),
            frame,
            class,
        }
    }
}

struct Packets<'a> {
    places: &'a [Place],
    random: &'a mut Random,
    /// Maximum length of layer 3 in bytes at the ingress port.
    room: usize,
    /// MTU that the length of a large packet is chosen around.
    near: usize,
}

/// A protocol number and its payload.
type Layer = (u8, Vec<u8>);

impl Packets<'_> {
    fn frame(&mut self, port: &Port) -> Vec<u8> {
        let (ethertype, packet) = self.packet(port);
        let mut frame = headers::ethernet(port.mac(), port.gateway_mac(), ethertype, &packet);
        if self.random.one_in(12) {
            let padding = self.random.between(1, 40);
            frame.extend(self.random.bytes(padding));
        }
        frame
    }

    fn packet(&mut self, port: &Port) -> (u16, Vec<u8>) {
        let place = self.place();
        match place.address(self.random) {
            IpAddr::V4(to) => {
                let from = self.source4(port);
                let (protocol, payload) = self.upper(false, IPV4);
                (ETHERTYPE_IPV4, self.ipv4(from, to, protocol, &payload))
            }
            IpAddr::V6(to) => {
                let from = self.source6(port);
                (ETHERTYPE_IPV6, self.outer6(place, from, to))
            }
        }
    }

    /// Chooses a place: SIDs more often than headends, and headends more often than the rest.
    fn place(&mut self) -> Place {
        let kind = self.random.weighted(&[(8, 0), (22, 1), (12, 2), (1, 3)]);
        let aside = self.random.one_in(8);
        let fits = |place: &&Place| place.kind.number() == kind && place.aside == aside;
        let known: Vec<Place> = self.places.iter().filter(fits).copied().collect();
        if known.is_empty() {
            *self.random.pick(self.places)
        } else {
            *self.random.pick(&known)
        }
    }

    fn segment(&mut self) -> Ipv6Addr {
        segment(self.places, self.random)
    }

    fn source6(&mut self, port: &Port) -> Ipv6Addr {
        match self.random.below(8) {
            0 => port.host6(1),
            1 => self.segment(),
            _ => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, self.random.next() as u16),
        }
    }

    fn source4(&mut self, port: &Port) -> Ipv4Addr {
        match self.random.below(4) {
            0 => port.host4(1),
            _ => Ipv4Addr::new(192, 0, 2, self.random.between(1, 254) as u8),
        }
    }

    /// Returns an IPv6 packet to an address of a place, with the segments and the payload that the
    /// place accepts.
    fn outer6(&mut self, place: Place, from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
        let (to, end) = match place.kind {
            Kind::Sid(Sid::Container(block, function)) => {
                (self.container(to, block, function), Sid::Transit)
            }
            Kind::Sid(sid) => (to, sid),
            _ => (to, Sid::Transit),
        };
        let is_sid = matches!(place.kind, Kind::Sid(_));
        let with_srh = match (is_sid, end) {
            (true, Sid::Transit) => !self.random.one_in(6),
            (true, _) => !self.random.one_in(3),
            (false, _) => self.random.one_in(6),
        };
        if !with_srh {
            let layer = self.inner(end, IPV6);
            return self.ipv6(from, to, layer);
        }
        // The path consists of visited segments, this one, and the next ones.
        let to_come = match (is_sid, end) {
            (true, Sid::Transit) => self
                .random
                .weighted(&[(1, 0), (6, 1), (4, 2), (2, 3), (1, 8)]),
            (true, _) => self.random.weighted(&[(15, 0), (1, 1)]),
            (false, _) => self.random.below(3),
        };
        let passed = self
            .random
            .weighted(&[(4, 0), (3, 1), (1, 2), (1, 15 - to_come)]);
        let mut list: Vec<Ipv6Addr> = (0..to_come).map(|_| self.segment()).collect();
        list.push(to);
        list.extend((0..passed).map(|_| self.segment()));
        let final_sid = self.sid_at(list[0]).unwrap_or(end);
        // RFC 8754 4.1.1: the first segment of a reduced SRH is in the destination address only.
        if passed == 0 && list.len() > 1 && self.random.one_in(4) {
            list.pop();
        }
        let srh = Srh {
            segments_left: to_come as u8,
            tlvs: self.tlvs(),
            flags: 0,
            tag: if self.random.one_in(4) {
                self.random.next() as u16
            } else {
                0
            },
            list,
        };
        let (next_header, payload) =
            self.inner(final_sid, IPV6 + 8 + srh.list.len() * 16 + srh.tlvs.len());
        let routing = headers::srh(&srh, next_header, &payload);
        self.ipv6(from, to, (proto::ROUTING, routing))
    }

    /// Returns the payload that the node's SID at an address accepts, if any.
    fn sid_at(&self, address: Ipv6Addr) -> Option<Sid> {
        let within = |place: &&Place| match place.network {
            IpAddr::V6(network) => {
                let differ = u128::from(network) ^ u128::from(address);
                differ.leading_zeros() >= u32::from(place.length)
            }
            IpAddr::V4(_) => false,
        };
        let found = self
            .places
            .iter()
            .filter(within)
            .max_by_key(|place| place.length);
        match found?.kind {
            Kind::Sid(sid) => Some(sid),
            _ => None,
        }
    }

    /// RFC 9800 4.1: adds further compressed SIDs after the first one of an address.
    fn container(&mut self, address: Ipv6Addr, block: u8, function: u8) -> Ipv6Addr {
        let mut at = u32::from(block) + u32::from(function);
        let mut bits = u128::from(address) & !(u128::MAX >> at);
        for _ in 0..self.random.below(4) {
            at += u32::from(function);
            if at > 128 {
                break;
            }
            let id = if self.random.one_in(6) {
                self.random.next() & ((1 << function) - 1)
            } else {
                self.random.between(1, 15) as u64
            };
            bits |= u128::from(id) << (128 - at);
        }
        bits.into()
    }

    /// RFC 8754 2.1: padding and unknown types.
    fn tlvs(&mut self) -> Vec<u8> {
        let mut tlvs = Vec::new();
        if !self.random.one_in(4) {
            return tlvs;
        }
        for _ in 0..self.random.between(1, 3) {
            let kind = self
                .random
                .weighted(&[(6, 4), (4, 124), (2, 200), (1, 5), (1, 0)]);
            let length = self.random.below(14);
            tlvs.push(kind);
            if kind != 0 {
                tlvs.push(length as u8);
                tlvs.resize(tlvs.len() + length, 0);
            }
        }
        match (8 - tlvs.len() % 8) % 8 {
            0 => {}
            1 => tlvs.extend([4, 7, 0, 0, 0, 0, 0, 0, 0]),
            rest => {
                tlvs.extend([4, rest as u8 - 2]);
                tlvs.resize(tlvs.len() + rest - 2, 0);
            }
        }
        tlvs
    }

    /// Returns a payload that a behavior accepts, after `outer` bytes of headers.
    fn inner(&mut self, sid: Sid, outer: usize) -> Layer {
        let any = [Sid::Transit, Sid::Ipv4, Sid::Ipv6, Sid::Ethernet];
        let sid = if self.random.one_in(20) {
            *self.random.pick(&any)
        } else {
            sid
        };
        match sid {
            Sid::Transit | Sid::Container(..) => self.upper(true, outer),
            Sid::Ipv4 => (proto::IPV4, self.inner4(outer)),
            Sid::Ipv6 => (proto::IPV6, self.inner6(outer)),
            Sid::Ethernet => (proto::ETHERNET, self.inner_frame(outer)),
        }
    }

    fn inner4(&mut self, outer: usize) -> Vec<u8> {
        let known: Vec<Place> = self
            .places
            .iter()
            .filter(|p| !p.is_ipv6())
            .copied()
            .collect();
        let to = match self.random.pick(&known).address(self.random) {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::new(203, 0, 113, 1),
        };
        let from = Ipv4Addr::new(192, 0, 2, self.random.between(1, 254) as u8);
        let (protocol, payload) = self.upper(false, outer + IPV4);
        self.ipv4(from, to, protocol, &payload)
    }

    fn inner6(&mut self, outer: usize) -> Vec<u8> {
        let (to, from) = (
            self.segment(),
            Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 0, 0, 0, 1),
        );
        let layer = match self.sid_at(to) {
            // Nest an SRH in the payload.
            Some(sid) if self.random.one_in(2) => {
                let srh = Srh {
                    list: vec![self.segment(), to],
                    segments_left: 1,
                    flags: 0,
                    tag: 0,
                    tlvs: Vec::new(),
                };
                let (next_header, payload) = match sid {
                    Sid::Ipv4 => (proto::IPV4, self.inner4(outer + 2 * IPV6 + 40)),
                    _ => self.upper(true, outer + IPV6 + 40),
                };
                (proto::ROUTING, headers::srh(&srh, next_header, &payload))
            }
            _ => self.upper(true, outer + IPV6),
        };
        self.ipv6(from, to, layer)
    }

    fn inner_frame(&mut self, outer: usize) -> Vec<u8> {
        let (to, from) = ([2, 0, 0, 0xaa, 0, 1], [2, 0, 0, 0xaa, 0, 2]);
        match self.random.below(6) {
            0 => headers::ethernet(to, from, self.random.next() as u16, &self.random.bytes(46)),
            1 => headers::ethernet([0xff; 6], from, 0x0806, &self.random.bytes(28)),
            2 => headers::ethernet(to, from, 0x8100, &self.random.bytes(46)),
            3 => headers::ethernet(to, from, ETHERTYPE_IPV6, &self.inner6(outer + ETHERNET)),
            _ => headers::ethernet(to, from, ETHERTYPE_IPV4, &self.inner4(outer + ETHERNET)),
        }
    }

    fn hop_limit(&mut self) -> u8 {
        match self.random.below(12) {
            0 => self.random.between(0, 3) as u8,
            1 => 255,
            2 => self.random.next() as u8,
            _ => 64,
        }
    }

    fn traffic_class(&mut self) -> u8 {
        match self.random.below(4) {
            0 => self.random.next() as u8,
            1 => self.random.below(4) as u8,
            _ => 0,
        }
    }

    fn ipv4(
        &mut self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let fields = Ipv4 {
            tos: self.traffic_class(),
            id: self.random.next() as u16,
            fragment: self.random.weighted(&[
                (10, 0x4000),
                (4, 0),
                (1, 0x2000),
                (1, 0x2005),
                (1, 0x0010),
            ]),
            ttl: self.hop_limit(),
            source,
            destination,
        };
        headers::ipv4(&fields, protocol, payload)
    }

    /// Returns an IPv6 packet, sometimes with extension headers.
    fn ipv6(&mut self, source: Ipv6Addr, destination: Ipv6Addr, layer: Layer) -> Vec<u8> {
        let (mut next_header, mut payload) = layer;
        if self.random.one_in(30) {
            // RFC 8200 4.5: mostly the Fragment header of a whole packet.
            let (offset, more) =
                self.random
                    .weighted(&[(4, (0, false)), (1, (0, true)), (1, (5, true))]);
            let id = self.random.next() as u32;
            payload = headers::fragment(next_header, offset, more, id, &payload);
            next_header = proto::FRAGMENT;
        }
        if self.random.one_in(15) {
            // RFC 8200 4.2: skipped, or discarded if a node does not know it.
            let kind = self
                .random
                .weighted(&[(9, 0x1e), (1, 0x5e), (1, 0x9e), (1, 0xde)]);
            payload = headers::options(next_header, &[kind, 2, 1, 2], &payload);
            next_header = proto::DESTINATION_OPTIONS;
        }
        if self.random.one_in(300) {
            // Only at the start of the chain are these Hop-by-Hop Options (RFC 8200 4).
            payload = headers::options(next_header, &[1, 4, 0, 0, 0, 0], &payload);
            next_header = proto::HOP_BY_HOP;
            payload = headers::options(next_header, &[0x1e, 2, 1, 2], &payload);
            next_header = proto::DESTINATION_OPTIONS;
        }
        if self.random.one_in(20) {
            // RFC 8200 4.2: PadN, Pad1, a type that a node skips; RFC 2711: Router Alert.
            let options: &[u8] = self.random.weighted(&[
                (4, &[1, 4, 0, 0, 0, 0][..]),
                (1, &[0, 0, 0, 0, 0, 0]),
                (1, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (1, &[0x1e, 1, 0]),
                // An option that a node drops if it does not recognize it.
                (1, &[0x5e, 1, 0]),
                (1, &[5, 2, 0, 0]),
            ]);
            payload = headers::options(next_header, options, &payload);
            next_header = proto::HOP_BY_HOP;
        }
        let fields = Ipv6 {
            traffic_class: self.traffic_class(),
            flow_label: if self.random.one_in(3) {
                self.random.next() as u32 & 0xf_ffff
            } else {
                0
            },
            hop_limit: self.hop_limit(),
            source,
            destination,
        };
        headers::ipv6(&fields, next_header, &payload)
    }

    /// Returns an upper-layer header and payload. Routers do not check its checksum.
    fn upper(&mut self, ipv6: bool, outer: usize) -> Layer {
        let most = self.room.saturating_sub(outer + 60);
        let size = match self.random.below(20) {
            0 => self.random.between(0, most),
            // Whether the packet fits depends on the overhead of the headend.
            1 | 2 => (self.near + 4)
                .saturating_sub(outer + self.random.below(300))
                .min(most),
            _ => self.random.between(0, 64),
        };
        let data = self.random.bytes(size);
        let ports = self.random.bytes(4);
        match self.random.below(12) {
            0 | 1 => (
                proto::TCP,
                [&ports[..], &[0; 8], &[0x50, 0x18, 1, 0, 0, 0, 0, 0], &data].concat(),
            ),
            2 if ipv6 => (proto::ICMPV6, [&[128, 0, 0, 0][..], &ports, &data].concat()),
            2 => (proto::ICMP, [&[8, 0, 0, 0][..], &ports, &data].concat()),
            3 => (proto::SCTP, [&ports[..], &[0; 8], &data].concat()),
            4 if ipv6 => {
                let (offset, more) =
                    self.random
                        .weighted(&[(1, (0, true)), (1, (5, true)), (1, (9, false))]);
                let piece = [&ports[..], &data].concat();
                (
                    proto::FRAGMENT,
                    headers::fragment(proto::UDP, offset, more, self.random.next() as u32, &piece),
                )
            }
            5 if ipv6 => (proto::NO_NEXT_HEADER, data),
            6 => (self.random.between(144, 252) as u8, data),
            _ => {
                let length = (8 + size as u16).to_be_bytes();
                (
                    proto::UDP,
                    [&ports[..], &length, &[0x12, 0x34], &data].concat(),
                )
            }
        }
    }
}
