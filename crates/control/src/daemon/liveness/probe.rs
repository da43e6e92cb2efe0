//! Socket that probes one service, in the daemon's network namespace and on the service's interface
//! only. The kernel chooses the route, resolves the neighbor and delivers the replies, because the
//! packet path punts packets for the node itself.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ipnet::IpNet;
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
    SockaddrLike, SockaddrStorage, bind, connect, recvfrom, sendto, setsockopt, socket, sockopt,
};
use sidestep_model::behavior::proxy::Probe;
use sidestep_model::node::{Link, Mac, Node};
use sidestep_model::service::Service;

use super::Prober;
use super::message::{self, Identifier};
use super::watch::UNANSWERED;
use crate::icmp::socket::{hear_icmp4, hear_icmp6};
use crate::link_address::link_address;

/// LIMIT: messages read per service and round. The rest waits for the next round, so that a flood
/// of one socket delays nothing else.
const AT_ONCE: usize = 64;
/// LIMIT: descriptors that probers leave for clients of the daemon and for tables that grow.
const RESERVE: u64 = 64;

/// Probes one service.
#[derive(Debug)]
pub(in super::super) struct ProbeSocket {
    socket: OwnedFd,
    kind: ProbeKind,
    /// Source address of the probe; none: the kernel chooses.
    source: Option<IpAddr>,
    identifier: Identifier,
    sequence: u16,
    /// Number of recent probes whose reply may still arrive.
    open: u16,
}

/// Why a probe could not be sent.
#[derive(Debug)]
pub(in super::super) enum Failure {
    /// There is no socket, which says nothing about the service.
    NoSocket(io::Error),
    /// There is no route to the service.
    Unreachable(io::Error),
}

impl Failure {
    pub fn error(&self) -> &io::Error {
        match self {
            Self::NoSocket(error) | Self::Unreachable(error) => error,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Unreachable(errno.into())
    }
}

/// Form and target of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    Echo6(Ipv6Addr),
    Echo4(Ipv4Addr),
    Solicitation(Ipv6Addr),
    Arp(Ipv4Addr),
}

impl ProbeKind {
    fn of(service: &Service) -> io::Result<Self> {
        let lacking = || io::Error::new(io::ErrorKind::InvalidInput, "the service has no address");
        let address = service.address.ok_or_else(lacking)?;
        Ok(match (service.liveness.probe, address) {
            (Probe::Icmp, IpAddr::V6(address)) => Self::Echo6(address),
            (Probe::Icmp, IpAddr::V4(address)) => Self::Echo4(address),
            (Probe::Arp | Probe::Link, IpAddr::V6(address)) => Self::Solicitation(address),
            (Probe::Arp | Probe::Link, IpAddr::V4(address)) => Self::Arp(address),
        })
    }
}

impl ProbeSocket {
    /// Opens a socket for a service that is probed and has an address, as the model ensures.
    /// `identifier` must be unique.
    pub fn open(service: &Service, node: &Node, identifier: Identifier) -> Result<Self, Failure> {
        let kind = ProbeKind::of(service)?;
        let link = link(service, node)?;
        let source = source(kind, link, node);
        let mut prober = Self {
            socket: create(kind)?,
            kind,
            source: None,
            identifier,
            sequence: 0,
            open: 0,
        };
        prober.connect_to(link, source)?;
        Ok(prober)
    }

    /// Connects the socket to the service, so that the kernel filters other senders as far as it
    /// can.
    fn connect_to(&mut self, link: &Link, source: Option<IpAddr>) -> Result<(), Failure> {
        let socket = self.socket.as_raw_fd();
        if let ProbeKind::Arp(_) = self.kind {
            // Only ARP packets: other packets on a port in use would each cost time.
            bind(socket, &arp_address(link, Mac::default()))?;
            return Ok(());
        }
        let name = OsString::from(link.name.clone());
        setsockopt(&self.socket, sockopt::BindToDevice, &name)?;
        if let ProbeKind::Solicitation(_) = self.kind {
            // RFC 4861 7.1.1: other hop limits are ignored.
            setsockopt(&self.socket, sockopt::Ipv6MulticastHops, &255)?;
        }
        // An address that is still tentative (duplicate address detection) is tried again with the
        // next probe.
        self.source = source.filter(|source| {
            let bound = match *source {
                IpAddr::V6(source) => bind(socket, &inet6(source, link)),
                IpAddr::V4(source) => bind(socket, &inet4(source)),
            };
            bound.is_ok()
        });
        // Connecting fixes the source address: the kernel's choice may change before the next
        // probe.
        if self.source.is_some() {
            match self.kind {
                ProbeKind::Echo6(to) => connect(socket, &inet6(to, link))?,
                ProbeKind::Echo4(to) => connect(socket, &inet4(to))?,
                ProbeKind::Solicitation(_) | ProbeKind::Arp(_) => {}
            }
        }
        Ok(())
    }

    /// Descriptor that is readable when a reply may have arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn send(&self, message: &[u8], to: &dyn SockaddrLike) -> Result<(), Failure> {
        let send = || sendto(self.socket.as_raw_fd(), message, to, MsgFlags::MSG_DONTWAIT);
        // The first error may belong to the previous probe.
        send().or_else(|_| send())?;
        Ok(())
    }

    fn is_reply(&mut self, message: &[u8], from: Option<SockaddrStorage>) -> bool {
        let from = || ip(from?);
        let sequence = match self.kind {
            ProbeKind::Echo6(of) if from() == Some(of.into()) => {
                message::echo_reply_6(message, self.identifier)
            }
            ProbeKind::Echo4(of) if from() == Some(of.into()) => {
                message::echo_reply_4(message, self.identifier)
            }
            ProbeKind::Echo6(_) | ProbeKind::Echo4(_) => None,
            ProbeKind::Solicitation(of) => return message::is_advertisement(message, of),
            ProbeKind::Arp(of) => return message::is_arp_reply(message, of),
        };
        let ago = sequence.map(|sequence| self.sequence.wrapping_sub(sequence));
        let Some(ago) = ago.filter(|ago| *ago < self.open) else {
            return false;
        };
        // Each probe has one reply.
        self.open = ago;
        true
    }
}

impl Prober for ProbeSocket {
    /// Whether the source address of the socket is still the right one.
    fn is_current(&self, service: &Service, node: &Node) -> bool {
        let link = node.links.get(&service.dev);
        link.is_some_and(|link| source(self.kind, link, node) == self.source)
    }

    fn probe(&mut self, service: &Service, node: &Node) -> Result<(), Failure> {
        let link = link(service, node)?;
        self.sequence = self.sequence.wrapping_add(1);
        // A service that did not answer the earlier probes is down by now.
        self.open = (self.open + 1).min(UNANSWERED as u16);
        match self.kind {
            ProbeKind::Echo6(to) => self.send(
                &message::echo_request_6(self.identifier, self.sequence),
                &inet6(to, link),
            ),
            ProbeKind::Echo4(to) => self.send(
                &message::echo_request_4(self.identifier, self.sequence),
                &inet4(to),
            ),
            ProbeKind::Solicitation(of) => self.send(
                &message::solicitation(of, link.mac),
                &inet6(message::solicited_node(of), link),
            ),
            ProbeKind::Arp(of) => self.send(
                &message::arp_request(of, link.mac, own_address(of, link, node)),
                &arp_address(link, BROADCAST),
            ),
        }
    }

    /// Reads at most [`AT_ONCE`] messages and returns whether there was a reply.
    fn has_reply(&mut self) -> bool {
        let mut replied = false;
        let mut buffer = [0; 256];
        for _ in 0..AT_ONCE {
            match recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut buffer) {
                Ok((length, from)) => replied |= self.is_reply(&buffer[..length], from),
                Err(Errno::EAGAIN) => break,
                // A pending socket error, such as a link that went down or an ICMP error from a
                // router. A reply may follow.
                Err(_) => {}
            }
        }
        replied
    }
}

fn link<'a>(service: &Service, node: &'a Node) -> io::Result<&'a Link> {
    let link = node.links.get(&service.dev);
    link.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the interface does not exist"))
}

/// Opens a socket that receives possible replies.
fn create(kind: ProbeKind) -> Result<OwnedFd, Failure> {
    let no_socket = |errno: Errno| Failure::NoSocket(errno.into());
    let raw = |family, protocol| socket(family, SockType::Raw, FLAGS, protocol);
    let socket = match kind {
        ProbeKind::Echo6(_) | ProbeKind::Solicitation(_) => {
            raw(AddressFamily::Inet6, SockProtocol::IcmpV6)
        }
        ProbeKind::Echo4(_) => raw(AddressFamily::Inet, SockProtocol::Icmp),
        ProbeKind::Arp(_) => socket(AddressFamily::Packet, SockType::Datagram, FLAGS, None),
    }
    .map_err(no_socket)?;
    // The kernel assigns the lowest free descriptor.
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    if limit.is_ok_and(|(soft, _)| socket.as_raw_fd() as u64 + RESERVE >= soft) {
        return Err(no_socket(Errno::EMFILE));
    }
    match kind {
        ProbeKind::Echo6(_) => hear_icmp6(&socket, &[message::ECHO_REPLY_6]),
        ProbeKind::Solicitation(_) => hear_icmp6(&socket, &[message::NEIGHBOR_ADVERTISEMENT]),
        ProbeKind::Echo4(_) => hear_icmp4(&socket, &[message::ECHO_REPLY_4]),
        ProbeKind::Arp(_) => Ok(()),
    }?;
    Ok(socket)
}

/// Returns an address of the service's interface, so that the reply arrives there, whatever other
/// addresses and routes the node has. None if the interface has no address.
fn source(kind: ProbeKind, link: &Link, node: &Node) -> Option<IpAddr> {
    match kind {
        ProbeKind::Echo6(to) | ProbeKind::Solicitation(to) => {
            own_address6(to, link, node).map(IpAddr::V6)
        }
        ProbeKind::Echo4(to) => own_address(to, link, node).map(IpAddr::V4),
        // ARP has no IP header.
        ProbeKind::Arp(_) => None,
    }
}

/// Returns the address in the prefix of `to`, otherwise any.
fn own_address(to: Ipv4Addr, link: &Link, node: &Node) -> Option<Ipv4Addr> {
    let own = node.addresses.iter().filter_map(|(on, net)| match net {
        IpNet::V4(net) if *on == link.ifindex => Some(net),
        _ => None,
    });
    // Takes the first of several equally good addresses.
    let best = own.min_by_key(|net| !net.contains(&to));
    best.map(ipnet::Ipv4Net::addr)
}

/// Returns the address in the prefix of `to`, otherwise one with the scope of `to`. A link-local
/// address is sufficient: a service on the link can reply to it.
fn own_address6(to: Ipv6Addr, link: &Link, node: &Node) -> Option<Ipv6Addr> {
    let own = node.addresses.iter().filter_map(|(on, net)| match net {
        IpNet::V6(net) if *on == link.ifindex => Some(net),
        _ => None,
    });
    let is_link_local = |address: Ipv6Addr| address.is_unicast_link_local();
    let best = own.min_by_key(|net| {
        let other_scope = is_link_local(net.addr()) != is_link_local(to);
        (!net.contains(&to), other_scope)
    });
    best.map(ipnet::Ipv6Net::addr)
}

/// Returns the IP address of the sender.
fn ip(from: SockaddrStorage) -> Option<IpAddr> {
    let v6 = from.as_sockaddr_in6().map(|from| from.ip().into());
    v6.or_else(|| from.as_sockaddr_in().map(|from| from.ip().into()))
}

fn inet6(address: Ipv6Addr, link: &Link) -> SockaddrIn6 {
    SockaddrIn6::from(SocketAddrV6::new(address, 0, 0, link.ifindex.0))
}

fn inet4(address: Ipv4Addr) -> SockaddrIn {
    SockaddrIn::from(SocketAddrV4::new(address, 0))
}

fn arp_address(link: &Link, mac: Mac) -> LinkAddr {
    link_address(link.ifindex, libc::ETH_P_ARP as u16, mac)
}

const BROADCAST: Mac = Mac([0xff; 6]);
const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    const SERVICE: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const ME: Identifier = Identifier(7);

    /// A prober that receives everything sent to the returned socket's peer.
    fn prober(kind: ProbeKind) -> (ProbeSocket, UdpSocket) {
        let [ours, theirs] =
            [(); 2].map(|()| UdpSocket::bind((SERVICE, 0)).expect("a socket on the loopback"));
        theirs
            .connect(ours.local_addr().expect("it is bound"))
            .expect("it is there");
        ours.set_nonblocking(true).expect("it is open");
        let prober = ProbeSocket {
            socket: ours.into(),
            kind,
            source: None,
            identifier: ME,
            sequence: 0,
            open: 0,
        };
        (prober, theirs)
    }

    fn echo_reply(identifier: Identifier, sequence: u16) -> Vec<u8> {
        let mut message = message::echo_request_4(identifier, sequence);
        message[0] = message::ECHO_REPLY_4;
        // A raw socket delivers the IPv4 header, too.
        [&[0x45; 20][..], &message].concat()
    }

    #[test]
    fn a_flood_is_read_in_portions() {
        let (mut prober, service) = prober(ProbeKind::Arp(SERVICE));
        let mut reply = message::arp_request(SERVICE, Mac::default(), Some(SERVICE));
        reply[7] = 2;
        for _ in 0..AT_ONCE {
            service.send(b"unrelated").expect("it is sent");
        }
        service.send(&reply).expect("it is sent");
        assert!(
            !prober.has_reply(),
            "more than {AT_ONCE} messages were read"
        );
        assert!(prober.has_reply(), "the reply after them was lost");
        assert!(!prober.has_reply(), "no message remains");
    }

    #[test]
    fn only_the_first_reply_from_the_service_counts() {
        let (mut prober, service) = prober(ProbeKind::Echo4(SERVICE));
        let hears = |prober: &mut ProbeSocket, identifier, sequence| {
            let reply = echo_reply(identifier, sequence);
            service.send(&reply).expect("it is sent");
            prober.has_reply()
        };
        // Three probes; replies to two of them may still arrive.
        (prober.sequence, prober.open) = (3, UNANSWERED as u16);
        assert!(!hears(&mut prober, ME, 4), "not probed yet");
        assert!(!hears(&mut prober, ME, 1), "too old");
        assert!(!hears(&mut prober, Identifier(8), 3), "of another prober");
        assert!(hears(&mut prober, ME, 2), "late");
        assert!(!hears(&mut prober, ME, 2), "twice");
        assert!(hears(&mut prober, ME, 3));
        assert!(!hears(&mut prober, ME, 3), "twice");
        prober.open = 1;
        prober.kind = ProbeKind::Echo4(Ipv4Addr::new(127, 0, 0, 2));
        assert!(!hears(&mut prober, ME, 3), "from another address");
    }
}
