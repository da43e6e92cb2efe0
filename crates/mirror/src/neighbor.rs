//! Decodes neighbors from `RTM_NEWNEIGH` and `RTM_DELNEIGH`.

use std::net::IpAddr;

use sidestep_model::node::{IfIndex, Mac, Neighbor};

use crate::wire::{Body, Message, attributes_after, u16_at, u32_at};

/// Length of `struct ndmsg`.
pub(crate) const NDMSG: usize = 12;

/// Neighbor in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Link and address.
    pub key: (IfIndex, IpAddr),
    /// The neighbor, or `None` while it is unusable.
    pub neighbor: Option<Neighbor>,
    /// The neighbor is usable but has not been confirmed for a while. The kernel probes it only
    /// when it has a packet for it.
    pub stale: bool,
    /// The neighbor has an owner: it is permanent, managed, or learned by a routing daemon.
    pub kept: bool,
}

/// Returns the neighbor in `message` with its state, or no state while it is unusable.
///
/// A neighbor that is being resolved or has failed counts as absent. The kernel does not notify
/// when it starts to resolve, so keeping such neighbors would make the node depend on the time of
/// the read.
pub(crate) fn decode(message: &Message<'_>) -> Option<Entry> {
    let fixed = message.body.first_chunk::<NDMSG>()?;
    let (family, flags) = (fixed[0], fixed[10]);
    if !matches!(i32::from(family), libc::AF_INET | libc::AF_INET6) || flags & libc::NTF_PROXY != 0
    {
        return None;
    }
    let ifindex = IfIndex(u32_at(fixed, 4)?);
    let state = u16_at(fixed, 8)?;
    let (mut address, mut lladdr, mut extended) = (None, None, 0);
    for attribute in attributes_after(message.body, NDMSG) {
        match attribute.kind {
            libc::NDA_DST => address = attribute.address(),
            libc::NDA_LLADDR => lladdr = attribute.value.try_into().ok().map(Mac),
            NDA_FLAGS_EXT => extended = attribute.u32().unwrap_or_default(),
            _ => {}
        }
    }
    let address = address?;
    let usable = message.kind == libc::RTM_NEWNEIGH
        && state & NUD_VALID != 0
        && !implied(state, address, lladdr);
    let permanent = state & (libc::NUD_PERMANENT | libc::NUD_NOARP) != 0;
    let neighbor = lladdr.filter(|_| usable).map(|lladdr| Neighbor {
        lladdr: Some(lladdr),
        permanent,
    });
    Some(Entry {
        key: (ifindex, address),
        neighbor,
        stale: neighbor.is_some() && state & libc::NUD_STALE != 0,
        kept: permanent || flags & NTF_EXT_LEARNED != 0 || extended & NTF_EXT_MANAGED != 0,
    })
}

/// Returns the body of a query for one neighbor, or with `NTF_USE` of the request to resolve it or
/// to check its reachability.
pub(crate) fn request((dev, address): (IfIndex, IpAddr), flags: u8) -> Body {
    let mut fixed = [0; NDMSG];
    fixed[0] = match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    } as u8;
    fixed[4..8].copy_from_slice(&dev.0.to_ne_bytes());
    fixed[10] = flags;
    let mut body = Body::new(&fixed);
    match address {
        IpAddr::V4(address) => body.attribute(libc::NDA_DST, &address.octets()),
        IpAddr::V6(address) => body.attribute(libc::NDA_DST, &address.octets()),
    };
    body
}

/// Returns whether the kernel creates an entry silently when it sends the first packet: multicast,
/// broadcast, and devices without address resolution (their address is zero or the device's own).
fn implied(state: u16, address: IpAddr, lladdr: Option<Mac>) -> bool {
    state & libc::NUD_NOARP != 0
        && (address.is_multicast()
            || address.is_loopback()
            || lladdr.is_none_or(|mac| mac == Mac::default() || mac == Mac([0xff; 6])))
}

// include/uapi/linux/neighbour.h.
pub(crate) const NTF_EXT_LEARNED: u8 = 1 << 4;
const NTF_EXT_MANAGED: u32 = 1;
pub(crate) const NDA_FLAGS_EXT: u16 = 15;

/// include/net/neighbour.h: a packet may be sent to the address.
const NUD_VALID: u16 = libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_REACHABLE
    | libc::NUD_PROBE
    | libc::NUD_STALE
    | libc::NUD_DELAY;

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_with(kind: u16, state: u16, flags: u8, extended: u32) -> Option<Entry> {
        let mut body = request((IfIndex(7), "192.0.2.1".parse().unwrap()), flags);
        body.0[8..10].copy_from_slice(&state.to_ne_bytes());
        body.attribute(libc::NDA_LLADDR, &[2, 0, 0, 0, 0, 1])
            .attribute(NDA_FLAGS_EXT, &extended.to_ne_bytes());
        let message = Message {
            kind,
            flags: 0,
            sequence: 0,
            body: &body.0,
        };
        decode(&message)
    }

    fn known(kind: u16, state: u16) -> Option<Neighbor> {
        let entry = decode_with(kind, state, 0, 0).unwrap();
        assert_eq!(entry.key, (IfIndex(7), "192.0.2.1".parse().unwrap()));
        entry.neighbor
    }

    #[test]
    fn an_address_counts_while_it_is_usable() {
        use libc::{NUD_DELAY, NUD_PROBE, NUD_REACHABLE, NUD_STALE};
        for state in [NUD_REACHABLE, NUD_STALE, NUD_DELAY, NUD_PROBE] {
            let neighbor = known(libc::RTM_NEWNEIGH, state).unwrap();
            assert_eq!(neighbor.lladdr, Some(Mac([2, 0, 0, 0, 0, 1])));
            assert!(!neighbor.permanent);
        }
        for state in [libc::NUD_PERMANENT, libc::NUD_NOARP] {
            assert!(known(libc::RTM_NEWNEIGH, state).unwrap().permanent);
        }
        for state in [libc::NUD_INCOMPLETE, libc::NUD_FAILED] {
            assert_eq!(known(libc::RTM_NEWNEIGH, state), None);
        }
        assert_eq!(known(libc::RTM_DELNEIGH, NUD_STALE), None);
    }

    #[test]
    fn proxy_entries_are_not_neighbors() {
        assert_eq!(
            decode_with(libc::RTM_NEWNEIGH, libc::NUD_PERMANENT, libc::NTF_PROXY, 0),
            None
        );
    }

    #[test]
    fn neighbors_with_an_owner_do_not_become_stale() {
        let of = |state, flags, extended| {
            let entry = decode_with(libc::RTM_NEWNEIGH, state, flags, extended).unwrap();
            (entry.stale, entry.kept)
        };
        assert_eq!(of(libc::NUD_STALE, 0, 0), (true, false));
        assert_eq!(of(libc::NUD_REACHABLE, 0, 0), (false, false));
        assert_eq!(of(libc::NUD_PERMANENT, 0, 0), (false, true));
        assert_eq!(of(libc::NUD_STALE, NTF_EXT_LEARNED, 0), (true, true));
        assert_eq!(of(libc::NUD_FAILED, 0, NTF_EXT_MANAGED), (false, true));
    }
}
