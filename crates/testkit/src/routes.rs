//! Adds and removes IPv6 routes at the speed of the kernel: netlink requests, many in one datagram.
//! `ip -batch` spends most of its time on parsing.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use crate::{Error, Namespace};

/// A prefix: address and length in bits.
pub type Prefix = (Ipv6Addr, u8);

/// A socket of one namespace. It may be used from any thread.
#[derive(Debug)]
pub struct RouteSocket {
    socket: OwnedFd,
    pending: Vec<u8>,
}

/// Operation on a route of table main.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds the route with this next hop, or replaces an existing one.
    Replace(Ipv6Addr),
    /// Removes the route.
    Delete,
}

impl RouteSocket {
    /// Opens a socket in a namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn open(namespace: &Namespace) -> Result<Self, Error> {
        let open = || {
            socket(
                AddressFamily::Netlink,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkRoute,
            )
        };
        let socket = namespace.run(open)?;
        let socket = socket.map_err(|errno| Error::os("netlink socket", errno))?;
        Ok(Self {
            socket,
            pending: Vec::new(),
        })
    }

    /// Prepares a change of the route to a prefix, with this egress interface index.
    pub fn prepare(&mut self, (address, length): Prefix, change: Change, ifindex: u32) {
        let (kind, flags, protocol) = match change {
            Change::Replace(_) => (
                libc::RTM_NEWROUTE,
                libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_REPLACE,
                libc::RTPROT_STATIC,
            ),
            // Regardless of its origin.
            Change::Delete => (libc::RTM_DELROUTE, libc::NLM_F_REQUEST, libc::RTPROT_UNSPEC),
        };
        let mut body = vec![libc::AF_INET6 as u8, length, 0, 0, libc::RT_TABLE_MAIN];
        body.extend([protocol, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST]);
        body.extend([0; 4]);
        attribute(&mut body, libc::RTA_DST, &address.octets());
        if let Change::Replace(via) = change {
            attribute(&mut body, libc::RTA_GATEWAY, &via.octets());
            attribute(&mut body, libc::RTA_OIF, &ifindex.to_ne_bytes());
        }
        let length = (HEADER + body.len()) as u32;
        self.pending.extend(length.to_ne_bytes());
        self.pending.extend(kind.to_ne_bytes());
        self.pending.extend((flags as u16).to_ne_bytes());
        self.pending.extend([0; 8]);
        self.pending.extend(body);
    }

    /// Sends the prepared changes. When this returns, the kernel has applied all changes that it
    /// did not refuse.
    ///
    /// # Errors
    /// The first refused change, or an error of the socket.
    pub fn send(&mut self) -> Result<(), Error> {
        let failed = |source: io::Error| Error::os("change of routes", source);
        let pending = std::mem::take(&mut self.pending);
        let (fd, kernel) = (self.socket.as_raw_fd(), NetlinkAddr::new(0, 0));
        sendto(fd, &pending, &kernel, MsgFlags::empty()).map_err(|errno| failed(errno.into()))?;
        let mut refused = None;
        let mut answer = [0; 4096];
        // Without NLM_F_ACK the kernel reports only errors, and it does so before `sendto` returns.
        while let Ok(length) = recv(fd, &mut answer, MsgFlags::MSG_DONTWAIT) {
            let code = answer[..length].get(HEADER..HEADER + 4);
            let code = code
                .and_then(|code| code.try_into().ok())
                .map(i32::from_ne_bytes);
            refused = refused.or(code);
        }
        match refused {
            Some(code) => Err(failed(io::Error::from_raw_os_error(-code))),
            None => Ok(()),
        }
    }
}

/// Appends one attribute, a multiple of four bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
