//! The Segment Routing Header in the format of `include/sidestep_srh.h`.

use std::ffi::{CStr, c_int};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd};

use crate::SegmentsError;

/// LIMIT: segments of a header without the destination. Linux accepts 2040 bytes.
pub const SEGMENTS_MAX: usize = 126;
/// LIMIT: segments of a header with an HMAC. Linux signs less than 256 bytes.
pub const SIGNED_MAX: usize = 13;

const BYTES_MAX: usize = 2040;

/// A Segment Routing Header in the format of `IPV6_RTHDR`, with space for the destination at
/// Segment List\[0\].
#[repr(C)]
#[derive(Clone)]
pub struct Header {
    length: usize,
    bytes: [u8; BYTES_MAX],
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Header").field(&self.bytes()).finish()
    }
}

/// `struct options` of `preload/options.h`. Only its C functions access the fields.
#[derive(Debug)]
pub(crate) struct Options(Vec<u64>);

unsafe extern "C" {
    static sidestep_socket_options_size: usize;
    fn sidestep_socket_build(
        srh: *mut Header,
        segments: *const [u8; 16],
        count: usize,
        hmac_key_id: *const u32,
    ) -> c_int;
    fn sidestep_socket_apply(fd: c_int, srh: *const Header) -> c_int;
    fn sidestep_socket_clear(fd: c_int) -> c_int;
    fn sidestep_socket_parse(text: *const std::ffi::c_char, options: *mut u64) -> c_int;
    fn sidestep_socket_want(options: *const u64, to: *const [u8; 16]) -> c_int;
}

impl Header {
    /// Returns the header with these segments, in order of travel, and with the HMAC TLV of this
    /// key.
    ///
    /// # Errors
    /// [`SegmentsError::None`], [`SegmentsError::TooMany`] or [`SegmentsError::Address`].
    pub fn new(segments: &[Ipv6Addr], hmac: Option<u32>) -> Result<Self, SegmentsError> {
        let octets: Vec<[u8; 16]> = segments.iter().map(Ipv6Addr::octets).collect();
        let mut header = Self {
            length: 0,
            bytes: [0; BYTES_MAX],
        };
        // SAFETY: a header to write to, an array with its length, and a pointer to a number or
        // null.
        let wrong = unsafe {
            sidestep_socket_build(
                &raw mut header,
                octets.as_ptr(),
                octets.len(),
                hmac.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            )
        };
        if wrong == 0 {
            return Ok(header);
        }
        let max = if hmac.is_some() {
            SIGNED_MAX
        } else {
            SEGMENTS_MAX
        };
        let count = segments.len();
        Err(
            match segments.iter().find(|segment| !is_unicast(**segment)) {
                _ if count == 0 => SegmentsError::None,
                Some(segment) if count <= max => SegmentsError::Address(*segment),
                _ => SegmentsError::TooMany { count, max },
            },
        )
    }

    /// Returns the header from Next Header on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Sets this routing header on a socket, replacing any other one.
    ///
    /// # Errors
    /// The kernel refuses; for a socket that is not IPv6 with `ENOPROTOOPT`.
    pub fn apply(&self, socket: impl AsFd) -> io::Result<()> {
        // SAFETY: an open descriptor, and a valid header with its length.
        result(unsafe { sidestep_socket_apply(socket.as_fd().as_raw_fd(), self) })
    }
}

/// Same condition as in `sidestep_srh_build`.
fn is_unicast(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && address.to_ipv4_mapped().is_none()
}

pub(crate) fn clear(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an open descriptor.
    result(unsafe { sidestep_socket_clear(socket.as_fd().as_raw_fd()) })
}

fn result(done: c_int) -> io::Result<()> {
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Options {
    /// Parses the text as the preload library does. An error is a value of `enum options_result`.
    pub(crate) fn parse(text: &CStr) -> Result<Self, c_int> {
        // SAFETY: a constant of the C side.
        let size = unsafe { sidestep_socket_options_size };
        let mut options = vec![0_u64; size.div_ceil(8)];
        // SAFETY: a terminated text, and sufficient aligned space for the structure.
        match unsafe { sidestep_socket_parse(text.as_ptr(), options.as_mut_ptr()) } {
            0 => Ok(Self(options)),
            wrong => Err(wrong),
        }
    }

    /// Returns the header, which is the first member of the structure.
    pub(crate) fn header(&self) -> Header {
        // SAFETY: `struct sidestep_srh` is the first member and is initialised.
        unsafe { (*self.0.as_ptr().cast::<Header>()).clone() }
    }

    pub(crate) fn want(&self, to: Ipv6Addr) -> bool {
        // SAFETY: an initialised structure, and an address.
        unsafe { sidestep_socket_want(self.0.as_ptr(), &to.octets()) != 0 }
    }
}
