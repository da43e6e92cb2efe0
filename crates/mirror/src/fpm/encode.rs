//! Frames as zebra sends them, for tests and fuzzing.

use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_model::route::{NextHop, Route, RouteKey};

use super::HEADER;
use crate::object::NHMSG;
use crate::route::RTMSG;
use crate::seg6;
use crate::wire::{Body, frame};

/// Frames of one sender.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// Netlink port ID (`nlmsg_pid`).
    pub sender: u32,
}

impl Encoder {
    /// Returns the frame that adds or replaces a route.
    pub fn route(self, route: &Route) -> Vec<u8> {
        let mut body = key(&route.key, route.protocol);
        if let Some(nhid) = route.nhid {
            body.attribute(RTA_NH_ID, &nhid.to_ne_bytes());
        } else if let [hop] = &route.next_hops[..] {
            self::next_hop(&mut body, hop, ROUTE);
        } else {
            let mut hops = Vec::new();
            for hop in &route.next_hops {
                let mut inner = Body::default();
                let dev = hop.dev.map_or(0, |dev| dev.0);
                self::next_hop(
                    &mut inner,
                    &NextHop {
                        dev: None,
                        ..hop.clone()
                    },
                    ROUTE,
                );
                hops.extend((8 + inner.0.len() as u16).to_ne_bytes());
                hops.extend([0, (hop.weight - 1) as u8]);
                hops.extend(dev.to_ne_bytes());
                hops.extend(inner.0);
            }
            body.nest(libc::RTA_MULTIPATH, &Body(hops));
        }
        self.frame(libc::RTM_NEWROUTE, &body)
    }

    /// Returns the frame that withdraws a route. It has no next hops.
    pub fn withdraw(self, of: &RouteKey, protocol: u8) -> Vec<u8> {
        self.frame(libc::RTM_DELROUTE, &key(of, protocol))
    }

    /// Returns the frame that adds or replaces a nexthop object.
    pub fn next_hop(self, id: u32, hop: &NextHop) -> Vec<u8> {
        let mut body = object(id);
        body.0[0] = match hop.via {
            Some(IpAddr::V4(_)) => libc::AF_INET,
            _ => libc::AF_INET6,
        } as u8;
        self::next_hop(&mut body, hop, OBJECT);
        self.frame(RTM_NEWNEXTHOP, &body)
    }

    /// Returns the frame that adds or replaces a group of nexthop objects of equal weight.
    pub fn group(self, id: u32, members: &[u32]) -> Vec<u8> {
        let mut body = object(id);
        let entry = |member: &u32| [member.to_ne_bytes(), [0; 4]].concat();
        let entries: Vec<u8> = members.iter().flat_map(entry).collect();
        body.attribute(NHA_GROUP, &entries);
        self.frame(RTM_NEWNEXTHOP, &body)
    }

    /// Returns the frame that removes a nexthop object.
    pub fn remove(self, id: u32) -> Vec<u8> {
        self.frame(RTM_DELNEXTHOP, &object(id))
    }

    /// Returns the frame of a netlink message.
    fn frame(self, kind: u16, body: &Body) -> Vec<u8> {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        let mut message = frame(kind, flags, 0, &body.0);
        message[12..16].copy_from_slice(&self.sender.to_ne_bytes());
        let length = (HEADER + message.len()) as u16;
        [&[1, 1], &length.to_be_bytes()[..], &message].concat()
    }
}

fn key(key: &RouteKey, protocol: u8) -> Body {
    let family = match key.prefix {
        IpNet::V4(_) => libc::AF_INET,
        IpNet::V6(_) => libc::AF_INET6,
    };
    let mut fixed = [0; RTMSG];
    fixed[0] = family as u8;
    fixed[1] = key.prefix.prefix_len();
    fixed[4] = u8::try_from(key.table.0).unwrap_or_default();
    fixed[5] = protocol;
    fixed[7] = libc::RTN_UNICAST;
    let mut body = Body::new(&fixed);
    body.attribute(libc::RTA_DST, &octets(key.prefix.addr()));
    body.attribute(libc::RTA_PRIORITY, &key.metric.to_ne_bytes());
    if fixed[4] == 0 {
        body.attribute(libc::RTA_TABLE, &key.table.0.to_ne_bytes());
    }
    body
}

fn object(id: u32) -> Body {
    let mut body = Body::new(&[0; NHMSG]);
    body.attribute(NHA_ID, &id.to_ne_bytes());
    body
}

/// Types of the attributes of a next hop: gateway, interface, encapsulation type, encapsulation.
type Kinds = [u16; 4];
const ROUTE: Kinds = [libc::RTA_GATEWAY, libc::RTA_OIF, 21, 22];
const OBJECT: Kinds = [6, 5, 7, 8];

fn next_hop(body: &mut Body, hop: &NextHop, kinds: Kinds) {
    let [gateway, interface, encap_type, encap] = kinds;
    if let Some(via) = hop.via {
        body.attribute(gateway, &octets(via));
    }
    if let Some(dev) = hop.dev {
        body.attribute(interface, &dev.0.to_ne_bytes());
    }
    if let Some((kind, value)) = hop.encap.as_ref().and_then(seg6::encode) {
        body.attribute(encap_type, &kind.to_ne_bytes());
        body.nest(encap, &Body(value));
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

// include/uapi/linux/rtnetlink.h and nexthop.h.
const RTA_NH_ID: u16 = 30;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
