//! State of veth interfaces that decides whether TC may redirect packets to their peers
//! (`bpf_redirect_peer`). The redirect skips the transmit path of the interface, and the receive
//! path of the veth up to TC.

use std::collections::BTreeMap;
use std::fs;

use netlink_sys::protocols::NETLINK_ROUTE;
use sidestep_model::node::{IfIndex, Mac};

use crate::dump::{Request, Requester};
use crate::error::MirrorError;
use crate::link::{self, IFINFOMSG, ifindex};
use crate::offload;
use crate::survey::{self, Chain};
use crate::wire::{Body, Message, attributes_after};

/// State of a veth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// The other end. None if it is in this network namespace, or if this process may not read it.
    pub peer: Option<Peer>,
    /// Root queueing discipline.
    pub qdisc: String,
    /// Whether TC filters are attached at the egress.
    pub has_filters: bool,
    /// Whether an nftables chain at the hook `egress` has rules or the policy drop.
    pub has_chain: bool,
    /// Whether a packet socket receives the transmitted packets.
    pub is_captured: bool,
    /// Whether the stack leaves checksums and TCP segmentation to the interface.
    pub has_offloads: bool,
}

/// The other end of a veth, in another network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Ethernet address.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether it runs an XDP program in the driver.
    pub has_xdp: bool,
}

/// Returns the state of those of these interfaces that are veths.
///
/// # Errors
/// If the kernel refuses the list of links. Parts that this kernel lacks are empty.
pub fn read(links: &[IfIndex]) -> Result<BTreeMap<IfIndex, Egress>, MirrorError> {
    if links.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut requester = Requester::open(NETLINK_ROUTE)?;
    let mut found = link::dump(&mut requester, veth)?;
    found.retain(|veth| links.contains(&veth.ifindex));
    if found.is_empty() {
        return Ok(BTreeMap::new());
    }
    let chains = survey::chains().unwrap_or_default();
    let captures =
        captures(&fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default());
    let state = |veth: Veth| {
        let egress = Egress {
            peer: veth.peer.and_then(|peer| read_peer(&mut requester, peer)),
            has_filters: survey::has_egress_filters(&mut requester, veth.ifindex),
            has_chain: chains.iter().any(|chain| is_egress_of(chain, &veth.name)),
            is_captured: [IfIndex(0), veth.ifindex]
                .iter()
                .any(|captured| captures.contains(captured)),
            has_offloads: offload::segments_tcp(&veth.name),
            qdisc: veth.qdisc,
        };
        (veth.ifindex, egress)
    };
    Ok(found.into_iter().map(state).collect())
}

/// A veth in the list of links.
struct Veth {
    ifindex: IfIndex,
    name: String,
    qdisc: String,
    peer: Option<Place>,
}

/// Identifies an interface of another network namespace.
#[derive(Clone, Copy)]
struct Place {
    /// Identifier of the namespace in this one.
    nsid: i32,
    ifindex: u32,
}

fn veth(message: &Message<'_>) -> Option<Veth> {
    let (mut name, mut qdisc, mut kind) = (String::new(), String::new(), String::new());
    let (mut index, mut nsid) = (None, None);
    for attribute in attributes_after(message.body, IFINFOMSG) {
        match attribute.kind {
            libc::IFLA_IFNAME => name = attribute.text(),
            libc::IFLA_QDISC => qdisc = attribute.text(),
            libc::IFLA_LINK => index = attribute.u32(),
            libc::IFLA_LINK_NETNSID => nsid = attribute.u32().map(|nsid| nsid as i32),
            libc::IFLA_LINKINFO => {
                let mut nested = attribute.nested();
                let found = nested.find(|nested| nested.kind == libc::IFLA_INFO_KIND);
                kind = found.map(|found| found.text()).unwrap_or_default();
            }
            _ => {}
        }
    }
    let ifindex = ifindex(message)?;
    let peer = index
        .zip(nsid)
        .map(|(ifindex, nsid)| Place { nsid, ifindex });
    (kind == "veth").then_some(Veth {
        ifindex,
        name,
        qdisc,
        peer,
    })
}

/// Requires `CAP_NET_ADMIN` in the user namespace of the peer's network namespace.
fn read_peer(requester: &mut Requester, place: Place) -> Option<Peer> {
    let mut fixed = [0; IFINFOMSG];
    fixed[4..8].copy_from_slice(&place.ifindex.to_ne_bytes());
    let mut body = Body::new(&fixed);
    body.attribute(libc::IFLA_TARGET_NETNSID, &place.nsid.to_ne_bytes());
    let request = Request {
        name: "get the peer of a veth",
        kind: libc::RTM_GETLINK,
        body: &body.0,
    };
    requester.one(request, peer).ok().flatten()
}

fn peer(message: &Message<'_>) -> Option<Peer> {
    let mut peer = Peer::default();
    for attribute in attributes_after(message.body, IFINFOMSG) {
        match attribute.kind {
            libc::IFLA_ADDRESS => peer.mac = Mac(attribute.value.try_into().ok()?),
            libc::IFLA_MTU => peer.mtu = attribute.u32()?,
            libc::IFLA_XDP => {
                let mut nested = attribute.nested();
                let attached = nested.find(|nested| nested.kind == IFLA_XDP_ATTACHED);
                let attached = attached.and_then(|attached| attached.u8());
                peer.has_xdp = !matches!(attached, None | Some(XDP_NONE | XDP_GENERIC));
            }
            _ => {}
        }
    }
    Some(peer)
}

/// Newer kernels list a prefix in place of the name of a device (`NFTA_DEVICE_PREFIX`).
fn is_egress_of(chain: &Chain, name: &str) -> bool {
    chain.hook == "egress"
        && (chain.rules > 0 || chain.drops)
        && chain.devices.iter().any(|device| name.starts_with(device))
}

/// Returns the interfaces whose transmitted packets a packet socket receives; 0: all interfaces.
/// `table` is `/proc/net/packet`. The kernel passes transmitted packets to sockets with `ETH_P_ALL`
/// only (`dev_queue_xmit_nit`).
fn captures(table: &str) -> Vec<IfIndex> {
    let captured = |line: &str| {
        let mut words = line.split_whitespace().skip(3);
        let (protocol, index, is_running) = (words.next()?, words.next()?, words.next()?);
        let is_capture = protocol == "0003" && is_running == "1";
        index.parse().ok().filter(|_| is_capture).map(IfIndex)
    };
    table.lines().skip(1).filter_map(captured).collect()
}

// include/uapi/linux/if_link.h.
const IFLA_XDP_ATTACHED: u16 = 2;
const XDP_NONE: u8 = 0;
const XDP_GENERIC: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_socket_of_all_protocols_captures() {
        let table = "\
sk       RefCnt Type Proto  Iface R Rmem   User   Inode
0000000000000000 3      3    0003   7     1 0      0      90211
0000000000000000 3      3    0003   8     0 0      0      90212
0000000000000000 3      2    86dd   9     1 0      0      90213
0000000000000000 3      3    0003   0     1 0      0      90214
";
        assert_eq!(captures(table), [IfIndex(7), IfIndex(0)]);
        assert_eq!(captures(""), []);
    }
}
