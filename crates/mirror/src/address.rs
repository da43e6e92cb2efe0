//! Decodes addresses from `RTM_NEWADDR` and `RTM_DELADDR`.

use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_model::node::IfIndex;

use crate::wire::{Message, attributes_after, u32_at};

/// Length of `struct ifaddrmsg`.
pub(crate) const IFADDRMSG: usize = 8;

/// An address of an interface. IPv4 allows one address several times with different peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    /// The interface and its own address with the prefix length.
    pub own: (IfIndex, IpNet),
    /// The address at the other end of a point-to-point link, else its own.
    pub peer: IpAddr,
}

/// Returns the address in `message` and whether the interface has it. A deleted address does not
/// count, nor does one under duplicate address detection: a tentative address is not assigned (RFC
/// 4862 5.4), and the kernel notifies when the check ends.
pub(crate) fn decode(message: &Message<'_>) -> Option<(Address, bool)> {
    let [family, length, flags, ..] = *message.body.first_chunk::<IFADDRMSG>()?;
    let mut flags = u32::from(flags);
    if !matches!(i32::from(family), libc::AF_INET | libc::AF_INET6) {
        return None;
    }
    let ifindex = IfIndex(u32_at(message.body, 4)?);
    let (mut local, mut address) = (None, None);
    for attribute in attributes_after(message.body, IFADDRMSG) {
        match attribute.kind {
            libc::IFA_LOCAL => local = attribute.address(),
            libc::IFA_ADDRESS => address = attribute.address(),
            IFA_FLAGS => flags = attribute.u32()?,
            _ => {}
        }
    }
    let own = local.or(address)?;
    let found = Address {
        own: (ifindex, IpNet::new(own, length).ok()?),
        peer: address.unwrap_or(own),
    };
    let tentative = flags & libc::IFA_F_TENTATIVE != 0 && flags & libc::IFA_F_OPTIMISTIC == 0;
    Some((found, message.kind == libc::RTM_NEWADDR && !tentative))
}

// include/uapi/linux/if_addr.h.
const IFA_FLAGS: u16 = 8;
