//! The flow of a packet, for proxies that learn per flow: a second implementation of `flow_key` in
//! `datapath/table/flows.h`.

use sidestep_wire::Protocol;

/// Hop-by-Hop Options, Routing, Destination Options.
const SKIPPED: [u8; 3] = [0, 43, 60];
/// Maximum number of these headers.
const SKIPPED_MAX: usize = 4;
/// Bytes beyond this offset of a frame are not read.
const OFFSET_MAX: usize = 4095;

/// Returns the flow key of the packet at an offset: version, addresses and protocol, and the ports
/// or, for a fragment, the identification. Returns `None` if the packet is malformed.
pub fn key(frame: &[u8], at: usize, version: u8) -> Option<Vec<u8>> {
    let (addresses, mut proto, mut upper) = if version == 4 {
        let ip = bytes(frame, at, 20)?;
        (&ip[12..20], ip[9], at + usize::from(ip[0] & 15) * 4)
    } else {
        let ip = bytes(frame, at, 40)?;
        (&ip[8..40], ip[6], at + 40)
    };
    let mut key = [&[version], addresses].concat();
    if version == 4 {
        let ip = bytes(frame, at, 20)?;
        if ip[6] & 0x3f != 0 || ip[7] != 0 {
            key.extend([proto, 1, ip[4], ip[5]]);
            return Some(key);
        }
    } else {
        for _ in 0..SKIPPED_MAX {
            if !SKIPPED.contains(&proto) {
                break;
            }
            let header = bytes(frame, upper, 2)?;
            proto = header[0];
            upper += (usize::from(header[1]) + 1) * 8;
        }
        if proto == Protocol::FRAGMENT.0 {
            key.extend([proto, 1]);
            key.extend(&bytes(frame, upper, 8)?[4..]);
            return Some(key);
        }
    }
    key.extend([proto, 0]);
    if [Protocol::TCP.0, Protocol::UDP.0, Protocol::SCTP.0].contains(&proto) {
        key.extend(bytes(frame, upper, 4).unwrap_or(&[0; 4]));
    }
    Some(key)
}

/// Returns the flow of an ICMP error of this version at an offset: the reverse of the quoted
/// packet's flow. Returns `None` if the message is not an error, or if the quoted packet has
/// another version, is malformed or is a fragment.
pub fn quoted(frame: &[u8], at: usize, version: u8) -> Option<Vec<u8>> {
    let (is_error, icmp): (fn(u8) -> bool, usize) = if version == 4 {
        let ip = bytes(frame, at, 20)?;
        let upper = at + usize::from(ip[0] & 15) * 4;
        (
            (ip[9] == Protocol::ICMP.0).then_some(|kind| [3, 11, 12].contains(&kind))?,
            upper,
        )
    } else {
        let ip = bytes(frame, at, 40)?;
        (
            (ip[6] == Protocol::ICMPV6.0).then_some(|kind| kind < 128)?,
            at + 40,
        )
    };
    let first = *bytes(frame, icmp + 8, 1)?.first()?;
    if first >> 4 != version || version == 4 && first & 15 < 5 {
        return None;
    }
    let quoted = is_error(bytes(frame, icmp, 8)?[0]).then(|| key(frame, icmp + 8, version))??;
    let address = if version == 4 { 4 } else { 16 };
    let (addresses, rest) = quoted[1..].split_at(2 * address);
    let (&[proto, fragment], ports) = rest.split_first_chunk()?;
    if fragment != 0 {
        return None;
    }
    let (source, destination) = addresses.split_at(address);
    let (from, to) = ports.split_at(ports.len() / 2);
    Some([&[version], destination, source, &[proto, 0], to, from].concat())
}

fn bytes(frame: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    if at > OFFSET_MAX {
        return None;
    }
    frame.get(at..at + length)
}
