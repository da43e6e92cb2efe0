//! The socket by which a service is asked, of the daemon's network namespace and of the service's interface only. The
//! kernel takes part as for any other program: it finds the way and the neighbor, and hands up what comes back, since the
//! packet path leaves to it what is for the node itself.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process;

use ipnet::IpNet;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
    SockaddrLike, bind, recv, sendto, setsockopt, socket, sockopt,
};
use sidestep_model::behavior::proxy::Probe;
use sidestep_model::node::{Link, Mac, Node};
use sidestep_model::service::Service;

use super::message::{self, Identifier};

/// Asks one service.
#[derive(Debug)]
pub(super) struct Prober {
    socket: OwnedFd,
    question: Question,
    identifier: Identifier,
    sequence: u16,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Echo6(Ipv6Addr),
    Echo4(Ipv4Addr),
    Solicitation(Ipv6Addr),
    Arp(Ipv4Addr),
}

impl Prober {
    /// For a service that is asked and has an address, which the model's check sees to.
    pub fn open(service: &Service, node: &Node) -> io::Result<Self> {
        let lacking = || io::Error::new(io::ErrorKind::InvalidInput, "there is no address to ask");
        let address = service.address.ok_or_else(lacking)?;
        let question = match (service.liveness.probe, address) {
            (Probe::Icmp, IpAddr::V6(address)) => Question::Echo6(address),
            (Probe::Icmp, IpAddr::V4(address)) => Question::Echo4(address),
            (Probe::Arp | Probe::Link, IpAddr::V6(address)) => Question::Solicitation(address),
            (Probe::Arp | Probe::Link, IpAddr::V4(address)) => Question::Arp(address),
        };
        let link = link(service, node)?;
        let socket = match question {
            Question::Echo6(_) | Question::Solicitation(_) => {
                raw(link, AddressFamily::Inet6, SockProtocol::IcmpV6)?
            }
            Question::Echo4(_) => raw(link, AddressFamily::Inet, SockProtocol::Icmp)?,
            Question::Arp(_) => arp(link)?,
        };
        if let Question::Solicitation(_) = question {
            // RFC 4861 7.1.1: 255, or it is not heard.
            setsockopt(&socket, sockopt::Ipv6MulticastHops, &255)?;
        }
        Ok(Self {
            socket,
            question,
            // Of two daemons, in two namespaces, each knows its own.
            identifier: Identifier(process::id() as u16),
            sequence: 0,
        })
    }

    /// Readable when something came that may be an answer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Asks once.
    pub fn ask(&mut self, service: &Service, node: &Node) -> io::Result<()> {
        let link = link(service, node)?;
        self.sequence = self.sequence.wrapping_add(1);
        match self.question {
            Question::Echo6(to) => self.send(
                &message::echo_request_6(self.identifier, self.sequence),
                &inet6(to, link),
            ),
            Question::Echo4(to) => self.send(
                &message::echo_request_4(self.identifier, self.sequence),
                &SockaddrIn::from(SocketAddrV4::new(to, 0)),
            ),
            Question::Solicitation(of) => self.send(
                &message::solicitation(of, link.mac),
                &inet6(message::solicited_node(of), link),
            ),
            Question::Arp(of) => self.send(
                &message::arp_request(of, link.mac, own_address(link, node)),
                &link_address(link, BROADCAST),
            ),
        }
    }

    fn send(&self, message: &[u8], to: &dyn SockaddrLike) -> io::Result<()> {
        sendto(self.socket.as_raw_fd(), message, to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }

    /// Reads what has come. Whether there was an answer.
    pub fn answered(&self) -> bool {
        let mut answered = false;
        let mut buffer = [0; 256];
        // Anything else than a message (nothing is there, the link went down) is no answer.
        while let Ok(length) = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            answered |= self.is_answer(&buffer[..length]);
        }
        answered
    }

    fn is_answer(&self, message: &[u8]) -> bool {
        match self.question {
            Question::Echo6(_) => message::is_echo_reply_6(message, self.identifier),
            Question::Echo4(_) => message::is_echo_reply_4(message, self.identifier),
            Question::Solicitation(of) => message::is_advertisement(message, of),
            Question::Arp(of) => message::is_arp_reply(message, of),
        }
    }
}

fn link<'a>(service: &Service, node: &'a Node) -> io::Result<&'a Link> {
    let link = node.links.get(&service.dev);
    link.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the interface is not there"))
}

fn raw(link: &Link, family: AddressFamily, protocol: SockProtocol) -> io::Result<OwnedFd> {
    let socket = socket(family, SockType::Raw, FLAGS, protocol)?;
    setsockopt(
        &socket,
        sockopt::BindToDevice,
        &OsString::from(link.name.clone()),
    )?;
    Ok(socket)
}

/// Of ARP packets only: on a port in use anything else would cost each packet.
fn arp(link: &Link) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Packet, SockType::Datagram, FLAGS, None)?;
    bind(socket.as_raw_fd(), &link_address(link, Mac::default()))?;
    Ok(socket)
}

fn inet6(address: Ipv6Addr, link: &Link) -> SockaddrIn6 {
    SockaddrIn6::from(SocketAddrV6::new(address, 0, 0, link.ifindex.0))
}

fn link_address(link: &Link, mac: Mac) -> LinkAddr {
    // SAFETY: plain data, all zeros is a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ARP as u16).to_be();
    address.sll_ifindex = link.ifindex.0 as i32;
    address.sll_halen = mac.0.len() as u8;
    address.sll_addr[..mac.0.len()].copy_from_slice(&mac.0);
    let length = Some(size_of_val(&address) as u32);
    // SAFETY: a sockaddr_ll of AF_PACKET with its length, which is copied.
    let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), length) };
    address.expect("family and length are those of a link address")
}

fn own_address(link: &Link, node: &Node) -> Option<Ipv4Addr> {
    node.addresses.iter().find_map(|(on, net)| match net {
        IpNet::V4(net) if *on == link.ifindex => Some(net.addr()),
        _ => None,
    })
}

const BROADCAST: Mac = Mac([0xff; 6]);
const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);
