//! Changes of veth pairs. Both ends are created in this network namespace.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use sidestep_model::node::IfIndex;

use crate::dump::{Request, Requester};
use crate::error::MirrorError;
use crate::link::{self, IFINFOMSG};
use crate::offload;
use crate::wire::{Body, attributes_after};

/// Beginning of the description (`alias`) of a port; the name of the device follows.
const OWNER: &str = "port of the Sidestep ether device ";

/// A pair to create.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// Name of the device.
    pub device: &'a str,
    /// MTU of the device in bytes.
    pub device_mtu: u32,
    /// Name of the other end, a port.
    pub port: &'a str,
    /// MTU of the port in bytes.
    pub port_mtu: u32,
}

/// A socket for requests about veth pairs.
pub struct Veths(Requester);

impl Veths {
    /// Opens the socket.
    ///
    /// # Errors
    /// The system has no socket.
    pub fn open() -> Result<Self, MirrorError> {
        Requester::open(NETLINK_ROUTE).map(Self)
    }

    /// Creates a pair. The port is up and sends nothing on its own: it has no address, and joins no
    /// group. The device is down, and its stack computes checksums and segments before it sends,
    /// because Linux has no offload for frames within IPv6.
    ///
    /// # Errors
    /// The kernel refuses, for example because a name exists.
    pub fn create(&mut self, pair: &Pair<'_>) -> Result<(), MirrorError> {
        let mut body = Body::new(&fixed(IfIndex(0), 0, 0));
        let mtu = pair.device_mtu.to_ne_bytes();
        name(&mut body, pair.device).attribute(libc::IFLA_MTU, &mtu);
        // Set by ether_setup(). Without this flag, IPv6 reports no group.
        let mut peer = Body::new(&fixed(IfIndex(0), 0, libc::IFF_MULTICAST));
        let mtu = pair.port_mtu.to_ne_bytes();
        name(&mut peer, pair.port).attribute(libc::IFLA_MTU, &mtu);
        let mut data = Body::default();
        data.attribute(VETH_INFO_PEER, &peer.0);
        let mut info = Body::default();
        info.attribute(libc::IFLA_INFO_KIND, b"veth\0")
            .nest(libc::IFLA_INFO_DATA, &data);
        body.nest(libc::IFLA_LINKINFO, &info);
        self.0.create_new(Request {
            name: "create a veth pair",
            kind: libc::RTM_NEWLINK,
            body: &body.0,
        })?;
        offload::leave_nothing(pair.device);
        // The kernel ignores these when it creates a link, and sets flags before them.
        let mut port = Body::new(&fixed(IfIndex(0), 0, 0));
        let alias = [OWNER, pair.device].concat();
        name(&mut port, pair.port)
            .attribute(libc::IFLA_IFALIAS, alias.as_bytes())
            .nest(libc::IFLA_AF_SPEC, &without_addresses());
        self.change("set up a veth", &port.0)?;
        let mut port = Body::new(&fixed(IfIndex(0), libc::IFF_UP, libc::IFF_UP));
        name(&mut port, pair.port);
        self.change("take an interface up", &port.0)
    }

    /// Returns the ports of all pairs that this or an earlier process has created in this network
    /// namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ports(&mut self) -> Result<Vec<IfIndex>, MirrorError> {
        link::dump(&mut self.0, |message| {
            let mut attributes = attributes_after(message.body, IFINFOMSG);
            let alias = attributes.find(|it| it.kind == libc::IFLA_IFALIAS)?;
            let is_ours = alias.text().starts_with(OWNER);
            link::ifindex(message).filter(|_| is_ours)
        })
    }

    /// Removes interfaces, and the other end of each pair in whatever network namespace. A missing
    /// interface is no error. PERF: the kernel waits for a grace period for each request, so the
    /// interfaces form a group, which goes by one request.
    ///
    /// # Errors
    /// The kernel refuses. The other interfaces are removed.
    pub fn delete(&mut self, interfaces: &[IfIndex]) -> Result<(), MirrorError> {
        let group = LEAVING.to_ne_bytes();
        let mut grouped = Ok(());
        for ifindex in interfaces {
            let mut body = Body::new(&fixed(*ifindex, 0, 0));
            body.attribute(libc::IFLA_GROUP, &group);
            let done = self.change("set the group of an interface", &body.0);
            grouped = grouped.and(unless_missing(done));
        }
        let mut body = Body::new(&fixed(IfIndex(0), 0, 0));
        body.attribute(libc::IFLA_GROUP, &group);
        let request = Request {
            name: "delete veth pairs",
            kind: libc::RTM_DELLINK,
            body: &body.0,
        };
        grouped.and(unless_missing(
            self.0.one(request, |_| None::<()>).map(drop),
        ))
    }

    /// Takes an interface up or down. The other end of a pair loses its carrier.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_up(&mut self, ifindex: IfIndex, up: bool) -> Result<(), MirrorError> {
        let flags = if up { libc::IFF_UP } else { 0 };
        self.change(
            "take an interface up or down",
            &fixed(ifindex, flags, libc::IFF_UP),
        )
    }

    fn change(&mut self, name: &'static str, body: &[u8]) -> Result<(), MirrorError> {
        let kind = libc::RTM_NEWLINK;
        let request = Request { name, kind, body };
        self.0.one(request, |_| None::<()>).map(|_| ())
    }

    /// Sets the MTU of an interface, in the network namespace with this identifier.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_mtu(
        &mut self,
        ifindex: IfIndex,
        nsid: Option<i32>,
        mtu: u32,
    ) -> Result<(), MirrorError> {
        let mut body = Body::new(&fixed(ifindex, 0, 0));
        if let Some(nsid) = nsid {
            body.attribute(libc::IFLA_TARGET_NETNSID, &nsid.to_ne_bytes());
        }
        body.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        self.change("set an MTU", &body.0)
    }

    /// Returns the other end of a pair: its index, and the identifier of its network namespace if
    /// that is another one.
    ///
    /// # Errors
    /// The kernel refuses, or there is no such interface.
    pub fn peer(
        &mut self,
        ifindex: IfIndex,
    ) -> Result<Option<(IfIndex, Option<i32>)>, MirrorError> {
        let request = Request {
            name: "get a veth",
            kind: libc::RTM_GETLINK,
            body: &fixed(ifindex, 0, 0),
        };
        let found = self.0.one(request, |message| {
            let (mut peer, mut nsid) = (None, None);
            for attribute in attributes_after(message.body, IFINFOMSG) {
                match attribute.kind {
                    libc::IFLA_LINK => peer = attribute.u32().map(IfIndex),
                    libc::IFLA_LINK_NETNSID => nsid = attribute.u32().map(|id| id as i32),
                    _ => {}
                }
            }
            Some(peer.map(|peer| (peer, nsid)))
        });
        found.map(Option::flatten)
    }
}

/// Group of the interfaces that one request removes (`ip link set group`).
const LEAVING: u32 = 0x5de5_7e9d;

fn unless_missing(done: Result<(), MirrorError>) -> Result<(), MirrorError> {
    match done {
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(()),
        other => other,
    }
}

impl MirrorError {
    /// Whether an object with that name exists.
    pub fn is_existing(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// `struct ifinfomsg` with these flags, of which those in `mask` change.
fn fixed(IfIndex(ifindex): IfIndex, flags: i32, mask: i32) -> [u8; IFINFOMSG] {
    let mut bytes = [0; IFINFOMSG];
    bytes[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&mask.to_ne_bytes());
    bytes
}

fn name<'a>(body: &'a mut Body, name: &str) -> &'a mut Body {
    let name = [name.as_bytes(), &[0]].concat();
    body.attribute(libc::IFLA_IFNAME, &name)
}

/// `IFLA_AF_SPEC` of an interface that gets no link-local address.
fn without_addresses() -> Body {
    let mut ipv6 = Body::default();
    ipv6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    let mut spec = Body::default();
    spec.nest(libc::AF_INET6 as u16, &ipv6);
    spec
}

// include/uapi/linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
// include/uapi/linux/if_link.h.
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
