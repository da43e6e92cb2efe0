//! The kernel's own lookup: `ip route get TO from FROM iif IF`, by a socket of its own.

use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Result of the kernel for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// By this interface, to this next hop if it is not the destination itself.
    Forward {
        ifindex: u32,
        gateway: Option<IpAddr>,
    },
    /// It is for this node.
    Local,
    /// An error, positive.
    Error(i32),
}

/// A netlink socket.
pub struct Linux {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Linux {
    /// Queries the calling thread's network namespace.
    pub fn open() -> Self {
        let mut socket = Socket::new(NETLINK_ROUTE).expect("a socket");
        socket.bind_auto().expect("bound");
        Self {
            socket,
            buffer: Vec::with_capacity(4096),
        }
    }

    /// Looks up a packet that comes in by `ingress`.
    pub fn lookup(&mut self, to: IpAddr, from: IpAddr, ingress: u32) -> Answer {
        let request = request(to, from, ingress);
        self.socket
            .send_to(&request, &SocketAddr::new(0, 0), 0)
            .expect("sent");
        self.buffer.clear();
        self.socket
            .recv_from(&mut self.buffer, 0)
            .expect("an answer");
        answer(&self.buffer)
    }
}

/// `RTM_GETROUTE`: struct nlmsghdr, struct rtmsg, attributes.
fn request(to: IpAddr, from: IpAddr, ingress: u32) -> Vec<u8> {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (family, bits) = if to.is_ipv4() {
        (AF_INET, 32)
    } else {
        (AF_INET6, 128)
    };
    let mut body = vec![family, bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (kind, value) in [
        (RTA_DST, bytes(to)),
        (RTA_SRC, bytes(from)),
        (RTA_IIF, ingress.to_ne_bytes().to_vec()),
    ] {
        body.extend((value.len() as u16 + 4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    let mut message = (body.len() as u32 + HEADER as u32).to_ne_bytes().to_vec();
    message.extend(RTM_GETROUTE.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn answer(message: &[u8]) -> Answer {
    let u16_at = |at: usize| u16::from_ne_bytes([message[at], message[at + 1]]);
    let u32_at = |at: usize| {
        u32::from_ne_bytes([
            message[at],
            message[at + 1],
            message[at + 2],
            message[at + 3],
        ])
    };
    if u16_at(4) == NLMSG_ERROR {
        return Answer::Error(-(u32_at(HEADER) as i32));
    }
    if matches!(message[HEADER + 7], RTN_LOCAL | RTN_ANYCAST) {
        return Answer::Local;
    }
    let (mut ifindex, mut gateway) = (None, None);
    let mut at = HEADER + 12;
    while at + 4 <= message.len() {
        let value = &message[at + 4..at + usize::from(u16_at(at)).max(4)];
        match u16_at(at + 2) {
            RTA_OIF => ifindex = Some(u32_at(at + 4)),
            RTA_GATEWAY => gateway = address(value),
            _ => {}
        }
        at += usize::from(u16_at(at)).max(4).next_multiple_of(4);
    }
    let ifindex = ifindex.unwrap_or_else(|| panic!("an answer without an interface: {message:?}"));
    Answer::Forward { ifindex, gateway }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

// include/uapi/linux/netlink.h, rtnetlink.h.
const HEADER: usize = 16;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTN_LOCAL: u8 = 2;
const RTN_ANYCAST: u8 = 4;
