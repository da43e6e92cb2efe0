//! Requests of the mirror to the kernel.

use std::net::{IpAddr, Ipv6Addr};

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use sidestep_model::hmac::HmacKeys;
use sidestep_model::node::{IfIndex, Mac, TableId};
use sidestep_model::route::{Family, NextHops, Route};
use sidestep_model::source::AddressLabel;

use crate::address::{self, IFADDRLBLMSG, IFADDRMSG, Notice};
use crate::bridge;
use crate::dump::{Request, Requester};
use crate::error::MirrorError;
use crate::genl::{Genl, GenlFamily};
use crate::link::{self, IFINFOMSG, LinkState, Settings};
use crate::neighbor::{self, NDMSG};
use crate::netconf::{self, NETCONFMSG, Netconf};
use crate::object::{self, NHMSG, Object};
use crate::route::{self, RTMSG, Reported};
use crate::rule::{self, FIB_RULE_HDR, ReportedRule};
use crate::socket::Socket;
use crate::wire::{Body, Message};

/// Opens a socket that receives all rtnetlink notifications that affect the node.
pub(crate) fn subscribe(receive_buffer: usize) -> Result<Socket, MirrorError> {
    let socket = Socket::open(NETLINK_ROUTE)?.for_events(receive_buffer)?;
    for group in [
        libc::RTNLGRP_LINK,
        libc::RTNLGRP_NEIGH,
        libc::RTNLGRP_IPV4_IFADDR,
        libc::RTNLGRP_IPV6_IFADDR,
        libc::RTNLGRP_IPV4_ROUTE,
        libc::RTNLGRP_IPV6_ROUTE,
        libc::RTNLGRP_IPV4_RULE,
        libc::RTNLGRP_IPV6_RULE,
        libc::RTNLGRP_IPV4_NETCONF,
        libc::RTNLGRP_IPV6_NETCONF,
        libc::RTNLGRP_NEXTHOP,
    ] {
        socket.join(group)?;
    }
    Ok(socket)
}

/// Requests to the kernel.
pub(crate) struct Kernel {
    requester: Requester,
    genl: Genl,
    netdev: Option<GenlFamily>,
}

impl Kernel {
    /// Opens the sockets for requests.
    pub fn open() -> Result<Self, MirrorError> {
        let mut genl = Genl::open()?;
        Ok(Self {
            requester: Requester::open(NETLINK_ROUTE)?,
            netdev: genl.family("netdev")?,
            genl,
        })
    }

    /// Opens a socket for the `netdev` family's notifications, if the kernel has it.
    pub fn subscribe_devices(
        &mut self,
        receive_buffer: usize,
    ) -> Result<Option<Socket>, MirrorError> {
        let Some(group) = self.netdev.as_ref().and_then(|it| it.group("mgmt")) else {
            return Ok(None);
        };
        let socket = Socket::open(NETLINK_GENERIC)?.for_events(receive_buffer)?;
        socket.join(group)?;
        Ok(Some(socket))
    }

    /// Waits until the kernel has done all that belongs to the notifications sent so far. The
    /// kernel notifies of a link that goes down, or of a removed address, before it flushes the
    /// routes. It holds the RTNL lock all the while. A request for one link takes that lock, but
    /// dumps no longer do (IPv4 since Linux 6.9).
    pub fn settle(&mut self) -> Result<(), MirrorError> {
        let mut body = [0; IFINFOMSG];
        // The loopback device, which every namespace has.
        body[4] = 1;
        let request = Request {
            name: "get the loopback device",
            kind: libc::RTM_GETLINK,
            body: &body,
        };
        self.requester.one(request, link::decode)?;
        Ok(())
    }

    /// Returns all links.
    pub fn links(&mut self) -> Result<Vec<LinkState>, MirrorError> {
        link::dump(&mut self.requester, link::decode)
    }

    /// Returns the settings of all links.
    pub fn settings(&mut self) -> Result<Vec<(IfIndex, Settings)>, MirrorError> {
        let links = self.links()?;
        Ok(links
            .into_iter()
            .map(|it| (it.ifindex, it.settings))
            .collect())
    }

    /// Returns the routes of a family that `filter` selects, or none if its link or table no longer
    /// exists.
    pub fn routes(
        &mut self,
        family: Family,
        filter: RouteFilter,
    ) -> Result<Vec<Reported>, MirrorError> {
        let mut fixed = [0; RTMSG];
        fixed[0] = number(family);
        // rtm_protocol.
        fixed[5] = filter.protocol;
        let mut body = Body::new(&fixed);
        if let Some(TableId(table)) = filter.table {
            body.attribute(libc::RTA_TABLE, &table.to_ne_bytes());
        }
        if let Some(IfIndex(dev)) = filter.dev {
            body.attribute(libc::RTA_OIF, &dev.to_ne_bytes());
        }
        let request = Request {
            name: "list the routes",
            kind: libc::RTM_GETROUTE,
            body: &body.0,
        };
        let mut last = NextHops::default();
        let decode = |message: &Message<'_>| {
            let mut reported = route::decode(message)?;
            // Most of many routes have the next hops of the route before.
            if reported.route.next_hops == last {
                reported.route.next_hops.clone_from(&last);
            } else {
                last.clone_from(&reported.route.next_hops);
            }
            Some(reported)
        };
        match self.requester.dump(request, decode) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Returns the address of `ip sr tunsrc`.
    pub fn tunsrc(&mut self) -> Result<Option<Ipv6Addr>, MirrorError> {
        self.genl.tunsrc()
    }

    /// Returns the keys of `ip sr hmac`.
    pub fn hmac_keys(&mut self) -> Result<HmacKeys, MirrorError> {
        self.genl.hmac_keys()
    }

    /// Returns the XDP features of each device, if the kernel reports them.
    pub fn xdp_features(&mut self) -> Result<Option<Vec<(IfIndex, u64)>>, MirrorError> {
        let Some(netdev) = &self.netdev else {
            return Ok(None);
        };
        self.genl.xdp_features(netdev).map(Some)
    }

    /// Requests the kernel to resolve a neighbor or to check its reachability, as if the kernel had
    /// a packet for it. Returns false if the neighbor has another owner; it is then not changed.
    ///
    /// The entry is read right before `NTF_USE` is sent, because this request would clear
    /// `PERMANENT`, `managed` and `extern_learn` (net/core/neighbour.c, `__neigh_update`).
    pub fn use_neighbor(&mut self, key: (IfIndex, IpAddr)) -> Result<bool, MirrorError> {
        let ask = Request {
            name: "get a neighbor",
            kind: libc::RTM_GETNEIGH,
            body: &neighbor::request(key, 0).0,
        };
        let known = match self.requester.one(ask, neighbor::decode) {
            Err(error) if error.errno() == Some(libc::ENOENT) => None,
            other => other?,
        };
        if known.is_some_and(|entry| entry.kept) {
            return Ok(false);
        }
        let ask = Request {
            name: "resolve a neighbor",
            kind: libc::RTM_NEWNEIGH,
            body: &neighbor::request(key, libc::NTF_USE).0,
        };
        self.requester.create(ask)?;
        Ok(true)
    }

    /// Returns the policy rules of a family.
    pub fn rules(&mut self, family: Family) -> Result<Vec<ReportedRule>, MirrorError> {
        let mut body = [0; FIB_RULE_HDR];
        body[0] = number(family);
        let request = Request {
            name: "list the policy rules",
            kind: libc::RTM_GETRULE,
            body: &body,
        };
        match self.requester.dump(request, rule::decode) {
            // A kernel without policy routing, or without the family.
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            other => other,
        }
    }

    fn netconf(&mut self, family: Family) -> Result<Vec<Netconf>, MirrorError> {
        let mut body = [0; NETCONFMSG];
        body[0] = number(family);
        let request = Request {
            name: "list the interface settings",
            kind: libc::RTM_GETNETCONF,
            body: &body,
        };
        match self.requester.dump(request, netconf::decode) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Returns all addresses, or the IPv6 addresses of one link.
    pub fn addresses(&mut self, dev: Option<IfIndex>) -> Result<Vec<Notice>, MirrorError> {
        let mut body = [0; IFADDRMSG];
        if let Some(IfIndex(dev)) = dev {
            body[0] = libc::AF_INET6 as u8;
            body[4..].copy_from_slice(&dev.to_ne_bytes());
        }
        let request = Request {
            name: "list the addresses",
            kind: libc::RTM_GETADDR,
            body: &body,
        };
        match self.requester.dump(request, address::decode) {
            Err(error) if dev.is_some() && is_missing(&error) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Returns the label table of `ip addrlabel`, in the order in which the kernel matches.
    pub fn address_labels(&mut self) -> Result<Vec<AddressLabel>, MirrorError> {
        let mut body = [0; IFADDRLBLMSG];
        body[0] = libc::AF_INET6 as u8;
        let request = Request {
            name: "list the address labels",
            kind: RTM_GETADDRLABEL,
            body: &body,
        };
        match self.requester.dump(request, address::decode_label) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            other => other,
        }
    }

    /// All nexthop objects.
    pub fn objects(&mut self) -> Result<Vec<Object>, MirrorError> {
        let request = Request {
            name: "list the nexthop objects",
            kind: RTM_GETNEXTHOP,
            body: &[0; NHMSG],
        };
        self.requester.dump(request, object::decode)
    }

    /// Returns the ports of all bridges.
    fn bridge_ports(&mut self) -> Result<Vec<(IfIndex, bridge::Port)>, MirrorError> {
        let request = Request {
            name: "list the ports of bridges",
            kind: libc::RTM_GETLINK,
            body: &bridge::ports_request().0,
        };
        let decode = |message: &Message<'_>| {
            let (dev, port) = bridge::decode_port(message)?;
            Some((dev, port?))
        };
        match self.requester.dump(request, decode) {
            // A kernel without bridges.
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Returns the stations of all bridges.
    fn stations(&mut self) -> Result<Vec<bridge::Station>, MirrorError> {
        let request = Request {
            name: "list the stations of bridges",
            kind: libc::RTM_GETNEIGH,
            body: &bridge::stations_request().0,
        };
        match self.requester.dump(request, bridge::decode_station) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Renews a station.
    pub fn use_station(&mut self, port: IfIndex, mac: Mac) -> Result<(), MirrorError> {
        let request = Request {
            name: "renew a station of a bridge",
            kind: libc::RTM_NEWNEIGH,
            body: &bridge::use_request(port, mac).0,
        };
        match self.requester.create(request) {
            // The port has left its bridge.
            Err(error) if is_missing(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    fn neighbors(&mut self) -> Result<Vec<neighbor::Entry>, MirrorError> {
        let request = Request {
            name: "list the neighbors",
            kind: libc::RTM_GETNEIGH,
            body: &[0; NDMSG],
        };
        self.requester.dump(request, neighbor::decode)
    }
}

/// All state that notifications keep current.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub links: Vec<LinkState>,
    pub xdp_features: Option<Vec<(IfIndex, u64)>>,
    pub netconf: Vec<Netconf>,
    pub addresses: Vec<Notice>,
    pub neighbors: Vec<neighbor::Entry>,
    pub bridge_ports: Vec<(IfIndex, bridge::Port)>,
    pub stations: Vec<bridge::Station>,
    pub rules: Vec<ReportedRule>,
    pub objects: Vec<Object>,
    pub routes: Vec<Reported>,
}

impl Snapshot {
    /// Dumps everything.
    pub fn read(kernel: &mut Kernel) -> Result<Self, MirrorError> {
        let mut snapshot = Self {
            links: kernel.links()?,
            xdp_features: kernel.xdp_features()?,
            addresses: kernel.addresses(None)?,
            neighbors: kernel.neighbors()?,
            bridge_ports: kernel.bridge_ports()?,
            stations: kernel.stations()?,
            objects: kernel.objects()?,
            ..Self::default()
        };
        for family in [Family::V4, Family::V6] {
            snapshot.netconf.extend(kernel.netconf(family)?);
            snapshot.rules.extend(kernel.rules(family)?);
            snapshot
                .routes
                .extend(kernel.routes(family, RouteFilter::default())?);
        }
        Ok(snapshot)
    }
}

/// Routes to dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RouteFilter {
    /// Only routes of this table.
    pub table: Option<TableId>,
    /// Only routes with this `proto`. 0: any.
    pub protocol: u8,
    /// Only routes with a next hop on this link.
    pub dev: Option<IfIndex>,
}

impl RouteFilter {
    /// Selects the routes with next hops on a link.
    pub fn of_link(dev: IfIndex) -> Self {
        Self {
            dev: Some(dev),
            ..Self::default()
        }
    }

    /// Returns whether the filter selects the route.
    pub fn selects(&self, route: &Route) -> bool {
        self.table.is_none_or(|table| table == route.key.table)
            && (self.protocol == 0 || self.protocol == route.protocol)
            && (self.dev.is_none() || route.next_hops.iter().any(|hop| hop.dev == self.dev))
    }
}

/// Whether the kernel has no such objects: no such family (`ipv6.disable=1`), link or table.
fn is_missing(error: &MirrorError) -> bool {
    let missing = [
        libc::EOPNOTSUPP,
        libc::EAFNOSUPPORT,
        libc::ENODEV,
        libc::ENOENT,
    ];
    error.errno().is_some_and(|errno| missing.contains(&errno))
}

// include/uapi/linux/rtnetlink.h.
const RTM_GETADDRLABEL: u16 = 74;
const RTM_GETNEXTHOP: u16 = 106;

/// `AF_INET` or `AF_INET6`.
fn number(family: Family) -> u8 {
    match family {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    }
}
