//! A netlink socket and the results of reading it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::{Socket as RawSocket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};

use crate::error::MirrorError;

/// Buffer size for one datagram. The kernel sends dumps in datagrams of at most 32 KiB, but a
/// notification about a link with many virtual functions is longer.
const DATAGRAM: usize = 256 * 1024;

/// A netlink socket with its receive buffer.
pub(crate) struct Socket {
    raw: RawSocket,
    buffer: Vec<u8>,
}

/// Result of a read.
pub(crate) enum Received<'a> {
    /// A datagram from the kernel.
    Datagram(&'a [u8]),
    /// Nothing is pending.
    Empty,
    /// The kernel could not deliver everything (`ENOBUFS`), or a datagram was longer than the
    /// buffer.
    Lost,
}

impl Socket {
    /// Opens and binds a socket of the calling thread's network namespace.
    pub fn open(protocol: isize) -> Result<Self, MirrorError> {
        let mut raw = RawSocket::new(protocol).map_err(failed("open a socket"))?;
        raw.bind_auto().map_err(failed("bind the socket"))?;
        Ok(Self {
            raw,
            buffer: Vec::with_capacity(DATAGRAM),
        })
    }

    /// Enables strict checks of requests. Without them the kernel ignores the filter of a dump.
    pub fn strict(self) -> Result<Self, MirrorError> {
        self.raw
            .set_netlink_get_strict_chk(true)
            .map_err(failed("enable strict checking"))?;
        Ok(self)
    }

    /// Makes reads non-blocking, and requests a receive buffer of `bytes`: beyond
    /// `net.core.rmem_max` if the process has `CAP_NET_ADMIN`, otherwise up to that limit. A small
    /// buffer is not an error: the mirror detects lost messages, and makes a new dump.
    pub fn for_events(self, bytes: usize) -> Result<Self, MirrorError> {
        self.raw
            .set_non_blocking(true)
            .map_err(failed("make the socket non-blocking"))?;
        if setsockopt(&self.as_fd(), sockopt::RcvBufForce, &bytes).is_err() {
            setsockopt(&self.as_fd(), sockopt::RcvBuf, &bytes).map_err(|errno| {
                MirrorError::Socket {
                    operation: "set the receive buffer",
                    source: errno.into(),
                }
            })?;
        }
        Ok(self)
    }

    /// Joins a multicast group.
    pub fn join(&self, group: u32) -> Result<(), MirrorError> {
        self.raw
            .add_membership(group)
            .map_err(failed("join a multicast group"))
    }

    /// Sends one message to the kernel.
    pub fn send(&self, bytes: &[u8]) -> Result<(), MirrorError> {
        self.raw
            .send_to(bytes, &SocketAddr::new(0, 0), 0)
            .map_err(failed("send a request"))?;
        Ok(())
    }

    /// Reads one datagram.
    pub fn receive(&mut self) -> Result<Received<'_>, MirrorError> {
        loop {
            self.buffer.clear();
            match self.raw.recv_from(&mut self.buffer, libc::MSG_TRUNC) {
                Ok((length, _)) if length > self.buffer.len() => return Ok(Received::Lost),
                // Accept only messages from the kernel (port 0).
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok(_) => return Ok(Received::Datagram(&self.buffer)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(Received::Empty),
                    Some(libc::ENOBUFS) => return Ok(Received::Lost),
                    Some(libc::EINTR) => {}
                    _ => return Err(failed("receive")(error)),
                },
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the raw socket's, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_raw_fd()) }
    }
}

/// Returns the error of a failed socket operation.
fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> MirrorError {
    move |source| MirrorError::Socket { operation, source }
}
