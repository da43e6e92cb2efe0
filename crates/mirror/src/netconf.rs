//! Interface settings that the kernel notifies about: `RTM_NEWNETCONF`.

use sidestep_model::node::IfIndex;
use sidestep_model::route::Family;

use crate::wire::{Message, attributes_after};

/// Length of `struct netconfmsg`, padded.
pub(crate) const NETCONFMSG: usize = 4;

/// The interfaces that a setting applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// `conf/all`.
    All,
    /// One interface.
    Link(IfIndex),
}

/// Settings in a message; a notification has only the changed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Netconf {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Interfaces of the settings.
    pub scope: Scope,
    /// `forwarding`.
    pub forwarding: Option<i32>,
    /// `rp_filter` (IPv4).
    pub rp_filter: Option<i32>,
    /// `ignore_routes_with_linkdown`.
    pub ignore_linkdown: Option<i32>,
    /// The message names no setting: Linux 6.18 notifies of `force_forwarding` in this way.
    pub unsaid: bool,
}

/// Decodes the settings in `message`. Returns `None` for `conf/default`, which applies to future
/// interfaces.
pub(crate) fn decode(message: &Message<'_>) -> Option<Netconf> {
    let family = match i32::from(*message.body.first()?) {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return None,
    };
    let mut scope = None;
    let mut netconf = Netconf {
        family,
        scope: Scope::All,
        forwarding: None,
        rp_filter: None,
        ignore_linkdown: None,
        unsaid: true,
    };
    for attribute in attributes_after(message.body, NETCONFMSG) {
        let value = attribute.u32().map(|value| value as i32);
        netconf.unsaid &= attribute.kind == NETCONFA_IFINDEX;
        match attribute.kind {
            NETCONFA_IFINDEX => {
                scope = match value? {
                    NETCONFA_IFINDEX_ALL => Some(Scope::All),
                    index @ 1.. => Some(Scope::Link(IfIndex(index as u32))),
                    _ => None,
                };
            }
            NETCONFA_FORWARDING => netconf.forwarding = value,
            NETCONFA_RP_FILTER => netconf.rp_filter = value,
            NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => netconf.ignore_linkdown = value,
            _ => {}
        }
    }
    netconf.scope = scope?;
    Some(netconf)
}

// include/uapi/linux/netconf.h.
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_FORWARDING: u16 = 2;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;
const NETCONFA_IFINDEX_ALL: i32 = -1;
