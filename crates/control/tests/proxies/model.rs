//! A node with SR proxies, after the pseudocode of draft-ietf-spring-srv6-service-programming-00 and the RFCs that it stands
//! on. It is slow, works on bytes and knows nothing of the packet path.
//!
//! Where the draft sends an error message, the model drops for that reason. Each SID decrements the hop limit (S12); a
//! packet without a SID is decremented when it leaves.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sidestep_testkit::differential::headers::{
    ETHERNET, ipv4_set_checksum, ones_complement_sum, proto,
};

use crate::flow::Flow;

/// Result for a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Sent by this port. `label`: position of an unspecified flow label.
    Forward {
        port: usize,
        frame: Vec<u8>,
        label: bool,
    },
    Drop(&'static str),
    /// The kernel gets it; changed to this, with such a label, or as it was.
    Kernel(&'static str, Option<Vec<u8>>, bool),
}

#[derive(Clone, Debug)]
pub struct Port {
    pub mac: [u8; 6],
    /// Adjacency of the neighbor with these addresses.
    pub peer_mac: [u8; 6],
    pub peers: Vec<IpAddr>,
    /// Each with the bytes of its prefix.
    pub own: Vec<(IpAddr, usize)>,
    /// Bytes of layer 3.
    pub mtu: usize,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// End.AS: headers for packets from the service, without fields that differ per packet.
    Static(Vec<u8>),
    /// End.AD: seconds between two updates; the headers, and when they were learned.
    Dynamic(u64, Option<Cache>),
    /// End.AD with `flows`: seconds between two updates of one flow. Learned headers belong to the
    /// port.
    ByFlow(u64),
    /// End.AM; with flavor NAT.
    Masquerading(bool),
}

/// Headers, and when they were learned.
pub type Cache = (Vec<u8>, u64);

#[derive(Clone, Debug)]
pub struct Proxy {
    pub sid: Ipv6Addr,
    /// The upper-layer header of the packets that the service takes.
    pub inner: u8,
    /// Indices of ports.
    pub iface_out: usize,
    pub iface_in: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub ports: Vec<Port>,
    pub proxies: Vec<Proxy>,
    /// Learned headers of the proxies with `flows`, which share one port.
    pub flows: BTreeMap<Flow, Cache>,
    /// Prefixes of whole bytes, and their ports.
    pub routes: Vec<(Vec<u8>, usize)>,
    /// Nanoseconds.
    pub now: u64,
}

/* LIMIT: as `sidestep show limits` has them. */
const LEARNED_MAX: usize = 384;
const STEPS_MAX: usize = 4;
const EXT_HEADERS_MAX: usize = 6;
const TLVS_MAX: usize = 8;
const OPTIONS_MAX: usize = 16;

/// Ends a packet's way.
enum End {
    Drop(&'static str),
    /// The kernel does the rest.
    Leave(&'static str),
}

use End::{Drop, Leave};

type Step<T> = Result<T, End>;

/// A packet on its way.
struct Packet {
    /// From layer 3 on; of a frame that is on its way to a service all of it.
    bytes: Vec<u8>,
    /// The rest of the frame.
    rest: Vec<u8>,
    /// It is a frame; in front of which headers may have been put.
    frame: bool,
    /// A proxy processed it. The kernel has no proxy and could not forward it unmodified.
    proxied: bool,
    /// Where the packet from the service begins, if headers were put in front of it.
    carried: usize,
    /// The SRH of which a segment was used.
    advanced: Option<usize>,
    /// A SID has decremented the hop limit.
    hopped: bool,
    /// End of the headers that were only looked at, and that no further SID of this node obeys.
    peeked: usize,
    /// SIDs, and the way back.
    steps: usize,
    /// The flow label of the outer header is unspecified.
    label: bool,
}

/// An SRH that is to be processed.
struct Srh {
    at: usize,
    length: usize,
}

/// Where a walk along the extension headers is.
struct Walk {
    at: usize,
    proto: u8,
    /// A routing header was met.
    met: bool,
}

impl Model {
    /// A frame comes in by a port.
    pub fn receive(&mut self, port: usize, frame: &[u8]) -> Answer {
        let is_frame = self.sent_frame(port, frame);
        let classified = if is_frame {
            Ok(frame.to_vec())
        } else {
            self.classify(port, frame)
        };
        let bytes = match classified {
            Ok(bytes) => bytes,
            Err(Drop(reason)) => return Answer::Drop(reason),
            Err(Leave(reason)) if self.strays(port, frame, reason) => {
                return Answer::Drop("kernel_only");
            }
            Err(Leave(reason)) => {
                let drop = self.refuses(frame, reason);
                return drop.map_or(Answer::Kernel(reason, None, false), Answer::Drop);
            }
        };
        let rest = if is_frame {
            frame.len()
        } else {
            ETHERNET + bytes.len()
        };
        let mut packet = Packet {
            bytes,
            rest: frame[rest..].to_vec(),
            frame: is_frame,
            proxied: false,
            carried: 0,
            advanced: None,
            hopped: false,
            peeked: 0,
            steps: 0,
            label: false,
        };
        let done = self.process(port, &mut packet);
        done.and_then(|egress| self.leave(egress, &packet))
            .unwrap_or_else(|end| packet.end(&end, frame))
    }

    /// 6.1.1.1: of the frames of IFACE-IN those that are not for its address; here also group addresses, save those that no
    /// bridge forwards.
    fn sent_frame(&self, port: usize, frame: &[u8]) -> bool {
        let to = &frame[..6];
        let reserved = to[..5] == [0x01, 0x80, 0xc2, 0, 0] && to[5] < 16;
        let mut proxies = self.proxies.iter();
        let takes = proxies.any(|it| it.iface_in == port && it.inner == proto::ETHERNET);
        takes && to != self.ports[port].mac && !reserved
    }

    /// RFC 8200 3, RFC 791 3.1.
    fn classify(&self, port: usize, frame: &[u8]) -> Step<Vec<u8>> {
        let (to, rest) = (&frame[..6], &frame[14..]);
        if to != self.ports[port].mac {
            let group = to[0] & 1 == 1;
            return Err(Leave(if group { "multicast" } else { "other_host" }));
        }
        let length = match u16_at(frame, 12) {
            0x86dd => ipv6_length(rest, ["ipv6_header", "ipv6_length"])?,
            0x0800 => ipv4_length(rest, ["ipv4_header", "ipv4_checksum"])?,
            0x8100 | 0x88a8 => return Err(Leave("vlan")),
            _ => return Err(Leave("not_ip")),
        };
        Ok(rest[..length].to_vec())
    }

    /// The reason why a packet with an address that is never forwarded is dropped, if it is: at a
    /// SID, or at a local address with an SRH. Linux forwards some others (RFC 4291 2.5).
    fn refuses(&self, frame: &[u8], reason: &str) -> Option<&'static str> {
        if !["link_local", "bad_source"].contains(&reason) || frame[14] >> 4 != 6 {
            return None;
        }
        let octets: [u8; 16] = frame[38..54].try_into().expect("16 bytes");
        let to = Ipv6Addr::from(octets);
        if to.is_unicast_link_local() {
            return relayed(&frame[14..]);
        }
        if self.proxies.iter().any(|proxy| proxy.sid == to) {
            return Some("bad_address");
        }
        match self.egress(to.into()) {
            Ok(_) if reason == "bad_source" => Some("bad_address"),
            Err(Leave("local")) => relayed(&frame[14..]),
            _ => None,
        }
    }

    /// A packet of IFACE-IN that is not parsed here, and that the kernel, without proxies, would
    /// forward.
    fn strays(&self, port: usize, frame: &[u8], reason: &str) -> bool {
        if !["ipv4_options", "jumbogram"].contains(&reason) {
            return false;
        }
        let (destination, inner) = if reason == "jumbogram" {
            let octets: [u8; 16] = frame[38..54].try_into().expect("16 bytes");
            (IpAddr::from(octets), proto::IPV6)
        } else {
            let octets: [u8; 4] = frame[30..34].try_into().expect("4 bytes");
            (IpAddr::from(octets), proto::IPV4)
        };
        let of_the_link = match destination {
            IpAddr::V6(to) => to.is_multicast() || to.is_unicast_link_local(),
            IpAddr::V4(to) => to.octets()[0] >= 224,
        };
        let own = &self.ports[port].own;
        let mut proxies = self.proxies.iter();
        !of_the_link
            && !own.iter().any(|(own, _)| *own == destination)
            && proxies.any(|proxy| proxy.iface_in == port && proxy.inner == inner)
    }

    /// The port that the packet leaves by.
    fn process(&mut self, port: usize, packet: &mut Packet) -> Step<usize> {
        // 6.1.1.2, 6.2.1, 6.4.1: of the packets of IFACE-IN those that are not for an address of IFACE-IN.
        let for_iface_in = !packet.frame && {
            let destination = packet.destination();
            let mut own = self.ports[port].own.iter();
            own.any(|(own, _)| *own == destination)
        };
        let inner = if packet.frame {
            proto::ETHERNET
        } else if packet.bytes[0] >> 4 == 6 {
            proto::IPV6
        } else {
            proto::IPV4
        };
        let of_port = |proxy: &&Proxy| proxy.iface_in == port && proxy.inner == inner;
        if let Some(proxy) = self.proxies.iter().find(of_port).filter(|_| !for_iface_in) {
            packet.proxied = true;
            packet.steps = 1;
            match &proxy.kind {
                Kind::Masquerading(nat) => packet.de_masquerade(*nat)?,
                // 6.1.1.2, 6.1.1.3 inbound S01 to S05.
                Kind::Static(headers) => packet.inbound(Some(headers))?,
                // 6.2.1 inbound S01 to S05.
                Kind::Dynamic(_, cache) => {
                    packet.inbound(cache.as_ref().map(|(headers, _)| headers))?;
                }
                Kind::ByFlow(_) => {
                    let bytes = packet.with_rest(0);
                    let learned = |flow: Option<Flow>| self.flows.get(&flow?);
                    let learned = learned(Flow::of(&bytes, inner))
                        .or_else(|| learned(Flow::quoted(&bytes, inner)));
                    packet.inbound(learned.map(|(headers, _)| headers))?;
                }
            }
        }
        self.route(packet)
    }

    /// Repeats lookups and SID behaviors until a verdict.
    fn route(&mut self, packet: &mut Packet) -> Step<usize> {
        loop {
            let destination = packet.destination();
            let found = self
                .proxies
                .iter()
                .position(|proxy| IpAddr::V6(proxy.sid) == destination);
            let Some(sid) = found else {
                return self.plain(packet, destination);
            };
            packet.proxied = true;
            if packet.steps == STEPS_MAX {
                return Err(Drop("sid_loop"));
            }
            packet.steps += 1;
            // The headers pushed by a local proxy lead to a local SID: the packet is processed like
            // a received one.
            packet.arrive_again();
            let (now, proxy) = (self.now, &mut self.proxies[sid]);
            let to_service = match proxy.kind {
                Kind::Masquerading(_) => packet.masquerade().map(|()| true)?,
                _ => packet.unwrap(proxy, &mut self.flows, now)?,
            };
            if to_service {
                return Ok(proxy.iface_out);
            }
        }
    }

    /// A route that is no SID's.
    fn plain(&self, packet: &Packet, destination: IpAddr) -> Step<usize> {
        let port = self.egress(destination)?;
        packet.hop_by_hop()?;
        Ok(port)
    }

    /// The port of a route that is no SID's.
    fn egress(&self, destination: IpAddr) -> Step<usize> {
        let octets = |address: IpAddr| match address {
            IpAddr::V6(address) => address.octets().to_vec(),
            IpAddr::V4(address) => address.octets().to_vec(),
        };
        let to = octets(destination);
        let mut connected = None;
        for (index, port) in self.ports.iter().enumerate() {
            if port.peers.contains(&destination) {
                connected = Some(index);
            }
            for (own, prefix) in &port.own {
                if *own == destination {
                    return Err(Leave("local"));
                }
                let own = octets(*own);
                if own.len() != to.len() || own[..*prefix] != to[..*prefix] || connected.is_some() {
                    continue;
                }
                // RFC 4291 2.6.1: the Subnet-Router anycast address.
                let anycast = destination.is_ipv6() && to[*prefix..].iter().all(|byte| *byte == 0);
                return Err(Leave(if anycast { "local" } else { "neighbor" }));
            }
        }
        // Prefixes of IPv4 and IPv6 do not begin alike here.
        let routed = self
            .routes
            .iter()
            .find(|(prefix, _)| to.starts_with(prefix));
        let port = connected.or(routed.map(|(_, port)| *port));
        port.ok_or(Leave("route_miss"))
    }

    /// RFC 8200 3 and 5, and the link.
    fn leave(&self, egress: usize, packet: &Packet) -> Step<Answer> {
        let (port, at) = (&self.ports[egress], packet.carried);
        let mut bytes = packet.bytes.clone();
        let is_bare = packet.frame && at == 0;
        let hops = !packet.frame && !packet.hopped;
        if hops {
            packet.hop_limit()?;
        }
        if bytes.len() - if is_bare { ETHERNET } else { 0 } > port.mtu {
            return Err(Leave("packet_too_big"));
        }
        if is_bare {
            return Ok(Answer::Forward {
                port: egress,
                frame: bytes,
                label: false,
            });
        }
        if hops {
            bytes[packet.hop_limit_at()] -= 1;
            if bytes[at] >> 4 == 4 {
                ipv4_set_checksum(&mut bytes[at..]);
            }
        }
        let ethertype = if bytes[0] >> 4 == 6 {
            [0x86, 0xdd]
        } else {
            [8, 0]
        };
        let label = packet.label;
        Ok(Answer::Forward {
            port: egress,
            frame: [&port.peer_mac[..], &port.mac, &ethertype, &bytes].concat(),
            label,
        })
    }
}

impl Packet {
    fn end(&self, end: &End, frame: &[u8]) -> Answer {
        let reason = match end {
            Drop(reason) => return Answer::Drop(reason),
            Leave("local") if self.carried == 0 && self.bytes[0] >> 4 == 6 => {
                if let Some(reason) = relayed(&self.with_rest(0)) {
                    return Answer::Drop(reason);
                }
                "local"
            }
            Leave(reason) => reason,
        };
        if !self.proxied {
            return Answer::Kernel(reason, None, false);
        }
        match reason {
            // The kernel gets it as the proxies have made it.
            "local" | "neighbor" if self.carried == 0 => {
                let ethertype = if self.bytes[0] >> 4 == 6 {
                    [0x86, 0xdd]
                } else {
                    [8, 0]
                };
                let mut bytes = self.bytes.clone();
                // The kernel decrements the hop limit of a packet that it forwards.
                bytes[7] += u8::from(self.hopped && reason == "neighbor");
                let frame = [&frame[..12], &ethertype, &bytes].concat();
                Answer::Kernel("decapsulated", Some(frame), self.label)
            }
            "neighbor" => Answer::Drop("no_neighbor"),
            "hop_limit_exceeded" => Answer::Drop("hop_limit"),
            "packet_too_big" => Answer::Drop("too_big"),
            "route_miss" => Answer::Drop("no_route"),
            _ => Answer::Drop("kernel_only"),
        }
    }

    fn destination(&self) -> IpAddr {
        let field = |at: usize, length: usize| self.bytes[at..at + length].to_vec();
        if self.bytes[0] >> 4 == 6 {
            let octets: [u8; 16] = field(24, 16).try_into().expect("16 bytes");
            Ipv6Addr::from(octets).into()
        } else {
            let octets: [u8; 4] = field(16, 4).try_into().expect("4 bytes");
            Ipv4Addr::from(octets).into()
        }
    }

    fn hop_limit_at(&self) -> usize {
        let v6 = self.bytes[self.carried] >> 4 == 6;
        self.carried + if v6 { 7 } else { 8 }
    }

    /// S05. If (IPv6 Hop Limit <= 1) { S06. Time Exceeded }
    fn hop_limit(&self) -> Step<()> {
        let limit = self.bytes[self.hop_limit_at()];
        if limit <= 1 {
            Err(Leave("hop_limit_exceeded"))
        } else {
            Ok(())
        }
    }

    /// RFC 8200 4.3: for every router, right behind the IPv6 header.
    fn hop_by_hop(&self) -> Step<()> {
        let packet = &self.bytes[self.carried..];
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
    fn with_rest(&self, at: usize) -> Vec<u8> {
        [&self.bytes[at..], &self.rest].concat()
    }

    fn start(&self) -> Walk {
        Walk {
            at: 40,
            proto: self.bytes[6],
            met: false,
        }
    }

    /// RFC 8200 4, to an SRH with segments left, or to the upper-layer header. `peek`: this node is
    /// not the destination.
    fn walk(&self, walk: &mut Walk, peek: bool) -> Step<Option<Srh>> {
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
        Err(Leave("ext_chain"))
    }

    /// S08 to S10: the SRH, and RFC 8754 2.1.
    fn checked(&self, srh: &Srh) -> Step<()> {
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

    fn segment(&self, srh: &Srh, index: u8) -> Vec<u8> {
        let at = srh.at + 8 + 16 * usize::from(index);
        self.bytes[at..at + 16].to_vec()
    }

    /// S05 to S14, for an SRH with segments left.
    fn use_segment(&mut self, srh: &Srh) -> Step<()> {
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
    fn go_to(&mut self, segment: &[u8]) -> Step<()> {
        let octets: [u8; 16] = segment.try_into().expect("16 bytes");
        let address = Ipv6Addr::from(octets);
        if address.is_multicast() || address.is_unicast_link_local() || nowhere(address) {
            return Err(Drop("segment_address"));
        }
        self.bytes[24..40].copy_from_slice(segment);
        Ok(())
    }

    /// 6.1.1.2, 6.1.1.3 (End.AS) and 6.2.1 (End.AD), S01 to S19. False: to be submitted to the lookup again (S16).
    fn unwrap(
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
    fn arrive_again(&mut self) {
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
    fn decapsulate(&mut self, at: usize, inner: u8) -> Step<()> {
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
    fn masquerade(&mut self) -> Step<()> {
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
    fn de_masquerade(&mut self, nat: bool) -> Step<()> {
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
    fn inbound(&mut self, headers: Option<&Vec<u8>>) -> Step<()> {
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
    fn last_segment(&self) -> &'static str {
        self.refused(if self.met {
            "segments_left_zero"
        } else {
            "no_srh"
        })
    }

    /// RFC 8200 4.5 and RFC 4302 3.4.2: an extension header in the place of an upper-layer header.
    fn refused(&self, otherwise: &'static str) -> &'static str {
        match self.proto {
            proto::FRAGMENT => "reassembly",
            50 | 51 => "security_association",
            _ => otherwise,
        }
    }
}

/// RFC 8754 4.3.2: the reason why a local address that is no SID drops this IPv6 packet, if it does.
fn relayed(packet: &[u8]) -> Option<&'static str> {
    let (mut proto, mut at) = (packet[6], 40);
    for _ in 0..EXT_HEADERS_MAX {
        if !matches!(
            proto,
            proto::ROUTING | proto::HOP_BY_HOP | proto::DESTINATION_OPTIONS | proto::FRAGMENT
        ) {
            return None;
        }
        let Some(header) = packet.get(at..at + 8) else {
            break;
        };
        match (proto, header[2], header[3]) {
            (proto::FRAGMENT, ..) if u16_at(header, 2) & 0xfff8 != 0 => return None,
            (proto::FRAGMENT, ..) => {
                (proto, at) = (header[0], at + 8);
                continue;
            }
            (proto::ROUTING, _, 0) => {}
            (proto::ROUTING, 4, _) => return Some("not_a_sid"),
            (proto::ROUTING, ..) => return None,
            _ => {}
        }
        (proto, at) = (header[0], at + (usize::from(header[1]) + 1) * 8);
    }
    Some("ext_header")
}

/// RFC 2474; the label of IPv4 is the node's to choose.
fn class_and_label(packet: &[u8]) -> u32 {
    let first = u32_at(packet, 0);
    match first >> 28 {
        6 => first & 0xfff_ffff,
        _ => (first >> 16 & 0xff) << 20,
    }
}

/// Traffic class of the packet in a frame, without ECN, which would be lost there. Non-IP frames
/// have none.
fn of_frame(frame: &[u8]) -> u32 {
    let packet = &frame[ETHERNET..];
    let is_packet = match u16_at(frame, 12) {
        0x86dd => packet.len() >= 40 && packet[0] >> 4 == 6,
        0x0800 => packet.len() >= 20 && packet[0] >> 4 == 4,
        _ => false,
    };
    if is_packet {
        class_and_label(packet) & !(3 << 20)
    } else {
        0
    }
}

/// RFC 8200 4.2: only `Pad1` and `PadN`, up to the end of the header.
fn is_padding(header: &[u8]) -> bool {
    let mut at = 2;
    for _ in 0..OPTIONS_MAX {
        at += match header.get(at..) {
            Some([]) => return true,
            Some([0, ..]) => 1,
            Some([1, length, ..]) => 2 + usize::from(*length),
            None | Some(_) => return false,
        };
    }
    false
}

/// RFC 8200 4.2: padding is known, and the type says what becomes of other options.
fn options(header: &[u8]) -> Step<()> {
    let mut at = 2;
    for _ in 0..OPTIONS_MAX {
        at += match header.get(at..) {
            Some([]) => break,
            Some([0, ..]) => 1,
            Some([kind, ..]) if kind & 0xc0 != 0 => return Err(Drop("unknown_option")),
            Some([_, length, ..]) => 2 + usize::from(*length),
            None | Some([_]) => return Err(Drop("ext_header")),
        };
    }
    match at.cmp(&header.len()) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(Drop("ext_header")),
        std::cmp::Ordering::Less => Err(Leave("ext_chain")),
    }
}

/// RFC 8754 2.1, what stands behind the segment list.
fn tlvs(mut rest: &[u8]) -> Step<()> {
    for _ in 0..TLVS_MAX {
        rest = match rest {
            [] => break,
            [0, rest @ ..] => rest,
            [_, length, value @ ..] => value.get(usize::from(*length)..).ok_or(Drop("srh_tlv"))?,
            [_] => return Err(Drop("srh_tlv")),
        };
    }
    Ok(())
}

/// An address that is never forwarded (RFC 4291 2.5, RFC 1812 5.3.7): a drop within a packet, else the kernel's.
fn never_forwarded(reason: &'static str, wrong: [&'static str; 2]) -> End {
    if wrong[0] == "inner_header" {
        Drop("bad_address")
    } else {
        Leave(reason)
    }
}

fn nowhere(address: Ipv6Addr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// RFC 8200 3: bytes of the packet that begins here. Error of the header or its length.
fn ipv6_length(rest: &[u8], wrong: [&'static str; 2]) -> Step<usize> {
    if rest.len() < 40 || rest[0] >> 4 != 6 {
        return Err(Drop(wrong[0]));
    }
    let payload = usize::from(u16_at(rest, 4));
    if 40 + payload > rest.len() {
        return Err(Drop(wrong[1]));
    }
    if payload == 0 && rest[6] == proto::HOP_BY_HOP {
        return Err(Leave("jumbogram"));
    }
    let address = |at: usize| {
        let octets: [u8; 16] = rest[at..at + 16].try_into().expect("16 bytes");
        Ipv6Addr::from(octets)
    };
    let (source, destination) = (address(8), address(24));
    let never = |reason| Err(never_forwarded(reason, wrong));
    if destination.is_multicast() {
        return never("multicast");
    }
    if source.is_unicast_link_local() || destination.is_unicast_link_local() {
        return never("link_local");
    }
    if source.is_multicast() || nowhere(source) || nowhere(destination) {
        return never("bad_source");
    }
    Ok(40 + payload)
}

/// RFC 791 3.1 and RFC 1812 5.2.2: bytes of the packet that begins here. Error of the header or its
/// checksum.
fn ipv4_length(rest: &[u8], wrong: [&'static str; 2]) -> Step<usize> {
    if rest.len() < 20 || rest[0] >> 4 != 4 || rest[0] & 15 < 5 {
        return Err(Drop(wrong[0]));
    }
    let (header, total) = (usize::from(rest[0] & 15) * 4, usize::from(u16_at(rest, 2)));
    if total < header || total > rest.len() {
        return Err(Drop(wrong[0]));
    }
    if header != 20 {
        return Err(Leave("ipv4_options"));
    }
    if ones_complement_sum(&rest[..20]) != 0xffff {
        return Err(Drop(wrong[1]));
    }
    let (source, destination) = (rest[12], rest[16]);
    let never = |reason| Err(never_forwarded(reason, wrong));
    let nowhere = |first: u8| first == 0 || first == 127;
    if destination >= 240 {
        return Err(Leave("multicast"));
    }
    if destination >= 224 {
        return never("multicast");
    }
    if source >= 224 || nowhere(source) || nowhere(destination) {
        return never("bad_source");
    }
    Ok(total)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}
