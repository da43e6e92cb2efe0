//! `SRv6` from applications: the socket option `IPV6_RTHDR` with a Segment Routing Header (RFC 8754), for one socket
//! ([`set_segments`]), and for all those of a program that knows nothing of it ([`exec`], `sidestep exec`).
//!
//! One source for all: `include/sidestep_srh.h` writes the header. C programs include it, the
//! preload library of `sidestep exec` is compiled from it, and the functions here call it.
//!
//! ```no_run
//! use std::net::{Ipv6Addr, UdpSocket};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let segments: [Ipv6Addr; 2] = ["fc00:1::e".parse()?, "fc00:2::e".parse()?];
//! let socket = UdpSocket::bind("[::]:0")?;
//! sidestep_socket::set_segments(&socket, &segments, None)?;
//! // By fc00:1::e and fc00:2::e to the host.
//! socket.send_to(b"hello", "[2001:db8::2]:7")?;
//! # Ok(())
//! # }
//! ```

pub mod exec;
mod header;

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;

use thiserror::Error;

pub use header::{Header, SEGMENTS_MAX, SIGNED_MAX};

/// Why a socket was not given segments.
#[derive(Debug, Error)]
pub enum SegmentsError {
    /// The list is empty.
    #[error("no segment: at least one is needed")]
    None,
    /// There are too many segments.
    #[error("{count} segments: at most {max}{}", if *max == SIGNED_MAX { " with an HMAC" } else { "" })]
    TooMany {
        /// Number of given segments.
        count: usize,
        /// The limit: [`SEGMENTS_MAX`], or with an HMAC [`SIGNED_MAX`].
        max: usize,
    },
    /// An address is not a unicast address.
    #[error("segment {0}: not an IPv6 unicast address")]
    Address(Ipv6Addr),
    /// The kernel refuses.
    #[error("the kernel refuses a Segment Routing Header for this socket: {0}")]
    Socket(#[from] io::Error),
}

/// Sets the segments of an IPv6 socket, in order of travel. The final destination of its packets
/// remains the address that the socket is connected to, or that each call gives. With the ID of an
/// HMAC key, Linux signs the packets with the key that `ip sr hmac set` set in this network
/// namespace. Without such a key their HMAC is zero.
///
/// No privilege is needed. Received packets are not affected. A second call replaces the segments.
///
/// # Errors
/// See [`SegmentsError`]. The socket is then unchanged.
pub fn set_segments(
    socket: impl AsFd,
    segments: &[Ipv6Addr],
    hmac: Option<u32>,
) -> Result<(), SegmentsError> {
    Ok(Header::new(segments, hmac)?.apply(socket)?)
}

/// Removes the routing header of a socket.
///
/// # Errors
/// The kernel refuses.
pub fn clear_segments(socket: impl AsFd) -> io::Result<()> {
    header::clear(socket)
}
