//! Fuzz target for rtnetlink messages of the kernel: links, addresses, neighbors, routes and rules.
//!
//! No message panics, and every resulting node compiles or is refused.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_control::compile::Compiler;
use sidestep_datapath::Limits;
use sidestep_mirror::{node_of, seg6};
use sidestep_model::config::File;
use sidestep_model::node::{Link, Node};
use sidestep_model::route::{Family, NextHop, Route};
use sidestep_testkit::random::Random;

use crate::Target;
use crate::datapath::nodes::vectors;

/// Length of `struct nlmsghdr`, `struct nlattr`, `struct rtmsg`.
pub(crate) const MESSAGE: usize = 16;
const ATTRIBUTE: usize = 4;
const ROUTE: usize = 12;

/// Fuzz target for rtnetlink. An input is one datagram.
pub struct Netlink {
    seeds: Vec<(String, Vec<u8>)>,
}

impl Target for Netlink {
    const NAME: &'static str = "netlink";

    fn new() -> Self {
        let mut seeds = Vec::new();
        for file in vectors() {
            let node = File::parse(&file.node_text)
                .and_then(|parsed| parsed.node())
                .expect("a vector's node is read");
            seeds.push((file.group.clone(), datagram(&node)));
            for (number, route) in node.routes.values().enumerate() {
                let bytes = [links(&node), route_message(route)].concat();
                seeds.push((format!("{}-{number}", file.group), bytes));
            }
        }
        Self { seeds }
    }

    fn run(&mut self, input: &[u8]) {
        let node = node_of([input]);
        let ports: BTreeSet<_> = node.links.keys().copied().take(8).collect();
        let _ = Compiler::new(Limits::default()).compile(&node, &ports);
    }

    fn seeds(&self) -> Vec<(String, Vec<u8>)> {
        self.seeds.clone()
    }

    fn mutate(
        &mut self,
        input: &mut Vec<u8>,
        limit: usize,
        random: &mut Random,
        engine: &dyn Fn(&mut Vec<u8>, usize),
    ) {
        if random.one_in(4) {
            let (_, other) = random.pick(&self.seeds);
            input.extend(other);
            input.truncate(limit);
        }
        engine(input, limit);
        if !random.one_in(4) {
            make_lengths_fit(input, fixed);
        }
    }
}

/// Returns the number of bytes between the header of a message of this type and its attributes.
fn fixed(kind: u16) -> usize {
    match kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => 16,
        libc::RTM_NEWADDR | libc::RTM_DELADDR => 8,
        _ => ROUTE,
    }
}

/// Repairs the length of every message and attribute that exceeds its container or is shorter than
/// its header.
pub(crate) fn make_lengths_fit(datagram: &mut [u8], fixed: fn(u16) -> usize) {
    let mut at = 0;
    while at + MESSAGE <= datagram.len() {
        let rest = datagram.len() - at;
        let claimed = u32::from_ne_bytes(datagram[at..at + 4].try_into().expect("four bytes"));
        let length = (claimed as usize).clamp(MESSAGE, rest);
        datagram[at..at + 4].copy_from_slice(&(length as u32).to_ne_bytes());
        let fixed = fixed(u16::from_ne_bytes([datagram[at + 4], datagram[at + 5]]));
        let end = at + length;
        make_attributes_fit(&mut datagram[(at + MESSAGE + fixed).min(end)..end]);
        at += length.next_multiple_of(4);
    }
}

fn make_attributes_fit(bytes: &mut [u8]) {
    let mut at = 0;
    while at + ATTRIBUTE <= bytes.len() {
        let rest = bytes.len() - at;
        let claimed = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let length = usize::from(claimed).clamp(ATTRIBUTE, rest.min(0xffff));
        bytes[at..at + 2].copy_from_slice(&(length as u16).to_ne_bytes());
        at += length.next_multiple_of(4);
    }
}

/// Returns the messages of a kernel dump of a node.
fn datagram(node: &Node) -> Vec<u8> {
    let mut bytes = links(node);
    for ((dev, address), neighbor) in &node.neighbors {
        let mut fixed = vec![family(*address), 0, 0, 0];
        fixed.extend(dev.0.to_ne_bytes());
        fixed.extend(0x80_u16.to_ne_bytes());
        fixed.extend([0, 1]);
        let mac = neighbor.lladdr.map_or(Vec::new(), |mac| mac.0.to_vec());
        let attributes = [(1, octets(*address)), (2, mac)];
        bytes.extend(message(libc::RTM_NEWNEIGH, &fixed, &attributes));
    }
    for route in node.routes.values() {
        bytes.extend(route_message(route));
    }
    bytes
}

pub(crate) fn links(node: &Node) -> Vec<u8> {
    node.links.values().flat_map(link_message).collect()
}

fn link_message(link: &Link) -> Vec<u8> {
    // struct ifinfomsg: ARPHRD_ETHER; up and running.
    let mut fixed = vec![0, 0, 1, 0];
    fixed.extend(link.ifindex.0.to_ne_bytes());
    fixed.extend(0x1_0043_u32.to_ne_bytes());
    fixed.extend([0; 4]);
    let attributes = [
        (libc::IFLA_IFNAME, [link.name.as_bytes(), &[0]].concat()),
        (libc::IFLA_ADDRESS, link.mac.0.to_vec()),
        (libc::IFLA_MTU, link.mtu.to_ne_bytes().to_vec()),
    ];
    message(libc::RTM_NEWLINK, &fixed, &attributes)
}

fn route_message(route: &Route) -> Vec<u8> {
    let prefix = route.key.prefix;
    let mut fixed = vec![
        family(prefix.addr()),
        prefix.prefix_len(),
        0,
        route.key.tos,
        0,
        3,
        0,
        1,
    ];
    fixed.extend([0; 4]);
    let mut attributes = vec![
        (libc::RTA_DST, octets(prefix.addr())),
        (libc::RTA_TABLE, route.key.table.0.to_ne_bytes().to_vec()),
        (libc::RTA_PRIORITY, route.key.metric.to_ne_bytes().to_vec()),
    ];
    match &route.next_hops[..] {
        [hop] => {
            attributes.extend(
                hop.dev
                    .map(|dev| (libc::RTA_OIF, dev.0.to_ne_bytes().to_vec())),
            );
            attributes.extend(hop_attributes(hop));
        }
        hops => {
            let nested = hops.iter().flat_map(|hop| {
                let inner: Vec<u8> = hop_attributes(hop)
                    .iter()
                    .flat_map(|(kind, value)| attribute(*kind, value))
                    .collect();
                let mut bytes = (8 + inner.len() as u16).to_ne_bytes().to_vec();
                bytes.extend([0, 0]);
                bytes.extend(hop.dev.map_or(0, |dev| dev.0).to_ne_bytes());
                bytes.extend(inner);
                bytes
            });
            attributes.push((libc::RTA_MULTIPATH, nested.collect()));
        }
    }
    message(libc::RTM_NEWROUTE, &fixed, &attributes)
}

fn hop_attributes(hop: &NextHop) -> Vec<(u16, Vec<u8>)> {
    let mut attributes = Vec::new();
    attributes.extend(hop.via.map(|via| (libc::RTA_GATEWAY, octets(via))));
    if let Some((kind, value)) = hop.encap.as_ref().and_then(seg6::encode) {
        attributes.push((libc::RTA_ENCAP_TYPE, kind.to_ne_bytes().to_vec()));
        attributes.push((libc::RTA_ENCAP, value));
    }
    attributes
}

fn family(address: IpAddr) -> u8 {
    (match Family::of(&address) {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    }) as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn message(kind: u16, fixed: &[u8], attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let attributes = attributes
        .iter()
        .flat_map(|(kind, value)| attribute(*kind, value));
    let body: Vec<u8> = fixed.iter().copied().chain(attributes).collect();
    let mut bytes = ((MESSAGE + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 10]);
    bytes.extend(body);
    bytes
}

/// Returns an attribute, padded to four bytes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumped_node_is_read_with_all_its_links_neighbors_and_routes() {
        for file in vectors().iter().take(5) {
            let node = File::parse(&file.node_text)
                .and_then(|parsed| parsed.node())
                .expect("a vector's node is read");
            let again = node_of([&datagram(&node)[..]]);
            assert_eq!(again.links.len(), node.links.len());
            assert_eq!(again.neighbors.len(), node.neighbors.len());
            assert!(again.routes.keys().eq(node.routes.keys()), "{}", file.group);
        }
    }

    #[test]
    fn valid_lengths_are_kept() {
        let seeds = Netlink::new().seeds();
        for (name, seed) in seeds {
            let mut changed = seed.clone();
            make_lengths_fit(&mut changed, fixed);
            assert_eq!(changed, seed, "{name}");
        }
    }
}
