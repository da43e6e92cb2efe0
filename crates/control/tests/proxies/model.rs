//! A node with SR proxies, after the pseudocode of draft-ietf-spring-srv6-service-programming-00 and the RFCs that it stands
//! on. It is slow, works on bytes and knows nothing of the packet path.
//!
//! Where the draft sends an error message, the model drops for that reason. Each SID decrements the hop limit (S12); a
//! packet without a SID is decremented when it leaves.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use sidestep_testkit::differential::headers::{ETHERNET, proto};

use crate::flow::Flow;
use crate::headers::{ipv4_length, ipv6_length, relayed, u16_at};
use crate::packet::Packet;

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

// LIMIT: as in `sidestep show limits`.
const STEPS_MAX: usize = 4;

/// Ends a packet's way.
#[derive(Debug)]
pub enum End {
    Drop(&'static str),
    /// The kernel does the rest.
    Leave(&'static str),
}

pub use End::{Drop, Leave};

pub type Step<T> = Result<T, End>;

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
            sourced: false,
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
        if !["link_local", "bad_source", "jumbogram"].contains(&reason) || frame[14] >> 4 != 6 {
            return None;
        }
        let octets: [u8; 16] = frame[38..54].try_into().expect("16 bytes");
        let to = Ipv6Addr::from(octets);
        if reason == "jumbogram" {
            let sid = self.proxies.iter().any(|proxy| proxy.sid == to);
            return sid.then_some("ipv6_length");
        }
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
        if reason != "jumbogram" {
            return false;
        }
        let octets: [u8; 16] = frame[38..54].try_into().expect("16 bytes");
        let to = Ipv6Addr::from(octets);
        let of_the_link = to.is_multicast() || to.is_unicast_link_local();
        let own = &self.ports[port].own;
        let mut proxies = self.proxies.iter();
        !of_the_link
            && !own.iter().any(|(own, _)| *own == to)
            && proxies.any(|proxy| proxy.iface_in == port && proxy.inner == proto::IPV6)
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
                Kind::Static(headers) => {
                    packet.sourced = true;
                    packet.inbound(Some(headers))?;
                }
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
        let port = &self.ports[egress];
        let bytes = packet.sent()?;
        let is_bare = packet.frame && packet.carried == 0;
        let too_big = bytes.len() - if is_bare { ETHERNET } else { 0 } > port.mtu;
        if too_big && !packet.may_be_fragmented() {
            return Err(Leave("packet_too_big"));
        }
        if is_bare {
            return Ok(Answer::Forward {
                port: egress,
                frame: bytes,
                label: false,
            });
        }
        let label = packet.label;
        let frame = [&port.peer_mac[..], &port.mac, &packet.ethertype(), &bytes].concat();
        Ok(if too_big {
            Answer::Kernel("fragmented", Some(frame), label)
        } else {
            Answer::Forward {
                port: egress,
                frame,
                label,
            }
        })
    }
}
