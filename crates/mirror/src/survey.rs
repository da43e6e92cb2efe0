//! Parts of the kernel's network configuration that the node does not have, because the packet path
//! does not use them: packet filters, queueing disciplines, XDP programs, and link flags.

use std::collections::BTreeMap;
use std::fs;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use sidestep_model::node::IfIndex;

use crate::dump::{Request, Requester};
use crate::error::MirrorError;
use crate::legacy;
use crate::link::{self, IFINFOMSG, ifindex};
use crate::wire::{Attribute, Body, Message, attributes_after, u32_at};

/// A survey of one network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Device state by interface.
    pub devices: BTreeMap<IfIndex, Device>,
    /// Base chains of nftables.
    pub chains: Vec<Chain>,
    /// TC filters at the ingress and egress of the surveyed ports.
    pub filters: Vec<Filter>,
    /// Tables of the legacy iptables and ip6tables that have rules or a policy other than ACCEPT.
    pub legacy_tables: Vec<String>,
    /// Connections that conntrack tracks.
    pub connections: u64,
    /// `net.vrf.strict_mode`; none if the kernel has no VRF.
    pub vrf_strict_mode: Option<bool>,
}

/// State of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `IFF_UP`.
    pub up: bool,
    /// `IFF_LOWER_UP`.
    pub carrier: bool,
    /// Root queueing discipline.
    pub qdisc: String,
    /// ID of the XDP program.
    pub xdp: Option<u32>,
    /// Largest packets that the device gets from the stack, or that it merges, if they need BIG TCP:
    /// parameter of `ip link`, bytes.
    pub big_sizes: Vec<(&'static str, u32)>,
}

/// `GSO_LEGACY_MAX_SIZE` (`include/linux/netdevice.h`): larger packets need BIG TCP.
pub const GSO_LEGACY_MAX_SIZE: u32 = 65536;

impl Device {
    fn note_size(&mut self, name: &'static str, attribute: &Attribute<'_>) {
        let size = attribute.u32().filter(|size| *size > GSO_LEGACY_MAX_SIZE);
        self.big_sizes.extend(size.map(|size| (name, size)));
    }
}

/// A base chain of nftables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Family, as `nft` names it.
    pub family: &'static str,
    /// Table.
    pub table: String,
    /// Name.
    pub name: String,
    /// Hook, as `nft` names it.
    pub hook: &'static str,
    /// Type: `filter`, `nat` or `route`.
    pub kind: String,
    /// Whether the policy is `drop`.
    pub drops: bool,
    /// Number of rules.
    pub rules: u32,
    /// Devices of a chain of the family `netdev`.
    pub devices: Vec<String>,
}

/// TC filters of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Interface.
    pub port: IfIndex,
    /// At `egress`; otherwise at `ingress`.
    pub egress: bool,
}

impl Survey {
    /// Surveys the calling thread's network namespace, with TC filters of these ports. `own_filter`
    /// is the priority of the caller's own filters, which the survey leaves out.
    ///
    /// # Errors
    /// If the kernel refuses the list of links. Parts that this kernel lacks are empty.
    pub fn read(ports: &[IfIndex], own_filter: u32) -> Result<Self, MirrorError> {
        let mut requester = Requester::open(NETLINK_ROUTE)?;
        Ok(Self {
            devices: devices(&mut requester)?,
            chains: chains().unwrap_or_default(),
            filters: filters(&mut requester, ports, own_filter),
            legacy_tables: legacy::tables_in_use(),
            connections: number("/proc/sys/net/netfilter/nf_conntrack_count").unwrap_or_default(),
            vrf_strict_mode: number("/proc/sys/net/vrf/strict_mode").map(|mode| mode != 0),
        })
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn devices(requester: &mut Requester) -> Result<BTreeMap<IfIndex, Device>, MirrorError> {
    Ok(link::dump(requester, device)?.into_iter().collect())
}

fn device(message: &Message<'_>) -> Option<(IfIndex, Device)> {
    let flags = u32_at(message.body, 8)? as i32;
    let mut device = Device {
        up: flags & libc::IFF_UP != 0,
        carrier: flags & libc::IFF_LOWER_UP != 0,
        ..Device::default()
    };
    for attribute in attributes_after(message.body, IFINFOMSG) {
        match attribute.kind {
            libc::IFLA_QDISC => device.qdisc = attribute.text(),
            libc::IFLA_GSO_MAX_SIZE => device.note_size("gso_max_size", &attribute),
            IFLA_GRO_MAX_SIZE => device.note_size("gro_max_size", &attribute),
            IFLA_GSO_IPV4_MAX_SIZE => device.note_size("gso_ipv4_max_size", &attribute),
            IFLA_GRO_IPV4_MAX_SIZE => device.note_size("gro_ipv4_max_size", &attribute),
            libc::IFLA_XDP => {
                let mut nested = attribute.nested();
                let id = nested.find(|nested| nested.kind == IFLA_XDP_PROG_ID);
                device.xdp = id.and_then(|id| id.u32());
            }
            _ => {}
        }
    }
    Some((ifindex(message)?, device))
}

/// Returns the TC filters of these interfaces, without those of the priority `own_filter`.
pub(crate) fn filters(
    requester: &mut Requester,
    ports: &[IfIndex],
    own_filter: u32,
) -> Vec<Filter> {
    let mut found = Vec::new();
    for &port in ports {
        for (parent, egress) in [(TC_INGRESS, false), (TC_EGRESS, true)] {
            let priorities = filter_priorities(requester, port, parent);
            if priorities.iter().any(|priority| *priority != own_filter) {
                found.push(Filter { port, egress });
            }
        }
    }
    found
}

/// Whether the interface has TC filters at its egress.
pub(crate) fn has_egress_filters(requester: &mut Requester, link: IfIndex) -> bool {
    !filter_priorities(requester, link, TC_EGRESS).is_empty()
}

fn filter_priorities(requester: &mut Requester, link: IfIndex, parent: u32) -> Vec<u32> {
    let mut body = Body::new(&[0; 4]);
    body.0.extend(link.0.to_ne_bytes());
    body.0.extend([0; 4]);
    body.0.extend(parent.to_ne_bytes());
    body.0.extend([0; 4]);
    let request = Request {
        name: "list the TC filters",
        kind: libc::RTM_GETTFILTER,
        body: &body.0,
    };
    // The upper half of `tcm_info` is the priority.
    let priority = |message: &Message<'_>| Some(u32_at(message.body, 16)? >> 16);
    // A link without clsact has none, and a kernel without filters refuses the request.
    requester.dump(request, priority).unwrap_or_default()
}

/// The base chains of nftables.
pub(crate) fn chains() -> Result<Vec<Chain>, MirrorError> {
    let request = Request {
        name: "list the chains of nftables",
        kind: NFT_MSG_GETCHAIN,
        // `struct nfgenmsg`: all families.
        body: &[0; NFGENMSG],
    };
    Requester::open(NETLINK_NETFILTER)?.dump(request, chain)
}

/// A base chain; none for other chains and families.
fn chain(message: &Message<'_>) -> Option<Chain> {
    let family = match *message.body.first()? {
        1 => "inet",
        2 => "ip",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => return None,
    };
    let big = |attribute: &Attribute<'_>| attribute.u32().map(u32::from_be);
    let mut chain = Chain {
        family,
        table: String::new(),
        name: String::new(),
        hook: "",
        kind: String::new(),
        drops: false,
        rules: 0,
        devices: Vec::new(),
    };
    for attribute in attributes_after(message.body, NFGENMSG) {
        match attribute.kind {
            NFTA_CHAIN_TABLE => chain.table = attribute.text(),
            NFTA_CHAIN_NAME => chain.name = attribute.text(),
            NFTA_CHAIN_TYPE => chain.kind = attribute.text(),
            NFTA_CHAIN_POLICY => chain.drops = big(&attribute) == Some(0),
            NFTA_CHAIN_USE => chain.rules = big(&attribute).unwrap_or_default(),
            NFTA_CHAIN_HOOK => {
                for nested in attribute.nested() {
                    match nested.kind {
                        NFTA_HOOK_HOOKNUM => chain.hook = hook(family, big(&nested)?),
                        NFTA_HOOK_DEV => chain.devices.push(nested.text()),
                        NFTA_HOOK_DEVS => {
                            chain.devices.extend(nested.nested().map(|dev| dev.text()));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (!chain.hook.is_empty()).then_some(chain)
}

fn hook(family: &str, number: u32) -> &'static str {
    match (family, number) {
        ("netdev", 0) | ("inet", 5) => "ingress",
        ("netdev", 1) => "egress",
        (_, 0) => "prerouting",
        (_, 1) => "input",
        (_, 2) => "forward",
        (_, 3) => "output",
        _ => "postrouting",
    }
}

// include/uapi/linux/if_link.h.
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;

// include/uapi/linux/pkt_sched.h: TC_H_CLSACT with TC_H_MIN_INGRESS and TC_H_MIN_EGRESS.
const TC_INGRESS: u32 = 0xffff_fff2;
const TC_EGRESS: u32 = 0xffff_fff3;

// include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h.
const NFGENMSG: usize = 4;
const NFT_MSG_GETCHAIN: u16 = 10 << 8 | 4;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_its_hook_policy_and_rules() {
        let mut hook = Body::default();
        hook.attribute(NFTA_HOOK_HOOKNUM, &2u32.to_be_bytes());
        let mut body = Body::new(&[1, 0, 0, 0]);
        body.attribute(NFTA_CHAIN_TABLE, b"f\0")
            .attribute(NFTA_CHAIN_NAME, b"c\0")
            .nest(NFTA_CHAIN_HOOK, &hook)
            .attribute(NFTA_CHAIN_POLICY, &0u32.to_be_bytes())
            .attribute(NFTA_CHAIN_TYPE, b"filter\0")
            .attribute(NFTA_CHAIN_USE, &3u32.to_be_bytes());
        let message = |body| Message {
            kind: 0,
            flags: 0,
            sequence: 0,
            body,
        };
        let found = chain(&message(&body.0)).expect("a base chain");
        assert_eq!((found.family, found.hook), ("inet", "forward"));
        assert_eq!((found.drops, found.rules), (true, 3));
        let mut without_hook = Body::new(&[1, 0, 0, 0]);
        without_hook.attribute(NFTA_CHAIN_NAME, b"c\0");
        assert_eq!(chain(&message(&without_hook.0)), None);
    }
}
