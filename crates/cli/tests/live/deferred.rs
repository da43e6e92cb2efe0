//! Packets that XDP leaves to TC on the same port: more headers than it has room for.

use std::net::IpAddr;
use std::time::Duration;

use sidestep_testkit::{FrameSocket, Napi};
use sidestep_wire::Ipv4;

use crate::support::frames::{ethernet, udp};
use crate::support::{ROUTER, Star, begin, counters, modes, printed, reasons};

const SECOND: Duration = Duration::from_secs(1);
const SHORTLY: Duration = Duration::from_millis(100);
/// Segments of the lists.
const LENGTHS: [u16; 4] = [10, 11, 12, 16];

fn segments(count: u16) -> String {
    let segments: Vec<_> = (1..=count).map(|it| format!("fc0a::{it:x}")).collect();
    segments.join(",")
}

/// Packets onto each route, of both families, with a small and a large payload.
fn packets() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut add = |from: &str, to: String, data: &[u8]| {
        let from: IpAddr = from.parse().expect("an address");
        let mut packet = udp(from, to.parse().expect("an address"), 64, data);
        if from.is_ipv4() {
            // RFC 791: without DF the tunnel packet leaves in fragments.
            packet[6] = 0;
            Ipv4::write_checksum(&mut packet);
        }
        packets.push(packet);
    };
    for count in LENGTHS {
        for length in [9, 1200, 1400] {
            let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            add("fc00:a::2", format!("2001:db8:{count}::1"), &data);
            add("fc00:a::2", format!("2001:db8:1{count}::1"), &data);
            add("10.0.1.2", format!("10.8.{count}.1"), &data);
        }
    }
    packets
}

/// Returns the frames that leave for each packet, in order. The Identification of fragments is
/// random. `captured`: another program captures on the port, as tcpdump does.
fn sent(star: &Star, mode: &str, captured: bool) -> Vec<Vec<Vec<u8>>> {
    let _capture =
        captured.then(|| FrameSocket::open(star.router(), "eth0").expect("a packet socket"));
    let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
    for count in LENGTHS {
        for words in [
            format!(
                "policy add p{count} color {count} endpoint fc0a::1 segs {}",
                segments(count)
            ),
            format!("route add 10.8.{count}.0/24 policy p{count}"),
            format!(
                "route add 2001:db8:1{count}::/48 encap seg6 mode inline.red segs {} via \
                 fc00:b::2 dev eth1",
                segments(count)
            ),
        ] {
            printed(star.router(), &words.split(' ').collect::<Vec<_>>());
        }
    }
    let (a, b) = (star.socket("a"), star.socket("b"));
    let before = counters(star.router(), "eth0");
    let packets = packets();
    let frames = packets.iter().map(|packet| {
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), packet);
        a.send(&frame).expect("send");
        received(&b)
    });
    let frames: Vec<_> = frames.collect();
    let after = counters(star.router(), "eth0");
    let of = |port: &sidestep_control::report::PortCounters| {
        [
            port.received_packets,
            port.forwarded,
            port.punted,
            port.dropped,
        ]
    };
    let [received, forwarded, punted, dropped] =
        std::array::from_fn(|at| of(&after)[at] - of(&before)[at]);
    let place = format!("{mode}: {after:?} {:?}", reasons(star.router()));
    assert_eq!(received, packets.len() as u64, "{place}");
    assert_eq!(received, forwarded + punted + dropped, "{place}");
    let headroom = |(_, name, _): &(String, String, u64)| name.contains("headroom");
    assert!(!reasons(star.router()).iter().any(headroom), "{place}");
    frames
}

fn received(socket: &FrameSocket) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut patience = SECOND / 5;
    while let Some(mut frame) = socket.receive(patience).expect("receive") {
        // The Fragment header is behind the SRH of H.Encaps; its last four bytes identify the packet.
        if frame.get(54) == Some(&44) {
            let at = 14 + 40 + 8 * (usize::from(frame[55]) + 1) + 4;
            frame[at..at + 4].fill(0);
        }
        frames.push(frame);
        patience = SHORTLY;
    }
    frames
}

#[test]
fn packets_onto_one_to_sixteen_segments_leave_in_xdp_as_in_tc() {
    let Some(_turn) = begin() else {
        return;
    };
    if modes(&["xdp-always"]).is_empty() {
        return;
    }
    let star = Star::new("livedefer");
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    star.ip().all([
        "address add fc00:5::1/128 dev lo",
        "sr tunsrc set fc00:5::1",
        "route add fc0a::/16 via fc00:b::2 dev eth1",
    ]);
    for count in LENGTHS {
        star.ip().run(&format!(
            "route add 2001:db8:{count}::/48 encap seg6 mode encap segs {} dev eth1",
            segments(count)
        ));
    }
    let tc = sent(&star, "tc", false);
    for captured in [false, true] {
        let xdp = sent(&star, "xdp-always", captured);
        for ((packet, tc), xdp) in packets().iter().zip(&tc).zip(&xdp) {
            assert_eq!(xdp, tc, "captured: {captured}: {}", hex::encode(packet));
        }
    }
    // IPv6 packets of more than 1280 bytes that do not fit are answered, all others leave.
    let left = tc.iter().filter(|frames| !frames.is_empty()).count();
    assert!(left * 4 >= tc.len() * 3, "{left} of {}", tc.len());
    let fragmented = tc.iter().filter(|frames| frames.len() > 1).count();
    assert!(fragmented >= LENGTHS.len(), "{fragmented}");
}
