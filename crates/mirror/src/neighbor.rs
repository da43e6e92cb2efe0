//! Neighbors out of `RTM_NEWNEIGH` and `RTM_DELNEIGH`.

use std::net::IpAddr;

use sidestep_model::node::{IfIndex, Mac, Neighbor};

use crate::wire::{Message, attributes_after, u16_at, u32_at};

/// Length of `struct ndmsg`.
pub(crate) const NDMSG: usize = 12;

/// What one message says: which neighbor, and what is known of it.
pub(crate) type Entry = ((IfIndex, IpAddr), Option<Neighbor>);

/// The neighbor that `message` names, and what is known of it: nothing while it cannot be used.
///
/// An entry that is being resolved or has failed is the same as none: the kernel does not tell when it starts to
/// resolve, so keeping them would make the node depend on when it was read.
pub(crate) fn decode(message: &Message<'_>) -> Option<Entry> {
    let fixed = message.body.first_chunk::<NDMSG>()?;
    let (family, flags) = (fixed[0], fixed[10]);
    if !matches!(i32::from(family), libc::AF_INET | libc::AF_INET6) || flags & libc::NTF_PROXY != 0
    {
        return None;
    }
    let ifindex = IfIndex(u32_at(fixed, 4)?);
    let state = u16_at(fixed, 8)?;
    let (mut address, mut lladdr) = (None, None);
    for attribute in attributes_after(message.body, NDMSG) {
        match attribute.kind {
            libc::NDA_DST => address = attribute.address(),
            libc::NDA_LLADDR => lladdr = attribute.value.try_into().ok().map(Mac),
            _ => {}
        }
    }
    let address = address?;
    let usable = message.kind == libc::RTM_NEWNEIGH
        && state & NUD_VALID != 0
        && !implied(state, address, lladdr);
    let neighbor = lladdr.filter(|_| usable).map(|lladdr| Neighbor {
        lladdr: Some(lladdr),
        permanent: state & (libc::NUD_PERMANENT | libc::NUD_NOARP) != 0,
    });
    Some(((ifindex, address), neighbor))
}

/// Entries that the kernel makes without a word when it sends the first packet: multicast, broadcast, and devices
/// without address resolution (their address is zero or the device's own).
fn implied(state: u16, address: IpAddr, lladdr: Option<Mac>) -> bool {
    state & libc::NUD_NOARP != 0
        && (address.is_multicast()
            || address.is_loopback()
            || lladdr.is_none_or(|mac| mac == Mac::default() || mac == Mac([0xff; 6])))
}

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
    use crate::wire::Body;

    fn decode_with(kind: u16, state: u16, flags: u8) -> Option<Entry> {
        let mut fixed = [0; NDMSG];
        fixed[0] = libc::AF_INET as u8;
        fixed[4] = 7;
        fixed[8..10].copy_from_slice(&state.to_ne_bytes());
        fixed[10] = flags;
        let mut body = Body::new(&fixed);
        body.attribute(libc::NDA_DST, &[192, 0, 2, 1])
            .attribute(libc::NDA_LLADDR, &[2, 0, 0, 0, 0, 1]);
        let message = Message {
            kind,
            flags: 0,
            sequence: 0,
            body: &body.0,
        };
        decode(&message)
    }

    fn known(kind: u16, state: u16) -> Option<Neighbor> {
        let (key, neighbor) = decode_with(kind, state, 0).unwrap();
        assert_eq!(key, (IfIndex(7), "192.0.2.1".parse().unwrap()));
        neighbor
    }

    #[test]
    fn an_address_counts_while_it_may_be_used() {
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
    fn proxy_entries_are_no_neighbors() {
        assert_eq!(
            decode_with(libc::RTM_NEWNEIGH, libc::NUD_PERMANENT, libc::NTF_PROXY),
            None
        );
    }
}
