//! Fragments with bytes by hand from the RFCs. Golden vectors cover whole packets.

use super::*;

fn oversized(frame: &[u8], mtu: u32) -> Oversized {
    Oversized {
        time: 0,
        ifindex: 1,
        egress: 2,
        mtu,
        frame: frame.to_vec(),
    }
}

/// Ethernet, IPv6 with an SRH of one segment, and 30 bytes as IPv4.
fn tunnel() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    frame.extend([0x6b, 0x91, 0x23, 0x45, 0, 24 + 30, 43, 64]);
    frame.extend([0xfc; 32]);
    frame.extend([4, 2, 4, 0, 0, 0, 0, 0]);
    frame.extend([0xfd; 16]);
    frame.extend(0..30);
    frame
}

#[test]
fn the_fragment_header_follows_the_routing_header() {
    // 40 + 24 + 8 octets of headers, and 23 octets of room: 16 octets fit.
    let frames = fragments(&oversized(&tunnel(), 95), 0x0102_0304).expect("fragments");
    assert_eq!(frames.len(), 2);
    for (frame, (offset, part)) in frames.iter().zip([([0, 1], 0..16), ([0, 16], 16..30)]) {
        let part: Vec<u8> = part.collect();
        let mut expected = tunnel()[..14 + 64].to_vec();
        expected[14 + 5] = 24 + 8 + part.len() as u8;
        expected[14 + 40] = 44;
        expected.extend([4, 0]);
        expected.extend(offset);
        expected.extend([1, 2, 3, 4]);
        expected.extend(part);
        assert_eq!(hex::encode(frame), hex::encode(expected));
    }
}

#[test]
fn a_packet_without_room_for_eight_bytes_is_not_fragmented() {
    assert_eq!(fragments(&oversized(&tunnel(), 79), 1), None);
    assert_eq!(fragments(&oversized(&tunnel(), 40), 1), None);
    assert!(fragments(&oversized(&tunnel(), 80), 1).is_some());
}

#[test]
fn truncated_frames_are_not_fragmented() {
    for length in 0..14 + 64 {
        let cut = &tunnel()[..length];
        if let Some(frames) = fragments(&oversized(cut, 95), 1) {
            assert!(frames.iter().all(|frame| frame.len() >= 14), "{length}");
        }
    }
}

#[test]
fn identifications_differ_and_do_not_count() {
    let mut identifications = Identifications::default();
    let numbers: Vec<u32> = (0..10_000).map(|_| identifications.allocate()).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), numbers.len());
    let steps = numbers
        .windows(2)
        .filter(|two| two[0].wrapping_add(1) == two[1]);
    assert!(steps.count() < 10);
}

#[test]
fn an_offloaded_checksum_is_completed_and_others_are_kept() {
    // UDP 1 > 2, 10 octets, from 192.0.2.1 to 198.51.100.1.
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([192, 0, 2, 1, 198, 51, 100, 1]);
    frame.extend([0, 1, 0, 2, 0, 10, 0, 0, 7, 9]);
    let at = 14 + 20 + 6;
    // Pseudo-header: c000 + 0201 + c633 + 6401 + 0011 + 000a = 1ec50, folded ec51.
    frame[at..at + 2].copy_from_slice(&[0xec, 0x51]);
    let mut completed = frame.clone();
    complete_checksum(&mut completed);
    // ec51 + 0001 + 0002 + 000a + 0709 = f367; its complement is 0c98.
    assert_eq!(completed[at..at + 2], [0x0c, 0x98]);
    for kept in [[0x0c, 0x98], [0, 0], [1, 1]] {
        frame[at..at + 2].copy_from_slice(&kept);
        let before = frame.clone();
        complete_checksum(&mut frame);
        assert_eq!(frame, before);
    }
}
