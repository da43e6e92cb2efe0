//! Packet headers: checked views of received bytes, and owned forms that are emitted as bytes.
//!
//! Each header has one file with the diagram of its RFC, the offsets of its fields and two types:
//!
//! - A view, such as [`Ipv6View`], borrows a header. Its `parse` checks all lengths and returns the
//!   view with the bytes that follow, or `None` if the header is truncated. No accessor can fail
//!   afterwards. A view does not judge values: the version, for example, is a field to look at.
//! - An owned form, such as [`Ipv6`], holds the fields that do not follow from the payload. Its
//!   `emit` returns header and payload, with lengths and checksums.
//!
//! [`SrhView`] checks more: it exists only if the header can be processed (RFC 8754 4.3.1.1).
//!
//! [`Headers`] walks a frame from the outermost header to the innermost one.
//!
//! This crate serves the daemon, the command line and the tests. The packet path has its own
//! reader in C, and the vectors come from Scapy, so an error here cannot hide one there.

/// Defines view and owned form of a header, with its fields named once.
///
/// `view` takes a function that returns the length of the header at the start of some bytes. The
/// function of each field reads it from a header of that length.
macro_rules! header {
    (
        $(#[$view_doc:meta])*
        view $view:ident, $length:expr;
        $(#[$owned_doc:meta])*
        owned $owned:ident;
        $($(#[$doc:meta])* $field:ident: $type:ty = $read:expr;)*
    ) => {
        $(#[$view_doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<'a>(&'a [u8]);

        impl<'a> $view<'a> {
            /// Splits the header from the bytes that follow it.
            pub fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
                let length: fn(&[u8]) -> Option<usize> = $length;
                let (header, rest) = bytes.split_at_checked(length(bytes)?)?;
                Some((Self(header), rest))
            }

            /// The header as bytes, options included.
            pub fn bytes(&self) -> &'a [u8] {
                self.0
            }

            $(
                $(#[$doc])*
                pub fn $field(&self) -> $type {
                    let read: fn(&[u8]) -> $type = $read;
                    read(self.0)
                }
            )*

            /// The owned form.
            pub fn to_owned(&self) -> $owned {
                $owned { $($field: self.$field(),)* }
            }
        }

        $(#[$owned_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $owned {
            $($(#[$doc])* pub $field: $type,)*
        }
    };
}

mod authentication;
pub mod checksum;
mod decode;
mod ethernet;
mod fragment;
mod iana;
mod icmp;
mod ipv4;
mod ipv6;
mod options;
mod routing;
mod sctp;
mod srh;
mod tcp;
mod tlv;
mod udp;
mod vlan;

pub use authentication::{Authentication, AuthenticationView};
pub use checksum::Ends;
pub use decode::{Header, Headers, Layer, Next};
pub use ethernet::{Ethernet, EthernetView};
pub use fragment::{Fragment, FragmentView};
pub use iana::{EtherType, Icmpv4Type, Icmpv6Type, Protocol, RoutingType, SrhTlvType};
pub use icmp::{Icmp, IcmpView};
pub use ipv4::{Ipv4, Ipv4View};
pub use ipv6::{Ipv6, Ipv6View};
pub use options::{Options, OptionsView};
pub use routing::{Routing, RoutingView};
pub use sctp::{Sctp, SctpView};
pub use srh::{Srh, SrhError, SrhView};
pub use tcp::{Tcp, TcpView};
pub use tlv::{Hmac, Tlv, Tlvs};
pub use udp::{Udp, UdpView};
pub use vlan::{Vlan, VlanView};

/// Offsets of the fields of each header, in bytes from its start.
pub mod field {
    pub use crate::ethernet::field as ethernet;
    pub use crate::ipv4::field as ipv4;
    pub use crate::ipv6::field as ipv6;
    pub use crate::srh::field as srh;
}

/// The 16-bit field at an offset, from network byte order.
///
/// The callers pass headers whose length was checked. So do those of the next functions.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit field at an offset, from network byte order.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

/// The bytes of an address at an offset.
fn octets_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&bytes[at..at + N]);
    octets
}
