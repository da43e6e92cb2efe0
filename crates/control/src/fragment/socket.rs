//! The packet socket that sends fragments.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendto, socket};
use sidestep_model::node::{IfIndex, Mac};
use sidestep_wire::EthernetView;

use crate::link_address::link_address;

/// A packet socket that receives nothing, in the network namespace that it was opened in.
#[derive(Debug)]
pub struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Opens the socket; requires `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        // Without a protocol, the kernel delivers no frames to the socket (packet(7)).
        let socket = socket(AddressFamily::Packet, SockType::Raw, FLAGS, None)?;
        Ok(Self(socket))
    }

    /// Sends one frame out of an interface, without blocking.
    pub fn send(&self, egress: IfIndex, frame: &[u8]) -> io::Result<()> {
        let (ethernet, _) = EthernetView::parse(frame).ok_or(io::ErrorKind::InvalidInput)?;
        let to = link_address(egress, ethernet.ethertype().0, Mac::default());
        sendto(self.0.as_raw_fd(), frame, &to, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);
