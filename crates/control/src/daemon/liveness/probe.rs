//! The socket by which a service is asked, of the daemon's network namespace and of the service's interface only. The
//! kernel takes part as for any other program: it finds the way and the neighbor, and hands up what comes back, since the
//! packet path leaves to it what is for the node itself.

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

use super::message::{self, Identifier};
use super::watch::UNANSWERED;
use crate::icmp::socket::{hear_icmp4, hear_icmp6};

/// LIMIT: messages that are read of one service in one look. The rest waits for the next one: whoever floods a socket
/// holds up nothing else.
const AT_ONCE: usize = 64;
/// LIMIT: descriptors that probes leave to the rest of the daemon: for whoever asks it, and for tables that grow.
const RESERVE: u64 = 64;

/// Asks one service.
#[derive(Debug)]
pub(super) struct Prober {
    socket: OwnedFd,
    question: Question,
    /// The address that the question is sent from; none: the kernel chooses.
    source: Option<IpAddr>,
    identifier: Identifier,
    sequence: u16,
    /// How many of the last questions may still be answered.
    open: u16,
}

/// Why a service was not asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no socket for it, which says nothing of the service.
    NoSocket(io::Error),
    /// There is no way to it.
    NoWay(io::Error),
}

impl Failure {
    pub fn error(&self) -> &io::Error {
        match self {
            Self::NoSocket(error) | Self::NoWay(error) => error,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::NoWay(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::NoWay(errno.into())
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Echo6(Ipv6Addr),
    Echo4(Ipv4Addr),
    Solicitation(Ipv6Addr),
    Arp(Ipv4Addr),
}

impl Question {
    fn of(service: &Service) -> io::Result<Self> {
        let lacking = || io::Error::new(io::ErrorKind::InvalidInput, "there is no address to ask");
        let address = service.address.ok_or_else(lacking)?;
        Ok(match (service.liveness.probe, address) {
            (Probe::Icmp, IpAddr::V6(address)) => Self::Echo6(address),
            (Probe::Icmp, IpAddr::V4(address)) => Self::Echo4(address),
            (Probe::Arp | Probe::Link, IpAddr::V6(address)) => Self::Solicitation(address),
            (Probe::Arp | Probe::Link, IpAddr::V4(address)) => Self::Arp(address),
        })
    }
}

impl Prober {
    /// For a service that is asked and has an address, which the model's check sees to. No other probe has `identifier`.
    pub fn open(service: &Service, node: &Node, identifier: Identifier) -> Result<Self, Failure> {
        let question = Question::of(service)?;
        let link = link(service, node)?;
        let source = source(question, link, node);
        let mut prober = Self {
            socket: create(question)?,
            question,
            source: None,
            identifier,
            sequence: 0,
            open: 0,
        };
        prober.aim(link, source)?;
        Ok(prober)
    }

    /// Nobody's answers but the service's come in, as far as the kernel can tell.
    fn aim(&mut self, link: &Link, source: Option<IpAddr>) -> Result<(), Failure> {
        let socket = self.socket.as_raw_fd();
        if let Question::Arp(_) = self.question {
            // Of ARP packets only: on a port in use anything else would cost each packet.
            bind(socket, &link_address(link, Mac::default()))?;
            return Ok(());
        }
        let name = OsString::from(link.name.clone());
        setsockopt(&self.socket, sockopt::BindToDevice, &name)?;
        if let Question::Solicitation(_) = self.question {
            // RFC 4861 7.1.1: 255, or it is not heard.
            setsockopt(&self.socket, sockopt::Ipv6MulticastHops, &255)?;
        }
        // An address that may not be used yet (duplicates are looked for) is tried again with the next question.
        self.source = source.filter(|source| {
            let bound = match *source {
                IpAddr::V6(source) => bind(socket, &inet6(source, link)),
                IpAddr::V4(source) => bind(socket, &inet4(source)),
            };
            bound.is_ok()
        });
        // The source is fixed with it: that of the kernel's choice may change before the next question.
        if self.source.is_some() {
            match self.question {
                Question::Echo6(to) => connect(socket, &inet6(to, link))?,
                Question::Echo4(to) => connect(socket, &inet4(to))?,
                Question::Solicitation(_) | Question::Arp(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the questions are still sent from where they should come from.
    pub fn is_current(&self, service: &Service, node: &Node) -> bool {
        let link = node.links.get(&service.dev);
        link.is_some_and(|link| source(self.question, link, node) == self.source)
    }

    /// Readable when something came that may be an answer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Asks once.
    pub fn ask(&mut self, service: &Service, node: &Node) -> Result<(), Failure> {
        let link = link(service, node)?;
        self.sequence = self.sequence.wrapping_add(1);
        // Who has not answered the ones before is down, whatever comes of them.
        self.open = (self.open + 1).min(UNANSWERED as u16);
        match self.question {
            Question::Echo6(to) => self.send(
                &message::echo_request_6(self.identifier, self.sequence),
                &inet6(to, link),
            ),
            Question::Echo4(to) => self.send(
                &message::echo_request_4(self.identifier, self.sequence),
                &inet4(to),
            ),
            Question::Solicitation(of) => self.send(
                &message::solicitation(of, link.mac),
                &inet6(message::solicited_node(of), link),
            ),
            Question::Arp(of) => self.send(
                &message::arp_request(of, link.mac, own_address(of, link, node)),
                &link_address(link, BROADCAST),
            ),
        }
    }

    fn send(&self, message: &[u8], to: &dyn SockaddrLike) -> Result<(), Failure> {
        let send = || sendto(self.socket.as_raw_fd(), message, to, MsgFlags::MSG_DONTWAIT);
        // What the kernel says first may be what became of the last question.
        send().or_else(|_| send())?;
        Ok(())
    }

    /// Reads what has come, [`AT_ONCE`] messages at most. Whether there was an answer.
    pub fn answered(&mut self) -> bool {
        let mut answered = false;
        let mut buffer = [0; 256];
        for _ in 0..AT_ONCE {
            match recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut buffer) {
                Ok((length, from)) => answered |= self.is_answer(&buffer[..length], from),
                Err(Errno::EAGAIN) => break,
                // An error that the kernel tells once, as of a link that went down or of a router's that knows no way
                // to the service: an answer may wait behind it.
                Err(_) => {}
            }
        }
        answered
    }

    fn is_answer(&mut self, message: &[u8], from: Option<SockaddrStorage>) -> bool {
        let from = || ip(from?);
        let sequence = match self.question {
            Question::Echo6(of) if from() == Some(of.into()) => {
                message::echo_reply_6(message, self.identifier)
            }
            Question::Echo4(of) if from() == Some(of.into()) => {
                message::echo_reply_4(message, self.identifier)
            }
            Question::Echo6(_) | Question::Echo4(_) => None,
            Question::Solicitation(of) => return message::is_advertisement(message, of),
            Question::Arp(of) => return message::is_arp_reply(message, of),
        };
        let ago = sequence.map(|sequence| self.sequence.wrapping_sub(sequence));
        let Some(ago) = ago.filter(|ago| *ago < self.open) else {
            return false;
        };
        // Each question has one answer.
        self.open = ago;
        true
    }
}

fn link<'a>(service: &Service, node: &'a Node) -> io::Result<&'a Link> {
    let link = node.links.get(&service.dev);
    link.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the interface is not there"))
}

/// A socket that hears what may be an answer.
fn create(question: Question) -> Result<OwnedFd, Failure> {
    let no_socket = |errno: Errno| Failure::NoSocket(errno.into());
    let raw = |family, protocol| socket(family, SockType::Raw, FLAGS, protocol);
    let socket = match question {
        Question::Echo6(_) | Question::Solicitation(_) => {
            raw(AddressFamily::Inet6, SockProtocol::IcmpV6)
        }
        Question::Echo4(_) => raw(AddressFamily::Inet, SockProtocol::Icmp),
        Question::Arp(_) => socket(AddressFamily::Packet, SockType::Datagram, FLAGS, None),
    }
    .map_err(no_socket)?;
    // The lowest number that is free is given.
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    if limit.is_ok_and(|(soft, _)| socket.as_raw_fd() as u64 + RESERVE >= soft) {
        return Err(no_socket(Errno::EMFILE));
    }
    match question {
        Question::Echo6(_) => hear_icmp6(&socket, &[message::ECHO_REPLY_6]),
        Question::Solicitation(_) => hear_icmp6(&socket, &[message::NEIGHBOR_ADVERTISEMENT]),
        Question::Echo4(_) => hear_icmp4(&socket, &[message::ECHO_REPLY_4]),
        Question::Arp(_) => Ok(()),
    }?;
    Ok(socket)
}

/// An address of the service's interface, so that the answer comes back there, whichever addresses and routes the node
/// has otherwise; none where the interface has none.
fn source(question: Question, link: &Link, node: &Node) -> Option<IpAddr> {
    match question {
        Question::Echo6(to) | Question::Solicitation(to) => {
            own_address6(to, link, node).map(IpAddr::V6)
        }
        Question::Echo4(to) => own_address(to, link, node).map(IpAddr::V4),
        // It has no IP header.
        Question::Arp(_) => None,
    }
}

/// Of the prefix that `to` is in, else any.
fn own_address(to: Ipv4Addr, link: &Link, node: &Node) -> Option<Ipv4Addr> {
    let own = node.addresses.iter().filter_map(|(on, net)| match net {
        IpNet::V4(net) if *on == link.ifindex => Some(net),
        _ => None,
    });
    // Of several that are as good the first is taken.
    let best = own.min_by_key(|net| !net.contains(&to));
    best.map(ipnet::Ipv4Net::addr)
}

/// Of the prefix that `to` is in, else one that is as global as `to` is. A link-local one will do: a service on the link
/// can answer it.
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

/// Of whom a message is.
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

const BROADCAST: Mac = Mac([0xff; 6]);
const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    const SERVICE: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const ME: Identifier = Identifier(7);

    /// A prober that hears whatever is sent to the other socket's peer.
    fn prober(question: Question) -> (Prober, UdpSocket) {
        let [ours, theirs] =
            [(); 2].map(|()| UdpSocket::bind((SERVICE, 0)).expect("a socket on the loopback"));
        theirs
            .connect(ours.local_addr().expect("it is bound"))
            .expect("it is there");
        ours.set_nonblocking(true).expect("it is open");
        let prober = Prober {
            socket: ours.into(),
            question,
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
        // A raw socket gives the IPv4 header, too.
        [&[0x45; 20][..], &message].concat()
    }

    #[test]
    fn a_flood_does_not_keep_the_daemon_at_one_socket() {
        let (mut prober, service) = prober(Question::Arp(SERVICE));
        let mut answer = message::arp_request(SERVICE, Mac::default(), Some(SERVICE));
        answer[7] = 2;
        for _ in 0..AT_ONCE {
            service.send(b"of no interest").expect("it is sent");
        }
        service.send(&answer).expect("it is sent");
        assert!(!prober.answered(), "more than {AT_ONCE} messages were read");
        assert!(prober.answered(), "the answer behind them was lost");
        assert!(!prober.answered(), "nothing is left");
    }

    #[test]
    fn a_question_has_one_answer_and_one_from_whom_it_was_sent_to() {
        let (mut prober, service) = prober(Question::Echo4(SERVICE));
        let hears = |prober: &mut Prober, identifier, sequence| {
            let reply = echo_reply(identifier, sequence);
            service.send(&reply).expect("it is sent");
            prober.answered()
        };
        // Three questions, of which two may still be answered.
        (prober.sequence, prober.open) = (3, UNANSWERED as u16);
        assert!(!hears(&mut prober, ME, 4), "never asked");
        assert!(!hears(&mut prober, ME, 1), "given up");
        assert!(!hears(&mut prober, Identifier(8), 3), "another's");
        assert!(hears(&mut prober, ME, 2), "late");
        assert!(!hears(&mut prober, ME, 2), "twice");
        assert!(hears(&mut prober, ME, 3));
        assert!(!hears(&mut prober, ME, 3), "twice");
        prober.open = 1;
        prober.question = Question::Echo4(Ipv4Addr::new(127, 0, 0, 2));
        assert!(!hears(&mut prober, ME, 3), "from somebody else");
    }
}
