//! Reassembly of fragments, so that each engine may cut a packet where it wants.

use sidestep_wire::field::{ipv4, ipv6};
use sidestep_wire::{Ethernet, Header, Headers, Ipv4};

/// A fragment: what all fragments of its packet have in common, and its part of the payload.
struct Part<'a> {
    common: Vec<u8>,
    offset: usize,
    more: bool,
    payload: &'a [u8],
}

impl<'a> Part<'a> {
    fn of(frame: &'a [u8]) -> Option<Self> {
        let without = |frame: &[u8], fields: &[usize]| {
            let mut frame = frame.to_vec();
            for &at in fields {
                frame[at..at + 2].fill(0);
            }
            frame
        };
        for layer in Headers::frame(frame) {
            let (start, payload) = (layer.offset, &frame[layer.offset + layer.length..]);
            match layer.header {
                Header::Fragment(header) => {
                    let length = Ethernet::LENGTH + ipv6::PAYLOAD_LENGTH;
                    let mut common = without(&frame[..start], &[length]);
                    common.push(header.next_header().0);
                    return Some(Self {
                        common,
                        offset: usize::from(header.offset()) * 8,
                        more: header.more_fragments(),
                        payload,
                    });
                }
                Header::Ipv4(header) => {
                    // Later fragments lack the options that are not copied.
                    let differ = [ipv4::TOTAL_LENGTH, ipv4::FRAGMENT, ipv4::CHECKSUM];
                    let differ = differ.map(|field| start + field);
                    let mut common = without(&frame[..start + Ipv4::LENGTH], &differ);
                    common[start + ipv4::VERSION_IHL] = 0;
                    return Some(Self {
                        common,
                        offset: usize::from(header.fragment_offset()) * 8,
                        more: header.more_fragments(),
                        payload,
                    });
                }
                _ => {}
            }
        }
        None
    }
}

/// The headers and the payload of the packet of these fragments; none if they are not all fragments
/// of one packet. The Identification of a Fragment header is the engine's to choose.
pub fn reassemble<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) -> Option<(Vec<u8>, Vec<u8>)> {
    let parts = frames.into_iter().map(|frame| Part::of(frame));
    let mut parts = parts.collect::<Option<Vec<Part<'_>>>>()?;
    parts.sort_by_key(|part| part.offset);
    let common = parts.first()?.common.clone();
    let mut payload = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let is_last = place + 1 == parts.len();
        let fits = part.offset == payload.len() && part.more != is_last;
        if !fits || part.common != common {
            return None;
        }
        payload.extend_from_slice(part.payload);
    }
    Some((common, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_wire::Protocol;

    /// A frame of a fragment: offset in units of 8 octets, flag M, payload.
    fn frame(offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
        let fragment = sidestep_wire::Fragment {
            next_header: Protocol::IPV6,
            offset,
            more_fragments: more,
            identification: u32::from(offset),
        };
        let mut frame = vec![2; 12];
        frame.extend([
            0x86,
            0xdd,
            0x60,
            0,
            0,
            0,
            0,
            8 + payload.len() as u8,
            44,
            64,
        ]);
        frame.extend([1; 32]);
        frame.extend(fragment.emit(payload));
        frame
    }

    #[test]
    fn fragments_of_any_size_and_order_make_the_same_packet() {
        let whole = [frame(0, true, &[1; 16]), frame(2, false, &[2; 3])];
        let other = [
            frame(2, false, &[2; 3]),
            frame(1, true, &[1; 8]),
            frame(0, true, &[1; 8]),
        ];
        assert!(reassemble(&whole).is_some());
        assert_eq!(reassemble(&whole), reassemble(&other));
    }

    #[test]
    fn a_gap_or_a_missing_end_is_no_packet() {
        assert_eq!(reassemble(&[]), None);
        assert_eq!(reassemble(&[frame(0, true, &[1; 8])]), None);
        assert_eq!(
            reassemble(&[frame(0, true, &[1; 8]), frame(2, false, &[2; 3])]),
            None
        );
        assert_eq!(reassemble(&[vec![2; 60]]), None);
    }
}
