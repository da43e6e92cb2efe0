//! The IPv6 source address that Linux chooses: RFC 6724 5 in the order of `ipv6_get_saddr_eval`
//! (net/ipv6/addrconf.c).

use std::cmp::Ordering;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::node::{IfIndex, LinkKind, Node};

/// An address of an interface that may be the source of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceCandidate {
    /// The address with its prefix length.
    pub net: Ipv6Net,
    /// State.
    pub state: CandidateState,
    /// Without a lifetime.
    pub permanent: bool,
    /// Temporary (RFC 8981).
    pub temporary: bool,
}

/// State of an address (RFC 4862 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateState {
    /// Preferred.
    Preferred,
    /// Deprecated (`preferred_lft 0`), or optimistic (RFC 4429).
    Deprecated,
    /// Not assigned yet: under duplicate address detection, or a duplicate. No candidate, but it has
    /// its place among the others.
    Tentative,
}

impl SourceCandidate {
    /// Returns a preferred public address.
    pub const fn new(net: Ipv6Net) -> Self {
        Self {
            net,
            state: CandidateState::Preferred,
            permanent: true,
            temporary: false,
        }
    }
}

/// A row of the label table (`ip addrlabel`, RFC 6724 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressLabel {
    /// Addresses with this label.
    pub prefix: Ipv6Net,
    /// The only interface of these addresses, if any.
    pub dev: Option<IfIndex>,
    /// Label.
    pub label: u32,
}

/// Linux's label table after boot (net/ipv6/addrlabel.c `ip6addrlbl_init_table`).
const DEFAULT_LABELS: [AddressLabel; 8] = [
    label(Ipv6Addr::LOCALHOST, 128, 0),
    label(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 4),
    label(Ipv6Addr::UNSPECIFIED, 96, 3),
    label(ORCHID.addr(), 28, 7),
    label(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 6),
    label(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 2),
    label(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 5),
    label(Ipv6Addr::UNSPECIFIED, 0, 1),
];

/// Overlay routable cryptographic hash identifiers (RFC 4843), which the kernel matches with each
/// other.
const ORCHID: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28);

const fn label(address: Ipv6Addr, length: u8, label: u32) -> AddressLabel {
    AddressLabel {
        prefix: Ipv6Net::new_assert(address, length),
        dev: None,
        label,
    }
}

/// Places a candidate among those of its interface: the newest first among those of its scope
/// (`ipv6_link_dev_addr`). A known address keeps its place.
pub fn place(candidates: &mut Vec<SourceCandidate>, new: SourceCandidate) {
    let known = candidates
        .iter_mut()
        .find(|it| it.net.addr() == new.net.addr());
    if let Some(known) = known {
        *known = new;
        return;
    }
    let scope = scope(new.net.addr());
    let before = |it: &SourceCandidate| self::scope(it.net.addr()) > scope;
    candidates.insert(candidates.partition_point(before), new);
}

/// Returns the source address of a packet to `to` by `dev`, as `ipv6_dev_get_saddr` with
/// `IPV6_PREFER_SRC_PUBLIC`, which seg6's `set_tun_src` calls. `None` if no interface of the same
/// VRF has an address.
///
/// The kernel compares interfaces in the order of their creation; here, the lower index is first.
/// `net.ipv6.conf.*.use_optimistic` counts as 0. Rule 4, about home addresses, exists in kernels
/// with Mobile IPv6 only, and is not applied.
pub fn select(node: &Node, dev: Option<IfIndex>, to: Ipv6Addr) -> Option<Ipv6Addr> {
    let destination = Destination {
        to,
        dev,
        label: label_of(node, to, dev),
    };
    let mut best: Option<(IfIndex, SourceCandidate)> = None;
    for on in interfaces(node, dev, scope(to)) {
        let candidates = node.sources.get(&on).into_iter().flatten();
        for candidate in candidates.filter(|it| it.state != CandidateState::Tentative) {
            let new = (on, *candidate);
            let is_better =
                best.is_none_or(|best| destination.compare(node, best, new) == Ordering::Less);
            if is_better {
                best = Some(new);
            }
        }
    }
    best.map(|(_, candidate)| candidate.net.addr())
}

/// Returns the interfaces whose addresses are candidates, in the kernel's order. An interface may
/// occur twice.
fn interfaces(node: &Node, dev: Option<IfIndex>, scope: u8) -> Vec<IfIndex> {
    let only = |dev: &IfIndex| {
        let link = node.links.get(dev);
        scope <= LINK_LOCAL || link.is_some_and(|link| link.oif_addresses_only)
    };
    if let Some(dev) = dev.filter(only) {
        return vec![dev];
    }
    let vrf = dev.and_then(|dev| vrf_of(node, dev));
    // In a VRF, the egress and then the VRF device come before the other members.
    let first = vrf.is_some().then_some(dev).flatten();
    let of_domain = node.sources.keys().filter(|on| vrf_of(node, **on) == vrf);
    first
        .into_iter()
        .chain(vrf)
        .chain(of_domain.copied())
        .collect()
}

/// Returns the VRF device of an interface's domain.
fn vrf_of(node: &Node, dev: IfIndex) -> Option<IfIndex> {
    let is_vrf = |dev: &IfIndex| {
        let link = node.links.get(dev);
        link.is_some_and(|link| matches!(link.kind, LinkKind::Vrf { .. }))
    };
    let master = node.links.get(&dev).and_then(|link| link.master);
    Some(dev).filter(is_vrf).or(master.filter(is_vrf))
}

struct Destination {
    to: Ipv6Addr,
    dev: Option<IfIndex>,
    label: Option<u32>,
}

impl Destination {
    /// Compares two candidates; `Less` if the second one is better.
    fn compare(
        &self,
        node: &Node,
        one: (IfIndex, SourceCandidate),
        other: (IfIndex, SourceCandidate),
    ) -> Ordering {
        let ranks = |rule: fn(&Self, &Node, (IfIndex, SourceCandidate)) -> i32| {
            rule(self, node, one).cmp(&rule(self, node, other))
        };
        // Rule 1: the destination itself.
        ranks(|it, _, (_, candidate)| (candidate.net.addr() == it.to).into())
            // Rule 2: the smallest scope that suffices, otherwise the largest.
            .then_with(|| ranks(|it, _, (_, candidate)| it.scope_rank(candidate.net.addr())))
            // Rule 3: not deprecated.
            .then_with(|| ranks(|_, _, (_, candidate)| is_preferred(&candidate).into()))
            // Rule 5: the egress.
            .then_with(|| ranks(|it, _, (on, _)| it.dev.is_none_or(|dev| dev == on).into()))
            // Rule 6: the label of the destination.
            .then_with(|| {
                ranks(|it, node, (on, candidate)| {
                    (label_of(node, candidate.net.addr(), Some(on)) == it.label).into()
                })
            })
            // Rule 7, with IPV6_PREFER_SRC_PUBLIC: public addresses.
            .then_with(|| ranks(|_, _, (_, candidate)| (!candidate.temporary).into()))
            .then_with(|| {
                ranks(|it, _, (_, candidate)| {
                    let is_orchid = |address: Ipv6Addr| ORCHID.contains(&address);
                    (is_orchid(candidate.net.addr()) == is_orchid(it.to)).into()
                })
            })
            // Rule 8: the longest common prefix, within the prefix of the address.
            .then_with(|| ranks(|it, _, (_, candidate)| common_prefix(&candidate.net, it.to)))
    }

    /// `IPV6_SADDR_RULE_SCOPE`.
    fn scope_rank(&self, address: Ipv6Addr) -> i32 {
        let own = i32::from(scope(address));
        if own >= i32::from(scope(self.to)) {
            -own
        } else {
            own - 128
        }
    }
}

fn is_preferred(candidate: &SourceCandidate) -> bool {
    let address = candidate.net.addr();
    let embeds_ipv4 = address.to_ipv4().is_some();
    candidate.state == CandidateState::Preferred || embeds_ipv4
}

fn common_prefix(net: &Ipv6Net, to: Ipv6Addr) -> i32 {
    let common = (net.addr().to_bits() ^ to.to_bits()).leading_zeros();
    common.min(net.prefix_len().into()) as i32
}

fn label_of(node: &Node, address: Ipv6Addr, dev: Option<IfIndex>) -> Option<u32> {
    let table = match node.address_labels.as_slice() {
        [] => &DEFAULT_LABELS,
        table => table,
    };
    let matches = |row: &&AddressLabel| {
        (row.dev.is_none() || row.dev == dev) && row.prefix.contains(&address)
    };
    table.iter().find(matches).map(|row| row.label)
}

/// `IPV6_ADDR_SCOPE_LINKLOCAL` (include/net/ipv6.h).
const LINK_LOCAL: u8 = 0x2;

/// Returns the scope of an address, 0 to 15 (`ipv6_addr_src_scope`).
fn scope(address: Ipv6Addr) -> u8 {
    let [first, second, ..] = address.octets();
    match (first, second) {
        (0xff, second) => second & 0xf,
        (0xfe, 0x80..=0xbf) => LINK_LOCAL,
        // Site-local addresses (RFC 3879 deprecates them).
        (0xfe, 0xc0..) => 0x5,
        _ if address.is_loopback() => LINK_LOCAL,
        _ => 0xe,
    }
}

#[cfg(test)]
mod tests;
