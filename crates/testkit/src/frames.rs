//! Sends and receives frames on an interface with an `AF_PACKET` socket that does not receive its
//! own frames.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sidestep_wire::{EtherType, Header, Headers, Next, Protocol};

use crate::{Error, Namespace};

/// A raw socket on one interface of one namespace. It may be used from any thread.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
    place: String,
    noise: bool,
}

/// Unsolicited frames of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Neighbor and router discovery, redirects: `ICMPv6` types 133 to 137 (RFC 4861).
    NeighborDiscovery,
    /// `ICMPv6` types 130 to 132 and 143 (RFC 2710, RFC 3810), IGMP.
    MulticastListener,
    /// Link Layer Discovery Protocol.
    Lldp,
    /// Address Resolution Protocol.
    Arp,
}

/// All protocols, `ETH_P_ALL` of `<linux/if_ether.h>`.
pub const ALL: u16 = 0x0003;

impl FrameSocket {
    /// Opens a socket for every frame of the interface, except noise (see [`Self::keep_noise`]).
    ///
    /// # Errors
    /// The interface does not exist, or the process lacks `CAP_NET_RAW` there.
    pub fn open(namespace: &Namespace, ifname: &str) -> Result<Self, Error> {
        Self::open_for(namespace, ifname, ALL)
    }

    /// Opens a socket that receives only one `EtherType` (host byte order).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for(namespace: &Namespace, ifname: &str, ethertype: u16) -> Result<Self, Error> {
        let place = format!("{ifname} of {}", namespace.name());
        let ifindex = namespace.ifindex(ifname)?;
        let opened = namespace.run(|| open(ifindex, ethertype))?;
        let socket =
            opened.map_err(|source| Error::os(format!("packet socket on {place}"), source))?;
        Ok(Self {
            socket,
            place,
            noise: false,
        })
    }

    /// Sets whether [`Self::receive`] also returns noise.
    pub fn keep_noise(&mut self, keep: bool) {
        self.noise = keep;
    }

    /// Sends one frame, from its destination MAC on and without FCS.
    ///
    /// # Errors
    /// The interface is down or the frame larger than its MTU.
    pub fn send(&self, frame: &[u8]) -> Result<(), Error> {
        let deadline = Instant::now() + FULL;
        loop {
            // SAFETY: pointer and length are those of one slice.
            let sent = unsafe {
                libc::send(
                    self.socket.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            if sent == frame.len() as isize {
                return Ok(());
            }
            // The socket's buffer is full of frames that a busy machine has not sent yet.
            let full = io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
            if !full || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::last_os(format!(
            "send {} bytes on {}",
            frame.len(),
            self.place
        )))
    }

    /// Returns the next frame from its destination MAC on, with its VLAN tag, or `None` after a
    /// timeout.
    ///
    /// # Errors
    /// The interface was removed.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(frame) = self.receive_now()? {
                return Ok(Some(frame));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // Round up, because a timeout below a millisecond would cause a busy loop.
            let left =
                PollTimeout::try_from(left.as_millis() as u32 + 1).unwrap_or(PollTimeout::MAX);
            match poll(
                &mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)],
                left,
            ) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::os(format!("poll {}", self.place), errno)),
            }
        }
    }

    /// Returns the next queued frame without waiting.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn receive_now(&self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            match receive(&self.socket) {
                Ok(frame) if self.noise || noise(&frame).is_none() => return Ok(Some(frame)),
                Ok(_) => {}
                Err(source) if source.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::os(format!("receive on {}", self.place), source)),
            }
        }
    }

    /// Discards queued frames.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn drain(&self) -> Result<(), Error> {
        while self.receive_now()?.is_some() {}
        Ok(())
    }
}

/// Returns the kind of noise of a frame, in any VLAN, or `None` if it is traffic.
pub fn noise(frame: &[u8]) -> Option<Noise> {
    let mut headers = Headers::frame(frame).ignore_lengths();
    let mut in_packet = false;
    loop {
        match headers.next_header() {
            Next::EtherType(EtherType::ARP) if !in_packet => return Some(Noise::Arp),
            Next::EtherType(EtherType::LLDP) if !in_packet => return Some(Noise::Lldp),
            Next::Protocol(Protocol::IGMP) => return Some(Noise::MulticastListener),
            _ => {}
        }
        match headers.next()?.header {
            Header::Ethernet(_) | Header::Vlan(_) if !in_packet => {}
            Header::Ipv4(_) | Header::Ipv6(_) if !in_packet => in_packet = true,
            // An MLD report has a Hop-by-Hop header with a Router Alert (RFC 3810 5).
            Header::HopByHop(_) => {}
            Header::Icmpv6(message) => {
                return match message.kind() {
                    130..=132 | 143 => Some(Noise::MulticastListener),
                    133..=137 => Some(Noise::NeighborDiscovery),
                    _ => None,
                };
            }
            _ => return None,
        }
    }
}

fn open(ifindex: u32, ethertype: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Protocol 0 receives nothing before the socket is bound, so the socket never has a frame of
    // another interface. SAFETY: no pointers; the descriptor is owned at once.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_PACKET, kind, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let set = |level, name, value: libc::c_int| {
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: pointer and length are those of `value`.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                length,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
    set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20)?;
    // SAFETY: plain data, all zeros is a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = ifindex as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: pointer and length are those of `address`.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if bound == 0 {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut frame = vec![0u8; FRAME_MAX];
    let mut part = libc::iovec {
        iov_base: frame.as_mut_ptr().cast(),
        iov_len: frame.len(),
    };
    let mut control = [0u64; 16];
    // SAFETY: plain data, all zeros is a value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the message points to buffers of this function with their lengths.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    frame.truncate(length as usize);
    if let Some(tag) = vlan_tag(&message) {
        // The stack has moved the outer tag to metadata. Insert it again after the source address.
        frame.splice(12..12, tag);
    }
    Ok(frame)
}

/// Returns the outer VLAN tag (TPID, TCI) of `PACKET_AUXDATA`.
fn vlan_tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel filled the control buffer of this message, and `message` has its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so a control message inside the buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if (level, kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            // SAFETY: the payload of this control message is a tpacket_auxdata.
            let data = unsafe {
                std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>())
            };
            if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
                return None;
            }
            let [a, b] = data.tp_vlan_tpid.to_be_bytes();
            let [c, d] = data.tp_vlan_tci.to_be_bytes();
            return Some([a, b, c, d]);
        }
        // SAFETY: both arguments refer to the same buffer.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// Maximum time to wait for a full send buffer.
const FULL: Duration = Duration::from_secs(5);

/// LIMIT: the longest received frame: a jumbo frame, or one before segmentation.
const FRAME_MAX: usize = 65_536 + 18;

/// `<linux/if_packet.h>`
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lab, root_or_skip};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_frame_arrives_with_its_vlan_tags_and_the_sender_does_not_see_it() {
        if !root_or_skip() {
            return;
        }
        let mut lab = Lab::new("frames").expect("lab");
        lab.node("a")
            .expect("a")
            .node("b")
            .expect("b")
            .link("a", "eth0", "b", "eth0")
            .expect("link");
        let near = FrameSocket::open(lab.namespace("a").expect("a"), "eth0").expect("near");
        let far = FrameSocket::open(lab.namespace("b").expect("b"), "eth0").expect("far");
        let plain = [&[2; 12][..], &[0x88, 0xb5], &[7; 60]].concat();
        let tagged = [
            &[2; 12][..],
            &[0x88, 0xa8, 0, 5, 0x81, 0, 0x60, 9, 0x88, 0xb5],
            &[7; 60],
        ]
        .concat();
        for frame in [plain, tagged] {
            near.send(&frame).expect("send");
            assert_eq!(far.receive(SECOND).expect("receive"), Some(frame));
        }
        assert_eq!(near.receive_now().expect("receive"), None);
    }

    #[test]
    fn neighbor_discovery_and_mld_are_noise_and_an_echo_request_is_not() {
        let icmp6 = |kind: u8| {
            [
                &[0; 12][..],
                &[0x86, 0xdd],
                &[0x60, 0, 0, 0, 0, 8, 58],
                &[0; 33],
                &[kind, 0, 0, 0, 0, 0, 0, 0],
            ]
            .concat()
        };
        assert_eq!(noise(&icmp6(135)), Some(Noise::NeighborDiscovery));
        assert_eq!(noise(&icmp6(128)), None);
        let mut report = [
            &[0; 12][..],
            &[0x86, 0xdd],
            &[0x60, 0, 0, 0, 0, 16, 0],
            &[0; 33],
        ]
        .concat();
        report.extend([58, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(noise(&report), Some(Noise::MulticastListener));
        report.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 9]);
        assert_eq!(noise(&report), Some(Noise::MulticastListener));
        assert_eq!(noise(&[0; 13]), None);
    }
}
