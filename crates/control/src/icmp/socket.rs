//! Raw sockets that send ICMP messages and receive errors for this node. The kernel chooses route
//! and source address, and it writes the IP header and the `ICMPv6` checksum.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
    SockaddrIn6, recv, sendmsg, socket,
};
use sidestep_model::node::IfIndex;

use super::Message;

/// Raw sockets of both families, in the network namespace that they were opened in.
#[derive(Debug)]
pub struct Sockets {
    v6: OwnedFd,
    v4: OwnedFd,
}

/// ICMPv6 types that the socket receives.
const HEARD: [u8; 3] = [1, 2, 3];

impl Sockets {
    /// Opens both sockets; requires `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        let open = |family, protocol| socket(family, SockType::Raw, FLAGS, protocol);
        let v6 = open(AddressFamily::Inet6, SockProtocol::IcmpV6)?;
        hear_icmp6(&v6, &HEARD)?;
        // Replies come from a SID, which is not an address of the node.
        set(&v6, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, &1i32)?;
        let v4 = open(AddressFamily::Inet, SockProtocol::Icmp)?;
        hear_icmp4(&v4, &[])?;
        // For the dummy address.
        set(&v4, libc::SOL_IP, libc::IP_TRANSPARENT, &1i32)?;
        Ok(Self { v6, v4 })
    }

    /// Sends a message by the routes of this VRF device. None: by the routes of the default VRF.
    pub fn send(&self, message: &Message, vrf: Option<IfIndex>) -> io::Result<()> {
        let ifindex = vrf.map_or(0, |vrf| vrf.0);
        let bytes = [IoSlice::new(&message.bytes)];
        match message.to {
            IpAddr::V6(to) => {
                let from = message.from.unwrap_or(Ipv6Addr::UNSPECIFIED);
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: from.octets(),
                    },
                    ipi6_ifindex: ifindex,
                };
                let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, 0));
                let control = [ControlMessage::Ipv6PacketInfo(&info)];
                sendmsg(self.v6.as_raw_fd(), &bytes, &control, DONT_WAIT, Some(&to))?;
            }
            IpAddr::V4(to) => {
                let from = if has_source(to, ifindex)? {
                    Ipv4Addr::UNSPECIFIED
                } else {
                    DUMMY
                };
                let info = libc::in_pktinfo {
                    ipi_ifindex: ifindex as i32,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: from.to_bits().to_be(),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
                let control = [ControlMessage::Ipv4PacketInfo(&info)];
                sendmsg(self.v4.as_raw_fd(), &bytes, &control, DONT_WAIT, Some(&to))?;
            }
        }
        Ok(())
    }

    /// Descriptor that is readable when an error for this node has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.v6.as_fd()
    }

    /// Returns the next received message from its type on, without blocking.
    pub fn hear(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; HEARD_MAX];
        let length = recv(self.v6.as_raw_fd(), &mut buffer, DONT_WAIT).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }
}

/// Returns whether the node has a source address for packets to this destination by the routes of
/// this interface (0: any).
fn has_source(to: Ipv4Addr, ifindex: u32) -> io::Result<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    if ifindex != 0 {
        set(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_BINDTOIFINDEX,
            &(ifindex as i32),
        )?;
    }
    // Sends nothing.
    socket.connect((to, 9))?;
    Ok(!socket.local_addr()?.ip().is_unspecified())
}

/// Makes a raw socket receive only these `ICMPv6` types.
pub(crate) fn hear_icmp6(socket: &OwnedFd, types: &[u8]) -> io::Result<()> {
    let mut filter = [u32::MAX; 8];
    for kind in types {
        filter[usize::from(*kind) / 32] &= !(1 << (kind % 32));
    }
    set(socket, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &filter)
}

/// Makes a raw socket receive only these ICMP types below 32. The kernel delivers types from 32 on
/// anyway (raw(7)).
pub(crate) fn hear_icmp4(socket: &OwnedFd, types: &[u8]) -> io::Result<()> {
    let filter = types
        .iter()
        .fold(u32::MAX, |filter, kind| filter & !(1 << kind));
    set(socket, libc::SOL_RAW, ICMP_FILTER, &filter)
}

/// Sets a socket option whose value is plain bytes, or has pointers that the kernel only reads.
pub(crate) fn set<T: Copy>(
    socket: &impl AsRawFd,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which the kernel copies.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    nix::errno::Errno::result(result)?;
    Ok(())
}

/// RFC 7600: source of ICMP errors of a node without an IPv4 address. Linux uses it for its own
/// errors (`INADDR_DUMMY`).
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// `linux/icmpv6.h`, RFC 3542 3.2: a set bit blocks a type.
const ICMP6_FILTER: i32 = 1;
/// `linux/icmp.h`.
const ICMP_FILTER: i32 = 1;
/// Receive buffer, in bytes. An error is at most 1280 bytes (RFC 4443 2.4(c)); the rest of a longer
/// message is not needed.
const HEARD_MAX: usize = 2048;
const DONT_WAIT: MsgFlags = MsgFlags::MSG_DONTWAIT;
const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);
