//! Traffic on unchanged routes while others change. The program is responsible for every lost
//! packet.

use std::net::Ipv6Addr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::frames::{ETHERNET, destination6, ethernet, udp};
use super::{ROUTER, Star};

/// Interval between two packets.
const PACE: Duration = Duration::from_micros(300);
/// Fewest packets per kind that can show a loss. A busy machine sends far fewer than [`PACE`] asks
/// for.
const FEWEST: u64 = 50;
/// The routes, as arguments of `ip`.
pub const ROUTES: [&str; 2] = [
    "route add fc00:bb::/32 via fc00:b::2 dev eth1",
    "route add fc0c::/16 encap seg6 mode encap segs fc00:bb::e dev eth1",
];

/// Runs `body` while packets travel on the unchanged routes, and checks that none is lost. Returns
/// its value, and the number of packets per kind.
pub fn during<T>(star: &Star, what: &str, body: impl FnOnce() -> T) -> (T, u64) {
    let done = AtomicBool::new(false);
    let (value, sent, arrived) = thread::scope(|scope| {
        let traffic = scope.spawn(|| traffic(star, &done));
        // Stop the traffic after a failure too.
        let value = panic::catch_unwind(AssertUnwindSafe(body));
        done.store(true, Ordering::Release);
        let (sent, arrived) = traffic.join().expect("the traffic");
        let value = value.unwrap_or_else(|failure| panic::resume_unwind(failure));
        (value, sent, arrived)
    });
    assert!(sent > FEWEST, "{what}: {sent} packets are too few");
    assert_eq!(arrived, [sent; 2], "{what}: of {sent} each");
    (value, sent)
}

/// Sends plain and encapsulated frames from `a` to `b` on unchanged routes until `done`. Returns
/// the number of sent frames, and of received frames per kind.
fn traffic(star: &Star, done: &AtomicBool) -> (u64, [u64; 2]) {
    let (a, b) = (star.socket("a"), star.socket("b"));
    let frame = |to: &str| {
        let ends = ["fc00:a::2", to].map(|text| text.parse().expect("an address"));
        let packet = udp(ends[0], ends[1], 64, b"constant");
        ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
    };
    let [plain, wrapped]: [Ipv6Addr; 2] =
        ["fc00:b::2", "fc00:bb::e"].map(|text| text.parse().expect("an address"));
    let frames = [frame("fc00:b::2"), frame("fc0c::1")];
    let (mut sent, mut arrived) = (0, [0; 2]);
    let mut look = |wait: Duration| {
        let Some(out) = b.receive(wait).expect("receive") else {
            return false;
        };
        // An encapsulation has a fresh outer hop limit, a plain packet one less. This identifies
        // the test's packets.
        match destination6(&out) {
            Some(to) if to == plain && out[ETHERNET + 7] == 63 => arrived[0] += 1,
            Some(to) if to == wrapped => arrived[1] += 1,
            _ => {}
        }
        true
    };
    while !done.load(Ordering::Acquire) {
        for frame in &frames {
            a.send(frame).expect("send");
        }
        sent += 1;
        while look(Duration::ZERO) {}
        thread::sleep(PACE);
    }
    while look(Duration::from_millis(200)) {}
    (sent, arrived)
}
