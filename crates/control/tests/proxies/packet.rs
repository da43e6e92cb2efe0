//! A packet on its way through the model: the steps of the draft's pseudocode.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sidestep_testkit::differential::headers::{ETHERNET, ipv4_set_checksum, proto};

use crate::flow::Flow;
use crate::headers::{
    EXT_HEADERS_MAX, class_and_label, ipv4_length, ipv6_length, is_padding, nowhere, of_frame,
    options, relayed, tlvs, u16_at,
};
use crate::model::{Answer, Cache, Drop, End, Kind, Leave, Proxy, Step};

// LIMIT: as in `sidestep show limits`.
const LEARNED_MAX: usize = 384;

/// A packet on its way.
pub struct Packet {
    /// From layer 3 on; of a frame that is on its way to a service all of it.
    pub bytes: Vec<u8>,
    /// The rest of the frame.
    pub rest: Vec<u8>,
    /// It is a frame; in front of which headers may have been put.
    pub frame: bool,
    /// A proxy processed it. The kernel has no proxy and could not forward it unmodified.
    pub proxied: bool,
    /// Where the packet from the service begins, if headers were put in front of it.
    pub carried: usize,
    /// The SRH of which a segment was used.
    pub advanced: Option<usize>,
    /// A SID has decremented the hop limit.
    pub hopped: bool,
    /// End of the headers that were only looked at, and that no further SID of this node obeys.
    pub peeked: usize,
    /// SIDs, and the way back.
    pub steps: usize,
    /// The flow label of the outer header is unspecified.
    pub label: bool,
    /// This node is the source of the headers that were put in front.
    pub sourced: bool,
}

/// An SRH that is to be processed.
pub struct Srh {
    pub at: usize,
    pub length: usize,
}

/// Where a walk along the extension headers is.
pub struct Walk {
    pub at: usize,
    pub proto: u8,
    /// A routing header was met.
    pub met: bool,
}

impl Packet {
    pub fn end(&self, end: &End, frame: &[u8]) -> Answer {
        let reason = match end {
            Drop(reason) => return Answer::Drop(reason),
            Leave(reason) => *reason,
        };
        let (local, encapsulated) = (reason == "local", self.carried > 0);
        if encapsulated && (local || reason == "neighbor") && self.sent().is_err() {
            return Answer::Drop("hop_limit");
        }
        let has_headers = self.bytes[0] >> 4 == 6 && (encapsulated || !self.frame);
        if local
            && has_headers
            && let Some(reason) = relayed(&self.with_rest(0))
        {
            return Answer::Drop(reason);
        }
        if !self.proxied {
            return Answer::Kernel(reason, None, false);
        }
        match reason {
            // The kernel gets it as the proxies have made it.
            "local" | "neighbor" if encapsulated || !self.frame => {
                let mut bytes = self.bytes.clone();
                if encapsulated {
                    bytes = self.sent().expect("the hop limit was checked");
                }
                // The kernel decrements the hop limit of a packet that it forwards.
                let more = !local && (self.hopped || encapsulated);
                bytes[7] = bytes[7].saturating_add(u8::from(more));
                let frame = [&frame[..12], &self.ethertype(), &bytes].concat();
                Answer::Kernel("rewritten", Some(frame), self.label)
            }
            "neighbor" => Answer::Drop("no_neighbor"),
            "hop_limit_exceeded" => Answer::Drop("hop_limit"),
            "packet_too_big" => Answer::Drop("too_big"),
            "route_miss" => Answer::Drop("no_route"),
            _ => Answer::Drop("kernel_only"),
        }
    }

    /// RFC 2473 7, RFC 791 3.2: the node may fragment this packet. Only the source of an IPv6 header
    /// may fragment behind it (RFC 8200 4.5).
    pub fn may_be_fragmented(&self) -> bool {
        let inner = &self.bytes[self.carried..];
        let in_tunnel = self.carried > 0;
        !self.frame
            && self.proxied
            && (!in_tunnel || self.sourced)
            && match inner[0] >> 4 {
                4 => inner[6] & 0x40 == 0,
                _ => in_tunnel && inner.len() <= 1280,
            }
    }

    pub fn destination(&self) -> IpAddr {
        let field = |at: usize, length: usize| self.bytes[at..at + length].to_vec();
        if self.bytes[0] >> 4 == 6 {
            let octets: [u8; 16] = field(24, 16).try_into().expect("16 bytes");
            Ipv6Addr::from(octets).into()
        } else {
            let octets: [u8; 4] = field(16, 4).try_into().expect("4 bytes");
            Ipv4Addr::from(octets).into()
        }
    }

    pub fn hop_limit_at(&self) -> usize {
        let v6 = self.bytes[self.carried] >> 4 == 6;
        self.carried + if v6 { 7 } else { 8 }
    }

    /// The packet as it is sent, with the hop limit of the packet inside decremented.
    pub fn sent(&self) -> Step<Vec<u8>> {
        let (mut bytes, at) = (self.bytes.clone(), self.carried);
        if self.frame || self.hopped {
            return Ok(bytes);
        }
        self.hop_limit()?;
        bytes[self.hop_limit_at()] -= 1;
        if bytes[at] >> 4 == 4 {
            ipv4_set_checksum(&mut bytes[at..]);
        }
        Ok(bytes)
    }

    pub fn ethertype(&self) -> [u8; 2] {
        if self.bytes[0] >> 4 == 6 {
            [0x86, 0xdd]
        } else {
            [8, 0]
        }
    }

    /// S05. If (IPv6 Hop Limit <= 1) { S06. Time Exceeded }
    pub fn hop_limit(&self) -> Step<()> {
        let limit = self.bytes[self.hop_limit_at()];
        if limit <= 1 {
            Err(Leave("hop_limit_exceeded"))
        } else {
            Ok(())
        }
    }

    /// RFC 8200 4.3: for every router, right behind the IPv6 header.
    pub fn hop_by_hop(&self) -> Step<()> {
        let packet = &self.bytes[self.carried..];
        if !self.proxied && !self.frame && packet[0] >> 4 == 4 && packet[0] & 15 > 5 {
            return Err(Leave("ipv4_options"));
        }
        if self.frame || packet[0] >> 4 != 6 || packet[6] != proto::HOP_BY_HOP {
            return Ok(());
        }
        let units = *packet.get(41).ok_or(Drop("ext_header"))?;
        let end = 40 + (usize::from(units) + 1) * 8;
        let header = packet.get(40..end).ok_or(Drop("ext_header"))?;
        if self.proxied {
            options(header)
        } else if is_padding(header) {
            Ok(())
        } else {
            Err(Leave("hop_by_hop"))
        }
    }

    /// From there on, with what follows in the frame.
    pub fn with_rest(&self, at: usize) -> Vec<u8> {
        [&self.bytes[at..], &self.rest].concat()
    }

    pub fn start(&self) -> Walk {
        Walk {
            at: 40,
            proto: self.bytes[6],
            met: false,
        }
    }

    /// RFC 8200 4, to an SRH with segments left, or to the upper-layer header. `peek`: this node is
    /// not the destination.
    pub fn walk(&self, walk: &mut Walk, peek: bool) -> Step<Option<Srh>> {
        const WALKED: [u8; 4] = [
            proto::ROUTING,
            proto::HOP_BY_HOP,
            proto::DESTINATION_OPTIONS,
            proto::FRAGMENT,
        ];
        for _ in 0..EXT_HEADERS_MAX {
            let (at, routing) = (walk.at, walk.proto == proto::ROUTING);
            if !WALKED.contains(&walk.proto) {
                return Ok(None);
            }
            let fixed = self.bytes.get(at..at + 8).ok_or(Drop("ext_header"))?;
            let mut length = (usize::from(fixed[1]) + 1) * 8;
            if walk.proto == proto::FRAGMENT {
                // RFC 8200 4.5: the Fragment header of a whole packet has offset 0 and M 0.
                if u16_at(fixed, 2) & 0xfff9 != 0 {
                    return Ok(None);
                }
                length = 8;
            }
            let cut = if routing && fixed[2] == 4 {
                "srh_length"
            } else {
                "ext_header"
            };
            let header = self.bytes.get(at..at + length).ok_or(Drop(cut))?;
            walk.met |= routing;
            match (walk.proto, header[2], header[3]) {
                (proto::ROUTING, _, 0) => {}
                (proto::ROUTING, 4, _) => return Ok(Some(Srh { at, length })),
                // RFC 8200 4.4.
                (proto::ROUTING, ..) => return Err(Leave("routing_header")),
                (proto::HOP_BY_HOP, ..) if at == 40 => options(header)?,
                _ if peek || at < self.peeked => {}
                (proto::HOP_BY_HOP, ..) => return Err(Drop("hop_by_hop_order")),
                (proto::DESTINATION_OPTIONS, ..) => options(header)?,
                _ => {}
            }
            (walk.proto, walk.at) = (header[0], at + length);
        }
        if WALKED.contains(&walk.proto) {
            return Err(Drop("too_many_headers"));
        }
        Ok(None)
    }

    /// S08 to S10: the SRH, and RFC 8754 2.1.
    pub fn checked(&self, srh: &Srh) -> Step<()> {
        let header = &self.bytes[srh.at..srh.at + srh.length];
        let (segments_left, last_entry) = (header[3], usize::from(header[4]));
        // S08. max_last_entry = ( Hdr Ext Len / 2 ) - 1
        let end = 8 + 16 * (last_entry + 1);
        // S09. If ((Last Entry > max_last_entry) or (Segments Left > (Last Entry+1))) {
        if end > srh.length {
            return Err(Drop("srh_length"));
        }
        if usize::from(segments_left) > last_entry + 1 {
            return Err(Drop("srh_segments_left"));
        }
        // A second SRH at one node.
        if self.advanced.is_some_and(|at| at != srh.at) {
            return Err(Leave("unsupported"));
        }
        tlvs(&header[end..])
    }

    pub fn segment(&self, srh: &Srh, index: u8) -> Vec<u8> {
        let at = srh.at + 8 + 16 * usize::from(index);
        self.bytes[at..at + 16].to_vec()
    }

    /// S05 to S14, for an SRH with segments left.
    pub fn use_segment(&mut self, srh: &Srh) -> Step<()> {
        self.hop_limit()?; // S05
        self.checked(srh)?; // S08 to S10
        self.advanced = Some(srh.at);
        // S13. Decrement Segments Left by 1
        self.bytes[srh.at + 3] -= 1;
        self.bytes[7] -= 1; // S12
        self.hopped = true;
        // S14. Update IPv6 DA with Segment List[Segments Left]
        self.go_to(&self.segment(srh, self.bytes[srh.at + 3]))
    }

    /// Makes a segment the destination. RFC 4291 2.5 and 2.7: some addresses are never forwarded.
    pub fn go_to(&mut self, segment: &[u8]) -> Step<()> {
        let octets: [u8; 16] = segment.try_into().expect("16 bytes");
        let address = Ipv6Addr::from(octets);
        if address.is_multicast() || address.is_unicast_link_local() || nowhere(address) {
            return Err(Drop("segment_address"));
        }
        self.bytes[24..40].copy_from_slice(segment);
        Ok(())
    }

    /// 6.1.1.2, 6.1.1.3 (End.AS) and 6.2.1 (End.AD), S01 to S19. False: to be submitted to the lookup again (S16).
    pub fn unwrap(
        &mut self,
        proxy: &mut Proxy,
        flows: &mut BTreeMap<Flow, Cache>,
        now: u64,
    ) -> Step<bool> {
        let mut walk = self.start();
        // S01. When an SRH is processed {
        let srh = self.walk(&mut walk, false)?;
        if let Some(srh) = &srh {
            self.use_segment(srh)?;
            (walk.proto, walk.at) = (self.bytes[srh.at], srh.at + srh.length);
            if let Some(another) = self.walk(&mut walk, true)? {
                self.checked(&another)?;
            }
        } else if matches!(proxy.kind, Kind::Dynamic(..) | Kind::ByFlow(_)) {
            // S02, and upper-layer: as RFC 8986 4.1.1.
            return Err(Drop(walk.last_segment()));
        }
        // S15. If (Upper-layer header != 4, 41) {
        if walk.proto != proxy.inner {
            // S16. Resubmit; as the last segment, upper-layer S04 and S05: RFC 8986 4.1.1.
            return if srh.is_some() {
                Ok(false)
            } else {
                Err(Drop(walk.refused("upper_layer")))
            };
        }
        // 6.2.1 S17.1. If the headers are not those of the cache, update it.
        if matches!(proxy.kind, Kind::Dynamic(..) | Kind::ByFlow(_)) {
            if walk.at > LEARNED_MAX {
                return Err(Drop("learned_length"));
            }
            let mut headers = self.bytes[..walk.at].to_vec();
            headers[..6].copy_from_slice(&[0x60, 0, 0, 0, 0, 0]);
            let updates = |cache: Option<&Cache>, age: u64| match cache {
                Some((known, then)) => *known != headers && now - *then >= age * 1_000_000_000,
                None => true,
            };
            match &mut proxy.kind {
                Kind::Dynamic(age, cache) if updates(cache.as_ref(), *age) => {
                    *cache = Some((headers, now));
                }
                Kind::ByFlow(age) => {
                    let flow = Flow::of(&self.with_rest(walk.at), proxy.inner);
                    if let Some(flow) = flow.filter(|flow| updates(flows.get(flow), *age)) {
                        flows.insert(flow, (headers, now));
                    }
                }
                _ => {}
            }
        }
        // S18. Remove the outer IPv6 header and its extension headers; S19. forward by IFACE-OUT.
        self.decapsulate(walk.at, proxy.inner)?;
        Ok(true)
    }

    /// With the headers that were put in front, if there are any: it has had its hop (6.1.1, inbound S03).
    pub fn arrive_again(&mut self) {
        if self.carried == 0 {
            return;
        }
        if !self.frame {
            let at = self.hop_limit_at();
            self.bytes[at] -= 1;
            if self.bytes[self.carried] >> 4 == 4 {
                ipv4_set_checksum(&mut self.bytes[self.carried..]);
            }
        }
        (self.carried, self.advanced) = (0, None);
        (self.hopped, self.peeked) = (false, 0);
        (self.frame, self.rest) = (false, Vec::new());
    }

    /// The packet inside, and RFC 6040 4.2.
    pub fn decapsulate(&mut self, at: usize, inner: u8) -> Step<()> {
        (self.label, self.hopped, self.peeked) = (false, false, 0);
        let outer_ecn = self.bytes[1] >> 4 & 3;
        let rest = self.bytes[at..].to_vec();
        if inner == proto::ETHERNET {
            if rest.len() < ETHERNET {
                return Err(Drop("inner_header"));
            }
            (self.bytes, self.frame) = (rest, true);
            return Ok(());
        }
        let length = if inner == proto::IPV6 {
            ipv6_length(&rest, ["inner_header"; 2])?
        } else {
            ipv4_length(&rest, ["inner_header"; 2])?
        };
        self.bytes = rest[..length].to_vec();
        let shift = if inner == proto::IPV6 { 4 } else { 0 };
        let ecn = self.bytes[1] >> shift & 3;
        let becomes = match (ecn, outer_ecn) {
            (0, 3) => return Err(Drop("ecn")),
            (_, 3) => 3,
            (2, 1) => 1,
            _ => ecn,
        };
        self.bytes[1] = self.bytes[1] & !(3 << shift) | becomes << shift;
        if inner == proto::IPV4 {
            ipv4_set_checksum(&mut self.bytes);
        }
        Ok(())
    }

    /// 6.4.1, S01 to S15.
    pub fn masquerade(&mut self) -> Step<()> {
        let mut walk = self.start();
        // S02, S03: nothing is left.
        let srh = self
            .walk(&mut walk, false)?
            .ok_or_else(|| Drop(walk.last_segment()))?;
        self.use_segment(&srh)?;
        // S14. Update the IPv6 DA with Segment List[0]
        self.go_to(&self.segment(&srh, 0))
    }

    /// 6.4.1, de-masquerading, and 6.4.2 with NAT.
    pub fn de_masquerade(&mut self, nat: bool) -> Step<()> {
        // S01. A packet without segments left is the service's own.
        let Some(srh) = self.walk(&mut self.start(), true)? else {
            self.proxied = false;
            return Ok(());
        };
        self.peeked = srh.at;
        self.hop_limit()?; // S02
        self.checked(&srh)?;
        let (segments_left, last_entry) = (self.bytes[srh.at + 3], self.bytes[srh.at + 4]);
        // S07. If (Segments Left > Last Entry) {
        if segments_left > last_entry {
            return Err(Drop("srh_segments_left"));
        }
        // 6.4.2: Segment List[0] becomes the DA that the service wrote.
        if nat {
            let destination = self.bytes[24..40].to_vec();
            self.bytes[srh.at + 8..srh.at + 24].copy_from_slice(&destination);
        }
        // S10. Update the IPv6 DA with Segment List[Segments Left]
        self.go_to(&self.segment(&srh, segments_left))
    }

    /// 6.1.1.2, 6.1.1.3 and 6.2.1, inbound policy S01 to S05.
    pub fn inbound(&mut self, headers: Option<&Vec<u8>>) -> Step<()> {
        let headers = headers.ok_or(Drop("not_learned"))?; // 6.2.1 S02
        if !self.frame {
            self.hop_limit()?; // S03
        }
        let class_and_label = if self.frame {
            of_frame(&self.bytes)
        } else {
            class_and_label(&self.bytes)
        };
        let payload = (headers.len() - 40 + self.bytes.len()) as u16;
        let mut outer = headers.clone();
        outer[..4].copy_from_slice(&(6 << 28 | class_and_label).to_be_bytes());
        outer[4..6].copy_from_slice(&payload.to_be_bytes());
        // RFC 6437: the inner packet's label, if it has one.
        self.label = class_and_label.trailing_zeros() >= 20;
        self.carried = outer.len();
        self.bytes = [outer, std::mem::take(&mut self.bytes)].concat();
        Ok(())
    }
}

impl Walk {
    /// RFC 8986 4.1.1: of a SID that is not the last one, met as the last one.
    pub fn last_segment(&self) -> &'static str {
        self.refused(if self.met {
            "segments_left_zero"
        } else {
            "no_srh"
        })
    }

    /// RFC 8200 4.5 and RFC 4302 3.4.2: an extension header in the place of an upper-layer header.
    pub fn refused(&self, otherwise: &'static str) -> &'static str {
        match self.proto {
            proto::FRAGMENT => "reassembly",
            50 | 51 => "security_association",
            _ => otherwise,
        }
    }
}
