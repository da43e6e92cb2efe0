//! Adds routes to the kernel, many per message. A million calls of `ip` would take too long.

use std::io;

use netlink_sys::constants::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use sidestep_fib::Prefix;

/// Operation on routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add or replace.
    Replace,
    /// Remove.
    Remove,
}

/// A socket for routes in the network namespace in which it was opened.
pub struct Routes {
    socket: Socket,
    sequence: u32,
}

impl Routes {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Applies the change to all of these routes, each with its egress interface index.
    ///
    /// # Errors
    /// The first error that the kernel reports.
    pub fn send(
        &mut self,
        change: Change,
        routes: impl Iterator<Item = (Prefix, u32)>,
    ) -> io::Result<()> {
        let mut messages = Vec::new();
        let mut last = 0;
        for (prefix, device) in routes {
            last = messages.len();
            self.sequence = self.sequence.wrapping_add(1);
            push_route(&mut messages, change, self.sequence, prefix, device);
        }
        if messages.is_empty() {
            return Ok(());
        }
        // Request an acknowledgement of the last message only. The kernel still reports errors of
        // the others.
        let flags = &mut messages[last + 6..last + 8];
        let acknowledged = u16::from_ne_bytes([flags[0], flags[1]]) | libc::NLM_F_ACK as u16;
        flags.copy_from_slice(&acknowledged.to_ne_bytes());
        self.socket.send(&messages, 0)?;
        self.acknowledgement()
    }

    /// Reads replies up to the one for the last message.
    fn acknowledgement(&mut self) -> io::Result<()> {
        let mut refused = Ok(());
        loop {
            let (answers, _) = self.socket.recv_from_full()?;
            let mut rest = &answers[..];
            while rest.len() >= HEADER + 4 {
                let word = |at: usize| {
                    u32::from_ne_bytes(rest[at..at + 4].try_into().expect("four bytes"))
                };
                let (length, sequence, error) = (word(0) as usize, word(8), word(HEADER) as i32);
                if error != 0 && refused.is_ok() {
                    refused = Err(io::Error::from_raw_os_error(-error));
                }
                if sequence == self.sequence {
                    return refused;
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of a route's message: header, `struct rtmsg`, destination, gateway, interface.
const MESSAGE: u32 = 16 + 12 + 20 + 20 + 8;

/// Appends `RTM_NEWROUTE` or `RTM_DELROUTE`, as `ip -6 route replace PREFIX via fe80::1 dev DEVICE`
/// sends it.
fn push_route(to: &mut Vec<u8>, change: Change, sequence: u32, prefix: Prefix, device: u32) {
    const GATEWAY: u128 = 0xfe80 << 112 | 1;
    let (kind, flags) = match change {
        Change::Replace => (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE),
        Change::Remove => (libc::RTM_DELROUTE, 0),
    };
    to.extend(MESSAGE.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
    to.extend(sequence.to_ne_bytes());
    to.extend([0; 4]);
    // struct rtmsg: family, destination length, source length, tos, table, protocol, scope, type,
    // flags.
    to.extend([libc::AF_INET6 as u8, prefix.length, 0, 0]);
    to.extend([
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_UNIVERSE,
        libc::RTN_UNICAST,
    ]);
    to.extend([0; 4]);
    push_attribute(to, libc::RTA_DST, &prefix.address.to_be_bytes());
    push_attribute(to, libc::RTA_GATEWAY, &GATEWAY.to_be_bytes());
    push_attribute(to, libc::RTA_OIF, &device.to_ne_bytes());
}

/// Appends a `struct rtattr` whose value has a multiple of four bytes.
fn push_attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend((4 + value.len() as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
}
