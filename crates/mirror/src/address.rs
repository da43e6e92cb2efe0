//! Decodes addresses from `RTM_NEWADDR` and `RTM_DELADDR`.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use sidestep_model::node::IfIndex;
use sidestep_model::source::{AddressLabel, CandidateState, SourceCandidate};

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

/// State of an address by a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    /// The address.
    pub address: Address,
    /// Whether the interface has it. An address under duplicate address detection does not count:
    /// it is not assigned (RFC 4862 5.4), and the kernel notifies when the check ends.
    pub is_assigned: bool,
    /// An IPv6 address as a candidate for the source of packets. `None` if it was removed.
    pub candidate: Option<SourceCandidate>,
}

/// Returns the state of an address in `message`.
pub(crate) fn decode(message: &Message<'_>) -> Option<Notice> {
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
    let net = IpNet::new(own, length).ok()?;
    let is_present = message.kind == libc::RTM_NEWADDR;
    let has = |flag| flags & flag != 0;
    let is_tentative = has(libc::IFA_F_TENTATIVE) && !has(libc::IFA_F_OPTIMISTIC);
    let candidate = match net {
        IpNet::V6(net) if is_present => Some(SourceCandidate {
            state: if is_tentative {
                CandidateState::Tentative
            } else if has(libc::IFA_F_DEPRECATED | libc::IFA_F_OPTIMISTIC) {
                CandidateState::Deprecated
            } else {
                CandidateState::Preferred
            },
            permanent: has(libc::IFA_F_PERMANENT),
            temporary: has(libc::IFA_F_TEMPORARY),
            ..SourceCandidate::new(net)
        }),
        _ => None,
    };
    Some(Notice {
        address: Address {
            own: (ifindex, net),
            peer: address.unwrap_or(own),
        },
        is_assigned: is_present && !is_tentative,
        candidate,
    })
}

/// Decodes a row of the label table from `RTM_NEWADDRLABEL`.
pub(crate) fn decode_label(message: &Message<'_>) -> Option<AddressLabel> {
    let [_, _, length, ..] = *message.body.first_chunk::<IFADDRLBLMSG>()?;
    let dev = u32_at(message.body, 4)?;
    let (mut address, mut label) = (None, None);
    for attribute in attributes_after(message.body, IFADDRLBLMSG) {
        match attribute.kind {
            IFAL_ADDRESS => address = attribute.address(),
            IFAL_LABEL => label = attribute.u32(),
            _ => {}
        }
    }
    let IpAddr::V6(address) = address? else {
        return None;
    };
    Some(AddressLabel {
        prefix: Ipv6Net::new(address, length).ok()?,
        dev: (dev != 0).then_some(IfIndex(dev)),
        label: label?,
    })
}

/// Length of `struct ifaddrlblmsg`.
pub(crate) const IFADDRLBLMSG: usize = 12;

// include/uapi/linux/if_addr.h.
const IFA_FLAGS: u16 = 8;

// include/uapi/linux/if_addrlabel.h.
const IFAL_ADDRESS: u16 = 1;
const IFAL_LABEL: u16 = 2;
