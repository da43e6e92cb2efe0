//! Forged packets: nested headers with occasional wrong fields, addressed to destinations of the
//! node's routes.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use sidestep_datapath::{FibKey, Image, ViewId};
use sidestep_testkit::random::Random;
use sidestep_wire::field::{ipv6, srh};
use sidestep_wire::{Ipv4, Ipv6, Protocol, Srh};

use super::packet::{Header, Kind, headers};

/// Hop-by-Hop or Destination Options with only padding.
const PADDING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

/// Generator of packets for one node.
pub struct Forge<'a> {
    random: &'a mut Random,
    macs: Vec<[u8; 6]>,
    addresses6: Vec<[u8; 16]>,
    addresses4: Vec<[u8; 4]>,
}

impl<'a> Forge<'a> {
    /// Returns a generator for the node with these tables.
    pub fn new(image: &Image, random: &'a mut Random) -> Self {
        let views4: BTreeSet<ViewId> = image.ports.values().map(|port| port.view4).collect();
        let (four, six): (Vec<&FibKey>, Vec<&FibKey>) =
            image.fib.keys().partition(|key| views4.contains(&key.view));
        let first_four = |bytes: [u8; 16]| [bytes[0], bytes[1], bytes[2], bytes[3]];
        Self {
            random,
            macs: image.ports.values().map(|port| port.mac).collect(),
            addresses6: six
                .iter()
                .map(|key| key.address)
                .chain([[0x20; 16]])
                .collect(),
            addresses4: four
                .iter()
                .map(|key| first_four(key.address))
                .chain([[192, 0, 2, 1]])
                .collect(),
        }
    }

    /// Returns an address of the node's tables, or one next to it.
    pub fn address6(&mut self) -> [u8; 16] {
        let mut address = *self.random.pick(&self.addresses6);
        if self.random.one_in(3) {
            address[15] ^= 1;
        }
        address
    }

    fn address4(&mut self) -> [u8; 4] {
        let mut address = *self.random.pick(&self.addresses4);
        address[3] ^= u8::from(self.random.one_in(2));
        address
    }

    fn hop_limit(&mut self) -> u8 {
        *self.random.pick(&[0, 1, 2, 3, 64, 64, 64, 255])
    }

    /// Returns a frame for the port with this position among the ports of the node.
    pub fn frame(&mut self, port: usize) -> Vec<u8> {
        let mut frame = self.macs[port % self.macs.len()].to_vec();
        frame.extend([2, 0, 0, 0, 0, 0x99]);
        if self.random.one_in(4) {
            frame.extend([0x08, 0x00]);
            frame.extend(self.ipv4());
        } else {
            frame.extend([0x86, 0xdd]);
            frame.extend(self.ipv6(0));
        }
        if self.random.one_in(4) {
            let padding = self.random.below(30);
            frame.extend(self.random.bytes(padding));
        }
        frame
    }

    fn ipv4(&mut self) -> Vec<u8> {
        let payload = self.random.below(60);
        let (tos, ttl) = (self.random.byte(), self.hop_limit());
        let (source, destination) = (self.address4().into(), self.address4().into());
        let header = Ipv4 {
            tos,
            ttl,
            ..Ipv4::new(source, destination, Protocol::UDP)
        };
        header.emit(&self.random.bytes(payload))
    }

    fn ipv6(&mut self, depth: usize) -> Vec<u8> {
        let (next_header, payload) = self.chain(depth, 0);
        self.ipv6_around(next_header, &payload)
    }

    fn ipv6_around(&mut self, next_header: u8, payload: &[u8]) -> Vec<u8> {
        let class_and_label = self.random.next() as u32;
        let mut length = payload.len();
        if self.random.one_in(20) {
            length = length.wrapping_add(self.random.below(32)).wrapping_sub(16);
        }
        let hop_limit = self.hop_limit();
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);
        let header = Ipv6 {
            traffic_class: (class_and_label >> 20) as u8,
            flow_label: class_and_label,
            hop_limit,
            ..Ipv6::new(source, self.address6().into(), Protocol(next_header))
        };
        let mut packet = header.emit(payload);
        packet[ipv6::PAYLOAD_LENGTH..][..2].copy_from_slice(&(length as u16).to_be_bytes());
        packet
    }

    /// Returns extension headers and an upper-layer header: the first Next Header and the bytes.
    fn chain(&mut self, depth: usize, position: usize) -> (u8, Vec<u8>) {
        if position < 7 && !self.random.one_in(3) {
            let (next, rest) = self.chain(depth, position + 1);
            let (kind, mut header) = self.extension(next, position == 0);
            header.extend(rest);
            return (kind, header);
        }
        match self.random.below(5) {
            _ if depth == 3 => (Protocol::NO_NEXT_HEADER.0, Vec::new()),
            0 => (Protocol::IPV4.0, self.ipv4()),
            1 | 2 => (Protocol::IPV6.0, self.ipv6(depth + 1)),
            3 => {
                let mut frame = self.random.bytes(12);
                frame.extend([0x86, 0xdd]);
                frame.extend(self.ipv6(depth + 1));
                (Protocol::ETHERNET.0, frame)
            }
            _ => {
                let length = self.random.below(40);
                (Protocol::UDP.0, self.random.bytes(length))
            }
        }
    }

    /// Returns an extension header before `next`: its own Next Header value, and its bytes.
    fn extension(&mut self, next: u8, first: bool) -> (u8, Vec<u8>) {
        let (kind, mut header) = match self.random.below(8) {
            0 if first => (Protocol::HOP_BY_HOP.0, PADDING.to_vec()),
            1 => {
                let units = *self.random.pick(&[0, 0, 0, 0, 1, 31, 255]);
                let mut options = PADDING.to_vec();
                options.resize(8 + usize::from(units) * 8, 0);
                options[1] = units;
                if self.random.one_in(4) {
                    options[2] = *self.random.pick(&[0x1e, 0x5e, 0x9e, 0xde]);
                }
                (Protocol::DESTINATION_OPTIONS.0, options)
            }
            2 => {
                let left = self.random.below(2) as u8;
                (Protocol::ROUTING.0, vec![next, 0, 2, left, 0, 0, 0, 0])
            }
            3 if self.random.one_in(2) => {
                let more = u8::from(self.random.one_in(2));
                (Protocol::FRAGMENT.0, vec![next, 0, 0, more, 0, 0, 0, 7])
            }
            _ => (Protocol::ROUTING.0, self.srh(next)),
        };
        header[0] = next;
        if self.random.one_in(30) {
            let at = self.random.below(header.len());
            header[at] = self.random.byte();
        }
        (kind, header)
    }

    fn srh(&mut self, next: u8) -> Vec<u8> {
        let segments = 1 + self.random.below(5);
        let tlvs = *self.random.pick(&[0, 0, 0, 1, 2]);
        let left = match self.random.below(6) {
            0 => 0,
            1 => segments,
            2 => segments + 1,
            _ => self.random.below(segments),
        };
        let flags = u8::from(self.random.one_in(12)) * Srh::FLAG_HMAC;
        let list = (0..segments).map(|_| self.address6().into()).collect();
        let mut header = Srh {
            flags,
            ..Srh::new(Protocol(next), left as u8, list)
        }
        .emit(&[]);
        // A TLV may reach beyond the header.
        header.extend((0..tlvs).flat_map(|_| self.tlv()));
        header[srh::HDR_EXT_LEN] += tlvs as u8;
        header
    }

    /// Returns eight bytes of TLVs.
    fn tlv(&mut self) -> [u8; 8] {
        *self.random.pick(&[
            [0; 8],
            [4, 6, 0, 0, 0, 0, 0, 0],
            [4, 14, 0, 0, 0, 0, 0, 0],
            [128, 6, 1, 2, 3, 4, 5, 6],
        ])
    }

    /// Puts the frame's packet, or the frame itself, into another packet.
    pub fn wrap(&mut self, frame: &mut Vec<u8>) {
        let proto = match frame.get(12..14) {
            Some([0x86, 0xdd]) => Protocol::IPV6.0,
            Some([0x08, 0x00]) => Protocol::IPV4.0,
            _ => return,
        };
        let (mut next, from) = if self.random.one_in(6) {
            (Protocol::ETHERNET.0, 0)
        } else {
            (proto, 14)
        };
        let mut payload = frame[from..].to_vec();
        if !self.random.one_in(3) {
            let (kind, mut header) = self.extension(next, true);
            header.extend(payload);
            (next, payload) = (kind, header);
        }
        frame.truncate(12);
        frame.extend([0x86, 0xdd]);
        frame.extend(self.ipv6_around(next, &payload));
    }

    /// Puts an extension header behind one of the frame's IPv6 or extension headers.
    pub fn insert(&mut self, frame: &mut Vec<u8>) {
        let all = headers(frame);
        let places: Vec<&Header> = all
            .iter()
            .filter(|it| !matches!(it.kind, Kind::Ethernet | Kind::Ipv4))
            .collect();
        if places.is_empty() {
            return;
        }
        let place = *self.random.pick(&places);
        let first = place.kind == Kind::Ipv6;
        let announces = place.at + if first { 6 } else { 0 };
        let (kind, header) = self.extension(frame[announces], first);
        frame[announces] = kind;
        let behind = place.at + place.length;
        frame.splice(behind..behind, header);
    }

    /// Replaces an address or a segment by a known address.
    pub fn redirect(&mut self, frame: &mut [u8]) {
        let mut places = Vec::new();
        for header in headers(frame) {
            match header.kind {
                Kind::Ipv6 => places.push((header.at + 24, true)),
                Kind::Ipv4 => places.extend([(header.at + 12, false), (header.at + 16, false)]),
                Kind::Routing => {
                    let segments = (header.at + 8..header.at + header.length).step_by(16);
                    let whole = segments.filter(|at| at + 16 <= header.at + header.length);
                    places.extend(whole.map(|at| (at, true)));
                }
                Kind::Ethernet | Kind::Options => {}
            }
        }
        if places.is_empty() {
            return;
        }
        match *self.random.pick(&places) {
            (at, true) => {
                let address = self.address6();
                frame[at..at + 16].copy_from_slice(&address);
            }
            (at, false) => {
                let address = self.address4();
                frame[at..at + 4].copy_from_slice(&address);
            }
        }
    }

    /// Changes one of the fields that affect the verdict: hop limit, ECN, Segments Left, flags,
    /// Next Header.
    pub fn tweak(&mut self, frame: &mut [u8]) {
        let all = headers(frame);
        if all.is_empty() {
            return;
        }
        let header = *self.random.pick(&all);
        let hop_limit = self.hop_limit();
        let bytes = &mut frame[header.at..header.at + header.length];
        match header.kind {
            Kind::Ethernet | Kind::Options => {}
            Kind::Ipv4 if self.random.one_in(2) => bytes[8] = hop_limit,
            Kind::Ipv4 => bytes[1] = self.random.byte(),
            Kind::Ipv6 => match self.random.below(4) {
                0 => bytes[7] = hop_limit,
                1 => bytes[1] ^= 0x30 & self.random.byte(),
                2 => bytes[1..4].fill(0),
                _ => bytes[6] = *self.random.pick(&[0, 4, 17, 41, 43, 44, 59, 60, 143]),
            },
            Kind::Routing => match self.random.below(4) {
                0 => bytes[0] = *self.random.pick(&[0, 4, 17, 41, 43, 44, 59, 60, 143]),
                1 => bytes[3] = self.random.below(6) as u8,
                2 => bytes[4] = self.random.below(6) as u8,
                _ => bytes[5] ^= 1 << self.random.below(8),
            },
        }
    }
}
